"""ONNX graphs made by hand, for the tests of the door that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
helper = onnx.helper
FLOAT, HALF, INT64, INT8, UINT8 = 1, 10, 7, 3, 2


def value(name: str, shape: Sequence[int | str | None] | None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, shape: Sequence[int], kind: int = FLOAT) -> Any:
    size = int(np.prod(shape)) * {FLOAT: 4, HALF: 2, INT64: 8, INT8: 1, UINT8: 1}[kind]
    return helper.make_tensor(name, kind, shape, bytes(size), raw=True)


def numbers(name: str, given: int | Sequence[int]) -> Any:
    return onnx.numpy_helper.from_array(np.array(given, np.int64), name)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any],
          weights: Sequence[Any] = (), opset: int = 17) -> Any:  # fmt: skip
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=list(weights))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def node(op: str, inputs: str, outputs: str, *, contrib: bool = False, **attributes: Any) -> Any:
    domain = "com.microsoft" if contrib else ""
    read, made = ([n if n != "-" else "" for n in names.split()] for names in (inputs, outputs))
    return helper.make_node(op, read, made, domain=domain, **attributes)


def two_layers() -> Any:
    """Rows of 64 through 256 and back to 32, with a shape computed in between."""
    return model(
        [
            node("MatMul", "x w1", "h"), node("Add", "h b1", "hb"), node("Relu", "hb", "a"),
            node("Shape", "a", "s"), node("Gather", "s zero", "n", axis=0),
            node("Unsqueeze", "n axes", "n1"), node("Concat", "n1 rest", "to", axis=0),
            node("Reshape", "a to", "r"), node("Reshape", "r back", "f"),
            node("Gemm", "f w2 b2", "y", transB=1),
        ],
        [value("x", ["batch", 64])], [value("y", ["batch", 32])],
        [weight("w1", (64, 256)), weight("b1", (256,)), weight("w2", (32, 256)),
         weight("b2", (32,)), numbers("zero", 0), numbers("axes", [0]), numbers("rest", [16, 16]),
         numbers("back", [-1, 256])],
    )  # fmt: skip


def graphs() -> dict[str, Any]:
    """Small ones over onnxruntime's own ops and the shape arithmetic of exports."""
    x, q8 = value("x", [2, 8, 64]), value("x", [2, 8, 64], UINT8)
    scale = onnx.numpy_helper.from_array(np.float32(0.1), "s")
    zero = onnx.numpy_helper.from_array(np.uint8(3), "z")
    signed = onnx.numpy_helper.from_array(np.int8(0), "i")
    lengths = [onnx.numpy_helper.from_array(np.array(n, np.int32), name)
               for name, n in (("l", [5, 5]), ("t", [6]))]  # fmt: skip
    cache = [value(name, [2, 2, 5, 16]) for name in ("pk", "pv")]

    def one(
        op: str, reads: str, inputs: Sequence[Any], weights: Sequence[Any] = (), makes: str = "y",
        opset: int = 17, contrib: bool = True, **more: Any,
    ) -> Any:  # fmt: skip
        outputs = [onnx.ValueInfoProto(name=n) for n in makes.split() if n != "-"]
        made = [node(op, reads, makes, contrib=contrib, **more)]
        return model(made, inputs, outputs, weights, opset)

    heads: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2}
    norm = [weight(n, (64,)) for n in ("g", "b")]
    return {
        "two layers": two_layers(),
        "Attention": one("Attention", "x w b - past", [x, value("past", [2, 2, 4, 5, 16])],
                         [weight("w", (64, 192)), weight("b", (192,))], "y p", num_heads=4),
        "MultiHeadAttention": one("MultiHeadAttention", "x k v",
                                  [x, value("k", [2, 12, 64]), value("v", [2, 12, 32])],
                                  num_heads=4),
        "GroupQueryAttention": one("GroupQueryAttention", "x - - pk pv l t",
                                   [value("x", [2, 1, 128]), *cache], lengths, "y k v", **heads),
        "Attention of ONNX": one("Attention", "x k v - pk pv",
                                 [x, value("k", [2, 8, 32]), value("v", [2, 8, 32]), *cache], (),
                                 "y a b", 23, contrib=False, q_num_heads=4, kv_num_heads=2),
        "SkipLayerNormalization": one("SkipLayerNormalization", "x k g b",
                                      [x, value("k", [2, 8, 64])], norm, "y - - sum"),
        "QAttention": one("QAttention", "x w b s s - z i", [q8],
                          [weight("w", (64, 192), INT8), weight("b", (192,)), scale, zero, signed],
                          num_heads=4),
        "DynamicQuantizeMatMul": one("DynamicQuantizeMatMul", "x w s", [x],
                                     [weight("w", (64, 32), INT8), scale]),
        "QGemm": one("QGemm", "x s z w s i - s z", [value("x", [8, 64], UINT8)],
                     [weight("w", (32, 64), INT8), scale, zero, signed], transB=1),
        "QLinearConcat": one("QLinearConcat", "s z x s z k s z",
                             [q8, value("k", [2, 5, 64], UINT8)], [scale, zero], axis=1),
        "MatMulNBits": one("MatMulNBits", "x w c", [x],
                           [weight("w", (32, 2, 16), UINT8), weight("c", (64,))], N=32, K=64,
                           bits=4, block_size=32),
        "FusedConv": one("FusedConv", "x w", [value("x", [2, 8, 15, 15])],
                         [weight("w", (16, 4, 3, 3))], activation="Relu", strides=[2, 2],
                         pads=[1, 1, 1, 1], kernel_shape=[3, 3], group=2, dilations=[1, 1]),
    }  # fmt: skip
