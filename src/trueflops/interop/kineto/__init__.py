"""Traces of PyTorch's profiler (Kineto), as .json or .json.gz, read into predict.diagnosis.Trace.

file.py       bytes to events, with limits       host.py     what the host did, nested
reading.py    kernels, who launched them, steps  calls.py    an op as a call of ATen, and its label
arguments.py  shapes, types and scalars          outputs.py  what each op made of them
lists.py      what kernels tell of lists of tensors
stream.py     JSON of any length, piece by piece
on_cpu.py     a CPU's own work, where there is no accelerator
"""

from trueflops.interop.kineto.reading import read_trace as read_trace
