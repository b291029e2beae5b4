"""What every test stands on: one thread a process, and luck that is the same every time.

`make test` runs the tests on several processes (pytest-xdist). Each takes the next test that is
left, so tests may run in any order and side by side. To add one:

- What is expensive and shared (a measurement, a verified table) is a fixture of scope "module" or
  a @cache, and its module stands in TOGETHER, so that one process makes it, once. All other
  modules are spread test by test.
- No test asks how long something took: the machine may be busy. tests/made_up_cpu.py is a CPU
  whose seconds are counted and not waited for; what needs a real and quiet machine is a program in
  benchmarks/.
- A command is asked in this process (`trueflops.cli.main`; the fixture `ask` where its JSON is
  wanted). A process of its own is for what only it can show: signals, a bare folder, ranks. It is
  given many minutes before it is taken for hung.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any, Final, Protocol

import pytest

TOGETHER: Final = (
    "test_accuracy.py", "test_docs.py", "test_made_up_cpu.py", "test_measure_collectives.py",
    "test_web.py", "test_web_api.py", "test_web_safety.py",
)  # fmt: skip
"""Modules whose tests share what takes seconds to make."""

# Before torch is loaded, and for all processes that tests start. Tensors here are small: more
# threads would only fight with those of the other processes, and spin while they wait.
for library in ("OMP", "MKL", "OPENBLAS"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
os.environ["TRUEFLOPS_LANG"] = "en"  # whatever the locale of who runs the tests

from hypothesis import HealthCheck, settings  # noqa: E402

# Neither a deadline nor the time that drawing takes: a busy machine would fail both. Examples are
# the same every time; `pytest -n 0 --hypothesis-profile search` looks for new ones.
slow = [HealthCheck.too_slow]
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=slow)
settings.register_profile("search", deadline=None, max_examples=1000, suppress_health_check=slow)
settings.load_profile("same")


class Ask(Protocol):
    """What the fixture `ask` is."""

    def __call__(self, *words: str, code: int = 0) -> dict[str, Any]: ...


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Ask a command with --json: what it answers, if it exits with this code."""
    from trueflops.cli import main  # not above: a fault in it would fail all tests, not its own

    def asked(*words: str, code: int = 0) -> dict[str, Any]:
        found = main([*words, "--json"])
        said = capsys.readouterr()
        assert found == code, said.err
        answer: dict[str, Any] = json.loads(said.out)
        assert answer["schema_version"] == 1
        return answer

    return asked


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests one by one to whichever process is free; modules of TOGETHER whole, and first.

    That is what --dist loadgroup is for, whose marks xdist 3.8 loses under pytest 9.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Spread(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return module if module.rpartition("/")[2] in TOGETHER else nodeid

    return Spread(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name once, at the end, the tables that claims were skipped for: -q hides every reason."""
    skipped = [r for r in terminalreporter.stats.get("skipped", ()) if "test_accuracy" in r.nodeid]
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, tests in reasons.items():
        terminalreporter.write_line(f"{tests} tests of claims skipped; {reason}")
