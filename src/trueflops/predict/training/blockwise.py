"""Optimizers whose moments are 8 bits wide, 256 to a scale: bitsandbytes' (arXiv 2110.02861).

Each moment is looked up, changed, and found again among 256 values that are no even steps: a binary
search (csrc/kernels.cu, kOptimizerStatic8bit2StateBlockwise, …1State…), which takes longer than the
bytes that it saves. The Trainer keeps moments of embeddings in 32 bits (transformers/trainer.py,
create_optimizer: register_module_override of every nn.Embedding, optim_bits 32); of flat pieces it
cannot tell which they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from trueflops.clock import Clock
from trueflops.plan import BYTES, ONE_8BIT
from trueflops.predict.training.memory import Held
from trueflops.sizes import Size

CYCLES: Final = MappingProxyType({1: 4.0, 2: 6.8})
"""Of a multiprocessor for each weight, by its moments, at the clock of the datasheet: what an H200
takes for 1.2 and 3.2 billion, in fp32 and in bf16 within 2 % (truth/h200/bitsandbytes.csv)."""


@dataclass(frozen=True)
class Blockwise:
    """What 8-bit moments add to those of the plan."""

    moments: int
    wide_tables: Any  # where moments of embeddings stay in 32 bits, plan by plan

    def _of_tables(self, held: Held) -> Size:
        """This rank's weights whose moments do."""
        return self.wide_tables * held.embedding * held.states / np.maximum(held.all, 1.0)

    def state_bytes(self, held: Held) -> Size:
        """Beside those of the plan."""
        return self._of_tables(held) * self.moments * (BYTES["fp32"] - ONE_8BIT)

    def seconds(self, clock: Clock, held: Held, kept: Size) -> Size:
        """To find all moments again of what is `kept` on the device: the shortest update."""
        searched = np.maximum(held.states - self._of_tables(held), 0.0) * kept
        return clock.cycles(searched * CYCLES[self.moments])
