"""The commands: parse arguments, call, show. No arithmetic.

arguments/    the commands and their flags      main.py     errors, exit codes
planning.py   from flags to a workload, a plan  question.py what train and infer share
searching.py  a search as flags describe it     operation.py how a cluster is run and paid for
launching.py  --emit and --from of train        buying.py   which chips, and how many
loading.py    a load of requests, simulated     rates.py    several loads
demo.py       what `make demo` runs
deploying.py  an engine as flags set it, --emit and --from of infer
speculation.py  how tokens are drafted, from flags   offloading.py  what the host holds
splitting.py  how layers are dealt out to cards
choosing.py   how to serve: configurations of every kind
counts.py     a number that a flag says      largest.py  --seq longest, --micro-batch largest
models.py     the largest models of the catalog, where MODEL is any
unread.py     flags that a kind of question does not read
correcting.py  --calibrate and --log of run
replies.py    where an answer goes: to stdout, or to who asked from Python
One command each: train.py, infer.py, run.py, sweep.py, compare.py, catalog.py, explain.py, ops.py,
capture.py, guard.py, diagnose.py, collective.py, stragglers.py, web.py, measure.py, calibrate.py,
verify.py and completion.py, whose words completing.py finds. run_compare.py is run's --compare,
run_rank.py one rank of it.
Modules that need numpy or rich are imported by the command that runs, so that --help is instant.
"""

from trueflops.cli.main import main as main
