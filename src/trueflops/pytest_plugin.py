"""Performance tests without an accelerator: the fixture `trueflops_guard` for pytest.

    def test_step(trueflops_guard):
        trueflops_guard(build, on="H100")

`build` builds a program and returns its step, as for `trueflops capture`. The first run writes the
step down under baselines/ beside the test; later runs fail where time or memory grew.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # pytest loads this file in every run: what it needs is imported when it is used
    from trueflops.predict.captured.guarded import Comparison

Build = Callable[[], Callable[[], Any]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Whether baselines are written."""
    group = parser.getgroup("trueflops", "performance tests (trueflops_guard)")
    group.addoption(
        "--trueflops-update", action="store_true", help="accept all steps as they are now"
    )
    group.addoption(
        "--trueflops-no-write", action="store_true", help="a missing baseline fails, as in CI"
    )


@pytest.fixture
def trueflops_guard(request: pytest.FixtureRequest) -> Guard:
    """A function that fails the test where a program's step grew."""
    return Guard(request)


class Guard:
    """Holds steps against the baselines of one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._test = request.node
        self._update = bool(request.config.getoption("--trueflops-update"))
        self._may_write = self._update or not request.config.getoption("--trueflops-no-write")

    def __call__(
        self,
        build: Build,
        on: str,
        *,
        rank: int = 0,
        tolerance: float = 0.02,
        baseline: Path | str | None = None,
        assume: Sequence[str] = (),
    ) -> Comparison | None:
        """Capture the step of `build` as a rank of `on`; None where its baseline was written."""
        __tracebackhide__ = True
        from trueflops.errors import TrueflopsError

        try:
            found = self._compared(build, on, rank, tolerance, baseline, assume)
        except TrueflopsError as error:
            pytest.fail(f"trueflops: {error} [{error.code}]", pytrace=False)
        if found is not None and not found[1].passed:
            pytest.fail(_told(*found), pytrace=False)
        return None if found is None else found[1]

    def _compared(
        self,
        build: Build,
        on: str,
        rank: int,
        tolerance: float,
        baseline: Path | str | None,
        assume: Sequence[str],
    ) -> tuple[Path, Comparison] | None:
        from trueflops.capture.assumed import Assumptions, assuming
        from trueflops.catalog import cluster
        from trueflops.clock import Clock
        from trueflops.errors import BadInput
        from trueflops.predict.captured.guarded import baseline_of, check_question, compare
        from trueflops.predict.captured.program import predict_program
        from trueflops.profile import profile_of
        from trueflops.records.baseline import accepted, write_baseline

        where, given = cluster(on), Assumptions.of(assume)
        if not 0 <= rank < where.count:
            raise BadInput(f"rank {rank}: {on} has the ranks 0 to {where.count - 1}")
        path = self._path(where.name) if baseline is None else Path(baseline)
        if baseline is None and self._may_write:
            path.parent.mkdir(exist_ok=True)
        before = accepted(path, update=self._update, may_write=self._may_write)
        try:
            from trueflops.capture.pretend.machine import Machine
            from trueflops.capture.program import capture
        except ModuleNotFoundError as error:
            needed = f"trueflops_guard needs {error.name}: pip install 'trueflops[capture]'"
            raise BadInput(needed) from None
        with assuming(given):
            recording = capture(
                lambda: build,
                Machine.like(where.accelerator, where.per_node),
                world=where.count,
                rank=rank,
                per_node=where.per_node,
            )
        clock = Clock(where, profile_of(where.accelerator, "plain"))
        program = f"{self._test.path.name}:{getattr(build, '__name__', 'program')}"
        now = baseline_of(predict_program(recording, clock), program, assumed=assume)
        if before is None:
            write_baseline(path, now)
            if not self._update:
                warnings.warn(f"wrote the baseline {path}: commit it", stacklevel=3)
            return None
        check_question(before, now, path)
        return path, compare(before, now, tolerance)

    def _path(self, on: str) -> Path:
        """Beside the test, by its name and chip."""
        from trueflops.records.baseline import plain_name

        test: Path = self._test.path
        name = ".".join((test.stem, plain_name(self._test.name), plain_name(on)))
        return test.parent / "baselines" / f"{name}.json"


def _told(path: Path, found: Comparison) -> str:
    """What the command would print."""
    from trueflops.report.guard import show_comparison
    from trueflops.report.tables import answers_on

    said = io.StringIO()
    with answers_on(said):
        show_comparison(path, found)
    return said.getvalue()
