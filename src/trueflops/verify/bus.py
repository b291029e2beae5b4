"""Collectives among cards that meet over the PCIe of their host, as nccl-tests prints them.

In: a table with the columns gpu, gpus, peer_access, op, bytes, latency_us; `pcie`, where it is
said, is the slot ("4.0 x16"). Out: Findings of the seconds of a collective. What is predicted is a
host that nobody measured: sockets, switches and settings of a board are no facts of a chip.
"""

from __future__ import annotations

from typing import Any, Final

from trueflops.catalog import accelerator
from trueflops.catalog.clusters import Cluster, on_a_bus
from trueflops.catalog.links import link
from trueflops.clock import Clock
from trueflops.errors import TrueflopsError
from trueflops.graph.kinds import CollectiveKind
from trueflops.predict.collective import compare_collective
from trueflops.profile.frameworks import USUAL
from trueflops.records.measured import MEASURED
from trueflops.records.rows import identity, measured_seconds
from trueflops.records.tables import Row, Table
from trueflops.verify.cells import Missing, count, text
from trueflops.verify.findings import BusRow, Finding, Findings, Refusal
from trueflops.verify.profiles import Profiles

COLUMNS: Final = ("gpu", "gpus", "peer_access", "op", "bytes", MEASURED)
_WIRED: Final = {"yes": "pcie-peer", "no": "pcie-host"}


def bus_findings(table: Table, profiles: Profiles) -> Findings:
    """Predict every row of the table, or say why it cannot be."""
    found = Findings()
    for _, row in table.rows:
        name = identity(row)
        try:
            about = _about(row)
            where = _host(about, text(row, "pcie"))
            clock = Clock(where, profiles(where.accelerator, USUAL))
            kind = CollectiveKind(about.operation)
            told = compare_collective(clock, kind, float(about.payload_bytes), about.ranks).seconds
            seconds = measured_seconds(row)
            found.rows.append(Finding.beside(table.where, name, about, "op_seconds", seconds, told))
        except TrueflopsError as error:
            found.refused.append(Refusal(table.where, name, str(error)))
    return found


def _about(row: Row) -> BusRow:
    ranks, payload = count(row, "gpus", 0), count(row, "bytes", 0)
    if ranks < 2 or not payload:
        raise Missing("gpus or bytes is empty")
    operation = text(row, "op")
    if operation not in {kind.value for kind in CollectiveKind}:
        raise Missing(f"op {operation!r} is no collective")
    return BusRow(text(row, "gpu"), ranks, text(row, "peer_access"), operation, payload)


def _host(about: BusRow, slot: str) -> Cluster:
    given: dict[str, Any] = {}
    if wired := _WIRED.get(about.peer_access):
        given["scale_up.topology"] = wired
    if slot:
        given["scale_up.bandwidth"] = link(f"PCIe {slot}").values["bandwidth"]
    return on_a_bus(accelerator(about.chip), about.ranks, given)
