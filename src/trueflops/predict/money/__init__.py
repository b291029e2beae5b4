"""What a prediction costs: rent and energy of a step, and of a whole run with all that goes wrong.

bill.py        tokens/s, MFU, days, dollars, kWh
whole_bill.py  the same with failures, checkpoints, PUE and ownership
goodput.py     time lost to failures       checkpoint.py  time lost to saving
ownership.py   buying instead of renting   operation.py   how a cluster is run
"""

from trueflops.predict.money.bill import Bill as Bill
from trueflops.predict.money.bill import training_bill as training_bill
from trueflops.predict.money.whole_bill import WholeBill as WholeBill
from trueflops.predict.money.whole_bill import whole_bill as whole_bill
