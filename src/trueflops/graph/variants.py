"""Which of several kernels or number formats runs an op, where its kind leaves that open.

An op has at most one variant, of the type that goes with its kind:
    products, experts, casts          a Format, or the kernel of a library (ProductKernel)
    attention of any kind             an AttentionKernel
    activations                       an Activation
    ops of captured programs          an EagerKernel
None is the usual one: the dtype's own product, the chip's best attention.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from trueflops.graph.formats import Format


class ProductKernel(StrEnum):
    """A product that a library runs by kernels with a speed of their own."""

    # The input was narrowed before it: the vendor's library multiplies, as it does in training.
    # Engines that serve narrow and multiply by kernels of their own.
    STORED = "stored"
    CONVOLUTION = "convolution"  # as an implicit product over windows
    CONVOLUTION_INPUT = "convolution_input"  # its gradient by the input
    CONVOLUTION_WEIGHT = "convolution_weight"  # and by the weights


class AttentionKernel(StrEnum):
    """Whose attention kernel runs."""

    FA2 = "fa2"  # FlashAttention-2, as PyTorch ships it
    CUDNN = "cudnn"
    CUDNN_MASKED = "cudnn_masked"  # a mask is read like any other bias: nothing is skipped
    # PyTorch's memory-efficient kernels (CUTLASS), for masks with gradients.
    EFFICIENT = "efficient"
    EFFICIENT_SINGLE = "efficient_single"  # the same in fp32
    TRITON = "triton"  # takes any shape; runs where no faster one does
    MLA = "mla"  # one latent cache, read once for all heads


class Activation(StrEnum):
    """An activation function that keeps something else for its gradient than its input, or that
    plain code writes in several calls.
    """

    RELU = "relu"  # its slope is seen from what came out
    NEW_GELU = "gelu_new"  # GPT-2's tanh approximation, function by function


class EagerKernel(StrEnum):
    """Classes of torch's own eager kernels; each has a curve of its own."""

    VECTOR = "vector"  # all operands lie alike: many numbers loaded at once
    MATH = "math"  # an exponential or the like for each element
    COPY = "copy"
    FILL = "fill"  # nothing is read
    WIDEN = "widen"  # a cast that makes numbers larger
    STRIDED = "strided"  # operands lie differently: each element by its own offsets
    RANDOM = "random"  # numbers drawn one by one
    CAT = "cat"  # pieces side by side
    GATHER = "gather"  # rows or elements picked from a table
    SCATTER = "scatter"  # put or added into a table
    ATOMIC = "atomic"  # added into a table, each element by an index of its own
    REDUCE_ROWS = "reduce_rows"  # neighbours are summed, a block to a row
    REDUCE_COLUMNS = "reduce_columns"  # each thread sums a column
    SOFTMAX = "softmax"
    SOFTMAX_BACKWARD = "softmax_backward"
    NORM = "norm"  # layer and RMS norm, in one kernel
    NORM_BACKWARD = "norm_backward"
    FOREACH = "foreach"  # one op over a list of tensors
    FOREACH_APART = "foreach_apart"  # the same, whose results are new tensors
    FUSED_OPTIMIZER = "fused_optimizer"  # a whole step over lists of tensors
    LIST_NORM = "list_norm"  # a norm of each tensor of a list
    GELU = "gelu"  # an error function, or a gradient with several exponentials
    HARD_MATH = "hard_math"  # a logarithm after an exponential, and longer series
    MASKED = "masked"  # a mask of another type decides, element by element
    TURNED = "turned"  # a copy into another order of dimensions
    SHIFTED = "shifted"  # a copy into other places: padded, rolled, flipped
    UNFOLDED = "unfolded"  # windows laid out side by side
    JOIN = "join"  # pieces side by side, each of which lies in one stretch
    LOSS = "loss"  # one element of each row, summed by a single block
    TABLE_GRADIENT = "table_gradient"  # rows of a gradient sorted by index and summed into a table
    SORTED_ADD = "sorted_add"  # the same, into a table that is there
    REDUCE_PLACES = "reduce_places"  # neighbours are summed, and what lies far from them too
    ARGUMENT = "argument"  # where in a row the largest stands
    SCAN = "scan"  # running sums
    SORT = "sort"
    TOP = "top"  # the largest few of a row
    FOURIER = "fourier"
    BAG = "bag"  # rows of a table, summed bag by bag
    LOG_SOFTMAX_BACKWARD = "log_softmax_backward"
    SOFTMAX_COLUMNS = "softmax_columns"  # over a dimension whose elements lie apart
    RAGGED_NORM = "ragged_norm"  # rows of which 4 does not divide the length: two kernels
    RAGGED_RMS_NORM = "ragged_rms_norm"
    RMS_NORM = "rms_norm"
    RMS_NORM_BACKWARD = "rms_norm_backward"
    GROUP_NORM = "group_norm"
    GROUP_NORM_BACKWARD = "group_norm_backward"
    BATCH_NORM = "batch_norm"  # torch's own, a block to a channel
    BATCH_NORM_BACKWARD = "batch_norm_backward"
    BATCH_NORM_LAST = "batch_norm_last"  # channels last: threads side by side over channels
    BATCH_NORM_LAST_BACKWARD = "batch_norm_last_backward"
    CUDNN_BATCH_NORM = "cudnn_batch_norm"
    CUDNN_BATCH_NORM_BACKWARD = "cudnn_batch_norm_backward"
    BATCH_SCALE = "batch_scale"  # a batch norm whose sums are known
    CUDNN_BATCH_SCALE = "cudnn_batch_scale"
    MAX_POOL = "max_pool"
    MAX_POOL_BACKWARD = "max_pool_backward"
    AVERAGE_POOL = "average_pool"
    AVERAGE_POOL_BACKWARD = "average_pool_backward"
    ADAPTIVE_POOL = "adaptive_pool"
    ADAPTIVE_POOL_BACKWARD = "adaptive_pool_backward"
    NEAREST = "nearest"  # up-sampled, each place as its nearest
    NEAREST_BACKWARD = "nearest_backward"
    BILINEAR = "bilinear"
    BILINEAR_BACKWARD = "bilinear_backward"
    DEPTHWISE = "depthwise"  # a convolution with a filter for each channel: torch's own
    DEPTHWISE_INPUT = "depthwise_input"  # its gradients
    DEPTHWISE_WEIGHT = "depthwise_weight"
    DEPTHWISE_LAST = "depthwise_last"  # channels last: cuDNN's
    DEPTHWISE_LAST_INPUT = "depthwise_last_input"
    DEPTHWISE_LAST_WEIGHT = "depthwise_last_weight"
    DEPTHWISE_LAST_WEIGHT_SINGLE = "depthwise_last_weight_single"  # in fp32: ten times slower


INDEXED: Final = (
    EagerKernel.MATH,
    EagerKernel.WIDEN,
    EagerKernel.STRIDED,
    EagerKernel.RANDOM,
    EagerKernel.CAT,
    EagerKernel.GATHER,
    EagerKernel.SCATTER,
    EagerKernel.FOREACH,
    EagerKernel.FOREACH_APART,
    EagerKernel.FUSED_OPTIMIZER,
    EagerKernel.GELU,
    EagerKernel.HARD_MATH,
    EagerKernel.MASKED,
    EagerKernel.TURNED,
    EagerKernel.SHIFTED,
)
"""Eager kernels whose elements are looked up, or computed, one by one."""

Variant = Format | ProductKernel | AttentionKernel | Activation | EagerKernel


def variant_name(variant: Variant | None) -> str:
    """As curves and reports call it; nothing for the usual one."""
    if variant is None:
        return ""
    return variant.kernels if isinstance(variant, Format) else str(variant)
