"""How `trueflops web` holds up under many users: latency, errors, memory.

    python benchmarks/web_load.py [--users 100] [--rate 200] [--requests 10000] [--distinct 0.3]

Every user asks at a pace of its own, whether or not the server keeps up: latency counts from the
moment at which a question was due, so that a server that stalls cannot hide it. A share of the
questions is asked for the first time, as someone who moves a slider does; the others were asked
before, by whoever. The server runs on this machine, and so do the users: both take its cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Question = tuple[str, dict[str, Any]]
MODELS = ("Llama-3.1-8B", "Llama-3.1-70B", "Qwen2.5-7B", "Mixtral-8x7B")
CHIPS = ("H100", "H200", "A100", "B200", "MI300X")
WARM = 200  # requests before memory is looked at first


def sliders(seed: int) -> Iterator[Question]:
    """Questions that nobody asked before: someone drags one number along, then picks another."""
    luck = random.Random(seed)
    while True:
        model, chip = luck.choice(MODELS), luck.choice(CHIPS)
        tp = luck.choice((2, 4))
        for at in range(luck.randint(3, 12)):
            if luck.random() < 0.6:
                where = {"on": f"64x{chip}", "tp": tp, "zero": luck.choice((1, 3))}
                work = {"seq": 1024 + 8 * luck.randrange(900), "global_batch": 256 + 64 * at}
                yield "train", {"model": model, **where, **work}
            else:
                where = {"on": f"8x{chip}", "tp": tp, "concurrency": luck.randrange(1, 256)}
                work = {"input": luck.randrange(64, 8000), "output": luck.randrange(16, 900)}
                yield "infer", {"model": model, **where, **work}


@dataclass
class Seen:
    """What the users saw."""

    seconds: list[float] = field(default_factory=list)
    distinct: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def show(self) -> None:
        for name, times in (("all", self.seconds), ("asked for the first time", self.distinct)):
            ordered = sorted(times)
            marks = ", ".join(
                f"p{p:g} {1e3 * ordered[min(int(p / 100 * len(ordered)), len(ordered) - 1)]:.0f} ms"
                for p in (50, 90, 99, 99.9)
            )
            print(f"{name}: {len(ordered):,} requests, {marks}, slowest {1e3 * ordered[-1]:.0f} ms")
        errors = sum(n for status, n in self.statuses.items() if status not in ("200", "422"))
        print(f"errors: {errors}  (replies by status: {dict(self.statuses)})")


class Users:
    """Many at a time, each on a connection of its own."""

    def __init__(self, port: int, options: argparse.Namespace) -> None:
        self.port, self.options = port, options
        self.new = sliders(seed=1)
        self.asked: list[Question] = []
        self.luck = random.Random(2)
        self.left = options.requests
        self.seen = Seen()

    def next(self) -> tuple[Question, bool]:
        """A question, and whether it is asked for the first time."""
        if not self.asked or self.luck.random() < self.options.distinct:
            self.asked.append(next(self.new))
            return self.asked[-1], True
        return self.luck.choice(self.asked[-500:]), False

    async def user(self, at: int) -> None:
        pause = self.options.users / self.options.rate
        due = time.perf_counter() + pause * at / self.options.users
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while self.left > 0:
            self.left -= 1
            await asyncio.sleep(max(due - time.perf_counter(), 0.0))
            question, new = self.next()
            status = await ask(reader, writer, question)
            taken = time.perf_counter() - due
            self.seen.seconds.append(taken)
            if new:
                self.seen.distinct.append(taken)
            self.seen.statuses[status] += 1
            due += pause
        writer.close()

    async def run(self) -> None:
        await asyncio.gather(*(self.user(at) for at in range(self.options.users)))


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: Question
) -> str:
    """One request over a connection that stays open; the status of the reply."""
    command, body = question
    raw = json.dumps(body).encode()
    head = f"POST /api/{command} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    await writer.drain()
    said = await reader.readuntil(b"\r\n\r\n")
    size = re.search(rb"content-length: (\d+)", said)
    assert size is not None, said
    await reader.readexactly(int(size[1]))
    return said.split(b" ", 2)[1].decode()


def family(process: int) -> list[Path]:
    """A process and all that it started, as folders of /proc."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            parents.setdefault(int(_stat(folder)[1]), []).append(int(folder.name))
    found, waiting = [], [process]
    while waiting:
        found.append(waiting.pop())
        waiting += parents.get(found[-1], [])
    return [Path(f"/proc/{each}") for each in found]


def _stat(folder: Path) -> list[str]:
    """Fields of /proc/PID/stat from the state on: see proc_pid_stat(5)."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def used(process: int) -> tuple[float, float]:
    """Bytes of memory, shared pages by their share, and seconds of CPU, of all of them."""
    memory = seconds = 0.0
    for folder in family(process):
        text = (folder / "smaps_rollup").read_text()
        pss = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
        memory += int(pss[1]) * 1024 if pss else 0
        seconds += sum(map(int, _stat(folder)[11:15])) / os.sysconf("SC_CLK_TCK")
    return memory, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second, of all users")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument(
        "--distinct", type=float, default=0.3, help="share asked for the first time"
    )
    options = parser.parse_args()
    command = [sys.executable, "-m", "trueflops", "web", "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            found = re.search(r":(\d+)/", said)
            assert found is not None, said
            warm = argparse.Namespace(**{**vars(options), "requests": WARM})
            asyncio.run(Users(int(found[1]), warm).run())
            before, worked = used(server.pid)
            users = Users(int(found[1]), options)
            users.new = sliders(seed=3)
            began = time.perf_counter()
            asyncio.run(users.run())
            spent = time.perf_counter() - began
            after, now = used(server.pid)
        finally:
            server.terminate()
    pace = f"{options.requests / spent:.0f} a second, {options.distinct:.0%} for the first time"
    print(f"{options.users} users, {options.requests:,} requests in {spent:.0f} s: {pace}")
    users.seen.show()
    each = (now - worked) / options.requests
    cores = each * options.requests / spent
    print(f"CPU: {1e3 * each:.1f} ms a request of the server and its workers, {cores:.2f} cores")
    grown = f"{(after - before) / 2**20:+.0f} MiB, of which answers that are kept at most 16 MiB"
    print(f"memory: {before / 2**20:.0f} MiB before, {after / 2**20:.0f} MiB after: {grown}")


if __name__ == "__main__":
    main()
