"""What the schema of an op says of it: read once for each op."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch


class Manner(NamedTuple):
    """How an op treats its arguments."""

    name: str
    library: str
    is_view: bool  # every result shows the memory of an argument: nothing is launched
    is_inplace_view: bool  # changes the shape of its argument itself
    makes: bool  # takes no tensor at all: a factory
    data_dependent: bool  # the shape of its result depends on values
    random: bool
    mutates: bool
    composite: bool  # made of other ops
    fresh: bool  # all that it returns is new


@cache
def manner_of(op: Any) -> Manner:
    """Look an OpOverload up."""
    schema = op._schema
    takes = any("Tensor" in str(a.type) for a in schema.arguments)
    shown = [r.alias_info for r in schema.returns]
    views = bool(shown) and all(info is not None and not info.is_write for info in shown)
    inplace_view = torch.Tag.inplace_view in op.tags
    return Manner(
        name=str(op),
        library=op.namespace,
        is_view=views or inplace_view or op in _FREE,
        is_inplace_view=inplace_view,
        makes=not takes,
        data_dependent=torch.Tag.dynamic_output_shape in op.tags
        or torch.Tag.data_dependent_output in op.tags,
        random=torch.Tag.nondeterministic_seeded in op.tags,
        mutates=schema.is_mutable,
        fresh=not (views or inplace_view or op in _FREE or schema.is_mutable) and not any(shown),
        composite=op not in WHOLE and _made_of_others(op.name(), "CompositeImplicitAutograd"),
    )


_made_of_others = torch._C._dispatch_has_kernel_for_dispatch_key
_ATEN = torch.ops.aten
WHOLE = {
    _ATEN.silu_backward.default, _ATEN.mish_backward.default, _ATEN._fused_rms_norm.default,
    _ATEN.native_channel_shuffle.default,
}  # fmt: skip
"""Ops with a kernel on CUDA that fall apart where torch was built without it."""
_FREE = {
    _ATEN.detach.default, _ATEN._unsafe_view.default, _ATEN.lift_fresh.default,
    _ATEN._reshape_alias.default, _ATEN.empty.memory_format, _ATEN.empty_strided.default,
    _ATEN.empty_like.default, _ATEN.new_empty.default, _ATEN.new_empty_strided.default,
    _ATEN.unsafe_split.Tensor, _ATEN.unsafe_split_with_sizes.default, _ATEN.is_pinned.default,
    _ATEN._has_compatible_shallow_copy_type.default,
}  # fmt: skip
"""Ops that launch nothing, though their schema does not say so."""
