"""Answers as JSON: one object, a schema version, SI units in the key names.

What was asked stands under "question", so that an answer can be fed back as input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, Final

import numpy as np

from trueflops.catalog import Cluster
from trueflops.plan import Plan
from trueflops.plan.words import flags_of, serving_flags
from trueflops.predict import Bill, Estimate, ServingPoint, Term, TrainingStep
from trueflops.predict.money.checkpoint import trained_parameters
from trueflops.predict.serving.point import StagePoint, UsdApart
from trueflops.predict.serving.ranks import fullest_experts
from trueflops.report.waterfall import training_waterfall

SCHEMA_VERSION: Final = 1
_CONSTANTS: Final = {None: "null", True: "true", False: "false"}


def to_json(answer: Mapping[str, Any]) -> str:
    """One JSON object, indented by two spaces."""
    return _text({"schema_version": SCHEMA_VERSION, **answer}, "\n")


def _text(value: Any, line: str) -> str:
    """As json.dumps(value, indent=2, ensure_ascii=False) writes it; infinity becomes null.

    json leaves its C encoder where it shall indent: an answer would spend a tenth of its time
    there. `line` is a line break and the indentation of what encloses the value.
    """
    kind = type(value)  # most values are of these types themselves, and isinstance takes longer
    if kind is float:
        return repr(value) if isfinite(value) else "null"
    if kind is str:
        return _quoted(value)
    if kind is int:
        return repr(value)
    if value is None or kind is bool:
        return _CONSTANTS[value]
    inner = f"{line}  "
    if kind is dict or isinstance(value, Mapping):
        members = [f"{_name(k)}: {_text(v, inner)}" for k, v in value.items()]
        return f"{{{inner}{f',{inner}'.join(members)}{line}}}" if members else "{}"
    if isinstance(value, list | tuple):
        entries = [_text(entry, inner) for entry in value]
        return f"[{inner}{f',{inner}'.join(entries)}{line}]" if entries else "[]"
    if isinstance(value, np.generic | np.ndarray):
        return _text(value.item(), line)
    for plain in (str, int, float):
        if isinstance(value, plain):  # an enum's member
            return _text(plain(value), line)
    raise TypeError(f"{type(value).__name__} has no place in an answer")


# Letters that JSON allows and a terminal obeys: C1 controls, marks of direction, half characters.
_UNSEEN: Final = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


def _quoted(text: str) -> str:
    quoted = encode_basestring(text)
    if text.isascii() and "\x7f" not in text:
        return quoted
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


@lru_cache(maxsize=4096, typed=True)
def _name(key: object) -> str:
    return _quoted(str(key))


def estimate(name: str, of: Estimate | None) -> dict[str, Any]:
    """'step_seconds': {value, low, high, origin}."""
    if of is None:
        return {name: None}
    value, low, high = (float(x) for x in (of.value, of.low, of.high))
    return {name: {"value": value, "low": low, "high": high, "origin": of.origin}}


def term(of: Term) -> dict[str, Any]:
    """A tree; every node names its unit and how its parts combine."""
    whole = of.estimate
    node: dict[str, Any] = {
        "name": of.name,
        of.unit: float(of.value),
        "low": float(whole.low),
        "high": float(whole.high),
        "origin": whole.origin,
    }
    if of.parts:
        node["combine"] = of.combine
        node["parts"] = [term(part) for part in of.parts]
    return node


def plan(of: Plan) -> dict[str, Any]:
    """Every field of a plan; 'all layers' is null."""
    found = {field.name: getattr(of, field.name) for field in fields(of)}
    return {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in found.items()}


def cluster(of: Cluster) -> dict[str, Any]:
    """What the cluster is made of."""
    return {
        "name": of.name,
        "accelerator": of.accelerator.name,
        "nodes": of.nodes,
        "accelerators_per_node": of.per_node,
        "accelerators": of.count,
        "cards": [card.name for card in of.cards],
        "tiers": [
            {
                "name": t.name,
                "reach": None if t.reach == float("inf") else t.reach,
                "bytes_per_second": t.bandwidth,
                "topology": t.topology,
                "origin": t.origin,
                "unconfirmed": t.unconfirmed,
            }
            for t in of.tiers
        ],
    }


def training(question: Mapping[str, Any], step: TrainingStep, bill: Bill) -> dict[str, Any]:
    """A training answer."""
    return {
        "question": dict(question),
        "model": {
            "name": step.model.name,
            "parameters": step.model.parameter_count,
            "active_parameters": step.model.active_parameter_count,
            "trained_parameters": trained_parameters(step.model, step.plan),
        },
        "cluster": cluster(step.cluster),
        "plan": plan(step.plan),
        "plan_flags": flags_of(step.plan),
        "fits": bool(step.fits),
        **estimate("step_seconds", bill.step_seconds),
        **estimate("tokens_per_second", bill.tokens_per_second),
        **estimate("mfu", bill.mfu),
        **estimate("hfu", bill.hfu),
        "flop_convention": "3 x forward matmuls, causal attention, head included, embedding not; "
        "mfu without recomputation, hfu with; against the dense peak",
        "steps": bill.steps,
        **estimate("training_seconds", bill.seconds),
        **estimate("accelerator_hours", bill.accelerator_hours),
        **estimate("cost_usd", bill.usd),
        "price_usd_per_hour": bill.price.usd_per_hour if bill.price else None,
        "price_date": bill.price.date if bill.price else None,
        **estimate("power_watts", bill.watts),
        **estimate("energy_kwh", bill.kwh),
        "capacity_bytes": step.capacity_bytes,
        **estimate("peak_allocated_bytes", step.peak("allocated").estimate),
        **estimate("peak_reserved_bytes", step.peak("reserved").estimate),
        **estimate("peak_device_bytes", step.peak("device").estimate),
        "memory": term(step.memory),
        "step": term(step.step),
        "waterfall": [
            {
                "name": fall.name,
                "flop_per_second": fall.flop_per_second,
                "low": float(fall.rate.low),
                "high": float(fall.rate.high),
                "why": fall.why,
            }
            for fall in training_waterfall(step)
        ],
    }


def usd_apart(of: UsdApart | None) -> dict[str, Any]:
    """Dollars for a million tokens read, and written."""
    return {
        **estimate("usd_per_million_tokens_read", of.read if of else None),
        **estimate("usd_per_million_tokens_written", of.written if of else None),
    }


def stage(of: StagePoint) -> dict[str, Any]:
    """One card of a pipeline of unlike ones."""
    return {
        "accelerator": of.chip.name,
        "layers": of.layers,
        "fits": of.fits,
        "capacity_bytes": of.capacity_bytes,
        "memory": term(of.memory),
        "decode_seconds": of.decode_seconds,
        "prefill_seconds": of.prefill_seconds,
    }


def serving(question: Mapping[str, Any], point: ServingPoint) -> dict[str, Any]:
    """A serving answer."""
    return {
        "question": dict(question),
        "model": {
            "name": point.model.name,
            "parameters": point.model.parameter_count,
            "active_parameters": point.model.active_parameter_count,
        },
        "cluster": cluster(point.cluster),
        "plan": plan(point.plan),
        "plan_flags": serving_flags(point.plan),
        "weights": point.weights.name,
        "kv_cache_bits": point.cache_bits,
        "replicas": point.replicas,
        "requests_per_replica": point.batch,
        "running_requests_per_replica": point.running,
        "waiting_requests_per_replica": point.waiting,
        "most_requests_per_replica": point.most_requests,
        "fits": point.fits,
        "gpu_layers": point.model.layers - (point.offload.layers if point.offload else 0),
        "gpu_layers_that_fit": min(point.layers_that_fit, point.model.layers),
        "host_cpu": point.offload.cpu.name if point.offload and point.offload.cpu else None,
        "stages": [stage(each) for each in point.stages],
        **estimate("ttft_seconds", point.ttft),
        **estimate("tpot_seconds", point.tpot),
        **estimate("tokens_per_second", point.tokens_per_second),
        **estimate("usd_per_million_tokens", point.usd_per_million_tokens),
        **usd_apart(point.usd_apart),
        "price_usd_per_hour": point.price.usd_per_hour if point.price else None,
        **estimate("power_watts", point.watts),
        **estimate("joules_per_token", point.joules_per_token),
        "kv_cache_bytes_per_request": point.cache_bytes_per_request,
        "kv_cache_bytes_per_request_and_accelerator": point.cache_bytes_per_accelerator,
        **estimate("kv_cache_bytes_per_accelerator", point.kv_cache.bytes),
        **estimate("kv_cache_tokens", point.kv_cache.tokens),
        "kv_cache_blocks": point.kv_cache.blocks,
        "kv_cache_block_tokens": point.kv_cache.block,
        "max_model_len": point.kv_cache.length,
        **estimate("maximum_concurrency", point.kv_cache.concurrency),
        "kv_cache_filled": point.cache_filled,
        "experts_busiest_over_mean": fullest_experts(point.model, point.plan, point.running),
        "memory_share": point.engine.share(int(point.plan.tp * point.plan.pp)),
        "capacity_bytes": point.capacity_bytes,
        "memory": term(point.memory),
        "prefill": term(point.prefill),
        "decode": term(point.decode),
    }
