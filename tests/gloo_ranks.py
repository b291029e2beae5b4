"""Ranks that measure collectives, each a process, as torchrun would start them on one machine.

They are forked from a server that has loaded torch already: a rank is there in milliseconds.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Final, Literal

import torch.distributed as dist

from patience import HUNG

State = Literal["whole", "broken"]
SIZES: Final = tuple(4**power for power in range(5, 11))  # 1 KiB to 1 MiB
TICK: Final = 1.0  # seconds of the budget that one row takes, by a clock that counts rows


def run(path: Path, ranks: int, budget: float, state: State = "whole") -> list[int | None]:
    """Measure into a file within so many rows; exit codes of the ranks.

    In a broken world a gather moves nothing, and rank 0 dies after its first message of 4 KiB.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trueflops.measure.collectives", __name__])
    # On any free port, which the ranks are told: torchrun does the same.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    processes = [
        context.Process(target=_rank, args=(rank, ranks, store.port, path, budget, state))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(HUNG)
        process.kill()
    return [process.exitcode for process in processes]


def said_of(path: Path) -> Path:
    """Where rank 0 writes what it says, line by line."""
    return path.with_suffix(".said")


def _rank(rank: int, ranks: int, port: int, path: Path, budget: float, state: State) -> None:
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": loopback,
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # it is there: no rank opens one
    }  # fmt: skip
    from trueflops.measure import collectives
    from trueflops.measure.device import Device, software
    from trueflops.measure.resume import begin
    from trueflops.records import measured

    # How many rows a budget buys must not depend on who else uses the machine.
    rows = itertools.count()
    vars(collectives).update(
        time=SimpleNamespace(monotonic=lambda: TICK * next(rows)),
        SIZES=SIZES,
        MOST_SECONDS=collectives.LEAST_SECONDS,  # that a row is timed for
    )
    vars(measured).update(SAVE_EVERY=0.0)
    if state == "broken":
        vars(collectives).update(_gather=lambda *buffers, group: None)
    device = Device("cpu")
    world = collectives.join_world(device)
    record = begin(path, device.identity, software(), budget) if rank == 0 else None

    def say(line: str) -> None:
        with said_of(path).open("a") as file:
            file.write(f"{line}\n")
        if state == "broken" and " 4096 B" in line:
            os._exit(3)

    collectives.measure_collectives(device, world, record, budget, say)
    collectives.leave_world()
