"""Models of this year whose layers differ from one another in more than a window."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from trueflops.catalog.models import model_record
from trueflops.errors import BadConfig
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
