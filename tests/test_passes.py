"""What a pass does not change, it hands on: every field of a node survives every pass."""

from __future__ import annotations

from dataclasses import MISSING, fields
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trueflops.catalog import cluster
from trueflops.graph.build import Pass
from trueflops.graph.formats import Format
from trueflops.graph.ir import Collective, Graph, Op, Tensor
from trueflops.graph.kinds import CollectiveKind, Function, Kind, Role
from trueflops.graph.passes import Degrees, differentiate, format_named, fuse, quantise, shard
from trueflops.graph.passes.recompute import recompute
from trueflops.graph.program import compile_program
from trueflops.graph.variants import AttentionKernel
from trueflops.model import read_model
from trueflops.plan import Plan
from trueflops.plan.plan import Implementation, Recompute
from trueflops.predict import Trainer
from trueflops.profile import profile_of
from trueflops.workload import Training

X = Tensor("x", (("batch", 2.0), ("seq", 4.0), ("hidden", 8.0)))
Y = Tensor("y", (("batch", 2.0), ("seq", 4.0), ("ffn", 16.0)))
W = Tensor("w", (("ffn", 16.0), ("hidden", 8.0)), role=Role.WEIGHT)
# Every field that a product can have, none at its default.
PRODUCT = Op(
    "up",
    Kind.MATMUL,
    (X,),
    (Y,),
    weights=(W,),
    dtype="fp16",
    part="ffn",
    facts={"sentinel": 3.0},
    function=Function.ADD,
    variant=Format("own", 8.0),
)
# A dispatch that sends each token once to each node, by a library of its own.
SENT = Collective(
    "dispatch",
    CollectiveKind.ALL_TO_ALL,
    axis="ep",
    group=4.0,
    payload=X,
    source=X,
    outputs=(X,),
    part="experts",
    hides=True,
    copies=8.0,
    library="deepep",
)


def unchanged(before: Any, after: Any, *changed: str) -> None:
    for field in fields(before):
        if field.name not in changed:
            assert getattr(after, field.name) == getattr(before, field.name), field.name


def test_the_nodes_of_this_file_have_no_field_at_its_default() -> None:
    for node, free in ((PRODUCT, ("fused", "of")), (SENT, ())):
        for field in fields(node):
            if field.name in free:
                continue
            usual = field.default
            if field.default_factory is not MISSING:
                usual = field.default_factory()
            assert getattr(node, field.name) != usual, field.name


def test_the_gradient_of_a_collective_keeps_its_copies_and_library() -> None:
    graph = differentiate(Graph("g", (SENT,), X))
    (back,) = (node for node in graph.backward if isinstance(node, Collective))
    unchanged(SENT, back, "name", "kind", "source", "outputs", "payload")


def test_the_gradients_of_a_product_keep_its_form_and_facts() -> None:
    graph = differentiate(Graph("g", (PRODUCT,), Y))
    for node in graph.backward:
        assert isinstance(node, Op)
        unchanged(PRODUCT, node, "kind", "inputs", "outputs", "weights", "of")


def test_the_backward_of_attention_is_of_the_same_kernel() -> None:
    q, k, v = (Tensor(n, (("batch", 1.0), ("heads", 2.0), ("seq", 8.0), ("head_dim", 4.0)))
               for n in "qkv")  # fmt: skip
    facts: dict[str, Any] = {"keys": 8.0, "seen": 4.5}
    forward = Op(
        "core",
        Kind.ATTENTION,
        (q, k, v),
        (q,),
        part="core",
        facts=facts,
        variant=AttentionKernel.CUDNN,
    )
    (backward,) = differentiate(Graph("g", (forward,), q)).backward
    unchanged(forward, backward, "kind", "inputs", "outputs", "of")


def test_sharding_keeps_what_it_does_not_split() -> None:
    (node,) = (n for n in shard(Graph("g", (PRODUCT,), Y), Degrees(tp=2.0)).forward
               if isinstance(n, Op))  # fmt: skip
    unchanged(PRODUCT, node, "inputs", "outputs", "weights")


def test_quantising_keeps_what_it_does_not_narrow() -> None:
    graph = quantise(Graph("g", (PRODUCT, SENT), Y), format_named("fp8"), training=False)
    product = next(n for n in graph.forward if n.name == "up")
    unchanged(PRODUCT, product, "inputs", "weights", "dtype", "variant")
    assert SENT in graph.forward


@pytest.mark.parametrize("region", ["selective", "full"])
def test_fusion_and_recomputation_hand_on_the_nodes_themselves(region: Any) -> None:
    graph = fuse(Graph("g", (PRODUCT, SENT), Y), flash=True, chains=True, experts=False,
                 decoding=False)  # fmt: skip
    assert graph.forward == (PRODUCT, SENT)
    assert recompute(differentiate(graph), region).forward == (PRODUCT, SENT)


def test_backward_tokens_of_experts_are_sent_once_a_node_too() -> None:
    """DeepSeek-V3 on 2,048 H800: the backward had forgotten that each token goes once a node."""
    where = cluster("256x8xH800")
    model = read_model("DeepSeek-V3")
    asked = Training(4096, 15360, 1e12)
    trainer = Trainer(model, asked, where, profile_of(where.accelerator))
    plan = Plan(pp=8, dp_shard=256, zero=1, ep=64, recompute="full")
    plain = trainer.predict_one(plan).step["exposed communication"]["expert all-to-all"]
    once = plan.but(dispatch="deduplicated")
    deduplicated = trainer.predict_one(once).step["exposed communication"]["expert all-to-all"]
    # Of eight copies 5.3 go to different ones of eight nodes: 8·(1 − (7/8)⁸), one of which is near.
    assert float(deduplicated.value) < 0.75 * float(plain.value)


def test_engines_gather_tokens_before_they_are_copied_to_experts() -> None:
    """Replicated attention over experts that all ranks split: a token travels once, not 8 times."""
    model, plan = read_model("DeepSeek-V3"), Plan(dp_replicate=8, etp=8)
    sent = {}
    for training in (True, False):
        block = compile_program(model, plan, Pass(1, 512, training=training)).blocks[-1]
        sent[training] = [
            float(node.payload.bytes)
            for node in block.forward
            if isinstance(node, Collective) and node.axis == "etp"
        ]
    tokens = 8 * 512 * model.hidden * 2.0
    assert sent[False] == pytest.approx([tokens, tokens])
    assert sent[True] == pytest.approx([8.0 * tokens, 8.0 * tokens])


@pytest.mark.parametrize("implementation", ["library", "eager", "compiled"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_tensor_and_sequence_parallelism_halve_what_a_layer_keeps(
    implementation: Implementation, recompute: Recompute
) -> None:
    """What a collective gathers is gathered again by Megatron's kernels, and kept by autograd: the
    normed inputs of attention and FFN, as counted in real runs (tests/test_run.py).
    """
    model = read_model("Llama-3.1-8B")

    def kept(tp: int) -> dict[str, float]:
        plan = Plan(tp=tp, sp=tp > 1, implementation=implementation, recompute=recompute)
        (layer,) = compile_program(model, plan, Pass(1.0, 4096.0)).recomputing
        return {tensor.name: float(tensor.bytes) for tensor in layer.kept_tensors}

    alone, two = kept(1), kept(2)
    whole = 0.5 * sum(alone.values())
    if recompute == "none" and implementation != "library":
        whole += 0.5 * (alone["attention.norm.out"] + alone["ffn.norm.out"])
    assert sum(two.values()) == pytest.approx(whole)
    if recompute == "full":
        assert list(alone) == list(two) == ["block.in"]


def written(model: str, **fields: Any) -> list[Op]:
    plan = Plan(implementation="eager", flash=False, **fields)
    program = compile_program(read_model(model), plan, Pass(1.0, 128.0))
    return [node for node in program.blocks[0].forward if isinstance(node, Op)]


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls of ATen ops that move numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name not in ("t", "transpose", "view", "_unsafe_view", "expand", "detach"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def test_gpt2s_activation_is_as_many_kernels_as_its_code_calls() -> None:
    activation = pytest.importorskip("transformers.activations").NewGELUActivation()
    x = torch.ones(4)
    with Counted() as counted:
        activation(x)
    kernels = [op for op in written("GPT-2") if op.name.startswith("ffn.act")]
    assert len(kernels) == len(counted.names) == 8
    lifted = {"mixed": "autocast", "parameter_dtype": "fp32"}
    kernels = [op for op in written("GPT-2", **lifted) if op.name.startswith("ffn.act")]
    assert len(kernels) == 8 + 2  # a power is one of autocast's fp32 ops
    assert sum(op.outputs[0].bits == 32.0 for op in kernels) == 8  # all but ½x and the last
    assert len([op for op in written("OPT-125M") if op.name.startswith("ffn.act")]) == 1


@pytest.mark.parametrize(
    ("model", "code"), [("GPT-2", "gpt2.modeling_gpt2"), ("Llama-3.1-8B", "llama.modeling_llama")]
)
def test_unfused_attention_is_as_many_kernels_as_its_code_calls(model: str, code: str) -> None:
    pytest.importorskip("transformers")
    attend = import_module(f"transformers.models.{code}").eager_attention_forward
    module = SimpleNamespace(num_key_value_groups=1, training=True)
    q = torch.ones(1, 2, 8, 4, dtype=torch.bfloat16)
    mask = torch.zeros(1, 1, 8, 8, dtype=torch.bfloat16)
    with Counted() as counted:
        attend(module, q, q, q, mask, scaling=0.5, dropout=0.0)
    laid_out = "clone"  # for the product that follows, of which a graph has no op
    called = [name for name in counted.names if name != laid_out]
    core = [op for op in written(model) if op.part == "core" and op.kind is not Kind.DROPOUT]
    assert len(core) == len(called), called


@pytest.mark.parametrize(("model", "products"), [("GPT-2", 1), ("OPT-125M", 3)])
def test_packed_projections_are_one_product(model: str, products: int) -> None:
    """GPT-2's `c_attn` makes queries, keys and values; OPT has a projection for each."""
    program = compile_program(read_model(model), Plan(implementation="eager"), Pass(1.0, 512.0))
    names = ("attention.q", "attention.k", "attention.v")
    ops = [op for op in program.blocks[0].forward if isinstance(op, Op)]
    found = [op for op in ops if op.kind is Kind.MATMUL and op.name in names]
    assert len(found) == products
    assert sum(len(op.outputs) for op in found) == 3
