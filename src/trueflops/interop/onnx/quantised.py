"""Which products of a quantised graph multiply narrow numbers.

A file of the QDQ form dequantises every operand and multiplies wide ones; engines take a product
whose operands were both dequantised as one of the narrow numbers, and one whose weights of four
bits were as one that widens them while it reads (onnxruntime's QDQ transformers, TensorRT).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

_PRODUCTS: Final = ("MatMul", "Gemm", "Conv", "ConvTranspose", "FusedMatMul", "FusedConv")
_FOUR_BITS: Final = (21, 22, 23)  # UINT4, INT4 and FLOAT4E2M1 of TensorProto


class Dequantised:
    """Of one graph: what stands before DequantizeLinear, and who may read that instead."""

    def __init__(self, nodes: Sequence[Any], outputs: Sequence[str], kinds: dict[str, int]) -> None:
        self.narrow = {
            node.output[0]: node.input[0]
            for node in nodes
            if node.op_type == "DequantizeLinear" and node.input and node.output
        }
        readers: dict[str, list[bool]] = defaultdict(list)
        for node in nodes:
            instead = self._reads_narrow(node, kinds)
            for place, name in enumerate(node.input):
                readers[name].append(instead and (place == 1 or self._both(node)) and place < 2)
        for name in outputs:
            readers[name].append(False)
        self.skipped = {name for name in self.narrow if readers[name] and all(readers[name])}
        """Results of DequantizeLinear that nobody needs wide."""

    def _both(self, node: Any) -> bool:
        return node.input[0] in self.narrow and node.input[1] in self.narrow

    def _reads_narrow(self, node: Any, kinds: dict[str, int]) -> bool:
        if node.op_type not in _PRODUCTS or len(node.input) < 2:
            return False
        stored = self.narrow.get(node.input[1], "")
        matrix = node.op_type in ("MatMul", "FusedMatMul")
        return self._both(node) or (matrix and kinds.get(stored) in _FOUR_BITS)
