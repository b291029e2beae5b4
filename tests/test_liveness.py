"""Bytes alive while a piece runs: between what is kept and what all of its tensors would take."""

from __future__ import annotations

import numpy as np
import pytest

import trueflops as tf
from trueflops.graph import Pass, compile_program
from trueflops.graph.liveness import liveness
from trueflops.graph.program import Program
from trueflops.graph.rules import total_bytes

MODEL = tf.read_model("Llama-3.1-8B")
STREAM = 2048.0 * 4096.0 * 2.0  # bytes of one sequence of bf16


def compiled(**fields: object) -> Program:
    return compile_program(MODEL, tf.Plan(**fields), Pass(1.0, 2048.0))


@pytest.mark.parametrize("implementation", ["library", "eager", "compiled"])
def test_a_block_holds_at_least_what_it_keeps_and_a_gradient(implementation: str) -> None:
    block = compiled(implementation=implementation).blocks[0]
    live, kept = liveness(block), float(total_bytes(block.kept_tensors))
    assert live.forward >= kept
    assert live.backward >= kept + STREAM
    assert live.backward <= 1.6 * kept  # gradients of gate, up and what they make


def test_a_block_that_runs_again_is_as_full_in_its_backward() -> None:
    program = compiled(recompute="full", implementation="eager")
    again, whole = liveness(program.recomputing[0]), liveness(program.blocks[0])
    assert again.backward == pytest.approx(whole.backward, rel=0.02)
    assert total_bytes(program.recomputing[0].kept_tensors) == STREAM


def test_the_loss_in_functions_holds_three_wide_copies_of_the_logits() -> None:
    """log_softmax, its gradient, and that of the logits."""
    logits = 2048.0 * MODEL.vocab * 4.0
    head = liveness(compiled(implementation="eager").head)
    assert 3.0 * logits < head.backward < 3.0 * logits + 6.0 * STREAM


def test_every_weight_of_a_block_has_a_gradient_in_the_end() -> None:
    block = compiled(implementation="eager").blocks[0]
    weights = sum(float(weight.elements) for weight in block.weights)
    assert liveness(block).opening_made <= weights


def test_one_shape_and_many_are_the_same() -> None:
    many = compile_program(
        MODEL, tf.Plan(micro_batch=np.array([1.0, 4.0])), Pass(np.array([1.0, 4.0]), 2048.0)
    )
    alone = liveness(compiled(implementation="library").blocks[0])
    both = liveness(many.blocks[0])
    assert np.asarray(both.backward)[0] == pytest.approx(alone.backward)
    assert np.asarray(both.backward)[1] == pytest.approx(4.0 * float(alone.backward))


def test_nothing_is_said_of_a_graph_without_a_backward() -> None:
    served = compile_program(MODEL, tf.Plan(), Pass(1.0, 16.0, training=False))
    assert liveness(served.blocks[0]).backward == 0.0
