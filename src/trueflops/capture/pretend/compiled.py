"""torch.compile as a marked region: its ops run one by one, and are fused afterwards in the IR.

`is_compiling()` is true inside, since code may take another branch then; so is `is_exporting()`
before torch 2.14, whose dynamo no longer puts a constant in its place (pytorch#176499).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import torch
import torch._inductor.config
from torch.utils._pytree import tree_leaves

from trueflops.capture.recorder import Recorder

_TELLS_EXPORTS: Final = "2.14"  # the release of torch whose dynamo tells compiling from exporting
_GRAPHED: Final = ("reduce-overhead", "max-autotune")  # modes


@contextmanager
def marked_compile(recorder: Recorder) -> Iterator[None]:
    """Inside this context, torch.compile marks a region and compiles nothing."""
    places = recorder.places

    def compile_(model: Any = None, *_: Any, **options: Any) -> Any:
        if model is None:
            return lambda function: compile_(function, **options)
        if _runs_eagerly(options.get("backend")):
            return model
        if isinstance(model, torch.nn.Module):
            compile_module(model, **options)
            return model
        return _marked(model, recorder, graphed=_in_graphs(**options))

    def compile_module(module: Any, *_: Any, **options: Any) -> None:
        module.forward = _marked(module.forward, recorder, graphed=_in_graphs(**options))

    def is_compiling() -> bool:
        return places.region >= 0

    def is_exporting() -> bool:
        return is_compiling() and torch.__version__ < _TELLS_EXPORTS

    with (
        mock.patch.object(torch.compiler, "is_compiling", is_compiling),
        mock.patch.object(torch.compiler, "is_dynamo_compiling", is_compiling),
        mock.patch.object(torch._dynamo, "is_compiling", is_compiling),
        mock.patch.object(torch.compiler, "is_exporting", is_exporting),
        mock.patch.object(torch, "compile", compile_),
        mock.patch.object(torch.nn.Module, "compile", compile_module),
    ):
        yield


def _runs_eagerly(backend: Any) -> bool:
    """A backend that calls op by op what it was given: torch has such ones for debugging."""
    name = backend if isinstance(backend, str) else getattr(backend, "__name__", "")
    return name in ("eager", "eager_noexcept", "aot_eager")


def _in_graphs(*, mode: Any = None, options: Any = None, **_: Any) -> bool:
    """Whether the region's kernels are launched as CUDA graphs, one forward and one backward."""
    asked = (options or {}).get("triton.cudagraphs")
    if asked is not None:
        return bool(asked)
    return mode in _GRAPHED or bool(torch._inductor.config.triton.cudagraphs)


def _marked(function: Any, recorder: Recorder, *, graphed: bool) -> Any:
    places = recorder.places

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with places.compiled(graphed=graphed):
            made = function(*args, **kwargs)
            graded = [t for t in tree_leaves(made) if isinstance(t, torch.Tensor)]
            numbers = [recorder.number_of(t) for t in graded if t.requires_grad]
            recorder.recording.results[places.region] = tuple(n for n in numbers if n is not None)
            return made

    return inside
