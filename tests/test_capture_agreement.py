"""Two frontends, one answer: a model captured as PyTorch runs it and built from its config.json.

Captured: transformers' own model of the same config, one training step on tensors without data,
lowered call by call. Built: the graph of a Plan on one rank. Widths are those of the catalog;
layers are few, since all are alike, and once as many as there are.

Agree: parameters, flop of products and of attention (exactly); what the forward leaves in memory
for the backward, where both fuse the same (within 2 %).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import pytest
import torch
import transformers

from trueflops.capture.lower import base_name, lower
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.catalog import accelerator
from trueflops.catalog.models import model_names, model_record
from trueflops.graph.build import Pass
from trueflops.graph.ir import Graph, Op
from trueflops.graph.kinds import Kind
from trueflops.graph.program import compile_program
from trueflops.graph.rules import RULES, total_bytes, work
from trueflops.model import Model
from trueflops.model.config import Config
from trueflops.model.read import model_from
from trueflops.plan import Plan
from trueflops.predict.captured.compiled import fuse_regions
from trueflops.predict.captured.lowering import Lowering
from trueflops.predict.captured.memory import categories_of
from trueflops.records.recording import Allocated, Call, Freed, Recording

BATCH: Final = 2
SEQUENCE: Final = 2048
HALF, WIDE = 2.0, 4.0  # bytes of a bf16 and of an fp32 number

Change = Callable[[Any], None]
"""What is done to transformers' model before it trains."""
Flop = dict[tuple[str, str], float]
"""By phase, of attention and of all other products."""


SEEING: Final = {
    "gemma3_text": transformers.Gemma3ForCausalLM,
    "gemma4_text": transformers.Gemma4ForCausalLM,
}
"""Of families that also see: AutoModel would make the whole."""

# ── the two sides ────────────────────────────────────────────────────────────────────────────────


def config_of(name: str, layers: int | None) -> dict[str, Any]:
    """A catalog model with so many of its layers; None: all of them."""
    config = dict(model_record(name)["config"])
    if layers is not None:
        depth = next(key for key in ("num_hidden_layers", "n_layer", "n_layers") if key in config)
        config[depth] = layers
        if "layer_types" in config:
            config["layer_types"] = config["layer_types"][:layers]
    return config


def sequence(model: Model) -> int:
    """What is trained on; GPT-2 has no more than 1024 positions."""
    return min(SEQUENCE, model.learned_positions or SEQUENCE)


def built_model(name: str, layers: int | None = 2) -> Model:
    return model_from(Config(config_of(name, layers), name), name)


def built(model: Model, *, flash: bool = True, fused: bool = False) -> list[Graph]:
    """Every layer, the embedding and the head, forward and backward."""
    plan = Plan(micro_batch=BATCH, flash=flash, fused=fused)
    program = compile_program(model, plan, Pass(float(BATCH), float(sequence(model))))
    return [*(program.blocks[i] for i in model.pattern), program.embedding, program.head]


def hugging_face(config: dict[str, Any], attention: str) -> Any:
    """The same config as a model of transformers, in bf16, on the accelerator that is not there."""
    silent = {"mistral": {"sliding_window": None}, "deepseek_v2": {"q_lora_rank": None}}
    kind = {"kimi_k2": "deepseek_v3"}.get(config["model_type"], config["model_type"])
    dropped = ("model_type", "architectures", "torch_dtype")
    fields = {key: value for key, value in config.items() if key not in dropped}
    settings = transformers.AutoConfig.for_model(kind, **{**silent.get(kind, {}), **fields})
    wanted = {"dtype": torch.bfloat16, "attn_implementation": attention}
    with torch.device("cuda"):
        if (own := SEEING.get(kind)) is not None:
            return own._from_config(settings, **wanted)
        return transformers.AutoModelForCausalLM.from_config(settings, **wanted)


def as_it_is(model: Any) -> None:
    """Every op of transformers' model is a kernel of its own."""


def captured(
    name: str, layers: int | None = 2, attention: str = "sdpa", change: Change = as_it_is
) -> Recording:
    """One training step without an optimizer."""
    long = sequence(built_model(name, layers))

    def build() -> Callable[[], None]:
        model = hugging_face(config_of(name, layers), attention)
        change(model)
        model.train()
        ids = torch.zeros((BATCH, long), dtype=torch.int64, device="cuda")

        def step() -> None:
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            model.zero_grad()

        return step

    return capture(lambda: build, Machine.like(accelerator("H200")))


# ── parameters and flop ──────────────────────────────────────────────────────────────────────────


def built_flop(graphs: list[Graph], times: Callable[[Op], float] = lambda op: 1.0) -> Flop:
    """Of the graphs; `times` multiplies that of an attention."""
    found: Flop = defaultdict(float)
    for graph in graphs:
        for phase, nodes in (("forward", graph.forward), ("backward", graph.backward)):
            for op in nodes:
                if isinstance(op, Op) and RULES[op.kind].matrix:
                    flop, core = float(work(op).flop), op.part == "core"
                    found[phase, "attention" if core else "matmul"] += flop * (
                        times(op) if core else 1.0
                    )
    return dict(found)


def captured_flop(recording: Recording) -> Flop:
    """Of a recording; in plain attention, whatever multiplies batches of matrices."""
    found: Flop = defaultdict(float)
    for call in recording.calls():
        for op in lower(call):
            if RULES[op.kind].matrix:
                core = "attention" in op.kind or base_name(call.op) in ("bmm", "baddbmm")
                found[call.phase, "attention" if core else "matmul"] += float(work(op).flop)
    return dict(found)


CAUSAL: Final = (
    "Llama-2-7B", "Llama-3-8B", "Llama-3-70B", "Mistral-7B", "Qwen2-7B", "Qwen3-0.6B", "GPT-2",
    "GPT-3-6.7B", "OPT-1.3B", "Pythia-6.9B", "StarCoder2-3B", "Phi-4-mini", "OLMo-2-7B",
    "Granite-3.1-2B", "Nemotron-4-15B", "Mixtral-8x7B", "Qwen3-30B-A3B", "Qwen2-57B-A14B",
    "GLM-4.5-Air", "MiniMax-M2", "DeepSeek-V2-Lite", "DeepSeek-V3", "Kimi-K2", "GLM-4.7-Flash",
    "AFM-4.5B", "Apertus-8B", "Command-R7B", "Aya-23-8B", "Ministral-3-3B", "ERNIE-4.5-0.3B",
    "ERNIE-4.5-21B-A3B", "EXAONE-4.0-32B", "GLM-4-9B-0414", "Gemma-2B", "Granite-3.1-1B-A400M",
    "Hunyuan-A13B", "Hy3-295B-A21B", "LFM2-350M", "LFM2-8B-A1B", "MiniCPM3-4B", "OLMoE-1B-7B",
    "Olmo-3-7B", "Phi-2", "Seed-OSS-36B", "SmolLM3-3B", "Solar-Open-100B", "StableLM-2-1.6B",
    "StarCoderBase-1B", "dots.llm1",
)  # fmt: skip
"""Models that tell their attention kernel no more than that it is causal."""
MASKED: Final = ("Gemma-3-1B", "Gemma-4-31B", "Phi-3-mini")
"""Models that hand a mask to it, for their windows."""
BROADCAST: Final = ("Falcon-7B",)
"""Models that hand one head of keys to all heads of queries and do not say so (enable_gqa): no
fused kernel takes that, and torch falls back to products and a softmax."""
PLAIN: Final = ("Gemma-2-2B", "BLOOM-7.1B", "MPT-7B", "GPT-J-6B", "GPT-OSS-20B")
"""Models for which transformers knows no fused attention, but products and a softmax."""
ELSE: Final = {
    "dbrx": "transformers asks which experts were chosen (nonzero): that needs their numbers",
    "llama4_text": "transformers sends every token through every expert: that many times the flop",
    "deepseek_v32": "an indexer scores every key: built for servers, not for a training step",
    "glm_moe_dsa": "the same",
    "deepseek": "transformers has no class of its own for it",
    "exaone": "the same",
    "internlm2": "the same",
    "internlm3": "the same",
    "bailing_moe_v2": "the same",
    "mimo": "the same",
    "minicpm": "the same",
    "step3p5": "the same",
    "phimoe": "its router mixes a plain float into tensors, which has no layout on a device",
    "afmoe": "hands a mask over even where no key lies outside of its window: twice the flop",
    "mimo_v2_flash": "transformers has no fused attention for it but FlashAttention 4",
    "deepseek_v4": "transformers has eager attention alone for it, over masks of every key",
    "mamba2": "without its kernels transformers reads a prompt by plain calls, which are others",
    "mamba": "the same",
    "falcon_mamba": "the same",
    "nemotron-nas": "transformers has no class of its own for it",
    "nemotron_h": "the same",
    "granitemoehybrid": "the same",
    "falcon_h1": "the same",
    "jamba": "the same",
    "kimi_linear": "the same",
    "minimax": "the same",
    "qwen3_next": "the same",
    "qwen3_5_text": "the same",
    "qwen3_5_moe_text": "the same",
}
DEPTHS: Final = {"DeepSeek-V3": 4, "Gemma-3-1B": 6, "Gemma-4-31B": 6}
"""Layers until the first that routes, or that sees everything; elsewhere two show every kind."""


def test_every_family_of_the_catalog_is_compared() -> None:
    def kinds(names: Iterable[str]) -> set[str]:
        return {str(model_record(name)["config"]["model_type"]) for name in names}

    assert kinds((*CAUSAL, *MASKED, *BROADCAST, *PLAIN)) | set(ELSE) == kinds(model_names())


@pytest.mark.parametrize("name", CAUSAL)
def test_parameters_and_flop_are_the_same(name: str) -> None:
    """Of attention only the keys that a query sees, of the backward twice the forward's products:
    nothing needs the gradient of the ids, everything else that of its input and its weight.
    """
    layers = DEPTHS.get(name, 2)
    model, recording = built_model(name, layers), captured(name, layers)
    assert recording.parameter_count == model.parameter_count
    assert captured_flop(recording) == built_flop(built(model))


def test_parameters_and_flop_at_full_depth() -> None:
    model, recording = built_model("Llama-3-8B", None), captured("Llama-3-8B", None)
    assert recording.parameter_count == model.parameter_count == 8_030_261_248
    assert captured_flop(recording) == built_flop(built(model))


@pytest.mark.parametrize("name", MASKED)
def test_behind_a_mask_every_key_is_counted(name: str) -> None:
    """A kernel that reads a mask skips nothing, while the graph counts what the model needs."""
    layers = DEPTHS.get(name, 2)
    model, recording = built_model(name, layers), captured(name, layers)

    def more(op: Op) -> float:
        seen, causal = float(op.facts["seen"]), (SEQUENCE + 1.0) / 2.0
        return SEQUENCE / seen if seen < causal else 1.0

    assert recording.parameter_count == model.parameter_count
    assert captured_flop(recording) == pytest.approx(built_flop(built(model), more), rel=1e-12)


@pytest.mark.parametrize("name", BROADCAST)
def test_keys_that_are_broadcast_are_multiplied_plainly(name: str) -> None:
    """All keys are counted, and a backward is twice its forward: no scores are made again."""
    model, recording = built_model(name), captured(name)
    assert not any("scaled_dot_product" in call.op for call in recording.calls())
    expected = built_flop(built(model), lambda op: SEQUENCE / float(op.facts["seen"]))
    expected["backward", "attention"] = 2.0 * expected["forward", "attention"]
    assert captured_flop(recording) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", [*PLAIN, "Llama-3-8B"])
def test_attention_of_plain_products(name: str) -> None:
    """Scores and their product with the values, of all keys; the graph without flash attention."""
    model, recording = built_model(name), captured(name, attention="eager")
    assert recording.parameter_count == model.parameter_count
    assert captured_flop(recording) == built_flop(built(model, flash=False))


# ── what the forward keeps for the backward ──────────────────────────────────────────────────────


def captured_kept(recording: Recording) -> float:
    """Bytes that came in the forward and are there when the backward begins."""
    alive: dict[int, int] = {}
    for event in recording.step():
        if isinstance(event, (Allocated, Call)) and event.phase != "forward":
            break
        if isinstance(event, Allocated):
            alive[event.storage] = event.size_bytes
        elif isinstance(event, Freed):
            alive.pop(event.storage, None)
    categories = categories_of(recording)
    return float(sum(n for storage, n in alive.items() if categories[storage] == "activations"))


def built_kept(graphs: list[Graph]) -> float:
    """Bytes that differentiation keeps, without the ids: they were there before."""
    kept = (t for graph in graphs for t in graph.kept_tensors if t.name != "ids")
    return float(total_bytes(tuple(kept)))


def one_kernel_norms(model: Any) -> None:
    """Torch's own RMSNorm, one kernel that keeps its input, for the one transformers writes out:
    six kernels, with an fp32 copy of the input. LayerNorm is one kernel already.
    """
    for parent in list(model.modules()):
        for name, norm in list(parent.named_children()):
            if type(norm).__name__.endswith("RMSNorm"):
                with torch.device("cuda"):
                    setattr(parent, name, torch.nn.RMSNorm(norm.weight.shape, dtype=torch.bfloat16))


def compiled_layers(model: Any) -> None:
    """Each layer compiled by itself, and the last norm; the loss stays as it is."""
    owner, layers = next(
        (parent, child)
        for parent in model.modules()
        for child in parent.children()
        if isinstance(child, torch.nn.ModuleList)
    )
    last = [child for child in owner.children() if type(child).__name__.endswith("Norm")]
    for module in (*layers, *last):
        module.compile()


@cache
def both_kept(name: str, layers: int | None, change: Change) -> tuple[float, float]:
    """Captured and built; the graph fuses chains where the program is compiled."""
    graphs = built(built_model(name, layers), fused=change is compiled_layers)
    recording = fuse_regions(captured(name, layers, change=change), Lowering())
    return captured_kept(recording), built_kept(graphs)


def of_one_layer(name: str, change: Change) -> tuple[float, float]:
    """What a second layer adds: logits are so large that two layers could hide behind them."""
    (found, expected), (one, each) = both_kept(name, 2, change), both_kept(name, 1, change)
    return found - one, expected - each


@pytest.mark.parametrize(
    "name",
    ["Llama-2-7B", "Llama-3-8B", "Llama-3-70B", "Mistral-7B", "Qwen2-7B", "Qwen3-0.6B",
     "OLMo-2-7B", "Granite-3.1-2B", "StarCoder2-3B", "OPT-1.3B"],
)  # fmt: skip
def test_as_much_is_kept_op_by_op(name: str) -> None:
    """Eager PyTorch against the graph without fused chains: both keep the input of each norm and
    activation, both factors of a gate, and what each product and the attention read.

    What remains (below 0.3 % of a layer) are rows' statistics of norms.
    """
    for found, expected in (
        both_kept(name, 2, one_kernel_norms),
        of_one_layer(name, one_kernel_norms),
    ):
        assert found == pytest.approx(expected, rel=0.02)


def test_as_much_is_kept_of_all_layers() -> None:
    found, expected = both_kept("Llama-3-8B", None, one_kernel_norms)
    assert found == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    "name",
    ["Llama-2-7B", "Llama-3-8B", "Llama-3-70B", "Mistral-7B", "Qwen2-7B", "Qwen3-0.6B",
     "Granite-3.1-2B", "GPT-2", "GPT-3-6.7B", "StarCoder2-3B", "OPT-1.3B"],
)  # fmt: skip
def test_as_much_is_kept_fused(name: str) -> None:
    """Compiled layers against the graph with fused chains: a chain keeps what enters it and what
    it hands to a product, and makes the rest again.
    """
    for found, expected in (
        both_kept(name, 2, compiled_layers),
        of_one_layer(name, compiled_layers),
    ):
        assert found == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("name", "layers"), [("Llama-3-8B", 4), ("OLMo-2-7B", 2)])
def test_regions_are_compiled_apart(name: str, layers: int) -> None:
    """What passes from one compiled layer to the next lies in memory, forward and backward."""
    found, expected = both_kept(name, layers, compiled_layers)
    assert found == pytest.approx(expected, rel=0.002)


@pytest.mark.parametrize("name", ["Llama-2-7B", "Llama-3-8B", "Mistral-7B", "Qwen3-0.6B"])
def test_norms_written_out_keep_more(name: str) -> None:
    """As transformers writes it: of each norm an fp32 copy of its input and, in bf16, what the gain
    multiplies, where one kernel keeps its input in bf16. That is 21 % of a layer of Llama-2-7B.
    """
    norms = (
        op
        for graph in built(built_model(name))
        for op in graph.forward
        if isinstance(op, Op) and op.kind is Kind.NORM
    )
    more = sum(float(op.inputs[0].elements) for op in norms) * WIDE
    found, expected = both_kept(name, 2, as_it_is)
    assert found > 1.01 * expected
    assert found == pytest.approx(expected + more, rel=0.02)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        # Queries, keys and values come of one product; v is a view that keeps all of it. Heads
        # that turn in part are joined anew, and their mixture must be laid out for the product.
        ("Pythia-6.9B", lambda m: 3 * m.hidden),
        ("Phi-4-mini", lambda m: m.hidden + 1024 + m.hidden),
        ("Nemotron-4-15B", lambda m: m.hidden),  # … of three products: only laid out
        # Weighed after the last product: the gradient of a weight needs what it weighed.
        ("Mixtral-8x7B", lambda m: 2 * m.hidden),
        ("Qwen3-30B-A3B", lambda m: 8 * m.hidden),
        # A mask of yes and no becomes one of numbers, in every layer; cuDNN's kernel lays the
        # mixture out as the queries lie, and so it is copied for the product.
        ("Gemma-3-1B", lambda m: SEQUENCE + 4 * 256),
    ],
)
def test_what_an_implementation_keeps_beyond_the_graph(
    name: str, more: Callable[[Model], int]
) -> None:
    """The graph is of the model; how transformers writes some of them costs a layer more."""
    found, expected = of_one_layer(name, one_kernel_norms)
    beyond = BATCH * SEQUENCE * HALF * more(built_model(name))
    assert found > 1.02 * expected
    assert found == pytest.approx(expected + beyond, rel=0.02)
