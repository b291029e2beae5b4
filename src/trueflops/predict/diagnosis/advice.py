"""What would help, and by how much: each rule looks at one thing and says so only if it matters."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trueflops import units
from trueflops.clock import Clock
from trueflops.graph.kinds import Kind
from trueflops.language import say
from trueflops.predict.advice import Advice, worth_saying
from trueflops.predict.diagnosis.chains import fusable, one_pass_seconds
from trueflops.predict.diagnosis.groups import Group, Pricer
from trueflops.predict.diagnosis.timeline import Gap, Occupied, Spent, Window
from trueflops.predict.odd_sides import is_odd, oddness, padded_sizes, resized, weight_sides
from trueflops.records.trace import NOBODY, HostEvent, Launch, Trace, TracedKernel

SHORT: Final = 10 * units.MICRO  # a kernel that ends before the host has launched the next


@dataclass(frozen=True)
class Seen:
    """What the rules look at."""

    trace: Trace
    window: Window
    gaps: Sequence[Gap]
    spent: dict[Spent, float]
    occupied: Occupied
    groups: Sequence[Group]
    clock: Clock | None
    pricer: Pricer

    @property
    def late(self) -> list[Gap]:
        """Gaps in which the device waited for the host."""
        return [gap for gap in self.gaps if gap.late]

    def launches(self) -> dict[int, tuple[Launch, list[TracedKernel]]]:
        """The ops of the step with their kernels."""
        found: dict[int, tuple[Launch, list[TracedKernel]]] = {}
        for kernel in self.window.kernels:
            if kernel.launch != NOBODY:
                launch = self.trace.launches[kernel.launch]
                found.setdefault(kernel.launch, (launch, []))[1].append(kernel)
        return found


def advise(seen: Seen) -> list[Advice]:
    """Everything worth more than a hundredth of the step, the most first."""
    rules = (_host, _chains, _optimizer, _tf32, _padding, _communication, _attention, _pageable,
             _synchronised, _allocated)  # fmt: skip
    found = [advice for rule in rules for advice in rule(seen)]
    return worth_saying(found, seen.window.seconds)


def _host(seen: Seen) -> Iterator[Advice]:
    lost = sum(gap.seconds for gap in seen.late)
    kernels = seen.window.kernels
    short = sum(k.seconds < SHORT for k in kernels)
    yield Advice(
        "launch_bound",
        say(
            "the device waited for the host before {number:,} of {kernels:,} kernels, "
            "{short:,} of which take less than {limit:.0f} µs: CUDA graphs or "
            'torch.compile(mode="reduce-overhead"), or more work a step',
            number=len(seen.late),
            kernels=len(kernels),
            short=short,
            limit=SHORT / units.MICRO,
        ),
        lost,
    )


def _chains(seen: Seen) -> Iterator[Advice]:
    if seen.clock is None:
        return
    found = fusable(seen.trace, seen.window.kernels, seen.clock)
    before, after = (units.show(n, "bytes") for n in (found.moved_bytes, found.fused_bytes))
    yield Advice(
        "fuse",
        say(
            "{launches:,} memory-bound ops in {chains} move {before} "
            "where {after} would do: torch.compile fuses them",
            launches=found.launches,
            chains=say("{number:,} chains", number=found.chains)
            if found.chains > 1
            else say("1 chain"),
            before=before,
            after=after,
        ),
        found.saves_seconds,
    )


def _optimizer(seen: Seen) -> Iterator[Advice]:
    listed = [
        (launch, sum(k.seconds for k in kernels))
        for launch, kernels in seen.launches().values()
        if "_foreach_" in launch.name and "Adam" in launch.within
    ]
    if not listed:
        return
    once = one_pass_seconds((launch for launch, _ in listed), seen.pricer)
    if once is not None:
        whole = sum(seconds for _, seconds in listed)
        yield Advice(
            "fused_optimizer",
            say(
                "the optimizer's foreach kernels pass over its states {number:,} times in "
                "{whole}; AdamW(fused=True) once in {once}",
                number=len(listed),
                whole=units.show(whole, "seconds"),
                once=units.show(once, "seconds"),
            ),
            whole - once,
        )


def _tf32(seen: Seen) -> Iterator[Advice]:
    measured = predicted = 0.0
    count = 0
    for launch, kernels in seen.launches().values():
        if not any(op.dtype == "fp32" and op.kind is Kind.MATMUL for op in launch.ops):
            continue
        price = seen.pricer.ops([replace(op, dtype="tf32") for op in launch.ops])
        if price.seconds is not None:
            count += 1
            measured += sum(k.seconds for k in kernels)
            predicted += float(price.seconds.value)
    if count and seen.clock is not None and seen.clock.chip.get("peak.tf32"):
        yield Advice(
            "tf32",
            say(
                "{count:,} products in plain fp32 take {measured}: "
                'torch.set_float32_matmul_precision("high") allows TF32',
                count=count,
                measured=units.show(measured, "seconds"),
            ),
            measured - predicted,
        )


def _padding(seen: Seen) -> Iterator[Advice]:
    """Products over an odd size of weights, beside what they should take with it padded."""
    products = [
        (op, sum(k.seconds for k in kernels))
        for launch, kernels in seen.launches().values()
        for op in launch.ops
        if op.kind is Kind.MATMUL and len(launch.ops) == 1
    ]
    odd = {size for op, _ in products for _, size in weight_sides(op).values() if is_odd(size)}
    taken = Counter[int]()
    saved: dict[int, float] = dict.fromkeys(odd, 0.0)
    for op, seconds in products:
        # A gradient of the weights has their odd side in its rows, and reads it as slowly.
        sides = {name: round(float(n)) for t in (*op.inputs, *op.weights[:1]) for name, n in t.dims}
        sizes = {name: float(padded_sizes(n)[-1]) for name, n in sides.items() if n in odd}
        price = seen.pricer.ops([resized(op, sizes)]) if sizes else None
        if price is None or price.seconds is None or seconds <= float(price.seconds.high):
            continue  # no slower than it may be, padded
        worst = max(n for n in sides.values() if n in odd)
        taken[worst] += 1
        saved[worst] += seconds - float(price.seconds.value)
    for size, seconds in saved.items():
        yield Advice(
            "padding",
            say(
                "{taken:,} products over {sides}, which is {odd}: pad it to {even}",
                taken=taken[size],
                sides=size,
                odd=oddness(size),
                even=padded_sizes(size)[-1],
            ),
            seconds,
        )


def _communication(seen: Seen) -> Iterator[Advice]:
    exposed = seen.occupied.by_cause["communication"]
    names = Counter[str]()
    for group in seen.groups:
        if group.cause == "communication":
            names[group.label] += round(group.measured_seconds / units.MICRO)
    most = names.most_common(1)[0][0] if names else ""
    yield Advice(
        "overlap",
        say(
            "communication that nothing hides (most of it {most}): overlap it with "
            "compute by prefetching the next layer's weights (FSDP) or gradient buckets "
            "that start earlier (DDP); what is left may be ranks that wait for a slower "
            "one",
            most=most,
        ),
        exposed,
    )


def _attention(seen: Seen) -> Iterator[Advice]:
    """Softmax over whole rows of scores: attention that was not fused."""
    square = 0.0
    for launch, kernels in seen.launches().values():
        shape = launch.call.inputs[0].shape if launch.call and launch.call.inputs else ()
        if "softmax" in launch.name and len(shape) == 4 and min(shape[2:]) >= 256:
            square += sum(k.seconds for k in kernels)
    yield Advice(
        "fused_attention",
        say(
            "softmax over whole matrices of scores: scaled_dot_product_attention (or "
            'attn_implementation="sdpa") never writes them'
        ),
        square,
    )


def _pageable(seen: Seen) -> Iterator[Advice]:
    slow = [k for k in seen.window.kernels if k.pageable and k.sort in ("to_device", "to_host")]
    moved = units.show(sum(k.moved_bytes for k in slow), "bytes")
    yield Advice(
        "pin_memory",
        say(
            "{number:,} copies of {moved} from or to memory that is not pinned: "
            "DataLoader(pin_memory=True) and .to(device, non_blocking=True)",
            number=len(slow),
            moved=moved,
        ),
        sum(k.seconds for k in slow),
    )


def _synchronised(seen: Seen) -> Iterator[Advice]:
    """Waits of the host that left the device without work afterwards."""
    waits = sorted((w for w in seen.trace.waits if w.doing == "wait"), key=lambda w: w.end)
    ends = [w.end for w in waits]
    drained = Counter[str]()
    lost = 0.0
    for gap in seen.late:
        first = bisect_left(ends, gap.start)
        if first < len(ends) and ends[first] <= gap.start + gap.seconds:
            drained[waits[first].name] += 1
            lost += gap.seconds
    if drained:
        name, times = drained.most_common(1)[0]
        yield Advice(
            "synchronisation",
            say(
                "{drained:,} times the host waited for the device and then let it wait "
                "({times:,} × {name}): keep losses and masks on the device, read them rarely",
                drained=drained.total(),
                times=times,
                name=name,
            ),
            lost,
        )


def _allocated(seen: Seen) -> Iterator[Advice]:
    inside = [w for w in seen.trace.waits if w.doing == "allocate" and _within(w, seen.window)]
    yield Advice(
        "allocation",
        say(
            "{number:,} calls to the driver for memory: warm up before you measure, keep "
            "shapes the same, or PYTORCH_ALLOC_CONF=expandable_segments:True",
            number=len(inside),
        ),
        seen.spent.get("allocate", 0.0),
    )


def _within(event: HostEvent, window: Window) -> bool:
    return window.start <= event.start <= window.end
