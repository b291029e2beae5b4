"""Gemma 4: FFN beside experts, keys of an earlier layer, inputs that layers have of their own."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import pytest

from trueflops.catalog.models import model_record
from trueflops.errors import BadConfig
from trueflops.graph import Op, Pass, Program, compile_program
from trueflops.graph.formats import format_named
from trueflops.graph.kinds import Kind
from trueflops.graph.rules import work
from trueflops.model import Block, Model, read_model
from trueflops.model.config import Config
from trueflops.model.read import model_from
from trueflops.plan import Plan
from trueflops.predict.serving.cache import Cache
from trueflops.profile.engines import engine_of

Implementation = Literal["library", "eager", "compiled"]
DECODE = Pass(4.0, 1.0, past=2048.0, training=False, decoding=True)


def compiled(model: Model, run: Pass = DECODE, plan: Plan | None = None) -> Program:
    return compile_program(model, plan or Plan(), run, format_named("bf16"))


def kinds_of(program: Program, index: int) -> Counter[Kind]:
    return Counter(n.kind for n in program.blocks[index].forward if isinstance(n, Op))


def test_the_last_layers_attend_to_keys_of_an_earlier_one() -> None:
    """They have no projections of keys and values, and write no cache."""
    model = read_model("Gemma-4-E4B")
    borrows = [bool(a and a.borrows) for a in (model.blocks[i].attention for i in model.pattern)]
    assert borrows == [False] * 24 + [True] * 18
    program = compiled(model)
    for index, block in enumerate(model.blocks):
        names = {p.name for p in block.parameters(model.hidden)}
        assert block.attention is not None
        own = not block.attention.borrows
        assert ("attention.k" in names) == own == (kinds_of(program, index)[Kind.CACHE] > 0)
        assert kinds_of(program, index)[Kind.ATTENTION_DECODE] == 1


def test_a_cache_holds_nothing_of_layers_that_borrow() -> None:
    """20 layers of a window and 4 that see all, of heads of 256 and of 512 (vLLM's models/gemma4.py
    gives the others kv_sharing_target_layer_name).
    """
    cache = Cache.of(read_model("Gemma-4-E4B"), Plan(), engine_of("vllm"), 16.0)
    near, far = 2 * 2 * 256 * 2.0, 2 * 2 * 512 * 2.0
    assert cache.token_bytes == 20 * near + 4 * far


def test_a_layer_with_an_input_of_its_own_reads_a_row_and_not_the_table() -> None:
    model = read_model("Gemma-4-E2B")
    program = compiled(model)
    ops = {n.name: n for n in program.embedding.forward if isinstance(n, Op)}
    wide = 35 * 256
    assert work(ops["embedding.own"]).bytes_read < 2.0 * 4 * wide * 2.0
    assert work(ops["embedding.own_project"]).flop == 2.0 * 4 * 1536 * wide
    gates = {n.name: n for n in program.blocks[0].forward if isinstance(n, Op)}
    assert work(gates["own.gate"]).flop == work(gates["own.out"]).flop == 2.0 * 4 * 1536 * 256
    assert {block.ffn.width for block in model.blocks if block.ffn} == {6144, 12288}


def both(block: Block) -> bool:
    return block.ffn is not None and block.experts is not None


def test_a_mixture_has_a_dense_ffn_beside_its_experts() -> None:
    model = read_model("Gemma-4-26B-A4B")
    assert all(map(both, model.blocks))
    assert model.active_parameter_count == pytest.approx(3.8e9, rel=0.02)
    graph = compiled(model, Pass(1.0, 512.0)).blocks[0]
    flop = {n.name: work(n).flop for n in graph.forward if isinstance(n, Op)}
    assert flop["ffn.down"] == 2.0 * 512 * 2816 * 2112
    assert flop["experts.down"] == 2.0 * 512 * 8 * 2816 * 704


@pytest.mark.parametrize("name", ["Gemma-4-E2B", "Gemma-4-26B-A4B"])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("implementation", ["library", "eager", "compiled"])
def test_they_train_however_they_are_written(
    name: str, tp: int, implementation: Implementation
) -> None:
    """The backward has twice the products of the forward; scores are kernels of their own."""
    model = read_model(name)
    plan = Plan(tp=tp, implementation=implementation)
    program = compiled(model, Pass(1.0, 512.0), plan)
    for graph in program.blocks:
        kinds = (Kind.DGRAD, Kind.WGRAD)
        products = [n for n in graph.backward if isinstance(n, Op) and n.kind in kinds]
        ahead = [n for n in graph.forward if isinstance(n, Op) and n.kind is Kind.MATMUL]
        assert sum(work(n).flop for n in products) == pytest.approx(
            2.0 * sum(work(n).flop for n in ahead), rel=1e-6
        )


def test_some_layer_must_have_keys_of_its_own() -> None:
    fields = dict(model_record("Gemma-4-E2B")["config"]) | {"num_kv_shared_layers": 35}
    with pytest.raises(BadConfig, match="35 of 35 layers share keys of an earlier one"):
        model_from(Config(fields, "config.json"), "no keys")
