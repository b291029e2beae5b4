"""What a run trains on: a synthetic language, or the bytes of a text file.

In: a seed and a step. Out: [sequences, seq + 1] ids, the same whatever the plan. The synthetic
language is a walk, next = (5 · last + 3) mod vocabulary, with every tenth token drawn at random:
it can be learnt, so that a loss that does not fall is a fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from trueflops.errors import BadInput, printable
from trueflops.files import read_file
from trueflops.units import GIBI

BYTE_VALUES: Final = 256
NOISE: Final = 0.1
MOST_TEXT: Final = int(GIBI)  # bytes


@dataclass(frozen=True)
class Tokens:
    """Batches by step. `text` is None for the synthetic language."""

    vocab: int
    sequences: int
    seq: int
    seed: int
    text: Tensor | None = None

    def batch(self, step: int) -> Tensor:
        """The sequences of one step, each one token longer, for the targets."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        if self.text is not None:
            last = self.text.numel() - self.seq - 1
            starts = torch.randint(0, last + 1, (self.sequences,), generator=generator)
            return torch.stack([self.text[s : s + self.seq + 1] for s in starts.tolist()]).long()
        shape = (self.sequences, self.seq + 1)
        drawn = torch.randint(0, self.vocab, shape, generator=generator)
        noisy = torch.rand(shape, generator=generator) < NOISE
        ids = drawn.clone()
        for place in range(1, self.seq + 1):
            walked = (5 * ids[:, place - 1] + 3) % self.vocab
            ids[:, place] = torch.where(noisy[:, place], drawn[:, place], walked)
        return ids


def read_text(path: Path, vocab: int, seq: int) -> Tensor:
    """The bytes of a file as tokens."""
    where = printable(str(path))
    if vocab < BYTE_VALUES:
        raise BadInput(f"--text {where}: bytes need a vocabulary of 256, and the model has {vocab}")
    raw = read_file(path, MOST_TEXT)
    if len(raw) <= seq + 1:
        raise BadInput(f"--text {where}: {len(raw)} bytes are less than a sequence of {seq}")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)
