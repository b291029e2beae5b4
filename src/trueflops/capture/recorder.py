"""The dispatch mode under which a program runs: works out what each op returns, and records it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trueflops.capture.launches import Launches
from trueflops.capture.lower import is_guessed
from trueflops.capture.places import Places
from trueflops.capture.pretend.autocast import PRODUCTS, cast_down
from trueflops.capture.pretend.engine import REPLACED, Engine
from trueflops.capture.pretend.fake_tensors import (
    META,
    as_fake,
    as_meta,
    claimed_device,
    fake_of,
    flat,
    with_values,
)
from trueflops.capture.pretend.fused import OPENED, allows_tf32, decomposed
from trueflops.capture.pretend.masks import by_places, takes_mask, without_values
from trueflops.capture.pretend.routing import chosen_evenly
from trueflops.capture.pretend.shape_cache import ShapeCache
from trueflops.capture.pretend.temporaries import temporaries
from trueflops.capture.pretend.values import Values, asks_for_numbers
from trueflops.capture.ranks.collectives import COLLECTIVES, Collectives
from trueflops.capture.schema import OpTraits, all_positional, has_device, traits_of
from trueflops.capture.trouble import (
    lacks_shapes,
    no_meta_kernel,
    priced_by_bytes,
    sparse_tensor,
    where,
)
from trueflops.language import say
from trueflops.records.recording import (
    HOST,
    Allocated,
    Began,
    Call,
    Emptied,
    Event,
    Freed,
    RecordedTensor,
    Recording,
    Waited,
)
from trueflops.units import MEBI

OURS: Final = ("aten", "prims", "higher_order", *COLLECTIVES)
"""Libraries of ops whose kernels are known."""
LARGEST_REAL: Final = MEBI
"""Tensors on the host up to this many bytes hold real numbers, so that programs may read them."""


class Recorder(TorchDispatchMode):
    """Runs ops on fake tensors and keeps a Recording of them."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device  # the kind of the program's accelerator: cuda, or cpu
        self.recording = Recording()
        self.places = Places()
        self.values = Values()
        self.shapes = ShapeCache()
        self.engine = Engine()
        self.collectives = Collectives(self)
        self.stream = 0
        self.listening = False  # calls are recorded only in the recorded step
        self.stepping = False
        self.on_meta = False  # the program itself asks for a meta tensor
        self.ended = False  # storages freed after the program has ended are not of the step
        self._numbers: dict[int, int] = {}  # a living storage's address -> its number
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._next = 0
        self._views = 0
        self._begun = 0  # the event at which the current part of the run began
        self.has_tf32 = False  # set by the machine
        self.launches = Launches(self.recording)
        self._foreign: set[str] = set()
        self._assumed: list[str] = []  # of values, told as soon as the program uses any

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled under this mode, so dynamo need not skip it."""
        return False

    # ── running an op ────────────────────────────────────────────────────────────────────────────

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answer one op: shapes from torch's meta kernels, real numbers for small host tensors."""
        if any(_has_own_dispatch(kind) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        self.engine.follow(self._next)
        if func in REPLACED:
            func = self.engine.in_place(func, args, self._number(args[0], ""))
        if func in OPENED:
            with self:
                return OPENED[func](*args, **kwargs)
        if func in PRODUCTS and (lower := self.places.lowered()) is not None:
            with self:
                args = tuple(cast_down(arg, lower) for arg in args)
        traits = traits_of(func)
        if traits.library == "fsdp" or (traits.composite and torch.is_inference_mode_enabled()):
            with self:  # autograd has not decomposed it
                return decomposed(func, args, kwargs, self.device)
        tensors = _tensors(args, kwargs)
        claimed = [claimed_device(t) for t in tensors]
        if traits.library in COLLECTIVES:
            return self.collectives.run(traits, func, args, kwargs)
        target = self._target(kwargs.get("device"), claimed)
        if target is None:
            return self._run_real(traits, func, args, kwargs)
        if takes_mask(func, args):
            with self:
                return by_places(func, args, kwargs)
        if traits.data_dependent and asks_for_numbers(func, args, kwargs):
            return self._read(traits, func, args, kwargs)
        made = self._run_fake(traits, func, args, kwargs, target)
        self.values.follow(traits, func, args, kwargs, tensors, made)
        if chosen_evenly(func, args, kwargs, made):
            self._assumed.append(
                say("topk{at} is taken to choose evenly: nobody knows the values", at=where())
            )
        return made

    def _target(self, asked: torch.device | None, claimed: list[str | None]) -> str | None:
        """The device that the result claims; None: the result holds real values, on the host."""
        if asked is not None:
            kind = asked.type
            # Autograd's formulas ask for the device that C++ sees.
            if kind == "meta" and not self.on_meta:
                there = self.device if self.stepping else "meta"
                kind = next((device for device in claimed if device not in (None, "meta")), there)
            if kind == HOST and all(device is None for device in claimed):
                return None
            return kind
        fakes = [device for device in claimed if device is not None]
        if not fakes:
            return None
        return next((device for device in fakes if device != HOST), HOST)

    def _run_real(self, traits: OpTraits, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op on real tensors of the host, unless its result is large."""
        if traits.is_factory:
            planned = func(*args, **{**kwargs, "device": META}) if has_device(func) else None
            # Where the CPU is the accelerator, autograd needs all float tensors to be of one kind.
            as_fake = self.device == HOST and planned is not None and planned.is_floating_point()
            if planned is not None and (as_fake or planned.nbytes > LARGEST_REAL):
                made = fake_of(planned, HOST)
                self._write(traits, (), (made,), args)
                self.values.follow(traits, func, args, kwargs, [], made)
                return made
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        made = func(*args, **kwargs)
        if self.device == HOST:
            self._write(traits, _tensors(args, kwargs), flat(made), args)
        return made

    def _run_fake(self, traits: OpTraits, func: Any, args: Any, kwargs: Any, target: str) -> Any:
        """Run an op on meta tensors; gives fake tensors, or the arguments that it changed."""
        if "scaled_dot_product" in traits.name:
            args = all_positional(func, args)
        key = self.shapes.key(func, args, kwargs) if traits.returns_new else None
        if key is not None and (again := self.shapes.get(key, target)) is not None:
            self._write(traits, _tensors(args, kwargs), flat(again), args, kwargs)
            return again
        given: dict[int, torch.Tensor] = {}
        words = [(k, v) for k, v in kwargs.items() if k not in ("pin_memory", "generator")]
        try:
            shapes = func(*as_meta(args, given), **{k: as_meta((v,), given)[0] for k, v in words})
        except (NotImplementedError, RuntimeError) as error:
            if not lacks_shapes(error):
                raise
            if func._schema.returns:
                raise no_meta_kernel(traits.name, error) from error
            shapes = None
        made = as_fake(shapes, given, target)
        if traits.is_inplace_view:
            for meta_id, value in given.items():
                meta = next((s for s in flat(shapes) if id(s) == meta_id), None)
                if meta is not None:
                    value.data = fake_of(meta, target)
        if key is not None:
            self.shapes.put(key, made, list(given.values()))
        self._write(traits, given.values(), flat(made), args, kwargs)
        return made

    def _read(self, traits: OpTraits, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op whose result depends on values, where those are known."""
        self.waits(-1, -1, self.now)
        known, answer = self.values.answer(func, args, kwargs)
        self.tell_assumed()
        if known:
            made = with_values(answer, self.device)
        else:
            made = as_fake(without_values(func, args, self.values, self.warn), {}, self.device)
        self._write(traits, _tensors(args, kwargs), flat(made), args, kwargs)
        return made

    # ── recording it ─────────────────────────────────────────────────────────────────────────────

    def _write(
        self,
        traits: OpTraits,
        inputs: Iterable[torch.Tensor],
        outputs: Iterable[torch.Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        group: tuple[int, ...] = (),
        stream: int | None = None,
    ) -> None:
        made = tuple(outputs)
        phase, module, region = self.places.now()
        fresh = [self._number(t, traits.name) for t in made]
        if self.device != HOST:
            self._take(temporaries(traits.name, inputs := tuple(inputs), made), traits.name)
        if not self.listening and self.launches.captured is None:
            return
        if traits.is_view:
            self._views += 1
            return
        given = tuple(inputs)
        hosts = all(claimed_device(t) in (None, HOST) for t in (*given, *made))
        if hosts and self.device != HOST and not group:
            return
        if (traits.library not in OURS and not group) or is_guessed(traits.name):
            self.warn(priced_by_bytes(traits.name))
        words = (*args, *(kwargs or {}).values())
        numbers = tuple(w for w in words if isinstance(w, (int, float, bool, str, list, tuple)))
        self._events.append(
            Call(
                traits.name,
                tuple(self._array(t) for t in given),
                tuple(self._array(t, number) for t, number in zip(made, fresh, strict=True)),
                tuple(n for n in numbers if not _holds_tensors(n)),
                phase,
                module,
                self.stream if stream is None else stream,
                region,
                group,
                self._views,
                self.places.entered,
                tf32=self.has_tf32 and allows_tf32(traits.name),
                source=self.places.line(),
                graph=self.launches.of_region(region, phase)
                if region in self.places.graphed
                else -1,
            )
        )
        self._views = self.places.entered = 0

    def write_call(
        self, traits: OpTraits, inputs: Iterable[torch.Tensor], outputs: Iterable[torch.Tensor]
    ) -> None:
        """Write a call down that did not come through the dispatcher."""
        self._write(traits, inputs, outputs, ())

    def _array(self, tensor: torch.Tensor, number: int | None = None) -> RecordedTensor:
        if number is None:
            number = self._number(tensor, "")
        device = claimed_device(tensor) or HOST
        dtype = str(tensor.dtype).removeprefix("torch.")
        layout = tuple(tensor.stride()) if tensor.layout == torch.strided else ()
        return RecordedTensor(
            number, tuple(tensor.shape), layout, dtype, device, int(tensor.storage_offset())
        )

    def _number(self, tensor: torch.Tensor, op: str) -> int:
        """The number of a tensor's storage; a new one is written down as allocated."""
        if tensor.layout != torch.strided:
            raise sparse_tensor(str(tensor.layout))
        storage = tensor.untyped_storage()
        address = storage._cdata
        known = self._numbers.get(address)
        if known is not None:
            return known
        self._next += 1
        number = self._numbers[address] = self._next
        self._alive[address] = weakref.ref(storage, lambda _: self._free(address))
        if claimed_device(tensor) == self.device or self.device == HOST:
            self._allocated(number, storage.nbytes(), op)
        return number

    def _take(self, sizes: tuple[int, ...], op: str) -> None:
        """Memory that the call has to itself: it goes when the call has been issued."""
        numbers = range(self._next + 1, self._next + 1 + len(sizes))
        for number, size in zip(numbers, sizes, strict=True):
            self._allocated(number, size, op)
        for number in numbers:
            self.launches.freed(number)
            self.recording.events.append(Freed(number))
        self._next += len(sizes)

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """The number of a storage that this recording has seen."""
        return self._numbers.get(tensor.untyped_storage()._cdata)

    def _allocated(self, number: int, size: int, op: str) -> None:
        phase, module, _ = self.places.now()
        line = self.places.line()
        self.recording.events.append(Allocated(number, size, self.stream, phase, module, op, line))
        self.launches.allocated(number, size)

    def _free(self, address: int) -> None:
        number = self._numbers.pop(address, None)
        self._alive.pop(address, None)
        if number is not None and not self.ended:
            self.recording.events.append(Freed(number))
            self.launches.freed(number)

    def resized(self, storage: torch.UntypedStorage, size: int) -> None:
        """A storage grew or was emptied in place, as FSDP does with gathered parameters."""
        number = self._numbers.get(storage._cdata)
        if number is not None:
            self.recording.events.append(Freed(number))
            if size:
                self._allocated(number, size, "resize_")

    @property
    def now(self) -> int:
        """How many events there are so far, of the run or of the graph that is captured."""
        return len(self._events)

    @property
    def _events(self) -> list[Event]:
        captured = self.launches.captured
        return self.recording.events if captured is None else captured

    def waits(self, waiting: int, awaited: int, at: int) -> None:
        """A stream or the host waits."""
        if self.launches.captured is not None:
            if waiting < 0:
                raise RuntimeError("operation not permitted when stream is capturing")
            self._events.append(Waited(waiting, awaited, at))
        elif self.listening:
            self._events.append(Waited(waiting, awaited, max(0, at - self._begun)))

    def empties(self) -> None:
        """The allocator gives back what it had kept; while a graph is captured it may not."""
        if self.launches.captured is None:
            self.recording.events.append(Emptied(self.stream))

    def replay(self, events: list[Event]) -> None:
        """A CUDA graph is launched: all of its calls at once."""
        if self.listening:
            self._events.extend(self.launches.launched(events, self.now - self._begun))

    def begin(self, part: str, *, listening: bool) -> None:
        """Begin a part of the run: the warm-up steps or the recorded step."""
        self.recording.events.append(Began(part))
        self._begun = len(self.recording.events)
        self._views = self.places.entered = 0
        self.listening, self.stepping = listening, True
        self.places.follows_lines = listening

    def tell_assumed(self) -> None:
        """The program uses values: what was assumed of them so far goes into the answer."""
        for text in self._assumed:
            self.warn(text)
        if self.values.took_finite:
            self.warn(
                say("unknown values are taken to be finite: no step is skipped for an overflow")
            )
        self._assumed.clear()

    def warn(self, text: str) -> None:
        """Add a warning to the recording, once."""
        if text not in self._foreign:
            self._foreign.add(text)
            self.recording.warnings.append(text)


@cache
def _has_own_dispatch(kind: type) -> bool:
    """Whether a subclass has a dispatch of its own, such as DTensor: that one runs first."""
    own = getattr(kind, "__torch_dispatch__", None)
    return own is not torch.Tensor.__torch_dispatch__


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    return flat((*args, *kwargs.values()))


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value)
