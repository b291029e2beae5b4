"""What is known of values that are not known: their sign, and how many of them are not zero.

A norm is not negative, a gradient is taken to be finite, a one-hot row has a single one. Such facts
answer the questions of a gradient scaler or of a router without any data. They stand on storages:
a view has those of what it is a view of, and whatever is written there must share them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any, Final, NamedTuple

import torch

from trueflops.capture.pretend.fake_tensors import flat

_FACTS: Final = "_trueflops_facts"  # set on a storage


class Facts(NamedTuple):
    """Of all elements of a tensor."""

    positive: bool = False  # none is below zero
    share: float | None = None  # of elements that are not zero; None: not known
    ones: bool = False  # those that are not zero are one
    told: bool = False  # the share was assumed, and the answer says so

    @property
    def constant(self) -> bool | None:
        """What every element is, as a truth value; None where they differ or nobody knows."""
        return None if self.share not in (0.0, 1.0) else bool(self.share)


NOTHING: Final = Facts()
_Rule = Callable[[list[Facts], tuple[Any, ...]], Facts]


def facts_of(tensor: torch.Tensor, known: torch.Tensor | None) -> Facts:
    """The facts about a tensor, from its values where these are known."""
    if known is None:
        found: Facts = getattr(tensor.untyped_storage(), _FACTS, NOTHING)
        return found._replace(positive=True, ones=True) if tensor.dtype == torch.bool else found
    if known.is_complex() or not known.numel():
        return NOTHING
    share = float(known.count_nonzero()) / known.numel()
    return Facts(bool((known >= 0).all()), share, bool(((known == 0) | (known == 1)).all()))


def put_facts(tensor: torch.Tensor, facts: Facts) -> None:
    """Note what is known of a tensor that was written: of its storage, what all parts share."""
    storage = tensor.untyped_storage()
    old: Facts = getattr(storage, _FACTS, NOTHING)
    if facts == old:
        return
    if tensor.numel() * tensor.element_size() < storage.nbytes():
        same = facts.share == old.share
        facts = Facts(facts.positive and old.positive, facts.share if same else None,
                      facts.ones and old.ones)  # fmt: skip
    setattr(storage, _FACTS, facts)


def assume_share(tensor: torch.Tensor, share: float) -> None:
    """Take a share of a storage's elements to be other than zero, once and for all."""
    storage = tensor.untyped_storage()
    old: Facts = getattr(storage, _FACTS, NOTHING)
    setattr(storage, _FACTS, old._replace(share=share, told=True))


def derived(func: Any, args: tuple[Any, ...], look: Callable[[torch.Tensor], Facts]) -> Facts:
    """What follows for the results of an op; `look` gives the facts about one of its tensors."""
    name = func.__name__.partition(".")[0].rstrip("_")
    finite = if_finite(func.__name__, args)
    if finite is not None:
        return Facts(True, float(finite), True)
    filled = _FILLED.get(name)
    if filled is not None:
        return Facts(True, filled, True)
    rule = _RULES.get(name)
    given = [] if rule is None else [look(t) for t in flat(args)]
    return rule(given, args) if rule is not None and given else NOTHING


def collected(given: list[Facts], reduction: str) -> Facts:
    """What follows for the results of a collective whose ranks all hold tensors like this one."""
    if not given or (reduction == "sum" and not all(g.positive for g in given)):
        return NOTHING
    joined = _alike(given, ())
    return joined._replace(ones=joined.ones and reduction != "sum")


def if_finite(name: str, args: tuple[Any, ...]) -> bool | None:
    """The answer to a test for infinity or NaN: unknown values are taken to be finite."""
    if name in ("isnan.default", "isinf.default"):
        return False
    if name in ("eq.Tensor", "ne.Tensor") and args[0] is args[1]:  # NaN alone differs from itself
        return name == "eq.Tensor"
    if name in ("eq.Scalar", "ne.Scalar") and args[1] in (inf, -inf):
        return name == "ne.Scalar"
    return None


# ── rules, by the name of an op ──────────────────────────────────────────────────────────────────


def _positive(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    """Whatever it is given, the result is not below zero."""
    return Facts(True)


def _keeps_sign(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    """Sums, products and quotients of numbers that are not below zero."""
    numbers = [a for a in args if isinstance(a, (int, float))]
    signed = all(g.positive for g in given) and all(n >= 0 for n in numbers)
    zero = all(g.share == 0.0 for g in given) and not numbers
    return Facts(signed or zero, 0.0 if zero else None)


def _product(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    """A factor of zeros makes zeros."""
    if any(g.share == 0.0 for g in given):
        return Facts(True, 0.0, True)
    return _keeps_sign(given, args)


def _alike(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    """Copies, choices and joins of what is given: the facts that all of it shares."""
    first = given[0]
    share = first.share if all(g.share == first.share for g in given) else None
    return Facts(all(g.positive for g in given), share, all(g.ones for g in given))


def _source(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    """`a.copy_(b)` is b; `index` and `gather` take elements of their first argument."""
    return given[-1]


def _picked(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    return given[0]


def _filled(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    """`x.masked_fill(mask, number)`: x itself where the mask is nowhere true."""
    return given[0] if given[1].share == 0.0 else Facts(given[0].positive and _signed(args[2]))


def _signed(value: Any) -> bool:
    return isinstance(value, (int, float)) and value >= 0


def _chosen(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    """`where(condition, a, b)`, decided where the condition is the same everywhere."""
    if len(given) < 3:  # one of both is a number
        return NOTHING
    truth = given[0].constant
    return _alike(given[1:], args) if truth is None else given[1 if truth else 2]


def _power(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    even = isinstance(args[1], (int, float)) and args[1] % 2 == 0
    return Facts(even or given[0].positive)


def _clamped(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    above = isinstance(args[1], (int, float)) and args[1] >= 0
    return Facts(above or given[0].positive)


def _compared(truth: bool) -> _Rule:
    """A comparison with a number that is not above zero, decided by the sign."""

    def rule(given: list[Facts], args: tuple[Any, ...]) -> Facts:
        number = args[1]
        decided = isinstance(number, (int, float)) and number <= 0 and given[0].positive
        return Facts(True, float(truth) if decided else None, True)

    return rule


def _above(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    """`x > 0` and `x != 0` where nothing is below zero: as many are true as are not zero."""
    counted = args[1] == 0 if isinstance(args[1], (int, float)) else False
    return Facts(True, given[0].share if counted and given[0].positive else None, True)


def _truth(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    return Facts(True, None, True)


def _not(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    share = given[0].share if given[0].ones else None
    return Facts(given[0].ones, None if share is None else 1.0 - share, given[0].ones)


def _and(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    shares = [g.share for g in given]
    known = [s for s in shares if s is not None]
    share = 0.0 if 0.0 in known else prod(known) if len(known) == len(shares) > 1 else None
    ones = all(g.ones for g in given)
    return Facts(all(g.positive for g in given), share if ones else None, ones)


def _or(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    shares = [None if g.share is None else 1.0 - g.share for g in given]
    known = [s for s in shares if s is not None]
    none = 0.0 if 0.0 in known else prod(known) if len(known) == len(shares) > 1 else None
    ones = all(g.ones for g in given)
    return Facts(ones, 1.0 - none if ones and none is not None else None, ones)


def _extreme(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    """Any, all, largest and smallest: known where all elements are alike."""
    one = given[0]
    return Facts(one.positive, one.share if one.constant is not None else None, one.ones)


def _scattered(given: list[Facts], args: tuple[Any, ...]) -> Facts:
    """One-hot rows: a number put at distinct places of zeros."""
    target, dim, index, value = args[0], args[1], args[2], args[3]
    if given[0].share != 0.0 or not isinstance(value, (int, float)) or value == 0:
        return NOTHING
    if target.dim() == 0 or any(
        t != i for d, (t, i) in enumerate(zip(target.shape, index.shape, strict=True))
        if d != dim % target.dim()
    ):  # fmt: skip
        return NOTHING
    return Facts(value > 0, index.shape[dim] / target.shape[dim], value == 1)


_FILLED: Final = {
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero"), 0.0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), 1.0),
}
_RULES: Final[dict[str, _Rule]] = {
    **dict.fromkeys(
        ("abs", "sqrt", "rsqrt", "exp", "relu", "sigmoid", "softplus", "square", "norm",
         "linalg_vector_norm", "_foreach_norm", "_foreach_abs", "_foreach_sqrt", "var", "std",
         "_softmax", "count_nonzero"), _positive),
    **dict.fromkeys(
        ("add", "div", "sum", "mean", "cumsum", "prod", "reciprocal", "_foreach_add",
         "_foreach_mul", "_foreach_div", "dot"), _keeps_sign),
    "mul": _product,
    "masked_fill": _filled,
    "where": _chosen,
    **dict.fromkeys(
        ("clone", "_to_copy", "cat", "stack", "contiguous", "alias", "lift_fresh_copy", "repeat",
         "maximum", "flip", "roll", "detach_copy"), _alike),
    "copy": _source,
    **dict.fromkeys(("index", "gather", "index_select", "take_along_dim"), _picked),
    "pow": _power,
    **dict.fromkeys(("clamp", "clamp_min"), _clamped),
    "lt": _compared(truth=False),
    "ge": _compared(truth=True),
    **dict.fromkeys(("gt", "ne"), _above),
    **dict.fromkeys(("eq", "le", "isin"), _truth),
    **dict.fromkeys(("logical_not", "bitwise_not"), _not),
    **dict.fromkeys(("logical_and", "bitwise_and"), _and),
    **dict.fromkeys(("logical_or", "bitwise_or"), _or),
    **dict.fromkeys(("any", "all", "max", "min", "amax", "amin"), _extreme),
    "scatter": _scattered,
}  # fmt: skip
