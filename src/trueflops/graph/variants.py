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
    CONVOLUTION_BACKWARD = "convolution_backward"  # by its input or its weights


class AttentionKernel(StrEnum):
    """Whose attention kernel runs."""

    FA2 = "fa2"  # FlashAttention-2, as PyTorch ships it
    CUDNN = "cudnn"
    CUDNN_MASKED = "cudnn_masked"  # a mask is read like any other bias: nothing is skipped
    EFFICIENT = (
        "efficient"  # PyTorch's memory-efficient kernels (CUTLASS), for masks with gradients
    )
    EFFICIENT_SINGLE = "efficient_single"  # the same in fp32
    TRITON = "triton"  # takes any shape; runs where no faster one does
    MLA = "mla"  # one latent cache, read once for all heads


class Activation(StrEnum):
    """An activation function that keeps something else for its gradient than its input."""

    RELU = "relu"  # its slope is seen from what came out


class EagerKernel(StrEnum):
    """Classes of torch's own eager kernels. Fitted features are places in this order: append."""

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
    REDUCE_ROWS = "reduce_rows"  # neighbours are summed, a block to a row
    REDUCE_COLUMNS = "reduce_columns"  # each thread sums a column
    SOFTMAX = "softmax"
    SOFTMAX_BACKWARD = "softmax_backward"
    NORM = "norm"  # layer and RMS norm, in one kernel
    NORM_BACKWARD = "norm_backward"
    FOREACH = "foreach"  # one op over a list of tensors
    FUSED_OPTIMIZER = "fused_optimizer"  # a whole step over lists of tensors


INDEXED: Final = (
    EagerKernel.MATH,
    EagerKernel.WIDEN,
    EagerKernel.STRIDED,
    EagerKernel.RANDOM,
    EagerKernel.CAT,
    EagerKernel.GATHER,
    EagerKernel.SCATTER,
    EagerKernel.FOREACH,
    EagerKernel.FUSED_OPTIMIZER,
)
"""Eager kernels whose elements are looked up, or computed, one by one."""

Variant = Format | ProductKernel | AttentionKernel | Activation | EagerKernel


def variant_name(variant: Variant | None) -> str:
    """As curves and reports call it; nothing for the usual one."""
    if variant is None:
        return ""
    return variant.kernels if isinstance(variant, Format) else str(variant)
