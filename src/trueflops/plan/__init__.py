"""How the work is laid on the cluster.

plan.py   Plan: one plan or a million; Optimizer
serving.py  the plans of servers
usual.py  what is asked for where nobody says
asked.py  what a rule may look at
rules.py  which plans are possible, and what would fit where one is not
tuning.py the same of adapters; scheduled.py: of pipeline schedules; recomputed.py: of layers
spread.py which servers can spread the keys of a sequence over ranks
captures.py  what of a step runs as CUDA graphs
guesses.py  what nobody said of a run, and what else it may have been
words.py  a plan in the words of its flags
file.py   a plan in a JSON file
shares.py which part of every weight a rank holds; pieces.py: which layers a stage has
"""

from trueflops.plan.plan import BYTES as BYTES
from trueflops.plan.plan import NUMERIC as NUMERIC
from trueflops.plan.plan import ONE_8BIT as ONE_8BIT
from trueflops.plan.plan import OPTIMIZERS as OPTIMIZERS
from trueflops.plan.plan import Optimizer as Optimizer
from trueflops.plan.plan import Plan as Plan
from trueflops.plan.plan import Schedule as Schedule
from trueflops.plan.rules import check_plan as check_plan
from trueflops.plan.rules import possible as possible
from trueflops.plan.serving import serving_plan as serving_plan
from trueflops.plan.serving import shares_experts as shares_experts
