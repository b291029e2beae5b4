"""From a graph to the recording of one forward pass: which calls, on which storages.

Constants are computed when a model is loaded, and what decides shapes on the host: neither launches
anything. Every other node becomes the calls of ATen that do its work, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, Final

from trueflops.capture.lower import lower
from trueflops.errors import BadInput, printable
from trueflops.interop.onnx.file import read_model
from trueflops.interop.onnx.lifetimes import events_of
from trueflops.interop.onnx.nodes import AtenCall, BadNode, Node, Value, viewed
from trueflops.interop.onnx.quantised import Dequantised
from trueflops.interop.onnx.rules import RULES, VIEWS
from trueflops.interop.onnx.sizes import Given, input_shapes
from trueflops.interop.onnx.values import Inference
from trueflops.language import say
from trueflops.records.call_text import plain_strides
from trueflops.records.recording import Call, RecordedTensor, Recording

_NOT_COUNTED: Final = ("bool", "int64", "int32")  # constants of these types are no parameters
_WRONG: Final = (BadNode, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_PACKED: Final = ("MatMulNBits", "MatMulBnb4")
_CONTROL: Final = ("Loop", "Scan", "SequenceMap")


def read_onnx(path: Path, given: Given, *, tf32: bool = False) -> Recording:
    """The forward pass of a file; `tf32`: products of fp32 run so, as onnxruntime lets them."""
    model = read_model(path)
    return Reading(model, given, printable(str(path)), tf32=tf32).recording()


class Reading:
    """One walk over a graph; `values` are all its tensors afterwards."""

    def __init__(self, model: Any, given: Given, where: str, *, tf32: bool) -> None:
        self.model, self.where, self.tf32 = model, where, tf32
        self.infer = Inference(model, given, where)
        self.values: dict[str, Value] = {}
        self.arrays: dict[str, RecordedTensor] = {}  # what calls have read or made
        self.parameters: dict[int, str] = {}
        self.inputs: set[int] = set()
        self.calls: list[Call] = []
        self.guessed: dict[str, int] = {}
        self.weights: dict[str, int] = {}  # parameters that each initializer holds
        self.warnings: list[str] = []
        self._storages = 0

    # ── the graph ────────────────────────────────────────────────────────────────────────────────

    def recording(self) -> Recording:
        """Walk, and write down what was seen."""
        graph = self.model.graph
        weights = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in weights]
        inner = [*graph.value_info, *graph.output]
        shapes = input_shapes(inputs, inner, self.infer.given, self.where)
        for value in inputs:
            self._define(value.name, Value(value.type.tensor_type.elem_type, shapes[value.name]))
            self.inputs.add(self._array(value.name).storage)
        self._walk(graph)
        if not self.calls:
            raise BadInput(
                say(
                    "{where}: nothing in it runs on a device: its results are known",
                    where=self.where,
                )
            )
        kept = [self._array(out.name).storage for out in graph.output if out.name in self.values]
        self._note_guesses()
        return Recording(
            events_of(self.calls, self.arrays.values(), self.inputs, self.parameters, set(kept)),
            dict(self.parameters),
            parameter_count=sum(self.weights.values()),
            warnings=self.warnings,
            by_session=True,
        )

    def _walk(self, graph: Any) -> None:
        for tensor in graph.initializer:
            value = self.infer.initializer(tensor)
            self._define(tensor.name, value)
            counts = value.dtype not in _NOT_COUNTED and value.elements > 1
            self.weights[tensor.name] = value.elements if counts else 0
        if len(graph.sparse_initializer):
            raise BadInput(say("{where}: sparse weights are not read", where=self.where))
        kinds = {name: value.kind for name, value in self.values.items()}
        outputs = [out.name for out in graph.output]
        dequantised = Dequantised(graph.node, outputs, kinds)
        if dequantised.skipped:
            self._say(
                "products of dequantised operands are taken as products of the narrow ones, as "
                "onnxruntime and TensorRT run them"
            )
        for node in graph.node:
            self._visit(node, dequantised)

    def _visit(self, node: Any, dequantised: Dequantised) -> None:
        called = f"{self.where}: {printable(node.op_type)} {printable(node.name)!r}"
        if not any(node.output):
            raise BadInput(say("{called} makes nothing", called=called))
        missing = [name for name in node.input if name and name not in self.values]
        if missing:
            raise BadInput(
                say(
                    "{called} reads {missing!r}, which nothing has made",
                    called=called,
                    missing=printable(missing[0]),
                )
            )
        values = [self.values[name] if name else None for name in node.input]
        if node.op_type == "Constant":
            self._constant(node, called)
            return
        if node.op_type == "If":
            self._branch(node, values)
            return
        if node.op_type in _CONTROL:
            raise BadInput(
                say(
                    "{called}: how often it runs is not in the file; export the model "
                    "without it, or the part that it repeats",
                    called=called,
                )
            )
        made = self.infer.outputs(node, values)
        for name, value in zip(node.output, made, strict=False):
            if name and value is not None:
                if not value.dtype:
                    raise BadInput(
                        say(
                            "{called} makes texts or numbers of a type that no chip has",
                            called=called,
                        )
                    )
                self._define(name, value)
        there = [value for value in made if value is not None]
        if not all(value.constant for value in there):
            self._launch(node, values, made, dequantised)

    def _constant(self, node: Any, called: str) -> None:
        import numpy as np

        for attribute in node.attribute:
            if attribute.name == "value":
                self._define(node.output[0], self.infer.initializer(attribute.t))
                return
            if attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
                given = self.infer.onnx.helper.get_attribute_value(attribute)
                kind = 7 if "int" in attribute.name else 1
                data = np.array(given, np.int64 if kind == 7 else np.float32)
                self._define(node.output[0], Value(kind, data.shape, True, data))
                return
        raise BadInput(say("{called} holds no tensor", called=called))

    def _branch(self, node: Any, values: Sequence[Value | None]) -> None:
        """The branch that is known to run, or else the longer one."""
        branches = {a.name: a.g for a in node.attribute if a.name.endswith("_branch")}
        asked = values[0].data if values and values[0] is not None else None
        if branches.keys() != {"then_branch", "else_branch"}:
            raise BadInput(
                say(
                    "{where}: If {name!r} has not two branches",
                    where=self.where,
                    name=printable(node.name),
                )
            )
        if asked is not None:
            taken = branches["then_branch" if bool(asked.reshape(-1)[0]) else "else_branch"]
        else:
            taken = max(branches.values(), key=lambda graph: len(graph.node))
            self._say("where a branch depends on numbers, the longer one is taken")
        self._walk(taken)
        for name, inner in zip(node.output, taken.output, strict=False):
            if inner.name not in self.values:
                raise BadInput(
                    say(
                        "{where}: a branch gives {name!r}, which nothing has made",
                        where=self.where,
                        name=printable(inner.name),
                    )
                )
            self.values[name] = self.values[inner.name]
            if inner.name in self.arrays:
                self.arrays[name] = self.arrays[inner.name]

    # ── calls ────────────────────────────────────────────────────────────────────────────────────

    def _launch(
        self,
        node: Any,
        values: Sequence[Value | None],
        made: Sequence[Value | None],
        dequantised: Dequantised,
    ) -> None:
        names = list(node.input)
        if node.output[0] in dequantised.skipped:
            return
        for place, name in enumerate(names[:2]):
            if name in dequantised.skipped:
                names[place] = dequantised.narrow[name]
        if node.op_type in VIEWS and names and names[0]:
            source = self._array(names[0])
            shape = self.values[node.output[0]].shape
            if prod(shape) == source.elements:
                self.arrays[node.output[0]] = viewed(source, shape)
                return
        for name, value in zip(node.output, made, strict=False):
            if name and value is not None:
                self.arrays[name] = self._new(value)
        seen = Node(
            node.op_type,
            node.domain not in ("", "ai.onnx"),
            {a.name: self.infer.onnx.helper.get_attribute_value(a) for a in node.attribute},
            tuple(self._array(name) if name else None for name in names),
            tuple(self.arrays.get(name) if name else None for name in node.output),
            tuple(value.data if value is not None else None for value in values),
            self._storage,
        )
        rule = RULES.get(node.op_type)
        try:
            if node.op_type in _PACKED:  # several to a byte, and scales that are none
                packed = seen.whole("N") * seen.whole("K")
                counts = dict.fromkeys(names[1:5], 0) | {names[1]: packed}
                self.weights |= {n: count for n, count in counts.items() if n in self.weights}
            calls = rule(seen) if rule else []
            if not calls:
                calls = [AtenCall(f"onnx.{node.op_type}", seen.given, seen.results)]
                self.guessed[node.op_type] = self.guessed.get(node.op_type, 0) + 1
            where = _module(node)
            found = [self._call(call, where) for call in calls]
            for each in found:  # lowering trusts its recorder; a file may say anything
                lower(each)
        except _WRONG:
            raise self.infer.trouble(node, values) from None
        self.calls += found

    def _call(self, call: AtenCall, module: str) -> Call:
        name = call.op if call.op.startswith("onnx.") else f"aten.{call.op}"
        whole = name if name.count(".") > 1 else f"{name}.default"
        return Call(
            whole, tuple(call.inputs), tuple(call.outputs), call.numbers, "forward", module, 0, -1,
            tf32=self.tf32,
        )  # fmt: skip

    def _note_guesses(self) -> None:
        if self.guessed:
            said = ", ".join(f"{printable(kind)} ({n:,})" for kind, n in self.guessed.items())
            self._say(f"priced by the bytes they read and write alone: {said}")

    def _say(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    # ── tensors ──────────────────────────────────────────────────────────────────────────────────

    def _define(self, name: str, value: Value) -> None:
        self.values[name] = value
        self.arrays.pop(name, None)

    def _storage(self) -> int:
        self._storages += 1
        return self._storages

    def _new(self, value: Value) -> RecordedTensor:
        return RecordedTensor(self._storage(), value.shape, plain_strides(value.shape), value.dtype)

    def _array(self, name: str) -> RecordedTensor:
        """A tensor as calls see it; a constant that one reads is kept on the device."""
        if name not in self.arrays:
            value = self.values[name]
            self.arrays[name] = self._new(value)
            if value.constant:
                self.parameters[self.arrays[name].storage] = name
        return self.arrays[name]


def _module(node: Any) -> str:
    """`/model/layers.0/attn/MatMul` is of model.layers.0.attn; newer exports tell it apart."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            scopes = [part.strip(" '\"[]") for part in entry.value.split(",")]
            inner = [scope for scope in scopes[:-1] if scope]
            return printable(inner[-1]) if inner else ""
    path = node.name.strip("/").split("/")[:-1]
    return printable(".".join(path))
