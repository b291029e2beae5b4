"""Models that see, or that give vectors and scores: what is priced of them is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Ask
from trueflops.catalog.models import model_config
from trueflops.model import read_model
from trueflops.model.beyond import SCORES, SEES

TEXT = "Qwen2.5-7B"


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", (SEES,)),
        ("Qwen/Qwen2.5-VL-72B-Instruct-AWQ", (SEES,)),
        ("zai-org/GLM-4.1V-9B-Thinking", (SEES,)),
        ("OpenGVLab/InternVL3_5-8B", (SEES,)),
        ("allenai/olmOCR-2-7B-1025", (SEES,)),
        ("Qwen3-Omni-30B-A3B", (SEES,)),
        ("Qwen/Qwen3-Embedding-8B", (SCORES,)),
        ("Qwen/Qwen3-Reranker-4B", (SCORES,)),
        ("intfloat/e5-mistral-7b-instruct", (SCORES,)),
        ("mistralai/Mistral-7B-v0.1", ()),
        ("meta-llama/Llama-Guard-3-8B", ()),
        ("Qwen2.5-7B-Instruct", ()),
    ],
)
def test_a_name_tells_what_else_a_model_is(name: str, notes: tuple[str, ...]) -> None:
    assert read_model(name).notes == notes


@pytest.mark.parametrize(
    ("whole", "notes"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, ()),
        ({}, ()),
        ({"architectures": "Qwen2ForCausalLM"}, ()),
        ({"architectures": ["LlavaForConditionalGeneration"]}, (SEES,)),
        ({"vision_config": {"depth": 32}, "architectures": ["Qwen2ForCausalLM"]}, (SEES,)),
        ({"mm_vision_tower": "openai/clip-vit-large-patch14-336"}, (SEES,)),
        ({"architectures": ["Qwen2ForRewardModel"]}, (SCORES,)),
        ({"architectures": ["Qwen2ForSequenceClassification"]}, (SCORES,)),
        ({"architectures": ["Qwen2Model"]}, (SCORES,)),
    ],
)
def test_a_config_tells_it_too(
    whole: dict[str, Any], notes: tuple[str, ...], tmp_path: Path
) -> None:
    """Flat, as those of Qwen2.5-VL, and nested, as those of Llava."""
    own = dict(model_config(TEXT)[1])
    for fields in (own | whole, {"text_config": own} | whole):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(fields))
        read = read_model(str(file))
        assert read.notes == notes
        assert read.parameter_count == read_model(TEXT).parameter_count


def test_an_answer_says_so_and_is_the_language_models(ask: Ask) -> None:
    for words in (("infer", "--tp", "1"), ("train", "--tp", "4")):
        command, *plan = words
        on = ("--on", "H100" if command == "infer" else "8xH100", *plan)
        said, plain = ask(command, "Qwen2.5-VL-7B", *on), ask(command, TEXT, *on)
        assert SEES in said["notes"]
        assert SEES not in plain["notes"]
        key = "tpot_seconds" if command == "infer" else "step_seconds"
        assert said[key] == plain[key]
