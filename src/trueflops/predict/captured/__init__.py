"""A captured program on a chip: what its step takes, and what it holds.

prices.py    calls -> kernels with their seconds, by the one clock
host.py      what the host needs to issue a call
step.py      two clocks: the host issues, the device's streams run; waits between them
memory.py    every storage through the caching allocator: peaks, timeline, what was alive
"""

from trueflops.predict.captured.memory import CapturedMemory as CapturedMemory
from trueflops.predict.captured.memory import captured_memory as captured_memory
from trueflops.predict.captured.step import CapturedStep as CapturedStep
from trueflops.predict.captured.step import captured_step as captured_step
