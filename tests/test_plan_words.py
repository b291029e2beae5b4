"""A plan in words is a plan in flags: what is printed can be typed back."""

from __future__ import annotations

import pytest

from trueflops.catalog import cluster
from trueflops.cli.arguments import parse
from trueflops.cli.planning import base_plan, given_plan
from trueflops.errors import BadInput
from trueflops.model import read_model
from trueflops.plan import Plan
from trueflops.plan.words import describe_plan, flags_of

PLANS = [
    Plan(),
    Plan(tp=4, sp=True, cp=2, pp=2, vpp=10, dp_shard=4, zero=1),
    Plan(tp=8, sp=False, dp_replicate=8, zero=0),
    Plan(dp_replicate=2, dp_shard=8, zero=3, micro_batch=2),
    Plan(tp=2, sp=True, cp=4, cp_kind="all-to-all", dp_shard=8, zero=1),
    Plan(pp=4, schedule="zb-h1", first_stage_layers=7, last_stage_layers=8, dp_replicate=16),
    Plan(dp_shard=64, zero=1, ep=8, etp=1, dispatch="deduplicated"),
    Plan(tp=2, sp=True, dp_shard=32, zero=1, ep=4, etp=2),
    Plan(dp_shard=64, zero=3, recompute="full", recompute_layers=5),
    Plan(dp_shard=64, zero=1, offload_optimizer=0.5, offload_activations=1.0, offload_to="nvme"),
    Plan(dp_replicate=64, compute="fp8", optimizer="muon", flash=False, overlap=False),
    Plan(dp_replicate=64, compute="fp16", parameter_dtype="fp16", gradient_dtype="fp16"),
    Plan(dp_replicate=64, compute="fp32", parameter_dtype="fp32", gradient_dtype="fp32"),
    Plan(dp_replicate=64, parameter_dtype="fp32", gradient_dtype="bf16", fused=False),
    Plan(dp_shard=64, zero=3, parameter_dtype="fp32", mixed="engine", reduce_bucket=2.5e8),
    Plan(dp_replicate=8, engine="dataparallel"),
    Plan(dp_shard=64, zero=3, recompute="products", loss="fused"),
    Plan(dp_replicate=8, adapters="lora", lora_rank=8, lora_targets="q,v", lora_dropout=0.1),
    Plan(dp_shard=8, zero=3, adapters="qlora", residual_dtype="bf16", adapter_dtype="bf16"),
    Plan(adapters="qlora", base_format="gptq-int4", lora_fused=True, lora_targets="all-linear"),
    Plan(freeze_layers=16),
    Plan(update_in_backward=True, paged_states=True, optimizer="adamw-8bit-bf16"),
]


@pytest.mark.parametrize("framework", [(), ("--framework", "torchtitan"), ("--framework", "fsdp")])
@pytest.mark.parametrize("plan", PLANS, ids=describe_plan)
def test_a_printed_plan_can_be_typed_back(plan: Plan, framework: tuple[str, ...]) -> None:
    where = cluster(f"{int(plan.world)}xH100")
    flags = flags_of(plan).split()
    words = ["train", "Llama-3.1-70B", "--on", where.name, *flags, *framework]
    options = parse(words)
    options.zero = int(plan.zero) if options.zero is None else options.zero  # of one rank: unsaid
    if "fsdp" in framework and plan.pp > 1:
        with pytest.raises(BadInput, match="fsdp has no pipeline parallelism"):
            base_plan(options, where)
        return
    base, _ = base_plan(options, where)
    assert given_plan(options, base, where, read_model("Llama-3.1-70B")) == plan


def test_interleaving_and_replicas_have_names_of_their_own() -> None:
    said = describe_plan(Plan(tp=4, sp=True, pp=2, vpp=8, dp_replicate=2, dp_shard=8, zero=3))
    assert said == "tp 4 · sp · pp 2 · vpp 8 · dp-replicate 2 · dp-shard 8 · zero 3 · mb 1"
    assert "×" not in said
