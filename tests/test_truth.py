"""Other people's tables are rebuilt from pinned commits: made-up repositories stand for theirs."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO, StringIO
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from accuracy import truth_folders
from fetch import main
from rebuild import amd, kernels
from rebuild.large_files import LargeFile, read_large_file
from rebuild.servers import SAMPLE, SETTINGS, serving_table
from rebuild.sources import read_sources
from rebuild.tables import MAKERS, lacking


class MadeUp(NamedTuple):
    """A repository of one file, and the table that comes of it."""

    name: str
    path: str
    data: bytes
    table: str
    text: str


TIMES = MadeUp(
    "nobody/times",
    "ground_truth_single.csv",
    "\ufeff# GPUs,global batch,iteration time (ms)\r\n2,16,372.160408\r\n".encode(),
    "vtrain_single_node.csv",
    "# GPUs,global batch,iteration time (ms)\r\n2,16,372.160408\r\n",
)
LENGTHS = MadeUp(
    "nobody/lengths",
    "made_up.yaml",
    b"# key: value\nmade-up-7b:\n  thinking_on:\n    1: 1.84\n    2: 2.50\n  off:\n    1: 1.90\n",
    "spec_decode_acceptance.csv",
    "source,model,mode,num_draft_tokens,mean_accept_len\n"
    "made_up,made-up-7b,thinking_on,1,1.84\n"
    "made_up,made-up-7b,thinking_on,2,2.5\n"
    "made_up,made-up-7b,off,1,1.9\n",
)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git(where: Path, *words: str) -> str:
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.com"]
    done = subprocess.run(["git", "-C", where, *who, *words], check=True, capture_output=True)
    return done.stdout.decode().strip()


class World:
    """Both repositories on a disk, an empty folder, and what is pinned."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.out, self.pinned = folder / "disk", folder / "out", folder / "sources.toml"
        self.commits = {each.name: self.commit(each, each.data) for each in (TIMES, LENGTHS)}
        self.pin()

    def commit(self, made_up: MadeUp, data: bytes) -> str:
        """A repository that serves single files, as the public ones do; its commit."""
        folder = self.disk / made_up.name
        folder.mkdir(parents=True, exist_ok=True)
        git(folder, "init", "--quiet")
        for option in ("allowFilter", "allowAnySHA1InWant"):
            git(folder, "config", f"uploadpack.{option}", "true")
        (folder / made_up.path).write_bytes(data)
        git(folder, "-c", "core.autocrlf=false", "add", ".")
        git(folder, "commit", "--quiet", "--message=made up")
        return git(folder, "rev-parse", "HEAD")

    def pin(self, *, server: str = "", table: str = "") -> None:
        """Write sources.toml; `server` has the repositories, `table` is what TIMES should give."""
        lines = []
        for each in (TIMES, LENGTHS):
            lines += [
                f'[repositories."{each.name}"]',
                f'url = "{server or self.disk.as_uri()}/{each.name}"',
                f'commit = "{self.commits[each.name]}"',
                'licence = "none"',
                f'files = {{ "{each.path}" = "{sha256(each.data)}" }}',
            ]
        lines.append("[tables]")
        for each in (TIMES, LENGTHS):
            text = (table if table and each is TIMES else each.text).encode()
            rows = text.count(b"\n") - 1
            said = f'repository = "{each.name}", rows = {rows}, sha256 = "{sha256(text)}"'
            lines.append(f'"{each.table}" = {{ {said} }}')
        self.pinned.write_text("\n".join(lines))

    def fetch(self, *words: str) -> int:
        """Run the command."""
        return main([str(self.out), "--sources", str(self.pinned), *words])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("online", [True, False], ids=["fetched", "from disk"])
def test_tables_come_out_as_pinned(world: World, online: bool) -> None:
    assert world.fetch(*([] if online else ["--from", str(world.disk)])) == 0
    for each in (TIMES, LENGTHS):
        assert (world.out / each.table).read_bytes().decode() == each.text


def test_what_is_there_is_not_fetched_again(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.fetch("--from", str(world.disk))
    (world.out / LENGTHS.table).unlink()
    world.pin(server="file:///nowhere")
    capsys.readouterr()
    assert world.fetch("--from", str(world.disk)) == 0
    assert TIMES.name not in capsys.readouterr().out


def test_offline_one_line_says_what_is_missing(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.pin(server="file:///nowhere")
    assert world.fetch() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert TIMES.table in line
    assert LENGTHS.table in line
    assert "nowhere" in line
    assert world.fetch("--check") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "`make truth`" in line


def test_another_file_than_the_pinned_one_is_refused(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.commits[TIMES.name] = world.commit(TIMES, TIMES.data + b"4,16,1.0\r\n")
    world.pin()
    assert world.fetch("--from", str(world.disk)) == 1
    assert f"{TIMES.name}: {TIMES.path} has sha256" in capsys.readouterr().err
    assert not (world.out / TIMES.table).exists()
    assert (world.out / LENGTHS.table).exists(), "one refused repository costs no other"


def test_another_table_than_the_pinned_one_is_not_written(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.pin(table=TIMES.text + "4,16,1.0\r\n")
    assert world.fetch("--from", str(world.disk)) == 1
    assert f"{TIMES.table}: 1 rows of sha256" in capsys.readouterr().err
    assert not (world.out / TIMES.table).exists()


def test_a_repository_or_commit_that_is_not_on_disk_is_named(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.commits[TIMES.name] = "0" * 40
    world.pin()
    assert world.fetch("--from", str(world.disk)) == 1
    assert f"lacks commit {'0' * 40}" in capsys.readouterr().err
    assert world.fetch("--from", str(tmp_path / "empty")) == 1
    assert f"{TIMES.name}: not in" in capsys.readouterr().err


def pointer_to(data: bytes) -> bytes:
    head = "version https://git-lfs.github.com/spec/v1"
    return f"{head}\noid sha256:{sha256(data)}\nsize {len(data)}\n".encode()


def test_a_file_of_git_lfs_is_read_from_its_store(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.commits[TIMES.name] = world.commit(TIMES, pointer_to(TIMES.data))
    world.pin()
    assert world.fetch("--from", str(world.disk)) == 1
    assert "kept by Git LFS" in capsys.readouterr().err
    oid = sha256(TIMES.data)
    stored = world.disk / TIMES.name / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    stored.parent.mkdir(parents=True)
    stored.write_bytes(TIMES.data)
    assert world.fetch("--from", str(world.disk)) == 0


@contextmanager
def lfs_server(objects: dict[str, bytes]) -> Iterator[str]:
    """A server of large files that knows the batch API."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            (wanted,) = asked["objects"]
            href = {"href": f"{url}/{wanted['oid']}"}
            found = {"actions": {"download": href}} if wanted["oid"] in objects else {}
            self.answer(json.dumps({"objects": [{**wanted, **found}]}).encode())

        def do_GET(self) -> None:
            self.answer(objects[self.path.strip("/")])

        def answer(self, data: bytes) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    yield url
    server.shutdown()
    server.server_close()


def test_a_file_of_git_lfs_is_downloaded_and_checked(tmp_path: Path) -> None:
    pointer, absent = (LargeFile.of(pointer_to(data)) for data in (b"good", b"absent"))
    assert pointer is not None
    assert absent is not None
    objects = {pointer.sha256: b"good"}
    with lfs_server(objects) as url:
        assert read_large_file(pointer, tmp_path, url) == b"good"
        with pytest.raises(OSError, match="has no object"):
            read_large_file(absent, tmp_path, url)
        objects[pointer.sha256] = b"bad"
        with pytest.raises(OSError, match="damaged"):
            read_large_file(pointer, tmp_path, url)


def test_a_draw_is_spread_and_repeats_count_once() -> None:
    rows = [
        {"dtype": "fp8", "tokens": tokens, "hidden": hidden, "latency_us": float(hidden + again)}
        for tokens in (1, 2)
        for hidden in range(100)
        for again in (0, 1)
    ]
    chosen = kernels.drawn(rows, ("dtype",), ("tokens", "hidden"), "tokens", 12)
    assert len(chosen) == 24
    halves = [[row["hidden"] for row in chosen if row["tokens"] == tokens] for tokens in (1, 2)]
    assert halves[0] == halves[1] == sorted(set(halves[0]))
    assert all(row["latency_us"] == row["hidden"] + 0.5 for row in chosen)


def test_collectives_are_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").Table
    row = {"op_name": "all_reduce", "kernel_source": "NCCL", "nccl_dtype": "half", "num_gpus": 2}
    parquet.write_table(
        table.from_pylist([{**row, "message_size": 256, "latency": 0.00898}]), file := BytesIO()
    )
    monkeypatch.setattr(kernels, "COLLECTIVES", (kernels.Part("a100", "nccl", "2.27.3"),))
    path = "data/a100_sxm/comm/nccl/2.27.3/nccl_perf.parquet"
    head, line = kernels.collective_table({path: file.getvalue()}).splitlines()
    assert head == "gpu,op,library,version,dtype,gpus,bytes,kernel,latency_us"
    assert line == "a100,all_reduce,nccl,2.27.3,half,2,512,NCCL,8.98"


def point(**said: str) -> dict[str, str]:
    """A row of the sample of servers."""
    usual = {"mode": "agg", "system": "h100_sxm", "tp_size": "1", "pp_size": "1"}
    return {**dict.fromkeys((*SETTINGS, "silicon_data_source"), ""), **usual, **said}


def test_a_measured_server_is_one_point() -> None:
    times = {"silicon_ttft_ms": "10.0", "silicon_tpot_ms": "2.0"}
    slower = {"silicon_ttft_ms": "20.0", "silicon_tpot_ms": "4.0"}
    sample = [
        point(id="eight", tp_size="8", silicon_ttft_ms="9.0", silicon_tpot_ms="1.0"),
        point(id="once", **times),
        point(id="again", **slower),
        point(id="the same", tp_size="2", silicon_ttft_ms="15", silicon_tpot_ms="3"),
        point(id="split", mode="disagg", **times),
        point(id="another chip", system="b200_sxm", **times),
        point(id="left out", model_path="openai/gpt-oss-120b", **times),
        point(id="dated", silicon_data_source="measured=2026-01-14T22:26:21Z; wip=False", **times),
    ]
    out = StringIO()
    write = csv.DictWriter(out, list(sample[0]))
    write.writeheader()
    write.writerows(sample)
    got = list(csv.DictReader(StringIO(serving_table({SAMPLE: out.getvalue().encode()}))))
    assert [row["id"] for row in got] == ["once", "dated", "eight"]
    assert (got[0]["silicon_ttft_ms"], got[0]["n_measured"]) == ("15.0000", "2")
    assert got[1]["measured_on"] == "2026-01-14"


def test_every_table_that_is_pinned_has_a_maker_and_a_repository() -> None:
    sources = read_sources()
    assert set(sources.tables) == set(MAKERS)
    assert {table.repository for table in sources.tables.values()} == set(sources.repositories)


def test_the_tables_that_claims_are_judged_by_are_those_that_are_pinned() -> None:
    sources, judged = read_sources(), 0
    for folder in truth_folders():
        there = {name for name in sources.tables if (folder / name).is_file()}
        assert not set(lacking(folder, sources)) & there
        judged += len(there)
    if not judged:
        pytest.skip("no table of others is here: `make truth` fetches them")


def aiter_product(**said: str) -> str:
    """A product as AITER's tuner lists it."""
    row = {"gfx": "gfx942", "cu_num": "304", "M": "16", "N": "5120", "K": "1024", "libtype": "ck",
           "us": "5.9105"} | said  # fmt: skip
    return f"{','.join(row)}\n{','.join(row.values())}\n"


def aiter_layer(**said: str) -> str:
    """A layer of experts as AITER's tuner lists it: older files do not name the architecture."""
    row = {"cu_num": "256", "token": "1", "model_dim": "7168", "inter_dim": "256", "expert": "256",
           "topk": "8", "q_dtype_a": "torch.bfloat16", "q_dtype_w": "torch.int4",
           "q_type": "QuantType.per_1x32", "use_g1u1": "1", "kernelName1": "moe",
           "us": "25.9541"} | said  # fmt: skip
    return f"{','.join(row)}\n{','.join(row.values())}\n"


def test_kernels_of_amd_name_the_chip_by_its_units_and_the_format_by_the_file() -> None:
    files = {
        "a8w8_blockscale_tuned_gemm.csv": aiter_product(),
        "a8w8_bpreshuffle_tuned_gemm.csv": aiter_product(q_dtype_w="torch.int8", N="128"),
        "bf16_tuned_gemm.csv": aiter_product(
            gfx="gfx950", cu_num="256", dtype="torch.bfloat16", bias="False"
        ),
        "a4w4_blockscale_tuned_gemm.csv": aiter_product(gfx="gfx950", cu_num="256"),
        "of_another_chip_tuned_gemm.csv": aiter_product(cu_num="80"),
        "failed_blockscale_tuned_gemm.csv": aiter_product(us="0.0"),
        "tuned_fmoe.csv": aiter_layer(),
    }
    found = amd.product_table({name: text.encode() for name, text in files.items()})
    rows = list(csv.DictReader(StringIO(found)))
    assert [(r["gpu"], r["dtype"], r["n"], r["latency_us"], r["cast"]) for r in rows] == [
        ("mi300x", "fp8_block", "5120", "5.91", "apart"),
        ("mi300x", "sq", "128", "5.91", "apart"),
        ("mi355x", "bfloat16", "5120", "5.91", "apart"),
        ("mi355x", "w4a4_mxfp4", "5120", "5.91", "apart"),
    ]


def test_experts_of_amd_are_named_by_what_their_operands_are_stored_in() -> None:
    halves = aiter_layer(use_g1u1="0")
    files = {"tuned_fmoe.csv": aiter_layer(), "without_gate_fmoe.csv": halves}
    found = amd.expert_table({name: text.encode() for name, text in files.items()})
    rows = list(csv.DictReader(StringIO(found)))
    assert [(r["gpu"], r["dtype"], r["hidden"], r["latency_us"]) for r in rows] == [
        ("mi355x", "int4_wo", "7168", "25.954")
    ]
