"""The script that starts a plan on each node: a header, variables of the cluster, one command.

In: which program with which words. Out: a bash script that a reader of flags reads back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trueflops.interop.launch.settings import Asked, Said, Settings
from trueflops.plan.words import describe_plan

TORCHRUN: Final = (
    'torchrun --nnodes "$NNODES" --node_rank "$NODE_RANK" --nproc_per_node "$GPUS"'
    ' --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"'
)


def about(asked: Asked, release: str) -> str:
    """Which plan a file holds, for which release."""
    work = asked.workload
    return (
        f"trueflops: {asked.model.name} on {asked.cluster.name} for {release}\n"
        f"{describe_plan(asked.plan)} · seq {work.seq} · global batch {work.global_batch}"
    )


def script(
    asked: Asked,
    release: str,
    command: str,
    words: Sequence[str],
    *,
    before: Sequence[str] = (),
) -> str:
    """A command and its words, one to a line; what follows the script's name comes last."""
    header = "".join(f"# {line}\n" for line in about(asked, release).splitlines())
    lines = [
        "#!/usr/bin/env bash",
        header.rstrip(),
        "# On each node, with NODE_RANK and MASTER_ADDR set; other flags may follow.",
        "set -euo pipefail",
        'HERE=$(dirname "$0")',
        f"NNODES=${{NNODES:-{asked.cluster.nodes}}}",
        f"GPUS=${{GPUS:-{asked.cluster.per_node}}}",
        "NODE_RANK=${NODE_RANK:-0}",
        "MASTER_ADDR=${MASTER_ADDR:-localhost}",
        "MASTER_PORT=${MASTER_PORT:-29500}",
        *before,
    ]
    return "\n".join([*lines, " \\\n  ".join([command, *words, '"$@"'])]) + "\n"


def flags(settings: Settings) -> list[str]:
    """`--key value` for each; a switch that is off is left out."""
    words = []
    for key, value in settings.items():
        flag = "--" + key
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            values = value if isinstance(value, list) else [value]
            words.append(" ".join([flag, *(str(each) for each in values)]))
    return words


def processes(said: Said) -> int | None:
    """How many processes the script starts, where it says so."""
    nodes, each = said.get("nnodes"), said.get("nproc_per_node")
    try:
        return int(nodes) * int(each)
    except (TypeError, ValueError):  # a variable that is set elsewhere
        return None
