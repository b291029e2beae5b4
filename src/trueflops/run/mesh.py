"""The ranks of a Plan as DeviceMeshes; which rank is where.

rank = (((stage · dp_replicate + replica) · dp_shard + shard) · cp + piece) · tp + slice
as `predict` places them: tp next to one another, stages farthest apart. cp shares the weights, so
ZeRO divides them by dp_shard × cp; experts lie on ep neighbouring ranks of those replicas.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trueflops.plan import Plan
from trueflops.run.layout import Layout


@dataclass(frozen=True)
class Meshes:
    """One rank's place in a plan; every mesh is over all ranks, cut another way."""

    axes: DeviceMesh  # pp, dp_replicate, dp_shard, cp, tp
    shards: DeviceMesh  # pp, dp_replicate, share, tp: what FSDP divides by
    replicas: DeviceMesh  # pp, replicas, tp: who sums gradients
    experts: DeviceMesh  # pp, expert_replicas, ep, tp

    @classmethod
    def of(cls, plan: Plan, device: str) -> Meshes:
        """All meshes of a plan; every rank must call this."""
        pp, tp, cp = int(plan.pp), int(plan.tp), int(plan.cp)
        replicate, shard, ep = int(plan.dp_replicate), int(plan.dp_shard), int(plan.ep)
        both = replicate * shard * cp

        def cut(**axes: int) -> DeviceMesh:
            return init_device_mesh(device, tuple(axes.values()), mesh_dim_names=tuple(axes))

        return cls(
            cut(pp=pp, dp_replicate=replicate, dp_shard=shard, cp=cp, tp=tp),
            cut(pp=pp, dp_replicate=replicate, share=shard * cp, tp=tp),
            cut(pp=pp, replicas=both, tp=tp),
            cut(pp=pp, expert_replicas=both // ep, ep=ep, tp=tp),
        )

    def layout(self, plan: Plan) -> Layout:
        """Of the ranks that one micro-batch is split over."""
        return Layout(
            tp=self.axes["tp"] if plan.tp > 1 else None,
            cp=self.axes["cp"] if plan.cp > 1 else None,
            ep=self.experts["ep"] if plan.ep > 1 else None,
            sp=bool(plan.sp and plan.tp > 1),
        )

    def place(self, axis: str) -> int:
        """This rank's number along one of the plan's axes."""
        return self.axes[axis].get_local_rank()

    def axes_by_group(self) -> dict[str, str]:
        """By the name of a process group the axis of the plan that it serves; "cp+dp" where torch
        made one group for two, which it does for all that span the world.
        """
        meant = {
            "pp": self.axes["pp"], "tp": self.axes["tp"], "cp": self.axes["cp"],
            "ep": self.experts["ep"],
        }  # fmt: skip
        if self.shards["share"].size() > 1:  # else there are no shards to sum between replicas
            meant["dp_replicate"] = self.shards["dp_replicate"]
        dp = self.shards["share"], self.replicas["replicas"], self.experts["expert_replicas"]
        found: dict[str, set[str]] = {}
        for axis, mesh in (*meant.items(), *(("dp", mesh) for mesh in dp)):
            if mesh.size() > 1:
                found.setdefault(mesh.get_group().group_name, set()).add(axis)
        return {name: "+".join(sorted(axes)) for name, axes in found.items()}


def join(device: str) -> None:
    """Join the world that a launcher described in the environment; alone without one."""
    backend = "nccl" if device == "cuda" else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
