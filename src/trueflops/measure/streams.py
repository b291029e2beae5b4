"""Memory bandwidth by size, the link to the host, and NUMA nodes.

`bytes` is the size of one buffer; bandwidth counts what STREAM counts (McCalpin 1995): a read or a
write moves it once, a copy twice, a triad a = b + s·c three times. Small buffers are used again and
again, so they are found in cache: that is what their rows are for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import torch

from trueflops.measure import timing
from trueflops.measure.device import Device, cache_bytes
from trueflops.measure.job import Job
from trueflops.measure.timing import Launch, Timed, time_launch
from trueflops.records.measured import Row

KIB, MIB, GIB = 2**10, 2**20, 2**30
OPS: Final = {"copy": 2, "triad": 3, "read": 1, "write": 1}  # buffers, which is also times moved
WAYS: Final = ("to_device", "to_host", "both")
SMALLEST: Final = 256 * KIB
ROWS: Final = (512, 1024, 2048, 65536)  # widths of which one or another is the fastest to sum
ROW_TIMES: Final = 16384  # width of a matrix times a vector, which reads best at some sizes
HOST_SIZES: Final = tuple(4**i * 64 * KIB for i in range(6, -1, -1))  # 256 MiB … 64 KiB
KEPT: Final = 64 * MIB  # larger buffers are given back at once
NODE_SECONDS: Final = 30.0
OF_A_POOL: Final = ("OMP_", "KMP_", "GOMP_", "MKL_")  # settings that would move a node's threads


def bandwidth_jobs(device: Device) -> list[Job]:
    """Every operation at every size, the largest first."""
    return [_stream_job(device, op, size) for size in reversed(sizes(device)) for op in OPS]


def sizes(device: Device) -> list[int]:
    """From what a cache holds to what surely comes from memory, by powers of four."""
    if device.is_cpu:
        most = min(max(256 * MIB, 4 * cache_bytes()), GIB)
    else:
        most = min(int(device.identity["memory_bytes"]) // 8, 8 * GIB)
    most = min(most, int(device.free_bytes) // 4)  # a triad holds three
    return [size for size in (SMALLEST * 4**i for i in range(12)) if size <= max(most, SMALLEST)]


def _filled(device: Device, size: int) -> torch.Tensor:
    """Random on a GPU, where zeros are faster; on a CPU touched by the threads that will use it."""
    if device.is_cpu:
        return torch.empty(size // 4).fill_(1.0)
    return device.normal(size // 4, dtype=torch.float32)


def _ways(op: str, buffers: list[torch.Tensor]) -> list[Launch]:
    """Launches that move the same bytes; which is fastest depends on the size."""
    a, b, c = (buffers * 3)[:3]
    if op == "copy":  # a large copy_ in a graph goes through a copy engine: 2.8 of 4.3 TB/s (H200)
        return [lambda _: a.copy_(b), lambda _: torch.neg(b, out=a)]
    if op == "triad":
        return [lambda _: torch.add(b, c, alpha=1.5, out=a)]
    if op == "write":
        return [lambda _: a.fill_(1.5)]
    ways = [_sums(a.view(-1, width)) for width in ROWS]
    many = a.view(-1, ROW_TIMES)
    by, out = many[0].clone(), a.new_empty(len(many))
    return [*ways, lambda _: torch.mv(many, by, out=out)]


def _sums(rows: torch.Tensor) -> Launch:
    out = rows.new_empty(len(rows))
    return lambda _: torch.sum(rows, 1, out=out)


def _fastest(device: Device, ways: list[Launch]) -> Timed:
    return min((time_launch(device, way) for way in ways), key=lambda timed: timed.seconds)


def _stream_job(device: Device, op: str, size: int) -> Job:
    def measure() -> dict[str, float]:
        buffers = [_filled(device, size) for _ in range(OPS[op])]
        timed = _fastest(device, _ways(op, buffers))
        del buffers
        _give_back(device, size)
        return _cells(timed, OPS[op] * size)

    def smaller() -> Job:
        return _stream_job(device, op, size // 4)

    cells: Row = {"op": op, "bytes": size}
    return Job("bandwidth", cells, measure, smaller if size > SMALLEST else None)


def _cells(timed: Timed, moved: float) -> dict[str, float]:
    return timed.cells() | {"bandwidth": float(f"{moved / timed.seconds:.5g}")}


def _give_back(device: Device, size: int) -> None:
    if size > KEPT:
        device.release()


def host_jobs(device: Device) -> list[Job]:
    """Copies over the link to the host: each way alone and both at once; none on a CPU."""
    if device.is_cpu:
        return []
    streams = device.kind in ("cuda", "xpu")  # without them nothing is pinned or overlaps
    ways, pins = (WAYS, (1, 0)) if streams else (WAYS[:2], (0,))
    return [
        _host_job(device, way, pinned, size)
        for size in HOST_SIZES
        for pinned in pins
        for way in ways
    ]


def _host_job(device: Device, way: str, pinned: int, size: int) -> Job:
    def measure() -> dict[str, float]:
        pairs = []  # (to, from) of each direction
        for direction in WAYS[:2] if way == "both" else (way,):
            here = torch.ones(size // 4, pin_memory=bool(pinned))
            there = torch.ones(size // 4, device=device.at)
            pairs.append((there, here) if direction == "to_device" else (here, there))
        timed = _pinned(device, pairs) if pinned else _pageable(device, pairs)
        moved = len(pairs) * size
        del pairs
        _give_back(device, size)
        return _cells(timed, moved)

    def smaller() -> Job:
        return _host_job(device, way, pinned, size // 4)

    cells: Row = {"way": way, "pinned": pinned, "bytes": size}
    return Job("host", cells, measure, smaller if size > HOST_SIZES[-1] else None)


Pairs = list[tuple[torch.Tensor, torch.Tensor]]


def _pinned(device: Device, pairs: Pairs) -> Timed:
    """Copies that the device makes by itself; two at once on streams that join after each."""
    if len(pairs) == 1:
        to, source = pairs[0]
        return time_launch(device, lambda _: to.copy_(source, non_blocking=True))
    module: Any = getattr(torch, device.kind)
    streams = [module.Stream(device=device.at) for _ in pairs]

    def launch(_: int) -> None:
        current = module.current_stream()
        for stream, (to, source) in zip(streams, pairs, strict=True):
            stream.wait_stream(current)
            with module.stream(stream):
                to.copy_(source, non_blocking=True)
        for stream in streams:
            current.wait_stream(stream)

    return time_launch(device, launch)


def _pageable(device: Device, pairs: Pairs) -> Timed:
    """Copies that the host takes part in, and waits for: no graph; two at once need two threads."""
    module: Any = getattr(torch, device.kind)

    def copies(which: int, count: int) -> None:
        to, source = pairs[which]
        alone = len(pairs) == 1
        with nullcontext() if alone else module.stream(module.Stream(device=device.at)):
            for _ in range(count):
                to.copy_(source)

    def batch(pool: ThreadPoolExecutor, count: int) -> float:
        device.synchronize()
        begun = time.perf_counter()
        list(pool.map(copies, range(len(pairs)), [count] * len(pairs)))
        device.synchronize()
        return time.perf_counter() - begun

    with ThreadPoolExecutor(len(pairs)) as pool:
        batch(pool, 1)
        guess = max(batch(pool, 2) / 2, timing.SHORTEST)
        count = max(1, min(timing.MOST_LAUNCHES, round(timing.BATCH_SECONDS / guess)))
        times = [batch(pool, count) / count for _ in range(timing.REPEATS)]
    return timing.summary(times)


def numa_jobs(root: Path = Path("/")) -> list[Job]:
    """Each node reading its own memory, then each other's; one row where there is one node."""
    nodes = sorted(numa_nodes(root))
    pairs = sorted(((a, b) for a in nodes for b in nodes), key=lambda p: (p[0] != p[1], p))
    return [
        Job("numa", {"node": node, "memory_of": owner}, _in_subprocess(node, owner))
        for node, owner in pairs
    ]


def numa_nodes(root: Path = Path("/")) -> dict[int, set[int]]:
    """Node -> those of its CPUs that we may use; nodes of memory alone are left out."""
    if not hasattr(os, "sched_getaffinity"):
        return {}
    nodes = {}
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        try:
            cpus = _cpus((folder / "cpulist").read_text()) & os.sched_getaffinity(0)
        except (OSError, ValueError):
            continue
        if cpus:
            nodes[int(folder.name.removeprefix("node"))] = cpus
    return nodes


def _cpus(text: str) -> set[int]:
    """0-3,8 as sysfs writes it."""
    ends = [part.partition("-") for part in text.strip().split(",") if part]
    return {cpu for low, _, high in ends for cpu in range(int(low), int(high or low) + 1)}


def _in_subprocess(node: int, owner: int) -> Callable[[], dict[str, float]]:
    """In a process of its own: a thread pool stays where it was first started."""

    def measure() -> dict[str, float]:
        settings = {k: v for k, v in os.environ.items() if not k.startswith(OF_A_POOL)}
        beside = (str(Path(__file__).resolve().parents[2]), settings.get("PYTHONPATH", ""))
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, beside))
        asked = [
            sys.executable,
            "-m",
            __spec__.name,
            "--node",
            str(node),
            "--memory-of",
            str(owner),
        ]
        try:
            done = subprocess.run(
                asked,
                env=settings,
                capture_output=True,
                text=True,
                timeout=NODE_SECONDS,
                check=True,
            )
            return {"bandwidth": float(json.loads(done.stdout)["bandwidth"])}
        except subprocess.CalledProcessError as error:
            said = (error.stderr.strip().splitlines() or ["?"])[-1]
        except (subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
            said = str(error)
        raise RuntimeError(f"node {node} reading the memory of node {owner}: {said}")

    return measure


def read_across(node: int, owner: int) -> float:
    """Bytes per second that the CPUs of one node read of memory that another touched first."""
    nodes, device = numa_nodes(), Device("cpu")
    torch.set_num_threads(1)
    os.sched_setaffinity(0, nodes[owner])
    data = _filled(device, sizes(device)[-1])
    os.sched_setaffinity(0, nodes[node])  # threads started from now on inherit it
    torch.set_num_threads(len(nodes[node]))
    timed = _fastest(device, _ways("read", [data]))
    return float(f"{data.nbytes / timed.seconds:.5g}")


def main() -> None:
    """One row of the table numa, for the process that asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", type=int, required=True)
    parser.add_argument("--memory-of", type=int, required=True)
    asked = parser.parse_args()
    print(json.dumps({"bandwidth": read_across(asked.node, asked.memory_of)}))


if __name__ == "__main__":
    main()
