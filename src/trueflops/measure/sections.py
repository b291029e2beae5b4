"""What is measured: sections that yield jobs, each with its share of the time.

A section is a generator; it is sent the row of each job it yields. Those of one phase go on side
by side, the one furthest behind its share next, so that whenever a run ends its profile is
balanced, and so that no section has the heat of the one before for itself. Attention comes after
products: once a process has run it, every product of that process was 4.5 % slower on an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from trueflops.errors import BadInput
from trueflops.measure.attention import attention_jobs, attention_kernels, decode_jobs
from trueflops.measure.calls import Case, call_jobs
from trueflops.measure.device import Device
from trueflops.measure.eager import eager_cases
from trueflops.measure.job import Job
from trueflops.measure.kernels import launch_jobs, memory_jobs
from trueflops.measure.layers import convolution_cases, layer_cases
from trueflops.measure.moved import moving_cases
from trueflops.measure.power import power_jobs
from trueflops.measure.products import Product, has_kernel, launcher
from trueflops.measure.seek import BRISK, SLOW, Depth, seek
from trueflops.measure.shapes import HOT, odd_products, of_model, products
from trueflops.measure.state import Meter
from trueflops.measure.streams import bandwidth_jobs, host_jobs, numa_jobs
from trueflops.measure.timing import REST, time_launch
from trueflops.records.ceilings import rate as flop_per_second
from trueflops.records.ceilings import winners
from trueflops.records.formats import FORMATS
from trueflops.records.measured import Record, Row

Jobs = Generator[Job, Row | None, None]
# Share of the time: how much each format matters, first for its ceiling, then for its shapes.
# A search ends by itself: its share only says how early, and the two that matter most come first.
_SEEKING: Final = {
    "bf16": 900.0, "fp8": 600.0, "fp16": 8.0, "tf32": 8.0, "int8": 5.0, "fp32": 5.0, "fp8_row": 5.0,
    "fp8_fast": 5.0, "fp64": 4.0, "bf16_2:4": 4.0,
}  # fmt: skip
SPARSE: Final = "bf16_2:4"
_SHAPES: Final = {"bf16": 30.0, "fp8": 22.0, "fp16": 2.0, "tf32": 4.0, "int8": 3.0, "fp32": 2.0}
_ODD: Final = {"bf16": 12.0, "fp16": 1.0, "tf32": 3.0, "fp32": 2.0}  # sides that 8 does not divide
_CPU_SEEKING: Final = {"fp32": 100.0, "bf16": 3.0, "fp64": 2.0}
_CPU_SHAPES: Final = {"fp32": 24.0, "bf16": 3.0}
_ATTENTION: Final = (24.0, 12.0)  # of an accelerator, of a CPU
_DECODE: Final = (5.0, 3.0)
_MEMORY: Final = (30.0, 15.0)
_EAGER: Final = (12.0, 14.0)
_MOVED: Final = (10.0, 8.0)
_LAYERS: Final = (8.0, 8.0)
_WINDOWS: Final = (8.0, 16.0)
FITTED: Final = ("bf16", "fp16", "fp8", "tf32", "fp32", "int8")  # formats that shapes are timed of
_ONE_SHAPE: Final = 3e-3  # seconds that a product of the search may take at the peak
OWN_LONGER: Final = 10.0  # times as long may a product of the user's own model take
_LONGEST: Final = 1.2e-2  # likewise one whose shape is to be learnt
LONG_REST: Final = 0.1  # seconds before a lap of a race: each starts alike
SEARCH_ROOM: Final = 0.1  # of the memory, for one product and its copies
_CPU_SHAPE: Final = 2e-2
_ODD_SHARE: Final = 0.25


@dataclass
class Section:
    """A stream of jobs and its share of the time."""

    name: str
    weight: float
    jobs: Jobs
    phase: int = 0
    spent: float = 0.0
    last: Row | None = None
    begun: bool = False

    def next(self) -> Job | None:
        """The next job; None when there are no more."""
        try:
            job = self.jobs.send(self.last) if self.begun else next(self.jobs)
        except StopIteration:
            return None
        self.begun = True
        return job


def sections_of(
    device: Device, record: Record, sides: Sequence[tuple[int, int]], dtypes: Iterable[str] = ()
) -> list[Section]:
    """Everything but lasting loads, which heat what comes after them."""
    seeking = _CPU_SEEKING if device.is_cpu else _SEEKING
    shapes = _CPU_SHAPES if device.is_cpu else _SHAPES
    wanted = list(dtypes or seeking)
    asked = [d for d in wanted if d != SPARSE and has_kernel(d, device)]
    if not asked and wanted != [SPARSE]:
        have = ", ".join(d for d in FORMATS if d != SPARSE and has_kernel(d, device))
        raise BadInput(f"--dtypes {','.join(wanted)}: this device multiplies in {have}")
    rate = {dtype: _rough_rate(device, record, dtype) for dtype in asked}
    found = [
        Section(f"fastest {d}", seeking.get(d, 4.0), _seeking(device, record, d, rate[d]))
        for d in asked
    ]
    found += [
        Section(f"products {d}", shapes.get(d, 2.0), _products(device, d, rate[d], sides))
        for d in asked
        if d in FITTED
    ]
    found += [
        Section(f"odd products {d}", _ODD[d], _odd(device, d, rate[d])) for d in asked if d in _ODD
    ]
    found += [
        Section("bandwidth", 6.0, _each(bandwidth_jobs(device))),
        Section("memory-bound", _MEMORY[device.is_cpu], _each(memory_jobs(device))),
        Section("eager kernels", _EAGER[device.is_cpu], _calls(device, eager_cases)),
        Section("moving kernels", _MOVED[device.is_cpu], _calls(device, moving_cases)),
        Section("layers", _LAYERS[device.is_cpu], _calls(device, layer_cases)),
        Section("convolutions", _WINDOWS[device.is_cpu], _calls(device, convolution_cases)),
        Section("attention", _ATTENTION[device.is_cpu], _attending(device, record), 1),
        Section("decode", _DECODE[device.is_cpu], _each(decode_jobs(device)), 1),
        Section("launch", 2.0, _each(launch_jobs(device))),
    ]
    if SPARSE in wanted:
        found.append(Section(f"fastest {SPARSE}", 4.0, _seeking_sparse(device, record), 1))
    if device.is_cpu:
        found.append(Section("NUMA", 4.0, _each(numa_jobs())))
    else:
        found.append(Section("host link", 4.0, _each(host_jobs(device))))
    return found


def lasting_loads(device: Device, record: Record, meter: Meter) -> Section:
    """What comes last."""
    return Section("lasting loads", 1.0, _each(power_jobs(device, meter, lambda: fastest(record))))


def _each(jobs: Iterable[Job]) -> Jobs:
    """Jobs that do not need the result of the one before; `yield from` could not be sent to."""
    waiting = iter(jobs)
    while (job := next(waiting, None)) is not None:
        yield job


def _calls(device: Device, cases: Callable[..., Iterable[Case]]) -> Jobs:
    return _each(call_jobs(device, cases(on_cpu=device.is_cpu)))


def _attending(device: Device, record: Record) -> Jobs:
    kernels = attention_kernels(device)
    record.device["attention_kernel"] = kernels[0]
    yield from _each(attention_jobs(device, kernels))


def _rough_rate(device: Device, record: Record, dtype: str) -> float:
    """Flop per second of a middling product: what sizes the rest.

    Kept, since a resumed search must draw the same candidates.
    """
    known = record.device.setdefault("rough_flop_per_second", {})
    if dtype not in known:
        side = 512 if device.is_cpu else 4096
        probe = Product(side, side, side, dtype)
        taken = time_launch(device, launcher(probe, device, 1), 1, repeats=2)
        known[dtype] = float(f"{probe.flop / taken.seconds:.2g}")
    return float(known[dtype])


def product_job(device: Device, product: Product, table: str, copies: int, **more: int) -> Job:
    """A product as a row of a table; one that does not fit is tried with half the rows."""
    cells: Row = {
        "dtype": product.dtype, "m": product.m, "n": product.n, "k": product.k,
        "layout": product.layout, "copies": copies, "cast": 0, **more,
    }  # fmt: skip

    rest = LONG_REST if table == "race" else REST

    def measure() -> dict[str, float]:
        return time_launch(device, launcher(product, device, copies), copies, rest=rest).cells()

    def smaller() -> Job:
        half = product._replace(m=max(16, product.m // 32 * 16))
        return product_job(device, half, table, min(copies, 2), **more)

    return Job(table, cells, measure, smaller if product.m > 16 else None)


def _seeking(device: Device, record: Record, dtype: str, rate: float) -> Jobs:
    """The search; every product that it tries also teaches the fit."""
    table = "matmul" if dtype in FITTED else "other_products"
    length = _CPU_SHAPE if device.is_cpu else _ONE_SHAPE
    units = int(device.identity.get("units") or 1)
    depth = SLOW if device.is_cpu else Depth() if dtype in ("bf16", "fp8") else BRISK
    room = SEARCH_ROOM * float(device.identity["memory_bytes"])
    search = seek(dtype, units, rate * length, room, depth)
    laps: dict[Product, int] = {}
    asked = next(search, None)
    while asked is not None:
        product, racing = asked
        copies = product.copies(device)
        if racing:
            laps[product] = laps.get(product, 0) + 1
            row = yield product_job(device, product, "race", copies, lap=laps[product])
        else:
            row = yield product_job(device, product, table, copies)
        try:
            asked = search.send(flop_per_second(row) if row else 0.0)
        except StopIteration:
            asked = None
    record.save()


def _seeking_sparse(device: Device, record: Record) -> Jobs:
    """Loads a library of its own: only once products have been timed."""
    if has_kernel(SPARSE, device):
        yield from _seeking(device, record, SPARSE, _rough_rate(device, record, SPARSE))


def _products(device: Device, dtype: str, rate: float, sides: Sequence[tuple[int, int]]) -> Jobs:
    """The user's own shapes first, then those of all models; some with their weights in cache."""
    length = _CPU_SHAPE if device.is_cpu else _LONGEST
    own = [p for p in of_model(sides, dtype) if p.flop <= OWN_LONGER * rate * length]
    for i, product in enumerate(chain(own, products(dtype, rate * length))):
        yield product_job(device, product, "matmul", product.copies(device))
        if i % HOT == 0 and product.layout != "tn":
            yield product_job(device, product, "matmul", 1)


def _odd(device: Device, dtype: str, rate: float) -> Jobs:
    """They run at a fraction of the rate: only short ones."""
    length = _CPU_SHAPE if device.is_cpu else _LONGEST
    for product in odd_products(dtype, rate * length * _ODD_SHARE):
        yield product_job(device, product, "matmul", product.copies(device))


def fastest(record: Record) -> dict[str, Product]:
    """The winner of each format's race."""
    return {dtype: Product(*won.shape, dtype) for dtype, won in winners(record).items()}
