"""Which curve prices an op: typed keys, the chain of choice, and where each curve comes from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trueflops.calibrate.datasets import row_sources, rows_of, source_of
from trueflops.catalog import accelerator, cluster
from trueflops.cli import main
from trueflops.errors import BadInput
from trueflops.model import read_model
from trueflops.plan import Plan
from trueflops.predict import Server, Trainer
from trueflops.predict.provenance import BY_OPS, serving_provenance, step_provenance
from trueflops.profile import Choice, Curve, CurveKey, Profile, frameworks, profile_of, read_profile
from trueflops.profile.library import SHIPPED
from trueflops.profile.stored import DATA
from trueflops.records.tables import Table
from trueflops.workload import Serving, Training

PROFILES = sorted([*DATA.glob("*.json"), *SHIPPED.glob("*.json")])


def chain(choice: Choice) -> list[str]:
    return [f"{each.key} {each.outcome}" for each in choice.tried]


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_dotted_name_is_read_and_written_back(path: Path) -> None:
    names = re.findall(r'^ "([^"]+)": \{', path.read_text(), re.MULTILINE)
    assert names
    assert [str(CurveKey.parse(name)) for name in names] == names
    assert {str(key) for key in read_profile(path).curves} == set(names)


def test_every_part_of_a_key_has_its_place() -> None:
    keys = [
        CurveKey("matmul", dtype="fp8", format="stored", grouped=True),
        CurveKey("matmul", dtype="fp32", kernel="convolution"),
        CurveKey("experts", format="int4"),
        CurveKey("attention_decode", cache8=True, kernel="triton"),
        CurveKey("attention", cache8=True, odd_heads=True),
        CurveKey("collective", operation="all_reduce", kernel="vllm_custom_ar"),
        CurveKey("cast", format="fp8"),
        CurveKey("power"),
    ]
    assert [CurveKey.parse(str(key)) for key in keys] == keys
    assert CurveKey.parse("matmul.int8").dtype == "int8"
    assert CurveKey.parse("matmul.int4").format == "int4"  # multiplied in 16 bits


@pytest.mark.parametrize(
    "name", ["power.fast", "matmul.grouped.fp8", "cast.fp8.int8", "matmul.a.b"]
)
def test_a_name_that_is_no_key_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="curve"):
        CurveKey.parse(name)


# ── the chain of choice ──────────────────────────────────────────────────────────────────────────


def curve(**more: Any) -> Curve:
    return Curve({"efficiency": 0.5}, 0.1, "measured", "a test", **more)


def test_the_chain_says_what_was_absent_and_what_is_not_used() -> None:
    plain, failed = curve(), curve(at_bounds=("efficiency",), used=False)
    matmul, fp8 = CurveKey("matmul"), CurveKey("matmul", dtype="fp8")
    profile = Profile("a test", "H100-SXM5-80GB", {matmul: plain, fp8: failed})
    choice = profile.choose(CurveKey("matmul", dtype="fp8", grouped=True))
    assert chain(choice) == ["matmul.fp8.grouped absent", "matmul.fp8 not used", "matmul found"]
    assert choice.curve is plain
    assert choice.tried[1].at_bounds == ("efficiency",)
    # The same, once it is a part of what is known of the chip.
    merged = profile_of(accelerator("H100"), given=profile).choose(fp8)
    assert chain(merged) == ["matmul.fp8 not used", "matmul found"]
    assert merged.curve.values["efficiency"] == 0.5


def test_a_framework_puts_its_own_kernels_in_the_place_of_the_best() -> None:
    choice = profile_of(accelerator("H100"), "composer").choose(CurveKey("attention"))
    assert chain(choice) == ["attention replaced", "attention.fa2 found"]
    assert choice.curve.lineage is not None
    assert choice.curve.lineage.changes[-2] == "composer runs fa2"


@pytest.mark.parametrize("framework", frameworks())
@pytest.mark.parametrize("chip", ["H200", "H20", "B200", "A100", "MI300X", "TPU v5p", "RTX4090"])
def test_every_choice_is_the_curve_that_prices(chip: str, framework: str) -> None:
    profile = profile_of(accelerator(chip), framework)
    for key, own in profile.curves.items():
        choice = profile.choose(key)
        assert choice.curve is profile.curve(key) is own
        assert choice.tried[-1].outcome == "found"
        assert own.lineage is not None, key
        assert own.lineage.key == choice.found


@pytest.mark.parametrize(
    ("chip", "holder"),
    [("H100", "own"), ("H20", "sibling"), ("RTX4090", "transfer"), ("MI300X", "transfer")],
)
def test_whose_a_curve_is(chip: str, holder: str) -> None:
    lineage = profile_of(accelerator(chip)).curve("matmul").lineage
    assert lineage is not None
    assert lineage.holder == holder
    host = profile_of(accelerator(chip)).curve("host").lineage
    assert host is not None
    assert host.holder == "assumed"


# ── where its rows come from ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_shipped_curve_says_of_every_row_where_it_is_from(path: Path) -> None:
    for key, own in read_profile(path).curves.items():
        assert sum(rows.count for rows in own.rows) == own.fitted_rows, key
        assert all(rows.table and rows.chip and rows.software for rows in own.rows), key


def test_a_row_says_its_software_itself_or_its_folder_does() -> None:
    said = {"gpu": "h200", "backend": "vllm", "version": "0.24.0"}
    table = Table.of("ops/gemm.csv", [said])
    (row,) = row_sources(table, [said], "H200-SXM-141GB")
    assert (row.table, row.software) == ("ops/gemm.csv", "vllm 0.24.0")
    assert "aiconfigurator" in row.dataset
    (ours,) = row_sources(
        Table.of("truth/h200/matmul.csv", [{"gpu": "h200"}]),
        [{"gpu": "h200"}],
        "H200-SXM-141GB",
    )
    assert (ours.table, ours.date) == ("h200/matmul.csv", "2026-11-15")
    assert ours.software.startswith("torch 2.11.0")
    (other,) = row_sources(Table.of("mine/gemm.csv", [{}]), [{}], "L40S")
    assert (other.dataset, other.software) == ("mine", "")
    counted = rows_of([row, ours, row])
    assert [(rows.table, rows.count) for rows in counted] == [
        ("ops/gemm.csv", 2),
        ("h200/matmul.csv", 1),
    ]
    assert source_of([ours, row, row]).startswith("kernel tables of ai-dynamo/aiconfigurator")


def test_a_profile_whose_curve_has_no_such_name_says_which(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    raw = json.loads((DATA / "L40S.json").read_text())
    raw["curves"] = {"matmul.grouped.fp8": raw["curves"]["matmul"]}
    file.write_text(json.dumps(raw))
    with pytest.raises(BadInput, match=r"mine\.json.*must be written 'matmul\.fp8\.grouped'"):
        read_profile(file)


# ── the flag ─────────────────────────────────────────────────────────────────────────────────────


PROGRAM = """
import torch


def build():
    model = torch.nn.Linear(1024, 1024).cuda()
    x = torch.randn(64, 1024, device="cuda")

    def step():
        model(x).sum().backward()

    return step
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("asked")
    (folder / "kernels.csv").write_text("dtype,m,n,k\nbf16,4096,4096,4096\nfp8,128,4096,4096\n")
    (folder / "program.py").write_text(PROGRAM)
    return {
        "explain": ["explain", "matmul", "512x512x512", "--on", "H100", "--dtype", "fp8"],
        "ops": ["ops", str(folder / "kernels.csv"), "--on", "H20"],
        "train": ["train", "GPT-2", "--on", "8xH100", "--dp", "8", "--seq", "1024"],
        "capture": ["capture", f"{folder / 'program.py'}:build", "--on", "A100"],
        "diagnose": ["diagnose", str(Path(__file__).parent / "data" / "llama_160m_step.json.gz")],
    }


COMMANDS = ("explain", "ops", "train", "capture", "diagnose")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_flag_answers_as_text(
    command: str, asked: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = asked[command]
    assert main(words) == 0
    without = capsys.readouterr().out
    assert main([*words, "--provenance"]) == 0
    more = capsys.readouterr().out
    assert more.startswith(without)  # nothing else is said otherwise
    said = more.removeprefix(without)
    assert "Which number priced what" in said
    for label in ("curve", "whose", "rows", "source", "error"):
        assert re.search(rf"^  {label} ", said, re.MULTILINE), label
    assert ("start_cycles" in said) == (command == "explain")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_flag_answers_as_json(
    command: str, asked: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked[command], "--provenance", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    found = answer["provenance"]
    seconds = [part["seconds"] for part in found["parts"]]
    assert seconds == sorted(seconds, reverse=True)
    assert sum(seconds) == pytest.approx(found["seconds"])
    if command == "explain":
        assert found["seconds"] == pytest.approx(answer["seconds"]["value"])
    elif command == "ops":
        assert found["seconds"] == pytest.approx(sum(row["seconds"] for row in answer["rows"]))
    elif command == "train":
        assert found["seconds"] == pytest.approx(answer["step_seconds"]["value"])
    elif command == "diagnose":
        assert found["seconds"] == pytest.approx(answer["predicted_kernel_seconds"]["value"])
    for part in found["parts"]:
        for each in part["curves"]:
            assert each["tried"][-1] == {
                "curve": each["found"], "outcome": "found", "at_bounds": []
            }  # fmt: skip
            assert each["holder"] in ("own", "sibling", "transfer", "assumed", "framework")
            assert each["source"]
    if command == "explain":
        start = found["law"]["parameters"]["start_cycles"]
        assert start["unit"] == "cycles"
        assert found["law"]["formula"] == "trueflops.clock.matmul.formula"


@pytest.mark.parametrize(
    ("model", "on", "framework", "plan"),
    [
        ("Llama-3.1-70B", "64xH100", "megatron", Plan(tp=8, pp=4, dp_shard=2, recompute="full")),
        ("Llama-3.1-8B", "16xMI300X", "fsdp", Plan(dp_shard=16, zero=3)),
        ("DeepSeek-V3", "64xH20", "megatron",
         Plan(ep=8, dp_shard=8, pp=8, recompute="full", recompute_layers=2)),
        ("GPT-2", "8xH100", "composer", Plan(dp_replicate=8, zero=0, optimizer="muon")),
        ("Llama-3.1-8B", "8xB200", "usual", Plan(tp=2, cp=4, sp=False, compute="fp8")),
    ],
)  # fmt: skip
def test_the_parts_of_a_step_sum_to_it(model: str, on: str, framework: str, plan: Plan) -> None:
    where = cluster(on)
    asked = Training(seq=1024, global_batch=128, tokens=1e9)
    profile = profile_of(where.accelerator, framework)
    trainer = Trainer(read_model(model), asked, where, profile)
    step = trainer.predict_one(plan)
    found = step_provenance(trainer, step)
    assert found.seconds == pytest.approx(float(step.step.value), rel=1e-9)
    by_ops = sum(part.seconds for part in found.parts if part.kernels)
    of_ops = (leaf for leaf in step.step["compute"].leaves() if leaf.name in BY_OPS)
    assert by_ops == pytest.approx(sum(float(leaf.value) for leaf in of_ops), rel=1e-9)


@pytest.mark.parametrize(
    ("model", "on", "engine", "plan"),
    [
        ("Llama-3.1-8B", "H100", "vllm", Plan()),
        ("Llama-3.1-70B", "8xH100", "sglang", Plan(tp=4, pp=2)),
        ("DeepSeek-V3", "16xH20", "sglang", Plan(tp=16, ep=16)),
        ("GPT-OSS-20B", "RTX-4090", "llama.cpp", Plan()),
    ],
)
def test_the_parts_of_a_served_pass_sum_to_it(model: str, on: str, engine: str, plan: Plan) -> None:
    where = cluster(on)
    asked = Serving(9000, 200, concurrency=32)
    server = Server(read_model(model), asked, where, profile_of(where.accelerator, engine))
    point = server.predict(plan)
    found = serving_provenance(server, point)
    for name, term in (("decode", point.decode), ("prefill", point.prefill)):
        assert found[name].seconds == pytest.approx(float(term.value), rel=1e-9)
        by_ops = sum(part.seconds for part in found[name].parts if part.kernels)
        of_ops = sum(float(leaf.value) for leaf in term.leaves() if leaf.name in BY_OPS)
        assert by_ops == pytest.approx(of_ops, rel=1e-9)


def test_infer_says_it_of_a_decode_step_and_of_a_prefill(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["infer", "Llama-3.1-8B", "--on", "H100", "--provenance"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "Which number priced what: one decode step" in said
    assert "Which number priced what: the prefill of one request" in said
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    decode = answer["provenance"]["decode"]
    assert decode["seconds"] == pytest.approx(answer["decode"]["seconds"])
