"""Adafactor and Lion as planned, held against PyTorch's and transformers' own code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.optimization import Adafactor as WideAdafactor

import trueflops as tf
from capture_programs import trained
from test_capture_programs import captured
from trueflops.capture.lower import lower
from trueflops.clock import Clock
from trueflops.errors import BadInput
from trueflops.graph import Op
from trueflops.graph.rules import work
from trueflops.interop.launch import read_launch
from trueflops.plan import Plan
from trueflops.predict.training.adafactor import Adafactor, Sizes
from trueflops.predict.training.memory import Held
from trueflops.run.as_run import as_run
from trueflops.run.counted import Counting

CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096,
}  # fmt: skip
Make = Callable[[Iterable[Any]], torch.optim.Optimizer]


def wide(parameters: Iterable[Any]) -> torch.optim.Optimizer:
    """As the Trainer makes it (transformers/trainer_optimizer.py, _get_adafactor)."""
    return WideAdafactor(parameters, lr=1e-3, scale_parameter=False, relative_step=False)


IMPLEMENTATIONS: dict[str, Make] = {"plain": torch.optim.Adafactor, "trainer": wide}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, tied in (("untied", False), ("tied", True)):
        config = CONFIG | {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": tied}
        (folder / f"{name}.json").write_text(json.dumps(config))
    return folder


def trainer_of(model: tf.Model, framework: str, count: int = 1) -> tf.Trainer:
    where = tf.cluster(f"{count}xH100")
    asked = tf.Training(seq=64, global_batch=count, tokens=1e6)
    return tf.Trainer(model, asked, where, tf.profile_of(where.accelerator, framework))


def part(step: Any, name: str) -> float:
    return next(float(p.value) for p in step.parts if p.name == name)


def weights_of(dtype: str, *, tied: bool) -> list[Any]:
    fields = {name: value for name, value in CONFIG.items() if name != "model_type"}
    config = transformers.LlamaConfig(**fields, tie_word_embeddings=tied)
    model: Any = transformers.LlamaForCausalLM(config)
    parameters = list(model.to(DTYPES[dtype]).parameters())
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return parameters


def plan_in(dtype: str, **more: Any) -> Plan:
    optimizer = "adafactor" if dtype == "fp32" else "adafactor-bf16"
    return Plan(parameter_dtype=dtype, gradient_dtype=dtype, optimizer=optimizer, **more)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("framework", IMPLEMENTATIONS)
def test_an_update_keeps_and_makes_what_is_planned(
    framework: str, dtype: str, tied: bool, folder: Path
) -> None:
    parameters = weights_of(dtype, tied=tied)
    optimizer = IMPLEMENTATIONS[framework](parameters)
    optimizer.step()
    kept = sum(
        value.nbytes
        for state in optimizer.state.values()
        for name, value in state.items()
        if isinstance(value, Tensor) and name not in ("step", "RMS")
    )
    model = tf.read_model(str(folder / ("tied.json" if tied else "untied.json")))
    memory = trainer_of(model, framework).predict_one(plan_in(dtype)).memory
    assert part(memory, "optimizer states") == kept

    with Counting() as counting:
        for parameter in parameters:
            counting._note(parameter.untyped_storage())
            counting._note(parameter.grad.untyped_storage())
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    counting._note(value.untyped_storage())
        before = counting.live
        optimizer.step()
        made = counting.peak - before
    held = trainer_of(model, framework).lay_out(
        plan_in(dtype), trainer_of(model, framework).keyed_costs(plan_in(dtype)).spread()
    ).held  # fmt: skip
    own = Adafactor(wide=framework == "trainer", narrow=dtype == "bf16", flat=np.False_)
    # At most as much more as a layer's largest matrix is beside the embedding.
    planned = float(np.max(own.temporary_bytes(held)))
    assert made * 0.999 <= planned <= made + 4.0 * 688 * 256


def calls_of(make: Make, weight: tuple[int, ...], dtype: str) -> list[Op]:
    """Kernels of the real optimizer for one weight."""

    def build() -> Any:
        parameter = nn.Parameter(torch.zeros(weight, device="cuda", dtype=DTYPES[dtype]))
        return trained(nn.Identity(), lambda: (parameter * 2.0).sum(), make([parameter]))

    calls = captured(build).calls()
    return [op for call in calls if call.phase == "optimizer" for op in lower(call)]


@pytest.mark.parametrize("weight", [(1024, 1024), (4096,)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("framework", IMPLEMENTATIONS)
def test_its_calls_are_those_of_the_code(
    framework: str, dtype: str, weight: tuple[int, ...]
) -> None:
    flat = len(weight) == 1
    own = Adafactor(wide=framework == "trainer", narrow=dtype == "bf16", flat=np.asarray(flat))
    side, every = float(weight[0]), float(np.prod(weight))
    planned = [own.op(call, Sizes(every, side)) for call in own.calls(flat)]
    real = calls_of(IMPLEMENTATIONS[framework], weight, dtype)

    def moved(op: Op) -> tuple[float, float]:
        done = work(op)
        return float(done.bytes_read), float(done.bytes_written)

    assert Counter(map(moved, planned)) == Counter(map(moved, real))
    assert [len(planned), sum(op.variant == "strided" for op in planned)] == [
        len(real),
        sum(op.variant == "strided" for op in real),
    ]


MEASURED = [
    ("big", False, False, 38.7e-3), ("big", False, True, 27.0e-3),
    ("big", True, False, 45.2e-3), ("big", True, True, 59.0e-3),
    ("small", False, False, 40.9e-3), ("small", False, True, 26.6e-3),
    ("small", True, False, 27.7e-3), ("small", True, True, 35.1e-3),
]  # fmt: skip
"""Seconds of a step on an H200, torch 2.11.0, 2026-11-20: of four layers of Llama-3-8B with both
its ends, and of twelve of 768 with ends of 32,000; transformers' or not, bf16 or fp32."""
SHAPES = {"big": (4, 4096, 14336, 1024, 128256), "small": (12, 768, 2048, 768, 32000)}


def held_of(layers: int, hidden: int, ffn: int, kv: int, vocab: int) -> Held:
    """What a rank holds that shares with nobody."""
    square, narrow, ends = (hidden, hidden), (kv, hidden), (vocab, hidden)
    block = [square, narrow, narrow, square, *[(ffn, hidden)] * 3]
    matrices, vectors = [ends, *block * layers, ends], 2 * layers + 1
    count = sum(a * b for a, b in matrices) + vectors * hidden
    return Held(
        dense=float(count), experts=0.0, largest=float(vocab * hidden),
        tensors=float(len(matrices) + vectors), matrices=float(len(matrices)),
        sides=float(sum(a + b for a, b in matrices) + vectors * hidden),
    )  # fmt: skip


def test_how_long_it_takes() -> None:
    """Nothing is fitted to these: within a third where each was measured."""
    where = tf.cluster("1xH200")
    clock = Clock(where, tf.profile_of(where.accelerator, "transformers"))
    ratios = []
    for size, is_wide, narrow, seconds in MEASURED:
        held = held_of(*SHAPES[size])
        own = Adafactor(wide=is_wide, narrow=narrow, flat=np.False_)
        ratios.append(float(own.update(clock, held, held.dense).seconds) / seconds)
    assert min(ratios) > 0.66
    assert max(ratios) < 1.34
    assert np.exp(np.mean(np.log(ratios))) == pytest.approx(1.0, abs=0.1)


class TestShared:
    """What becomes of rows and columns where weights are divided."""

    model = tf.read_model("Llama-3.1-8B")

    def states(self, framework: str, **plan: Any) -> float:
        """Bytes a parameter of a rank's share, beside those of its copy in fp32."""
        asked = Plan(optimizer="adafactor", **plan)
        memory = trainer_of(self.model, framework, 8).predict_one(asked).memory
        share = self.model.parameter_count / (float(asked.dp_shard) if asked.zero else 1.0)
        return part(memory, "optimizer states") / share - 4.0

    @pytest.mark.parametrize(
        ("framework", "zero"), [("deepspeed", 1), ("deepspeed", 3), ("fsdp", 3), ("fsdp", 2)]
    )
    def test_flat_pieces_keep_every_second_moment(self, framework: str, zero: int) -> None:
        """exp_avg_sq of a piece as long as the piece: seen of FSDP1 on two processes (gloo)."""
        assert self.states(framework, dp_shard=8, zero=zero) == pytest.approx(4.0, rel=1e-3)

    @pytest.mark.parametrize(
        ("framework", "plan"),
        [
            ("plain", {"dp_shard": 8, "zero": 1}),  # ZeroRedundancyOptimizer: whole tensors
            ("deepspeed", {"dp_replicate": 8, "zero": 0}),  # FP16_UnfusedOptimizer
            ("fsdp", {"dp_replicate": 8, "zero": 0}),
        ],
    )
    def test_whole_weights_keep_their_rows(self, framework: str, plan: dict[str, Any]) -> None:
        assert self.states(framework, **plan) < 1e-2

    @pytest.mark.parametrize("framework", ["plain", "fsdp2", "torchtune"])
    def test_dtensors_are_refused(self, framework: str) -> None:
        """PyTorch 2.13 and transformers 5.22 both raise in the first step under fully_shard."""
        with pytest.raises(BadInput, match="write --zero 0 or 1, or --framework fsdp"):
            self.states(framework, dp_shard=8, zero=3)

    @pytest.mark.parametrize("plan", [{"tp": 2}, {"ep": 2}, {"dp_shard": 2, "zero": 2}])
    def test_run_takes_whole_matrices(self, plan: dict[str, Any]) -> None:
        with pytest.raises(BadInput, match="write tp 1, ep 1 and zero 0 or 1"):
            as_run(Plan(optimizer="adafactor", **plan))
        as_run(Plan(optimizer="adafactor", dp_shard=2, zero=1))


def test_of_adapters_rows_and_columns_are_theirs() -> None:
    """A [r, h] and B [outputs, r] of queries and values of 32 layers."""
    model, rank = tf.read_model("Llama-3.1-8B"), 16
    plan = Plan(
        adapters="lora", lora_rank=rank, lora_targets="q,v", optimizer="adafactor"
    )  # fmt: skip
    memory = trainer_of(model, "trainer").predict_one(plan).memory
    one = sum((rank + 4096) + (outputs + rank) for outputs in (4096, 1024))
    assert part(memory, "optimizer states") == 4.0 * 32 * one


@pytest.mark.parametrize(
    ("optimizer", "dtype", "each"),
    [
        ("lion", "bf16", 8.0), ("lion", "fp32", 4.0), ("lion-bf16", "bf16", 4.0),
        ("lion-8bit", "fp32", 1.0 + 4.0 / 256), ("lion-8bit-bf16", "bf16", 1.0 + 4.0 / 256),
        ("adafactor", "bf16", 4.0), ("adafactor", "fp32", 0.0), ("adafactor-bf16", "bf16", 0.0),
    ],
)  # fmt: skip
def test_bytes_of_states_a_parameter(optimizer: str, dtype: str, each: float) -> None:
    assert Plan(optimizer=optimizer, parameter_dtype=dtype).state_bytes == each


def test_a_small_model_waits_for_a_lion_that_is_launched_weight_by_weight() -> None:
    """One kernel for each weight in bitsandbytes, a few for all in DeepSpeed's FusedLion."""
    small = tf.read_model("GPT-2")

    def seconds(framework: str, optimizer: str) -> float:
        step = trainer_of(small, framework, 8).predict_one(
            Plan(dp_shard=8, zero=1, optimizer=optimizer)
        )  # fmt: skip
        return part(step.step, "optimizer")

    assert seconds("deepspeed", "lion") < seconds("deepspeed", "adamw")
    assert seconds("fsdp", "lion") > 2.0 * seconds("deepspeed", "lion")


class TestLaunched:
    """Names in other tools' files."""

    model = tf.read_model("Llama-3.1-8B")

    def plan(self, folder: Path, text: str, name: str = "run.sh") -> dict[str, Any]:
        (folder / name).write_text(text)
        return dict(read_launch(folder / name, self.model, 8).plan)

    @pytest.mark.parametrize(
        ("optim", "optimizer"),
        [
            ("adafactor", "adafactor"), ("lion_32bit", "lion"), ("lion_8bit", "lion-8bit"),
            ("paged_lion_32bit", "lion"), ("paged_lion_8bit", "lion-8bit"),
        ],
    )  # fmt: skip
    def test_a_trainer(self, optim: str, optimizer: str, tmp_path: Path) -> None:
        sizes = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
        (tmp_path / "ds.json").write_text(json.dumps(sizes | {"bf16": {"enabled": True}}))
        flags = f"--bf16 --optim {optim} --max_length 2048 --deepspeed ds.json"
        plan = self.plan(tmp_path, f"torchrun --nproc_per_node 8 train.py {flags}\n")
        assert plan["optimizer"] == optimizer
        assert plan.get("paged_states", False) == optim.startswith("paged")

    def test_deepspeed(self, tmp_path: Path) -> None:
        config: dict[str, Any] = {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 1,
            "optimizer": {"type": "Lion"},
            "bf16": {"enabled": True},
        }
        assert self.plan(tmp_path, json.dumps(config), "ds.json")["optimizer"] == "lion"
        config["bf16"] |= {"bf16_optimizer_states": True}
        with pytest.raises(BadInput, match="AdamW beside bf16_optimizer_states"):
            self.plan(tmp_path, json.dumps(config), "ds.json")

    def test_megatron(self, tmp_path: Path) -> None:
        flags = (
            "--num-layers 32 --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16"
        )
        text = f"torchrun --nproc_per_node=8 pretrain_gpt.py {flags} --optimizer lion\n"
        assert self.plan(tmp_path, text)["optimizer"] == "lion"
