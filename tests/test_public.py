"""The public names: found by dir(), each with a docstring whose example runs."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest

import trueflops


def examples(name: str) -> doctest.DocTest:
    text = (trueflops if name == "trueflops" else getattr(trueflops, name)).__doc__ or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, name, 0)


def test_dir_shows_what_there_is() -> None:
    assert dir(trueflops) == sorted([*trueflops.__all__, "__version__"])


@pytest.mark.parametrize("name", ["trueflops", *trueflops.__all__])
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    found = examples(name)
    assert found.examples
    assert not any(doctest.SKIP in example.options for example in found.examples)
    said: list[str] = []
    done = doctest.DocTestRunner(verbose=False).run(found, out=said.append)
    assert done.failed == 0, "".join(said)


def test_importing_loads_nothing_heavy() -> None:
    check = (
        "import sys, trueflops; dir(trueflops)\n"
        "assert not {'numpy', 'rich', 'argparse', 'tomllib'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
