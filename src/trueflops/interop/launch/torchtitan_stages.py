"""torchtitan's pipeline: schedules by the names of torch.distributed.pipelining, stages by weight.

Embedding and head count as so many layers, and stages share what that makes evenly, so that the
first and last hold as many layers less (distributed/pipeline_parallel.py, of 0.2.2 and 0.3.0).
"""

from __future__ import annotations

from math import ceil
from typing import Any, Final

from trueflops.errors import BadInput
from trueflops.interop.launch.settings import Asked, Said, Settings, refused
from trueflops.language import say
from trueflops.model import Model

_P: Final = "parallelism.pipeline_parallel_"
_SCHEDULES: Final = {"1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "1f1b"}
_ENDS: Final = (f"{_P}first_stage_less_layers", f"{_P}last_stage_less_layers")


def stage_settings(tool: str, asked: Asked) -> Settings:
    """Schedule, stages and micro-batches."""
    plan, layers = asked.plan, asked.model.layers
    if plan.pp == 1:
        return {}
    if plan.schedule not in _SCHEDULES.values():
        own = "--schedule 1f1b or gpipe is (its zero-bubble schedules need two stages a rank)"
        raise refused(tool, "schedule", plan.schedule, own)
    name = "GPipe" if plan.schedule == "gpipe" else "1F1B"
    pieces = int(plan.pp * plan.vpp)
    if plan.vpp > 1 and (layers % pieces or plan.first_stage_layers or plan.last_stage_layers):
        raise BadInput(
            f"--emit {tool}: interleaved stages are of equally many layers there, and {layers} in "
            f"{pieces} pieces are not; take another --vpp, or --emit megatron"
        )
    less = _less(tool, asked)
    return {
        f"{_P}schedule": name if plan.vpp == 1 else f"Interleaved{name}",
        f"{_P}microbatch_size": int(plan.micro_batch),
        f"{_P}layers_per_stage": layers // pieces if plan.vpp > 1 else None,
        **dict(zip(_ENDS, less, strict=True)),
    }


def _less(tool: str, asked: Asked) -> tuple[int, int]:
    """How many layers fewer than the others the ends hold; they cannot hold more."""
    plan = asked.plan
    if not plan.first_stage_layers and not plan.last_stage_layers:
        # A remainder goes past the first stage (predict/training/stages.py): one layer less there.
        return int(0 < asked.model.layers % int(plan.pp * plan.vpp) < plan.pp - 1), 0
    ends = [int(n) for n in (plan.first_stage_layers, plan.last_stage_layers)]
    between = int(plan.pp) - sum(1 for n in ends if n)
    rest = asked.model.layers - sum(ends)
    each = rest // between if between else max(ends)
    less = tuple(each - n if n else 0 for n in ends)
    if (between and rest % between) or min(less) < 0:
        raise BadInput(
            say(
                "--emit {tool}: stages of {first} first and {last} last layers cannot "
                "be said there: the ends hold as many as the equal ones between, or "
                "fewer",
                tool=tool,
                first=ends[0],
                last=ends[1],
            )
        )
    return less[0], less[1]


def read_stages(said: Said, model: Model, stages: int) -> dict[str, Any]:
    """Fields of a plan: schedule, interleaving, layers of the ends."""
    name = f"{_P}schedule"
    schedule = said.choice(name, _SCHEDULES, "1F1B")
    less = [said.whole(key, 1) for key in _ENDS]
    each = said.whole(f"{_P}layers_per_stage", 0)
    if stages == 1:
        return {"schedule": "1f1b", "vpp": 1, "first_stage_layers": 0, "last_stage_layers": 0}
    looped = said.get(name) == "Interleaved1F1B"
    pieces = ceil((model.layers + sum(less)) / each) if each else stages * (2 if looped else 1)
    if pieces % stages:
        raise said.wrong(
            f"{_P}layers_per_stage", say("what fills {stages} ranks evenly", stages=stages)
        )
    first, last = _ends(model.layers, pieces, less)
    remainder = less == [1, 0] and 0 < model.layers % pieces < pieces - 1
    even = pieces > stages or not any(less) or remainder
    return {
        "schedule": schedule,
        "vpp": pieces // stages,
        "first_stage_layers": 0 if even or not less[0] else first,
        "last_stage_layers": 0 if even or not less[1] else last,
    }


def _ends(layers: int, pieces: int, less: list[int]) -> tuple[int, int]:
    """Layers of the first and the last piece; the first pieces take what does not divide."""
    whole, over = divmod(layers + sum(less), pieces)
    return whole + (over > 0) - less[0], whole - less[1]
