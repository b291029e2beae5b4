"""Ranks that carry out a plan, each a process, as torchrun would start them on one machine.

They are forked from a server that has loaded torch already.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import sys
import time
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from patience import HUNG
from trueflops.model import Model, read_model
from trueflops.plan import Plan
from trueflops.run.as_run import as_run
from trueflops.run.job import Job, check_job
from trueflops.run.ran import Ran
from trueflops.workload import Training

SMALL: Final = Training(seq=16, global_batch=8, tokens=1e4)
SIZES: Final = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "llama": {"model_type": "llama", "num_hidden_layers": 4, **SIZES},
    "mixtral": {
        "model_type": "mixtral", "num_hidden_layers": 2, "num_local_experts": 4,
        "num_experts_per_tok": 2, **SIZES,
    },
    "gpt2": {
        "model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 64,
        "vocab_size": 64,
    },
}  # fmt: skip


def model_of(name: str, folder: Path, **sizes: int) -> Model:
    """One of the tiny models, with other sizes where these are given."""
    path = folder / name / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(CONFIGS[name] | sizes))
    return read_model(str(path.parent))


def job_of(model: Model, plan: dict[str, Any], work: Training = SMALL, **more: Any) -> Job:
    """A few steps in fp32."""
    wide = dict.fromkeys(("compute", "parameter_dtype", "gradient_dtype"), "fp32")
    asked, _ = as_run(Plan(**({"micro_batch": 2} | wide | plan)))
    job = Job(model=model, plan=asked, workload=work, **more)
    check_job(job)
    return job


def run(job: Job, dies_at: int = 0) -> Ran:
    """Carry a job out; where `dies_at` is given the last rank dies before that step."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "trueflops.run.loop"])
    # On any free port, which the ranks are told: torchrun does the same.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    answers, world = context.Queue(), job.processes
    ranks = [
        context.Process(target=_rank, args=(rank, job, store.port, dies_at, answers))
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    answer = _answer(ranks, answers)
    for process in ranks:
        process.join(5.0 if isinstance(answer, Ran) else 0.1)
        process.kill()
    if not isinstance(answer, Ran):
        raise AssertionError(answer)
    return answer


def _answer(ranks: list[Any], answers: Any) -> Any:
    """What a rank had to say, or that one died."""
    until = time.monotonic() + HUNG
    while time.monotonic() < until:
        try:
            return answers.get(timeout=0.5)
        except queue.Empty:
            died = [r for r, process in enumerate(ranks) if process.exitcode]
            if died:
                return f"rank {died[0]} died"
    return "the ranks hung"


def _rank(rank: int, job: Job, port: int, dies_at: int, answers: Any) -> None:
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    world = job.processes
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": loopback,
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # it is there: no rank opens one
    }  # fmt: skip
    from trueflops.run.loop import run_job
    from trueflops.run.mesh import join

    torch.set_num_threads(1)

    def say(step: Any) -> None:
        if dies_at and rank == world - 1 and step.step == dies_at - 1:
            os._exit(3)

    try:
        join("cpu")
        ran = run_job(job, torch.device("cpu"), say)
    except Exception as error:
        answers.put(f"rank {rank}: {type(error).__name__}: {error}")
        raise
    if rank == 0:
        answers.put(ran)
    dist.barrier()
    dist.destroy_process_group()
