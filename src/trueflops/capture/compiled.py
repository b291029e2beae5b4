"""torch.compile as a mark: what is inside runs op by op, and is fused afterwards in the IR."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from trueflops.capture.places import Places


@contextmanager
def marked_compile(places: Places) -> Iterator[None]:
    """While it lasts, compiling marks a region and compiles nothing."""

    def compile_(model: Any = None, *_: Any, **options: Any) -> Any:
        if model is None:
            return lambda function: compile_(function, **options)
        if isinstance(model, torch.nn.Module):
            compile_module(model)
            return model
        return _marked(model, places)

    def compile_module(module: Any, *_: Any, **__: Any) -> None:
        module.forward = _marked(module.forward, places)

    with (
        mock.patch.object(torch, "compile", compile_),
        mock.patch.object(torch.nn.Module, "compile", compile_module),
    ):
        yield


def _marked(function: Any, places: Places) -> Any:
    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with places.compiled():
            return function(*args, **kwargs)

    return inside
