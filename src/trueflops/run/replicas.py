"""Replicas of a piece of the model: who holds, sums and updates what.

ZeRO 0   DistributedDataParallel: gradients all-reduced beside the backward
ZeRO 1   the same, and ZeroRedundancyOptimizer: each rank updates some tensors, then broadcasts them
ZeRO 2   fully_shard that keeps weights gathered for a whole step; gradients are scattered
ZeRO 3   fully_shard that gathers every layer for its forward and again for its backward
Experts belong to the ranks that hold the same ones, which are fewer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.plan import Plan
from trueflops.run.mesh import Meshes
from trueflops.run.network import DTYPES, Layer, Network

_OPTIMIZERS: Final = ("adamw", "adamw-bf16", "sgd", "adafactor", "adafactor-bf16")


def replicate(network: Network, plan: Plan, meshes: Meshes) -> nn.Module:
    """A piece as the plan's replicas hold it."""
    if _is_sharded(plan):
        return _shard(network, plan, meshes)
    if meshes.replicas["replicas"].size() == 1 or plan.pp > 1:
        return network  # under a pipeline gradients are summed after the last micro-batch
    if plan.ep > 1:  # other replicas do not have these
        apart = [name for name, _ in network.named_parameters() if ".experts." in name]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(network, apart)
    return DistributedDataParallel(
        network, process_group=meshes.replicas.get_group("replicas"), broadcast_buffers=False
    )


def _is_sharded(plan: Plan) -> bool:
    """Whether FSDP holds the weights."""
    return bool(plan.zero >= 2 and plan.dp_shard * plan.cp > 1)


def _shard(network: Network, plan: Plan, meshes: Meshes) -> nn.Module:
    shards = meshes.shards
    mesh = shards["dp_replicate", "share"] if plan.dp_replicate > 1 else shards["share"]
    again = bool(plan.zero >= 3)
    narrow = MixedPrecisionPolicy(
        param_dtype=DTYPES[plan.compute], reduce_dtype=DTYPES[plan.gradient_dtype]
    )
    for layer in network.layers:
        assert isinstance(layer, Layer)
        if layer.block.experts and plan.ep > 1:
            fully_shard(
                layer.experts,
                mesh=meshes.experts["expert_replicas"],
                reshard_after_forward=again,
                mp_policy=narrow,
            )
        fully_shard(layer, mesh=mesh, reshard_after_forward=again, mp_policy=narrow)
    fully_shard(network, mesh=mesh, reshard_after_forward=False, mp_policy=narrow)
    return network  # whose class is now an FSDPModule, too


def last_micro_batch(module: nn.Module, plan: Plan, last: bool) -> None:
    """Gathered weights of ZeRO 2 stay for the next micro-batch of a step."""
    if isinstance(module, FSDPModule) and plan.zero == 2:
        module.set_reshard_after_backward(last)


def finish_gradients(networks: Iterable[Network], plan: Plan, meshes: Meshes) -> None:
    """What neither DDP nor FSDP sums: experts, and weights that every rank of tp holds."""
    replicas = meshes.replicas["replicas"].size()
    spread = plan.ep > 1
    for network in networks:
        every = network.every_weight()
        routed = [_grad(held.parameter) for held in every if spread and held.routed]
        if plan.pp > 1 and not _is_sharded(plan):
            dense = [_grad(held.parameter) for held in every if not (spread and held.routed)]
            _sum(dense, meshes.replicas["replicas"].get_group(), 1.0 / replicas)
        if routed and _is_sharded(plan):  # FSDP took the mean over the experts' replicas alone
            torch._foreach_mul_(routed, 1.0 / float(plan.ep))
        elif routed:
            _sum(routed, meshes.experts["expert_replicas"].get_group(), 1.0 / replicas)
        if plan.sp and plan.tp > 1:
            # Under sequence parallelism each rank saw some tokens of these (Korthikanti 2022).
            whole = [_grad(held.parameter) for held in every if held.share.axis != "tp"]
            _sum(whole, meshes.axes["tp"].get_group())


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad


def _sum(gradients: list[Tensor], group: dist.ProcessGroup, scale: float = 1.0) -> None:
    """One all-reduce over all of them, joined, and each times `scale`."""
    if not gradients:
        return
    flat = torch.cat([g.flatten() for g in gradients]).mul_(scale)
    dist.all_reduce(flat, group=group)
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def optimizer_of(
    networks: Iterable[nn.Module], plan: Plan, meshes: Meshes, rate: float
) -> torch.optim.Optimizer:
    """AdamW, SGD with momentum or Adafactor, over what this rank updates."""
    parameters = [p for network in networks for p in network.parameters()]
    if plan.zero == 1 and plan.dp_shard * plan.cp > 1:
        kind, settings = _kind(plan, rate)
        group = meshes.shards.get_group("share")
        return ZeroRedundancyOptimizer(parameters, kind, process_group=group, **settings)
    return own_optimizer(parameters, plan, rate)


def own_optimizer(parameters: Iterable[Tensor], plan: Plan, rate: float) -> torch.optim.Optimizer:
    """The same over whole tensors, in one process."""
    kind, settings = _kind(plan, rate)
    made: torch.optim.Optimizer = kind(parameters, **settings)
    return made


def _kind(plan: Plan, rate: float) -> tuple[Any, dict[str, Any]]:
    if plan.optimizer not in _OPTIMIZERS:
        raise BadInput(
            say(
                "optimizer {optimizer}: run has {known}",
                optimizer=plan.optimizer,
                known=", ".join(_OPTIMIZERS),
            )
        )
    if plan.optimizer.startswith("adamw"):
        return torch.optim.AdamW, {"lr": rate}
    if plan.factored:
        return torch.optim.Adafactor, {"lr": rate}
    return torch.optim.SGD, {"lr": rate, "momentum": 0.9}
