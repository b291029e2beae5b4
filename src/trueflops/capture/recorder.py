"""The mode under which a program runs: every op works out its shapes, and is written down."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trueflops.capture.lower import is_guessed
from trueflops.capture.places import Places
from trueflops.capture.pretend.engine import REPLACED, Engine
from trueflops.capture.pretend.fused import allows_tf32, in_parts
from trueflops.capture.pretend.ghosts import META, ghost_of, home_of, shade_of
from trueflops.capture.pretend.remembered import Remembered
from trueflops.capture.pretend.values import Values, asks_for_numbers
from trueflops.capture.ranks.collectives import COLLECTIVES, Collectives
from trueflops.capture.schema import Manner, manner_of
from trueflops.capture.trouble import (
    data_dependent,
    lacks_shapes,
    no_meta_kernel,
    passes,
    priced_by_bytes,
    sparse_tensor,
)
from trueflops.records.recording import (
    HOST,
    Allocated,
    Array,
    Began,
    Call,
    Freed,
    Recording,
    Waited,
)
from trueflops.units import MEBI

OURS: Final = ("aten", "prims", *COLLECTIVES)
"""Libraries of ops whose kernels are known."""
LARGEST_REAL: Final = MEBI
"""Tensors on the host up to this many bytes hold real numbers, so that programs may read them."""


class Recorder(TorchDispatchMode):
    """Runs ops on ghosts and keeps a Recording of them."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device  # the kind that the program's accelerator is: cuda, or cpu
        self.recording = Recording()
        self.places = Places()
        self.values = Values()
        self.shapes = Remembered()
        self.engine = Engine()
        self.collectives = Collectives(self)
        self.stream = 0
        self.listening = False  # calls are kept only of the step that is recorded
        self.stepping = False
        self.ended = False  # what goes when the program itself is taken down is not of the step
        self._numbers: dict[int, int] = {}  # a living storage's address -> its number
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._next = 0
        self._views = 0
        self._begun = 0  # the event at which the part of the run began that is under way
        self.has_tf32 = False  # set by the machine
        self._foreign: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled while it runs, so no op need be hidden from the compiler."""
        return False

    # ── what the program asks for ────────────────────────────────────────────────────────────────

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answer one op: shapes from torch's meta kernels, real numbers for small host tensors."""
        if any(_takes_itself_apart(kind) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        self.engine.follow(self._next)
        if func in REPLACED:
            func = self.engine.in_place(func, args, self._number(args[0], ""))
        manner = manner_of(func)
        if manner.library == "fsdp" or (manner.composite and torch.is_inference_mode_enabled()):
            with self:  # nothing above has taken it apart
                return in_parts(func, args, kwargs, self.device)
        tensors = _tensors(args, kwargs)
        homes = [home_of(t) for t in tensors]
        if manner.library in COLLECTIVES:
            return self.collectives.join(manner, func, args, kwargs)
        target = self._target(kwargs.get("device"), homes)
        if target is None:
            return self._really(manner, func, args, kwargs)
        if manner.data_dependent and asks_for_numbers(func, args, kwargs):
            return self._read(manner, func, args, kwargs)
        made = self._as_ghosts(manner, func, args, kwargs, target)
        self.values.follow(manner, func, args, kwargs, tensors, made)
        return made

    def _target(self, asked: torch.device | None, homes: list[str | None]) -> str | None:
        """Where the result lies; None: it is real."""
        if asked is not None:
            kind = asked.type
            if kind == "meta":  # C++ asks for where it sees a ghost, as autograd's formulas do
                there = self.device if self.stepping else "meta"
                kind = next((home for home in homes if home not in (None, "meta")), there)
            if kind == HOST and all(home is None for home in homes):
                return None
            return kind
        ghosts = [home for home in homes if home is not None]
        if not ghosts:
            return None
        return next((home for home in ghosts if home != HOST), HOST)

    def _really(self, manner: Manner, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op on real numbers of the host, unless what it makes is large."""
        if manner.makes:
            planned = func(*args, **{**kwargs, "device": META}) if _has_device(func) else None
            # Where the host is the accelerator, autograd wants all floats to be of one kind.
            ghostly = self.device == HOST and planned is not None and planned.is_floating_point()
            if planned is not None and (ghostly or planned.nbytes > LARGEST_REAL):
                made = ghost_of(planned, HOST)
                self._write(manner, (), (made,), args)
                self.values.follow(manner, func, args, kwargs, [], made)
                return made
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        made = func(*args, **kwargs)
        if self.device == HOST:
            self._write(manner, _tensors(args, kwargs), _flat(made), args)
        return made

    def _as_ghosts(self, manner: Manner, func: Any, args: Any, kwargs: Any, target: str) -> Any:
        """Run an op on shades; its results are ghosts, or the arguments that it changed."""
        key = self.shapes.key(func, args, kwargs) if manner.fresh else None
        if key is not None and (again := self.shapes.recall(key, target)) is not None:
            self._write(manner, _tensors(args, kwargs), _flat(again), args, kwargs)
            return again
        given: dict[int, torch.Tensor] = {}
        words = [(k, v) for k, v in kwargs.items() if k not in ("pin_memory", "generator")]
        try:
            shapes = func(*_shaded(args, given), **{k: _shaded((v,), given)[0] for k, v in words})
        except (NotImplementedError, RuntimeError) as error:
            if not lacks_shapes(error):
                raise
            if func._schema.returns:
                raise no_meta_kernel(manner.name, error) from error
            shapes = None
        made = _raised(shapes, given, target)
        if manner.is_inplace_view:
            for shade_id, value in given.items():
                shade = next((s for s in _flat(shapes) if id(s) == shade_id), None)
                if shade is not None:
                    value.data = ghost_of(shade, target)
        if key is not None:
            self.shapes.learn(key, made, list(given.values()))
        self._write(manner, given.values(), _flat(made), args, kwargs)
        return made

    def _read(self, manner: Manner, func: Any, args: Any, kwargs: Any) -> Any:
        """An op whose result depends on values: answered where they are known."""
        self.waits(-1, -1, len(self.recording.events))
        known, answer = self.values.answer(func, args, kwargs)
        if not known and func is torch.ops.aten._local_scalar_dense.default:
            known, answer = (passes() is not None), passes()
        if not known:
            raise data_dependent(manner.name)
        made = _known(answer, self.device)
        self._write(manner, _tensors(args, kwargs), _flat(made), args, kwargs)
        return made

    # ── what is written down ─────────────────────────────────────────────────────────────────────

    def _write(
        self,
        manner: Manner,
        inputs: Iterable[torch.Tensor],
        outputs: Iterable[torch.Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        group: tuple[int, ...] = (),
        stream: int | None = None,
    ) -> None:
        made = tuple(outputs)
        phase, module, region = self.places.now()
        fresh = [self._number(t, manner.name) for t in made]
        if not self.listening:
            return
        if manner.is_view:
            self._views += 1
            return
        given = tuple(inputs)
        hosts = all(home_of(t) in (None, HOST) for t in (*given, *made))
        if hosts and self.device != HOST and not group:
            return
        if (manner.library not in OURS and not group) or is_guessed(manner.name):
            self.warn(priced_by_bytes(manner.name))
        words = (*args, *(kwargs or {}).values())
        numbers = tuple(w for w in words if isinstance(w, (int, float, bool, str, list, tuple)))
        self.recording.events.append(
            Call(
                manner.name,
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
                tf32=self.has_tf32 and allows_tf32(manner.name),
            )
        )
        self._views = self.places.entered = 0

    def _array(self, tensor: torch.Tensor, number: int | None = None) -> Array:
        if number is None:
            number = self._number(tensor, "")
        home = home_of(tensor)
        dtype = str(tensor.dtype).removeprefix("torch.")
        layout = tuple(tensor.stride()) if tensor.layout == torch.strided else ()
        return Array(
            number, tuple(tensor.shape), layout, dtype, home or HOST, int(tensor.storage_offset())
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
        if home_of(tensor) == self.device or self.device == HOST:
            self._allocated(number, storage.nbytes(), op)
        return number

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """The number of a storage that this recording has seen."""
        return self._numbers.get(tensor.untyped_storage()._cdata)

    def _allocated(self, number: int, size: int, op: str) -> None:
        phase, module, _ = self.places.now()
        self.recording.events.append(Allocated(number, size, self.stream, phase, module, op))

    def _free(self, address: int) -> None:
        number = self._numbers.pop(address, None)
        self._alive.pop(address, None)
        if number is not None and not self.ended:
            self.recording.events.append(Freed(number))

    def resized(self, storage: torch.UntypedStorage, size: int) -> None:
        """A storage grew or was emptied in place, as FSDP does with gathered parameters."""
        number = self._numbers.get(storage._cdata)
        if number is not None:
            self.recording.events.append(Freed(number))
            if size:
                self._allocated(number, size, "resize_")

    def waits(self, waiting: int, awaited: int, at: int) -> None:
        """A stream or the host waits."""
        if self.listening:
            since = max(0, at - self._begun)
            self.recording.events.append(Waited(waiting, awaited, since))

    def begin(self, part: str, *, listening: bool) -> None:
        """A part of the run begins."""
        self.recording.events.append(Began(part))
        self._begun = len(self.recording.events)
        self._views = self.places.entered = 0
        self.listening, self.stepping = listening, True

    def warn(self, text: str) -> None:
        """Say something once."""
        if text not in self._foreign:
            self._foreign.add(text)
            self.recording.warnings.append(text)


# Not closures inside the method: one that calls itself is a cycle, and would keep the tensors it
# has seen alive until the garbage collector comes by.


def _shaded(values: Iterable[Any], given: dict[int, torch.Tensor]) -> list[Any]:
    """Arguments with every tensor as its shade; `given` remembers whose shade each is."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            shade = _shade(value)
            given[id(shade)] = value
            found.append(shade)
        elif isinstance(value, (list, tuple)):
            found.append(type(value)(_shaded(value, given)))
        else:
            found.append(META if isinstance(value, torch.device) else value)
    return found


def _raised(value: Any, given: dict[int, torch.Tensor], target: str) -> Any:
    """Results as ghosts, or as the arguments that they are."""
    if isinstance(value, torch.Tensor):
        known = given.get(id(value))
        return known if known is not None else ghost_of(value, target)
    if isinstance(value, (list, tuple)):
        return type(value)([_raised(each, given, target) for each in value])
    return value


def _known(answer: Any, device: str) -> Any:
    """Real results as ghosts that carry their numbers along."""
    if isinstance(answer, torch.Tensor):
        made = ghost_of(_shade(answer), device)
        made._behind = answer  # type: ignore[attr-defined]
        return made
    return type(answer)(_known(a, device) for a in answer) if isinstance(answer, tuple) else answer


@cache
def _takes_itself_apart(kind: type) -> bool:
    """A subclass with a dispatch of its own, such as DTensor, is asked first."""
    own = getattr(kind, "__torch_dispatch__", None)
    return own is not torch.Tensor.__torch_dispatch__


def _shade(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as meta, whether it is a ghost or holds numbers."""
    if home_of(tensor) is not None:
        return shade_of(tensor)
    return torch.empty_strided(
        tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=META
    )


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    return _flat((*args, *kwargs.values()))


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in _flat(each)]
    return []


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value)


def _has_device(func: Any) -> bool:
    return any(a.name == "device" for a in func._schema.arguments)
