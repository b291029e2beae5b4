"""The closed words of the IR: what an op, a collective and a tensor can be.

Members are compared by identity (`op.kind is Kind.MATMUL`). Python 3.11 takes as long to find one
as for five other comparisons: lines that run hundreds of times a prediction bind it first. They are
strings too, so that a table or a file may hold them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What an op computes; picks its rule."""

    # products
    MATMUL = "matmul"  # y = x·Wᵀ, with one or more W side by side
    DGRAD = "dgrad"  # its gradient by the input: dy·W
    WGRAD = "wgrad"  # its gradient by the weights: dyᵀ·x
    EXPERTS = "experts"  # a served layer of experts in one kernel: up, activation, down
    # attention, whole
    ATTENTION = "attention"  # softmax(QKᵀ)V in one kernel that never writes the scores
    ATTENTION_BACKWARD = "attention_backward"  # dQ, dK and dV in one kernel
    ATTENTION_DECODE = "attention_decode"  # one new query a sequence over its cached keys
    # attention, laid out
    SCORES = "scores"  # QKᵀ
    CONTEXT = "context"  # softmax(QKᵀ) times V
    PRODUCT_BACKWARD = "product_backward"  # both gradients of one of these two
    # memory-bound ops of a model
    SOFTMAX = "softmax"
    NORM = "norm"  # layer or RMS norm
    ACTIVATION = "activation"  # silu, gelu, relu …
    MULTIPLY = "multiply"  # element by element: a gate
    DROPOUT = "dropout"
    ADD = "add"
    SCALE = "scale"  # by one number
    ROPE = "rope"  # rotary positions
    CAST = "cast"  # to other numbers, before a product
    DEQUANTISE = "dequantise"  # packed weights written out for a product
    STREAM = "stream"  # any other pass over memory; gradients of these ops among them
    RECURRENCE = "recurrence"  # a kernel of a recurrent layer: its state read and written back
    CHUNKED = "chunked"  # one that reads a prompt for it, by products of tokens of a chunk
    SCANNED = "scanned"  # one that reads a prompt token after token, an exponential for each number
    ROUTE = "route"  # from a router's logits to the experts each token chose
    DISPATCH = "dispatch"  # tokens copied into the order of their experts
    COMBINE = "combine"  # the experts' answers weighed and summed back into tokens
    SAMPLE = "sample"  # the next token from its logits
    CACHE = "cache"  # new keys and values written behind the old ones
    EMBEDDING = "embedding"  # rows of a table by token
    CROSS_ENTROPY = "cross_entropy"  # the loss, logits lifted to fp32 in memory
    FUSED_CROSS_ENTROPY = "fused_cross_entropy"  # the same, lifted in registers
    OPTIMIZER = "optimizer"  # one step over weights, gradients and moments
    # kernels of captured programs, by what a compiler may do with them
    POINTWISE = "pointwise"  # element by element: joins its neighbours
    REDUCTION = "reduction"  # sums rows or columns
    MOVEMENT = "movement"  # puts elements elsewhere: look-ups, scatters, joins, sorts
    HOST_COPY = "host_copy"  # between the device and host memory
    FUSED = "fused"  # a chain of pointwise ops in one kernel


LAID_OUT_ATTENTION: Final = frozenset({Kind.SCORES, Kind.CONTEXT})
"""The two products of an attention whose scores are written."""
PRODUCTS: Final = frozenset(
    {Kind.MATMUL, Kind.DGRAD, Kind.WGRAD, Kind.PRODUCT_BACKWARD} | LAID_OUT_ATTENTION
)
"""What a library of matrix products runs."""
EAGER_KINDS: Final = frozenset({Kind.POINTWISE, Kind.REDUCTION, Kind.MOVEMENT})
"""Memory-bound kernels of a captured program; each says which eager kernel it is."""


class CollectiveKind(StrEnum):
    """What a collective does, in NCCL's words."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND_RECV = "send_recv"
    COPY = "copy"  # every rank has it already: nothing is sent, but its gradient is summed


class Role(StrEnum):
    """What a tensor is to the model."""

    ACTIVATION = "activation"
    WEIGHT = "weight"
    FROZEN = "frozen"  # a weight that is not trained: it has no gradient
    INDEX = "index"  # ids, masks, statistics: carries no gradient


WEIGHTS: Final = frozenset({Role.WEIGHT, Role.FROZEN})
"""What a model holds between steps."""


class Function(StrEnum):
    """A function of PyTorch that a program calls: what its backward is, graph/functions.py says."""

    ADD = "add"
    CAST = "cast"
    SQUARE = "square"
    MULTIPLY = "multiply"
    SCALE = "scale"  # by one number
    SILU = "silu"  # and any other activation that keeps its input
    RELU = "relu"
    TANH = "tanh"
    MEAN = "mean"  # of a row
    INVERSE_ROOT = "inverse_root"
    SCALE_ROWS = "scale_rows"  # each row by a number
    GAIN = "gain"  # each column by a weight
    LAYER_NORM = "layer_norm"
    ROTATE_HALF = "rotate_half"
    BY_SINE = "by_sine"
    BY_COSINE = "by_cosine"
    REPEAT = "repeat"  # keys and values, for every head of a group
    LOOKUP = "lookup"
    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log_softmax"
