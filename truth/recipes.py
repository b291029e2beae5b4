"""What NVIDIA's performance recipes set that its tables of results leave out.

    python truth/recipes.py DIR

DIR holds git copies: NVIDIA-NeMo+Megatron-Bridge/repo and NVIDIA+NeMo/repo.
Out: src/trueflops/verify/training/recipes.csv, a line for each recipe of each release. Recipes are
Python: they are read as syntax trees, never run. Of NeMo they are tables. Nothing measured is among
them.
"""

from __future__ import annotations

import ast
import csv
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from trueflops.plan.captures import LAYERS

OUT: Final = Path(__file__).parents[1] / "src/trueflops/verify/training/recipes.csv"
BRIDGE: Final = {"25.11": "v0.2.0", "26.02": "v0.3.0", "26.04": "v0.4.0", "26.06": "v0.5.0",
                 "26.08": "v0.6.0"}  # fmt: skip
NEMO: Final = {"25.04": "v2.3.0", "25.07": "v2.4.0"}
TASKS: Final = {"pre_train": "pretrain", "base": "pretrain"}  # the others are called as they are
PRECISIONS: Final = ("BF16", "FP8_CS", "FP8_MX", "FP8_SC", "FP8_DS", "NVFP4", "FP8")
DEGREES: Final = {
    "num_gpus": "chips", "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp", "expert_model_parallel_size": "ep",
    "micro_batch_size": "micro_batch", "global_batch_size": "global_batch",
}  # fmt: skip
OF_A_TABLE: Final = {
    "num_gpus": "chips", "tp_size": "tp", "pp_size": "pp", "cp_size": "cp", "ep_size": "ep",
    "mbs": "micro_batch", "gbs": "global_batch",
}  # fmt: skip
COLUMNS: Final = (
    "release", "task", "model", "accelerator", "precision", *DEGREES.values(), "cuda_graphs",
    "dispatch", "overlap_dispatch", "recompute",
)  # fmt: skip
OTHERWISE: Final = ("flux", "vlm", "neva", "wan")  # what is no language model
OVERLAPS: Final = ("moe_a2a_overlap", "overlap_moe_expert_parallel_comm")
SCOPES: Final = {"attn": "attention", "mamba": "attention", "mlp": "ffn", "moe_router": "router"}
SETTERS: Final = {
    "set_cuda_graph_modules": "cuda_graph_scope", "clear_cuda_graph_modules": "cuda_graph_scope",
    "_with_global_batch_size": "global_batch_size",
}  # fmt: skip
UNKNOWN: Final = "?"  # what only a run of the recipe would tell
_MODEL, _CHIP = r"(?P<model>(?!BASE_)[A-Z]\w+?)", r"(?P<gpu>[A-Z]+\d+)"
_PRECISION = rf"(?P<precision>{'|'.join(PRECISIONS)})"
NAMES: Final = (
    re.compile(
        rf"{_MODEL}_(?P<task>PRETRAIN|SFT|LORA)_CONFIG_{_CHIP}_{_PRECISION}(?:_V\d|_LARGE_SCALE)?"
    ),
    re.compile(rf"{_MODEL}_{_CHIP}_{_PRECISION}_(?P<task>BASE|SFT|LORA)_CONFIG"),  # of 25.11
)
FUNCTION: Final = re.compile(
    r"(?P<model>\w+?)_(?P<task>pretrain|sft|lora)_(?P<chips>\d+)gpu_(?P<gpu>[a-z]+\d+)"
    r"_(?P<precision>bf16|fp8cs|fp8mx|fp8sc|fp8ds|nvfp4)(?:_\w+)?_config$"
)
Settings = dict[str, Any]


def main(folder: Path) -> None:
    """Write the table."""
    bridge = folder / "NVIDIA-NeMo+Megatron-Bridge/repo"
    lines = [line for release, tag in BRIDGE.items() for line in of_bridge(bridge, release, tag)]
    nemo = folder / "NVIDIA+NeMo/repo"
    lines += [line for release, tag in NEMO.items() for line in of_nemo(nemo, release, tag)]
    texts = {
        tuple(str(line.get(column, "")) for column in COLUMNS)
        for line in lines
        if not line["model"].startswith(OTHERWISE)
        and all(line[degree] != "" for degree in DEGREES.values())
    }
    with OUT.open("w", newline="", encoding="utf-8") as file:
        write = csv.writer(file, lineterminator="\n")
        write.writerows([COLUMNS, *sorted(texts)])
    print(f"{OUT.name}: {len(texts)} recipes")


def of_bridge(git: Path, release: str, tag: str) -> Iterator[Settings]:
    """Both of its layouts: tables of keyword arguments, and functions that change a config."""
    paths = _git(git, "ls-tree", "-r", "--name-only", tag).split()
    tables = [p for p in paths if p.endswith("workload_base_configs.py") and "_vl" not in p]
    for path in tables:
        yield from of_assignments(ast.parse(_git(git, "show", f"{tag}:{path}")), release)
    sources = Sources(git, tag, frozenset(paths))
    for path in paths:
        if "/perf_recipes/" in path and path.endswith(".py") and "_vl" not in path:
            for name, function in sources.functions(path).items():
                if known := FUNCTION.fullmatch(name):
                    said = settings_of(sources, path, function)
                    precision = known["precision"].upper().replace("FP8", "FP8_")
                    yield line_of(release, known["task"], known["model"], known["gpu"], precision,
                                  said, chips=known["chips"])  # fmt: skip


class Sources:
    """The modules of a release: which function a name means where it is called."""

    def __init__(self, git: Path, tag: str, paths: frozenset[str]) -> None:
        self.git, self.tag, self.paths = git, tag, paths
        self._trees: dict[str, ast.Module] = {}

    def tree(self, path: str) -> ast.Module:
        """A module as syntax."""
        if path not in self._trees:
            self._trees[path] = ast.parse(_git(self.git, "show", f"{self.tag}:{path}"))
        return self._trees[path]

    def functions(self, path: str) -> dict[str, ast.FunctionDef]:
        """Those of a module."""
        return {n.name: n for n in self.tree(path).body if isinstance(n, ast.FunctionDef)}

    def find(self, path: str, name: str) -> tuple[str, ast.FunctionDef] | None:
        """Where a name that a module uses is defined, and how; None where it is not a function."""
        if name in self.functions(path):
            return path, self.functions(path)[name]
        for node in self.tree(path).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        base = "src/" + node.module.replace(".", "/")
                        there = {f"{base}.py", f"{base}/__init__.py"} & self.paths
                        return self.find(there.pop(), alias.name) if there else None
        return None


def of_assignments(tree: ast.Module, release: str) -> Iterator[Settings]:
    """NAME = WorkloadBaseConfig(…), replace(OTHER, …), or OTHER."""
    known: dict[str, Settings] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, value = node.targets[0].id, node.value
        if isinstance(value, ast.Name) and value.id in known:
            known[name] = known[value.id]
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            base = value.args[0].id if value.args and isinstance(value.args[0], ast.Name) else ""
            own = {k.arg: _literal(k.value) for k in value.keywords if k.arg}
            known[name] = known.get(base, {}) | own
        else:
            continue
        if found := next(filter(None, (each.fullmatch(name) for each in NAMES)), None):
            yield line_of(release, found["task"], found["model"], found["gpu"],
                          found["precision"], known[name])  # fmt: skip


def settings_of(sources: Sources, path: str, function: ast.FunctionDef) -> Settings:
    """What a function assigns to its config, and what those assign that it calls on the way."""
    said: Settings = {}
    named: Settings = {}
    for node in function.body:
        value = getattr(node, "value", None)
        calls = [each for each in ast.walk(value) if isinstance(each, ast.Call)] if value else []
        for call in reversed(calls):  # what is an argument was called before
            said |= _called(sources, path, call)
        if not isinstance(node, ast.Assign):
            continue
        target, of = node.targets[0], node.value
        meant = named.get(of.id) if isinstance(of, ast.Name) else _literal(of)
        if isinstance(target, ast.Attribute):
            followed = meant is not None or ast.unparse(of) == "None"
            said[target.attr] = meant if followed or target.attr not in DEGREES else UNKNOWN
        elif isinstance(target, ast.Name):
            named[target.id] = meant
    return said


def _called(sources: Sources, path: str, call: ast.Call) -> Settings:
    if not isinstance(call.func, ast.Name) or call.func.id.endswith("_benchmark_common"):
        return {}
    name, given = call.func.id, [_literal(each) for each in call.args[1:]]
    said: Settings = {each.arg: _literal(each.value) for each in call.keywords if each.arg}
    if name == "set_full_iteration_cuda_graph":
        return {"cuda_graph_impl": "full_iteration"}
    if name in SETTERS:
        return {SETTERS[name]: given[0] if given else ()}
    found = sources.find(path, name)
    if found is None:
        return {**said, "unresolved": True} if name.endswith("_config") else said
    inner = settings_of(sources, *found)
    if "/perf_recipes/" not in found[0]:  # others offer a backend without asking for it
        inner.pop("moe_flex_dispatcher_backend", None)
    return said | inner


def of_nemo(git: Path, release: str, tag: str) -> Iterator[Settings]:
    """Its tables, one for each chip."""
    folder = "scripts/performance/recommended_model_configs/"
    for path in _git(git, "ls-tree", "--name-only", tag, folder).split():
        if not path.endswith(".csv"):
            continue
        for row in csv.DictReader(io.StringIO(_git(git, "show", f"{tag}:{path}"))):
            said: Settings = {
                ours: float(row[theirs]) for theirs, ours in OF_A_TABLE.items() if row[theirs]
            }
            said["cuda_graphs"] = LAYERS if float(row["cuda_graphs"] or 0) else "none"
            layers = int(float(row["recompute_layers"] or 0))
            said["recompute"] = recomputed(layers, row.get("recompute_modules") or "")
            name, precision = f"{row['model']}_{row['size']}", row["dtype"].upper()
            yield line_of(release, row["task"], name, row["system"], precision, said)


def line_of(
    release: str, task: str, model: str, chip: str, precision: str, said: Settings,
    chips: Any = None,
) -> Settings:  # fmt: skip
    """A recipe in our columns."""
    found: Settings = {
        "release": release, "task": TASKS.get(task.casefold(), task.casefold()),
        "model": model.casefold().replace("_", "-"), "accelerator": chip.upper(),
        "precision": precision.replace("_", ""), "cuda_graphs": captured(said),
        "recompute": said.get("recompute") or (
            recomputed(said.get("recompute_num_layers"), said.get("recompute_modules"))
            if said.get("recompute_granularity", True) else "none"
        ),
        "dispatch": "deduplicated" if said.get("moe_flex_dispatcher_backend") else "",
        "overlap_dispatch": "y" if any(map(said.get, OVERLAPS)) else "n",
    }  # fmt: skip
    usual = None if said.get("unresolved") else 1  # of a config that nobody could follow, nothing
    for theirs, ours in DEGREES.items():
        value = said.get(ours, said.get(theirs))
        value = usual if value is None else value
        found[ours] = int(value) if isinstance(value, int | float) else ""
    if chips is not None:
        found["chips"] = int(chips)
    return found


def captured(said: Settings) -> str:
    """Parts of CUDA graphs in our words; 'none' where a recipe leaves them off."""
    if "cuda_graphs" in said:
        return str(said["cuda_graphs"])
    how, scope = said.get("cuda_graph_impl"), said.get("cuda_graph_scope") or ()
    scopes = [scope] if isinstance(scope, str) else list(scope)
    if how in (None, "none"):
        return "none"
    if how == "full_iteration" or "full_iteration" in scopes:
        return "step"
    parts = [SCOPES[each] for each in scopes if each in SCOPES]
    return ",".join(dict.fromkeys(parts)) or LAYERS


def recomputed(layers: Any, modules: Any) -> str:
    """'none', '5 layers', or the modules as they are called."""
    if layers:
        return f"{layers} layers"
    names = modules.split("/") if isinstance(modules, str) else list(modules or ())
    return "+".join(name for name in names if name) or "none"


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _git(git: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", git, *words], capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
