"""Checkpoints as llama.cpp is told of them: a repository of the hub, or a drafter's file."""

from __future__ import annotations

from typing import Final

from trueflops.errors import BadInput, printable, shorten
from trueflops.language import say
from trueflops.model import known_model, read_model
from trueflops.model.checkpoints import format_in

REPOSITORIES: Final = (
    "hf-repo", "hf", "hfr", "spec-draft-hf", "hfd", "hfrd", "hf-repo-draft",
)  # fmt: skip
"""Flags that name a repository."""
USUAL: Final = "Q4_K_M"  # -hf <user>/<model>[:quant] of common/arg.cpp, without a quant


def in_hub(repository: str) -> str:
    """A repository with the format that is taken of it.

    One without the usual format is taken as what it holds: models that are released narrow, as
    GPT-OSS in MXFP4, are stored as released.
    """
    known = None if format_in(repository) else known_model(repository)
    narrow = known is not None and read_model(known).released.format.startswith("mxfp4")
    said = repository.startswith("$") or ":" in repository or format_in(repository) or narrow
    return repository if said else f"{repository}:{USUAL}"


def drafter_in(checkpoint: str, what: str, asked_for: bool) -> str:
    """The drafter that a flag names; of a file its name. `asked_for`: nothing else names it."""
    if not checkpoint.casefold().endswith(".gguf"):
        return checkpoint
    name = checkpoint.replace("\\", "/").rpartition("/")[2]
    if asked_for and known_model(name) is None:
        raise BadInput(
            say(
                "{what} {value}: the file's name tells of no known model; write the one that "
                "drafts beside --from: --speculate draft --draft-model NAME",
                what=what,
                value=shorten(printable(checkpoint)),
            )
        )
    return name
