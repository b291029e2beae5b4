"""Kernels that a vendor tunes for engines: AITER's on AMD's chips, which no trainer calls."""

from __future__ import annotations

import json

import pytest

from trueflops import accelerator, cluster, profile_of
from trueflops.cli.main import main
from trueflops.interop.engines import Deployed, write_deployment
from trueflops.profile import CurveKey, Profile
from trueflops.profile.frameworks import runs_tuned

AITER = "tuned kernels of ROCm/aiter"
PRODUCT = CurveKey("matmul")
NARROW = CurveKey("matmul", dtype="fp8", format="fp8_block")


def source_of(profile: Profile, key: CurveKey) -> str:
    return profile.curve(key).source


@pytest.mark.parametrize("engine", ["serving", "vllm", "sglang"])
def test_engines_run_them(engine: str) -> None:
    assert AITER in source_of(profile_of(accelerator("MI300X"), engine), NARROW)
    assert runs_tuned(engine, "AMD")


@pytest.mark.parametrize(
    "framework", ["usual", "megatron", "torchtitan", "llama.cpp", "mlc", "vllm-0.2"]
)
def test_what_trains_and_what_brings_its_own_kernels_does_not(framework: str) -> None:
    profile = profile_of(accelerator("MI355X"), framework)
    assert AITER not in source_of(profile, PRODUCT)
    assert not runs_tuned(framework, "AMD")
    assert runs_tuned(framework, "NVIDIA")


def test_another_package_of_a_die_has_its_curves() -> None:
    own, other = (profile_of(accelerator(name), "sglang") for name in ("MI300X", "MI325X"))
    assert other.curve(NARROW).values == own.curve(NARROW).values
    assert other.curve(NARROW).error > own.curve(NARROW).error


def test_what_transfers_goes_to_families_that_were_measured() -> None:
    transferred = profile_of(accelerator("MI300X"), "vllm").curve(PRODUCT)
    measured = profile_of(accelerator("MI355X"), "vllm").curve(PRODUCT)
    assert AITER in transferred.source
    assert transferred.error > measured.error
    for other in ("MI250X", "RX7900XTX", "R9700"):
        assert AITER not in profile_of(accelerator(other), "vllm").curve(PRODUCT).source


def test_a_chip_without_four_bit_floats_has_no_kernels_of_them() -> None:
    key = CurveKey("experts", format="mxfp4")
    assert AITER in profile_of(accelerator("MI355X"), "vllm").curve(key).source
    assert AITER not in profile_of(accelerator("MI300X"), "vllm").curve(key).source


def test_no_kernel_of_a_vendor_takes_less_than_its_shortest() -> None:
    chip = accelerator("MI300X")
    least = 2.6e-6 * chip.need("compute.clock")
    for framework in ("usual", "sglang"):
        curves = profile_of(chip, framework).curves
        moving = [curve for key, curve in curves.items() if key.kind in ("eager", "cast")]
        assert min(curve["start_cycles"] for curve in moving) == pytest.approx(least)


def test_a_script_for_their_chips_asks_for_them() -> None:
    said = {}
    for engine in ("vllm", "sglang"):
        for vendor in ("AMD", "NVIDIA"):
            files = write_deployment(engine, Deployed(engine, tp=8), "about", 8, vendor=vendor)
            said[engine, vendor] = "USE_AITER=1" in files["serve.sh"]
    assert said == {(engine, vendor): vendor == "AMD" for engine, vendor in said}


def test_four_bits_are_those_that_the_chip_multiplies(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["infer", "Llama-3.1-8B", "--on", "MI355X", "--engine", "vllm", "--concurrency", "8"]
    assert main([*asked, "--weights", "nvfp4"]) != 0
    assert "--weights mxfp4_fp4" in " ".join(capsys.readouterr().err.split())
    steps = {}
    for weights in ("bf16", "fp8", "mxfp4_fp4"):
        assert main([*asked, "--weights", weights, "--json"]) == 0
        steps[weights] = json.loads(capsys.readouterr().out)["tpot_seconds"]["value"]
    assert steps["mxfp4_fp4"] < steps["fp8"] < steps["bf16"]


def test_a_group_of_a_mesh_has_the_links_between_its_members() -> None:
    whole, half, pair = (cluster(f"{count}xMI300X").tiers[0].bandwidth for count in (8, 4, 2))
    assert half == pytest.approx(whole * 3 / 7)
    assert pair == pytest.approx(whole / 7)


def test_a_host_draws_no_more_because_a_card_is_capped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    drawn = []
    for cap in ("700", "400"):
        asked = ["infer", "Llama-3.1-8B", "--on", "H100", "--concurrency", "1", "--power", cap]
        assert main([*asked, "--json"]) == 0
        drawn.append(json.loads(capsys.readouterr().out)["power_watts"]["value"])
    assert drawn[1] <= drawn[0]
