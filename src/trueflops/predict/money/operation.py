"""How a cluster is run and paid for: what a user says, else what is usual."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from trueflops.catalog import Cluster
from trueflops.catalog.operation import Lasting, accelerator_mtbf, usual
from trueflops.catalog.prices import Purchase, purchase

# Standard deviations of logarithms, assumed: restarts of published systems take 5 to 30 minutes,
# and shared storage gives one job between half and all of what it has.
RESTART_ERROR: Final = 0.5
STORAGE_ERROR: Final = 0.4
PUE_ERROR: Final = 0.15  # Uptime's average of all, and the 1.1 to 1.2 of hyperscalers


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One cluster's failures, storage, power and ownership."""

    mtbf: Lasting  # of one accelerator
    storage_bytes_per_second: float  # of the whole cluster
    restart_seconds: float = field(default_factory=lambda: usual("restart"))
    asynchronous: bool = True
    interval_seconds: float | None = None  # between checkpoints; None: the best
    spot: Lasting | None = None  # mean time until a node is taken back; None: it is not
    pue: float = field(default_factory=lambda: usual("pue"))
    usd_per_kwh: float = field(default_factory=lambda: usual("electricity"))
    hosting_usd_per_kw_month: float = field(default_factory=lambda: usual("hosting"))
    server: float = field(default_factory=lambda: usual("server"))
    network: float = field(default_factory=lambda: usual("network"))
    years: float = field(default_factory=lambda: usual("years"))
    purchase: Purchase | None = None
    given: frozenset[str] = frozenset()  # what the user said: it has no error of ours

    def error(self, of: str, usual_error: float) -> float:
        """The standard deviation of a figure's logarithm: none of what the user said."""
        return 0.0 if of in self.given else usual_error


def usual_operation(cluster: Cluster) -> Operation:
    """What is usual for such a cluster.

    >>> import trueflops as tf
    >>> from trueflops.predict.money.operation import usual_operation
    >>> usual_operation(tf.cluster("64xH100")).asynchronous
    True
    """
    return Operation(
        mtbf=accelerator_mtbf(),
        storage_bytes_per_second=usual("storage") * cluster.count,
        purchase=purchase(cluster.accelerator),
    )
