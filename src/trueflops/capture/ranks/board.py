"""Ranks of one program side by side, each in a process of its own.

A script changes its process: it imports modules that keep state, registers things once, may end
with os._exit. So every rank starts afresh, in a child. Objects that a rank sends to another, such
as the shapes between the stages of a pipeline, go through the parent: where one waits for a rank
that does not run, that rank is started, and held as soon as it has sent what was asked for.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Final

import torch

from trueflops.capture.ranks.messages import Messages, Route
from trueflops.capture.trouble import CannotCapture
from trueflops.language import say
from trueflops.records.recording import Recording

Run = Callable[[int, Messages], Recording]
CAN_FORK: Final = "fork" in multiprocessing.get_all_start_methods()


@dataclass
class Player:
    """A rank that runs in a child process."""

    rank: int
    process: Any
    line: Connection
    wanted: bool  # its recording is asked for, not only what it sends
    waits_for: tuple[int, int] | None = None  # sender, and how many objects
    held: bool = False  # it has sent something, and waits until somebody needs more

    @property
    def runs(self) -> bool:
        """Whether it goes on by itself."""
        return self.waits_for is None and not self.held


class Board:
    """Starts ranks, carries their objects and collects their recordings."""

    def __init__(self, run: Run, *, together: bool = False) -> None:
        self._run, self._together = run, together
        self._players: dict[int, Player] = {}
        self._sent: dict[Route, list[Any]] = defaultdict(list)
        self._asked: list[int] = []
        self._recordings: dict[int, Recording] = {}

    def record(self, rank: int) -> dict[int, Recording]:
        """The recording of a rank; with `together`, of all stages of the pipeline that it is in."""
        self._asked.append(rank)
        try:
            while self._asked or any(p.wanted for p in self._players.values()):
                self._start_next()
                self._listen()
        finally:
            for player in self._players.values():
                player.process.terminate()
                player.process.join()
        return self._recordings

    def _start_next(self) -> None:
        """Start ranks that are asked for, as many as there are cores."""
        while self._asked and sum(p.runs for p in self._players.values()) < _cores():
            self._start(self._asked.pop(0), wanted=True)

    def _start(self, rank: int, *, wanted: bool) -> None:
        ours, theirs = multiprocessing.Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        context: Any = multiprocessing.get_context("fork")
        process = context.Process(target=_play, args=(self._run, rank, theirs, wanted))
        process.start()
        theirs.close()
        self._players[rank] = Player(rank, process, ours, wanted)

    def _listen(self) -> None:
        lines = {player.line: player for player in self._players.values() if player.runs}
        if not lines:
            raise self._stuck()
        for line in wait(list(lines)):
            player = lines[line]  # type: ignore[index]
            try:
                word, *rest = player.line.recv()
            except EOFError:
                player.process.join()
                code = player.process.exitcode
                raise CannotCapture(
                    say(
                        "rank {rank} ended its process ({code}) before a step was recorded",
                        rank=player.rank,
                        code=code,
                    )
                ) from None
            getattr(self, f"_{word}")(player, *rest)

    # ── what a rank says ─────────────────────────────────────────────────────────────────────────

    def _recorded(self, player: Player, recording: Recording | None) -> None:
        del self._players[player.rank]
        player.process.join()
        if recording is None:
            return
        self._recordings[player.rank] = recording
        for other in _peers(recording) if self._together else ():
            self._ask(other)

    def _failed(self, player: Player, error: BaseException) -> None:
        raise error

    def _sends(self, player: Player, receiver: int, objects: list[Any]) -> None:
        self._sent[player.rank, receiver].extend(objects)
        player.held = not player.wanted
        self._carry()
        if not player.held:
            player.line.send(None)

    def _receives(self, player: Player, sender: int, count: int) -> None:
        player.waits_for = sender, count
        self._carry()

    def _carry(self) -> None:
        """Hand out what has been sent, and have others send what is waited for."""
        for player in list(self._players.values()):
            if player.waits_for is None:
                continue
            sender, count = player.waits_for
            there = self._sent[sender, player.rank]
            if len(there) >= count:
                self._sent[sender, player.rank] = there[count:]
                player.waits_for = None
                player.line.send(there[:count])
                continue
            asked = self._players.get(sender)
            if asked is not None and asked.held:
                asked.held = False
                asked.line.send(None)
            elif asked is None and self._together:
                self._ask(sender)
            elif asked is None:
                self._start(sender, wanted=False)

    def _ask(self, rank: int) -> None:
        known = rank in self._asked or rank in self._players or rank in self._recordings
        if not known:
            self._asked.append(rank)

    def _stuck(self) -> CannotCapture:
        waiting = [p for p in self._players.values() if p.waits_for is not None]
        told = "; ".join(
            say(
                "rank {rank} waits for an object of rank {sender}",
                rank=p.rank,
                sender=p.waits_for[0],
            )
            for p in waiting
            if p.waits_for is not None
        )
        return CannotCapture(say("the ranks wait for one another: {told}", told=told))


def _play(run: Run, rank: int, line: Connection, wanted: bool) -> None:
    """What a child does."""
    torch.set_num_threads(1)  # threads that the parent had do not exist here
    try:
        recording = run(rank, Messages(line))
        line.send(("recorded", recording if wanted else None))
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        line.send(("failed", _sendable(error)))


def _sendable(error: BaseException) -> BaseException:
    """The error without what only its own process can hold."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return CannotCapture(f"{type(error).__name__}: {error}")
    return error


def _peers(recording: Recording) -> Iterable[int]:
    """Ranks with which a recorded rank exchanges messages: the stages before and after its own."""
    found = {
        rank
        for call in recording.calls()
        if call.group and call.op.removeprefix("c10d.").startswith(("send", "recv"))
        for rank in call.group
    }
    return sorted(found - {recording.rank})


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
