"""Plans: impossible ones are refused with a code, the rule and what would fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trueflops.errors import ImpossiblePlan, UnknownName
from trueflops.model import read_model
from trueflops.plan import Plan, check_plan, possible
from trueflops.workload import Training

LLAMA, MIXTRAL, LITE, PHI = (
    read_model(n) for n in ("Llama-3.1-70B", "Mixtral-8x7B", "DeepSeek-V2-Lite", "Phi-4")
)
ASKED = Training(seq=8192, global_batch=512, tokens=1e12)


@pytest.mark.parametrize(
    ("fields", "code", "advice"),
    [
        ({"tp": 6}, "TP_HEADS", "tp 6 does not divide 64 heads; try 1, 2, 4 or 8"),
        ({"tp": 8, "dp_shard": 4}, "WORLD", "try dp 8"),
        ({"cp": 3}, "WORLD", "does not divide the 64"),
        ({"tp": 8, "pp": 8, "vpp": 11}, "PP_LAYERS", "80 layers"),
        ({"vpp": 2, "dp_shard": 64}, "VPP_NEEDS_PP", "pp of at least 2"),
        ({"ep": 2, "dp_shard": 64}, "DENSE_EP", "no experts"),
        ({"dp_shard": 64, "micro_batch": 3}, "BATCH", "try a micro batch of 1, 2, 4 or 8"),
        ({"tp": 0}, "POSITIVE", "at least 1"),
        ({"tp": 2.5}, "POSITIVE", "whole number"),
        ({"zero": 4, "dp_shard": 64}, "ZERO_STAGE", "0, 1, 2 and 3"),
        ({"offload_optimizer": 1.5, "dp_shard": 64}, "OFFLOAD_FRACTION", "between 0 and 1"),
        ({"tp": 8, "dp_replicate": 8, "engine": "dataparallel"}, "ENGINE", "only replicates"),
        ({"pp": 4, "dp_shard": 16, "schedule": "zb-h1", "vpp": 2}, "SCHEDULE", "try 1f1b"),
        ({"tp": 8, "pp": 4, "vpp": 2, "dp_shard": 2, "micro_batch": 128}, "INTERLEAVING", "vpp 1"),
    ],
)
def test_a_dense_plan_is_refused_with_code_and_advice(
    fields: dict[str, Any], code: str, advice: str
) -> None:
    with pytest.raises(ImpossiblePlan) as refused:
        check_plan(Plan(**fields), LLAMA, 64, ASKED)
    assert refused.value.code == code
    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("model", "fields", "code", "advice"),
    [
        (
            LITE,
            {"ep": 6, "dp_shard": 64},
            "EP_EXPERTS",
            "ep 6 does not divide 64 experts; try 1, 2, 4 or 8",
        ),
        (MIXTRAL, {"tp": 2, "dp_shard": 32, "ep": 8}, "MOE_TP_NEEDS_SP", "--sp"),
        (PHI, {"tp": 4, "dp_shard": 16}, "TP_KV_HEADS", "10 key/value heads; try 1 or 2"),
        (MIXTRAL, {"ep": 8, "pp": 16, "dp_shard": 4}, "EP_WORLD", "must divide"),
        (MIXTRAL, {"etp": 3, "dp_shard": 64}, "ETP_FFN", "columns of an expert"),
    ],
)
def test_a_routed_plan_is_refused_with_code_and_advice(
    model: Any, fields: dict[str, Any], code: str, advice: str
) -> None:
    with pytest.raises(ImpossiblePlan) as refused:
        check_plan(Plan(**fields), model, 64, ASKED)
    assert refused.value.code == code
    assert advice in str(refused.value)


def test_sequence_rules() -> None:
    with pytest.raises(ImpossiblePlan) as refused:
        check_plan(Plan(cp=4, dp_shard=16), LLAMA, 64, Training(1001, 512, 1e12))
    assert refused.value.code == "SEQUENCE"


def test_key_value_heads_may_be_repeated() -> None:
    check_plan(Plan(tp=16), LLAMA, 16)
    check_plan(Plan(tp=16, dp_shard=4), LLAMA, 64, ASKED)


def test_the_mask_agrees_with_the_check() -> None:
    rng = np.random.default_rng(0)
    many = Plan(
        tp=rng.choice([1.0, 2, 3, 4, 8, 16], 400),
        pp=rng.choice([1.0, 2, 4, 7], 400),
        dp_shard=rng.choice([1.0, 2, 4, 8, 16], 400),
        vpp=rng.choice([1.0, 2], 400),
        micro_batch=rng.choice([1.0, 2, 3], 400),
        sp=True,
    )
    mask = possible(many, LLAMA, 64, ASKED)
    assert 0 < mask.sum() < 400
    for i in range(400):
        try:
            check_plan(many.pick(i), LLAMA, 64, ASKED)
            fine = True
        except ImpossiblePlan:
            fine = False
        assert fine == mask[i]


def test_an_unknown_optimizer_is_named() -> None:
    with pytest.raises(UnknownName, match="adamw"):
        _ = Plan(optimizer="adamv").state_bytes
