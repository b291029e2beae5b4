"""From calls of ATen ops to ops of the IR: what each launches, and with which kind of kernel.

`_FAMILIES` maps the name of an op to the function that lowers it. An op that it does not name is a
pointwise kernel if it is torch's own, and is priced by its bytes if it is of another library.
Kernel kinds are those of torch's eager kernels (graph/variants.py): `vector` where all operands
have one layout, `strided` where the offsets of each element are computed, `widen` where a cast
makes numbers wider.

products.py   matrix products and attention     pointwise.py  pointwise kernels and reductions
movement.py   look-ups, scatters, joins, sorts  layers.py     norms, pooling, up-sampling
lists.py      foreach ops, fused optimizers     windows.py    convolutions
recurrent.py  cuDNN's recurrent layers          kernels.py    what they share
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trueflops.capture.lower.kernels import base_name, tensor
from trueflops.capture.lower.layers import batch_norm, group_norm, norm, pool, resample
from trueflops.capture.lower.lists import CHUNK, CHUNKS_A_LAUNCH, foreach, fused_optimizer
from trueflops.capture.lower.movement import (
    averaged_loss,
    bags,
    bags_backward,
    banded,
    cat,
    embedding_backward,
    fourier,
    gather,
    loss,
    pad,
    scatter,
    shuffle,
    slice_backward,
    sort,
    unfolded,
)
from trueflops.capture.lower.pointwise import (
    by_bytes,
    copy,
    fill,
    pointwise,
    random,
    read_back,
    reduction,
    scan,
    softmax,
)
from trueflops.capture.lower.products import (
    attention,
    attention_backward,
    batched_product,
    grouped_product,
    narrow_product,
    plain_product,
)
from trueflops.capture.lower.recurrent import layers, layers_backward
from trueflops.capture.lower.windows import convolution, convolution_backward
from trueflops.graph.ir import Op
from trueflops.graph.passes.compiled import generated, padded
from trueflops.records.recording import Call

__all__ = ["CHUNK", "CHUNKS_A_LAUNCH", "base_name", "is_guessed", "lower", "tensor"]


def lower(call: Call) -> list[Op]:
    """The kernels that a call launches; none where it only looks, or makes nothing."""
    if call.outputs and not any(array.elements for array in call.outputs):
        return []
    if call.parts:
        return [_generated(call)]
    if not call.op.startswith(("aten.", "prims.", "higher_order.")):
        return by_bytes(call)
    name = base_name(call.op)
    family = _FAMILIES.get(name)
    if family is None:
        if name.startswith(("_foreach_", "_amp_foreach_")):
            family = foreach
        elif name.startswith(_OWN_ALGORITHM):
            family = by_bytes
        else:
            family = pointwise
    ops = family(call)
    return [padded(op) for op in ops] if call.region >= 0 else ops


def _generated(call: Call) -> Op:
    """The kernel that a compiler makes of several calls."""
    parts = [op for part in call.parts for op in lower(part)]
    reads, writes = (tuple(map(tensor, arrays)) for arrays in (call.inputs, call.outputs))
    return generated(parts, reads, writes)


def is_guessed(op: str) -> bool:
    """Whether only the bytes of one of torch's ops are known, though its steps take the time."""
    name = base_name(op)
    return name not in _FAMILIES and name.startswith(_OWN_ALGORITHM)


def _nothing(call: Call) -> list[Op]:
    return []


_OWN_ALGORITHM: Final = (
    "linalg_", "_linalg_", "cholesky", "triangular_solve", "geqrf", "ormqr", "lu_", "_ctc_loss",
)  # fmt: skip
_Family = Callable[[Call], list[Op]]
_FAMILIES: Final[dict[str, _Family]] = {
    **dict.fromkeys(
        ("mm", "addmm", "_scaled_mm", "_int_mm", "_addmm_activation", "mv", "addmv"), plain_product
    ),
    **dict.fromkeys(("bmm", "baddbmm"), batched_product),
    **dict.fromkeys(("_weight_int4pack_mm", "_weight_int8pack_mm"), narrow_product),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), grouped_product),
    **dict.fromkeys(("convolution", "_convolution", "cudnn_convolution"), convolution),
    "convolution_backward": convolution_backward,
    "_cudnn_rnn": layers, "_cudnn_rnn_backward": layers_backward,
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_flash_attention_for_cpu", "flex_attention",
        ),
        attention,
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_flash_attention_for_cpu_backward", "flex_attention_backward",
        ),
        attention_backward,
    ),
    **dict.fromkeys(("copy", "_to_copy", "clone", "contiguous"), copy),
    **dict.fromkeys(
        ("fill", "zero", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like",
         "new_zeros", "new_ones", "new_full", "arange", "linspace", "logspace", "eye",
         "scalar_tensor", "tril_indices", "triu_indices"), fill
    ),
    **dict.fromkeys(
        ("randn", "rand", "randint", "randperm", "normal", "uniform", "bernoulli", "rand_like",
         "randn_like", "randint_like", "random", "exponential", "poisson", "log_normal", "cauchy",
         "geometric", "multinomial", "native_dropout", "_standard_gamma"), random
    ),
    **dict.fromkeys(
        ("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "norm",
         "var", "var_mean", "std", "std_mean", "prod", "logsumexp", "linalg_vector_norm", "nansum",
         "aminmax", "dot", "vdot", "count_nonzero"),
        reduction,
    ),
    **dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), scan
    ),
    **dict.fromkeys(
        ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
        softmax,
    ),
    **dict.fromkeys(
        ("native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm",
         "_fused_rms_norm_backward", "_weight_norm_interface", "_weight_norm_interface_backward"),
        norm,
    ),
    **dict.fromkeys(("native_group_norm", "native_group_norm_backward"), group_norm),
    **dict.fromkeys(
        ("native_batch_norm", "native_batch_norm_backward", "_native_batch_norm_legit",
         "cudnn_batch_norm", "cudnn_batch_norm_backward", "_native_batch_norm_legit_functional",
         "batch_norm_backward", "_batch_norm_with_update"), batch_norm
    ),
    **dict.fromkeys(
        (f"{name}{n}d{back}" for n in "123" for back in ("", "_backward") for name in
         ("avg_pool", "_adaptive_avg_pool", "adaptive_avg_pool")), pool
    ),
    **dict.fromkeys(
        (f"{name}{n}d{back}" for n in "23" for name, back in
         (("max_pool", "_with_indices"), ("max_pool", "_with_indices_backward"),
          ("adaptive_max_pool", ""), ("adaptive_max_pool", "_backward"))), pool
    ),
    **dict.fromkeys(
        (f"upsample_{name}{back}" for back in ("", "_backward") for name in
         ("nearest1d", "nearest2d", "nearest3d", "_nearest_exact2d", "linear1d", "bilinear2d",
          "bicubic2d", "trilinear3d")), resample
    ),
    **dict.fromkeys(("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward",
                     "nll_loss2d_backward"), loss),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
                     "soft_margin_loss"), averaged_loss),
    **dict.fromkeys(
        ("flip", "roll", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d",
         "replication_pad2d"), shuffle
    ),
    **dict.fromkeys(("tril", "triu"), banded),
    **dict.fromkeys(("im2col", "col2im"), unfolded),
    **dict.fromkeys(("_fft_r2c", "_fft_c2r", "_fft_c2c"), fourier),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), bags),
    **dict.fromkeys(("_embedding_bag_backward", "_embedding_bag_dense_backward"), bags_backward),
    **dict.fromkeys(("cat", "stack", "_chunk_cat"), cat),
    **dict.fromkeys(
        ("index", "gather", "index_select", "embedding", "take", "_index", "_unsafe_index"), gather
    ),
    **dict.fromkeys(
        ("index_put", "scatter", "scatter_add", "index_add", "index_copy", "_index_put_impl",
         "_unsafe_index_put", "scatter_reduce", "index_fill", "put"), scatter
    ),
    "embedding_dense_backward": embedding_backward,
    **dict.fromkeys(("slice_backward", "select_backward", "unfold_backward"), slice_backward),
    "constant_pad_nd": pad,
    **dict.fromkeys(("sort", "argsort", "topk", "kthvalue", "median", "mode"), sort),
    **dict.fromkeys(
        ("_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad"), fused_optimizer
    ),
    **dict.fromkeys(("_local_scalar_dense", "item"), read_back),
    **dict.fromkeys(
        ("record_stream", "is_same_size", "_assert_async", "_assert_scalar", "resize", "set",
         "_cudnn_init_dropout_state"), _nothing
    ),
}  # fmt: skip
