"""torchtitan's own Llama-3 training steps, for `trueflops capture`.

    pip install torchtitan triton       (they import on a CPU)
    trueflops capture benchmarks/torchtitan_steps.py:llama3_8b --world 8 --on H100
    trueflops capture benchmarks/torchtitan_steps.py:llama3_70b --world 256 --on H100
Model, parallelism, checkpointing, optimizer and the step itself are torchtitan's, as its config
registry has them (0.3.0). What a capture cannot have is replaced here: the dataset (tokens without
meaning), the tokenizer, and FlexAttention, which exists only once it is compiled (causal SDPA).
CUDA graphs are off: a graph replays the same kernels. Tensor parallelism goes through DTensor:
torchtitan's newer way (spmd_types) needs an FSDP that torch 2.13 does not have yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention
from torchtitan.models.llama3 import config_registry
from torchtitan.trainer import Trainer

VOCABULARY = 128256


class Tokens(BaseDataLoader):  # type: ignore[misc]
    """Batches of the right shape; the same one again and again."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):  # type: ignore[misc]
        """Nothing to choose."""

    def __init__(self, config: Config, *, seq_len: int, local_batch_size: int, **_: Any) -> None:
        self.shape = (local_batch_size, seq_len)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Inputs and labels, on the host as torchtitan expects them."""
        while True:
            tokens = torch.randint(0, VOCABULARY, self.shape)
            positions = torch.arange(self.shape[1]).expand(self.shape)
            yield {"input": tokens, "positions": positions}, tokens.roll(-1, dims=1)

    def state_dict(self) -> dict[str, Any]:
        """Nothing to save."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to load."""


class NoTokenizer(BaseTokenizer):  # type: ignore[misc]
    """Nothing is read, so nothing is spelled out."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):  # type: ignore[misc]
        """Nothing to choose."""

    def __init__(self, config: Config, **_: Any) -> None:
        super().__init__()

    def encode(self, *args: Any, **kwargs: Any) -> list[int]:
        """Nothing."""
        return []

    def decode(self, *args: Any, **kwargs: Any) -> str:
        """Nothing."""
        return ""

    def get_vocab_size(self) -> int:
        """Of Llama 3."""
        return VOCABULARY


def llama3_8b() -> Callable[[], None]:
    """Llama-3 8B over FSDP2, one sequence of 8192 a GPU, selective checkpointing."""
    return step_of(config_registry.llama3_8b())


def llama3_70b() -> Callable[[], None]:
    """Llama-3 70B over FSDP2 and 8-way tensor parallelism, full checkpointing."""
    return step_of(config_registry.llama3_70b())


def step_of(config: Trainer.Config) -> Callable[[], None]:
    """Forward, backward, clipping and the optimizer: one call of torchtitan's train_step."""
    config.tokenizer, config.dataloader = NoTokenizer.Config(), Tokens.Config()
    config.metrics.enable_tensorboard = False
    config.comm.trace_buf_size = 0  # nothing is left on disk
    config.training.disable_cuda_graphs = True
    config.parallelism.spmd_backend = "partial_dtensor"
    use_causal_attention(config)
    trainer = Trainer(config)
    batches = trainer.batch_generator(trainer.dataloader)

    def step() -> None:
        trainer.step += 1
        trainer.train_step(batches)

    return step


def use_causal_attention(config: Trainer.Config) -> None:
    """Plain causal attention in every layer."""
    assert config.model_spec is not None
    found = list(config.model_spec.model.traverse(FlexAttention.Config))
    for _, _, parent, key in found:
        setattr(parent, str(key), ScaledDotProductAttention.Config())
