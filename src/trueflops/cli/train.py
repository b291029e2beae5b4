"""trueflops train: predict a given plan, or search for the best one."""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Final

from trueflops import units
from trueflops.catalog import Price
from trueflops.cli.buying import asks_for_chips, buy_training, check_wishes, wish_of
from trueflops.cli.largest import settle
from trueflops.cli.launching import Launch
from trueflops.cli.models import asks_for_models, trained_models
from trueflops.cli.operation import operation_of
from trueflops.cli.planning import (
    base_plan,
    given_plan,
    guessed,
    searched,
    workload_of,
)
from trueflops.cli.question import (
    Software,
    cluster_of,
    power_note,
    profile_for,
    pue_of,
    question_of,
    recall,
    rent_of,
    software_of,
)
from trueflops.cli.replies import Trained, give
from trueflops.cli.searching import (
    look,
    notes_of,
    say_none_fits,
    space_of,
    switched_on,
    why_none_fits,
)
from trueflops.errors import BadInput
from trueflops.files import check_writable
from trueflops.language import mark, say
from trueflops.model import read_model
from trueflops.plan import check_plan
from trueflops.predict import Trainer, TrainingStep, training_bill, whole_bill
from trueflops.predict.money.operation import Operation
from trueflops.predict.provenance import step_provenance
from trueflops.predict.ran_ops import step_ops
from trueflops.predict.training.guessed import widened
from trueflops.predict.training.simulated import (
    MOST,
    SOON,
    SimulatedPipeline,
    simulate_pipeline,
    task_count,
)
from trueflops.profile.frameworks import USUAL
from trueflops.report import encode
from trueflops.report.buying import print_missed
from trueflops.report.found import encode_found, print_found
from trueflops.report.ops import encode_ops, print_ops
from trueflops.report.pipeline import (
    encode_pipeline,
    pipeline_note,
    pipeline_table,
)
from trueflops.report.progress import Waiting
from trueflops.report.provenance import encode_provenance, show_provenance
from trueflops.report.tables import console
from trueflops.report.timeline import encode_timeline, write_pipeline_trace
from trueflops.report.training import (
    print_training,
    runners_up_table,
    stages_table,
    tree_table,
    why_not,
)
from trueflops.report.what_helps import encode_helps, print_helps
from trueflops.report.whole_bill import encode_whole_bill, print_whole_bill
from trueflops.runtime.terms import NOTHING_UNSTATED, Term
from trueflops.search import Found, Space, search_plans, what_would_fit
from trueflops.search.best import surely_too_large
from trueflops.search.hardware import Hardware
from trueflops.search.what_helps import Help, what_helps

OF_A_STEP: Final = mark("a step, on the average pipeline stage")


def run(options: argparse.Namespace) -> int:
    """Answer the question on stdout; exit 1 if nothing fits."""
    if asks_for_models(options):
        return trained_models(options, quick)
    if asks_for_chips(options):
        return buy_training(options)
    check_wishes(options)
    answer, step, found = ask(options)
    if isinstance(step, str):
        return say_none_fits(step, answer.options)
    return answer.show(step, found)


def ask(options: argparse.Namespace) -> tuple[Answer, TrainingStep | str, Found | None]:
    """The step of the plan that flags spell out, or of the best of a search; or why none fits."""
    options, why = settle(recall(options), quick)
    answer, step, found = _ask(options)
    answer.notes[:0] = why
    return answer, step, found


def quick(options: argparse.Namespace) -> TrainingStep | None:
    """The step alone, or None where a search finds none; for questions that ask many others."""
    step = _ask(options, in_passing=True)[1]
    return None if isinstance(step, str) else step


def _ask(
    options: argparse.Namespace, in_passing: bool = False
) -> tuple[Answer, TrainingStep | str, Found | None]:
    if options.trace:
        check_writable(Path(options.trace))
    where, model = cluster_of(options), read_model(options.model)
    paid = rent_of(options, where), pue_of(options), operation_of(options, where)
    launch = Launch(options, model, where)
    software = software_of(options, where.accelerator, USUAL)
    workload, notes = workload_of(options, model, where)
    base, why = base_plan(options, where)
    notes += [*why, *launch.notes]
    notes.append(software.note("framework"))
    notes += power_note(options, where.accelerator)
    profile = profile_for(options, where.accelerator, software.name)
    trainer = Trainer(model, workload, where, profile)
    if not searched(options):
        plan = given_plan(options, base, where, model)
        check_plan(plan, model, where.count, workload)
        if options.etp is None and plan.etp > 1:
            notes.append(
                say(
                    "etp {etp:g}: {framework} splits each expert as the rest of a layer, unless "
                    "--etp says otherwise",
                    etp=float(plan.etp),
                    framework=software.name,
                )
            )
        guesses = guessed(options, plan, software.name, model)
        step = widened(trainer, trainer.predict_one(plan), guesses)
        notes += [str(guess) for guess in guesses]
        return Answer(trainer, options, notes, software, *paid, launch), step, None
    base, why = switched_on(options, base)
    notes += why
    space = launch.limited(space_of(launch.searching(options), base, where.accelerator))
    if in_passing:
        found, why = search_plans(trainer, space, most=1, with_front=False), []
    else:
        found, why = look(trainer, space, options.top)
    if not found.legal and not surely_too_large(trainer, space):  # flags break a rule: say which
        check_plan(given_plan(options, base, where, model), model, where.count, workload)
    answer = Answer(trainer, options, notes, software, *paid, launch, space)
    if not found.best and in_passing:
        return answer, "", found
    if not found.best:
        return answer, why_none_fits(trainer, space, found), found
    notes += [*why, *notes_of(found)]
    best = widened(trainer, found.best[0], ())
    return answer, best, replace(found, best=(best, *found.best[1:]))


class Answer:
    """One answer, as text or JSON."""

    def __init__(
        self,
        trainer: Trainer,
        options: argparse.Namespace,
        notes: list[str],
        software: Software,
        rent: Price | None,
        pue: float,
        operation: Operation,
        launch: Launch,
        space: Space | None = None,  # of the search that found the step, if there was one
    ) -> None:
        self.trainer, self.options, self.notes = trainer, options, notes
        self.software = software
        self.rent, self.pue, self.operation = rent, pue, operation
        self.launch, self.space = launch, space

    def show(self, step: TrainingStep, found: Found | None) -> int:
        """Print it, draw it, write it out; 1 if the plan does not fit."""
        self.notes += self.launch.write(step)
        return self.launch.say(self._show(step, found))

    def _show(self, step: TrainingStep, found: Found | None) -> int:
        bill = training_bill(step, rent=self.rent, pue=self.pue)
        whole = whole_bill(step, self.operation, self.rent)
        wish = wish_of(self.options)
        fine = bool(step.fits) and wish.in_time(whole) and wish.affordable(whole)
        helps = self._helps(step) if self.options.what_helps else []
        others = found.best[: self.options.top] if found else ()
        fit = what_would_fit(self.trainer, step.plan) if not step.fits else []
        pipeline = self._simulate(step)
        if self.options.plot is not None:
            from trueflops.report.plots import plot_waterfall

            plot_waterfall(step, Path(self.options.plot))
        if self.options.plot_front is not None:
            from trueflops.report.front_plot import plot_front

            if found is None:
                raise BadInput(
                    say("--plot-front draws what a search found: leave a part of the plan open")
                )
            plot_front(found.front, Path(self.options.plot_front), self.rent)
        if self.options.json:
            answer = encode.training(question_of(self.options), step, bill)
            answer |= {
                "framework": self.software._asdict(),
                "notes": self.notes,
                "whole_bill": encode_whole_bill(whole),
                "stages": [encode.term(stage) for stage in self._stages(step)],
                "would_fit": [words for words, _ in fit],
            }
            if wish.within < inf or wish.budget < inf:
                answer |= {"in_time": wish.in_time(whole), "affordable": wish.affordable(whole)}
            if found is not None:
                answer |= encode_found(found, self.rent)
            if pipeline:
                answer["pipeline"] = encode_pipeline(pipeline)
                if self.options.timeline:
                    answer["timeline"] = encode_timeline(step, pipeline)
            if self.options.what_helps:
                answer["what_helps"] = encode_helps(helps)
            if self.options.provenance:
                answer["provenance"] = encode_provenance(step_provenance(self.trainer, step))
            if self.options.ops:
                ran = step_ops(self.trainer, step)
                answer["ops"] = encode_ops(ran, self.trainer.clock, OF_A_STEP)
            give(answer, Trained(step, bill, whole, found))
            return 0 if fine else 1
        out = console()
        print_training(out, step, bill, self.notes)
        out.print()
        print_whole_bill(out, whole)
        if len(others) > 1:
            out.print()
            bills = [training_bill(s, rent=self.rent, pue=self.pue) for s in others]
            out.print(runners_up_table(list(zip(others, bills, strict=True))))
        if found is not None:
            print_found(out, found, self.rent)
        if self.options.what_helps:
            out.print()
            print_helps(out, helps)
        if self.options.explain:
            self._explain(step, pipeline)
        elif self.options.timeline and pipeline:
            out.print()
            out.print(pipeline_table(pipeline))
        if self.options.ops:
            print_ops(out, step_ops(self.trainer, step), self.trainer.clock, OF_A_STEP)
        if self.options.provenance:
            show_provenance(out, step_provenance(self.trainer, step))
        if not step.fits:
            self._say_does_not_fit(step, fit)
        print_missed(out, wish, whole, step.cluster.accelerator)
        return 0 if fine else 1

    def _stages(self, step: TrainingStep) -> list[Term]:
        """What every stage holds, whatever was guessed; a single one is the step's own."""
        if step.plan.pp == 1:
            return [replace(step.memory, unstated=NOTHING_UNSTATED)]
        return self.trainer.memory_by_stage(step.plan)

    def _simulate(self, step: TrainingStep) -> SimulatedPipeline | None:
        """The plan's pipeline event by event: where it is asked for, or soon done, and a note where
        it differs from what is shown; its trace is written here.
        """
        drawn = self.options.trace or self.options.timeline
        tasks = task_count(step.plan, step.workload.global_batch)
        most = MOST if self.options.explain else SOON
        if not drawn and (step.plan.pp == 1 or tasks > most):
            return None
        found = simulate_pipeline(self.trainer, step.plan)
        if note := pipeline_note(found):
            self.notes.append(note)
        if self.options.trace:
            write_pipeline_trace(step, found, Path(self.options.trace))
        return found

    def _helps(self, step: TrainingStep) -> list[Help]:
        space = self.space

        def best(there: Hardware) -> TrainingStep | None:
            elsewhere = Trainer(step.model, step.workload, *there)
            return next(
                iter(search_plans(elsewhere, space or Space(), most=1, with_front=False).best), None
            )

        with Waiting(say("what would help")) as wait:
            return what_helps(step, best if space else None, say=wait.say)

    def _explain(self, step: TrainingStep, pipeline: SimulatedPipeline | None) -> None:
        """Print the trees: the step, the memory, every stage, and what fusion saved."""
        out = console()
        for tree in (step.step, step.memory):
            out.print()
            out.print(tree_table(tree))
        if step.plan.pp > 1:
            out.print()
            stages = self.trainer.memory_by_stage(step.plan)
            out.print(stages_table(stages, step.capacity_bytes))
        if pipeline:
            out.print()
            out.print(pipeline_table(pipeline))
        saved = self.trainer.fusion_savings(step.plan)
        less = units.show(saved.bytes_before - saved.bytes_after, "bytes")
        whole = units.show(saved.bytes_before, "bytes")
        out.print()
        out.print(
            say(
                "Fusion: {kernels_before:.0f} kernels became {kernels_after:.0f} and {less} "
                "of {whole} memory traffic were saved, per layer and micro-batch.",
                kernels_before=saved.kernels_before,
                kernels_after=saved.kernels_after,
                less=less,
                whole=whole,
            )
        )

    def _say_does_not_fit(self, step: TrainingStep, fit: list[tuple[str, TrainingStep]]) -> None:
        out = console()
        out.print()
        out.print(say("[red]Does not fit[/]: {step}.", step=why_not(step)))
        for words, better in fit:
            taken = units.show(float(better.step.value), "seconds")
            out.print(
                say("  would fit: {words}  (step {taken})", words=words, taken=taken),
                highlight=False,
            )
        if not fit:
            out.print(
                say("  no single change makes it fit; without a plan the best one is searched")
            )
