"""PEFT's own LoRA, captured, against the graph of a plan with adapters.

Agree: parameters trained and frozen, flop of every product, bytes of weights, gradients and states
(exactly); what the forward keeps, and the kernels that run (closely). Skipped without PEFT.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pytest
import torch
import transformers

from test_capture_agreement import built_flop, built_kept, captured_flop, captured_kept
from trueflops.capture.lower import base_name
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.catalog import accelerator, cluster
from trueflops.catalog.models import model_record
from trueflops.clock import Clock
from trueflops.graph.ir import Graph, Op
from trueflops.graph.kinds import PRODUCTS
from trueflops.graph.program import compile_program
from trueflops.model import Model, adapter_count, read_targets
from trueflops.model.config import Config
from trueflops.model.read import model_from
from trueflops.plan import Plan
from trueflops.predict.captured.program import predict_program
from trueflops.predict.costs import training_pass
from trueflops.predict.training.trainer import Trainer
from trueflops.profile import profile_of
from trueflops.records.recording import Recording
from trueflops.workload import Training

peft = pytest.importorskip("peft")

BATCH: Final = 2
SEQUENCE: Final = 2048
NAME, LAYERS, RANK = "Llama-3-8B", 2, 16
MODULES: Final = {
    "q,v": ["q_proj", "v_proj"],
    "attention": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "all-linear": "all-linear",
}
EAGER: Final = Plan(
    micro_batch=BATCH, adapters="lora", lora_rank=RANK, implementation="eager", fused=False
)


def config() -> dict[str, Any]:
    return {**model_record(NAME)["config"], "num_hidden_layers": LAYERS}


def model() -> Model:
    return model_from(Config(config(), NAME), NAME)


def adapted(modules: Any, dropout: float) -> Any:
    """Hugging Face's model in bf16 with PEFT's adapters, as its documentation has it."""
    dropped = ("model_type", "architectures", "torch_dtype")
    fields = {key: value for key, value in config().items() if key not in dropped}
    with torch.device("cuda"):
        base: Any = transformers.AutoModelForCausalLM.from_config(
            transformers.LlamaConfig(**fields), dtype=torch.bfloat16
        )
    settings = peft.LoraConfig(
        r=RANK, target_modules=modules, lora_dropout=dropout, task_type="CAUSAL_LM"
    )
    tuned = peft.get_peft_model(base, settings)
    tuned.enable_input_require_grads()  # as gradient checkpointing asks for
    return tuned


@cache
def recorded(
    targets: str = "attention", dropout: float = 0.0, recompute: bool = False
) -> Recording:
    """A step of Trainer's: under autocast, gradients clipped, AdamW."""

    def build() -> Callable[[], None]:
        tuned = adapted(MODULES[targets], dropout)
        if recompute:
            tuned.gradient_checkpointing_enable({"use_reentrant": False})
        tuned.train()
        own = [p for p in tuned.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(own)
        ids = torch.zeros((BATCH, SEQUENCE), dtype=torch.int64, device="cuda")

        def step() -> None:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = tuned(input_ids=ids, labels=ids, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(own, 1.0)
            optimizer.step()
            optimizer.zero_grad()

        return step

    return capture(lambda: build, Machine.like(accelerator("A100-80GB")))


def built(plan: Plan) -> list[Graph]:
    of = model()
    program = compile_program(of, plan, training_pass(plan, SEQUENCE))
    return [*(program.recomputing[i] for i in of.pattern), program.embedding, program.head]


@pytest.mark.parametrize("targets", MODULES)
def test_parameters_and_flop_are_the_same(targets: str) -> None:
    """No product has the gradient of a frozen weight; every adapter's two have both of theirs."""
    recording, of = recorded(targets), model()
    adapters = adapter_count(of, RANK, read_targets(targets))
    assert recording.parameter_count == of.parameter_count + adapters
    assert captured_flop(recording) == built_flop(built(EAGER.but(lora_targets=targets)))


@pytest.mark.parametrize(("targets", "dropout"), [("attention", 0.0), ("all-linear", 0.1)])
def test_as_much_is_kept(targets: str, dropout: float) -> None:
    """Of a frozen layer nothing; of an adapter autocast's own copy of the input, and a mask."""
    plan = EAGER.but(lora_targets=targets, lora_dropout=dropout)
    assert captured_kept(recorded(targets, dropout)) == pytest.approx(
        built_kept(built(plan)), rel=0.02
    )


def test_a_checkpointed_layer_keeps_its_input() -> None:
    kept = captured_kept(recorded(recompute=True))
    assert kept == pytest.approx(built_kept(built(EAGER.but(recompute="full"))), rel=0.01)


def test_as_many_products_run() -> None:
    """Each adapter has two, and four in the backward; each frozen layer one and one."""
    calls = Counter(base_name(call.op) for call in recorded("attention").calls())
    nodes = [node for graph in built(EAGER) for _, node in graph.phases()]
    products = [n for n in nodes if isinstance(n, Op) and n.kind in PRODUCTS]
    assert calls["mm"] == len(products)


@pytest.mark.parametrize("recompute", [False, True])
def test_weights_states_peak_and_step(recompute: bool) -> None:
    where = cluster("1xA100-80GB")
    profile = profile_of(where.accelerator, "transformers")
    found = predict_program(recorded("attention", recompute=recompute), Clock(where, profile))
    asked = Training(seq=SEQUENCE, global_batch=BATCH, tokens=1e6)
    plan = EAGER.but(recompute="full" if recompute else "none")
    step = Trainer(model(), asked, where, profile).predict_one(plan)
    held = found.memory.by("category")

    def planned(*names: str) -> float:
        return sum(float(part.value) for part in step.memory.parts if part.name in names)

    assert planned("weights") == held["parameters"]
    adapters = adapter_count(model(), RANK, read_targets("attention"))
    assert planned("optimizer states") == 8.0 * adapters  # two fp32 moments, no master copy
    assert held["optimizer state"] == pytest.approx(8.0 * adapters, rel=1e-3)
    beside = planned("context", "allocator slack")
    peak = float(step.memory.value) - beside
    assert peak == pytest.approx(found.memory.peak_allocated_bytes, rel=0.02)
    assert float(step.step.value) == pytest.approx(float(found.step.step.value), rel=0.03)
