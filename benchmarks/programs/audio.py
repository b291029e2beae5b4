"""Speech and sound: whisper, wav2vec2, HuBERT, a WaveNet and a Conformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    HubertConfig,
    HubertForSequenceClassification,
    Wav2Vec2Config,
    Wav2Vec2ForSequenceClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)  # fmt: skip

from programs.kit import Step, fused, made, noise, program, tokens, training

BF16 = torch.bfloat16


@program("whisper")
def whisper_base() -> Step:
    """Thirty seconds of sound each, vocabulary of 51865, bf16 autocast."""
    config = WhisperConfig(
        vocab_size=51865, d_model=512, encoder_layers=6, decoder_layers=6, use_cache=False,
        encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
    )  # fmt: skip
    model = made(WhisperForConditionalGeneration, config)
    sound, labels = noise(16, 80, 3000), tokens(50000, 16, 128)
    return training(
        model.parameters(), lambda: model(input_features=sound, labels=labels).loss, mixed=BF16
    )


@program("wav2vec")
def wav2vec2_base() -> Step:
    """Ten seconds of sound each through strided 1-D convolutions and a transformer."""
    config = Wav2Vec2Config(mask_time_prob=0.0, apply_spec_augment=False, layerdrop=0.0)
    model = made(Wav2Vec2ForSequenceClassification, config)
    sound, labels = noise(8, 160000), tokens(2, 8)
    return training(
        model.parameters(), lambda: model(input_values=sound, labels=labels).loss, mixed=BF16
    )


@program("wav2vec")
def hubert_fp32() -> Step:
    """HuBERT-base on two seconds of sound each, in fp32."""
    config = HubertConfig(mask_time_prob=0.0, apply_spec_augment=False, layerdrop=0.0)
    model = made(HubertForSequenceClassification, config)
    sound, labels = noise(8, 32000), tokens(2, 8)
    return training(
        model.parameters(), lambda: model(input_values=sound, labels=labels).loss, fused
    )


class Wave(nn.Module):
    """WaveNet of van den Oord et al. 2016: gated causal convolutions of growing dilation."""

    def __init__(self, width: int = 64, skips: int = 256, cycles: int = 2, depth: int = 9) -> None:
        super().__init__()
        self.steps = [2**i for _ in range(cycles) for i in range(depth)]
        self.first = nn.Conv1d(256, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=d) for d in self.steps)
        self.kept = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in self.steps)
        self.out = nn.ModuleList(nn.Conv1d(width, skips, 1) for _ in self.steps)
        self.last = nn.Sequential(
            nn.ReLU(), nn.Conv1d(skips, skips, 1), nn.ReLU(), nn.Conv1d(skips, 256, 1)
        )

    def forward(self, levels: Tensor) -> Tensor:
        """Scores of the next of 256 levels, at every moment."""
        x = self.first(functional.one_hot(levels, 256).transpose(1, 2).float())
        total = torch.zeros((), device=x.device)
        layers = zip(self.steps, self.gates, self.kept, self.out, strict=True)
        for step, gate, kept, out in layers:
            signal, opened = gate(functional.pad(x, (step, 0))).chunk(2, 1)
            made = torch.tanh(signal) * torch.sigmoid(opened)
            total = total + out(made)
            x = x + kept(made)
        return self.last(total)


@program("wavenet")
def wavenet() -> Step:
    """One second of sound at 16 kHz each, in fp32."""
    model, sound = made(Wave), tokens(256, 4, 16000)
    return training(
        model.parameters(), lambda: functional.cross_entropy(model(sound), sound)
    )  # fmt: skip


class Conformer(nn.Module):
    """A block of Gulati et al. 2020: half a feed-forward, attention, convolution, half again."""

    def __init__(self, width: int = 256, heads: int = 4, side: int = 31) -> None:
        super().__init__()
        self.before, self.after = (
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Dropout(0.1),
                nn.Linear(4 * width, width), nn.Dropout(0.1),
            )
            for _ in range(2)
        )  # fmt: skip
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, 0.1, batch_first=True)
        self.ahead = nn.LayerNorm(width)
        self.convolved = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1), nn.GLU(1),
            nn.Conv1d(width, width, side, padding=side // 2, groups=width),
            nn.BatchNorm1d(width), nn.SiLU(), nn.Conv1d(width, width, 1), nn.Dropout(0.1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Four residual parts."""
        x = x + 0.5 * self.before(x)
        seen = self.norm(x)
        x = x + self.attention(seen, seen, seen, need_weights=False)[0]
        x = x + self.convolved(self.ahead(x).transpose(1, 2)).transpose(1, 2)
        return self.last(x + 0.5 * self.after(x))


class Speech(nn.Module):
    """Mel bands to letters: two strided convolutions, Conformer blocks, a head."""

    def __init__(self, width: int = 256, depth: int = 12, letters: int = 1024) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(1, width, 3, 2), nn.ReLU(), nn.Conv2d(width, width, 3, 2), nn.ReLU()
        )
        self.project = nn.Linear(width * 19, width)
        self.blocks = nn.Sequential(*(Conformer(width) for _ in range(depth)))
        self.head = nn.Linear(width, letters)

    def forward(self, mel: Tensor) -> Tensor:
        """Log-probabilities, a quarter of the frames."""
        x = self.first(mel.unsqueeze(1)).transpose(1, 2).flatten(2)
        return self.head(self.blocks(self.project(x))).float().log_softmax(-1)


@program("conformer")
def conformer() -> Step:
    """Sixteen seconds of mel bands each, bf16 autocast, CTC loss."""
    model, mel, letters = made(Speech), noise(16, 1600, 80), tokens(1000, 16, 64) + 1
    frames = torch.full((16,), 399, device="cuda", dtype=torch.long)
    lengths = torch.full((16,), 64, device="cuda", dtype=torch.long)

    def loss() -> Tensor:
        return functional.ctc_loss(model(mel).transpose(0, 1), letters, frames, lengths)

    return training(model.parameters(), loss, mixed=BF16, clip=1.0)
