"""Sequences without Hugging Face's attention: recurrent nets, nn.Transformer, Mamba."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import MambaConfig, MambaForCausalLM

from programs.kit import Step, adam, made, noise, program, sgd, tokens, training

BF16 = torch.bfloat16


class Recurrent(nn.Module):
    """A language model of cuDNN's recurrent layers."""

    def __init__(
        self, kind: type[nn.LSTM] | type[nn.GRU], vocabulary: int, width: int, depth: int
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = kind(width, width, depth, dropout=0.2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of the next word."""
        return self.head(self.layers(self.words(ids))[0])


@program("recurrent")
def lstm_language() -> Step:
    """Two layers of 1024 over 256 words in fp32, vocabulary of 33278 (WikiText-2), clipped."""
    model, ids = made(Recurrent, nn.LSTM, 33278, 1024, 2), tokens(33278, 32, 256)
    return training(
        model.parameters(),
        lambda: functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()), sgd, clip=0.25,
    )  # fmt: skip


@program("recurrent")
def gru_bf16() -> Step:
    """Three layers of 512 in bf16 autocast."""
    model, ids = made(Recurrent, nn.GRU, 10000, 512, 3), tokens(10000, 64, 128)
    return training(
        model.parameters(),
        lambda: functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()), adam,
        mixed=BF16,
    )  # fmt: skip


class Sounds(nn.Module):
    """A bidirectional LSTM over frames, one label for the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(80, 256, 3, batch_first=True, bidirectional=True)
        self.head = nn.Linear(512, 35)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the words."""
        return self.head(self.layers(x)[0].mean(1))


@program("recurrent")
def bilstm_classify() -> Step:
    """Commands of one second, fp32."""
    model, frames, labels = made(Sounds), noise(64, 100, 80), tokens(35, 64)
    return training(
        model.parameters(), lambda: functional.cross_entropy(model(frames), labels), adam
    )


class Translate(nn.Module):
    """nn.Transformer with words on both sides (Vaswani et al. 2017, base)."""

    def __init__(self, vocabulary: int = 37000, width: int = 512) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.randn(1, 512, width) * 0.02)
        self.body = nn.Transformer(width, 8, 6, 6, 2048, 0.1, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Scores of the next word of the target."""
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], source.device)
        a = self.words(source) + self.place[:, : source.shape[1]]
        b = self.words(target) + self.place[:, : target.shape[1]]
        return self.head(self.body(a, b, tgt_mask=mask, tgt_is_causal=True))


def translate(batch: int, seq: int, mixed: torch.dtype | None) -> Step:
    """Train on random pairs."""
    model, source, target = made(Translate), tokens(37000, batch, seq), tokens(37000, batch, seq)

    def loss() -> Tensor:
        scores = model(source, target).flatten(0, 1)
        return functional.cross_entropy(scores, target.flatten(), label_smoothing=0.1)

    return training(model.parameters(), loss, adam, mixed=mixed)


@program("nn-transformer")
def transformer_base() -> Step:
    """Sixty-four pairs of 128 words, bf16 autocast."""
    return translate(64, 128, BF16)


@program("nn-transformer")
def transformer_small_batch() -> Step:
    """Four pairs of 64 words in fp32: bound by launches."""
    return translate(4, 64, None)


@program("state-space")
def mamba_slow() -> Step:
    """Mamba without its kernels: the scan is a loop over 128 tokens. Four layers of 768."""
    config = MambaConfig(
        hidden_size=768, num_hidden_layers=4, vocab_size=50280, use_cache=False, use_mambapy=False
    )
    model, ids = made(MambaForCausalLM, config), tokens(50280, 8, 128)
    return training(model.parameters(), lambda: model(input_ids=ids, labels=ids).loss, mixed=BF16)
