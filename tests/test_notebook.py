"""The notebook: its cells run, one after another, and print what it shows."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

TOUR = Path(__file__).parent.parent / "examples" / "tour.ipynb"


def code_cells() -> list[dict[str, Any]]:
    return [cell for cell in json.loads(TOUR.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any]) -> str:
    """What the notebook says that a cell printed."""
    return "".join(
        "".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream"
    )


def test_the_cells_print_what_is_shown() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="plots need the extra `plot`")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names: dict[str, Any] = {}
    drawn = 0
    for cell in code_cells():
        # A line such as %matplotlib is the notebook's, not Python's.
        source = "".join(line for line in cell["source"] if not line.startswith("%"))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(source, str(TOUR), "exec"), names)
        assert said.getvalue() == shown(cell)
        pictures = [each for each in cell["outputs"] if "image/png" in each.get("data", {})]
        assert len(pyplot.get_fignums()) == len(pictures)
        drawn += len(pictures)
        pyplot.close("all")
    assert drawn == 3


def test_it_is_small_and_was_run_in_order() -> None:
    assert TOUR.stat().st_size < 150_000
    counts = [cell["execution_count"] for cell in code_cells()]
    assert counts == list(range(1, len(counts) + 1))
    assert not any(
        output["output_type"] == "error" for c in code_cells() for output in c["outputs"]
    )
