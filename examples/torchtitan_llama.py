"""torchtitan's own training of Llama 3, on random tokens: its flags, its trainer, its pipelines.

    torchrun --nproc-per-node 8 examples/torchtitan_llama.py FLAGS              on real GPUs
    trueflops capture --on 8xH100 examples/torchtitan_llama.py -- FLAGS         without any
FLAGS are torchtitan's, such as --model.flavor 8B --parallelism.pipeline_parallel_degree 4
--training.local_batch_size 8. Needs torch and torchtitan 0.2 (the pipelines of 0.3 want a newer
torch than 2.13). Only what would be downloaded is replaced, through torchtitan's registry: the
dataset and the tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.protocols.train_spec import get_train_spec, register_train_spec
from torchtitan.train import Trainer, main

NAME = "llama3"


class Tokens(BaseDataLoader):
    """Batches of the right shape."""

    def __init__(self, job_config: Any, **_: Any) -> None:
        training, model = job_config.training, job_config.model
        self.shape = (training.local_batch_size, training.seq_len)
        self.vocabulary = get_train_spec(NAME).model_args[model.flavor].vocab_size

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Inputs and labels, on the host as torchtitan expects them."""
        while True:
            tokens = torch.randint(0, self.vocabulary, self.shape)
            yield {"input": tokens}, tokens.roll(-1, dims=1)

    def state_dict(self) -> dict[str, Any]:
        """Nothing to save."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to load."""


if __name__ == "__main__":
    spec = get_train_spec(NAME)
    register_train_spec(NAME, replace(spec, build_dataloader_fn=Tokens, build_tokenizer_fn=None))
    main(Trainer)
