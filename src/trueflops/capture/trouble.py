"""What a program without data cannot do, said with the line of the user's code."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType

from trueflops.errors import BadInput

_HERE = str(Path(__file__).parent)
_STDLIB = sysconfig.get_path("stdlib")


class CannotCapture(BadInput):
    """The program needs numbers that a capture does not have."""


def data_dependent(op: str) -> CannotCapture:
    """An op whose result has a shape that only the data knows."""
    short = op.removeprefix("aten.").partition(".")[0]
    advice = _ADVICE.get(short, "write it so that shapes follow from shapes")
    return CannotCapture(f"{short} needs the values of a tensor{where()}: {advice}")


def unknown_value(what: str) -> CannotCapture:
    """A number that was taken from a tensor decides something."""
    return CannotCapture(
        f"{what} needs the value of a tensor{where()}: a captured program has shapes, not values; "
        "decide it by a number of the program's own, or leave the branch out of the step"
    )


def no_meta_kernel(op: str, error: Exception) -> CannotCapture:
    """An op of which torch cannot say what shape it makes."""
    first = str(error).strip().splitlines()[0] if str(error) else "no shape function"
    return CannotCapture(
        f"{op} has no rule for the shape of its result{where()}: register one with "
        f"torch.library.register_fake ({first[:120]})"
    )


_ADVICE = {
    "nonzero": "use torch.where(condition, a, b), or mask by multiplication",
    "masked_select": "use torch.where or multiply by the mask",
    "index": "a boolean index selects by value; use torch.where or multiply by the mask",
    "unique": "take the set of values before the step",
    "_local_scalar_dense": "keep the number in a tensor, or use one of the program's own",
    "item": "keep the number in a tensor, or use one of the program's own",
    "bincount": "use torch.zeros(n).scatter_add_ with a fixed n",
    "repeat_interleave": "pass output_size=",
}


def where() -> str:
    """The user's line, and the library's if the op was called there: ' at train.py:12 (…)'."""
    frame: FrameType | None = sys._getframe(1)
    library = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((_HERE, "<")):
            line = f"{Path(path).name}:{frame.f_lineno}"
            if _is_users(path):
                code = _line(path, frame.f_lineno)
                said = f" at {line}" + (f" ({code})" if code else "")
                return said + (f", in {library}" if library else "")
            if not library and "/torch/" not in path:
                library = f"{'/'.join(Path(path).parts[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
    return f" in {library}" if library else ""


def place_of(error: BaseException) -> str:
    """Of an exception: the last of the user's own lines that it passed through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    if not frames:
        return ""
    last = frames[-1]
    return f" at {Path(last.filename).name}:{last.lineno} ({(last.line or '').strip()[:80]})"


def _is_users(path: str) -> bool:
    return not (
        "site-packages" in path
        or path.startswith((_HERE, _STDLIB, "<"))
        or "/trueflops/" in path.replace("\\", "/")
    )


def _line(path: str, number: int) -> str:
    lines = traceback.linecache.getline(path, number)  # type: ignore[attr-defined]
    return lines.strip()[:80]
