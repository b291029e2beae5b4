"""Errors for what a program without data cannot do, each with the line of the user's code."""

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
from trueflops.language import mark, say

_SPEC: Final = importlib.util.find_spec("torch")
_TORCH: Final = Path(_SPEC.origin).parent if _SPEC and _SPEC.origin else Path("torch")
BETWEEN: Final = (str(Path(__file__).parent), str(_TORCH / "_dynamo"), str(_TORCH / "_compile"))
"""Files whose frames lie between an op and its caller: ours, and torch's around a mode."""
_PACKAGE: Final = str(Path(__file__).parents[1])
_LIBRARIES: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_QUOTED: Final = 80  # characters of a line


class CannotCapture(BadInput):
    """The program needs numbers that a capture does not have."""


def data_dependent(op: str) -> CannotCapture:
    """An op whose output shape depends on the data."""
    short = op.removeprefix("aten.").partition(".")[0]
    return CannotCapture(
        say(
            "{named} needs the values of a tensor{at}: {advice}{otherwise}",
            named=_NAMES.get(short, short),
            at=where(),
            advice=_ADVICE.get(short, mark("write it so that shapes follow from shapes")),
            otherwise=_or_give("COUNT"),
        )
    )


def unknown_value(what: str, instead: str = "", give: str = "") -> CannotCapture:
    """The program branches on a value that it read from a tensor."""
    return CannotCapture(
        say(
            "{what} needs the value of a tensor{at}: a captured program has shapes, not values; "
            "{advice}{otherwise}",
            what=what,
            at=where(),
            advice=instead
            or mark(
                "decide it by a number of the program's own, or leave the branch out of the step"
            ),
            otherwise=_or_give(give),
        )
    )


def _or_give(value: str) -> str:
    """The flag that gives the value, where one can be given."""
    here = lines()
    if not (value and here):
        return ""
    return say(", or say what it is: --assume {line}={value}", line=here[0], value=value)


def no_meta_kernel(op: str, error: Exception) -> CannotCapture:
    """An op without a meta kernel: torch cannot tell the shape of its result."""
    first = str(error).strip().splitlines()[0] if str(error) else say("no shape function")
    return CannotCapture(
        say(
            "{op} has no rule for the shape of its result{at}: register one with "
            "torch.library.register_fake ({error})",
            op=op.removesuffix(".default"),
            at=where(),
            error=shorten(first, 120),
        )
    )


def sparse_tensor(layout: str) -> CannotCapture:
    """A sparse tensor: its size depends on the data."""
    return CannotCapture(
        say(
            "a tensor of layout {layout}{at}: how much it holds depends on its values; use dense "
            "ones (nn.Embedding without sparse=True)",
            layout=layout,
            at=where(),
        )
    )


def refused(what: str, instead: str) -> Callable[..., Any]:
    """A stand-in for a function that a capture does not support; calling it says what to use."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise CannotCapture(
            say(
                "{what}{at} is not followed by a capture: {instead}",
                what=what,
                at=where(),
                instead=instead,
            )
        )

    return refuse


def lacks_shapes(error: Exception) -> bool:
    """Whether an op failed because it has no meta kernel."""
    return isinstance(error, NotImplementedError) or "no fake impl" in str(error)


def priced_by_bytes(op: str) -> str:
    """The warning about an op that no rule lowers, such as one of a custom library."""
    short = op.removesuffix(".default")
    return say(
        "{op} is priced by the bytes that it reads and writes: no more is known of it", op=short
    )


def left_out(call: str) -> str:
    """The warning about a call that does nothing here."""
    return say("{call} is left out of the capture", call=call)


_ADVICE: Final = {
    "_unique2": mark("take the set of values before the step"),
    "unique_dim": mark("take the set of values before the step"),
    "unique_consecutive": mark("take the set of values before the step"),
    "allclose": mark("compare with torch.isclose and keep the answer in a tensor"),
    "bincount": mark("use torch.zeros(n).scatter_add_ with a fixed n"),
    "repeat_interleave": mark("pass output_size="),
}
_NAMES: Final = {
    "_unique2": "unique",
}


# ── where ────────────────────────────────────────────────────────────────────────────────────────


def where() -> str:
    """The user's line, and the library's if the op was called there: ' at train.py:12 (…)'."""
    library = ""
    for frame in _frames():
        path, number = frame.f_code.co_filename, frame.f_lineno
        if is_users(path):
            place = f"{Path(path).name}:{number}" + _quoted(linecache.getline(path, number))
            return say(" at {place}", place=place + _called_in(library))
        if not library and "/torch/" not in path:
            library = f"{'/'.join(Path(path).parts[-2:])}:{number}"
    return say(" in {library}", library=library) if library else ""


def _called_in(library: str) -> str:
    return say(", in {library}", library=library) if library else ""


def lines() -> list[str]:
    """The user's line and the library's, as --assume names them: train.py:12, utils.py:233."""
    users, libraries = "", ""
    for frame in _frames():
        path, number = frame.f_code.co_filename, frame.f_lineno
        at = f"{Path(path).name}:{number}"
        if is_users(path):
            users = at
            break
        if not libraries and "/torch/" not in path:
            libraries = at
    return [at for at in (users, libraries) if at]


def source() -> str:
    """The innermost of the user's own lines on the stack, 'train.py:12'; '' where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # asked for every op: no generator, and every file is judged once
        if is_users(frame.f_code.co_filename):
            return f"{_base_name(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@cache
def _base_name(path: str) -> str:
    return Path(path).name


def place_of(error: BaseException) -> str:
    """The innermost of the user's own lines in an exception's traceback."""
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{Path(error.filename).name}:{error.lineno}" + _quoted(error.text or "")
        return say(" at {place}", place=place)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    if not frames:
        return ""
    last = frames[-1]
    place = f"{Path(last.filename).name}:{last.lineno}" + _quoted(last.line or "")
    return say(" at {place}", place=place)


@cache
def is_users(path: str) -> bool:
    """Whether a file is neither ours, nor Python's, nor an installed library's."""
    return not path.startswith((_PACKAGE, "<", *_LIBRARIES)) and "-packages" not in path


def asked_by_optimizer() -> bool:
    """Whether one of torch's optimizers asks: its branches change values, not shapes."""
    frame = next(_frames(), None)
    return frame is not None and "/torch/optim/" in frame.f_code.co_filename


def decides() -> bool:
    """Whether the call being made is part of a condition or a comparison."""
    frame = next((f for f in _frames() if "/torch/" not in f.f_code.co_filename), None)
    if frame is None:
        return False
    return _span(frame) in _deciding(frame.f_code.co_filename)


def _frames() -> Iterator[FrameType]:
    """The frames of our callers, innermost first, without our own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((*BETWEEN, "<")):
            yield frame
        frame = frame.f_back


def _quoted(line: str) -> str:
    code = shorten(line.strip(), _QUOTED)
    return f" ({code})" if code else ""


def passes() -> bool | None:
    """The truth value that lets the sanity check being evaluated pass.

    A sanity check is a condition that only raises or exits, such as `assert mask.all()` (True) or
    `if torch.isnan(loss): raise …` (False). None: what is being evaluated is no such check.
    """
    frame = next(_frames(), None)
    if frame is None:
        return None
    checks = _checks(frame.f_code.co_filename)
    # A conditional jump has the position of its whole statement; the instruction before it has
    # the position of the value that it tests.
    return checks.get(_span(frame), checks.get(_span(frame, before=1)))


def asks_whether_unequal() -> bool:
    """Whether the sanity check being evaluated compares by !=."""
    frame = next(_frames(), None)
    return frame is not None and _span(frame) in _unequal(frame.f_code.co_filename)


Span = tuple[int, int, int, int]  # line, column, last line, last column


def _span(frame: FrameType, before: int = 0) -> Span:
    at = frame.f_lasti // 2 - before
    first, last, start, end = list(frame.f_code.co_positions())[at]
    return first or 0, start or 0, last or 0, end or 0


def _span_of(node: ast.stmt | ast.expr) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


@cache
def _tree(path: str) -> list[tuple[ast.AST, ast.AST]]:
    """Every syntax node of a file with its parent."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return []
    return [(child, node) for node in ast.walk(tree) for child in ast.iter_child_nodes(node)]


@cache
def _deciding(path: str) -> set[Span]:
    """The positions of a file's calls that are part of a condition or a comparison."""
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
def _unequal(path: str) -> set[Span]:
    """The positions of a file's comparisons by !=."""
    return {
        _span_of(node) for node, _ in _tree(path)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.NotEq)
    }  # fmt: skip


@cache
def _checks(path: str) -> dict[Span, bool]:
    """The operands of a file's sanity checks, by position, and the truth value that passes."""
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
    """The truth value that each operand of a condition needs for the condition to be `wanted`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _leaves(test.operand, not wanted)
    elif isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _leaves(part, wanted)
    else:
        yield _span_of(test), wanted
