"""What scripts of published runs set: read with the rows that came of them, and with no others."""

from __future__ import annotations

from trueflops.model import read_model
from trueflops.verify.training.scripts import scripted_model, scripted_plan

TUTORIAL = {
    "source": "vuiseng9/megatron-tutorials 02-tp-sp.md @0b2c030a1d",
    "notes": "single node; weak scaling",
    "seq_len": "1024",
}
BENCHMARK = {
    "source": "FlagOpen/FlagPerf training/nvidia/llama3_8B-megatron/README.md @1b5a030398",
    "seq_len": "8192",
}


def test_a_script_that_does_not_ask_for_sequence_parallelism() -> None:
    assert scripted_plan(TUTORIAL) == {"sp": False}
    assert scripted_plan({**TUTORIAL, "notes": "sequence parallel"}) == {}


def test_rows_of_other_scripts_are_left_alone() -> None:
    llama = read_model("Llama-3-8B")
    other = {"source": "NVIDIA/Megatron-LM README.md", "notes": "weak scaling", "seq_len": "8192"}
    assert scripted_plan(other) == {}
    assert scripted_model(other, llama) is llama
    assert scripted_model(TUTORIAL, llama) is llama


def test_megatron_without_the_flags_of_a_llama() -> None:
    llama = read_model("Llama-3-8B")
    bare = scripted_model(BENCHMARK, llama)
    assert bare.tied
    assert bare.learned_positions == 8192
    assert all(b.dropout == 0.1 for b in bare.blocks)
    assert not any(attention.rope for attention in bare.attentions)
    head = llama.vocab * llama.hidden
    biases = bare.parameter_count - llama.parameter_count + head - 8192 * llama.hidden
    assert 0 < biases < 0.001 * llama.parameter_count
