"""What a build of torch without CUDA lacks below `torch.cuda`: the C functions that ask a driver.

Libraries reach them by other ways than `torch.cuda` itself: through its submodules, which have
copies of its functions' names (`torch.cuda.random`, `torch.cuda.memory`), through functions that
nobody replaces, or directly. Every way gets the same answer.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import torch

from trueflops.capture.pretend.fake_tensors import claimed_device

Patch = tuple[Any, str, Any]  # owner, name, value

# Functions of torch._C by the answer that `torch.cuda` gives under this name.
_SAME: Final = {
    "_cuda_getDevice": "current_device",
    "_cuda_setDevice": "set_device",
    "_cuda_getDeviceCount": "device_count",
    "_cuda_exchangeDevice": "_exchange_device",
    "_cuda_maybeExchangeDevice": "_maybe_exchange_device",
    "_cuda_canDeviceAccessPeer": "can_device_access_peer",
    "_cuda_synchronize": "synchronize",
    "_cuda_emptyCache": "empty_cache",
    "_cuda_memoryStats": "memory_stats",
    "_cuda_memorySnapshot": "memory_snapshot",
    "_cuda_resetPeakMemoryStats": "reset_peak_memory_stats",
    "_cuda_resetAccumulatedMemoryStats": "reset_accumulated_memory_stats",
    "_cuda_ipc_collect": "ipc_collect",
    "_cuda_init": "init",
}


def below(answers: dict[str, Any], generators: int) -> list[Patch]:
    """What to put below `torch.cuda`, of which these are the answers by name."""
    found: list[Patch] = [(torch._C, name, answers[same]) for name, same in _SAME.items()]
    found += [
        (torch._C, "_cuda_getAllocatorBackend", lambda: "native"),
        (torch._C, "_cuda_getArchFlags", lambda: " ".join(answers["get_arch_list"]())),
        (torch._C, "_cuda_record_memory_history", lambda *_, **__: None),
        (torch._C, "_cuda_isInBadFork", lambda: False),
        (torch.cuda, "default_generators", tuple(torch._C.Generator() for _ in range(generators))),
    ]
    for path, module in list(sys.modules.items()):
        if path.startswith("torch.cuda."):
            found += [
                (module, name, value)
                for name, value in answers.items()
                if name in vars(module) and vars(module)[name] is getattr(torch.cuda, name, None)
            ]
    return found


def type_of(real: Any) -> Any:
    """`tensor.type()`: the name of a fake tensor's type has the device that it claims.

    With a type as its argument it converts, as `tensor.to` does.
    """

    def named(tensor: torch.Tensor, asked: Any = None, *args: Any, **kwargs: Any) -> Any:
        claimed = claimed_device(tensor)
        asked = kwargs.pop("dtype", asked)
        if claimed is None:
            return real(tensor) if asked is None else real(tensor, asked, *args, **kwargs)
        if asked is None:
            place = "" if claimed == "cpu" else f"{claimed}."
            return f"torch.{place}{real(tensor).rpartition('.')[2]}"
        if isinstance(asked, torch.dtype):
            return tensor.to(asked)
        name = asked if isinstance(asked, str) else f"{asked.__module__}.{asked.__name__}"
        dtype = _DTYPES.get(name.rpartition(".")[2])
        if dtype is None:
            raise ValueError(f"invalid type: {name!r}")
        return tensor.to("cuda" if ".cuda." in name else "cpu", dtype)

    return named


_DTYPES: Final = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "LongTensor": torch.int64, "IntTensor": torch.int32,
    "ShortTensor": torch.int16, "CharTensor": torch.int8, "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}  # fmt: skip
