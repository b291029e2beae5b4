"""ONNX files, read into the recording of one forward pass, as if it had been captured.

file.py       bytes to a model, with limits
sizes.py      --shape and --dim, shapes of inputs
values.py     shapes and small numbers, node by node, by onnx's own inference
contrib.py    shapes of onnxruntime's ops
quantised.py  which dequantised operands stay narrow
nodes.py      tensors and nodes as the rules see them
rules.py      which calls of ATen a node is: pointwise, moving, norms, reductions
products.py   products, convolutions, recurrent layers, narrow ones too
attention.py  fused attention
reading.py    the walk over a graph: which calls, on which storages
lifetimes.py  how long each tensor lives
"""

from trueflops.interop.onnx.reading import read_onnx as read_onnx
from trueflops.interop.onnx.sizes import Given as Given
