"""How an engine runs requests: what it may fill, what one step takes in, which come first.

In: an engine's name. Out: an Engine, the defaults of its release as data/engines.toml states them
with their sources; any of them can be set by whoever deploys it. What its kernels and its host cost
is a framework's business (frameworks.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from trueflops.catalog.facts import read_toml

_DATA: Final = Path(__file__).parent / "data" / "engines.toml"
USUAL: Final = "serving"  # where none is named, or nothing is known of it

Policy = Literal["mixed", "prefill-first"]
"""Mixed: a step takes the tokens of requests that write, and prompts as far as its budget goes.
Prefill-first: while there is room for a waiting prompt it is read, and those that write wait."""


@dataclass(frozen=True)
class Engine:
    """Settings of one deployment of an engine."""

    name: str
    memory_share: float  # of the accelerator's memory that it may fill
    block: int  # tokens of the KV cache that are given out together
    step_tokens: int  # that one step takes in at most, or one pass over prompts
    most_sequences: int  # that run at once in a replica
    policy: Policy
    chunked: bool  # whether a prompt may be read in parts
    source: str

    def but(self, **changes: Any) -> Engine:
        """The same engine, otherwise set."""
        return replace(self, **changes)


@cache
def engine_of(name: str) -> Engine:
    """The defaults of an engine by its name; of one that is not described, those of most."""
    described = read_toml(_DATA)
    said = described[USUAL] | described.get(name, {})
    return Engine(name=name, **said)
