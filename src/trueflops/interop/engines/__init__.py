"""Commands and files with which engines are started, written and read back.

deployed.py   what such a command says, and the flags of each engine that say it
words.py      a script as words, with what a shell in it is given to run
starts.py     where a script starts an engine, by its command or its image
flags.py      the words behind a start as flags
values.py     what the values of flags mean
configs.py    the file of flags that --config names
commands.py   a command line to a Deployed, and back
checkpoints.py  what llama.cpp loads: a repository's usual format, a drafter's file
pools.py      servers that prefill and servers that decode
manifests.py  YAML that starts containers, as a script
drafts.py     how tokens are drafted
partition.py  which layers each card holds
dynamo.py     Dynamo's graph of workers
told.py       what an engine can be told, and what it would not start with
files.py      the files of a tool by its name; which tool a file is of
"""

from trueflops.interop.engines.commands import read_command as read_command
from trueflops.interop.engines.deployed import Deployed as Deployed
from trueflops.interop.engines.files import TOOLS as TOOLS
from trueflops.interop.engines.files import engine_of_tool as engine_of_tool
from trueflops.interop.engines.files import read_deployment as read_deployment
from trueflops.interop.engines.files import write_deployment as write_deployment
