"""Where the time of a real run went, from a profiler's trace and the one clock.

timeline.py  causes, gaps, overlap of one step    groups.py    kernels beside their predictions
chains.py    what a compiler could fuse           advice.py    what would help
causes.py    product, attention, memory-bound …   diagnose.py  the whole answer
"""

from trueflops.predict.diagnosis.diagnose import Diagnosis as Diagnosis
from trueflops.predict.diagnosis.diagnose import diagnose as diagnose
