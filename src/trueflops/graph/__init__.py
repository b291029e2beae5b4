"""The IR and what is done to it. In: Model, Plan, Pass. Out: a Program of Graphs for one rank.

kinds.py      what an op, a collective and a tensor can be
formats.py    number formats of weights
variants.py   whose kernel or which format runs an op, where its kind leaves that open
alignment.py  which loads the sides of a product fit, and so which road it takes
ir.py         Tensor, Op, Collective, Graph
rules.py      per kind of op: its work, what its backward needs, and that backward
functions.py  PyTorch's functions as eager kernels, and autograd's kernels for them
build/        the forward graph as the paper writes it
passes/       quantise, shard, fuse, write out, differentiate, recompute, compile
liveness.py   how many bytes are alive while a piece runs
formulas.py   sizes that are not known yet; template.py: graphs of such, and numbers filled in
shapes.py     sizes of products, attention and experts; routing.py: tokens over experts
program.py    all of it, in order, for one rank's blocks, embedding and head
"""

from trueflops.graph.build import Pass as Pass
from trueflops.graph.build import SparseKernel as SparseKernel
from trueflops.graph.ir import Collective as Collective
from trueflops.graph.ir import Graph as Graph
from trueflops.graph.ir import Op as Op
from trueflops.graph.ir import Tensor as Tensor
from trueflops.graph.program import Program as Program
from trueflops.graph.program import compile_program as compile_program
