"""What a program without data cannot do, said with the line of the user's code."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

from trueflops.errors import BadInput, shorten

_SPEC: Final = importlib.util.find_spec("torch")
_TORCH: Final = Path(_SPEC.origin).parent if _SPEC and _SPEC.origin else Path("torch")
BETWEEN: Final = (str(Path(__file__).parent), str(_TORCH / "_dynamo"), str(_TORCH / "_compile"))
"""Frames that stand between an op and who called it: ours, and torch's around a mode."""
_PACKAGE: Final = str(Path(__file__).parents[1])
_LIBRARIES: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_QUOTED: Final = 80  # characters of a line


class CannotCapture(BadInput):
    """The program needs numbers that a capture does not have."""


def data_dependent(op: str) -> CannotCapture:
    """An op whose result has a shape that only the data knows."""
    short = op.removeprefix("aten.").partition(".")[0]
    advice = _ADVICE.get(short, "write it so that shapes follow from shapes")
    named = _NAMES.get(short, short)
    return CannotCapture(f"{named} needs the values of a tensor{where()}: {advice}")


def unknown_value(what: str, instead: str = "") -> CannotCapture:
    """A number that was taken from a tensor decides something."""
    advice = instead or (
        "decide it by a number of the program's own, or leave the branch out of the step"
    )
    return CannotCapture(
        f"{what} needs the value of a tensor{where()}: a captured program has shapes, not values; "
        f"{advice}"
    )


def no_meta_kernel(op: str, error: Exception) -> CannotCapture:
    """An op of which torch cannot say what shape it makes."""
    first = str(error).strip().splitlines()[0] if str(error) else "no shape function"
    return CannotCapture(
        f"{op.removesuffix('.default')} has no rule for the shape of its result{where()}: register "
        f"one with torch.library.register_fake ({shorten(first, 120)})"
    )


def sparse_tensor(layout: str) -> CannotCapture:
    """A tensor whose size only the data knows."""
    return CannotCapture(
        f"a tensor of layout {layout}{where()}: how much it holds depends on its values; use dense "
        "ones (nn.Embedding without sparse=True)"
    )


def refused(what: str, instead: str) -> Callable[..., Any]:
    """A function that no capture follows, and what to write instead."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise CannotCapture(f"{what}{where()} is not followed by a capture: {instead}")

    return refuse


def lacks_shapes(error: Exception) -> bool:
    """Whether an op failed because nobody has said what shape it makes."""
    return isinstance(error, NotImplementedError) or "no fake impl" in str(error)


def priced_by_bytes(op: str) -> str:
    """The warning about an op of somebody's own library, or with an algorithm of its own."""
    short = op.removesuffix(".default")
    return f"{short} is priced by the bytes that it reads and writes: no more is known of it"


_MASKED: Final = "use torch.where(condition, a, b), or multiply by the mask"
_KEPT: Final = "keep the number in a tensor, or use one of the program's own"
_ADVICE: Final = {
    "nonzero": _MASKED,
    "argwhere": _MASKED,
    "masked_select": _MASKED,
    "index": _MASKED,
    "_unique2": "take the set of values before the step",
    "unique_dim": "take the set of values before the step",
    "unique_consecutive": "take the set of values before the step",
    "_local_scalar_dense": _KEPT,
    "item": _KEPT,
    "equal": "compare with == and keep the answer in a tensor",
    "allclose": "compare with torch.isclose and keep the answer in a tensor",
    "bincount": "use torch.zeros(n).scatter_add_ with a fixed n",
    "repeat_interleave": "pass output_size=",
}
_NAMES: Final = {
    "index": "a boolean index",
    "_unique2": "unique",
    "_local_scalar_dense": "reading a number",
}


# ── where ────────────────────────────────────────────────────────────────────────────────────────


def where() -> str:
    """The user's line, and the library's if the op was called there: ' at train.py:12 (…)'."""
    library = ""
    for frame in _frames():
        path, number = frame.f_code.co_filename, frame.f_lineno
        if is_users(path):
            said = f" at {Path(path).name}:{number}" + _quoted(linecache.getline(path, number))
            return said + (f", in {library}" if library else "")
        if not library and "/torch/" not in path:
            library = f"{'/'.join(Path(path).parts[-2:])}:{number}"
    return f" in {library}" if library else ""


def place_of(error: BaseException) -> str:
    """Of an exception: the last of the user's own lines that it passed through."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {Path(error.filename).name}:{error.lineno}" + _quoted(error.text or "")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    if not frames:
        return ""
    last = frames[-1]
    return f" at {Path(last.filename).name}:{last.lineno}" + _quoted(last.line or "")


def is_users(path: str) -> bool:
    """Whether a file is neither ours, nor Python's, nor an installed library's."""
    return not path.startswith((_PACKAGE, "<", *_LIBRARIES)) and "-packages" not in path


def asked_by_optimizer() -> bool:
    """Whether torch's own optimizers ask: their numbers change what is computed, not how much."""
    frame = next(_frames(), None)
    return frame is not None and "/torch/optim/" in frame.f_code.co_filename


def decides() -> bool:
    """Whether the call that is under way stands in a condition or a comparison."""
    frame = next((f for f in _frames() if "/torch/" not in f.f_code.co_filename), None)
    if frame is None:
        return False
    return _span(frame) in _deciding(frame.f_code.co_filename)


def _frames() -> Iterator[FrameType]:
    """Those that called us, innermost first, without our own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((*BETWEEN, "<")):
            yield frame
        frame = frame.f_back


def _quoted(line: str) -> str:
    code = shorten(line.strip(), _QUOTED)
    return f" ({code})" if code else ""


def passes() -> bool | None:
    """What is under way as a condition must be for a check to pass that else only raises.

    None: it is no such check, `if torch.isnan(loss): raise …` or `assert mask.all()`.
    """
    frame = next(_frames(), None)
    if frame is None:
        return None
    checks = _checks(frame.f_code.co_filename)
    # A jump stands where its statement does; what it looks at was made just before.
    return checks.get(_span(frame), checks.get(_span(frame, before=1)))


Span = tuple[int, int, int, int]  # line, column, last line, last column


def _span(frame: FrameType, before: int = 0) -> Span:
    at = frame.f_lasti // 2 - before
    first, last, start, end = list(frame.f_code.co_positions())[at]
    return first or 0, start or 0, last or 0, end or 0


def _span_of(node: ast.stmt | ast.expr) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


@cache
def _tree(path: str) -> list[tuple[ast.AST, ast.AST]]:
    """Every node of a file with the one above it."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return []
    return [(child, node) for node in ast.walk(tree) for child in ast.iter_child_nodes(node)]


@cache
def _deciding(path: str) -> set[Span]:
    """Where in a file calls stand whose result decides something."""
    above = dict(_tree(path))
    found = set()
    for call in above:
        node: ast.AST = call
        while isinstance(call, ast.Call) and node in above and not isinstance(node, ast.stmt):
            child, node = node, above[node]
            compared = isinstance(node, (ast.Compare, ast.BoolOp))
            if compared or child is getattr(node, "test", None):
                found.add(_span_of(call))
    return found


@cache
def _checks(path: str) -> dict[Span, bool]:
    """Parts of conditions that raise or do nothing: where they are, and what lets them pass."""
    found: dict[Span, bool] = {}
    for node, _ in _tree(path):
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and _ends(node.body[-1])):
            found.update(_leaves(node.test, isinstance(node, ast.Assert)))
    return found


def _ends(node: ast.stmt) -> bool:
    """Whether a statement raises, or leaves the program."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in ("sys.exit", "exit", "quit", "os._exit")
    return isinstance(node, ast.Raise)


def _leaves(test: ast.expr, wanted: bool) -> Iterator[tuple[Span, bool]]:
    """What each part of a condition should be for the whole to be as wanted."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _leaves(test.operand, not wanted)
    elif isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _leaves(part, wanted)
    else:
        yield _span_of(test), wanted
