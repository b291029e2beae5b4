"""An accelerator that is not there: `torch.cuda` as the program sees it, answered by the catalog.

Everything is put back when the capture ends. Streams and events are plain objects that tell the
recorder who waits for whom.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import torch
import torch._dynamo  # before torch.cuda is replaced: importing it looks for a driver
from torch import nn

from trueflops.capture.assumed import assumptions
from trueflops.capture.pretend.driver import below, type_of
from trueflops.capture.pretend.fake_tensors import claimed_device
from trueflops.capture.pretend.graphs import graph_classes
from trueflops.capture.pretend.numbers import read_number
from trueflops.capture.pretend.overrides import DEVICE
from trueflops.capture.pretend.streams import event_class, stream_class
from trueflops.capture.recorder import Recorder
from trueflops.capture.trouble import left_out, lines, refused
from trueflops.catalog import Accelerator
from trueflops.language import mark, say

_A100: Final = (
    8,
    0,
)  # what most code takes: told where a chip has no compute capability of its own


@dataclass(frozen=True)
class Machine:
    """What a program may ask of its accelerator."""

    name: str
    memory_bytes: int
    units: int
    capability: tuple[int, int]
    cache_bytes: int
    count: int = 1
    on_host: bool = False  # the accelerator is the CPU itself
    has_capability: bool = True  # else `capability` is that of another chip

    @classmethod
    def like(cls, chip: Accelerator, count: int = 1) -> Machine:
        """A machine with so many chips of this kind."""
        capability = chip.architecture.compute_capability
        return cls(
            name=f"{chip.vendor} {chip.name}",
            memory_bytes=int(chip.get("memory.capacity") or 0),
            units=int(chip.get("compute.units") or 1),
            capability=capability or _A100,
            cache_bytes=int(chip.get("memory.l2") or 0),
            count=count,
            on_host=chip.is_cpu,
            has_capability=capability is not None,
        )


@contextlib.contextmanager
def pretended(machine: Machine, recorder: Recorder) -> Iterator[None]:
    """Inside this context, `torch.cuda` answers as that accelerator would."""
    with contextlib.ExitStack() as stack:

        def put(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, value, create=True))

        stack.enter_context(warnings.catch_warnings())
        for text in _NO_NEWS:
            warnings.filterwarnings("ignore", text)
        for name, value in _tensor_methods(recorder).items():
            put(torch.Tensor, name, value)
        put(torch.UntypedStorage, "resize_", _resize(recorder))
        lift: bool = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        stack.callback(torch._C._set_only_lift_cpu_tensors, lift)
        put(torch._C, "_group_tensors_by_device_and_dtype", _grouping())
        put(torch, "save", lambda *_, **__: recorder.warn(left_out("torch.save")))
        put(torch._C, "_scatter", refused("nn.DataParallel", mark("use DistributedDataParallel")))
        # It draws again until all values lie within the bounds; one draw is recorded.
        put(nn.init, "_no_grad_trunc_normal_",
            lambda t, mean, std, *_, **__: nn.init._no_grad_normal_(t, mean, std))  # fmt: skip
        if not machine.on_host:
            if not machine.has_capability:
                recorder.warn(
                    say(
                        "no CUDA compute capability of {name} is on record: the program is told "
                        "8.0, that of an A100",
                        name=machine.name,
                    )
                )
            recorder.has_tf32 = machine.capability >= (8, 0)
            # A build with cuDNN would join the weights of recurrent layers in one buffer, in C++.
            put(torch.backends.cudnn, "is_acceptable", lambda _: False)
            put(torch._C, "_get_accelerator", lambda *_: torch.device("cuda"))
            put(torch.cuda.nvtx, "_nvtx", _Silent())
            put(torch._C._nn, "_parse_to", _parse_to(torch._C._nn._parse_to))
            answers = _cuda(machine, recorder)
            for owner, name, value in below(answers, machine.count):
                put(owner, name, value)
            for name, value in answers.items():
                put(torch.cuda, name, value)
            for name, value in _accelerator(machine, recorder).items():
                put(torch.accelerator, name, value)
            put(torch, "Generator", _Generator)
            put(torch._C, "_cuda_getCurrentRawStream", lambda *_: 0)
            put(torch, "Stream", stream_class(recorder))
            put(torch, "Event", event_class(recorder))
        yield


_NO_NEWS: Final = (
    "Warning only once for all operators",  # that kernels are replaced, as they are on purpose
    "PyTorch was compiled without cuDNN",
)


def _parse_to(real: Callable[..., Any]) -> Callable[..., Any]:
    """A module may be moved to a device given by its index: model.to(local_rank)."""

    def parse(*args: Any, **kwargs: Any) -> Any:
        return real(*(DEVICE if type(a) is int else a for a in args), **kwargs)

    return parse


class _Silent:
    """NVTX ranges, which no profiler reads here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0


# ── tensors ──────────────────────────────────────────────────────────────────────────────────────


def _tensor_methods(recorder: Recorder) -> dict[str, Any]:
    base = torch._C.TensorBase
    real_device = base.device.__get__
    real_item = base.item

    def device(tensor: torch.Tensor) -> torch.device:
        claimed = claimed_device(tensor)
        if claimed is None:
            return real_device(tensor)
        local = getattr(tensor, "_local_tensor", None)
        if local is not None:  # a DTensor is made by C++, which sees what its part really is
            return device(local)
        return DEVICE if claimed == "cuda" else torch.device(claimed)

    def item(tensor: torch.Tensor) -> Any:
        if claimed_device(tensor) is None:
            return real_item(tensor)
        recorder.waits(-1, -1, recorder.now)
        value = recorder.values.of(tensor)
        if value is not None:
            recorder.tell_assumed()
        return read_number(tensor) if value is None else real_item(value)

    def to_list(tensor: torch.Tensor) -> Any:
        if claimed_device(tensor) is None:
            return base.tolist(tensor)
        recorder.waits(-1, -1, recorder.now)
        recorder.tell_assumed()
        value = recorder.values.of(tensor)
        if value is not None:
            return base.tolist(value)
        given = assumptions().at(lines())
        return given if isinstance(given, list) and len(given) == len(tensor) else _lists(tensor)

    def _lists(tensor: torch.Tensor) -> Any:
        if tensor.dim() == 0:
            return read_number(tensor)
        return [_lists(part) for part in tensor.unbind(0)]

    return {
        "device": property(device),
        "is_cuda": property(lambda t: device(t).type == "cuda"),
        "is_meta": property(lambda t: device(t).type == "meta"),
        "is_cpu": property(lambda t: device(t).type == "cpu"),
        "get_device": lambda t: 0 if device(t).type == "cuda" else -1,
        "type": type_of(base.type),
        "item": item,
        "tolist": to_list,
        "pin_memory": lambda t, *_, **__: t,
        "is_pinned": lambda t, *_, **__: False,
        "record_stream": lambda t, stream: None,
    }


def _resize(recorder: Recorder) -> Callable[[torch.UntypedStorage, int], Any]:
    real: Any = torch._C.StorageBase.resize_  # type: ignore[attr-defined]

    def resize_(storage: torch.UntypedStorage, size: int) -> Any:
        recorder.resized(storage, size)
        return real(storage, size)

    return resize_


def _grouping() -> Callable[..., Any]:
    """Optimizers group tensors by the device that C++ sees; this gives the claimed one instead."""
    real = torch._C._group_tensors_by_device_and_dtype

    def group(lists: Any, with_indices: bool = False) -> Any:
        found = real(lists, with_indices)
        first: dict[Any, Any] = {}
        for (device, dtype), (members, indices) in found.items():
            fake = next((t for each in members for t in each if t is not None), None)
            first[device if fake is None else fake.device, dtype] = (members, indices)
        return first

    return group


# ── torch.cuda ───────────────────────────────────────────────────────────────────────────────────


class _Properties:
    def __init__(self, machine: Machine) -> None:
        self.name, self.total_memory = machine.name, machine.memory_bytes
        self.multi_processor_count = machine.units
        self.major, self.minor = machine.capability
        self.L2_cache_size, self.warp_size = machine.cache_bytes, 32
        self.max_threads_per_multi_processor, self.regs_per_multiprocessor = 2048, 65536
        self.shared_memory_per_block, self.shared_memory_per_multiprocessor = 49152, 233472
        self.shared_memory_per_block_optin = 232448
        self.is_integrated = self.is_multi_gpu_board = 0
        self.gcnArchName, self.uuid = "", ""


class _Generator(torch._C.Generator):
    """A CPU generator, whatever device was asked for: random values are not needed.

    A class, because programs use it in type annotations.
    """

    def __new__(cls, device: Any = "cpu") -> Any:
        return torch._C.Generator(device="cpu")


def _cuda(machine: Machine, recorder: Recorder) -> dict[str, Any]:
    stream_of, event_of = stream_class(recorder), event_class(recorder)
    main = stream_of(number=0)
    known = {0: main}

    def current(*_: Any) -> Any:
        return known.setdefault(recorder.stream, stream_of(number=recorder.stream))

    @contextlib.contextmanager
    def on_stream(stream: Any) -> Iterator[None]:
        outer = recorder.stream
        recorder.stream = outer if stream is None else stream.stream_id
        try:
            yield
        finally:
            recorder.stream = outer

    def set_stream(stream: Any) -> None:
        recorder.stream = stream.stream_id

    @contextlib.contextmanager
    def on_device(*_: Any) -> Iterator[None]:
        yield

    def synchronize(*_: Any) -> None:
        recorder.waits(-1, -1, recorder.now)

    def empty_cache(*_: Any) -> None:
        recorder.empties()

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def zero(*_: Any, **__: Any) -> int:
        return 0

    def no_statistics(*_: Any, **__: Any) -> dict[str, int]:
        return _Zeros()

    def state(*_: Any, **__: Any) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_compiled": lambda: True,
        "_lazy_init": nothing,
        "_lazy_call": nothing,
        "init": nothing,
        "device_count": lambda: machine.count,
        "current_device": zero,
        "set_device": nothing,
        "device": on_device,
        "_exchange_device": zero,
        "_maybe_exchange_device": zero,
        "get_device_name": lambda *_: machine.name,
        "get_device_capability": lambda *_: machine.capability,
        "get_device_properties": lambda *_: _Properties(machine),
        "get_arch_list": lambda: [f"sm_{machine.capability[0]}{machine.capability[1]}"],
        "is_bf16_supported": lambda *_, **__: machine.capability >= (8, 0),
        "is_tf32_supported": lambda *_, **__: machine.capability >= (8, 0),
        "can_device_access_peer": lambda *_: True,
        "mem_get_info": lambda *_: (machine.memory_bytes, machine.memory_bytes),
        "memory_allocated": zero,
        "max_memory_allocated": zero,
        "memory_reserved": zero,
        "max_memory_reserved": zero,
        "memory_stats": no_statistics,
        "memory_summary": lambda *_, **__: "",
        "memory_snapshot": lambda *_, **__: [],
        "reset_peak_memory_stats": nothing,
        "reset_max_memory_allocated": nothing,
        "reset_accumulated_memory_stats": nothing,
        "empty_cache": empty_cache,
        "ipc_collect": nothing,
        "set_per_process_memory_fraction": nothing,
        "utilization": zero,
        "synchronize": synchronize,
        **graph_classes(recorder, stream_of),
        "Stream": stream_of,
        "Event": event_of,
        "stream": on_stream,
        "set_stream": set_stream,
        "current_stream": current,
        "default_stream": lambda *_: main,
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "seed": nothing,
        "seed_all": nothing,
        "initial_seed": zero,
        "get_rng_state": state,
        "set_rng_state": nothing,
        "get_rng_state_all": lambda: [state()],
        "set_rng_state_all": nothing,
    }


class _Zeros(dict[str, int]):
    """Memory statistics that are all zero."""

    def __missing__(self, key: str) -> int:
        return 0


def _accelerator(machine: Machine, recorder: Recorder) -> dict[str, Any]:
    cuda = _cuda(machine, recorder)
    return {
        "is_available": lambda: True,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "device_count": cuda["device_count"],
        "current_device_index": cuda["current_device"],
        "set_device_index": cuda["set_device"],
        "current_stream": cuda["current_stream"],
        "set_stream": cuda["set_stream"],
        "synchronize": cuda["synchronize"],
        "empty_cache": cuda["empty_cache"],
        "memory_stats": cuda["memory_stats"],
        "memory_allocated": cuda["memory_allocated"],
        "max_memory_allocated": cuda["max_memory_allocated"],
        "memory_reserved": cuda["memory_reserved"],
        "max_memory_reserved": cuda["max_memory_reserved"],
        "reset_peak_memory_stats": cuda["reset_peak_memory_stats"],
    }
