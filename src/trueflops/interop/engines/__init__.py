"""Commands and files with which engines are started, written and read back.

deployed.py   what such a command says, and the flags of each engine that say it
commands.py   a command line to a Deployed, and back
drafts.py     how tokens are drafted
partition.py  which layers each card holds
dynamo.py     Dynamo's graph of workers
files.py      the files of a tool by its name; which tool a file is of
"""

from trueflops.interop.engines.commands import read_command as read_command
from trueflops.interop.engines.deployed import Deployed as Deployed
from trueflops.interop.engines.files import TOOLS as TOOLS
from trueflops.interop.engines.files import engine_of_tool as engine_of_tool
from trueflops.interop.engines.files import read_deployment as read_deployment
from trueflops.interop.engines.files import write_deployment as write_deployment
