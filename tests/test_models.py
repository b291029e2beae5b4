"""Models: parameter counts equal transformers' own, for every catalog model it can build."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from trueflops.catalog.models import model_names, model_record
from trueflops.errors import BadConfig, BadInput
from trueflops.model import read_model
from trueflops.model.config import Config
from trueflops.model.families import READERS
from trueflops.model.read import model_from

CLASSES = {
    "llama4_text": "Llama4ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
}
# Of the same layers: transformers has no class of these names.
TYPES = {
    "kimi_k2": "deepseek_v3", "mimo": "qwen2", "internlm2": "llama", "internlm3": "llama",
    "minicpm": "llama", "exaone": "llama", "deepseek": "glm4_moe", "bailing_moe_v2": "dots1",
}  # fmt: skip
RENAMED = {"bailing_moe_v2": {"num_experts": "n_routed_experts",
                              "num_shared_experts": "n_shared_experts"},
           "exaone": {"num_layers": "num_hidden_layers"}}  # fmt: skip


# transformers has these without their heads, which are none of the embedding.
HEADLESS = {
    "step3p5": ("step3p7", "Step3p7TextModel"),
    "deepseek_ocr2_text": ("deepseek_ocr2", "DeepseekOcr2TextModel"),
}


def searched_count(config: dict[str, Any]) -> int:
    """Transformers has no class for layers that a search chose: they are LLaMA's, or halves of it.

    The width of an FFN by its `ffn_mult`: DeciLM's _ffn_mult_to_intermediate_size.
    """
    hidden, heads = config["hidden_size"], config["num_attention_heads"]

    def llama(attention: dict[str, Any], ffn: dict[str, Any]) -> Any:
        width = -(-int(2 * ffn.get("ffn_mult", 1.0) * hidden / 3) // 256) * 256
        settings = transformers.LlamaConfig(
            vocab_size=config["vocab_size"], hidden_size=hidden, num_hidden_layers=1,
            num_attention_heads=heads, intermediate_size=width,
            num_key_value_heads=heads // attention.get("n_heads_in_group", 1),
            tie_word_embeddings=config["tie_word_embeddings"],
        )  # fmt: skip
        with torch.device("meta"):
            return transformers.LlamaForCausalLM(settings)

    def numbers(*parts: torch.nn.Module) -> int:
        return sum(p.numel() for part in parts for p in part.parameters())

    shell = llama({}, {})
    total = numbers(shell) - numbers(shell.model.layers[0])
    for block in config["block_configs"]:
        layer = llama(**block).model.layers[0]
        if not block["attention"].get("no_op"):
            total += numbers(layer.self_attn, layer.input_layernorm)
        if not block["ffn"].get("no_op"):
            total += numbers(layer.mlp, layer.post_attention_layernorm)
    return total


def transformers_count(config: dict[str, Any]) -> int:
    """Build the model on the meta device and count what it calls parameters."""
    if config["model_type"] == "nemotron-nas":
        return searched_count(config)
    fields = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
    kind = config["model_type"]
    fields = {RENAMED.get(kind, {}).get(name, name): value for name, value in fields.items()}
    if kind in ("deepseek_v2", "deepseek_v3") and "q_lora_rank" not in fields:
        fields["q_lora_rank"] = None  # TOML has no null; the class's default is not null
    if kind == "mistral" and "sliding_window" not in fields:
        fields["sliding_window"] = None
    settings = transformers.AutoConfig.for_model(TYPES.get(kind, kind), **fields)
    with torch.device("meta"):
        if kind in HEADLESS:
            module, bare = HEADLESS[kind]
            code = import_module(f"transformers.models.{module}.modeling_{module}")
            model = getattr(code, bare)(settings)
        elif kind in CLASSES:
            model = getattr(transformers, CLASSES[kind])(settings)
        else:
            model = transformers.AutoModelForCausalLM.from_config(settings)
    head = settings.vocab_size * settings.hidden_size if kind in HEADLESS else 0
    return sum(p.numel() for p in model.parameters()) + head


@pytest.mark.parametrize("name", model_names())
def test_parameter_count_equals_transformers(name: str) -> None:
    record = model_record(name)
    assert read_model(name).parameter_count == transformers_count(record["config"])
    assert read_model(name).parameter_count == record["parameters"]


SMALL = {
    "vocab_size": 4096, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 1024, "head_dim": 64, "pad_token_id": None,
    "max_position_embeddings": 8192,
}  # fmt: skip
ROUTED = {"num_experts_per_tok": 2, "moe_intermediate_size": 128}
LOW_RANK = {
    "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32,
}  # fmt: skip
CONVS = {"layer_types": ["conv", "conv", "full_attention", "conv"]}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("arcee", {}), ("arcee", {"mlp_bias": True}),
    ("cohere", {}), ("cohere", {"use_qk_norm": True, "attention_bias": True}),
    ("cohere2", {"sliding_window": 256}),
    ("ernie4_5", {}), ("ernie4_5", {"use_bias": True, "tie_word_embeddings": False}),
    ("exaone4", {"sliding_window": 256}),
    ("glm", {"attention_bias": True}), ("glm4", {"attention_bias": True}), ("glm4", {}),
    ("helium", {}), ("hunyuan_v1_dense", {"attention_bias": True}), ("ministral3", {}),
    ("olmo3", {}), ("seed_oss", {}), ("seed_oss", {"attention_out_bias": True}),
    ("stablelm", {}), ("stablelm", {"use_qkv_bias": True, "use_parallel_residual": True}),
    ("stablelm", {"qk_layernorm": True}),
    ("granitemoe", ROUTED | {"num_local_experts": 8}),
    ("phimoe", ROUTED | {"num_local_experts": 8, "attention_bias": True, "lm_head_bias": True}),
    ("olmoe", ROUTED | {"num_experts": 8}),
    ("dots1", ROUTED | {"n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1}),
    ("ernie4_5_moe", ROUTED | {"moe_num_experts": 8, "moe_k": 2, "moe_layer_start_index": 1}),
    ("apertus", {}), ("phi", {}),
    ("gpt_bigcode", {"n_embd": 512, "n_head": 8, "n_layer": 4}),
    ("gpt_bigcode", {"n_embd": 512, "n_head": 8, "n_layer": 4, "multi_query": False}),
    ("hy_v3", ROUTED | {"num_experts": 8}), ("exaone_moe", ROUTED | {"num_experts": 8}),
    ("afmoe", ROUTED | {"num_experts": 8, "num_shared_experts": 1, "num_dense_layers": 2}),
    ("solar_open", ROUTED | {"n_routed_experts": 8}),
    ("hunyuan_v1_moe", {"num_experts": 8, "moe_topk": 2}),
    ("minicpm3", LOW_RANK), ("youtu", LOW_RANK),
    ("lfm2", CONVS), ("lfm2", CONVS | {"conv_bias": True, "block_auto_adjust_ff_dim": False}),
    ("lfm2_moe", CONVS | ROUTED | {"num_experts": 8, "num_dense_layers": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "own"), OTHERS)
def test_families_beyond_the_catalog_are_counted_alike(kind: str, own: dict[str, Any]) -> None:
    settings = transformers.AutoConfig.for_model(kind, **SMALL, **own)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(settings)
    fields = settings.to_dict()
    counted = sum(p.numel() for p in model.parameters())
    assert model_from(Config(fields, kind), kind).parameter_count == counted


def test_the_decoder_of_deepseek_ocr_is_counted_alike() -> None:
    """In transformers' words, and in those of the release, which keeps it beside its encoder."""
    own: dict[str, Any] = {k: v for k, v in SMALL.items() if k != "head_dim"} | ROUTED
    own |= {"n_routed_experts": 8, "n_shared_experts": 2}
    own["mlp_layer_types"] = ["dense", *["sparse"] * 3]
    counted = transformers_count(own | {"model_type": "deepseek_ocr2_text"})
    beside = {"kv_lora_rank": None, "v_head_dim": 0, "use_mla": False, "first_k_dense_replace": 1}
    whole = {"model_type": "deepseek_vl_v2",
             "language_config": own | beside | {"model_type": "deepseek_v2"}}  # fmt: skip
    assert model_from(Config(whole, "config.json"), "ocr").parameter_count == counted
    alone = own | beside | {"model_type": "deepseek_ocr2_text"}
    assert model_from(Config(alone, "config.json"), "ocr").parameter_count == counted


def test_a_list_that_says_the_same_of_every_layer_is_a_number() -> None:
    """As the config.json of Hunyuan-A13B has it; another list is refused."""
    own: dict[str, Any] = {k: v for k, v in SMALL.items() if v is not None}
    own |= {"model_type": "hunyuan_v1_moe"}
    own |= {"num_experts": 8, "moe_topk": [2] * 4, "num_shared_expert": [1] * 4,
            "moe_intermediate_size": [128] * 4}  # fmt: skip
    experts = model_from(Config(own, "config.json"), "hunyuan").blocks[0].experts
    assert experts is not None
    assert (experts.per_token, experts.width, experts.shared_width) == (2, 128, 128)
    with pytest.raises(BadConfig, match="moe_topk"):
        model_from(Config(own | {"moe_topk": [1, 2, 2, 2]}, "config.json"), "hunyuan")


@pytest.mark.parametrize("tied", [True, False])
def test_what_sees_says_outside_whether_its_head_is_tied(tied: bool) -> None:
    text = {k: v for k, v in SMALL.items() if v is not None} | {"model_type": "qwen3_vl_text"}
    whole = {"model_type": "qwen3_vl", "tie_word_embeddings": tied, "text_config": text}
    model = model_from(Config(whole, "config.json"), "sees")
    assert model.tied == tied
    assert model.attentions[0].qk_norm == "head"


def test_layers_that_see_all_may_be_written_out() -> None:
    """EXAONE 4's config.json has `LLLG`, others a number, others every layer."""
    own = SMALL | {"model_type": "exaone4", "sliding_window": 256}
    for said in ({"sliding_window_pattern": "LLLG"}, {"sliding_window_pattern": 4}, {}):
        model = model_from(Config(own | said, "config.json"), "exaone")
        assert [model.attentions[i].window for i in model.pattern] == [256, 256, 256, 0]


def test_only_the_first_mistral_7b_has_a_window() -> None:
    """And Mathstral, which has the vocabulary of the third."""
    said = [
        (model.attentions[0].window, model.vocab)
        for model in map(
            read_model, ("Mistral-7B", "Mistral-7B-v0.2", "Mistral-7B-v0.3", "Mathstral-7B")
        )
    ]
    assert said == [(4096, 32000), (0, 32000), (0, 32768), (4096, 32768)]


def test_a_state_is_as_wide_as_the_config_says() -> None:
    """Falcon-Mamba-7B's config.json has 8192 channels and an `expand` of 16."""
    config = dict(model_record("Falcon-Mamba-7B")["config"])
    model = read_model("Falcon-Mamba-7B")
    (layer,) = {block.recurrent for block in model.blocks}
    assert layer is not None
    assert layer.heads == 8192
    by_expand = {k: v for k, v in config.items() if k != "intermediate_size"} | {"expand": 2}
    assert model_from(Config(by_expand, "config.json"), "falcon").blocks == model.blocks


def test_gemma_4_sees_far_with_wider_heads() -> None:
    model = read_model("Gemma-4-31B")
    near, far = (model.attentions[index] for index in (0, 1))
    assert (near.window, near.head_dim, near.kv_heads, near.keys_as_values) == (
        1024,
        256,
        16,
        False,
    )
    assert (far.window, far.head_dim, far.kv_heads, far.keys_as_values) == (0, 512, 4, True)


def test_python_writes_infinity(tmp_path: Path) -> None:
    """As Nemotron-H's config.json has it: no limit. A size it cannot be."""
    fields = SMALL | {"model_type": "llama", "pad_token_id": 0}
    for name, value, fine in (("time_step_limit", [0, float("inf")], True),
                              ("hidden_size", float("inf"), False)):  # fmt: skip
        file = tmp_path / "config.json"
        file.write_text(json.dumps(fields | {name: value}))
        if fine:
            assert read_model(str(file)).hidden == 512
        else:
            with pytest.raises(BadConfig, match="hidden_size"):
                read_model(str(file))


def test_every_family_of_the_readers_is_in_the_catalog_or_known() -> None:
    seen = {model_record(name)["config"]["model_type"] for name in model_names()}
    assert seen <= set(READERS)
    assert len(seen) >= 24


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("Mixtral-8x7B", 12.9e9),
        ("DeepSeek-V3", 37.5e9),
        ("Qwen3-235B-A22B", 22.2e9),
        ("GPT-OSS-120B", 5.7e9),
        ("Llama-4-Maverick", 17.2e9),
    ],
)
def test_active_parameters_are_those_a_token_meets(name: str, active: float) -> None:
    assert read_model(name).active_parameter_count == pytest.approx(active, rel=0.03)


def test_windows_and_dense_first_layers_are_read() -> None:
    gemma = read_model("Gemma-3-27B")
    windows = [gemma.attentions[i].window for i in gemma.pattern]
    assert windows[:6] == [1024] * 5 + [0]
    assert read_model("GPT-OSS-20B").attentions[0].window == 128
    deepseek = read_model("DeepSeek-V3")
    assert [deepseek.blocks[i].ffn is not None for i in deepseek.pattern[:4]] == [True] * 3 + [
        False
    ]
    maverick = read_model("Llama-4-Maverick")
    assert sum(maverick.blocks[i].experts is not None for i in maverick.pattern) == 24


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-3.1-70B-Instruct", "llama3.1-70b", "LLAMA_3.1_70B"]
)
def test_models_are_found_however_they_are_spelt(name: str) -> None:
    assert read_model(name).name == "Llama-3.1-70B"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta-llama/Meta-Llama-3-8B", "Llama-3-8B"),
        ("Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("mistralai/Mistral-7B-v0.1", "Mistral-7B"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "Mistral-7B"),
        ("Mistral-7B-Instruct", "Mistral-7B"),
        ("HuggingFaceH4/zephyr-7b-beta", "Mistral-7B"),
        ("intfloat/e5-mistral-7b-instruct", "Mistral-7B"),
        ("Mistral-7B-Instruct-v0.2", "Mistral-7B-v0.2"),
        ("mistral-community/Mistral-7B-v0.2", "Mistral-7B-v0.2"),
        ("TheBloke/Mistral-7B-Instruct-v0.2-AWQ", "Mistral-7B-v0.2"),
        ("TheBloke/Mistral-7B-Instruct-v0.2-GPTQ", "Mistral-7B-v0.2"),
        ("mistral-7b-instruct-v0.2.Q4_K_M.gguf", "Mistral-7B-v0.2"),
        ("mistralai/Mistral-7B-v0.3", "Mistral-7B-v0.3"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("solidrust/Mistral-7B-Instruct-v0.3-AWQ", "Mistral-7B-v0.3"),
        ("neuralmagic/Mistral-7B-Instruct-v0.3-GPTQ-4bit", "Mistral-7B-v0.3"),
        ("mistralai/Mathstral-7B-v0.1", "Mathstral-7B"),
        ("state-spaces/mamba-2.8b-hf", "Mamba-2.8B"),
        ("state-spaces/mamba2-2.7b", "Mamba2-2.7B"),
        ("tiiuae/falcon-mamba-7b-instruct", "Falcon-Mamba-7B"),
        ("mistralai/Mamba-Codestral-7B-v0.1", "Mamba-Codestral-7B"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "Llama-3.3-Nemotron-Super-49B"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5", "Llama-3.3-Nemotron-Super-49B"),
        ("nvidia/Llama-3.3-Nemotron-Super-49B-v1.5-FP8", "Llama-3.3-Nemotron-Super-49B"),
        ("nvidia/Llama-3_1-Nemotron-Ultra-253B-v1-FP8", "Llama-3.1-Nemotron-Ultra-253B"),
        ("baidu/ERNIE-4.5-300B-A47B-PT", "ERNIE-4.5-300B-A47B"),
        ("01-ai/Yi-34B-200K", "Yi-34B-200K"),
        ("lmsys/vicuna-13b-v1.3", "LLaMA-13B"),
        ("lmsys/vicuna-13b-v1.5", "Llama-2-13B"),
        ("lmsys/vicuna-33b-v1.3", "LLaMA-33B"),
        ("WizardLM/WizardLM-13B-V1.2", "Llama-2-13B"),
        ("WizardLM/WizardLM-70B-V1.0", "Llama-2-70B"),
        ("codellama/CodeLlama-34b-Python-hf", "CodeLlama-34B"),
        ("internlm/internlm2-chat-7b", "InternLM2.5-7B"),
        ("CohereForAI/aya-23-35B", "Command-R-35B"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "Mistral-Nemo-12B"),
        ("mistralai/Mistral-Large-Instruct-2407", "Mistral-Large-123B"),
        ("mistralai/Codestral-22B-v0.1", "Mistral-Small-22B"),
        ("deepseek-ai/DeepSeek-Math-V2", "DeepSeek-V3.2"),
        ("deepseek-ai/DeepSeek-OCR-2", "DeepSeek-OCR"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2.5-7B"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen3-30B-A3B"),
        ("DeepSeek-V2", "DeepSeek-V2"),  # no release of "deepseek", which is short for V3
    ],
)
def test_names_as_their_makers_write_them(name: str, model: str) -> None:
    assert read_model(name).name == model


def test_a_config_json_gives_the_same_model_as_the_catalog(tmp_path: Path) -> None:
    config = model_record("Qwen3-8B")["config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    by_folder, by_file = read_model(str(tmp_path)), read_model(str(tmp_path / "config.json"))
    assert by_folder.blocks == by_file.blocks == read_model("Qwen3-8B").blocks
    wrapped = {"model_type": "qwen3_vl", "text_config": config}
    (tmp_path / "multi.json").write_text(json.dumps(wrapped))
    assert read_model(str(tmp_path / "multi.json")).blocks == by_file.blocks


LLAMA = dict(model_record("Llama-3.1-8B")["config"])


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": -4096},
        {"hidden_size": 0},
        {"hidden_size": 1e400},
        {"hidden_size": "4096"},
        {"hidden_size": 4096.5},
        {"hidden_size": True},
        {"num_hidden_layers": -1},
        {"num_hidden_layers": 10**9},
        {"num_attention_heads": 7},
        {"num_key_value_heads": 5},
        {"vocab_size": None},
        {"model_type": "lama"},
        {"model_type": 3},
        {"model_type": None},
        {"sliding_window": 64, "layer_types": "x"},
        {"sliding_window": [], "layer_types": ["full_attention"]},
        {"attention_bias": "no"},
        {"attention_dropout": 7},
        {"num_hidden_layers": 10**400},
        {"hidden_size": 10**20},
        {"tie_word_embeddings": 1},
        {"hidden_size": [1]},
    ],
)
def test_a_hostile_field_is_one_clear_error(tmp_path: Path, changes: dict[str, Any]) -> None:
    file = tmp_path / "config.json"
    fields = {k: v for k, v in {**LLAMA, **changes}.items() if v is not None}
    file.write_text(json.dumps(fields))
    with pytest.raises(BadInput, match=r"config\.json"):
        read_model(str(file))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '{"model_type": NaN}',
        '{"hidden_size": Infinity}',
        "\xff\xfe",
        "{}",
        '{"model_type": "llama"}',
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"hidden_size": ' + "9" * 5000 + "}",
        json.dumps(LLAMA)[: len(json.dumps(LLAMA)) // 2],
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadConfig, match=r"config\.json"):
        read_model(str(file))


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b" " * (5 * 1024 * 1024))
    with pytest.raises(BadInput, match="4 MiB"):
        read_model(str(file))


def test_nothing_in_a_config_is_executed(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    trap = f"__import__('pathlib').Path({str(touched)!r}).touch()"
    fields = {
        **LLAMA,
        "hidden_act": trap,
        "auto_map": {"AutoConfig": trap},
        "architectures": [trap],
    }
    (tmp_path / "config.json").write_text(json.dumps(fields))
    read_model(str(tmp_path))
    assert not touched.exists()
