"""Shapes, types and small numbers of a graph, node by node.

onnx's own rules say what a node makes of its inputs; numbers that decide shapes (those of Shape,
Gather, Concat …) are computed by its reference implementation, as an engine does at load or on the
host. What these do not know, the rules of contrib.py, the file, or --shape must say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from trueflops.errors import BadInput, printable, shorten
from trueflops.interop.onnx.contrib import CONTRIB
from trueflops.interop.onnx.nodes import Shape, Value
from trueflops.interop.onnx.sizes import Given, check_shape
from trueflops.language import say

MOST_KNOWN: Final = 65536  # elements of a tensor whose numbers are computed
MOST_DECIDING: Final = 4096  # elements of one whose numbers may decide a shape
_RANDOM: Final = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike",
                  "Multinomial", "Bernoulli")  # fmt: skip
_NOT_FOLDED: Final = (*_RANDOM, "DequantizeLinear")  # engines keep weights narrow


class Inference:
    """What nodes make of their inputs, in one file."""

    def __init__(self, model: Any, given: Given, where: str) -> None:
        import onnx
        from onnx import defs, shape_inference

        self.onnx, self.defs, self.infer = onnx, defs, shape_inference
        self.where, self.given = where, given
        self.opsets = {opset.domain: int(opset.version) for opset in model.opset_import}
        self.imports = list(model.opset_import)
        self.told = {v.name: v for v in (*model.graph.value_info, *model.graph.output)}
        self._folded: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}

    def initializer(self, tensor: Any) -> Value:
        """A weight; its numbers are read only where they may decide something, and lie here."""
        shape = tuple(int(n) for n in tensor.dims)
        check_shape(shape, f"{self.where}: {printable(tensor.name)}")
        data = None
        external = tensor.data_location == self.onnx.TensorProto.EXTERNAL
        if prod(shape) <= MOST_DECIDING and not external:
            try:
                data = self.onnx.numpy_helper.to_array(tensor)
            except Exception as error:  # of the library, on a file that may say anything
                raise BadInput(
                    say(
                        "{where}: the numbers of {name}: {error}",
                        where=self.where,
                        name=printable(tensor.name),
                        error=_line(error),
                    )
                ) from None
            if data.shape != shape:
                raise BadInput(
                    say(
                        "{where}: {name} has not as many numbers as its shape says",
                        where=self.where,
                        name=printable(tensor.name),
                    )
                )
        return Value(int(tensor.data_type), shape, True, data)

    def outputs(self, node: Any, inputs: Sequence[Value | None]) -> list[Value | None]:
        """What a node makes; None where it leaves an optional result out."""
        there = [value for value in inputs if value is not None]
        constant = (
            node.op_type not in _NOT_FOLDED and all(v.constant for v in there) and bool(there)
        )
        if node.op_type in ("Shape", "Size") and inputs[:1] != [None]:
            return [self._measured(node, there[0])]
        types = self._types(node, inputs)
        made: list[Value | None] = []
        for i, name in enumerate(node.output):
            kind, shape = types.get(name, (0, None))
            if not name:
                made.append(None)
            elif name in self.given.shapes:
                made.append(Value(kind or there[0].kind, self.given.shapes[name], constant))
            elif shape is None and i and name not in types:
                made.append(None)  # a result that nobody has to make
            else:
                made.append(Value(*self._complete(node, name, kind, shape, there), constant))
        return self._with_numbers(node, inputs, made)

    def _measured(self, node: Any, of: Value) -> Value:
        """Shape and Size know their numbers whatever their input's are."""
        if node.op_type == "Size":
            return Value(7, (), True, np.array(of.elements, np.int64))
        ends = {a.name: int(a.i) for a in node.attribute}
        sizes = of.shape[slice(ends.get("start", 0), ends.get("end"))]
        return Value(7, (len(sizes),), True, np.array(sizes, np.int64))

    def _types(
        self, node: Any, inputs: Sequence[Value | None]
    ) -> dict[str, tuple[int, Sequence[int | None] | None]]:
        """Type and sizes of each result, as far as rules know them."""
        rule = CONTRIB.get(node.op_type)
        schema = None
        if node.domain in ("", "ai.onnx"):
            version = self.opsets.get("", self.opsets.get("ai.onnx", 1))
            try:
                schema = self.defs.get_schema(node.op_type, version, "")
            except self.defs.SchemaError:
                schema = None
        if schema is None and rule is not None:
            try:
                made = rule(_attributes(self.onnx, node), inputs)
            except (IndexError, TypeError, KeyError, ValueError, ZeroDivisionError):
                raise self.trouble(node, inputs) from None
            return {
                name: (kind, shape) for name, (kind, shape) in zip(node.output, made, strict=False)
            }
        if schema is None:
            return {}
        types, data = self._protos(node, inputs)
        try:
            found = self.infer.infer_node_outputs(
                schema, node, types, data, opset_imports=self.imports
            )
        except Exception as error:  # of the library, on a node that may say anything
            raise self.trouble(node, inputs, _line(error)) from None
        return {name: _sizes(proto) for name, proto in found.items()}

    def _protos(
        self, node: Any, inputs: Sequence[Value | None]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        make, types, data = self.onnx.helper, {}, {}
        for name, value in zip(node.input, inputs, strict=True):
            if value is None:
                continue
            types[name] = make.make_tensor_type_proto(value.kind, value.shape)
            if value.data is not None and value.elements <= MOST_DECIDING:
                data[name] = self.onnx.numpy_helper.from_array(np.asarray(value.data), name)
        return types, data

    def _complete(
        self,
        node: Any,
        name: str,
        kind: int,
        shape: Sequence[int | None] | None,
        inputs: Sequence[Value],
    ) -> tuple[int, Shape]:
        """With what the file itself tells; an error says what to give."""
        told = self.told.get(name)
        if told is not None and (shape is None or None in shape):
            proto = told.type.tensor_type
            kind = kind or int(proto.elem_type)
            if proto.HasField("shape"):
                shape = [self.given.size(dim) for dim in proto.shape.dim]
        if not kind and inputs:
            kind = inputs[0].kind
        if shape is None or None in shape:
            names = [d.dim_param for d in told.type.tensor_type.shape.dim] if told else []
            names = [n for n in names if n and self.given.size_named(n) is None]
            ask = f"--dim {printable(names[0])}=…" if names else f"--shape {printable(name)}=…"
            why = say("no rule tells")
            if shape:
                why = say("depends on numbers that are not known")
            raise BadInput(
                say(
                    "{where}: {called} makes {name!r}, whose size {why}; give it: {ask}",
                    where=self.where,
                    called=_called(node),
                    name=printable(name),
                    why=why,
                    ask=ask,
                )
            )
        sizes = tuple(int(n) for n in shape if n is not None)
        check_shape(sizes, f"{self.where}: {_called(node)}")
        return kind, sizes

    def _with_numbers(
        self, node: Any, inputs: Sequence[Value | None], made: list[Value | None]
    ) -> list[Value | None]:
        """Compute what follows from known numbers alone, where it is little."""
        known = all(value is None or value.data is not None for value in inputs)
        little = all(value is None or value.elements <= MOST_KNOWN for value in made)
        schema = node.domain in ("", "ai.onnx") and node.op_type not in _NOT_FOLDED
        if not (known and little and schema) or node.op_type in ("If", "Loop", "Scan"):
            return made
        arrays = tuple(None if value is None else value.data for value in inputs)
        key = (
            node.op_type, tuple(a.SerializeToString() for a in node.attribute),
            tuple(None if a is None else (a.dtype.str, a.shape, a.tobytes()) for a in arrays),
        )  # fmt: skip
        if key not in self._folded:
            self._folded[key] = self._computed(node, arrays)
        computed = self._folded[key]
        if computed is None:
            return made
        return [
            value
            if value is None or np.shape(array) != value.shape
            else value._replace(constant=True, data=np.asarray(array))
            for value, array in zip(made, computed, strict=False)
        ]

    def _computed(self, node: Any, arrays: Sequence[Any]) -> tuple[Any, ...] | None:
        from onnx.reference import ReferenceEvaluator

        feeds = {n: a for n, a in zip(node.input, arrays, strict=True) if a is not None}
        try:
            with np.errstate(all="ignore"):
                made = ReferenceEvaluator(node, opsets=self.opsets).run(None, feeds)
        except Exception:  # an op that the reference lacks, or numbers that it does not take
            return None
        return tuple(made)

    def trouble(self, node: Any, inputs: Sequence[Value | None], said: str = "") -> BadInput:
        """A node whose inputs do not go together."""
        shapes = " ".join("×".join(map(str, v.shape)) or "1" for v in inputs if v is not None)
        why = f" ({said})" if said else ""
        return BadInput(
            say(
                "{where}: {called} cannot take inputs of {shapes}{why}",
                where=self.where,
                called=_called(node),
                shapes=printable(shapes),
                why=why,
            )
        )


def _called(node: Any) -> str:
    domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    return printable(f"{domain}{node.op_type} {node.name!r}", 90)


def _sizes(proto: Any) -> tuple[int, Sequence[int | None] | None]:
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return int(tensor.elem_type), None
    dims = tensor.shape.dim
    return int(tensor.elem_type), [d.dim_value if d.HasField("dim_value") else None for d in dims]


def _attributes(onnx: Any, node: Any) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def _line(error: Exception) -> str:
    return shorten(printable(" ".join(str(error).split()), 200), 120)
