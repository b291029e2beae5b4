"""Rows of servers whose prefill and decode run on workers of their own: mode disagg.

In: a row, whose pools are told by columns such as prefill_tp_size and decode_num_workers (or as
aiconfigurator writes results, (p)tp and (d)workers). Out: the layout of a worker of either pool
and how many there are. What a row does not say of a pool is as in the columns without a prefix, and
one worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from trueflops.errors import BadInput
from trueflops.model import Model
from trueflops.records.tables import Row
from trueflops.verify.cells import YES, require, text, whole
from trueflops.verify.serving.deployment import Layout, Workers

Role = Literal["prefill", "decode"]
ROLES: Final[tuple[Role, ...]] = ("prefill", "decode")


@dataclass(frozen=True)
class _Columns:
    """What a degree of a worker is called, by whoever writes such tables."""

    usual: str  # without a prefix
    roles: tuple[str, ...]  # after 'prefill_', 'decode_'
    short: str  # after '(p)', '(d)'


_TP: Final = _Columns("tp_size", ("tp_size", "tp"), "tp")
_PP: Final = _Columns("pp_size", ("pp_size", "pp"), "pp")
_DP: Final = _Columns("attention_dp_size", ("attention_dp_size", "dp_size", "dp"), "dp")
_MOE_TP: Final = _Columns("moe_tp_size", ("moe_tp_size", "moe_tp"), "moe_tp")
_MOE_EP: Final = _Columns("moe_ep_size", ("moe_ep_size", "moe_ep", "ep_size", "ep"), "moe_ep")
_WORKERS: Final = _Columns("", ("num_workers", "workers"), "workers")


def is_pooled(row: Row) -> bool:
    """Whether a row is of two pools."""
    return text(row, "mode").startswith("disagg")


def pools_of(row: Row, model: Model) -> tuple[Workers, Workers]:
    """The prefill pool and the decode pool of a row."""
    prefill, decode = (_workers(row, role, model) for role in ROLES)
    return prefill, decode


def requests_of(row: Row) -> int:
    """Requests in flight; batch_size is that of one attention rank, where their number is said."""
    said = whole(row, "concurrency")
    return said or max(round(require(row, "batch_size")), 1) * (_said(row, "decode", _DP) or 1)


def _workers(row: Row, role: Role, model: Model) -> Workers:
    tp, pp, dp = (_said(row, role, columns) or 1 for columns in (_TP, _PP, _DP))
    if dp == 1 and text(row, f"{role}_dp_attention").casefold() in YES:
        tp, dp = 1, tp  # every rank of what is called tp has its own attention
    ep = (_said(row, role, _MOE_EP) or 1) if model.is_moe else 1
    etp = (_said(row, role, _MOE_TP) or 0) if model.is_moe else 1
    ranks = tp * dp
    if not etp:
        etp = max(ranks // ep, 1) if model.is_moe else 1
    if model.is_moe and ep * etp > ranks:  # "ep 8 of tp 8": some tables write the same ranks twice
        ep, etp = min(ep, ranks), max(ranks // min(ep, ranks), 1)
    layout = Layout(tp, pp, dp, ep, etp)
    return Workers(layout, _said(row, role, _WORKERS) or 1)


def _said(row: Row, role: Role, columns: _Columns) -> int | None:
    """What the row says of one pool, else what it says of both."""
    names = [f"{role}_{name}" for name in columns.roles] + [f"({role[0]}){columns.short}"]
    if columns.usual:
        names.append(columns.usual)
    for name in names:
        if text(row, name):
            said = whole(row, name)
            if said is None:
                raise BadInput(f"{name} is 0: a pool has at least one worker of one accelerator")
            return said
    return None
