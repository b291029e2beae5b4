"""DataParallel: one process copies the model to every device and adds gradients up on the first.

As torch.nn.DataParallel does it (torch/nn/parallel/data_parallel.py), which needs GPUs: in every
forward the weights are replicated, sequences scattered, replicas applied in a thread each, and
outputs gathered where the loss is; autograd takes the same way back. On CPUs all devices are this
one, and autograd walks through all replicas in one thread. Counts what passes the first device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from trueflops.predict.training.through_one import Passed


class DataParallel(nn.Module):
    """A network and its copies, which live for one forward and its backward."""

    def __init__(self, network: nn.Module, devices: Sequence[torch.device]) -> None:
        super().__init__()
        self.network, self.devices = network, tuple(devices)
        # A list, not sums: hooks of autograd append from the thread of each device.
        self._seen: list[tuple[str, bool, int]] = []

    def forward(self, ids: Tensor) -> Tensor:
        """All sequences in, the logits of all out, on the first device."""
        here, others = self.devices[0], self.devices[1:]
        pieces = ids.chunk(len(self.devices))
        replicas = [self.network, *(self._replica(self.network, device) for device in others)]
        inputs = [pieces[0]]
        for piece, device in zip(pieces[1:], others, strict=True):
            inputs.append(self._move("tokens", piece, device, out=True))
        outputs = _apply(replicas, inputs)
        back = [self._move("logits", logits, here, out=False) for logits in outputs[1:]]
        return torch.cat([outputs[0], *back])

    def passed(self) -> tuple[Passed, ...]:
        """What passed the first device since this was asked last."""
        seen, self._seen = self._seen, []
        total: dict[tuple[str, bool], int] = defaultdict(int)
        for what, out, size in seen:
            total[what, out] += size
        return tuple(Passed(what, out, float(size)) for (what, out), size in total.items())

    def _replica(self, module: nn.Module, device: torch.device) -> nn.Module:
        """A module whose weights are copies; their gradients end in the sum on the first device."""
        twin: nn.Module = module._replicate_for_data_parallel()
        copies: dict[str, Any] = {  # not Parameters: they are results, which have a gradient
            name: None if weight is None else self._move("weights", weight, device, out=True)
            for name, weight in module._parameters.items()
        }
        twin._parameters = copies
        twin._modules = {
            name: None if child is None else self._replica(child, device)
            for name, child in module._modules.items()
        }
        return twin

    def _move(self, what: str, x: Tensor, device: torch.device, *, out: bool) -> Tensor:
        moved = x.to(device, copy=True)
        self._seen.append((what, out, _bytes(moved)))
        if moved.requires_grad:
            name = "gradients" if what == "weights" else f"gradients of {what}"
            moved.register_hook(lambda grad: self._seen.append((name, not out, _bytes(grad))))
        return moved


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


def _apply(replicas: Sequence[nn.Module], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Every replica in a thread of its own, which does not inherit autocast."""
    kind = inputs[0].device.type
    narrows, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

    def one(replica: nn.Module, ids: Tensor) -> Tensor:
        with torch.autocast(kind, dtype, enabled=narrows):
            made: Tensor = replica(ids)
        return made

    with ThreadPoolExecutor(len(replicas)) as threads:
        return list(threads.map(one, replicas, inputs))
