"""Predictions: trees whose parts sum to the whole, each value with its interval and its origin.

terms.py          Term (the tree) and Estimate (a value with its errors)
costs.py          what one rank's pieces cost     stages.py         which layers a stage holds
schedule.py       bubbles, micro-batches in flight memory.py         a stage's memory
communication.py  between replicas and stages     pipeline.py       the slowest stage
training.py       the step                        serving.py        prefill, decode, KV cache
bill.py           tokens/s, MFU, days, dollars, kWh
kernels.py        single kernels                  explain.py        how one matmul runs
mapping.py        from a tile to instructions     diagnosis/        where a real step's time went
"""

from trueflops.predict.bill import Bill as Bill
from trueflops.predict.bill import training_bill as training_bill
from trueflops.predict.serving import Server as Server
from trueflops.predict.serving import ServingPoint as ServingPoint
from trueflops.predict.terms import Estimate as Estimate
from trueflops.predict.terms import Term as Term
from trueflops.predict.training import Trainer as Trainer
from trueflops.predict.training import TrainingStep as TrainingStep
