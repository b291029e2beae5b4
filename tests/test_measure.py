"""Measuring: whole files whatever happens, and honest figures."""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import trueflops
from patience import HUNG
from trueflops.cli import main
from trueflops.errors import BadInput
from trueflops.measure import stopping
from trueflops.measure.__main__ import main as bare_door
from trueflops.measure.flags import budget
from trueflops.measure.resume import begin, read
from trueflops.records.limits import beyond
from trueflops.records.measured import METHOD, Record

torch = pytest.importorskip("torch")

from trueflops.measure.device import find_device, software  # noqa: E402
from trueflops.measure.job import Job  # noqa: E402
from trueflops.measure.products import Product  # noqa: E402
from trueflops.measure.run import Progress, Run  # noqa: E402
from trueflops.measure.seek import Depth, _candidates, seek  # noqa: E402
from trueflops.measure.shapes import of_model, products  # noqa: E402

SOURCE = Path(trueflops.__file__).parent
WHOLE = ("schema_version", "name", "accelerator", "measured")


def measure(*words: str, at: Path | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trueflops.measure", "--device", "cpu", "-q", *words]
    return subprocess.Popen(
        command, cwd=at, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


def test_killed_at_three_random_moments_the_profile_is_whole_and_resuming_finishes(
    tmp_path: Path,
) -> None:
    path, draw = tmp_path / "cpu.json", random.Random()
    words = ("--dtypes", "fp32", "-o", str(path))
    rows, spent = 0, 0.0
    for _ in range(3):
        process = measure("--budget", "2h", *words)
        known = path.stat().st_mtime_ns if path.exists() else 0
        while process.poll() is None and (not path.exists() or path.stat().st_mtime_ns == known):
            time.sleep(0.01)  # until it writes for the first time
        time.sleep(draw.uniform(0.0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = json.loads(path.read_text())
        assert all(key in found for key in WHOLE)
        record = read(path)
        assert sum(map(len, record.tables.values())) >= rows, "rows that were measured are lost"
        assert record.spent_seconds >= spent, "the time that was spent is forgotten"
        rows, spent = sum(map(len, record.tables.values())), record.spent_seconds
    raw = json.loads(path.read_text())
    raw["measured"]["budget_seconds"] = spent  # of two budgets a resumed run takes the larger one
    path.write_text(json.dumps(raw))
    process = measure("--budget", f"{math.ceil(spent) + 6}s", *words)
    _, error = process.communicate(timeout=HUNG)
    assert process.returncode == 0, error
    record = read(path)
    assert record.finished
    assert sum(map(len, record.tables.values())) > rows
    assert record.spent_seconds > spent
    shapes = [tuple(r[k] for k in ("m", "n", "k", "layout", "copies"))
              for r in record.tables["matmul"]]  # fmt: skip
    assert len(shapes) == len(set(shapes)), "a shape was measured twice"


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    process = measure("--budget", "2h", "-o", str(path))
    while process.poll() is None and not path.exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=HUNG)
    assert process.returncode == 130
    assert "resumes it" in error
    assert "Traceback" not in error
    assert not read(path).finished


def test_runs_on_a_bare_node_with_nothing_but_our_source(tmp_path: Path) -> None:
    bare = tmp_path / "trueflops"
    for room in ("language", "measure", "records"):
        shutil.copytree(SOURCE / room, bare / room)
    for file in ("__init__.py", "errors.py", "files.py"):
        shutil.copy(SOURCE / file, bare)
    for absent in ("scipy", "rich"):
        (tmp_path / f"{absent}.py").write_text("raise ImportError")
    process = measure("--budget", "8s", "--dtypes", "fp32", "-o", "bare.json", at=tmp_path)
    out, error = process.communicate(timeout=HUNG)
    assert process.returncode == 0, error
    assert Path(out.strip()) == tmp_path / "bare.json"
    assert "measure fit" in error
    record = read(tmp_path / "bare.json")
    assert record.tables["matmul"]
    assert record.method == METHOD
    for field in ("torch", "python"):
        assert record.software[field]
    assert {"name", "memory_bytes", "units"} <= record.device.keys()


DEVICE: dict[str, Any] = {"name": "A chip", "uuid": "1"}


def test_another_methods_or_devices_rows_are_never_mixed(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    first = begin(path, DEVICE, {"torch": "2"}, 60.0)
    first.add("matmul", {"m": 1, "latency_us": 2.0})
    first.save()
    assert begin(path, DEVICE, {"torch": "2"}, 60.0).tables["matmul"] == first.tables["matmul"]
    with pytest.raises(BadInput, match="another torch"):
        begin(path, DEVICE, {"torch": "3"}, 60.0)
    with pytest.raises(BadInput, match="holds A chip"):
        begin(path, {"name": "B", "uuid": "2"}, {"torch": "2"}, 60.0)
    raw = json.loads(path.read_text())
    raw["measured"]["method_version"] = METHOD + 1
    path.write_text(json.dumps(raw))
    with pytest.raises(BadInput, match="method"):
        begin(path, DEVICE, {"torch": "2"}, 60.0)
    assert begin(path, DEVICE, {"torch": "2"}, 60.0, fresh=True).tables == {}


def test_a_finished_profile_is_only_gone_on_with_for_longer(tmp_path: Path) -> None:
    done = begin(tmp_path / "p.json", DEVICE, {}, 60.0)
    done.finished, done.spent_seconds = True, 59.0
    done.save()
    with pytest.raises(BadInput, match="larger --budget"):
        begin(tmp_path / "p.json", DEVICE, {}, 30.0)
    assert not begin(tmp_path / "p.json", DEVICE, {}, 300.0).finished


BROKEN = ["", "{", "[]", "null", "[" * 100_000, '{"measured": 3}', '{"measured": {}}', '{"a": 1}']


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(BadInput):
        begin(path, DEVICE, {}, 60.0)
    assert path.read_text() == text
    assert main(["measure", "show", str(path)]) == 2
    assert main(["measure", "fit", str(path)]) == 2


SHIPPED = SOURCE / "profile" / "data" / "measured" / "H200-SXM-141GB.json"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema_version", 9),
        ("measured.method_version", 9),
        ("measured.tables.matmul.columns", ["x"] * 10),
        ("measured.tables.race.columns", ["x"] * 11),
        ("measured.tables.power.columns", ["x"] * 16),
        ("measured.device", 3),
        ("curves", 3),
        ("curves.matmul.values.bandwidth", 0),
        ("curves.matmul.values.tile_16384", 0),
        ("curves.matmul.values.efficiency", 10**400),
        ("curves.matmul.values.efficiency", "x"),
        ("curves.matmul.fitted_rows", float("inf")),
        ("curves.matmul.landmarks.points", [[1.0, 2.0], [3.0, 4.0]]),
        ("curves.matmul.landmarks.reach", []),
        ("curves.matmul.landmarks.weights", [float("nan")]),
    ],
)
def test_a_hostile_profile_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, value: Any
) -> None:
    raw = json.loads(SHIPPED.read_text())
    at = raw
    *above, last = path.split(".")
    for key in above:
        at = at[key]
    at[last] = value
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(raw))
    asked = [["measure", "show", str(file)],
             ["explain", "matmul", "512x512x512", "--profile", str(file)]]  # fmt: skip
    codes = [main(words) for words in asked]
    said = capsys.readouterr().err
    assert 2 in codes
    assert set(codes) <= {0, 2}
    assert "bug of ours" not in said
    assert "Warning" not in said


def test_landmarks_of_another_version_are_refused(tmp_path: Path) -> None:
    raw = json.loads(SHIPPED.read_text())
    raw["curves"]["matmul"]["landmarks"] = {"points": [[1.0, 2.0]], "reach": [1.0, 1.0],
                                            "weights": [0.1]}  # fmt: skip
    file = tmp_path / "old.json"
    file.write_text(json.dumps(raw))
    assert main(["explain", "matmul", "512x512x512", "--profile", str(file)]) == 2


def test_only_files_are_written_and_links_are_followed(tmp_path: Path) -> None:
    for odd in (tmp_path, Path("/dev/null")):
        with pytest.raises(BadInput, match="not a file"):
            begin(odd, DEVICE, {}, 60.0, fresh=True)
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    begin(link, DEVICE, {}, 60.0).save()
    assert link.is_symlink()
    assert read(target).device == DEVICE


def test_a_fit_stays_usable_while_a_run_is_resumed(tmp_path: Path) -> None:
    file = tmp_path / "h200.json"
    shutil.copy(SHIPPED, file)
    before = read(file)
    resumed = begin(file, before.device, before.software, 600.0)
    resumed.add("matmul", {"m": 1, "latency_us": 2.0})
    resumed.save()
    assert json.loads(file.read_text())["curves"] == json.loads(SHIPPED.read_text())["curves"]
    assert main(["explain", "matmul", "512x512x512", "--profile", str(file)]) == 0


def test_a_shipped_profile_is_not_fitted_again() -> None:
    before = SHIPPED.read_bytes()
    assert main(["measure", "fit", "H200"]) == 2
    assert SHIPPED.read_bytes() == before


def test_a_format_that_the_device_lacks_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "listen", lambda: None)  # signals are for who runs the tests
    words = ["--device", "cpu", "-q", "--dtypes", "fp8", "-o", str(tmp_path / "p.json")]
    assert bare_door(words) == 2
    assert "fp32" in capsys.readouterr().err


# ── honest figures ───────────────────────────────────────────────────────────────────────────────


def a_run(limits: dict[str, float]) -> Run:
    device, now = find_device("cpu"), time.monotonic()
    record = Record(dict(device.identity), {})
    return Run(device, record, limits, Progress(now, 1.0, True), now, 0.0, now)


def test_a_rate_beyond_physics_is_rejected_and_says_which_limit() -> None:
    run = a_run({"peak.fp32": 1e9})
    cells: dict[str, Any] = {"dtype": "fp32", "m": 100, "n": 100, "k": 100}
    slow = Job("matmul", cells, lambda: {"latency_us": 2000.0})
    fast = Job("matmul", {**cells, "m": 200}, lambda: {"latency_us": 3900.0})
    assert run._measure(slow) is not None
    assert run._measure(fast) is None
    assert run.record.tables["matmul"] == [{**cells, "latency_us": 2000.0}]
    assert "peak of fp32" in run.record.warnings[0]
    assert "rejected" in run.record.warnings[0]


def test_limits_cover_memory_host_and_sparse_products() -> None:
    sheet = {"peak.bf16": 1e12, "memory.bandwidth": 1e12, "memory.l2": 1e6, "host.bandwidth": 5e10}
    assert beyond("bandwidth", {"bytes": 10**9, "bandwidth": 1.1e12, "latency_us": 1.0}, sheet)
    assert not beyond("bandwidth", {"bytes": 10**5, "bandwidth": 3e12, "latency_us": 1.0}, sheet)
    assert beyond("host", {"way": "to_host", "bandwidth": 6e10, "latency_us": 1.0}, sheet)
    assert not beyond("host", {"way": "both", "bandwidth": 6e10, "latency_us": 1.0}, sheet)
    twice: dict[str, Any] = {"m": 1000, "n": 1000, "k": 1000, "latency_us": 1250.0}
    assert beyond("matmul", {**twice, "dtype": "bf16"}, sheet)
    assert not beyond("other_products", {**twice, "dtype": "bf16_2:4"}, sheet)


def test_out_of_memory_shrinks_the_shape_and_goes_on() -> None:
    def job(m: int) -> Job:
        def timed() -> dict[str, float]:
            if m > 100:
                raise torch.OutOfMemoryError("out of memory")
            return {"latency_us": 1.0}

        return Job("matmul", {"m": m}, timed, lambda: job(m // 2))

    run = a_run({})
    assert run._measure(job(400)) == {"m": 100, "latency_us": 1.0}
    assert not run.record.warnings


def test_a_kernel_that_fails_is_a_warning() -> None:
    def timed() -> dict[str, float]:
        raise RuntimeError("no such kernel\nmore")

    run = a_run({})
    assert run._measure(Job("memory", {"kind": "odd"}, timed)) is None
    assert run.record.warnings == ["memory kind=odd: no such kernel"]


# ── what is measured ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("m", "n", "k"), [(4224, 2304, 43520), (8192, 4096, 8192)])
def test_the_search_finds_what_a_chip_likes(m: int, n: int, k: int) -> None:
    """A made-up chip that likes one region; 112 of 3,000 shapes are timed."""

    def rate(p: Product) -> float:
        off = abs(p.m / m - 1) + abs(p.n / n - 1) + abs(p.k / k - 1)
        return 8e14 / (1.0 + 0.1 * min(off, 4.0))

    pool = _candidates("bf16", 132, 3e12, 1e11)
    luck = statistics.median(max(map(rate, random.Random(i).sample(pool, 112))) for i in range(20))

    search = seek("bf16", 132, 3e12, 1e11, Depth())
    asked, laps = next(search), 0
    tried: dict[Product, bool] = {}
    try:
        while True:
            tried[asked[0]] = asked[1]
            laps += asked[1]
            asked = search.send(rate(asked[0]))
    except StopIteration:
        pass
    raced = [p for p, in_race in tried.items() if in_race]
    assert len(tried) <= 48 + 4 * 16
    assert laps == Depth().racers * Depth().laps
    assert max(map(rate, raced)) >= 0.985 * max(map(rate, pool))
    assert max(map(rate, raced)) > luck


def test_shapes_are_a_fixed_sample_without_repeats() -> None:
    first, again = ([next(it) for _ in range(300)] for it in (products("bf16", 1e13),) * 2)
    assert len({*first, *again}) == 600
    assert first == [p for p, _ in zip(products("bf16", 1e13), range(300), strict=False)]
    assert all(p.m % 16 == p.n % 16 == p.k % 16 == 0
               for p, _ in zip(products("fp8", 1e13), range(99), strict=False))  # fmt: skip


def test_a_models_own_shapes_come_first() -> None:
    found = of_model([(6144, 4096), (28672, 4096), (4096, 4096)], "bf16")
    assert found[0] == Product(4096, 6144, 4096, "bf16")
    assert all(p.m >= 16 for p in of_model([(6144, 4096)], "fp8"))


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60.0), ("5m", 300.0), ("1h", 3600.0), ("90", 90.0), ("1.5m", 90)]
)
def test_budgets(text: str, seconds: float) -> None:
    assert budget(text) == seconds


@pytest.mark.parametrize("text", ["", "fast", "-5s", "1d", "2s", "1..5m", ".", "3h"])
def test_odd_budgets_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"5m|between"):
        budget(text)


# ── several devices ──────────────────────────────────────────────────────────────────────────────


def test_collectives_join_a_profile_that_is_there(tmp_path: Path) -> None:
    """Under torchrun, through the command."""
    path, device = tmp_path / "cpu.json", find_device("cpu")
    there = begin(path, device.identity, software(), 60.0)
    there.add("matmul", {"m": 1, "latency_us": 2.0})
    there.save()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               "2", "-m", "trueflops.measure", "--device", "cpu", "--collectives", "-q",
               "--budget", "6s", "-o", str(path)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG, check=False)
    assert done.returncode == 0, done.stderr
    record = read(path)
    assert record.tables["matmul"] == there.tables["matmul"]
    assert {"all_reduce", "all_gather"} <= {row["op"] for row in record.tables["collective"]}
