"""Ranks of a run: started by torchrun on this machine, or found, where a launcher started us.

In: the command line. Out: the exit code of all ranks together. torchrun, srun and mpirun say in the
environment who a rank is (RANK, or SLURM_PROCID with SLURM_NTASKS). Needs no torch.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from trueflops.errors import BadInput
from trueflops.language import say

PATIENCE = 600
"""Seconds that torchrun gives ranks after Ctrl-C, to finish their step and save it."""
_SLURM = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}


def need_torch() -> None:
    """Say which extra is missing, before anything is started."""
    if importlib.util.find_spec("torch") is None:
        raise BadInput(say("run needs torch: pip install 'trueflops[run]'"))


def is_rank() -> bool:
    """Whether a launcher has started this process as one rank; Slurm's words become torch's."""
    if "RANK" not in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
            raise BadInput(
                say(
                    "srun started these ranks, but MASTER_ADDR and MASTER_PORT are not set; export "
                    "the first node's name and a free port before srun"
                )
            )
        os.environ |= {ours: os.environ[theirs] for ours, theirs in _SLURM.items()}
    return "RANK" in os.environ


def check_world(world: int) -> None:
    """A launcher must have started as many ranks as the plan has."""
    there = int(os.environ.get("WORLD_SIZE", "1"))
    if there != world:
        raise BadInput(
            say(
                "the plan has {world} ranks, and the launcher started {there}",
                world=world,
                there=there,
            )
        )


def start(words: Sequence[str], engine: str, ranks: int, restarts: int) -> int:
    """Run ourselves under torchrun, so many times on this machine.

    Ctrl-C reaches the ranks by the terminal; a SIGTERM to us alone, as of `kill` or a scheduler, is
    passed on to torchrun.

    `engine` is the plan's: what a death loses depends on it.
    """
    command = [
        sys.executable, "-m", "trueflops.run.agent", engine, "--standalone",
        f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", "--monitor-interval=0.2",
        f"--shutdown-timeout={PATIENCE}",
        "-m", "trueflops", "run", *words,
    ]  # fmt: skip
    share = max((os.cpu_count() or 1) // ranks, 1)
    usual = {
        "OMP_NUM_THREADS": str(share),
        "TORCHELASTIC_ERROR_FILE": os.devnull,
        # A store of its own for every start: in a shared one ranks that are started again may find
        # the addresses of those that died (elastic/rendezvous/
        # dynamic_rendezvous.py, _create_tcp_store_server).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    if sys.platform.startswith("linux"):
        usual["GLOO_SOCKET_IFNAME"] = "lo"  # all ranks are here, whatever this host's name means
    process = subprocess.Popen(command, env=usual | dict(os.environ))
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # the terminal told torchrun as well, which tells the ranks
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGTERM, before)
