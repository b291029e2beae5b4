"""Programs are lowered once for all sizes: filled in, they are those that numbers would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import trueflops as tf
from trueflops.graph import Collective, Graph, Op, Pass, Tensor, compile_program
from trueflops.graph.formulas import Sheet, computed
from trueflops.graph.ir import Node
from trueflops.graph.liveness import liveness
from trueflops.graph.program import AXES, Split, _lower, _template

PLANS = {
    "alone": tf.Plan(),
    "tensor": tf.Plan(tp=8, sp=True),
    "ring": tf.Plan(tp=2, cp=4),
    "experts beside tp": tf.Plan(tp=2, ep=8),
    "experts within tp": tf.Plan(tp=4, ep=2, etp=2),
    "eager": tf.Plan(tp=2, sp=True, implementation="eager"),
    "adapters": tf.Plan(adapters="qlora", lora_rank=16, base_format="nf4"),
}


def by_numbers(model: tf.Model, plan: tf.Plan, run: Pass) -> tuple[Graph, ...]:
    """The passes, run with the numbers themselves."""
    split = Split(AXES, bool(plan.ep * plan.etp <= plan.tp))
    return _lower(model, plan, split, run, None)


def tensors(node: Node) -> Iterator[Tensor]:
    yield from (*node.inputs, *node.outputs)
    if isinstance(node, Collective):
        yield node.payload
    else:
        yield from node.weights
        for part in node.fused:
            yield from tensors(part)
        if node.of is not None:
            yield from tensors(node.of)


def written(graph: Graph) -> list[Any]:
    """All that a graph says, as plain values."""
    found: list[Any] = [k.needed_by for k in graph.kept]
    for phase, node in graph.phases():
        found.append((phase, node.name, node.kind, node.part))
        found += [node.facts, node.dtype, node.variant] if isinstance(node, Op) else [node.group]
        found += [(t.name, t.dims, t.bits, t.role, t.elements, t.bytes) for t in tensors(node)]
    return found


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Mixtral-8x7B", "Gemma-2-9B"])
@pytest.mark.parametrize("run", [Pass(3.0, 5000.0), Pass(7.0, 1.0, 901.0, False, True)])
def test_every_size_is_what_numbers_give(name: str, plan: tf.Plan, run: Pass) -> None:
    model = tf.read_model(name)
    program = compile_program(model, plan, run)
    graphs = program.embedding, program.head, *program.blocks
    expected = by_numbers(model, plan, run)
    assert [written(graph) for graph in graphs] == [written(graph) for graph in expected]
    alive = program.alive.embedding, program.alive.head, *program.alive.blocks
    assert list(alive) == [liveness(graph) for graph in expected]


def test_another_sequence_is_not_lowered_again() -> None:
    model, plan = tf.read_model("Llama-3.1-8B"), tf.Plan(tp=2, recompute="full")
    compile_program(model, plan, Pass(1.0, 1000.0))
    before = _template.cache_info()
    compile_program(model, plan.but(tp=4), Pass(2.0, 1001.0))
    after = _template.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


def test_arrays_are_filled_in_as_numbers_are() -> None:
    model, degrees = tf.read_model("Mixtral-8x7B"), np.array([2.0, 4.0, 8.0])
    many = compile_program(model, tf.Plan(tp=degrees, recompute="full"), Pass(1.0, 777.0))
    for at, tp in enumerate(degrees):
        one = compile_program(model, tf.Plan(tp=float(tp), recompute="full"), Pass(1.0, 777.0))
        backward = np.asarray(many.alive.recomputing[0].backward)
        assert backward[at] == one.alive.recomputing[0].backward
        assert many.blocks[0].result.bytes == one.blocks[0].result.bytes


def test_an_unknown_size_decides_nothing() -> None:
    seq = Sheet().unknown("seq")
    with pytest.raises(TypeError, match="not known yet"):
        bool(seq)
    assert seq != 1.0


def test_equal_formulas_are_worked_out_once() -> None:
    sheet = Sheet()
    a, b = sheet.unknown("a"), sheet.unknown("b")
    first, again = np.maximum(a / b, 1.0) * 2, 2 * np.float64(3.0) * (a / b)
    odd = computed(lambda size, by: size % by, a - b, 2.0)
    entries = [sheet.entry(size) for size in (first, again, odd)]
    computation = sheet.needed_for(entries)
    found = computation.work_out({"a": 9.0, "b": 4.0})
    assert [found[at] for at in entries] == [4.5, 13.5, 1.0]
    assert len(computation.steps) == 6  # a / b once, of which three more are made; a − b, its rest
    assert len(sheet.needed_for(entries[:1]).steps) == 3
