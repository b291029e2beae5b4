"""Predictions: trees whose parts sum to the whole, each value with its interval and its origin.

costs.py          what one rank's pieces cost; tensors.py: their weights, one by one
training/         the step of one plan, or of a million: stages, schedules, memory
serving/          prefill, decode, KV cache under a load
money/            what it costs: tokens/s, dollars, kWh, failures, owning
captured/         a recorded program, replayed
diagnosis/        where a real step's time went
collective/       a collective by every algorithm, message by message
stragglers/       slow ranks and links under synchronous and asynchronous updates
kernels.py        single kernels; explain/: how one of them runs; mapping.py: tile to instructions
released.py       the format weights are served in
advice.py         what would help, and by how much: for captured programs and for traces
odd_sides.py      sides of products that are read slowly, and what to pad them to
ran_ops.py        every op of a step, one by one; provenance.py: which curve priced what
"""

from trueflops.predict.money.bill import Bill as Bill
from trueflops.predict.money.bill import training_bill as training_bill
from trueflops.predict.money.whole_bill import WholeBill as WholeBill
from trueflops.predict.money.whole_bill import whole_bill as whole_bill
from trueflops.predict.serving import Point as Point
from trueflops.predict.serving import Pool as Pool
from trueflops.predict.serving import PooledPoint as PooledPoint
from trueflops.predict.serving import Pools as Pools
from trueflops.predict.serving import Server as Server
from trueflops.predict.serving import ServingPoint as ServingPoint
from trueflops.predict.training.step import TrainingStep as TrainingStep
from trueflops.predict.training.trainer import Trainer as Trainer
from trueflops.runtime.terms import Estimate as Estimate
from trueflops.runtime.terms import Term as Term
