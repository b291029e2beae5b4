"""Published training runs: a row's model, plan and cluster in, its step and memory predicted out.

In: tables with the columns of published runs (id, model, accelerator, n_devices, tp, …). A row is
refused only where an input is really missing; rows of doubtful worth are shown in groups apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from trueflops.catalog import Cluster
from trueflops.errors import TrueflopsError
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.plan.guesses import Guess, laid_out, layouts, unstated
from trueflops.predict import Estimate, Trainer, TrainingStep
from trueflops.predict.training.guessed import widened
from trueflops.predict.training.peaks import PeakKind
from trueflops.profile.frameworks import habits, lacking, on_vendor
from trueflops.profile.under import attending_by
from trueflops.records.tables import Row, Table
from trueflops.sizes import divisors
from trueflops.verify.cells import NO, Missing, needed, text
from trueflops.verify.findings import Finding, Findings, Quantity, Refusal, TrainingRow
from trueflops.verify.profiles import Profiles
from trueflops.verify.training.attention import read_attention
from trueflops.verify.training.cluster import read_machine
from trueflops.verify.training.frameworks import framework_key, knows_framework
from trueflops.verify.training.measured import peak_bytes, step_seconds
from trueflops.verify.training.model import read_run_model
from trueflops.verify.training.plan import read_degrees, read_plan
from trueflops.verify.training.scripts import scripted_model
from trueflops.verify.training.words import kind_of_peak, kind_of_task
from trueflops.workload import Training

SHARES_ALL: Final = 3  # the ZeRO stage at which a model need not be spread to be held
PRINTED: Final[dict[str, PeakKind]] = {
    "litgpt": "allocated",  # litgpt/pretrain.py, finetune/*.py: torch.cuda.max_memory_allocated
    "automodel": "allocated",  # nemo_automodel/recipes/llm/train_ft.py: mem, likewise
    "torchtitan": "reserved",  # torchtitan/components/metrics.py: memory, max_reserved_gib
    "unsloth": "reserved",  # its notebooks print torch.cuda.max_memory_reserved
}
"""What a framework's own log calls memory, where the row does not say who measured it."""
COLUMNS: Final = ("model", "accelerator", "n_devices", "seq_len", "global_batch", "framework")


@dataclass(frozen=True)
class Case:
    """One measured training run, ready to be predicted."""

    id: str
    about: TrainingRow
    model: Model
    plan: Plan
    workload: Training
    cluster: Cluster
    framework: str
    dtype: str  # of the matmuls, as the row writes it
    stated: frozenset[str]  # fields of the plan that the row states, of those rows leave out
    step_seconds: float | None
    peak_bytes: float | None
    peak_kind: PeakKind = "device"
    attention: str = ""  # whose kernel, where the row states it: verify/training/attention.py


class Predictor:
    """Predicts cases, sharing what runs of the same model on the same cluster have in common."""

    def __init__(self, profiles: Profiles) -> None:
        self.profiles = profiles
        self._trainers: dict[tuple[Any, ...], Trainer] = {}

    def judge(self, file: str, case: Case) -> list[Finding]:
        """What the case measured, each beside its prediction."""
        step = self.predict(case)
        pairs: list[tuple[Quantity, float | None, Estimate]] = [
            ("step_seconds", case.step_seconds, step.step.estimate),
            ("peak_bytes", case.peak_bytes, step.peak(case.peak_kind).estimate),
        ]
        return [
            Finding.beside(file, case.id, case.about, quantity, measured, predicted)
            for quantity, measured, predicted in pairs
            if measured is not None
        ]

    def predict(self, case: Case) -> TrainingStep:
        """The case's step, its intervals widened by what the row leaves to guess."""
        trainer = self.trainer(case)
        step = self._fitting(trainer, case)
        return widened(trainer, step, self.guesses(case, step.plan))

    def guesses(self, case: Case, plan: Plan) -> tuple[Guess, ...]:
        """What the row does not state."""
        return unstated(plan, case.stated, case.framework, experts=case.model.is_moe)

    def _fitting(self, trainer: Trainer, case: Case) -> TrainingStep:
        """A published run did fit its memory. Where even the lower end of the interval would not,
        and the row does not say that they were not, states are taken to be shared, the model to be
        spread over the fewest ranks that hold it, and as many layers of each stage recomputed as
        that needs; where it would, a micro-batch that nobody stated is the largest that fits.
        """
        step = trainer.predict_one(case.plan)
        if "micro_batch" not in case.stated and not step.surely_too_full and case.plan.pp == 1:
            return _filled(trainer, step, case.workload.global_batch)
        if step.surely_too_full and "zero" not in case.stated and not case.plan.zero:
            plan = case.plan.but(zero=1, dp_replicate=1, dp_shard=case.plan.dp)
            step = trainer.predict_one(plan)
        if step.surely_too_full and "layout" not in case.stated and step.plan.zero < SHARES_ALL:
            step = next(_spread(trainer, step, case), step)
        if "recompute" in case.stated or not step.surely_too_full:
            return step
        layers = ceil(case.model.layers / float(step.plan.pp))
        whole = trainer.predict_one(step.plan.but(recompute="full", recompute_layers=layers))
        saved = float(step.memory.value) - float(whole.memory.value)
        over = float(step.memory.estimate.low) - step.capacity_bytes
        needed = layers if saved <= 0.0 else min(ceil(layers * over / saved), layers)
        return trainer.predict_one(step.plan.but(recompute="full", recompute_layers=needed))

    def trainer(self, case: Case) -> Trainer:
        """What predicts its plan, or any other plan of that model there."""
        profile = self.profiles(case.cluster.accelerator, case.framework, case.about.source)
        key = (case.model, case.workload, id(case.cluster), id(profile), case.attention)
        if key not in self._trainers:
            if case.attention:
                profile = attending_by(profile, case.attention, "the row states it")
            self._trainers[key] = Trainer(case.model, case.workload, case.cluster, profile)
        return self._trainers[key]


def _filled(trainer: Trainer, step: TrainingStep, batch: int) -> TrainingStep:
    """The same run, as many sequences a micro-batch as the chip holds: whoever trains without a
    pipeline has few, large ones.
    """
    for micro in divisors(batch // int(step.plan.dp))[1:]:
        larger = trainer.predict_one(step.plan.but(micro_batch=micro))
        if float(larger.memory.value) > larger.capacity_bytes:
            break
        step = larger
    return step


def _spread(trainer: Trainer, step: TrainingStep, case: Case) -> Iterator[TrainingStep]:
    """The same run in layouts that hold the model, the cheapest first."""
    plan, lacks = step.plan, lacking(case.framework)
    ranks = int(plan.tp * plan.pp * plan.dp)
    for tp, pp in layouts(ranks, case.cluster.per_node, case.model.layers):
        if tp * pp < plan.tp * plan.pp:  # spread as far already, for the sake of the batch
            continue
        if pp > 1 and "pp" in lacks:
            return
        sp = habits(case.framework).sp and tp > 1
        try:
            other = trainer.predict_one(plan.but(**laid_out(plan, tp, pp), sp=sp))
        except TrueflopsError:  # heads or layers that these degrees do not divide
            continue
        if not other.surely_too_full:
            yield other


def verify_training(table: Table, profiles: Profiles) -> Findings:
    """Every row predicted, or refused with its reason."""
    rows = ((row_id(line, row), row) for line, row in table.rows)
    return judge_rows(table, rows, profiles, read_case)


def judge_rows(
    table: Table,
    rows: Iterable[tuple[str, Row]],
    profiles: Profiles,
    read: Callable[[Row, str], Case],
) -> Findings:
    """Read each row as a case and predict it."""
    findings, predictor = Findings(), Predictor(profiles)
    for name, row in rows:
        try:
            findings.rows += predictor.judge(table.where, read(row, name))
        except TrueflopsError as error:  # one row must not cost all others their answer
            findings.refused.append(Refusal(table.where, name, str(error)))
    return findings


def row_id(line: int, row: Row) -> str:
    """The row's own name, or its line."""
    return text(row, "id") or f"line {line}"


def read_case(row: Row, name: str) -> Case:
    """A row as a case; BadInput says which input it lacks."""
    said = text(row, "framework")
    framework = framework_key(
        said, text(row, "notes").casefold(), text(row, "compiled"), text(row, "zero_or_fsdp")
    )
    seq = needed(row, "seq_len")
    machine = read_machine(row, framework)
    framework = on_vendor(framework, machine.cluster.accelerator.vendor)
    degrees = read_degrees(row, machine)
    model = scripted_model(row, read_run_model(row, framework))
    workload = Training(seq, degrees.global_batch, float(seq * degrees.global_batch))
    measured = step_seconds(row, model, workload, machine.devices)
    memory = peak_bytes(row)
    if measured is None and memory is None:
        raise Missing("nothing measured: step_time_s, tokens_per_s_per_gpu, tflops_per_gpu … empty")
    plan, stated = read_plan(row, degrees, model, machine.cluster, framework)
    return Case(
        id=name,
        about=TrainingRow(
            source=text(row, "source_key") or text(row, "source") or "unnamed",
            hidden=model.hidden,
            layers=model.layers,
            framework=framework,
            apart=why_apart(row),
            unknown_software="" if knows_framework(said) else said or "(none named)",
        ),
        model=model,
        plan=plan,
        workload=workload,
        cluster=machine.cluster,
        framework=framework,
        dtype=text(row, "dtype"),
        stated=stated,
        step_seconds=measured,
        peak_bytes=memory,
        peak_kind=peak_kind(row),
        attention=read_attention(row, framework).kernel,
    )


def peak_kind(row: Row) -> PeakKind:
    """Which bytes a row's peak counts: as its column or its notes say, else as its framework prints
    it; a table that has what was reserved apart means tensors.
    """
    column, notes, framework = (
        text(row, name).casefold() for name in ("peak_kind", "notes", "framework")
    )
    if known := kind_of_peak(column, notes):
        return known
    if printed := next((kind for name, kind in PRINTED.items() if name in framework), None):
        return printed
    return "allocated" if text(row, "peak_reserved_gb") else "device"


def why_apart(row: Row) -> str:
    """Why a row is shown but does not count; empty of one that does."""
    task = kind_of_task(text(row, "task"))
    if text(row, "chk_flag"):
        return "flagged"
    if text(row, "trust").upper() == "C":
        return "trust C"
    return task or ("incomplete" if text(row, "complete_for_sim").casefold() in NO else "")
