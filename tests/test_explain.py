"""One product explained: tiles, waves, traffic, instructions, and what the command says of them."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Ask
from trueflops.catalog import accelerators, cluster
from trueflops.cli import main
from trueflops.cli.explain import build_product, read_shape
from trueflops.clock import Clock
from trueflops.clock.matmul import MATMUL, TILES
from trueflops.interop.kernel_ops import DTYPES
from trueflops.predict.explain import MatmulExplained, explain_matmul
from trueflops.predict.kernels import price_kernels
from trueflops.predict.mapping import map_tile
from trueflops.profile import Curve, CurveKey, Profile, profile_of, write_profile

Capture = pytest.CaptureFixture[str]
SHAPES = [(4096, 11008, 4096), (1, 8192, 28672), (17, 333, 4097), (64, 64, 64), (8192, 8192, 8192)]
CHIPS = ["H100", "A100", "B200", "RTX4090", "MI300X", "TPUv5e"]


def explained(m: int, n: int, k: int, on: str = "H100", dtype: str = "bf16") -> MatmulExplained:
    chip = cluster(on)
    return explain_matmul(Clock(chip, profile_of(chip.accelerator)), build_product(m, n, k, dtype))


class TestNumbers:
    @pytest.mark.parametrize("on", CHIPS)
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_tiles_cover_the_result_and_fill_the_units(
        self, shape: tuple[int, int, int], on: str
    ) -> None:
        p = explained(*shape, on=on)
        assert [(t.rows, t.columns) for t in p.shapes] == list(TILES)
        for t in p.shapes:
            area = t.tiles * t.rows * t.columns
            assert area >= p.m * p.n
            assert (t.down - 1) * t.rows < p.m <= t.down * t.rows
            assert (t.across - 1) * t.columns < p.n <= t.across * t.columns
            assert t.padded == pytest.approx(area / (p.m * p.n))
            assert t.waves == pytest.approx(t.tiles / p.units)
            assert 0.0 < t.last_wave <= 1.0
            assert 0.0 <= t.quantisation_lost < 1.0
            if t.waves > 1.0:
                whole = math.ceil(t.waves)
                assert t.quantisation_lost == pytest.approx(1.0 - t.waves / whole, abs=1e-9)
                assert whole - 1 + t.last_wave == pytest.approx(t.waves)
                assert t.split == 1.0
        assert p.best.seconds == min(t.seconds for t in p.shapes)

    def test_the_time_is_that_of_the_clock(self) -> None:
        for on, dtype in (("H100", "bf16"), ("A100", "int8"), ("MI300X", "fp8")):
            clock = Clock(cluster(on), profile_of(cluster(on).accelerator))
            op = build_product(512, 4096, 4096, dtype)
            p = explain_matmul(clock, op)
            priced = price_kernels(clock, [op], None, 1).seconds.pick(0)
            assert p.seconds.value == priced.value
            assert (p.seconds.low, p.seconds.high) == (priced.low, priced.high)
            assert p.best.seconds == pytest.approx(float(priced.value))

    def test_the_limits_blend_into_the_time(self) -> None:
        p = explained(4096, 11008, 4096)
        sharp = p.law["sharpness"]
        *overlap, start = p.limits.values()
        blended = sum(t**sharp for t in overlap) ** (1 / sharp) + start
        assert blended * p.correction == pytest.approx(float(p.seconds.value))

    def test_intensity_and_ridge_of_an_h100(self) -> None:
        p = explained(4096, 11008, 4096)
        assert p.flop == 2 * 4096 * 11008 * 4096
        moved = 2 * (4096 * 4096 + 11008 * 4096 + 4096 * 11008)
        assert p.traffic.compulsory_bytes == moved
        assert p.intensity == pytest.approx(p.flop / moved)
        assert p.ridge == pytest.approx(989.4e12 / 3.35e12, rel=1e-3)
        assert p.bound == "compute"
        assert p.tile_intensity(256, 128) == pytest.approx(256 * 128 / (256 + 128))
        assert p.delivered_peak < p.peak

    def test_one_row_is_bound_by_memory(self) -> None:
        for on in CHIPS:
            p = explained(1, 8192, 28672, on=on)
            assert p.bound == "memory", on
            assert p.intensity < p.ridge
            assert p.bytes_per_second < p.bandwidth
        p = explained(1, 8192, 28672)
        assert p.best.rows == 16
        assert p.tile_intensity(16, 128) == pytest.approx(128 / 129)  # no row but one is read

    def test_narrow_formats_move_fewer_bytes(self) -> None:
        m, n, k = 16, 8192, 8192
        for dtype, x, w in (("bf16", 2, 2), ("fp8", 1, 1), ("w8a16", 2, 1), ("int4", 2, 4.25 / 8)):
            t = explained(m, n, k, dtype=dtype).traffic
            assert (t.input_bytes, t.weight_bytes, t.output_bytes) == (
                m * k * x,
                n * k * w,
                2 * m * n,
            )

    def test_traffic_grows_from_memory_to_cache(self) -> None:
        for shape in SHAPES:
            for on in ("H100", "A100", "RTX4090", "MI300X"):
                p = explained(*shape, on=on)
                t = p.traffic
                assert t.memory_bytes is not None
                assert t.compulsory_bytes <= t.memory_bytes <= t.cache_bytes
                assert (t.input_reads, t.weight_reads) == (p.best.across, p.best.down)
        t = explained(4096, 11008, 4096).traffic
        read = t.input_bytes * t.input_reads + t.weight_bytes * t.weight_reads
        assert t.cache_bytes == read + t.output_bytes
        small = explained(256, 256, 256).traffic
        assert small.memory_bytes == small.compulsory_bytes  # all of it fits the cache
        assert explained(4096, 4096, 4096, on="TPUv5e").traffic.memory_bytes is None

    def test_few_tiles_split_k(self) -> None:
        p = explained(128, 1024, 16384, on="A100")
        assert p.best.split > 1.0
        assert p.tile_k < p.k

    @pytest.mark.parametrize("dtype", sorted(set(DTYPES)))
    def test_every_format_is_explained_where_there_is_a_path(self, dtype: str) -> None:
        assert explained(4096, 4096, 4096, on="B200", dtype=dtype).seconds.value > 0

    def test_every_chip_with_a_bf16_path(self) -> None:
        for chip in accelerators():
            if chip.computes("bf16") and chip.get("memory.bandwidth"):
                p = explained(512, 512, 512, on=chip.name)
                assert p.unit
                assert p.mapping is None or chip.vendor == "NVIDIA"


class TestInstructions:
    @pytest.mark.parametrize(
        ("on", "dtype", "tile", "mapping", "instruction"),
        [
            ("A100", "bf16", (128, 128), ("warp", 4, 64, 64), "mma.m16n8k16"),
            ("A100", "tf32", (256, 128), ("warp", 8, 64, 64), "mma.m16n8k8"),
            ("L40S", "fp8", (64, 64), ("warp", 4, 32, 32), "mma.m16n8k32"),
            ("RTX5090", "fp4", (128, 64), ("warp", 4, 64, 32), "mma.m16n8k64"),
            ("H100", "bf16", (128, 256), ("warpgroup", 2, 64, 256), "wgmma.m64n256k16"),
            ("GH200", "fp8", (256, 128), ("warpgroup", 2, 128, 128), "wgmma.m64n128k32"),
            ("H100", "bf16", (16, 128), ("warpgroup", 2, 16, 64), "wgmma.m64n16k16"),
            ("B200", "bf16", (128, 256), ("thread block", 1, 128, 256), "tcgen05.m128n256k16"),
            ("GB200", "fp4", (256, 128), ("thread block", 1, 256, 128), "tcgen05.m128n128k64"),
            ("V100", "fp16", (128, 128), ("warp", 4, 64, 64), "mma.m8n8k4"),
        ],
    )
    def test_the_standard_mapping(
        self, on: str, dtype: str, tile: tuple[int, int], mapping: tuple[Any, ...], instruction: str
    ) -> None:
        found = map_tile(cluster(on).accelerator, dtype, *tile)
        assert found is not None
        assert (found.worker, found.workers, found.rows, found.columns) == mapping
        assert str(found.instruction) == instruction

    @pytest.mark.parametrize("on", ["A100", "H100", "B200", "RTX5090", "T4"])
    def test_instructions_do_exactly_the_work_of_a_tile(self, on: str) -> None:
        for rows, columns in TILES:
            found = map_tile(cluster(on).accelerator, "fp16", rows, columns)
            assert found is not None
            assert found.workers * found.rows * found.columns == rows * columns
            assert found.instructions(4096) * found.instruction.flop == 2 * rows * columns * 4096

    def test_none_where_none_is_known(self) -> None:
        for on, dtype in (("MI300X", "bf16"), ("TPUv5e", "bf16"), ("H100", "fp32")):
            assert map_tile(cluster(on).accelerator, dtype, 128, 128) is None

    def test_cycles_of_a_tile_at_peak(self) -> None:
        for on, flop in (("H100", 4096), ("A100", 2048), ("B200", 8192)):
            assert explained(4096, 4096, 4096, on=on).flop_per_cycle == pytest.approx(flop)


class TestCommand:
    def test_shapes_may_be_written_as_people_do(self) -> None:
        for text in (
            "4096x11008x4096", "4096×11008×4096", "4096 11008 4096", "4096,11008,4096",
            "4096 x 11008 x 4096", "4096X11008X4096", "4096*11008*4096",
        ):  # fmt: skip
            assert read_shape(text) == (4096, 11008, 4096)

    def test_the_answer_fits_80_columns(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        for on, dtype in (
            ("H100", "bf16"),
            ("B200", "nvfp4"),
            ("MI300X", "fp8"),
            ("TPUv5e", "bf16"),
        ):
            for shape in SHAPES:
                words = ["explain", "matmul", "x".join(map(str, shape)), "--on", on]
                assert main([*words, "--dtype", dtype]) == 0
                said = capsys.readouterr().out
                assert max(map(len, said.splitlines())) <= 80
                assert "…" not in said
                for word in ("What it takes", "Roofline", "All tile shapes", "Traffic", "●", "▲"):
                    assert word in said

    def test_json_names_its_units(self, ask: Ask) -> None:
        answer = ask("explain", "matmul", "4096", "x", "11008", "x", "4096", "--on", "H100")
        p = explained(4096, 11008, 4096)
        assert answer["schema_version"] == 1
        assert answer["seconds"]["value"] == pytest.approx(float(p.seconds.value))
        assert answer["seconds"]["low"] < answer["seconds"]["value"] < answer["seconds"]["high"]
        assert answer["intensity_flop_per_byte"] == pytest.approx(p.intensity)
        assert answer["ridge_flop_per_byte"] == pytest.approx(p.ridge)
        assert answer["share_of_peak"] == pytest.approx(
            answer["flop_per_second"]["value"] / answer["peak_flop_per_second"]
        )
        assert set(answer["limits"]) == {
            "compute_seconds", "memory_seconds", "serial_seconds", "start_seconds"
        }  # fmt: skip
        assert len(answer["tile_shapes"]) == len(TILES)
        assert answer["tile"] in answer["tile_shapes"]
        assert answer["mapping"]["instruction"].startswith("wgmma.m64n")
        assert answer["traffic"]["compulsory_bytes"] == p.traffic.compulsory_bytes
        assert ask("explain", "matmul", "64x64x64", "--on", "MI300X")["mapping"] is None

    def test_a_profile_of_the_users_own(self, ask: Ask, capsys: Capture, tmp_path: Path) -> None:
        file = tmp_path / "mine.json"
        chip = cluster("H100").accelerator
        products = {CurveKey("matmul"): Curve(MATMUL.usual(), 0.1, "measured", "a test")}
        write_profile(Profile("mine", chip.name, products), file)
        own = ask("explain", "matmul", "4096x4096x4096", "--on", "H100", "--profile", str(file))
        assert own["profile"] == "mine"
        usual = ask("explain", "matmul", "4096x4096x4096", "--on", "H100")
        assert own["seconds"] != usual["seconds"]
        words = ["explain", "matmul", "64x64x64", "--on", "H200", "--profile", str(file)]
        assert main(words) == 2
        assert "--profile is of H100" in " ".join(capsys.readouterr().err.split())
        raw = json.loads(file.read_text())
        del raw["curves"]["matmul"]["values"]["split"]
        file.write_text(json.dumps(raw))
        assert main([*words[:3], "--on", "H100", "--profile", str(file)]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "matmul has no 'split'" in said

    def test_the_roofline_is_drawn(self, capsys: Capture, tmp_path: Path) -> None:
        file = tmp_path / "roof.png"
        assert main(["explain", "matmul", "1x4096x4096", "--on", "A100", "--plot", str(file)]) == 0
        assert file.read_bytes().startswith(b"\x89PNG")

    def test_no_matplotlib_is_one_clear_error(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        assert main(["explain", "matmul", "64x64x64", "--on", "H100", "--plot", "a.png"]) == 2
        assert "pip install 'trueflops[plot]'" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["4096x4096", "--on", "H100"], "is not m×n×k"),
            (["2x4096x4096x4096", "--on", "H100"], "is not m×n×k"),
            (["", "--on", "H100"], "is not m×n×k"),
            (["0x1x1", "--on", "H100"], "m = '0' must be a whole number"),
            (["1x1.5x1", "--on", "H100"], "n = '1.5' must be a whole number"),
            (["1x1xtwo", "--on", "H100"], "k = 'two' must be a whole number"),
            (["1x1x" + "9" * 400, "--on", "H100"], "must be a whole number"),
            (["1000000x1000000x1000000", "--on", "H100"], "5,588 GiB"),
            (["64x64x64", "--on", "H1OO"], "did you mean H100"),
            (["64x64x64", "--on", "A100", "--dtype", "fp8"], "has no fp8 path"),
            (["64x64x64", "--on", "H100", "--dtype", "bf61"], "did you mean bf16"),
            (["64x64x64", "--on", "H100", "--plot", "a.pdf"], "ends in .png"),
            (["64x64x64", "--on", "H100", "--profile", "none.json"], "no such file"),
            (["64x64x64"], "--on"),
        ],
        ids=lambda words: " ".join(words)[-30:] if isinstance(words, list) else None,
    )
    def test_bad_input_is_one_clear_error(
        self, capsys: Capture, words: list[str], says: str
    ) -> None:
        assert main(["explain", "matmul", *words]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert says in " ".join(said.err.split())
        assert len(said.err) < 400
