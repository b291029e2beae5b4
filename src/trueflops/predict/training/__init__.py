"""The training step: what each stage computes, sends and holds, and how stages follow one another.

trainer.py        the step of one plan, or of a million; step.py: the answer
stages.py         which layers a stage holds
hooks.py          what frameworks hang around modules
pipeline.py       a micro-batch on the average stage, and on the slowest
schedule.py       bubbles, micro-batches in flight
simulated.py      the pipeline of one plan, event by event
pipelined.py      the same as torch's pipelining runs one plan, task by task
communication.py  between replicas and stages; sent.py: bytes, as torch's engine sends them;
                  through_one.py: those that pass DataParallel's first device, or a server
upkeep.py         weights, gradients, states: casts, sums, offload, the update: foreach.py, muon.py,
                  adafactor.py, blockwise.py
slowest_chip.py   waiting for the slowest of all ranks
step_terms.py     the step's parts as a tree
memory.py         parameters and activations of a stage
held/             what each implementation of data parallelism holds, from its code
staying.py        what layers keep beside what their gradients need
moments.py        a stage's memory at the fullest moment; peaks.py: who counts which bytes
guessed.py        answers as wide as what was guessed makes them
"""

from trueflops.predict.training.step import TrainingStep as TrainingStep
from trueflops.predict.training.trainer import Trainer as Trainer
