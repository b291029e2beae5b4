"""No input crashes it: spoilt inputs in, counts by class and exit code out.

python benchmarks/fuzz.py --classes all --inputs 100000 --seed 1
python benchmarks/fuzz.py --classes traces,profiles --seconds 60
python benchmarks/fuzz.py --again fuzz-failures/traces-3f2a.json
Every input runs in this process through the command line's own entry. An exit other than 0, 1 or
2, an answer that is not finite or outside its interval, control characters, a hang and memory
beyond 2 GiB are failures; the first input of each kind is saved and can be run again.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from fuzz_checks import wrong_with
from fuzz_inputs import CLASSES, Case
from trueflops.cli import main as command_line

LONGEST: Final = 10.0  # seconds of the processor for one input: a busy machine takes longer
ASLEEP: Final = 300.0  # seconds after which it waits for something that never comes
LARGEST: Final = 2 * 2**30  # bytes beyond what the process has when it begins
HOME: Final = "fuzz-failures"
_MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # no disk in between


class Hang(BaseException):
    """One input took too long."""


@dataclass(frozen=True)
class Result:
    """What one input gave; `wrong` is empty if all is well, `place` tells failures apart."""

    code: int
    wrong: str
    place: str = ""


@dataclass
class Tally:
    """All inputs of one class."""

    codes: Counter[int] = field(default_factory=Counter)
    failures: dict[str, tuple[Case, Result]] = field(default_factory=dict)
    failed: int = 0
    seconds: float = 0.0


def run(case: Case, folder: str) -> Result:
    """Run one input, its files in an empty folder."""
    for name, raw in case.files.items():
        (Path(folder) / name).write_bytes(raw)
    words = [word.replace("@", folder, 1) if "@" in word else word for word in case.words]
    code, out, err, place = _ran(words, folder)
    wrong = wrong_with(words, code, out, err) or ("hang" if place == "hang" else "")
    if code == 101 and not place:
        _, _, err, place = _ran([*words, "-v"], folder)
        place = place or _raised_at(err)
    for entry in os.scandir(folder):
        Path(entry.path).unlink()
    return Result(code, wrong.replace(folder, "@"), place or wrong)


def _ran(words: list[str], folder: str) -> tuple[int, str, str, str]:
    out, err = io.StringIO(), io.StringIO()
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    signal.setitimer(signal.ITIMER_REAL, ASLEEP)
    try:
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = command_line(words)
        return code, out.getvalue(), err.getvalue(), ""
    except Hang:
        return 101, "", "", "hang"
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{type(error).__name__} escapes, {frames[-1].filename}:{frames[-1].lineno}"
        return 101, "", "".join(traceback.format_exception(error)), place
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _raised_at(err: str) -> str:
    """The last line of ours in a traceback, and what was raised there."""
    lines = [line.strip() for line in err.splitlines()]
    ours = [line for line in lines if line.startswith("File ") and "trueflops" in line]
    said = [line for line in lines if line.startswith("trueflops: a bug of ours: ")]
    what = said[-1].removeprefix("trueflops: a bug of ours: ").split(":")[0] if said else ""
    return f"{what} at {ours[-1].rpartition('trueflops/')[2]}" if ours else what


def fuzz(name: str, seed: int, inputs: int, seconds: float = float("inf"), first: int = 0) -> Tally:
    """Run so many inputs of a class, or as many as the seconds allow; a seed repeats them."""
    tally, begun = Tally(), time.monotonic()
    with _limits(), tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        for number in range(first, first + inputs):
            if time.monotonic() - begun > seconds:
                break
            case = CLASSES[name](random.Random(f"{name} {seed} {number}"))
            result = run(case, folder)
            tally.codes[result.code] += 1
            if result.wrong:
                tally.failed += 1
                tally.failures.setdefault(result.place, (case, result))
    tally.seconds = time.monotonic() - begun
    return tally


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """A timer that raises, and an end to memory."""

    def ring(*_: Any) -> None:
        raise Hang

    bells = (signal.SIGALRM, signal.SIGPROF)
    before = [signal.signal(bell, ring) for bell in bells]
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + LARGEST, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for bell, handler in zip(bells, before, strict=True):
            signal.signal(bell, handler)


# ── failures as files ────────────────────────────────────────────────────────────────────────────


def save(case: Case, name: str, place: str, into: Path) -> Path:
    """Keep an input so that it can be run again."""
    into.mkdir(exist_ok=True)
    path = into / f"{name}-{crc32(place.encode()):08x}.json"
    files = {key: base64.b64encode(raw).decode() for key, raw in case.files.items()}
    path.write_text(json.dumps({"words": case.words, "files": files, "place": place}))
    return path


def load(path: Path) -> Case:
    """An input that was kept."""
    raw = json.loads(path.read_text())
    return Case(raw["words"], {k: base64.b64decode(v) for k, v in raw["files"].items()})


def main() -> int:
    """Run the classes asked for and print the counts."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    asked.add_argument("--classes", default="all", help=f"of {', '.join(CLASSES)}, by commas")
    asked.add_argument("--inputs", type=int, default=6000, help="in all (default 6000)")
    asked.add_argument("--seconds", type=float, default=float("inf"), help="at most, in all")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--first", type=int, default=0, help="number of the first input of a class")
    asked.add_argument("--into", type=Path, default=Path(HOME), help="where failures are kept")
    asked.add_argument("--again", type=Path, help="run one kept input, with its traceback")
    options = asked.parse_args()
    if options.again:
        case = load(options.again)
        with _limits(), tempfile.TemporaryDirectory() as folder:
            result = run(case, folder)
        files = (f"{k}:\n{v[:4000].decode(errors='replace')}" for k, v in case.files.items())
        print(case.words, *files, result, sep="\n")
        return int(bool(result.wrong))
    names = list(CLASSES) if options.classes == "all" else options.classes.split(",")
    failed = 0
    print(f"{'class':10}{'inputs':>8}{'exit 0':>8}{'exit 1':>8}{'exit 2':>8}{'101':>6}{'wrong':>7}"
          f"{'ms each':>9}")  # fmt: skip
    for name in names:
        share = options.inputs // len(names)
        tally = fuzz(name, options.seed, share, options.seconds / len(names), options.first)
        count = sum(tally.codes.values())
        codes = "".join(f"{tally.codes[code]:8,}" for code in (0, 1, 2))
        each = 1e3 * tally.seconds / max(count, 1)
        print(
            f"{name:10}{count:8,}{codes}{tally.codes[101]:6,}{tally.failed:7,}{each:9.1f}",
            flush=True,
        )
        for place, (case, result) in tally.failures.items():
            path = save(case, name, place, options.into)
            print(f"   {result.wrong[:60]} | {place[:110]} | {path}", flush=True)
        failed += tally.failed
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"most memory {peak:.2f} GiB; {failed:,} failures")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
