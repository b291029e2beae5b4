"""What would make a captured step faster or let it fit: each change made, priced, and told if sure.

Changes are made on the recording where it holds all that they need (compiling, padding, TF32, CUDA
graphs), else on the program, which is run again with them (`capture/changed.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from trueflops import units
from trueflops.capture.change import Change
from trueflops.capture.lower import base_name
from trueflops.clock.host import LISTS
from trueflops.errors import TrueflopsError
from trueflops.language import say
from trueflops.predict.advice import Advice, Saved, saving, worth_saying
from trueflops.predict.captured.changes import (
    FUSION_ERROR,
    as_one_graph,
    loss_compiled,
    modules_compiled,
    with_fp8,
    with_tf32,
)
from trueflops.predict.captured.elsewhere import Elsewhere, elsewhere
from trueflops.predict.captured.padding import odd_sizes, padded
from trueflops.predict.captured.program import CapturedProgram, predict_program
from trueflops.predict.captured.step import UPDATE, captured_step
from trueflops.predict.odd_sides import best_padding, padded_sizes
from trueflops.records.recording import Call, Recording, Waited

GRAPHS_ERROR: Final = 0.2  # of what CUDA graphs save: assumed, how kernels follow inside one
FP8_ERROR: Final = 0.25  # of what fp8 saves: assumed, how well its casts and sums are fused
WORTH_TRYING: Final = 0.02  # of the step: what a change is about must take at least so much
ROOM: Final = 0.98  # of the memory: a batch that fills it fully leaves none for another release
TRIES: Final = 3  # batches that are run, each nearer to the largest


class Again(Protocol):
    """Runs the program once more, changed, and predicts it."""

    def __call__(self, change: Change | None = None, batch: int | None = None) -> CapturedProgram:
        """With one change, or with another batch."""
        ...


@dataclass(frozen=True)
class Advised:
    """What to do, best first, and what could not be tried."""

    advice: tuple[Advice, ...]
    elsewhere: tuple[Elsewhere, ...] = ()
    untried: tuple[str, ...] = ()


@dataclass
class _Trial:
    """Collects what changes bring to one program."""

    found: CapturedProgram
    again: Again
    untried: list[str]

    @property
    def seconds(self) -> float:
        """Of the step as it is."""
        return float(self.found.step.seconds.value)

    def share(self, seconds: float) -> bool:
        """Whether so many seconds of the step are worth a trial."""
        return seconds >= WORTH_TRYING * self.seconds

    def rerun(self, change: Change, named: str) -> CapturedProgram | None:
        """The program with the change, unless it does not run with it."""
        try:
            return self.again(change=change)
        except TrueflopsError as error:
            self.untried.append(f"{named}: {error}")
            return None

    def rewritten(self, recorded: Recording) -> CapturedProgram:
        """A changed recording, predicted."""
        return predict_program(recorded, self.found.clock)

    def advice(self, code: str, text: str, after: CapturedProgram) -> Advice:
        """A change that was run, with what it saves and what is then held."""
        return self.told(code, text, saving(self.found.step.step, after.step.step), after)

    def modelled(self, code: str, text: str, after: CapturedProgram, own: float) -> Advice:
        """A change that a compiler makes, by a model of it that has an error of its own."""
        saved = saving(self.found.step.step, after.step.step, own=own, other_code=True)
        return self.told(code, text, saved, after)

    def told(self, code: str, text: str, saved: Saved, after: CapturedProgram) -> Advice:
        """A change that no longer fits is no advice; one that makes it fit is, at any time."""
        fits = after.fitting.fits
        lost = self.found.fitting.fits and not fits
        peak = after.memory.peak_allocated_bytes
        return Advice(
            code, text, 0.0 if lost else saved.seconds, saved.low, saved.high, peak,
            makes_fit=fits and not self.found.fitting.fits,
        )  # fmt: skip


def advise_program(found: CapturedProgram, again: Again, batch: int | None) -> Advised:
    """Try every change that could matter; `batch` is the program's own, where it tells."""
    if not found.step.ran:
        return Advised(())
    trial = _Trial(found, again, [])
    rules: tuple[Callable[[_Trial], Iterator[Advice]], ...] = (
        _compiled, _loss, _padding, _tf32, _graphs, _optimizer, _narrow, _checkpoints, _layout,
    )  # fmt: skip
    advice = [each for rule in rules for each in rule(trial)]
    advice += _batch(trial, batch)
    if batch is None:
        trial.untried.append(
            say(
                "a larger batch: the program does not tell which number that is; give "
                "FUNCTION a parameter (def build(batch=4)) or the program an argument (-- "
                "--batch 4)"
            )
        )
    return Advised(
        tuple(worth_saying(advice, trial.seconds)), tuple(elsewhere(found)), tuple(trial.untried)
    )


# ── on the recording ─────────────────────────────────────────────────────────────────────────────


def _compiled(trial: _Trial) -> Iterator[Advice]:
    marked = modules_compiled(trial.found.recorded)
    if not any(c.region < 0 and c.module and c.phase == "forward" for c in _calls(trial)):
        return
    after = trial.rewritten(marked)
    before, now = len(trial.found.step.ran), len(after.step.ran)
    text = say(
        "torch.compile(model): {now:,} kernels instead of {before:,}, if its graphs do not break",
        now=now,
        before=before,
    )
    yield trial.modelled("compile", text, after, FUSION_ERROR)
    yield from _fp8(trial, after)


def _fp8(trial: _Trial, compiled: CapturedProgram) -> Iterator[Advice]:
    """Only where it beats compiling alone: uncompiled, its casts cost more than it saves."""
    if not trial.found.clock.chip.computes("fp8"):
        return
    after = trial.rewritten(modules_compiled(with_fp8(trial.found.recorded)))
    beyond = saving(compiled.step.step, after.step.step, own=FP8_ERROR)
    if beyond.low > 0.0:
        text = say(
            "products of linear layers in fp8, compiled (torchao's float8 training): "
            "{seconds} of it beyond torch.compile; see whether it still learns",
            seconds=units.show(beyond.seconds, "seconds"),
        )
        yield trial.modelled("fp8", text, after, FP8_ERROR)._replace(peak_bytes=None)


def _loss(trial: _Trial) -> Iterator[Advice]:
    marked = loss_compiled(trial.found.recorded)
    if marked is None:
        return
    text = say(
        "a fused cross-entropy (the loss and its casts under torch.compile): logits "
        "pass through memory fewer times"
    )
    yield trial.modelled("fused_loss", text, trial.rewritten(marked), FUSION_ERROR)


def _padding(trial: _Trial) -> Iterator[Advice]:
    for odd in odd_sizes(trial.found.recorded, trial.found.step.ran):
        if not trial.share(odd.seconds):
            continue
        tried = {
            to: trial.rewritten(padded(trial.found.recorded, odd.size, to))
            for to in padded_sizes(odd.size)
        }
        to = best_padding({n: _took(run) / trial.seconds for n, run in tried.items()})
        text = say("pad {name} from {size} to {to}", name=odd.name, size=odd.size, to=to)
        yield trial.advice("padding", text, tried[to])


def _tf32(trial: _Trial) -> Iterator[Advice]:
    plain = sum(
        r.seconds
        for r in trial.found.step.ran
        if r.kernel.matrix and r.kernel.op is not None and r.kernel.op.dtype == "fp32"
    )
    if trial.share(plain) and trial.found.clock.chip.get("peak.tf32"):
        text = say(
            'TF32 for products of fp32: torch.set_float32_matmul_precision("high"); they '
            "keep ten bits of each factor"
        )
        yield trial.advice("tf32", text, trial.rewritten(with_tf32(trial.found.recorded)))


def _graphs(trial: _Trial) -> Iterator[Advice]:
    """A host that issues nothing but the graph; not where it waits for a number on the way."""
    waits = any(isinstance(e, Waited) and e.waiting < 0 for e in trial.found.recording.step())
    idle = trial.found.step.idle_seconds
    if waits or not trial.share(idle) or trial.found.clock.chip.is_cpu:
        return
    graph = as_one_graph(trial.found.recording)  # fused already, where it was compiled
    after = captured_step(graph, trial.found.clock)
    saved = saving(trial.found.step.step, after.step, own=GRAPHS_ERROR)
    text = say(
        "CUDA graphs (torch.cuda.graph over the step, with static inputs): the "
        "device waits {idle} for the host to launch {number:,} kernels",
        idle=units.show(idle, "seconds"),
        number=len(after.ran),
    )
    yield trial.told("cuda_graphs", text, saved, trial.found)


# ── on the program ───────────────────────────────────────────────────────────────────────────────


def _optimizer(trial: _Trial) -> Iterator[Advice]:
    ops = [base_name(c.op) for c in _calls(trial) if c.phase == "optimizer"]
    update = sum(float(part.value) for part in trial.found.step.told() if part.name == UPDATE)
    if not ops or any(op.startswith(LISTS[1]) for op in ops) or not trial.share(update):
        return
    after = trial.rerun(Change.FUSED_OPTIMIZER, "a fused optimizer")
    if after is not None:
        text = say(
            "fused=True in the optimizer: one pass over its states instead of {number:,} calls",
            number=len(ops),
        )
        yield trial.advice("fused_optimizer", text, after)


def _narrow(trial: _Trial) -> Iterator[Advice]:
    chip = trial.found.clock.chip
    if chip.is_cpu or not chip.computes("bf16"):
        return
    wide = sum(
        r.seconds
        for r in trial.found.step.ran
        if r.kernel.matrix and r.kernel.op is not None and r.kernel.op.dtype in ("fp32", "tf32")
    )
    if trial.share(wide):
        after = trial.rerun(Change.AUTOCAST, "autocast")
        if after is not None:
            text = say(
                'torch.autocast("cuda", torch.bfloat16) around the forward: products in bf16'
            )
            yield trial.advice("autocast", text, after)
    if _wide_parameters(trial.found.recorded):
        after = trial.rerun(Change.NARROW, "weights in bf16")
        if after is not None:
            text = say(
                "model.to(torch.bfloat16): weights, gradients and optimizer states in bf16; "
                "small updates are then lost, so see whether it still learns"
            )
            yield trial.advice("bf16_weights", text, after)


def _wide_parameters(recorded: Recording) -> bool:
    """Whether most parameters are in fp32."""
    known: dict[int, str] = {}
    for call in recorded.calls():
        known |= {a.storage: a.dtype for a in call.inputs if a.storage in recorded.parameters}
    return sum(dtype == "float32" for dtype in known.values()) > len(known) / 2


def _checkpoints(trial: _Trial) -> Iterator[Advice]:
    again = any(c.phase == "recompute" for c in _calls(trial))
    if again:
        after = trial.rerun(Change.UNCHECKPOINTED, "no checkpoints")
        if after is not None:
            text = say("no activation checkpoints: {found}", found=_peaks(trial.found, after))
            yield trial.advice("fewer_checkpoints", text, after)
    elif not trial.found.fitting.fits:
        after = trial.rerun(Change.CHECKPOINTED, "checkpoints at every layer")
        if after is not None:
            text = say(
                "activation checkpoints at every layer: {found}", found=_peaks(trial.found, after)
            )
            yield trial.advice("checkpoint", text, after)


def _layout(trial: _Trial) -> Iterator[Advice]:
    """Images as NCHW: the filters' engine reads channels last."""
    taken = sum(
        r.seconds
        for r in trial.found.step.ran
        if "convolution" in r.kernel.call.op
        and any(len(a.shape) == 4 and a.strides[1] != 1 for a in r.kernel.call.inputs[:1])
    )
    if trial.share(taken):
        after = trial.rerun(Change.CHANNELS_LAST, "channels last")
        if after is not None:
            text = say("model and images .to(memory_format=torch.channels_last)")
            yield trial.advice("channels_last", text, after)


def _batch(trial: _Trial, batch: int | None) -> Iterator[Advice]:
    """The largest batch that fits, found along a line through two and then run."""
    capacity, fits = trial.found.fitting.capacity_bytes, trial.found.fitting.fits
    other = 0 if batch is None else 2 * batch if fits else batch // 2
    if batch is None or not other or not capacity:
        return
    runs = {batch: trial.found}
    try:
        runs[other] = trial.again(batch=other)
        for _ in range(TRIES):
            each = (_needs(runs[other]) - _needs(trial.found)) / (other - batch)
            if each <= 0.0:
                break
            most = int(batch + (ROOM * capacity - _needs(trial.found)) / each)
            other = _round(most, batch) if fits else most
            if other < 1 or other in runs:
                break
            runs[other] = trial.again(batch=other)
    except TrueflopsError as error:
        trial.untried.append(say("another batch: {error}", error=error))
    fitting = [n for n, run in runs.items() if run.fitting.fits]
    size = max(fitting, default=batch)
    if size != batch:
        after = runs[size]
        saved = saving(trial.found.step.step, after.step.step, times=batch / size)
        before, now = trial.seconds / batch, _took(after) / size
        text = say(
            "a batch of {size:,}, about the largest that fits, instead of {batch:,}: "
            "{now} a sample instead of {before}",
            size=size,
            batch=batch,
            now=units.show(now, "seconds"),
            before=units.show(before, "seconds"),
        )
        yield trial.told("batch", text, saved, after)


def _round(size: int, batch: int) -> int:
    """Down to a multiple of the batch, or of a power of two times it, a seventh away at most."""
    by = batch
    while by * 8 <= size:
        by *= 2
    return size // by * by


def _needs(run: CapturedProgram) -> float:
    return run.fitting.needed_bytes


def _took(run: CapturedProgram) -> float:
    return float(run.step.seconds.value)


def _peaks(before: CapturedProgram, after: CapturedProgram) -> str:
    then, now = (units.show(run.memory.peak_allocated_bytes, "memory") for run in (before, after))
    return say("{now} at the peak instead of {then}", now=now, then=then)


def _calls(trial: _Trial) -> list[Call]:
    return list(trial.found.recorded.calls())
