"""The plan of a row: degrees as given, the rest from texts that frameworks and papers use.

What a row leaves open is 1, none, or its framework's habit (profile/data/frameworks.toml). Only
where degrees and devices cannot be put together is the row refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from trueflops.catalog import Cluster
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.plan.guesses import layouts
from trueflops.plan.pieces import deal_by_cost
from trueflops.profile.frameworks import habits
from trueflops.records.tables import Row
from trueflops.sizes import divisors
from trueflops.verify.cells import Missing, degree, noted, number, text, whole
from trueflops.verify.training.attention import read_attention
from trueflops.verify.training.cluster import Machine, slices
from trueflops.verify.training.dtypes import read_dtypes
from trueflops.verify.training.recipes import read_graphs, read_recipe
from trueflops.verify.training.scripts import scripted_plan
from trueflops.verify.training.tuning import read_tuning, stated_tuning, usual_recomputation
from trueflops.verify.training.words import (
    dtype_of,
    kind_of_dispatch,
    kind_of_loss,
    offloaded,
    recomputation,
    recomputed_layers,
    sharing_group,
    sharing_stage,
)
from trueflops.verify.training.written import read_written

ACCUMULATION: Final = (
    r"\b(?:grad(?:ient)?[ _-]?acc\w*(?: steps?)?|accum\w*|GAS?|micro_num"
    r"|(?:num_)?micro[ _-]?batches)[ =:]*(\d{1,9})"
)
GLOBAL_BATCH: Final = r"\bGBS[ =:]*(\d{1,9})"
MICRO_BATCH: Final = r"\bMBS[ =:]*(\d{1,9})"
EXPERT_TP: Final = r"\b(?:expert tp|ETP)[ =:]*(\d{1,4})\b"
FIRST_WITH_SP: Final = 2023  # sequence parallelism: Korthikanti et al., May 2022
FIRST_WITH_SHARDED_STATES: Final = 2023  # Megatron-LM's distributed optimizer came late in 2022
FIRST_WITH_LINEAR_LOSS: Final = 2025  # torchtune pull request 2531: LinearCrossEntropyLoss
FIRST_INTERLEAVED: Final = 4
"""Stages of a pipeline. NVIDIA/NeMo-Framework-Launcher, launcher_scripts/conf/training/*/*.yaml: of
20 recipes of decoders with four stages or more 19 have virtual_pipeline_model_parallel_size, 12 of
them with one layer a piece; of five with two stages none has."""
SWAPS_HEADS: Final = re.compile(r"\b(?:context parallel mode a2a|ulysses)\b")
CHUNKED: Final = re.compile(r"liger|cut[- ]?ce|cut cross")
OFFLOADS: Final = re.compile(
    r"zero[- ]?offload|(?:cpu|nvme|optimizer|param\w*)?[-_+ ]*offload.*|zero-?infinity.*"
)
IN_BACKWARD: Final = re.compile(r"optim\w*[ _-]in[ _-](?:the )?(?:bwd|backward)|\blomo\b")
PAGED: Final = re.compile(r"paged[ _-]?(?:adam|lion)")
OPTIMIZER: Final = re.compile(r"adam|sgd|(?<![a-z])lion(?![a-z])|adafactor|optimizer")
NO_OFFLOAD: Final = re.compile(r"\b(?:no|without|w/o) (?:cpu )?offload")
OVERLAPS: Final = re.compile(r"overlap-grad-reduce|overlap_comm(?!\W{1,4}false)")
BLOCKING: Final = re.compile(r"cuda_launch_blocking ?= ?1")


@dataclass(frozen=True)
class Degrees:
    """How a row's accelerators are split, and the batch that they share."""

    tp: int
    pp: int
    cp: int
    dp: int
    micro_batch: int
    global_batch: int


def read_degrees(row: Row, machine: Machine) -> Degrees:
    """Put degrees, devices and batches together; Missing where they contradict each other."""
    tp, pp, cp = (degree(row, column) for column in ("tp", "pp", "cp"))
    devices = machine.devices
    if devices % (tp * pp * cp):
        raise Missing(f"tp {tp} × pp {pp} × cp {cp} does not divide n_devices {devices}")
    dp = devices // (tp * pp * cp)
    micro = whole(row, "micro_batch") or noted(row, MICRO_BATCH) or 0
    batch = whole(row, "global_batch") or noted(row, GLOBAL_BATCH) or 0
    if not batch:
        if not micro:
            raise Missing("global_batch and micro_batch are empty")
        batch = micro * dp * (noted(row, ACCUMULATION) or 1)
    if micro > batch:  # no micro-batch is larger than its batch: the two were swapped
        micro, batch = batch, micro
    if batch < dp and not text(row, "tp") and not text(row, "pp"):
        # No rank is without work: a model is spread until every replica has a sequence.
        spread = layouts(devices // cp, machine.cluster.per_node, whole(row, "layers") or 1)
        tp, pp = next((way for way in spread if devices // (cp * prod(way)) <= batch), (tp, pp))
        dp = devices // (tp * pp * cp)
    if batch < dp:
        empty = [column for column in ("tp", "pp", "cp") if not text(row, column)]
        why = f"{', '.join(empty)} empty: " if empty else ""
        raise Missing(f"{why}more replicas than global_batch has sequences")
    # Cores of one chip share its memory: what they split among them is inside one accelerator.
    for of_core in divisors(machine.cores)[::-1]:
        if tp % of_core == 0 and dp % (machine.cores // of_core) == 0:
            tp, dp = tp // of_core, dp // (machine.cores // of_core)
            break
    else:
        raise Missing(f"tp {tp} and dp {dp} cannot be counted in chips of {machine.cores} cores")
    each = batch // dp
    fitting = [d for d in divisors(each) if d <= max(micro, 1)]
    return Degrees(tp, pp, cp, dp, fitting[-1], batch // dp * dp)


def read_plan(
    row: Row, degrees: Degrees, model: Model, cluster: Cluster, framework: str
) -> tuple[Plan, frozenset[str]]:
    """The plan that a row describes, and which of its fields the row states."""
    year = int(number(row, "year") or 9999)
    notes = text(row, "notes").casefold()
    attention = read_attention(row, framework)
    zero, shard = read_sharding(row, degrees, cluster, framework, year)
    spread = _expert_degrees(row, degrees, model)
    recipe = _recipe(row, degrees, spread["ep"], cluster)
    fields: dict[str, Any] = {
        "tp": degrees.tp,
        "pp": degrees.pp,
        "cp": degrees.cp,
        "cp_kind": "all-to-all" if SWAPS_HEADS.search(notes) else "ring",
        **_dealt(degrees.pp, model, framework),
        "vpp": _interleaved(row, degrees.pp, model.layers, framework),
        "dp_replicate": degrees.dp // shard,
        "dp_shard": shard,
        "zero": zero,
        **spread,
        "micro_batch": degrees.micro_batch,
        "sp": _sequence_parallel(row, degrees.tp, model, framework, year),
        "flash": attention.flash,
        "fused": habits(framework).fused,
        "loss": _stated_loss(row) or _usual_loss(framework, year),
        "implementation": habits(framework).implementation,
        "overlap": habits(framework).overlaps(zero) or OVERLAPS.search(notes) is not None,
        "launch_blocking": BLOCKING.search(notes) is not None,
        **_updated(row, degrees, framework),
        "dispatch": kind_of_dispatch(text(row, "dispatch").casefold()) or "all-to-all",
        **read_written(row, model, framework, flash=attention.flash),
        **_offloaded(row, zero),
        **read_dtypes(row, cluster.accelerator, framework, moe=model.is_moe),
        **_recompute(row, model.layers // degrees.pp, framework),
        **read_tuning(row, zero),
        **scripted_plan(row),
        **recipe,
    }
    return Plan(**fields), stated_fields(row) | frozenset(recipe)


def _recipe(row: Row, degrees: Degrees, ep: int, cluster: Cluster) -> dict[str, Any]:
    """What the recipe of the row's plan sets and the row itself does not; its graphs, by either."""
    split = {name: int(getattr(degrees, name)) for name in ("tp", "pp", "cp", "micro_batch")}
    recipe = read_recipe(row, cluster.accelerator, {**split, "ep": ep})
    own = stated_fields(row)
    found = {field: value for field, value in recipe.items() if field not in own}
    graphs = read_graphs(row)
    if graphs is None or (graphs and recipe.get("cuda_graphs") and not text(row, "cuda_graphs")):
        return found  # a note that there were some leaves to the recipe which
    return {**found, "cuda_graphs": graphs}


def stated_fields(row: Row) -> frozenset[str]:
    """The fields of a plan of which the row says what they were, of those that rows leave out."""
    notes = text(row, "notes").casefold()
    software = f"{text(row, 'framework')} {notes}".casefold()
    said = {
        "gradient_dtype": dtype_of(text(row, "grad_dtype").casefold())
        or "amp" in text(row, "dtype").casefold(),
        "layout": text(row, "tp") or text(row, "pp"),
        "micro_batch": whole(row, "micro_batch") or noted(row, MICRO_BATCH),
        "vpp": text(row, "vpp"),
        "zero": sharing_stage(text(row, "zero_or_fsdp").casefold()) is not None,
        "recompute": recomputation(text(row, "recompute").casefold()) is not None,
        "loss": _stated_loss(row),
        "sp": "sequence parallel" in software,
        "overlap": "overlap" in notes,
        "dispatch": kind_of_dispatch(text(row, "dispatch").casefold()),
    }
    by_row = frozenset(field for field, there in said.items() if there)
    return by_row | stated_tuning(row) | frozenset(scripted_plan(row))


def _stated_loss(row: Row) -> str:
    """The cross-entropy; Liger's and Cut-CE's never have whole logits, FOAK's no fp32 ones."""
    said = kind_of_loss(text(row, "loss_kernel").casefold())
    named = text(row, "framework").casefold()
    if said != "plain" and CHUNKED.search(named):
        return "chunked"
    return said or ("fused" if "foak" in named else "")


def _usual_loss(framework: str, year: int) -> str:
    """That of the framework; torchtune's recipes first had a plain one."""
    if framework == "torchtune" and year >= FIRST_WITH_LINEAR_LOSS:
        return "chunked"
    return habits(framework).loss


def _updated(row: Row, degrees: Degrees, framework: str) -> dict[str, bool]:
    """Whether weights are updated in the backward, and states paged; torchtune's recipes for one
    device do both where nothing else is said (recipes/configs/*/*_full_single_device.yaml and
    *_full_low_memory.yaml: optimizer_in_bwd, bitsandbytes.optim.PagedAdamW).
    """
    notes = text(row, "notes").casefold()
    alone = degrees.dp * degrees.tp * degrees.pp == 1 and not text(row, "peft")
    recipe = framework.startswith("torchtune") and alone and not OPTIMIZER.search(notes)
    at_once = degrees.pp == 1 and degrees.micro_batch * degrees.dp == degrees.global_batch
    return {
        "update_in_backward": at_once and (recipe or IN_BACKWARD.search(notes) is not None),
        "paged_states": recipe or PAGED.search(notes) is not None,
    }


def _offloaded(row: Row, zero: int) -> dict[str, Any]:
    """What is kept in host memory, by its column or by that of the sharing: 'ZeRO-3 + offload'."""
    sharing = text(row, "zero_or_fsdp").casefold()
    there = None if NO_OFFLOAD.search(sharing) else OFFLOADS.search(sharing)
    return offloaded(text(row, "offload").casefold() or (there[0] if there else ""), zero)


def read_sharding(
    row: Row, degrees: Degrees, cluster: Cluster, framework: str, year: int
) -> tuple[int, int]:
    """ZeRO stage and how many replicas share, from texts as 'HSDP' or 'ZeRO-1 group 8'.

    Ranks of a context-parallel group share too: with cp there is something to share at dp 1.
    """
    said = text(row, "zero_or_fsdp").casefold().replace("fsdp=0", "")
    zero = sharing_stage(said)
    if zero is None:
        zero = habits(framework).zero
        if zero == 1 and year < FIRST_WITH_SHARDED_STATES and framework == "megatron":
            zero = 0
    dp = degrees.dp
    if zero == 0 or dp * degrees.cp == 1:
        return 0, 1
    group = dp
    if (sized := sharing_group(said)) is not None:
        group = sized
    elif "slice" in said:
        apart = slices(row)
        group = dp // apart if apart else int(min(dp, cluster.tiers[0].reach))
    elif any(word in said for word in ("hsdp", "hybrid", "intra-node", "mics", "hpz")):
        group = cluster.per_node
    return zero, max(d for d in divisors(dp) if d <= max(group, 1))


def _dealt(pp: int, model: Model, framework: str) -> dict[str, int]:
    """Layers of the first stage and of the last, where a framework deals them out by cost; a stage
    that would have none but the head gets one.
    """
    attention, ffn = model.blocks[0].attention, model.blocks[0].ffn
    if pp == 1 or habits(framework).deals == "evenly" or attention is None or ffn is None:
        return {}
    # models/llama.py, get_block_compute_costs
    layer = 4.0 * attention.heads * attention.head_dim + 3.0 * ffn.width
    dealt = deal_by_cost(model.layers, pp, layer, float(model.vocab))
    return {"first_stage_layers": dealt[0], "last_stage_layers": max(dealt[-1], 1)}


def _interleaved(row: Row, pp: int, layers: int, framework: str) -> int:
    """vpp; some pieces may hold only the embedding or the head, but not most.

    NeMo's recipes interleave pieces of one layer, or a few, from four stages on; the tables of
    Megatron-Bridge say so where they do.
    """
    recipe = framework == "nemo" and "bridge" not in text(row, "framework").casefold()
    if recipe and not text(row, "vpp") and pp >= FIRST_INTERLEAVED and layers % pp == 0:
        return layers // pp
    vpp = degree(row, "vpp") if pp > 1 else 1
    if pp * vpp > 2 * layers:
        raise Missing(f"pp {pp} × vpp {vpp} are more pieces than {layers} layers can fill")
    return vpp


def _expert_degrees(row: Row, degrees: Degrees, model: Model) -> dict[str, Any]:
    """ep, where the model has experts to spread and ranks to spread them over; and how many ranks
    share one of them, where the notes say so.
    """
    if not model.is_moe:
        return {"ep": 1}
    ep, ranks = degree(row, "ep"), degrees.tp * degrees.cp * degrees.dp
    ep = max(d for d in divisors(ranks) if d <= ep)
    etp = noted(row, EXPERT_TP) or 1
    return {"ep": ep, "etp": etp if ranks % (ep * etp) == 0 else 1}


def _sequence_parallel(row: Row, tp: int, model: Model, framework: str, year: int) -> bool:
    if tp == 1:
        return False
    notes = f"{text(row, 'framework')} {text(row, 'notes')}".casefold()
    if model.is_moe or "sequence parallel" in notes.replace("no sequence parallel", ""):
        return True
    if "no sequence parallel" in notes:
        return False
    return habits(framework).sp and year >= FIRST_WITH_SP


def _recompute(row: Row, layers: int, framework: str) -> dict[str, Any]:
    """Kind and layers of a stage; what is selective is the framework's own."""
    kind = recomputation(text(row, "recompute").casefold()) or usual_recomputation(row)
    if kind == "selective":
        return habits(framework).recomputation(layers)
    counted = None
    if kind == "full":
        counted = recomputed_layers(text(row, "recompute").casefold(), layers)
        counted = counted or noted(row, r"recomput\w*\s+(\d{1,9})\s+layers")
    return {"recompute": kind, "recompute_layers": counted or np.inf}
