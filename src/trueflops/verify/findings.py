"""What a reader of measured results returns: each row beside its prediction, or why it has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from trueflops.runtime import Estimate

Timed = Literal["prompt", "one request's tokens", "tokens", "requests"]
Quantity = Literal[
    "op_seconds",
    "pass_seconds",
    "step_seconds",
    "tokens_per_second",
    "peak_bytes",
    "ttft_seconds",
    "ttft_median_seconds",
    "ttft_p99_seconds",
    "tpot_seconds",
    "tpot_median_seconds",
    "tpot_p99_seconds",
    "kv_tokens",
    "kv_bytes",
    "weight_bytes",
    "working_bytes",
    "speedup",
]


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A measured kernel. n and k are those of a product y[m,n] = x[m,k]·W[n,k]ᵀ."""

    chip: str
    number_format: str
    kind: str
    n: float | None = None
    k: float | None = None
    under_measured_profile: bool = False  # judged by a profile measured on the same chip

    apart = framework = unknown_software = ""

    @property
    def group(self) -> str:
        """Chip, format and kind."""
        name = f"{self.chip} {self.number_format} {self.kind}"
        return f"measured {name}" if self.under_measured_profile else name


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A published training run of a source. `hidden` and `layers` are its model's."""

    source: str
    hidden: int
    layers: int
    framework: str  # whose settings it is judged under
    apart: str = ""  # why the row is shown but does not count
    unknown_software: str = ""  # what the row names, where no settings of it are known

    @property
    def group(self) -> str:
        """The source, and why its row stands apart."""
        return f"{self.source} ({self.apart})" if self.apart else self.source


@dataclass(frozen=True, slots=True)
class InferenceRow:
    """A published inference result of a source."""

    source: str
    framework: str  # the engine whose settings it is judged under
    apart: str = ""
    unknown_software: str = ""
    timed: Timed = "requests"

    @property
    def group(self) -> str:
        """The source, and why its row stands apart."""
        return f"{self.source} ({self.apart})" if self.apart else self.source


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A point of a continuous-batching server; backend and system as the table names them."""

    backend: str
    model: str
    system: str
    framework: str  # the engine whose settings it is judged under
    apart: str = ""
    unknown_software: str = ""
    stated: bool = False  # whether its whole load is: rate, count, lengths

    @property
    def group(self) -> str:
        """Model and engine, and why the row stands apart."""
        name = f"{self.model} {self.backend}"
        return f"{name} ({self.apart})" if self.apart else name


@dataclass(frozen=True, slots=True)
class CacheRow:
    """What an engine printed at start about its memory."""

    source: str
    framework: str  # the engine whose settings it is judged under
    apart: str = ""
    unknown_software: str = ""

    @property
    def group(self) -> str:
        """The engine, and why its row stands apart."""
        return f"{self.framework} ({self.apart})" if self.apart else self.framework


@dataclass(frozen=True, slots=True)
class SpeculativeRow:
    """A published speed-up of speculative decoding over the same server without drafts."""

    source: str
    framework: str  # the engine whose settings it is judged under
    method: str
    batch: int
    apart: str = ""
    unknown_software: str = ""

    @property
    def group(self) -> str:
        """The source, and why its row stands apart."""
        return f"{self.source} ({self.apart})" if self.apart else self.source


@dataclass(frozen=True, slots=True)
class PassRow:
    """A pass of decoding measured alone: of a model, or of what drafts for it."""

    chip: str
    model: str
    drafter: str  # the method whose network ran; "": the model itself
    tokens: int  # of each request
    past: int  # tokens of each request that are cached
    batch: int

    apart = framework = unknown_software = ""

    @property
    def group(self) -> str:
        """What ran."""
        return f"{self.model} {self.drafter}".strip()


@dataclass(frozen=True)
class BusRow:
    """A collective among cards that meet over the PCIe of their host."""

    chip: str
    ranks: int
    peer_access: str  # yes, no; "": as usual for the chip
    operation: str
    payload_bytes: int

    apart = framework = unknown_software = ""

    @property
    def group(self) -> str:
        """Whether cards reach one another's memory, and whether latency or the link decides."""
        how = {"yes": "with peer access", "no": "through host memory"}.get(
            self.peer_access, "usual"
        )
        return f"{how}, {'from' if self.payload_bytes >= LARGE else 'below'} 16 MiB"


LARGE: Final = 2**24  # bytes, from which on the link alone decides

MeasuredRow = (
    KernelRow
    | TrainingRow
    | InferenceRow
    | ServerRow
    | CacheRow
    | SpeculativeRow
    | PassRow
    | BusRow
)


class Finding(NamedTuple):
    """One measured quantity and its prediction with the 90 % interval, in SI units.

    `about` says what was measured. Its `group` is averaged first: a source of runs, or a chip,
    format and kind of kernel. Rows that stand apart are shown but left out of the overall figures.
    """

    file: str
    id: str
    about: MeasuredRow
    quantity: Quantity
    measured: float
    predicted: float
    low: float
    high: float

    @classmethod
    def beside(
        cls, file: str, id_: str, about: MeasuredRow, of: Quantity, measured: float, found: Estimate
    ) -> Finding:
        """A measured quantity beside what was predicted of it."""
        limits = float(found.value), float(found.low), float(found.high)
        return cls(file, id_, about, of, measured, *limits)

    @property
    def group(self) -> str:
        """What is averaged first."""
        return self.about.group

    @property
    def scored(self) -> bool:
        """Whether it counts in the overall figures."""
        return not self.about.apart

    @property
    def error(self) -> float:
        """(predicted − measured) / measured."""
        return self.predicted / self.measured - 1.0

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measured value."""
        return self.low <= self.measured <= self.high


class UnknownSoftware(NamedTuple):
    """A framework or engine that rows name and of which no settings are known."""

    named: str
    judged_as: str
    rows: int


class Refusal(NamedTuple):
    """A row that cannot be predicted because an input is really missing."""

    file: str
    id: str
    reason: str


@dataclass
class Findings:
    """Everything that one or more files gave."""

    rows: list[Finding] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    @property
    def unknown_software(self) -> list[UnknownSoftware]:
        """What rows name and nothing is known of, most rows first."""
        rows = {(row.file, row.id, row.about) for row in self.rows if row.about.unknown_software}
        counted = Counter((about.unknown_software, about.framework) for *_, about in rows)
        return [UnknownSoftware(*named, rows) for named, rows in counted.most_common()]

    def extend(self, others: Iterable[Findings]) -> Findings:
        """Take in what other files gave."""
        for other in others:
            self.rows += other.rows
            self.refused += other.refused
        return self
