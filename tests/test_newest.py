"""Models of this year whose layers differ from one another in more than a window."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from trueflops.catalog.models import model_record
from trueflops.errors import BadConfig
from trueflops.graph import Op, Pass, compile_program
from trueflops.graph.build import SparseKernel
from trueflops.graph.formats import format_named
from trueflops.graph.rules import work
from trueflops.graph.shapes import attention_shape
from trueflops.model import Model
from trueflops.model.config import Config
from trueflops.model.read import model_from
from trueflops.plan import Plan
from trueflops.predict.serving.cache import Cache
from trueflops.profile.engines import engine_of

MIMO = model_record("MiMo-V2-Flash")["config"] | {
    "num_hidden_layers": 6,
    "n_routed_experts": 16,
    "vocab_size": 1024,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0],
    "moe_layer_freq": [0, 1, 1, 1, 1, 1],
}


def read(config: dict[str, Any]) -> Model:
    return model_from(Config(config, "config.json"), "a model")


def counted(config: dict[str, Any]) -> int:
    settings = transformers.AutoConfig.for_model(
        **{name: value for name, value in config.items() if name != "architectures"}
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(settings)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    "without",
    [
        (),
        ("hybrid_layer_pattern", "moe_layer_freq"),  # as transformers writes it
        ("swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim", "sliding_window_size"),
    ],
)
def test_mimo_has_the_parameters_of_transformers(without: tuple[str, ...]) -> None:
    config = {name: value for name, value in MIMO.items() if name not in without}
    assert read(config).parameter_count == counted(config)


def test_layers_of_a_window_keep_twice_the_heads_of_keys() -> None:
    """A key of 192 and a value of 128 numbers: 8 heads over 129 tokens, 4 over all."""
    model = read(MIMO)
    assert {(a.window, a.kv_heads, a.sinks) for a in model.attentions} == {
        (129, 8, True),
        (0, 4, False),
    }
    kinds = Cache.of(model, Plan(), engine_of("sglang"), 16.0).kinds
    assert {(k.window, k.token_bytes, k.layers) for k in kinds} == {
        (129, 8 * (192 + 128) * 2.0, 4),
        (0, 4 * (192 + 128) * 2.0, 2),
    }


def test_a_list_that_leaves_layers_out_is_refused() -> None:
    with pytest.raises(BadConfig, match="hybrid_layer_pattern has 2 entries for 6 layers"):
        read(MIMO | {"hybrid_layer_pattern": [0, 1]})


LLAMA = {
    "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 4, "vocab_size": 1024,
    "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip
WHOLE = {"attention": {"n_heads_in_group": 4, "no_op": False}, "ffn": {"ffn_mult": 5.25}}
# int(2 · 5.25 · 768 / 3) = 2688, rounded up to a multiple of 256
WIDE = 2816


def searched(*blocks: dict[str, Any]) -> Model:
    return read(LLAMA | {"model_type": "nemotron-nas", "block_configs": list(blocks)})


def test_layers_of_a_search_are_those_of_llama_where_none_differs() -> None:
    """Transformers does not have the family; where all layers are alike it is LLaMA."""
    alike = LLAMA | {"intermediate_size": WIDE, "num_key_value_heads": 3, "model_type": "llama"}
    assert searched(*[WHOLE] * 4).parameter_count == counted(alike)


def test_halves_that_a_search_took_out_have_no_weights_and_no_cache() -> None:
    whole = searched(*[WHOLE] * 4)
    widens = WHOLE | {"attention": {"no_op": True}}
    mixes = WHOLE | {"ffn": {"no_op": True}}
    nothing = {"attention": {"no_op": True}, "ffn": {"no_op": True}}
    model = searched(WHOLE, widens, mixes, nothing)
    attention, ffn = 768 * (2 * 768 + 2 * 192) + 768, 3 * 768 * WIDE + 768
    assert whole.parameter_count - model.parameter_count == 2 * (attention + ffn)
    assert model.layers == 3
    cache = Cache.of(model, Plan(), engine_of("vllm"), 16.0)
    assert cache.token_bytes == 2 * 3 * (64 + 64) * 2.0


def test_what_a_search_may_do_besides_is_refused() -> None:
    linear = WHOLE | {"attention": {"no_op": False, "replace_with_linear": True}}
    with pytest.raises(
        BadConfig, match=r"block_configs\[1\]: attention: replace_with_linear is not"
    ):
        searched(WHOLE, linear, WHOLE, WHOLE)
    with pytest.raises(BadConfig, match="12 heads do not divide into groups of 5"):
        searched(*[WHOLE | {"attention": {"n_heads_in_group": 5}}] * 4)
    with pytest.raises(BadConfig, match="block_configs has 1 entries for 4 layers"):
        searched(WHOLE)


STEP: dict[str, Any] = {
    "model_type": "step3p5", "hidden_size": 512, "num_hidden_layers": 5, "vocab_size": 1024,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "sliding_window": 512,
    "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention"],
    "num_sliding_attention_heads": 12, "n_routed_experts": 16, "num_experts_per_tok": 8,
    "moe_intermediate_size": 128, "share_expert_dim": 256, "intermediate_size": 1024,
}  # fmt: skip
OLDER = ("num_sliding_attention_heads", "num_key_value_heads", "n_routed_experts")


def test_step_has_the_parameters_of_transformers() -> None:
    """Its text part, and the head that the whole model has."""
    settings = transformers.models.step3p7.Step3p7TextConfig(**STEP)
    with torch.device("meta"):
        theirs = transformers.models.step3p7.modeling_step3p7.Step3p7TextModel(settings)
    counts = sum(p.numel() for p in theirs.parameters()) + 1024 * 512
    assert read(STEP).parameter_count == counts


def test_step_is_read_in_the_words_of_its_releases() -> None:
    older = {name: value for name, value in STEP.items() if name not in OLDER} | {
        "num_attention_groups": 4,
        "moe_num_experts": 16,
        "moe_layers_enum": "3,4",
        "attention_other_setting": {"num_attention_heads": 12},
    }
    older["layer_types"] = [*STEP["layer_types"], *["sliding_attention"] * 3]
    assert read(older).blocks == read(STEP).blocks
    assert read(older).pattern == read(STEP).pattern


def test_a_head_of_step_has_one_gate() -> None:
    model = read(STEP)
    program = compile_program(model, Plan(), Pass(1.0, 128.0), format_named("bf16"))
    ops = {n.name: n for n in program.blocks[1].forward if isinstance(n, Op)}
    assert work(ops["attention.gate"]).flop == 2.0 * 128 * 512 * 12
    with pytest.raises(BadConfig, match="4 key/value heads do not divide 9 heads"):
        read(STEP | {"num_sliding_attention_heads": 9})


M3: dict[str, Any] = {
    "model_type": "minimax_m3_vl_text", "hidden_size": 512, "num_hidden_layers": 4,
    "vocab_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64,
    "intermediate_size": 256, "dense_intermediate_size": 1024, "shared_intermediate_size": 256,
    "num_local_experts": 8, "num_experts_per_tok": 4, "moe_layer_freq": [0, 1, 1, 1],
    "sparse_attention_config": {
        "sparse_attention_freq": [0, 1, 1, 1], "sparse_block_size": 128, "sparse_index_dim": 32,
        "sparse_num_index_heads": 4, "sparse_topk_blocks": 16, "sparse_local_block": 1,
    },
}  # fmt: skip


def test_minimax_m3_has_the_parameters_of_transformers() -> None:
    family = transformers.models.minimax_m3_vl
    with torch.device("meta"):
        theirs = family.modeling_minimax_m3_vl.MiniMaxM3VLTextModel(
            family.MiniMaxM3VLTextConfig(**M3)
        )
    counts = sum(p.numel() for p in theirs.parameters()) + 1024 * 512
    assert read(M3).parameter_count == counts


def test_a_text_part_may_leave_its_type_to_the_whole() -> None:
    inner = {name: value for name, value in M3.items() if name != "model_type"}
    assert read({"model_type": "minimax_m3_vl", "text_config": inner}).blocks == read(M3).blocks


def test_blocks_of_keys_are_chosen_for_each_head_of_keys() -> None:
    """16 blocks of 128 keys, of all 10,000; each of 4 ranks scores for its own head."""
    model = read(M3)
    run = Pass(1.0, 1.0, 9999.0, training=False, decoding=True, sparse=SparseKernel())
    program = compile_program(model, Plan(tp=4), run, format_named("bf16"))
    layers = [{n.name: n for n in g.forward if isinstance(n, Op)} for g in program.blocks]
    assert [attention_shape(ops["attention.core"]).seen for ops in layers] == [10_000.0, 2048.0]
    scores = attention_shape(layers[1]["attention.index_scores"])
    assert (scores.heads, scores.seen, scores.head_dim) == (1.0, 10_000.0, 32.0)
    kinds = Cache.of(model, Plan(), engine_of("vllm"), 16.0).kinds
    assert {(k.token_bytes, k.layers) for k in kinds} == {(1024.0, 1), (1024.0 + 64.0, 3)}
