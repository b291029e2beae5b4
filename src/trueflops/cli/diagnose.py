"""trueflops diagnose: where the time of a real run went, beside what each kernel should take."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from trueflops.catalog import Cluster
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Clock
from trueflops.errors import BadInput, UnknownName, printable
from trueflops.interop.kineto import read_trace
from trueflops.interop.kineto.file import HOW
from trueflops.language import say
from trueflops.predict.diagnosis import diagnose
from trueflops.predict.provenance import diagnosis_provenance
from trueflops.records.chips import chip_of
from trueflops.records.trace import Trace
from trueflops.report import encode
from trueflops.report.diagnosis import encode_diagnosis, show_diagnosis
from trueflops.report.progress import Waiting
from trueflops.report.provenance import encode_provenance, show_provenance
from trueflops.report.tables import console


def run(options: argparse.Namespace) -> int:
    """Diagnose the median step of a trace."""
    with Waiting(say("reading {trace}", trace=printable(options.trace))) as wait:
        trace = read_trace(Path(options.trace))
        clock = _clock(options, trace)
        if clock is not None:
            said = _other_chip(trace, clock.cluster)
            trace = replace(trace, warnings=(*trace.warnings, *said))
        wait.say(f"pricing {len(trace.kernels):,} kernels")
        found = diagnose(trace, clock)
    origin = diagnosis_provenance(found, clock) if options.provenance and clock else None
    if options.json:
        more = {"provenance": encode_provenance(origin)} if origin else {}
        print(encode.to_json(encode_diagnosis(found, clock) | more))
        return 0
    show_diagnosis(found, clock, options.top)
    if origin is not None:
        show_provenance(console(), origin)
    return 0


def _clock(options: argparse.Namespace, trace: Trace) -> Clock | None:
    """Of --on, or of the chip that the trace names; None where nothing needs a prediction."""
    if options.on is None and options.profile is None:
        try:
            options.on = chip_of(trace.device).whole
        except (UnknownName, BadInput):
            if not trace.shapes:
                return None
            said = (
                say(" ({device!r} is not in the catalog)", device=trace.device)
                if trace.device
                else ""
            )
            raise BadInput(
                say(
                    "say where the trace was made with --on: {examples} …{said}",
                    examples="EPYC-9654" if trace.of_host else "H100, MI300X",
                    said=said,
                )
            ) from None
    where = _cluster(options, trace)
    return Clock(where, profile_for(options, where.accelerator))


def _cluster(options: argparse.Namespace, trace: Trace) -> Cluster:
    """As many chips as the trace's largest group has, where --on names a single one."""
    where = cluster_of(options)
    widest = max((k.message.group for k in trace.kernels if k.message), default=1)
    if where.count < widest:
        if where.count > 1:
            raise BadInput(
                say(
                    "the trace has collectives of {widest} ranks: say --on {widest}x…",
                    widest=widest,
                )
            )
        options.on = f"{widest}x{where.accelerator.name}"
        where = cluster_of(options)
    return where


def _other_chip(trace: Trace, where: Cluster) -> list[str]:
    """A trace of one chip priced on another is a question one may ask, but seldom by intent."""
    if trace.of_host and not where.accelerator.is_cpu:
        return [
            say(
                "no kernels of an accelerator are in the trace: what the host's own ops took "
                "stands beside predictions for {name}; write --on with the host's processor, as "
                "{processor}, or make the trace {how}",
                name=where.accelerator.name,
                processor="EPYC-9654",
                how=HOW,
            )
        ]
    try:
        made_on = chip_of(trace.device).whole if trace.device else ""
    except (UnknownName, BadInput):
        return []
    if made_on in ("", where.accelerator.name):
        return []
    return [
        say(
            "the trace is of {device}, the predictions are for {name}",
            device=trace.device,
            name=where.accelerator.name,
        )
    ]
