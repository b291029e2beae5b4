"""Predictions: trees whose parts sum to the whole, each value with its interval and its origin.

terms.py          Term (the tree) and Estimate (a value with its errors)
costs.py          what one rank's pieces cost     stages.py         which layers a stage holds
schedule.py       bubbles, micro-batches in flight memory.py         a stage's memory
communication.py  between replicas and stages     pipeline.py       the slowest stage
slowing.py        waits for the host, the cap     upkeep.py, muon.py  weights, gradients, states
floor.py          what no step goes below         training.py       the step (training_step.py)
serving.py        prefill, decode, KV cache       released.py       the format weights are served in
bill.py           tokens/s, MFU, days, dollars, kWh
kernels.py        single kernels                  explain/          how one kernel runs
provenance.py     which curve priced what
mapping.py        from a tile to instructions     diagnosis/        where a real step's time went
captured/         a recorded program, replayed    allocator.py      PyTorch's caching allocator
"""

from trueflops.predict.bill import Bill as Bill
from trueflops.predict.bill import training_bill as training_bill
from trueflops.predict.serving import Server as Server
from trueflops.predict.serving import ServingPoint as ServingPoint
from trueflops.predict.training import Trainer as Trainer
from trueflops.predict.training_step import TrainingStep as TrainingStep
from trueflops.runtime.terms import Estimate as Estimate
from trueflops.runtime.terms import Term as Term
