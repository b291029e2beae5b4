"""What of a model lies in host memory, and what its passes take.

llama.cpp (--n-gpu-layers N) keeps the last N layers on accelerators; the embedding, the layers
before and, unless N exceeds them all, the head are the host's (llama-model.cpp, load_tensors):
    few tokens   the host computes its layers, and keeps their keys and values
    many         their weights are copied to the accelerator, which computes everything but the head
vLLM (--cpu-offload-gb) keeps weights there, which every pass reads over the link to the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from trueflops.catalog import Accelerator, Cluster
from trueflops.catalog.clusters import cluster_of
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.costs import Costs, PieceCost
from trueflops.predict.serving.passes import Passes
from trueflops.profile import Engine, Profile, profile_of
from trueflops.runtime import Term, leaf
from trueflops.sizes import Size
from trueflops.tables import summed

ON_HOST, COPIED = "on_host", "copied"
LABELS: Final = {ON_HOST: "layers on the host", COPIED: "weights copied to the accelerator"}
OF_A_DESKTOP: Final = "Ryzen 9 7950X"  # the processor of a host where nobody says which
OF_A_SERVER: Final = "EPYC 9654"
OF_HOST_MEMORY: Final = "SoC"
"""The form of chips that share one memory with their host: Apple's, GB10, Jetson."""
_ALONE: Final = {"tp": 1, "pp": 1, "ep": 1, "etp": 1, "dp_replicate": 1}


@dataclass(frozen=True)
class Offload:
    """What the host holds; its processor computes layers, where there are any."""

    layers: int = 0  # the first ones of the model; with them the embedding and the head
    weight_bytes: float = 0.0  # of each accelerator's, which it reads in every pass
    cpu: Accelerator | None = None  # one socket of the host; None: it computes nothing


class OffloadedPasses(Passes):
    """Passes of a model of which the host holds a part."""

    def __init__(
        self, model: Model, cluster: Cluster, profile: Profile, weights: str, cache_bits: float,
        *, offload: Offload, engine: Engine,
    ) -> None:  # fmt: skip
        super().__init__(model, cluster, profile, weights, cache_bits, engine=engine)
        self.offload = offload
        self.host: Passes | None = None
        if (cpu := offload.cpu) is not None:
            profile = profile_of(cpu, engine.name)
            self.host = Passes(model, cluster_of(cpu), profile, weights, cache_bits, engine=engine)

    @property
    def held_model(self) -> Model:
        """The layers whose keys and values accelerators keep."""
        return replace(self.model, pattern=self.model.pattern[self.offload.layers :])

    def costs(
        self, plan: Plan, batch: Size, seq: Size, past: Size, *, verifies: bool = False
    ) -> Costs:
        """Those of the accelerators, and seconds of the host and of copies under their own."""
        whole = super().costs(plan, batch, seq, past, verifies=verifies)
        if self.host is None:
            layers = summed(n * p.weight_bytes for p, n in whole.pieces(self.model))
            layers = layers - whole.embedding.weight_bytes - whole.head.weight_bytes
            share = np.minimum(self.offload.weight_bytes / layers, 1.0)
            return replace(
                whole, blocks=tuple(self._copied(block, share, 1.0) for block in whole.blocks)
            )
        return self._with_layers(whole, plan, batch, seq, past, verifies)

    def unpriced(self, plan: Plan, batch: Size, seq: Size, past: Size) -> Costs:
        """Weights go to the host together with the seconds that they take there."""
        return self.costs(plan, batch, seq, past)

    def _with_layers(
        self, whole: Costs, plan: Plan, batch: Size, seq: Size, past: Size, verifies: bool
    ) -> Costs:
        host = self._host
        on_host = host.costs(plan.but(**_ALONE), batch, seq, past, verifies=verifies)
        # Replicas of a node share its processor.
        sharing = np.maximum(plan.dp / self.cluster.nodes, 1.0)
        many = np.where(np.asarray(batch * seq) >= self.engine.copies_from, 1.0, 0.0)
        blocks = []
        for kind, (block, its) in enumerate(zip(whole.blocks, on_host.blocks, strict=True)):
            share = self._share(kind)
            computing = self._hosted(block, its, share * (1.0 - many), sharing)
            copied = self._copied(computing, share, many)
            blocks.append(replace(copied, weight_bytes=block.weight_bytes * (1.0 - share)))
        return replace(
            whole,
            blocks=tuple(blocks),
            embedding=self._hosted(whole.embedding, on_host.embedding, 1.0, sharing),
            head=self._hosted(whole.head, on_host.head, 1.0, sharing),
        )

    @property
    def _host(self) -> Passes:
        assert self.host is not None  # whoever leaves layers to a host names its processor
        return self.host

    def _share(self, kind: int) -> float:
        """Of the layers of one kind, those that the host holds."""
        first = self.model.pattern[: self.offload.layers]
        return first.count(kind) / max(self.model.pattern.count(kind), 1)

    def _hosted(self, piece: PieceCost, its: PieceCost, share: Size, sharing: Size) -> PieceCost:
        """A piece of which the host computes a share, while accelerators wait."""
        host = self._host
        gap = host.profile.curve("framework")["graph"]
        taken = summed(its.seconds.values()) + its.kernels.get("forward", 0.0) * gap
        least = its.streamed_bytes.get("forward", 0.0) / host.clock.silicon.bandwidth
        kept = piece.map(lambda size: size * (1.0 - share))
        return _with(
            kept,
            seconds={("forward", ON_HOST): share * sharing * taken},
            peak_seconds={"forward": share * least},
        )

    def _copied(self, piece: PieceCost, share: Size, times: Size) -> PieceCost:
        """A piece whose weights cross the link; what the host holds of them is not held twice."""
        link = float(self.clock.host_copy(1.0))
        each = max(link, 1.0 / self.engine.copy_rate)
        moved = share * times * piece.weight_bytes
        crossing = _with(piece, seconds={("forward", COPIED): moved * each})
        return replace(crossing, weight_bytes=piece.weight_bytes * (1.0 - share))

    def beside(self, seconds: Mapping[str, Size]) -> list[Term]:
        """What passes take that accelerators do not compute."""
        laws = {COPIED: self.profile.curve("host")}
        if self.host is not None:
            laws[ON_HOST] = self.host.profile.curve("matmul")
        return [
            leaf(LABELS[cause], seconds[cause], law, cause)
            for cause, law in laws.items()
            if np.any(seconds.get(cause, 0.0))
        ]

    def host_bytes(self) -> float:
        """Of the weights that the host computes with; replicas map one file."""
        there = self._host.costs(Plan(), 1.0, 1.0, 1.0)
        layers = sum(
            float(block.weight_bytes) * self.model.pattern[: self.offload.layers].count(kind)
            for kind, block in enumerate(there.blocks)
        )
        ends = float(there.embedding.weight_bytes) + float(there.head.weight_bytes)
        return layers + ends - float(there.head.tied_parameters) * self.bits / 8.0


def _with(piece: PieceCost, **tables: Mapping[Any, Size]) -> PieceCost:
    """The same piece with more in some of its tables."""
    made: dict[str, Any] = {}
    for name, more in tables.items():
        table = getattr(piece, name)
        made[name] = {**table, **{key: table.get(key, 0.0) + more[key] for key in more}}
    return replace(piece, **made)
