"""Checkpoints that reload under another plan: torch.distributed.checkpoint, by whole tensors.

A tensor is saved under its layer and name, whatever rank held which part: shares of tp and ep are
DTensors of their axis, shares of ZeRO are gathered first. A folder is written under another name
and renamed once it is whole, so one that is half-written, or a full disk, loses nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from trueflops.errors import BadInput, printable
from trueflops.files import is_file, write_file
from trueflops.language import say
from trueflops.plan.shares import Share
from trueflops.run.engine import Engine
from trueflops.run.network import Held

_DONE: Final = "step.json"
_MOMENTS: Final = (
    "exp_avg", "exp_avg_sq", "momentum_buffer", "row_var", "col_var", "variance"
)  # fmt: skip


def latest(folder: Path) -> Path | None:
    """The newest whole checkpoint of a folder."""
    found = [f for f in folder.glob("step-*") if is_file(f / _DONE)]
    return max(found, key=lambda f: int(f.name.partition("-")[2]), default=None)


class NotSaved(Exception):
    """A checkpoint could not be written; what was saved before is whole."""


def save(engine: Engine, folder: Path, step: int) -> None:
    """Write a checkpoint of the state after so many steps; the one before is kept."""
    target, half = folder / f"step-{step}", folder / f"half-{step}"
    if is_file(target / _DONE):
        return

    def begin() -> None:
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True, exist_ok=True)

    def end() -> None:
        write_file(half / _DONE, json.dumps({"step": step, "model": engine.job.model.name}))
        half.rename(target)
        whole = sorted(folder.glob("step-*"), key=lambda f: int(f.name.partition("-")[2]))
        for old in whole[:-2]:
            shutil.rmtree(old, ignore_errors=True)

    try:
        _by_first(begin)
        dcp.save(  # type: ignore[attr-defined]
            _gathered(engine), checkpoint_id=half
        )
        _by_first(end)
    except (CheckpointException, _Failed) as error:  # on every rank: torch tells them all
        if dist.get_rank() == 0:
            shutil.rmtree(half, ignore_errors=True)
        raise NotSaved(_sentence(folder, step, error)) from None


class _Failed(Exception):
    """What the first rank did alone did not work."""


def _by_first(do: Callable[[], None]) -> None:
    """The first rank alone touches folders; all learn whether it could."""
    said: list[str | None] = [None]
    if dist.get_rank() == 0:
        try:
            do()
        except (OSError, BadInput) as error:
            said = [_why(error)]
    dist.broadcast_object_list(said)
    if said[0] is not None:
        raise _Failed(said[0])


def _why(error: BaseException) -> str:
    """The last reason in a chain of them: what the system said of a file."""
    reason: BaseException | None = error
    while reason is not None and not isinstance(reason, OSError):
        reason = reason.__cause__ or reason.__context__
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    said = (str(error).splitlines() or [type(error).__name__])[0]
    # How torch's writer says that fewer bytes came to lie in a file than it wrote.
    cut = "inline_container" in said
    return "a file could not be written whole: the disk may be full" if cut else said


def _sentence(folder: Path, step: int, error: CheckpointException | _Failed) -> str:
    why = str(error)
    if isinstance(error, CheckpointException):
        why = _why(next(iter(error.failures.values()))[0])
    kept = latest(folder)
    left = say("nothing was saved before")
    if kept:
        left = say("{kept} is whole", kept=printable(str(kept)))
    return say(
        "step {step} could not be saved in {folder} ({why}); {left}",
        step=step,
        folder=printable(str(folder)),
        why=why,
        left=left,
    )


def load(engine: Engine, folder: Path) -> int:
    """Take weights and moments of a checkpoint, whichever plan wrote it; its step."""
    said = json.loads((folder / _DONE).read_text())
    if said["model"] != engine.job.model.name:
        raise BadInput(
            say(
                "{folder} is a checkpoint of {other}, not of {name}; name another --checkpoint",
                folder=printable(str(folder)),
                other=said["model"],
                name=engine.job.model.name,
            )
        )
    _make_states(engine)
    state = _gathered(engine)
    dcp.load(state, checkpoint_id=folder)  # type: ignore[attr-defined]
    _scatter(engine, state)
    return int(said["step"])


def _every(engine: Engine) -> list[Held]:
    return [held for network in engine.networks.values() for held in network.every_weight()]


def _moments(engine: Engine, parameter: Tensor) -> dict[str, Tensor]:
    optimizer = engine.optimizer
    inner = optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer
    state = inner.state.get(parameter, {})
    return {name: state[name] for name in (*_MOMENTS, "step") if name in state}


def _gathered(engine: Engine) -> dict[str, Any]:
    """Every tensor that this rank has a part of, as DCP writes it."""
    state: dict[str, Any] = {}
    for name, parameter, share in _every(engine):
        state[name] = _whole(engine, parameter.detach(), share)
        for kind, moment in _moments(engine, parameter).items():
            kept = moment.detach().clone() if kind == "step" else _whole(engine, moment, share)
            state[f"{name}/{kind}"] = kept
    return state


def _whole(engine: Engine, tensor: Tensor, share: Share) -> Tensor:
    local = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    mesh = {"tp": engine.layout.tp, "ep": engine.layout.ep}.get(share.axis)
    return local if mesh is None else DTensor.from_local(local, mesh, [Shard(share.cut)])


def _scatter(engine: Engine, state: dict[str, Any]) -> None:
    for name, parameter, _ in _every(engine):
        _take(parameter.data, state[name])
        for kind, moment in _moments(engine, parameter).items():
            _take(moment, state[f"{name}/{kind}"])


def _take(target: Tensor, whole: Tensor) -> None:
    local = whole.to_local() if isinstance(whole, DTensor) else whole
    if isinstance(target, DTensor):
        mesh, wanted = target.device_mesh, target.placements
        source = distribute_tensor(local, mesh, [Replicate()] * mesh.ndim, src_data_rank=None)
        target.copy_(source.redistribute(placements=wanted))
    else:
        target.copy_(local)


def _make_states(engine: Engine) -> None:
    """The optimizer makes its states in its first step: one that changes nothing."""
    kept = [group["lr"] for group in engine.optimizer.param_groups]
    for group in engine.optimizer.param_groups:
        group["lr"] = 0.0
    for _, parameter, _ in _every(engine):
        parameter.grad = torch.zeros_like(parameter)
    engine.optimizer.step()
    engine.optimizer.zero_grad()
    for group, rate in zip(engine.optimizer.param_groups, kept, strict=True):
        group["lr"] = rate
