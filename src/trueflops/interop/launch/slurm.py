"""Slurm: a batch script that starts another tool's run.sh on every node, and back.

https://slurm.schedmd.com/sbatch.html: --nodes, --ntasks-per-node, --gpus-per-node, SLURM_NODEID.
"""

from __future__ import annotations

import re
from typing import Final

from trueflops.interop.launch.settings import Asked, Written
from trueflops.interop.launch.shell import about

NAME: Final = "slurm"
FILE: Final = "train.sbatch"
_STARTED: Final = re.compile(r"(?:bash|sh|source)\s+\S*?([\w.-]+\.sh)\b")
_ASKED: Final = re.compile(r"^#SBATCH\s+--?([\w-]+)[= ](\S+)", re.MULTILINE)


def write(asked: Asked, tool: Written) -> Written:
    """The files of a tool, and the script that submits them: one task a node, all its GPUs."""
    where = asked.cluster
    header = "".join(f"# {line}\n" for line in about(asked, tool.release).splitlines())
    name = re.sub(r"[^\w.-]", "-", asked.model.name)
    text = (
        "#!/usr/bin/env bash\n"
        f"#SBATCH --job-name={name}\n"
        f"#SBATCH --nodes={where.nodes}\n"
        "#SBATCH --ntasks-per-node=1\n"
        f"#SBATCH --gpus-per-node={where.per_node}\n"
        "#SBATCH --exclusive\n"
        "#SBATCH --output=%x-%j.log\n"
        f"{header}"
        "set -euo pipefail\n"
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
        "export MASTER_ADDR MASTER_PORT=29500 NNODES=$SLURM_NNODES\n"
        "# Submitted from its own folder, where run.sh lies too.\n"
        f"srun bash -c 'NODE_RANK=$SLURM_NODEID bash \"$SLURM_SUBMIT_DIR/{tool.start}\"'\n"
    )
    return Written({**tool.files, FILE: text}, f"Slurm and {tool.release}", FILE)


def is_batch(text: str) -> bool:
    """Whether a script is one for sbatch."""
    return "#SBATCH" in text


def starts(text: str) -> str | None:
    """The script that a batch script runs, by name."""
    found = _STARTED.search(text)
    return found[1] if found else None


def processes(text: str) -> int | None:
    """How many GPUs a batch script asks for, where it says so."""
    asked: dict[str, str] = dict(_ASKED.findall(text))
    nodes = asked.get("nodes", asked.get("N", "1"))
    each = asked.get("gpus-per-node", asked.get("gres", "")).rpartition(":")[2]
    return int(nodes) * int(each) if nodes.isdigit() and each.isdigit() else None
