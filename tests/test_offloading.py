"""Layers and weights in host memory, and the processors that compute them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trueflops as tf
from conftest import Ask
from trueflops.cli import main
from trueflops.interop.engines import read_command, read_deployment
from trueflops.model import read_model
from trueflops.plan import Plan
from trueflops.predict import Server, ServingPoint
from trueflops.predict.serving import Offload
from trueflops.predict.serving.offloading import COPIED, LABELS, ON_HOST, OffloadedPasses
from trueflops.profile import engine_on, profile_of
from trueflops.records.tables import read_table
from trueflops.units import GIBI
from trueflops.verify.findings import InferenceRow
from trueflops.verify.serving.inference import inference_findings
from trueflops.workload import Serving

Capture = pytest.CaptureFixture[str]
MODEL = read_model("Llama-3.1-8B")
CPU = tf.accelerator("Ryzen 9 7950X")
TRUTH = Path(__file__).parents[1] / "truth" / "published" / "cpu_runs.csv"
LLAMA = ("--engine", "llama.cpp", "--weights", "q4_k_m", "--concurrency", "1")


def served(offload: Offload | None, prompt: int = 512, engine: str = "llama.cpp") -> Server:
    where = tf.cluster("RTX 4090")
    return Server(
        MODEL, Serving(prompt, 128, 1), where, profile_of(where.accelerator, engine),
        weights="q4_k_m" if engine == "llama.cpp" else "bf16",
        engine=engine_on(engine, where.accelerator), offload=offload,
    )  # fmt: skip


def point(layers: int, prompt: int = 512) -> ServingPoint:
    return served(Offload(layers, cpu=CPU) if layers else None, prompt).predict(Plan())


def part(of: ServingPoint, tree: str, cause: str) -> float:
    parts = {each.name: float(each.value) for each in getattr(of, tree).parts}
    return parts.get(LABELS[cause], 0.0)


# ── layers on the host ──────────────────────────────────────────────────────────────────────────


def test_a_token_waits_for_the_host_s_layers_as_long_as_its_memory_takes_to_read_them() -> None:
    alone, times = float(point(0).decode.value), []
    for layers in (8, 16, 24):
        found = point(layers)
        taken = part(found, "decode", ON_HOST)
        passes = served(Offload(layers, cpu=CPU)).passes
        assert isinstance(passes, OffloadedPasses)
        table = MODEL.vocab * MODEL.hidden * 2.0  # of the embedding a token reads one row
        floor = (passes.host_bytes() - table) / CPU.need("memory.bandwidth")
        assert floor < taken < 2.0 * floor
        assert part(found, "decode", COPIED) == 0.0
        times.append(float(found.decode.value))
    assert alone < times[0] < times[1] < times[2]
    # Each layer costs the same, so the steps from 8 to 16 and from 16 to 24 are equal.
    assert times[2] - times[1] == pytest.approx(times[1] - times[0], rel=1e-6)


def test_a_long_prompt_is_computed_by_the_card_with_copied_weights() -> None:
    whole, split = point(0, 512), point(16, 512)
    copied = part(split, "prefill", COPIED)
    each = float(whole.memory["weights"].value - split.memory["weights"].value)
    assert 0.5 * each < copied * engine_on("llama.cpp", CPU).copy_rate < each  # head and table stay
    rest = float(split.prefill.value) - copied - part(split, "prefill", ON_HOST)
    assert rest == pytest.approx(float(whole.prefill.value), rel=0.1)
    # Below 32 tokens the host computes: nothing is copied.
    few = point(16, 16)
    assert part(few, "prefill", COPIED) == 0.0
    assert part(few, "prefill", ON_HOST) > 0.0


def test_many_batches_at_once_are_those_one_by_one() -> None:
    passes = served(Offload(16, cpu=CPU)).passes
    batches, tokens = np.array([1.0, 4.0, 2.0]), np.array([16.0, 64.0, 8.0])
    together = passes.costs(Plan(), batches, tokens, np.zeros(3))
    timed = np.asarray(passes.time("prefill", together, Plan(), graphs=False).value)
    for at, (batch, length) in enumerate(zip(batches, tokens, strict=True)):
        one = passes.costs(Plan(), float(batch), float(length), 0.0)
        alone = passes.time("prefill", one, Plan(), graphs=False)
        assert timed[at] == pytest.approx(float(alone.value), rel=1e-9)


def test_cards_hold_the_weights_and_the_cache_of_their_own_layers() -> None:
    whole, half = point(0), point(16)
    assert half.cache_bytes_per_accelerator == pytest.approx(whole.cache_bytes_per_accelerator / 2)
    assert half.cache_bytes_per_request == whole.cache_bytes_per_request
    layers = float(whole.memory["weights"].value) / float(half.memory["weights"].value)
    assert layers > 2.0  # the head and the table of tokens are the host's, too


def test_llama_cpp_looks_tokens_up_in_host_memory() -> None:
    """As its log says: 'CPU buffer size' beside all layers on CUDA0 is the table's."""
    table = MODEL.vocab * MODEL.hidden
    layers = (MODEL.parameter_count - 2 * table) * 4.8 / 8.0
    head = table * 6.5625 / 8.0
    assert float(point(0).memory["weights"].value) == pytest.approx(layers + head, rel=0.01)


def test_replicas_of_a_node_share_its_processor() -> None:
    where = tf.cluster("2xRTX4090")
    server = Server(
        MODEL, Serving(512, 128, 2), where, profile_of(where.accelerator, "llama.cpp"),
        weights="q4_k_m", engine=engine_on("llama.cpp", where.accelerator),
        offload=Offload(16, cpu=CPU),
    )  # fmt: skip
    both = part(server.predict(Plan(dp_replicate=2)), "decode", ON_HOST)
    assert both == pytest.approx(2.0 * part(point(16), "decode", ON_HOST), rel=1e-6)


# ── weights that vLLM keeps there ───────────────────────────────────────────────────────────────


def test_weights_in_host_memory_cross_the_link_in_every_pass() -> None:
    held = 6 * GIBI
    plain, split = (
        served(each, engine="vllm").predict(Plan()) for each in (None, Offload(weight_bytes=held))
    )
    freed = float(plain.memory["weights"].value) - float(split.memory["weights"].value)
    assert freed == pytest.approx(held, rel=1e-6)
    copied = part(split, "decode", COPIED)
    assert copied == part(split, "prefill", COPIED)
    assert held / 32e9 < copied < held / 20e9  # PCIe 4.0 x16, pinned
    assert split.kv_cache.tokens.value > plain.kv_cache.tokens.value


# ── the command line ────────────────────────────────────────────────────────────────────────────


def tpot(answer: dict[str, Any]) -> float:
    return float(answer["tpot_seconds"]["value"])


def test_the_layers_that_are_said_to_fit_do_and_no_more_would(ask: Ask, capsys: Capture) -> None:
    asked = ("Llama-3.1-70B", "--on", "RTX4090", *LLAMA)
    assert main(["infer", *asked]) == 1
    said = capsys.readouterr().out
    answer = ask("infer", *asked, code=1)
    layers = answer["gpu_layers_that_fit"]
    assert not answer["fits"]
    assert f"--gpu-layers {layers}" in " ".join(said.split())
    assert ask("infer", *asked, "--gpu-layers", str(layers))["fits"]
    assert not ask("infer", *asked, "--gpu-layers", str(layers + 1), code=1)["fits"]


def test_all_layers_and_more_are_the_card_s(ask: Ask) -> None:
    asked = ("Llama-3.1-8B", "--on", "RTX4090", *LLAMA)
    plain = ask("infer", *asked)
    assert tpot(ask("infer", *asked, "--gpu-layers", "99")) == tpot(plain)
    # All but the head, which llama.cpp counts as one more.
    assert tpot(ask("infer", *asked, "--gpu-layers", "32")) > tpot(plain)


def test_nothing_on_the_host_is_as_nothing_said(ask: Ask) -> None:
    asked = ("Llama-3.1-8B", "--on", "RTX4090", "--engine", "vllm", "--concurrency", "1")
    assert tpot(ask("infer", *asked, "--cpu-offload-gb", "0")) == tpot(ask("infer", *asked))


def test_all_layers_on_the_host(ask: Ask) -> None:
    """-ngl 0: the host computes tokens, the card prompts, and the cache is the host's."""
    asked = ("infer", "Llama-3.1-8B", "--on", "RTX4090", *LLAMA, "--gpu-layers")
    none, one = (ask(*asked, n) for n in ("0", "1"))
    assert none["fits"]
    assert none["gpu_layers"] == 0
    assert tpot(one) < tpot(none) < 1.05 * tpot(one)
    assert none["ttft_seconds"]["value"] > one["ttft_seconds"]["value"]
    assert ask(*asked, "0", "--input", "8k")["fits"]


def test_no_layers_are_to_be_left_to_a_host_without_memory_of_its_own(capsys: Capture) -> None:
    for on, model in (("M3-Ultra", "DeepSeek-V3"), ("GB10", "Llama-3.1-405B")):
        assert main(["infer", model, "--on", on, "--concurrency", "1"]) == 1
        assert "--gpu-layers" not in capsys.readouterr().out


def test_an_engine_that_is_chosen_is_not_advised(capsys: Capture) -> None:
    asked = ("infer", "Llama-3.1-70B", "--on", "RTX4090", "--concurrency", "1")
    for engine, named in (("llama.cpp", False), ("vllm", True)):
        assert main([*asked, "--engine", engine, "--weights", "int4"]) == 1
        said = " ".join(capsys.readouterr().out.split())
        assert "--gpu-layers" in said
        assert ("--engine llama.cpp" in said) == named


def test_the_host_is_the_one_named_the_node_s_or_a_usual_one(ask: Ask, tmp_path: Path) -> None:
    asked = ("Llama-3.1-8B", *LLAMA, "--gpu-layers", "16")
    assert ask("infer", *asked, "--on", "RTX4090")["host_cpu"] == "Ryzen 9 7950X"
    assert ask("infer", *asked, "--on", "H100")["host_cpu"] == "Xeon Platinum 8480+"
    named = ask("infer", *asked, "--on", "RTX4090", "--host-cpu", "EPYC-9654")
    usual = ask("infer", *asked, "--on", "RTX4090")
    assert tpot(named) < tpot(usual)
    file = tmp_path / "mine.toml"
    file.write_text('accelerator = "RTX 4090"\n[host]\nmemory_bandwidth = "40 GB/s"\n')
    slow = ask("infer", *asked, "--on", str(file))
    assert slow["host_cpu"] == "Ryzen 9 7950X (40.0 GB/s)"
    assert tpot(slow) > 1.5 * tpot(usual)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--on RTX4090 --engine vllm --gpu-layers 8", "write --engine llama.cpp"),
        ("--on RTX4090 --engine llama.cpp --cpu-offload-gb 8", "write --engine vllm"),
        ("--on RTX4090 --engine vllm --gpu-layers 8 --cpu-offload-gb 8", "not both"),
        ("--on RTX4090 --engine llama.cpp --host-cpu EPYC-9654", "--gpu-layers leaves to it"),
        ("--on EPYC-9654 --engine llama.cpp --gpu-layers 8", "a host's own processor"),
        ("--on RTX4090 --engine vllm --cpu-offload-gb -3", "write GiB from 0 on"),
        ("--on M3-Ultra --engine llama.cpp --gpu-layers 8", "and its host share one memory"),
        ("--on GB10 --engine vllm --cpu-offload-gb 8", "and its host share one memory"),
        ("--on RTX4090 --engine llama.cpp --gpu-layers 8 --host-cpu H100", "not a processor"),
    ],
)
def test_what_an_engine_cannot_leave_to_a_host_is_refused(
    capsys: Capture, words: str, says: str
) -> None:
    assert main(["infer", "Llama-3.1-8B", *words.split()]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_host_whose_memory_is_too_small_is_told(capsys: Capture) -> None:
    words = ["Llama-3.1-405B", "--on", "RTX4090", "--engine", "llama.cpp", "--gpu-layers", "1"]
    assert main(["infer", *words]) == 2
    assert "the host would hold" in " ".join(capsys.readouterr().err.split())


def test_commands_carry_what_the_host_holds(ask: Ask, tmp_path: Path) -> None:
    asked = ("Llama-3.1-8B", "--on", "RTX4090", *LLAMA, "--gpu-layers", "20")
    ask("infer", *asked, "--emit", "llamacpp", str(tmp_path))
    script = tmp_path / "serve.sh"
    assert "--n-gpu-layers 20" in script.read_text()
    assert read_deployment(script).gpu_layers == 20
    again = ask("infer", "Llama-3.1-8B", "--on", "RTX4090", "--from", str(script))
    assert again["gpu_layers"] == 20
    whole = ask("infer", *asked[:-2], "--emit", "llamacpp", str(tmp_path), "--force")
    assert whole["gpu_layers"] == 32
    assert "--n-gpu-layers 999" in script.read_text()
    said = read_command("vllm serve x --cpu-offload-gb 7.5")
    assert (said.cpu_offload_gb, said.ignored) == (7.5, ())
    assert read_command("llama-server -m x -ngl auto").gpu_layers is None
    assert read_command("llama-server -m x -ngl 0").gpu_layers == 0
    ask("infer", *asked[:-2], "--gpu-layers", "0", "--emit", "llamacpp", str(tmp_path), "--force")
    assert ask("infer", "Llama-3.1-8B", "--on", "RTX4090", "--from", str(script))["gpu_layers"] == 0


# ── processors as devices ───────────────────────────────────────────────────────────────────────


def test_a_cpu_writes_no_faster_than_its_memory_and_reads_prompts_by_its_cores(
    ask: Ask,
) -> None:
    words = ("Llama-3.1-8B", "--engine", "llama.cpp", "--concurrency", "1", "--weights", "q8_0")
    few, many = (ask("infer", *words, "--on", name) for name in ("EPYC-9554", "EPYC-9654"))
    for answer in (few, many):
        read = MODEL.parameter_count * 8.5 / 8.0 * 0.9  # the table of tokens is not read
        assert answer["decode"]["seconds"] > read / 460.8e9
    # The same memory, and more cores times clock.
    assert many["decode"]["seconds"] == pytest.approx(few["decode"]["seconds"], rel=0.05)
    assert many["prefill"]["seconds"] < few["prefill"]["seconds"]


def test_published_rates_of_processors_and_split_models_are_met() -> None:
    """Only the rows of one source chose the shares: the Ryzen's of ik_llama.cpp's README."""
    found = inference_findings(read_table(TRUTH), profile_of)
    assert not found.refused
    off: dict[str, list[float]] = {}
    for row in found.rows:
        assert isinstance(row.about, InferenceRow)
        off.setdefault(f"{row.about.source} {row.about.timed}", []).append(row.error)
    medians = {name: float(np.median(np.abs(errors))) for name, errors in off.items()}
    assert medians["inventivehq-ngl one request's tokens"] < 0.15
    assert medians["ahelpme-epyc-9554 one request's tokens"] < 0.15
    assert medians["inventivehq-cpu one request's tokens"] < 0.35
    assert medians["ik-discussion-164 prompt"] < 0.35
