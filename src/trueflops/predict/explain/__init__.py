"""How one kernel runs on a chip: what its law sees, and what binds it.

kernel.py     what every kernel has: time, rate, limits, roofline, the curve behind it
matmul.py     a product: tiles, waves, traffic, down to the instruction
padding.py    a product of odd sides, padded
attention.py  a prompt, its backward, or a step of decoding: blocks, waves, pairs visited
"""

from trueflops.predict.explain.attention import AttentionExplained as AttentionExplained
from trueflops.predict.explain.attention import explain_attention as explain_attention
from trueflops.predict.explain.kernel import KernelExplained as KernelExplained
from trueflops.predict.explain.matmul import MatmulExplained as MatmulExplained
from trueflops.predict.explain.matmul import TileShape as TileShape
from trueflops.predict.explain.matmul import explain_matmul as explain_matmul
