"""Passes of decoding measured alone: kernels of captured graphs, no engine around them.

In: a table with the columns model, drafter, tokens, past, batch, latency_us. Out: Findings of the
seconds of a pass. A drafter is the network that a method of drafting has beside the model.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Final

from trueflops.catalog import Accelerator, accelerator, cluster
from trueflops.errors import TrueflopsError
from trueflops.model import Model
from trueflops.plan import serving_plan
from trueflops.predict.serving.passes import Passes, wide_dtype
from trueflops.predict.serving.speculation import Speculation
from trueflops.profile.engines import USUAL, engine_of
from trueflops.records.measured import MEASURED
from trueflops.records.rows import identity, measured_seconds
from trueflops.records.tables import Row, Table
from trueflops.runtime import Term, total
from trueflops.verify.cells import Missing, count, text
from trueflops.verify.findings import Finding, Findings, PassRow, Refusal
from trueflops.verify.profiles import Profiles
from trueflops.verify.serving.served_model import model_of

COLUMNS: Final = ("gpu", "model", "drafter", "tokens", "past", "batch", MEASURED)


def passes_findings(table: Table, profiles: Profiles) -> Findings:
    """Predict every row of the table, or say why it cannot be."""
    found, passes_of = Findings(), cache(partial(_passes, profiles))
    for _, row in table.rows:
        name = identity(row)
        try:
            about = _about(row)
            network = network_of(model_of(about.model), about.drafter)
            told = _pass(passes_of(accelerator(about.chip), network), about).estimate
            seconds = measured_seconds(row)
            found.rows.append(
                Finding.beside(table.where, name, about, "pass_seconds", seconds, told)
            )
        except TrueflopsError as error:
            found.refused.append(Refusal(table.where, name, str(error)))
    return found


def network_of(model: Model, drafter: str) -> Model:
    """What runs: the model, or what a method of drafting has beside it."""
    if not drafter:
        return model
    own = Speculation.of(model, drafter).drafter
    if own is None:
        raise Missing(f"nothing runs for the drafts of method {drafter!r}: leave drafter empty")
    return own


def _about(row: Row) -> PassRow:
    tokens, past, batch = (count(row, column, 0) for column in ("tokens", "past", "batch"))
    if not (tokens and batch):
        raise Missing("tokens or batch is empty")
    chip, model, drafter = (text(row, column) for column in ("gpu", "model", "drafter"))
    return PassRow(chip, model, drafter, tokens, past, batch)


def _passes(profiles: Profiles, chip: Accelerator, network: Model) -> Passes:
    """In 16 bits, on one accelerator."""
    where = cluster(f"1x{chip.name}")
    own = profiles(chip, USUAL)
    return Passes(network, where, own, wide_dtype(where), 16.0, engine=engine_of(USUAL))


def _pass(passes: Passes, about: PassRow) -> Term:
    plan = serving_plan(passes.model, passes.dtype)
    shape = float(about.batch), float(about.tokens), float(about.past)
    costs = passes.costs(plan, *shape, verifies=about.tokens > 1)
    least = passes.least(costs, plan, graphs=True)
    return total("pass", *passes.computing(costs, plan, graphs=True), least=least)
