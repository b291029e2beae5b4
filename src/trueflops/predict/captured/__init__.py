"""A captured program on a chip: what its step takes, and what it holds.

program.py   all of it: fuse what was compiled, price, run, replay the memory
compiled.py  regions of torch.compile, fused
lowering.py  the kernels of every call, found once
prices.py    calls -> kernels with their seconds, by the one clock
step.py      a recorded step: priced, replayed by the runtime, told as a tree
stages.py    the stages of a pipeline, replayed together
memory.py    every storage through the caching allocator (allocator.py: PyTorch's): peaks, timeline,
             what was alive
groups.py    kernels, alike ones together
fitting.py   whether it fits, and what would save memory
advice.py    what would make it faster or let it fit, tried and priced
changes.py   changes made on the recording: compiled, a fused loss, TF32, fp8, a CUDA graph
elsewhere.py the same step on other chips
padding.py   sizes that products read slowly, padded
guarded.py   beside the step that was accepted: what grew
"""

from trueflops.predict.captured.memory import CapturedMemory as CapturedMemory
from trueflops.predict.captured.memory import captured_memory as captured_memory
from trueflops.predict.captured.step import CapturedStep as CapturedStep
from trueflops.predict.captured.step import captured_step as captured_step
