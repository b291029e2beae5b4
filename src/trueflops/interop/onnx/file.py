"""An ONNX file as a model: its graph with functions inlined, its weights left where they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput, printable, shorten
from trueflops.files import is_file, read_file
from trueflops.language import say

LARGEST_MODEL: Final = 2**31 - 1  # bytes: protobuf's own limit for one message
MOST_NODES: Final = 500_000


def read_model(path: Path) -> Any:
    """The model of a file; numbers that lie in files beside it are never looked at."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
        from onnx import inliner
    except ModuleNotFoundError as error:
        raise BadInput(
            say("ONNX files need {name}: pip install 'trueflops[onnx]'", name=error.name)
        ) from None
    where = printable(str(path))
    if is_file(path) and path.stat().st_size > LARGEST_MODEL:
        raise BadInput(
            say(
                "{where}: larger than 2 GiB, which no ONNX file can be; keep its "
                "weights beside it: onnx.save_model(model, FILE, "
                "save_as_external_data=True)",
                where=where,
            )
        )
    raw = read_file(path, LARGEST_MODEL)
    if raw.startswith(b"version https://git-lfs"):
        raise BadInput(
            say("{where}: a pointer of Git LFS, not the file: git lfs pull", where=where)
        )
    try:
        model = onnx.load_model_from_string(raw)
    except (DecodeError, ValueError, TypeError, RuntimeError) as error:
        raise BadInput(
            say("{where}: not an ONNX file ({error})", where=where, error=shorten(str(error)))
        ) from None
    if not model.graph.node or not model.graph.output:
        raise BadInput(say("{where}: no graph in it; is it an ONNX model, and whole?", where=where))
    if not all(isinstance(name, str) for name in _names(model.graph, model.opset_import)):
        raise BadInput(say("{where}: names in it are no texts; is the file damaged?", where=where))
    if model.functions:
        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:  # of the library, on a file that may say anything
            raise BadInput(
                say("{where}: its functions: {error}", where=where, error=shorten(_line(error)))
            ) from None
    if len(model.graph.node) > MOST_NODES:
        raise BadInput(say("{where}: more than {most:,} nodes", where=where, most=MOST_NODES))
    return model


def _names(graph: Any, opsets: Any = ()) -> Iterator[object]:
    """Every name of a graph: protobuf gives bytes for what is not UTF-8."""
    yield from (opset.domain for opset in opsets)
    yield from (tensor.name for tensor in graph.initializer)
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for entry in node.metadata_props:
            yield from (entry.key, entry.value)
        for attribute in node.attribute:
            yield attribute.name
            if attribute.HasField("g"):
                yield from _names(attribute.g)


def _line(error: Exception) -> str:
    return printable(" ".join(str(error).split()))
