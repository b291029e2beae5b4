"""What the schema of an op says about it, read once for each op."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch


class OpTraits(NamedTuple):
    """How an op treats its arguments."""

    name: str
    library: str
    is_view: bool  # every result is a view of an argument: nothing is launched
    is_inplace_view: bool  # changes the shape of its argument itself
    is_factory: bool  # takes no tensor, as torch.zeros does
    data_dependent: bool  # the shape of its result depends on values
    random: bool
    mutates: bool
    composite: bool  # decomposes into other ops
    returns_new: bool  # no result shares memory with an argument


@cache
def traits_of(op: Any) -> OpTraits:
    """The traits of an OpOverload."""
    schema = op._schema
    takes = any("Tensor" in str(a.type) for a in schema.arguments)
    aliases = [r.alias_info for r in schema.returns]
    views = bool(aliases) and all(info is not None and not info.is_write for info in aliases)
    inplace_view = torch.Tag.inplace_view in op.tags
    return OpTraits(
        name=str(op),
        library=op.namespace,
        is_view=views or inplace_view or op in _FREE,
        is_inplace_view=inplace_view,
        is_factory=not takes,
        data_dependent=torch.Tag.dynamic_output_shape in op.tags
        or torch.Tag.data_dependent_output in op.tags,
        random=torch.Tag.nondeterministic_seeded in op.tags,
        mutates=schema.is_mutable,
        returns_new=not (views or inplace_view or op in _FREE or schema.is_mutable)
        and not any(aliases),
        composite=op not in FUSED_ON_CUDA and _has_kernel(op.name(), "CompositeImplicitAutograd"),
    )


@cache
def has_device(op: Any) -> bool:
    """Whether an op is told where its result shall be."""
    return any(argument.name == "device" for argument in op._schema.arguments)


_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
_ATEN = torch.ops.aten
FUSED_ON_CUDA = {
    _ATEN.silu_backward.default, _ATEN.mish_backward.default, _ATEN._fused_rms_norm.default,
    _ATEN.native_channel_shuffle.default,
}  # fmt: skip
"""Ops with one kernel on CUDA, which torch decomposes where it was built without CUDA."""
_FREE = {
    _ATEN.detach.default, _ATEN._unsafe_view.default, _ATEN.lift_fresh.default,
    _ATEN._reshape_alias.default, _ATEN.empty.memory_format, _ATEN.empty_strided.default,
    _ATEN.empty_like.default, _ATEN.new_empty.default, _ATEN.new_empty_strided.default,
    _ATEN.unsafe_split.Tensor, _ATEN.unsafe_split_with_sizes.default, _ATEN.is_pinned.default,
    _ATEN._has_compatible_shallow_copy_type.default,
}  # fmt: skip
"""Ops that launch nothing, though their schema does not say so."""


def all_positional(op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments as a trace has them: the dispatcher leaves out those that are the default."""
    rest = [a for a in op._schema.arguments if not a.kwarg_only][len(args) :]
    return (*args, *(a.default_value for a in rest))
