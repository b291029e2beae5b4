"""What each implementation of data parallelism holds beside activations, from its code.

rank.py       what they are asked: a rank, moments of its step, bytes
torch_ddp.py  PyTorch alone, DistributedDataParallel
own_loop.py   modules of megatron-core in a loop of one's own
fsdp.py       FullyShardedDataParallel and fully_shard, and the latter in a loop that names logits
either.py     one of two by the ZeRO stage: PyTorch's and Megatron's
deepspeed.py  ZeRO-1, 2 and 3
megatron.py   megatron-core's buffers and distributed optimizer, and Megatron-FSDP
nanotron.py   nanotron's gradients, added up in fp32
paper.py      ZeRO as its paper says, where no code is known
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.plan import BYTES, Plan
from trueflops.predict.training.adafactor import Adafactor
from trueflops.predict.training.blockwise import Blockwise
from trueflops.predict.training.held.deepspeed import DeepSpeed, MegatronDeepSpeed
from trueflops.predict.training.held.either import ByStage
from trueflops.predict.training.held.fsdp import Fsdp1, Fsdp2, Fsdp2WithLogits
from trueflops.predict.training.held.megatron import Megatron, MegatronByApex, MegatronFsdp
from trueflops.predict.training.held.nanotron import Nanotron
from trueflops.predict.training.held.own_loop import OwnLoop
from trueflops.predict.training.held.paper import Paper
from trueflops.predict.training.held.rank import Backward, Holding, Keeper, Rank
from trueflops.predict.training.held.torch_ddp import TorchDdp
from trueflops.profile import Profile

__all__ = ["Backward", "Holding", "Keeper", "Rank", "adafactor_of", "blockwise_of", "keeper_of"]

KEEPERS: Final[Mapping[str, Keeper]] = MappingProxyType(
    {
        "nanotron": Nanotron(),
        "own_loop": OwnLoop(),
        "torch": ByStage(TorchDdp(), Fsdp2()),
        "fsdp1": Fsdp1(),
        "fsdp2": Fsdp2(),
        "fsdp2_with_logits": Fsdp2WithLogits(),
        "deepspeed": DeepSpeed(),
        "megatron_deepspeed": MegatronDeepSpeed(),
        "megatron": ByStage(Megatron(), MegatronFsdp()),
        "megatron_by_apex": ByStage(MegatronByApex(), MegatronFsdp()),
    }
)


def keeper_of(profile: Profile) -> Keeper:
    """That of the profile's framework; the paper's, where no code is known."""
    said = profile.curve("framework").values
    return next((k for name, k in KEEPERS.items() if said[f"held_by_{name}"]), Paper())


def adafactor_of(profile: Profile, plan: Plan) -> Adafactor | None:
    """The framework's, where the plan asks for one."""
    if not plan.factored:
        return None
    keeper, zero = keeper_of(profile), np.asarray(plan.zero)
    if np.any((zero >= keeper.dtensors_from) & (np.asarray(plan.dp_shard * plan.cp) > 1)):
        raise BadInput(
            say(
                "--optimizer {optimizer}: neither torch.optim's nor transformers' Adafactor runs "
                "on the DTensors of fully_shard; write --zero 0 or 1, or --framework fsdp (FSDP1)",
                optimizer=plan.optimizer,
            )
        )
    return Adafactor(
        wide=bool(profile.curve("framework")["trainers_optimizer"]),
        narrow=not plan.has_master and BYTES[plan.trained_dtype] < BYTES["fp32"],
        flat=zero >= keeper.flat_from,
    )


def blockwise_of(profile: Profile, plan: Plan) -> Blockwise | None:
    """Of a plan whose moments are 8 bits wide."""
    if not plan.blockwise:
        return None
    whole = np.asarray(plan.zero) < keeper_of(profile).flat_from
    return Blockwise(plan.blockwise, whole * profile.curve("framework")["trainers_optimizer"])
