"""Predictions: trees whose parts sum to the whole, each value with its interval and its origin.

costs.py          what one rank's pieces cost
hooks.py          what frameworks hang around modules
stages.py         which layers a stage holds
pipeline.py       a micro-batch on the average stage, and on the slowest
schedule.py       bubbles, micro-batches in flight
communication.py  between replicas and stages; sent.py: bytes, as torch's engine sends them;
                  through_one.py: those that pass DataParallel's first device, or a server
simulated.py      the pipeline of one plan, event by event
upkeep.py         weights, gradients, states: casts, sums, the update (foreach.py, muon.py), offload
memory.py         parameters and activations of a stage
held/             what each implementation of data parallelism holds, from its code
moments.py        a stage's memory at the fullest moment; peaks.py: who counts which bytes
staying.py        what layers keep beside what their gradients need
pipelined.py      the same as torch's pipelining runs one plan, task by task
slowest_chip.py   waiting for the slowest of all ranks
step_terms.py     the step's parts as a tree
training.py       the step of one plan, or of a million (training_step.py: the answer)
guessed.py        answers as wide as what was guessed makes them
serving/          prefill, decode, KV cache under a load
released.py       the format weights are served in
bill.py           tokens/s, MFU, days, dollars, kWh
whole_bill.py     the same with failures (goodput.py), checkpoints (checkpoint.py), PUE, ownership
                  (ownership.py), as a cluster is run (operation.py)
kernels.py        single kernels; explain/: how one of them runs; mapping.py: tile to instructions
collective/       a collective by every algorithm, message by message
stragglers/       slow ranks and links under synchronous and asynchronous updates
captured/         a recorded program, replayed; allocator.py: PyTorch's caching allocator
diagnosis/        where a real step's time went
advice.py         what would help, and by how much: for captured programs and for traces
odd_sides.py      sides of products that are read slowly, and what to pad them to
ran_ops.py        every op of a step, one by one; provenance.py: which curve priced what
"""

from trueflops.predict.bill import Bill as Bill
from trueflops.predict.bill import training_bill as training_bill
from trueflops.predict.serving import Point as Point
from trueflops.predict.serving import Pool as Pool
from trueflops.predict.serving import PooledPoint as PooledPoint
from trueflops.predict.serving import Pools as Pools
from trueflops.predict.serving import Server as Server
from trueflops.predict.serving import ServingPoint as ServingPoint
from trueflops.predict.training import Trainer as Trainer
from trueflops.predict.training_step import TrainingStep as TrainingStep
from trueflops.predict.whole_bill import WholeBill as WholeBill
from trueflops.predict.whole_bill import whole_bill as whole_bill
from trueflops.runtime.terms import Estimate as Estimate
from trueflops.runtime.terms import Term as Term
