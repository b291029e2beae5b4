"""megatron-core's pipeline: which layers each stage, or each of its interleaved pieces, has.

Even stages need no word; ends of their own are two numbers, or one layer less for the embedding and
the loss (--account-for-…-in-pipeline-split); all else is a layout, one word a piece in layer order:
"Et*3|t*4|…|t*3L" (transformer/pipeline_parallel_layer_layout.py). A layout excludes the others, and
says by itself how often stages are interleaved (training/arguments.py, validate_args).
"""

from __future__ import annotations

import re
from typing import Any, Final

from trueflops.errors import BadInput
from trueflops.interop.launch.settings import Asked, Said, Settings
from trueflops.language import mark, say
from trueflops.plan.pieces import deal

FIRST: Final = "model.num_layers_in_first_pipeline_stage"
LAST: Final = "model.num_layers_in_last_pipeline_stage"
LAYOUT: Final = "model.pipeline_model_parallel_layout"
VPP: Final = "model.virtual_pipeline_model_parallel_size"
_COUNTED: Final = tuple(
    f"model.account_for_{end}_in_pipeline_split" for end in ("embedding", "loss")
)


def stage_settings(tool: str, asked: Asked) -> Settings:
    """Interleaving, and layers of the ends, or a layout where flags cannot say it."""
    plan, layers = asked.plan, asked.model.layers
    pp, vpp = int(plan.pp), int(plan.vpp)
    ends = [int(n) for n in (plan.first_stage_layers, plan.last_stage_layers)]
    between = pp - sum(1 for n in ends if n)
    said: Settings = {VPP: vpp if vpp > 1 else None, LAYOUT: None}
    if vpp == 1 and (not between or (layers - sum(ends)) % between == 0):
        return said | {FIRST: ends[0] or None, LAST: ends[1] or None}
    if not any(ends) and layers % (pp * vpp) == 0:
        return said | {FIRST: None, LAST: None}
    if len(asked.stages) != pp * vpp:
        raise BadInput(
            say(
                "--emit {tool}: {layers} layers are not even over pp {pp:g}",
                tool=tool,
                layers=layers,
                pp=plan.pp,
            )
        )
    layout = "|".join(f"t*{count}" if count else "" for count in asked.stages)
    return said | {FIRST: None, LAST: None, LAYOUT: f"E{layout}L"}


def read_stages(said: Said, layers: int, stages: int) -> dict[str, Any]:
    """Interleaving and the layers of the ends, by themselves or in a layout."""
    counted = [int(said.switch(key)) for key in _COUNTED]
    vpp = said.whole(VPP, 1)
    if (layout := said.get(LAYOUT)) is not None:
        return _read_layout(said, str(layout), layers, stages)
    ends = [said.whole(FIRST, 0), said.whole(LAST, 0)]
    if any(counted) and stages > 1:
        each = (layers + sum(counted)) // stages
        if each * stages != layers + sum(counted):
            key = next(key for key, one in zip(_COUNTED, counted, strict=True) if one)
            meant = say(
                "true where it makes {layers} layers even over {stages} stages",
                layers=layers,
                stages=stages,
            )
            raise said.wrong(key, meant)
        ends = [each - 1 if one else 0 for one in counted]
    return _fields(vpp, *ends)


def _read_layout(said: Said, layout: str, layers: int, stages: int) -> dict[str, Any]:
    """The ends with which as many layers are dealt out, whichever stage between has one more."""
    whole = re.sub(r"\(([^)]+)\)\*(\d+)", _repeated, layout.replace(",", ""))
    counts = [re.sub(r"(.)\*(\d+)", _repeated, piece).count("t") for piece in whole.split("|")]
    if len(counts) % stages:
        raise said.wrong(LAYOUT, say("pieces for each of {stages} stages", stages=stages))
    if sum(counts) != layers:
        meant = say("one of {layers} layers, not {counted}", layers=layers, counted=sum(counts))
        raise said.wrong(LAYOUT, meant)
    vpp = len(counts) // stages
    held = _by_stage(counts, stages)
    for first, last in ((0, 0), (held[0], 0), (0, held[-1]), (held[0], held[-1])):
        dealt = _by_stage(deal(layers, stages, vpp, first, last), stages)
        if (held[0], sorted(held), held[-1]) == (dealt[0], sorted(dealt), dealt[-1]):
            return _fields(vpp, first, last)
    raise said.wrong(LAYOUT, mark("stages that are even but for the first and the last"))


def _fields(vpp: int, first: int, last: int) -> dict[str, Any]:
    return {"vpp": vpp, "first_stage_layers": first, "last_stage_layers": last}


def _by_stage(counts: list[int], stages: int) -> list[int]:
    """Layers of each stage, whose pieces lie in a loop."""
    return [sum(counts[stage::stages]) for stage in range(stages)]


def _repeated(found: re.Match[str]) -> str:
    return found[1] * int(found[2])
