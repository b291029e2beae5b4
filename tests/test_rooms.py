"""The house: rooms import only rooms above them, files stay small, the base install stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import trueflops

SOURCE = Path(trueflops.__file__).parent
ROOMS = [
    "measure",  # imports nothing of the package: its folder alone runs on a bare node
    "dtypes",
    "errors",
    "files",
    "units",
    "sizes",
    "catalog",
    "model",
    "workload",
    "plan",
    "graph",
    "capture",
    "profile",
    "clock",
    "predict",
    "search",
    "interop",
    "verify",
    "calibrate",
    "report",
    "cli",
    "__main__",
]


def imports(file: Path) -> set[str]:
    """The rooms of trueflops that a file imports when it is loaded."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.startswith("trueflops.")
        ):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "trueflops":
            found |= {alias.name for alias in node.names if alias.name in ROOMS}
    return found


def room(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_a_room_imports_only_rooms_above_it() -> None:
    for file in SOURCE.rglob("*.py"):
        if room(file) == "__init__":
            continue
        here = ROOMS.index(room(file))
        for other in imports(file):
            below = ROOMS.index(other) > here
            assert not below, f"{file.relative_to(SOURCE)} imports {other}, which is below it"


def test_every_room_is_listed() -> None:
    there = {room(f) for f in SOURCE.rglob("*.py")} - {"__init__"}
    assert there == set(ROOMS)


def test_files_stay_small() -> None:
    for file in SOURCE.rglob("*.py"):
        lines = len(file.read_text().splitlines())
        assert lines <= 400, f"{file.relative_to(SOURCE)} has {lines} lines"


def test_only_units_holds_powers_of_ten() -> None:
    """1e12 and 2**30 live in units.py and nowhere else."""
    for file in SOURCE.rglob("*.py"):
        if file.name == "units.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, float):
                assert node.value not in (1e6, 1e9, 1e12, 1e15, 2.0**30, 2.0**40), (
                    f"{file.relative_to(SOURCE)}:{node.lineno} holds {node.value:g}"
                )


def test_public_names_are_pinned() -> None:
    assert trueflops.__all__ == [
        "Clock",
        "Cluster",
        "Model",
        "Plan",
        "Profile",
        "Server",
        "Serving",
        "Trainer",
        "Training",
        "TrueflopsError",
        "accelerator",
        "check_plan",
        "cluster",
        "enumerate_plans",
        "price",
        "profile_of",
        "read_model",
        "search_plans",
        "search_serving",
        "training_bill",
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
