"""Inputs that are nearly right: real configs, tables, traces, profiles, clusters and flags, spoilt.

Each class is a function of a random generator that gives a Case: the words of a command line and
the files that it names. In the words, @ stands for the folder that holds them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import random
import re
import tomllib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from trueflops.catalog.models import model_names, model_record
from trueflops.cli.arguments import parser
from trueflops.interop.kineto.outputs import FAMILIES
from trueflops.profile.stored import DATA

HERE: Final = Path(__file__).resolve().parents[1]
TRACE: Final = HERE / "tests" / "data" / "llama_160m_step.json.gz"
NASTY: Final[tuple[Any, ...]] = (
    None, True, False, -1, 0, 1, 2, 3, 7, 10**6, 2**31, 2**63, 10**30, -5.5, 0.5, 1e-300, 1e300,
    float("nan"), float("inf"), -float("inf"), "", " ", "0", "-1", "1_", "1__0", "1e999", "nan",
    "inf", "-inf", "0x10", "١٢", "½", "1,5", "1.2.3", "x" * 3000, "x\x1b[31m", "\x9b2J", "\u202ea",
    "[/red]", "[bold]x", "[link=x", "a\nb", "a\x00b", "\ud800", "~nosuchuser/p.toml", "../..", "/",
    "/dev/null", "power_law_1.0", "power_law_1.2.3", "power_law_", [], [[]], {}, [1, "a"], [-1, 2],
    [[[[1]]]], {"value": 1}, "64xH100", "bf16", "1 TB/s", "1e300 TB/s", "1e-300 TB/s", "-5 W",
)  # fmt: skip
CHIPS: Final = ("H100", "H200", "MI300X", "RTX4090", "TPU-v5p", "A100", "V100", "8xH100", "Gaudi3")
MODELS: Final = ("GPT-2", "Llama-3.1-8B", "Mixtral-8x7B", "DeepSeek-V2-Lite", "Gemma-2-9B")


@dataclass
class Case:
    """One input."""

    words: list[str]
    files: dict[str, bytes] = field(default_factory=dict)


def nasty_text(chance: random.Random) -> str:
    """One of the nasty values as a word; no word of a command line holds a zero byte."""
    return str(chance.choice(NASTY)).replace("\x00", "")


def spoil(value: Any, chance: random.Random, times: int) -> Any:
    """A copy of nested lists and objects with some places changed, dropped or doubled."""
    whole = deepcopy(value)
    for _ in range(times):
        at = whole
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(at[key], dict | list) and at[key] and chance.random() < 0.8:
                at = at[key]
                continue
            if chance.random() < 0.15:
                del at[key]
            elif chance.random() < 0.6:
                at[key] = nudged(at[key], chance)
            else:
                at[key] = deepcopy(chance.choice(NASTY))
            break
    return whole


def nudged(value: Any, chance: random.Random) -> Any:
    """Another value of the same kind: one that a sane file might hold, or nearly."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice((1, 2, 3, 5, 64, 127, 4096, value + 1, value - 1, 2 * value, 10**7))
    if isinstance(value, float):
        return value * chance.choice((-1, 0.0, 0.1, 0.5, 0.99, 1.02, 2, 3, 10, 1e3, 1e-3, 1e9))
    if isinstance(value, str) and (number := re.match(r"[0-9.]+(?= )", value)):
        return f"{float(number[0]) * 10 ** chance.uniform(-9, 9):.4g}{value[number.end() :]}"
    return deepcopy(chance.choice(NASTY))


def spoil_bytes(raw: bytes, chance: random.Random) -> bytes:
    """Cut short, or with a few bytes that are not its own."""
    if not raw or chance.random() < 0.5:
        return raw[: chance.randrange(len(raw) + 1)]
    changed = bytearray(raw)
    for _ in range(chance.randrange(1, 4)):
        changed[chance.randrange(len(changed))] = chance.choice(b'\x00\xff"\\{}[],:\n9-')
    return bytes(changed)


def as_json(value: Any, chance: random.Random) -> bytes:
    """JSON, now and then damaged as text."""
    raw = json.dumps(value).encode(errors="surrogatepass")
    return spoil_bytes(raw, chance) if chance.random() < 0.05 else raw


def shown(words: list[str], chance: random.Random) -> list[str]:
    """Half the time as JSON, else as text."""
    return [*words, "--json"] if chance.random() < 0.6 else words


# ── the classes ──────────────────────────────────────────────────────────────────────────────────


@cache
def _configs() -> list[dict[str, Any]]:
    return [dict(model_record(name)["config"]) for name in model_names()]


def config(chance: random.Random) -> Case:
    """A config.json with a few fields spoilt."""
    fields = deepcopy(chance.choice(_configs()))
    if chance.random() < 0.5:
        fields = spoil(fields, chance, chance.choice((1, 1, 2, 4)))
    else:  # sizes that are sane by themselves
        numbers = [key for key, value in fields.items() if isinstance(value, int)]
        for key in chance.sample(numbers, k=min(2, len(numbers))):
            fields[key] = nudged(fields[key], chance)
    files = {"config.json": as_json(fields, chance)}
    if chance.random() < 0.7:
        words = ["infer", "@/config.json", "--on", chance.choice(CHIPS), "--tp", "1"]
        words += ["--input", "64", "--output", "8", "--concurrency", "2"]
    else:
        words = ["train", "@/config.json", "--on", chance.choice(CHIPS), "--tp", "1", "--seq", "64"]
        words += ["--zero", chance.choice("0123"), "--global-batch", "8", "--tokens", "1B"]
    return Case(shown(words, chance), files)


@cache
def _flags() -> dict[str, list[argparse.Action]]:
    names = ("train", "infer", "compare", "catalog", "ops", "capture", "diagnose", "explain",
             "measure", "calibrate", "verify")  # fmt: skip
    found = {name: parser().command(name)._actions for name in names}
    return {name: [a for a in acts if a.option_strings] for name, acts in found.items()}


# What makes each command answer, and cheaply: no search, no measurement, no torch.
_SANE: Final = {
    "train": ["GPT-2", "--on", "8xH100", "--tp", "1", "--global-batch", "8", "--seq", "128"],
    "infer": ["GPT-2", "--on", "H100", "--tp", "1", "--input", "64", "--output", "8"],
    "compare": ["H100", "MI300X"],
    "catalog": ["H100"],
    "ops": ["@/ops.csv", "--on", "H100"],
    "capture": ["@/none.py:build", "--on", "H100"],
    "diagnose": ["@/trace.json", "--on", "H200"],
    "explain": ["matmul", "512x512x512", "--on", "H100"],
    "measure": ["show", "H200"],
    "calibrate": ["@/folder"],
    "verify": ["@/ops.csv"],
}
_DEAR: Final = ("--search", "--for", "--plot", "--help", "--roofline", "--timeline")


def flags(chance: random.Random) -> Case:
    """A command with flags of its own and values that nobody should give."""
    name = chance.choice(list(_SANE))
    words = [name, *_SANE[name]]
    for action in chance.sample(_flags()[name], k=min(chance.randrange(4), len(_flags()[name]))):
        flag = chance.choice(action.option_strings)
        if flag in _DEAR and chance.random() < 0.98:
            continue
        words.append(flag)
        if action.nargs != 0 and chance.random() < 0.95:
            choices = [str(c) for c in action.choices or ()]
            good = [*choices, "1", "2", "4", "100", "0.5", "1k", "10ms", "bf16", "H100", "8xH100"]
            words.append(chance.choice(good) if chance.random() < 0.5 else nasty_text(chance))
    if chance.random() < 0.3:
        place = chance.randrange(1, len(words))
        words[place] = nasty_text(chance)
    if name == "measure" and words[1:2] not in (["show"], ["fit"]):
        words.insert(1, "show")  # never measure anything
    return Case(shown(words, chance), {"ops.csv": b"m,n,k\n16,32,64\n", "trace.json": b"[]"})


@cache
def _tables() -> list[tuple[list[str], list[list[str]]]]:
    truth = [
        HERE / "truth",
        *([shared] if (shared := HERE.parent / "shared/truth").is_dir() else []),
    ]
    found = []
    for path in sorted(file for folder in truth for file in folder.rglob("*.csv")):
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header, *rows = csv.reader(stream)
        found.append((header, rows))
    return found


def tables(chance: random.Random) -> Case:
    """A few rows of a measured table, with cells and headings spoilt."""
    header, rows = chance.choice(_tables())
    header = list(header)
    slow = "latency_us" not in header  # runs of whole models
    few = [list(row) for row in chance.choices(rows, k=1 if slow else chance.randrange(1, 6))]
    for _ in range(chance.choice((1, 1, 2, 4))):
        row = chance.choice(few)
        if row:
            row[chance.randrange(len(row))] = str(chance.choice(NASTY))
    if chance.random() < 0.1:
        header[chance.randrange(len(header))] = chance.choice(("m", "bytes", "kernel", "", "gpu"))
    text = io.StringIO()
    csv.writer(text).writerows([header, *few])
    raw = text.getvalue().encode(errors="surrogatepass")
    raw = spoil_bytes(raw, chance) if chance.random() < 0.05 else raw
    words = ["verify", "@/t.csv"] if slow or chance.random() < 0.6 else ["ops", "@/t.csv"]
    if words[0] == "ops":
        words += ["--on", chance.choice(CHIPS)]
    elif chance.random() < 0.03:
        words = ["calibrate", "@/", "-o", "@/"]
    return Case(words if words[0] == "calibrate" else shown(words, chance), {"t.csv": raw})


@cache
def _events() -> tuple[list[dict[str, Any]], dict[int, list[dict[str, Any]]]]:
    """Ops of a real trace, and what belongs to each: kernels and the calls that launched them."""
    events = json.loads(gzip.decompress(TRACE.read_bytes()))["traceEvents"]
    linked: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        number = event.get("args", {}).get("External id")
        if isinstance(number, int) and event.get("cat") != "cpu_op":
            linked.setdefault(number, []).append(event)
    ops = [
        e
        for e in events
        if e.get("cat") == "cpu_op" and e.get("args", {}).get("External id") in linked
    ]
    return ops, linked


_ODD_SHAPES: Final[tuple[Any, ...]] = (
    5, None, "x", True, 1.5, {"a": 1}, [[1, 2], [3]], [["a"]], [[]], [[2, 2], [2, 2]],
)  # fmt: skip


def _other_arguments(op: dict[str, Any], chance: random.Random) -> None:
    """Shapes of any rank, types and scalars that need not go together."""
    if chance.random() < 0.7:
        op["name"] = f"aten::{chance.choice(sorted(FAMILIES))}{chance.choice(('', '', '_'))}"
    sizes = (0, 1, 2, 3, 16, 64, 128, 4096, 2**20, 2**45, -1)
    shapes: list[Any] = [chance.choices(sizes, k=chance.randrange(6)) for _ in range(7)]
    if chance.random() < 0.3:
        odd: tuple[Any, ...] = (
            5,
            None,
            "x",
            True,
            [[1, 2], [3]],
            [["a"]],
            [[]],
            [[2, 2], [2, 2]],
            {"a": 1},
            1.5,
        )
        shapes[chance.randrange(7)] = chance.choice(odd)
    args = op["args"]
    if chance.random() < 0.7:
        args["Input Dims"] = [shapes, *shapes] if chance.random() < 0.2 else shapes
    if chance.random() < 0.3:
        kinds = ("float", "c10::BFloat16", "long int", "Scalar", "ScalarList", "TensorList", "", 7)
        args["Input type"] = [chance.choice(kinds) for _ in shapes]
        if chance.random() < 0.4:
            op["name"], args["Input type"][0] = "aten::cat", "TensorList"
    if chance.random() < 0.4:
        words = ("", "0", "-1", "3", "True", "[1, 0]", "[2, 2]", "[-1]", "[", "1e308", "9" * 30)
        args["Concrete Inputs"] = [chance.choice(words) for _ in shapes]
    if chance.random() < 0.3:
        args["Input Strides"] = [shapes[::-1], *shapes][: len(shapes)]


def traces(chance: random.Random) -> Case:
    """A few ops of a real trace with their kernels; shapes, times and names spoilt."""
    ops, linked = _events()
    few = chance.sample(ops, k=chance.randrange(1, 7))
    events = [event for op in few for event in (op, *linked[op["args"]["External id"]])]
    if chance.random() < 0.5:  # another op of such arguments, or such an op of other arguments
        events = deepcopy(events)
        for op in (event for event in events if event.get("cat") == "cpu_op"):
            _other_arguments(op, chance)
    else:
        events = spoil(events, chance, chance.choice((1, 2, 4, 8)))
    whole = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}
    raw = as_json(whole if chance.random() < 0.9 else events, chance)
    if chance.random() < 0.1:
        raw = gzip.compress(raw)
        raw = spoil_bytes(raw, chance) if chance.random() < 0.3 else raw
    on = ["--on", chance.choice(CHIPS)] if chance.random() < 0.8 else []
    return Case(shown(["diagnose", "@/t.json", *on], chance), {"t.json": raw})


@cache
def _profiles() -> list[dict[str, Any]]:
    found = []
    for path in (*sorted(DATA.glob("H*.json")), *sorted((DATA / "measured").glob("*.json"))):
        raw = json.loads(path.read_text())
        for curve in raw["curves"].values():
            marks = curve.get("landmarks") or {}
            for name in ("points", "weights"):
                if name in marks:
                    marks[name] = marks[name][:3]
        for table in raw.get("measured", {}).get("tables", {}).values():
            table["rows"] = table["rows"][:6]
        found.append(raw)
    return found


def profiles(chance: random.Random) -> Case:
    """A profile of few landmarks with parameters spoilt."""
    whole = chance.choice(_profiles())
    keys = [key for key in whole if key not in ("curves", "measured")]
    curves = chance.sample(list(whole["curves"]), k=min(4, len(whole["curves"])))
    few = {key: whole[key] for key in keys} | {"curves": {c: whole["curves"][c] for c in curves}}
    if "measured" in whole and chance.random() < 0.5:
        few["measured"] = whole["measured"]
    files = {"p.json": as_json(spoil(few, chance, chance.choice((1, 1, 2, 4))), chance),
             "ops.csv": b"m,n,k,dtype\n16,32,64,bf16\n4096,4096,4096,fp8\n"}  # fmt: skip
    words = chance.choice((
        ["explain", "matmul", "512x512x512", "--profile", "@/p.json"],
        ["ops", "@/ops.csv", "--profile", "@/p.json"],
        ["measure", "show", "@/p.json"],
        ["infer", "GPT-2", "--tp", "1", "--input", "64", "--profile", "@/p.json"],
    ))  # fmt: skip
    return Case(shown(words, chance), files)


@cache
def _clusters() -> list[dict[str, Any]]:
    blocks = re.findall(
        r"```toml\n(.*?)```", (HERE / "docs" / "clusters.md").read_text(), re.DOTALL
    )
    return [tomllib.loads(block) for block in blocks]


_FACTS: Final = (
    ("compute", "units"), ("compute", "tensor_cores"), ("compute", "clock"), ("memory", "capacity"),
    ("memory", "bandwidth"), ("memory", "l2"), ("power", "tdp"), ("peak", "bf16"), ("peak", "x"),
    ("sparsity", "factor"), ("partition", "x"), ("links", "scale_up"), ("nonsense", "x"),
)  # fmt: skip


def clusters(chance: random.Random) -> Case:
    """A cluster file with values spoilt."""
    whole = spoil(chance.choice(_clusters()), chance, chance.choice((1, 1, 2, 4)))
    if chance.random() < 0.3:
        table, name = chance.choice(_FACTS)
        value = deepcopy(chance.choice(NASTY))
        whole["accelerator"] = {"like": "H100", "name": "mine", table: {name: value}}
        whole.pop("node", None)
    raw = _toml(whole).encode(errors="surrogatepass")
    raw = spoil_bytes(raw, chance) if chance.random() < 0.05 else raw
    words = chance.choice((
        ["infer", "GPT-2", "--tp", "1", "--input", "64", "--on", "@/c.toml"],
        ["train", "GPT-2", "--tp", "1", "--zero", "1", "--seq", "64", "--on", "@/c.toml"],
        ["ops", "@/ops.csv", "--on", "@/c.toml"],
    ))  # fmt: skip
    files = {"c.toml": raw, "ops.csv": b"op,gpus,bytes\nall_reduce,2,1024\n"}
    return Case(shown(words, chance), files)


def _toml(value: Any, depth: int = 0) -> str:
    """A TOML document; inline tables below the top."""
    if isinstance(value, dict) and depth == 0:
        lines = (f"{json.dumps(str(k))} = {_toml(v, 1)}" for k, v in value.items() if v is not None)
        return "\n".join(lines) + "\n"
    if isinstance(value, dict):
        inside = (
            f"{json.dumps(str(k))} = {_toml(v, 1)}" for k, v in value.items() if v is not None
        )
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v, 1) for v in value if v is not None) + "]"
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    return json.dumps(value)


CLASSES: Final[dict[str, Callable[[random.Random], Case]]] = {
    "config": config, "flags": flags, "tables": tables, "traces": traces, "profiles": profiles,
    "clusters": clusters,
}  # fmt: skip
