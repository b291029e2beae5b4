"""Sizes that a file leaves open: `--dim batch=8`, `--shape pixels=1x3x224x224`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from trueflops.errors import BadInput, UnknownName, printable, shorten
from trueflops.interop.onnx.nodes import Shape
from trueflops.language import say

LARGEST: Final = 2**44  # elements of a tensor: beyond the memory of any device
MOST_DIMENSIONS: Final = 16
_ARITHMETIC: Final[Mapping[type, Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


@dataclass
class Given:
    """What a user said: shapes of tensors by their name, and sizes of named dimensions."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read(shapes: Sequence[str], dims: Sequence[str]) -> Given:
        """From the words of --shape and --dim."""
        said: dict[str, Shape] = {}
        for text in shapes:
            name, sizes = _pair(text, "--shape", "pixels=1x3x224x224")
            parts = [] if sizes == "scalar" else sizes.replace("×", "x").split("x")
            said[name] = tuple(_size(part, f"--shape {text}") for part in parts)
        sized = {}
        for text in dims:
            name, size = _pair(text, "--dim", "batch=8")
            sized[name] = _size(size, f"--dim {text}")
        return Given(said, sized)

    def size(self, dim: Any) -> int | None:
        """A dimension as a file has it: a number, a name, or sums and products of names."""
        if dim.HasField("dim_value"):
            return int(dim.dim_value)
        return self.size_named(dim.dim_param) if dim.dim_param else None

    def size_named(self, text: str) -> int | None:
        """A dimension by its name or formula."""
        if text in self.dims:
            return self.dims[text]
        try:
            return self._computed(ast.parse(text[:200], mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            return None

    def _computed(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.dims:
            return self.dims[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right = self._computed(node.left), self._computed(node.right)
            return _ARITHMETIC[type(node.op)](left, right)
        raise ValueError


def _pair(text: str, flag: str, example: str) -> tuple[str, str]:
    name, equals, rest = text.rpartition("=")
    if not equals or not name or not rest:
        raise BadInput(
            say(
                "{flag} {text}: write {flag} NAME=SIZE, such as {flag} {example}",
                flag=flag,
                text=shorten(text),
                example=example,
            )
        )
    return name, rest.strip()


def _size(text: str, said: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:16]) > LARGEST:
        raise BadInput(
            say("{said}: {text!r} is not a size", said=shorten(said), text=shorten(text))
        )
    return int(text)


def input_shapes(
    inputs: Sequence[Any], inner: Sequence[Any], given: Given, where: str
) -> dict[str, Shape]:
    """The shape of every input; one error names all that is not known.

    `inner` are other tensors of the graph of which the file tells something.
    """
    _bind(inputs, given, where)
    found: dict[str, Shape] = {}
    missing: dict[str, str] = {}
    for value in inputs:
        kind = value.type.WhichOneof("value")
        if kind not in ("tensor_type", None):
            raise BadInput(
                say(
                    "{where}: input {name!r} is no tensor ({kind})",
                    where=where,
                    name=printable(value.name),
                    kind=kind,
                )
            )
        if value.name in given.shapes:
            found[value.name] = given.shapes[value.name]
            continue
        tensor = value.type.tensor_type
        dims = list(tensor.shape.dim)
        sizes = [given.size(dim) for dim in dims]
        if not tensor.HasField("shape") or any(
            size is None and not dim.dim_param for size, dim in zip(sizes, dims, strict=True)
        ):
            missing[value.name] = f"--shape {printable(value.name)}=…"
            continue
        for size, dim in zip(sizes, dims, strict=True):
            if size is None:
                for name in _names(dim.dim_param):
                    if name not in given.dims:
                        missing[name] = f"--dim {printable(name)}=…"
        found[value.name] = tuple(size or 0 for size in sizes)
    if missing:
        said = ", ".join(_shown(value) for value in inputs)
        raise BadInput(
            say(
                "{where}: say how large: {missing} (inputs: {said})",
                where=where,
                missing=" ".join(missing.values()),
                said=said,
            )
        )
    named = _all_names([*inputs, *inner])
    if unknown := [name for name in given.dims if name not in named]:
        raise UnknownName("dimension", unknown[0], named)
    for name, shape in found.items():
        check_shape(shape, f"{where}: input {printable(name)}")
    return found


def check_shape(shape: Sequence[int], of: str) -> None:
    """Refuse what no tensor has."""
    if len(shape) > MOST_DIMENSIONS or any(n < 0 for n in shape) or prod(shape) > LARGEST:
        raise BadInput(
            say(
                "{of}: no tensor has the shape {shape}", of=of, shape="×".join(map(str, shape[:20]))
            )
        )


def _bind(inputs: Sequence[Any], given: Given, where: str) -> None:
    """A shape that is given says how large the dimensions are that its tensor names."""
    for value in inputs:
        shape = given.shapes.get(value.name)
        if shape is None or not value.type.tensor_type.HasField("shape"):
            continue
        dims = value.type.tensor_type.shape.dim
        fits = len(dims) == len(shape)
        for dim, size in zip(dims, shape, strict=False):
            if dim.HasField("dim_value") and dim.dim_value > 0:
                fits = fits and dim.dim_value == size
            elif dim.dim_param.isidentifier():
                fits = fits and given.dims.setdefault(dim.dim_param, size) == size
        if not fits:
            said = "x".join(map(str, shape))
            raise BadInput(
                say(
                    "--shape {name}={said}: {where} has {shown}, and other flags must agree",
                    name=printable(value.name),
                    said=said,
                    where=where,
                    shown=_shown(value),
                )
            )


def _shown(value: Any) -> str:
    dims = [dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else "?")
            for dim in value.type.tensor_type.shape.dim]  # fmt: skip
    return f"{printable(value.name, 40)} {printable('×'.join(map(str, dims)) or 'scalar', 60)}"


def _names(text: str) -> list[str]:
    """The dimensions that one is computed of; itself where it is no formula."""
    try:
        tree = ast.parse(text[:200], mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [text]
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)] or [text]


def _all_names(inputs: Sequence[Any]) -> dict[str, None]:
    dims = (dim for value in inputs for dim in value.type.tensor_type.shape.dim)
    return dict.fromkeys(name for dim in dims if dim.dim_param for name in _names(dim.dim_param))
