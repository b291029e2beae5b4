"""Kernels that a program compiles while it runs (`torch.utils.cpp_extension.load`).

There is neither a compiler for the chip here nor the chip. So an extension is a stand-in, each
function of which launches one kernel over the tensors that it is given, as fused optimizers do:
in place, without a result. What is known by name (Adam of apex and of DeepSpeed) is recorded as
torch's own kernel that does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Final
from unittest import mock

import torch
from torch.utils import cpp_extension
from torch.utils._python_dispatch import _get_current_dispatch_mode

from trueflops.capture.pretend.fake_tensors import claimed_device, flat
from trueflops.capture.recorder import Recorder
from trueflops.capture.schema import OpTraits, traits_of
from trueflops.language import say
from trueflops.records.recording import HOST

_ADAM: Final = torch.ops.aten._fused_adamw_.default
_TOOLKIT: Final = "/usr/local/cuda"  # where it would be; nothing is read from there


@contextmanager
def stand_ins() -> Iterator[None]:
    """Inside this context, extensions are not compiled but stood in for."""
    with ExitStack() as stack:
        for name, value in (
            ("load", lambda name, *_, **__: Extension(name)),
            ("load_inline", lambda name, *_, **__: Extension(name)),
            ("verify_ninja_availability", lambda: None),
            ("CUDA_HOME", cpp_extension.CUDA_HOME or _TOOLKIT),
        ):
            stack.enter_context(mock.patch.object(cpp_extension, name, value))
        yield


class Extension(ModuleType):
    """A module of compiled functions. Frameworks keep it for longer than a capture lasts."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        known = _KNOWN.get(name)

        def run(*args: Any) -> None:
            recorder = _get_current_dispatch_mode()
            if not isinstance(recorder, Recorder):  # such as a destructor after the capture
                return
            tensors = flat(args)
            recorder.values.forget(tensors)
            if known is not None:
                known(recorder, args)
            elif tensors and all(claimed_device(t) in (None, HOST) for t in tensors):
                recorder.warn(
                    say(
                        "{name} runs on the host's own processor: no time is counted",
                        name=f"{self.__name__}.{name}",
                    )
                )
            elif tensors:
                recorder.write_call(_traits(f"{self.__name__}.{name}"), tensors, tensors)

        return run


def _adam(recorder: Recorder, args: tuple[Any, ...]) -> None:
    """`multi_tensor_adam(chunk, flag, [grads, weights, moments, variances], …)`."""
    grads, weights, *moments = args[2]
    flags = [args[1]] * len(grads)  # in place of torch's counters of steps
    lists = [weights, grads, *moments, flags]
    recorder.write_call(traits_of(_ADAM), [t for each in lists for t in each], ())


_KNOWN: Final[dict[str, Callable[[Recorder, tuple[Any, ...]], None]]] = {
    "multi_tensor_adam": _adam,
}


def _traits(name: str) -> OpTraits:
    """Of a function of which no more is known than its tensors."""
    return OpTraits(
        name=name, library=name.partition(".")[0], is_view=False, is_inplace_view=False,
        is_factory=False, data_dependent=False, random=False, mutates=True, composite=False,
        returns_new=False,
    )  # fmt: skip
