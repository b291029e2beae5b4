"""Tensors that wrap tensors: DTensor, and results of collectives that are still running.

C++ makes them, and C++ sees the fake tensor inside as a meta tensor. So the device that they report
is corrected, and the shapes that torch asks of them are worked out on meta tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import torch
from torch.utils._python_dispatch import _disable_current_modes

from trueflops.capture.pretend.fake_tensors import META
from trueflops.capture.pretend.fused import _BRANCHES as BRANCHES
from trueflops.capture.pretend.overrides import DEVICE
from trueflops.capture.schema import FUSED_ON_CUDA

_CAPTURES = itertools.count(1)


@contextmanager
def wrapped_tensors(world: int) -> Iterator[None]:
    """Inside this context, tensors that wrap fake tensors claim the accelerator, too."""
    with ExitStack() as stack:
        stack.enter_context(
            mock.patch.object(torch.Tensor, "_make_wrapper_subclass", _wrapper(), create=True)
        )
        if world > 1:
            _meshes_of_their_own(stack)
            _shapes_unrecorded(stack)
            _quicker(stack)
            library = torch.library.Library("aten", "IMPL")
            stack.callback(library._destroy)
            _keep_fused_on_meta(library)
        yield


def _wrapper() -> Any:
    """The constructor of tensors that wrap tensors, such as results that are still running.

    One made for an accelerator would have autograd look for a driver: it gets the dispatch keys of
    a fake tensor instead.
    """
    real = torch.Tensor._make_wrapper_subclass

    def make(kind: Any, size: Any, strides: Any = None, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or torch.device(device).type != DEVICE.type:
            return real(kind, size, strides, *args, **kwargs)
        if args or kwargs.keys() & _POLICIES:
            return real(kind, size, strides, *args, **{**kwargs, "device": META})
        with _disable_current_modes():
            dtype = kwargs.get("dtype")
            if strides is None:
                inner = torch.empty(size, dtype=dtype, device=META)
            else:
                inner = torch.empty_strided(size, strides, dtype=dtype, device=META)
            return torch.Tensor._make_subclass(
                kind, inner, kwargs.get("requires_grad", False), device_for_backend_keys=DEVICE
            )

    return staticmethod(make)


_POLICIES: Final = {
    "dispatch_sizes_strides_policy", "dispatch_device", "dispatch_layout", "_extra_dispatch_keys",
}  # fmt: skip


def _meshes_of_their_own(stack: ExitStack) -> None:
    """DTensor's caches know a mesh by its shape, but a mesh of another capture has other groups."""
    from torch.distributed.device_mesh import DeviceMesh

    number = next(_CAPTURES)

    def put(mesh: Any, _: Any) -> None:
        mesh.__dict__["_thread_id"] = number

    # The field that separates meshes of threads, in tests of torch where threads act as ranks.
    per_capture = property(lambda mesh: mesh.__dict__["_thread_id"], put)
    stack.enter_context(mock.patch.object(DeviceMesh, "_thread_id", per_capture, create=True))


def _shapes_unrecorded(stack: ExitStack) -> None:
    """DTensor runs an op once more to learn the global shape: that launches nothing.

    Torch does it under FakeTensorMode, which fails without a driver; here meta tensors do it.
    """
    from torch.distributed.tensor import _dispatch
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
    from torch.distributed.tensor._sharding_prop import ShardingPropagator
    from torch.utils._pytree import tree_map

    def as_meta(value: Any) -> Any:
        if isinstance(value, DTensorSpec) and value.tensor_meta is not None:
            shape, stride, dtype = value.tensor_meta
            return torch.empty_strided(shape, stride, dtype=dtype, device=META)
        return META if isinstance(value, torch.device) else value

    def described(made: Any) -> Any:
        if isinstance(made, torch.Tensor):
            return TensorMeta(shape=made.shape, stride=made.stride(), dtype=made.dtype)
        return type(made)(map(described, made)) if isinstance(made, (list, tuple)) else None

    def propagate(_: Any, schema: Any) -> Any:
        if schema.op == torch.ops.aten.equal.default:
            return None
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            args, kwargs = (
                tree_map(as_meta, each, is_leaf=lambda v: isinstance(v, DTensorSpec))
                for each in (schema.args_schema, schema.kwargs_schema)
            )
            return described(schema.op(*args, **kwargs))

    def draw(start: int, end: int, op: Any, *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)  # the offset into the random stream does not matter

    name = "_propagate_tensor_meta_non_cached"
    stack.enter_context(mock.patch.object(ShardingPropagator, name, propagate))
    stack.enter_context(mock.patch.object(_dispatch, "run_dtensor_rng_op", draw))


def _quicker(stack: ExitStack) -> None:
    """Speed two slow spots of DTensor up, which take a fifth of the capture of a 70B model.

    For each tensor of a list, such as an optimizer's, it looks for strided shards among all of
    them; one strided spec is enough. And isinstance() of a placement runs in Python, for a tracer.
    """
    from torch import _opaque_base
    from torch.distributed.tensor import _sharding_prop
    from torch.distributed.tensor.placement_types import _StridedShard

    real = _sharding_prop._propagate_use_strided_shard_flag

    def propagate(strategy: Any, schema: Any) -> None:
        if not hasattr(schema, "strided_spec"):
            strided = [
                spec
                for spec in schema.args_spec
                if any(type(place) is _StridedShard for place in spec.placements)
            ]
            strided.sort(key=lambda spec: not spec.use_strided_shard_as_shard_order)
            schema.strided_spec = SimpleNamespace(args_spec=strided[:1])
        real(strategy, schema.strided_spec)

    for owner, name, value in (
        (_sharding_prop, "_propagate_use_strided_shard_flag", propagate),
        (_opaque_base.OpaqueBaseMeta, "__instancecheck__", type.__instancecheck__),
    ):
        stack.enter_context(mock.patch.object(owner, name, value))


def _keep_fused_on_meta(library: torch.library.Library) -> None:
    """Ops that are one kernel on CUDA stay one for a DTensor, whose dispatch keys are meta's."""

    def like(x: torch.Tensor, *_: Any) -> torch.Tensor:
        return torch.empty_like(x)

    def rms_norm(x: torch.Tensor, shape: list[int], *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        kept = x.shape[: x.dim() - len(shape)] + (1,) * len(shape)
        return torch.empty_like(x), torch.empty(kept, dtype=wide, device=x.device)

    for op in FUSED_ON_CUDA:
        shape = rms_norm if "rms_norm" in str(op) else like
        # Not by Library.impl, which refuses a meta kernel for an op that decomposes.
        library.m.impl(op.name(), "Meta", shape, False)  # type: ignore[union-attr]
    for name, run in BRANCHES.items():
        library.impl(name, run, "AutogradMeta")
