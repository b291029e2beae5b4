"""One collective by every algorithm: messages carried out on arrays, laws beside the clock's."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest

from conftest import Ask
from trueflops.catalog import cluster
from trueflops.cli import main
from trueflops.clock import Algorithm, Clock
from trueflops.clock.collectives import library_seconds
from trueflops.clock.ways import NVLINK_SHARP_SHARE, sent_share, steps_of
from trueflops.graph.kinds import CollectiveKind
from trueflops.predict.collective import Schedule, compare_collective, schedule
from trueflops.predict.collective.compare import LIBRARY, library_of
from trueflops.predict.collective.schedule import contributions
from trueflops.predict.collective.trees import two_trees
from trueflops.profile import CurveKey, profile_of
from trueflops.sizes import Array

Capture = pytest.CaptureFixture[str]
AR, AG, RS, A2A, BC = LIBRARY
SIZES = [[2], [3], [5], [8], [16], [8, 4], [4, 3], [2, 5], [2, 2, 2]]


def clock_of(on: str) -> Clock:
    where = cluster(on)
    return Clock(where, profile_of(where.accelerator))


def carry_out(of: Schedule, data: Array) -> Array:
    """Send the messages: all of a step read what was there before it."""
    held = data.copy()
    for phase in of.phases:
        for step in phase.steps:
            before = held.copy()
            for m in step:
                at = list(m.chunks)
                kept = held[m.destination, at] if m.adds else 0.0
                held[m.destination, at] = kept + before[m.source, at]
    return held


def schedules(kind: CollectiveKind, sizes: list[int]) -> list[Schedule]:
    found = [schedule(kind, algorithm, sizes) for algorithm in Algorithm]
    return [each for each in found if each is not None]


def numbers(of: Schedule) -> Array:
    return np.random.default_rng(1).integers(1, 1000, (of.ranks, of.chunks)).astype(float)


class TestMessages:
    @pytest.mark.parametrize("sizes", SIZES, ids=str)
    def test_an_all_reduce_gives_every_rank_the_sum(self, sizes: list[int]) -> None:
        found = schedules(AR, sizes)
        names = {each.algorithm for each in found}
        assert {Algorithm.RING, Algorithm.TREE, Algorithm.HIERARCHY} <= names
        assert (Algorithm.HALVING in names) == (prod(sizes).bit_count() == 1)
        for each in found:
            data = numbers(each)
            ended = carry_out(each, data)
            assert (ended == data.sum(axis=0)).all(), each.algorithm

    @pytest.mark.parametrize("sizes", SIZES, ids=str)
    def test_a_reduce_scatter_gives_rank_r_the_sum_of_chunk_r(self, sizes: list[int]) -> None:
        for each in schedules(RS, sizes):
            data = numbers(each)
            ended = carry_out(each, data)
            assert (np.diag(ended) == data.sum(axis=0)).all(), each.algorithm

    @pytest.mark.parametrize("sizes", SIZES, ids=str)
    def test_an_all_gather_gives_every_rank_every_chunk(self, sizes: list[int]) -> None:
        for each in schedules(AG, sizes):
            own = np.diag(np.arange(1.0, each.ranks + 1.0))
            ended = carry_out(each, own)
            assert (ended == np.arange(1.0, each.ranks + 1.0)).all(), each.algorithm

    @pytest.mark.parametrize("sizes", SIZES, ids=str)
    def test_a_broadcast_gives_every_rank_what_rank_0_has(self, sizes: list[int]) -> None:
        for each in schedules(BC, sizes):
            data = np.zeros((each.ranks, each.chunks))
            data[0] = np.arange(1.0, each.chunks + 1.0)
            assert (carry_out(each, data) == data[0]).all(), each.algorithm

    @pytest.mark.parametrize("sizes", SIZES, ids=str)
    def test_an_all_to_all_gives_each_rank_what_each_has_for_it(self, sizes: list[int]) -> None:
        (each,) = schedules(A2A, sizes)
        n = each.ranks
        data = np.zeros((n, n * n))
        for source in range(n):
            data[source, n * source : n * (source + 1)] = 1.0 + source
        ended = carry_out(each, data).reshape(n, n, n)
        for rank in range(n):
            assert (ended[rank, :, rank] == np.arange(1.0, n + 1.0)).all()

    @pytest.mark.parametrize("kind", LIBRARY)
    @pytest.mark.parametrize("sizes", SIZES, ids=str)
    def test_steps_and_bytes_are_those_of_the_law(
        self, kind: CollectiveKind, sizes: list[int]
    ) -> None:
        """What the table says is what the messages add up to."""
        tiers = cluster("64xH100").tiers
        whole = [float(size) for size in sizes]
        for each in schedules(kind, sizes):
            said = sent_share(kind, each.algorithm, whole, tiers)
            assert each.sent_shares().max() == pytest.approx(said), each.algorithm
            # A pipelined chain has more chunks than hops; pairs of an all-to-all go all at once.
            if kind not in (BC, A2A):
                assert each.steps == steps_of(kind, each.algorithm, whole), each.algorithm

    def test_every_rank_of_a_ring_sends_the_same(self) -> None:
        ring = schedule(AR, Algorithm.RING, [8, 4])
        assert ring is not None
        assert ring.sent_shares() == pytest.approx(2 * 31 / 32)

    def test_the_documents_ring_begins_with_a0_to_a1(self) -> None:
        """Five GPUs; rank 0 hands chunk a to rank 1; after a round each has one sum."""
        ring = schedule(AR, Algorithm.RING, [5])
        assert ring is not None
        first = ring.phases[0].steps[0][0]
        assert (first.source, first.destination, first.chunks, first.adds) == (0, 1, (0,), True)
        assert [phase.name for phase in ring.phases] == ["scatter-reduce", "all-gather"]
        between = contributions(ring, 1)
        assert (np.sum(between == 5, axis=1) == 1).all()
        assert (contributions(ring, 2) == 5).all()

    @pytest.mark.parametrize("count", range(2, 40))
    def test_no_rank_has_children_in_both_trees(self, count: int) -> None:
        """Sanders et al. 2009: so both trees together load every rank alike."""
        first, second = two_trees(count)
        assert len(first) == len(second) == count - 1
        busy = set(first.values()) & set(second.values())
        for rank in busy:  # a root, with its only child
            children = [sum(p == rank for p in tree.values()) for tree in (first, second)]
            assert min(children) == 1
            assert rank not in first or rank not in second


class TestLaws:
    @pytest.mark.parametrize("on", ["8xH100", "4x8xH100", "8xMI300X", "256xTPUv5e", "72xGB200"])
    @pytest.mark.parametrize("kind", LIBRARY)
    @pytest.mark.parametrize("payload", [1e4, 1e6, 1e9])
    def test_the_fastest_of_the_library_is_the_clock(
        self, on: str, kind: CollectiveKind, payload: float
    ) -> None:
        clock = clock_of(on)
        found = compare_collective(clock, kind, payload, clock.cluster.count)
        (asked,) = np.ravel(clock.collective(kind, float(found.ranks), payload, 1.0).seconds)
        assert float(found.seconds.value) == asked
        assert found.chosen.way.seconds == asked
        tiers = sum(size > 1 for size in found.sizes)
        own = {c.way.algorithm for c in found.found if c.of_library}
        # A hierarchy of one tier is a ring, and not shown a second time.
        expected = library_of(kind, clock.cluster.tiers)
        assert own == expected - ({Algorithm.HIERARCHY} if tiers == 1 else set())

    @pytest.mark.parametrize(("on", "tiered"), [("2x8xV100", False), ("4x256xTPUv5e", True)])
    def test_nccl_gathers_by_rings_alone(self, on: str, tiered: bool) -> None:
        """Over slow networks one pass by tiers would send half of what a ring of two nodes does."""
        kinds = (AG, RS)
        tiers = clock_of(on).cluster.tiers
        assert all((Algorithm.HIERARCHY in library_of(kind, tiers)) is tiered for kind in kinds)
        assert Algorithm.HIERARCHY in library_of(AR, tiers)

    def test_an_algorithm_alone_is_no_faster_than_the_best_of_all(self) -> None:
        """The clock's number lies below what each takes by itself, and hardly below the least."""
        clock = clock_of("4x8xH100")
        law = clock.profile.curve(CurveKey("collective", operation=AR))
        for payload in np.geomspace(1e3, 1e10, 30):
            alone = library_seconds(AR, 32.0, payload, 1.0, clock.cluster.tiers, law)
            least = min(float(seconds) for seconds in alone.values())
            asked = float(clock.collective(AR, 32.0, payload, 1.0).seconds)
            assert least * 0.97 < asked <= least * (1 + 1e-12)

    def test_a_ring_is_nearly_flat_and_rank_0_linear(self) -> None:
        """What the documents say of DDP and of DataParallel, where one kind of link joins all."""
        clock = clock_of("72xGB200")
        counts = (9, 18, 36, 72)
        ways = [clock.collective_ways(AR, n, 1e9) for n in counts]
        ring = [way[Algorithm.RING].seconds for way in ways]
        rank0 = [way[Algorithm.RANK_SERVER].seconds for way in ways]
        assert ring[-1] / ring[0] == pytest.approx((71 / 72) / (8 / 9), rel=0.2)  # and its hops
        assert rank0[-1] / rank0[0] == pytest.approx(71 / 8, rel=0.01)

    def test_in_switch_is_what_was_measured_on_h100(self) -> None:
        """258, 265, 270, 273 GB/s by 5 to 8 H100 (NCCL issue 1455): one constant fits all four."""
        clock = clock_of("8xH100")
        for n, measured in ((5, 258e9), (6, 265e9), (7, 270e9), (8, 273e9)):
            way = clock.collective_ways(AR, n, 4e9)[Algorithm.IN_SWITCH]
            assert 4e9 / way.seconds == pytest.approx(measured, rel=0.01)
        assert 0.0 < NVLINK_SHARP_SHARE < 1.0

    def test_switches_add_only_where_the_catalog_says_so(self) -> None:
        for on, adds in (
            ("8xH100", True), ("8xA100", False), ("2x8xA100", True), ("8xMI300X", False),
            ("16xTPUv5e", False), ("8xRTX4090", False), ("8xB200", True),
        ):  # fmt: skip
            ways = clock_of(on).collective_ways(AR, cluster(on).count, 1e9)
            assert (Algorithm.IN_SWITCH in ways) == adds, on
            if adds:
                assert ways[Algorithm.IN_SWITCH].seconds < ways[Algorithm.RING].seconds

    def test_what_binds_is_what_helps(self) -> None:
        large = compare_collective(clock_of("4x8xH100"), AR, 1e9, 32)
        by_name = {c.way.algorithm: c for c in large.found}
        assert by_name[Algorithm.RING].bound.startswith("InfiniBand")
        assert by_name[Algorithm.IN_SWITCH].bound == "NVLink 4"
        inside = compare_collective(clock_of("8xH100"), AR, 1e9, 8)
        host = next(c for c in inside.found if c.way.algorithm is Algorithm.HOST_SERVER)
        assert host.bound == "host link"
        assert host.is_floor
        small = compare_collective(clock_of("4x8xH100"), AR, 1e3, 32)
        assert all(c.bound == "latency" for c in small.found)
        for each in (*large.found, *small.found):
            assert sum(each.shares.values()) == pytest.approx(1.0)
            assert min(each.shares.values()) > -0.01

    def test_a_mesh_gives_a_pair_one_link(self) -> None:
        """Halving-doubling talks to one rank at a time: on a mesh it leaves six links idle."""
        ways = clock_of("8xMI300X").collective_ways(AR, 8, 1e9)
        slower = ways[Algorithm.HALVING].seconds / ways[Algorithm.RING].seconds
        assert slower == pytest.approx(7.0, rel=0.02)


class TestCommand:
    def test_json_has_what_the_clock_says(self, ask: Ask) -> None:
        answer = ask("collective", "all_reduce", "--bytes", "1GB", "--on", "4x8xH100")
        own = {a["name"]: a["seconds"] for a in answer["algorithms"] if a["of_library"]}
        assert own[answer["library_algorithm"]] == min(own.values()) == answer["seconds"]["value"]
        assert answer["ranks_by_tier"] == [8, 4]
        assert [row["ranks"] for row in answer["by_count"]] == [2, 4, 8, 16, 32]
        assert answer["by_count"][-1]["seconds"]["server-rank0"] is None  # one process, one node
        ring = next(a for a in answer["algorithms"] if a["name"] == "ring")
        assert ring["busiest_sends_bytes"] == pytest.approx(2 * 31 / 32 * 1e9)
        factor = ring["bus_bytes_per_second"] / ring["algorithm_bytes_per_second"]
        assert factor == pytest.approx(2 * 31 / 32)
        assert "schedule" not in answer

    def test_messages_can_be_read_back(self, ask: Ask) -> None:
        words = (
            "all_reduce",
            "--bytes",
            "1MB",
            "--on",
            "8xH100",
            "--ranks",
            "4",
            "--steps",
            "tree",
        )
        drawn = ask("collective", *words)["schedule"]
        assert drawn["algorithm"] == "tree"
        assert sum(len(phase["steps"]) for phase in drawn["phases"]) == 6

    @pytest.mark.parametrize("columns", ["80", "60", "40"])
    @pytest.mark.parametrize("kind", LIBRARY)
    def test_every_collective_fits_a_terminal(
        self, kind: str, columns: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["collective", kind, "--bytes", "25MB", "--on", "2x8xA100"]) == 0
        said = capsys.readouterr().out
        assert max(map(len, said.splitlines())) <= int(columns)

    def test_a_ring_of_four_is_drawn(self, capsys: Capture) -> None:
        words = [
            "collective",
            "all_reduce",
            "--bytes",
            "1GB",
            "--on",
            "8xH100",
            "--ranks",
            "4",
            "--steps",
        ]
        assert main(words) == 0
        said = capsys.readouterr().out
        assert "0 ─a→ 1 ─b→ 2 ─c→ 3 ─d→ 0" in said
        assert "0 ─c→ 1 ─d→ 2 ─a→ 3 ─b→ 0" in said
        assert "Σ Σ Σ Σ" in said
        assert "4 chunks of 250 MB; 6 steps" in said

    def test_a_long_ring_leaves_out_its_middle(self, capsys: Capture) -> None:
        assert (
            main(["collective", "all_reduce", "--bytes", "1GB", "--on", "64xH100", "--steps"]) == 0
        )
        said = capsys.readouterr().out
        assert "59 more steps" in said
        assert "… 63 ─63→ 0" in said

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            ("all_reduce --bytes 1GB", "say where with --on"),
            ("all_reduce --on 8xH100", "--bytes"),
            ("all_reduce --bytes 1 --on 8xH100", "has no unit"),
            ("all_reduce --bytes 0GB --on 8xH100", "must lie between"),
            ("all_reduce --bytes=-1GB --on 8xH100", "finite number"),
            ("all_reduce --bytes 1GB --on H100", "needs two ranks or more"),
            ("all_reduce --bytes 1GB --on 8xH1OO", "did you mean"),
            ("all_reduce --bytes 1GB --on 4x8xH100 --ranks 64", "write 2 to 32"),
            ("all_reduce --bytes 1GB --on 4x8xH100 --ranks 12", "do not fill nodes of 8"),
            ("all_reduce --bytes 1GB --on 8xH100 --ranks 1", "write 2 to 8"),
            ("all_reduc --bytes 1GB --on 8xH100", "did you mean all_reduce"),
            ("all_reduce --bytes 1GB --on 8xH100 --steps in-switch", "no messages from rank"),
            ("all_gather --bytes 1GB --on 8xH100 --steps tree", "tree is none here"),
            ("all_reduce --bytes 1GB --on 72xGB200 --steps halving-doubling", "is none here"),
            ("all_reduce --bytes 1GB --on 1024x8xH100 --steps", "--ranks 4096"),
            ("all_reduce --bytes 1GB --on 8xH100 --plot ring.jpg", "ends in .png"),
        ],
    )
    def test_what_was_wrong_and_what_to_write(
        self, words: str, reason: str, capsys: Capture
    ) -> None:
        assert main(["collective", *words.split()]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert reason in said
        assert "Traceback" not in said

    def test_a_picture(self, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        file = tmp_path / "ring.png"
        words = ["collective", "all_reduce", "--bytes", "1GB", "--on", "4x8xH100"]
        assert main([*words, "--plot", str(file)]) == 0
        assert file.read_bytes().startswith(b"\x89PNG")


def test_many_ranks_are_counted_in_thousands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collective", "all_reduce", "--bytes", "1GB", "--on", "14400xH100"]) == 0
    said = capsys.readouterr().out
    assert "among 14,400 ranks" in said
    assert "1,800 × InfiniBand NDR" in said
