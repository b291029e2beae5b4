"""The house: rooms import only rooms above them, files stay small, the base install stays light."""

from __future__ import annotations

import ast
import operator
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

import trueflops

SOURCE = Path(trueflops.__file__).parent
ROOMS = [
    "language",  # every room may speak
    "dtypes",
    "errors",
    "units",
    "files",
    "sizes",
    "tables",
    "catalog",
    "model",
    "workload",
    "plan",
    "graph",
    "records",  # data: who writes it and who reads it stand below, and need not know one another
    "capture",
    "profile",
    "clock",
    "runtime",
    "interop",
    "predict",
    "serve",
    "search",
    "calibrate",
    "verify",
    "sweep",
    "run",
    "report",
    "measure",  # runs on a bare node: only cli starts it
    "web",  # asks what cli hands in
    "cli",
    "ask",
    "__main__",
    "pytest_plugin",  # loaded by pytest alone
]
BARE = {"torch", "numpy"}  # what a node has on which `python -m trueflops.measure` runs
SCALES = {1e6, 1e9, 1e12, 1e15, 2.0**30, 2.0**40}  # of units: mega, giga, tera, peta, GiB, TiB
FOLDED: dict[type[ast.operator], Callable[[Any, Any], float]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


def name_of(file: Path) -> str:
    """The module that a file is."""
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(file): file for file in SOURCE.rglob("*.py")}


def imports(file: Path, *, deferred: bool = False) -> set[str]:
    """Modules that a file imports, those under TYPE_CHECKING too.

    Ours by the file that holds them, others by their package. `deferred`: in functions too.
    """
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports by dots"
            assert node.module
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & FILES.keys()
            if inside - FILES.keys():
                found.add(node.module)
        elif deferred or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting.extend(ast.iter_child_nodes(node))
    return {name if name in FILES else name.partition(".")[0] for name in found}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_a_room_imports_only_rooms_above_it() -> None:
    for module, file in FILES.items():
        if module == "trueflops":
            continue
        here = ROOMS.index(room(module))
        for other in imports(file, deferred=True) & FILES.keys() - {"trueflops"}:
            below = ROOMS.index(room(other)) > here
            assert not below, f"{file.relative_to(SOURCE)} imports {other}, which is below it"


def test_the_package_says_which_rooms_there_are() -> None:
    said = (trueflops.__doc__ or "").partition("Rooms, in the order")[2].partition(". A")[0]
    named = {name.strip() for name in said.partition(":")[2].split(",")}
    assert named == set(ROOMS) - {"__main__"}


def test_no_file_imports_itself_by_way_of_others() -> None:
    """A circle of imports would be of files that cannot be read one after another."""
    graph = {module: sorted(imports(file) & FILES.keys()) for module, file in FILES.items()}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_measuring_needs_torch_and_numpy_alone() -> None:
    """A bare node has our source, torch and numpy: all that measuring loads must be content."""
    waiting = [module for module in FILES if room(module) == "measure"]
    loaded: set[str] = set()
    while waiting:
        module = waiting.pop()
        parents = {module.rpartition(".")[0]} - {""}  # a package is loaded before what is in it
        for name in imports(FILES[module], deferred=True) | parents:
            if name in FILES and name not in loaded:
                loaded.add(name)
                waiting.append(name)
            elif name not in FILES:
                known = name in BARE or name in sys.stdlib_module_names
                assert known, f"{module}, which measuring loads, imports {name}"
    assert {room(module) for module in loaded} <= {
        "",
        "language",
        "errors",
        "files",
        "records",
        "measure",
    }


def test_every_room_is_listed() -> None:
    there = {room(module) for module in FILES} - {""}
    assert there == set(ROOMS)


def test_a_package_lists_its_files() -> None:
    for package in SOURCE.rglob("__init__.py"):
        listed = ast.get_docstring(ast.parse(package.read_text())) or ""
        folders = {inner.parent for inner in package.parent.glob("*/__init__.py")}
        files = {file for file in package.parent.glob("*.py") if not file.stem.startswith("__")}
        for each in files | folders:
            assert each.stem in listed, f"{package.relative_to(SOURCE)} does not list {each.name}"


def test_files_stay_small() -> None:
    for file in SOURCE.rglob("*.py"):
        lines = len(file.read_text().splitlines())
        assert lines <= 400, f"{file.relative_to(SOURCE)} has {lines} lines"


def folded(node: ast.AST) -> float | None:
    """What an expression of numbers alone comes to: 2.0**30, 1 << 30, 1024 * 1024 * 1024."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int | float) else None
    if not isinstance(node, ast.BinOp) or type(node.op) not in FOLDED:
        return None
    left, right = folded(node.left), folded(node.right)
    if left is None or right is None:
        return None
    with suppress(TypeError, ValueError, ArithmeticError):
        value: float = FOLDED[type(node.op)](left, right)
        return value
    return None


def factors(node: ast.AST) -> list[ast.AST]:
    """a, b and c of the product a * b * c; any other expression alone."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors(node.left), *factors(node.right)]
    return [node]


def scales(node: ast.AST) -> set[float]:
    """The sizes of units that an expression holds.

    4 * 1024 * 1024 * 1024 holds 2**30, though no part of its tree comes to that.
    """
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < 1e9:
        return set()  # 1_000_000 requests: a count that is read at a glance
    parts = [folded(part) for part in factors(node)]
    found = set()
    for first in range(len(parts)):
        product: float = 1  # whole while all factors are: 10**400 is no float
        for value in parts[first:]:
            if value is None:
                break
            product *= value
            found.add(product)
    return found & SCALES


@pytest.mark.parametrize(
    "text",
    ["1e6", "10**6", "1_000_000_000", "10**12", "1 << 30", "2.0**30", "2.0**40", "1024**3",
     "8 * 2**30", "1024 * 1024 * 1024", "4 * 1024 * 1024 * 1024", "n * 1024 * 1024 * 1024",
     "rate / 10**12"],
)  # fmt: skip
def test_the_size_of_a_unit_is_seen_however_it_is_written(text: str) -> None:
    assert any(scales(node) for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("text", ["1_000_000", "2**31", "2**44", "4 * 1024 * 1024", "1 << n"])
def test_other_numbers_are_no_units(text: str) -> None:
    assert not any(scales(node) for node in ast.walk(ast.parse(text)))


def test_only_units_holds_powers_of_ten() -> None:
    """1e12 and 2**30 live in units.py and nowhere else.

    measure/ is left aside: it runs on a bare node, to which units.py is not taken along.
    """
    found = [
        f"{file.relative_to(SOURCE)}:{node.lineno} holds {ast.unparse(node)}"
        for module, file in FILES.items()
        if room(module) not in ("units", "measure")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant | ast.BinOp) and scales(node)
    ]
    assert not found, "import the name from trueflops.units:\n" + "\n".join(found)


def test_public_names_are_pinned() -> None:
    assert trueflops.__all__ == [
        "Clock",
        "Cluster",
        "Model",
        "Plan",
        "Pool",
        "Pools",
        "Profile",
        "Server",
        "Serving",
        "Trainer",
        "Training",
        "TrueflopsError",
        "accelerator",
        "check_plan",
        "cluster",
        "compare",
        "infer",
        "legal_plans",
        "price",
        "profile_of",
        "read_model",
        "search_plans",
        "search_serving",
        "train",
        "training_bill",
        "whole_bill",
    ]
    for name in trueflops.__all__:
        assert getattr(trueflops, name)


def test_base_install_needs_no_torch_and_help_no_numpy() -> None:
    check = (
        "import sys; sys.modules.update(torch=None, transformers=None, matplotlib=None)\n"
        "from trueflops.cli import main\n"
        "assert main(['--help']) == 0\n"
        "assert 'numpy' not in sys.modules and 'rich' not in sys.modules\n"
        "assert main(['train', 'Llama-3.1-8B', '--on', '8xH100', '--json']) == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
