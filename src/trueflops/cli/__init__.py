"""Thin doors: parse, call, show. No arithmetic.

arguments.py  the commands and their flags      main.py     errors, exit codes
train.py  infer.py  compare.py  catalog.py  ops.py  explain.py   one command each
demo.py       what `make demo` runs
Modules that need numpy or rich are imported by the command that runs, so that --help is instant.
"""

from trueflops.cli.main import main as main
