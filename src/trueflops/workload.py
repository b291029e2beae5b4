"""What is asked: train on so many tokens, or serve requests of these lengths."""

from __future__ import annotations

from dataclasses import dataclass

from trueflops.errors import BadInput
from trueflops.language import say


@dataclass(frozen=True)
class Training:
    """`global_batch` sequences of `seq` tokens a step, until `tokens` have been seen.

    >>> import trueflops as tf
    >>> tf.Training(seq=8192, global_batch=512, tokens=1e12).tokens_per_step
    4194304
    """

    seq: int
    global_batch: int
    tokens: float

    def __post_init__(self) -> None:
        """Refuse what is not a workload."""
        for name in ("seq", "global_batch", "tokens"):
            if getattr(self, name) < 1:
                raise BadInput(say("{name} must be at least 1", name=name.replace("_", " ")))

    @property
    def tokens_per_step(self) -> int:
        """Tokens between two updates of the weights."""
        return self.seq * self.global_batch


@dataclass(frozen=True)
class Serving:
    """`concurrency` requests in flight, each `input` tokens to read and `output` to write.

    A benchmark sends the first `concurrency` of them at once, and these queue for their prefill;
    each later one is sent when another ends. `waves` is how many times `concurrency` requests are
    sent in all (usually ten): the queue of the first wave, averaged over all, is the mean wait.

    >>> import trueflops as tf
    >>> tf.Serving(input=1024, output=256, concurrency=64).context
    1280
    """

    input: int
    output: int
    concurrency: int
    waves: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what is not a workload."""
        for name in ("input", "output", "concurrency", "waves"):
            if getattr(self, name) < 1:
                raise BadInput(say("{name} must be at least 1", name=name))

    @property
    def context(self) -> int:
        """Tokens of one request when it ends: what the KV cache must be able to hold."""
        return self.input + self.output
