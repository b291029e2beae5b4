"""How the work is laid on the cluster: one frozen Plan, for one plan or for a million.

Degrees multiply: tp × cp × pp × dp_replicate × dp_shard accelerators. Numeric fields may be arrays
of equal length, one element per plan; the others are one value for all of them.

tp            tensor parallel: heads, FFN and vocabulary split; sp also splits the sequence between
cp            context parallel: the sequence split, keys and values by ring or all-to-all
dcp           of a server: ranks of tp over which cached keys that all of them need are spread
pp, vpp       pipeline stages, and how many interleaved pieces each holds; of zb-v always two
ep, etp       experts spread over ranks; each expert's own tensor parallelism
dp_replicate  replicas that hold everything; dp_shard: replicas that share it by ZeRO stage
              (HSDP is both above one)
adapters      train low-rank matrices beside frozen weights (LoRA), packed ones for QLoRA
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from trueflops.dtypes import BY_NAME
from trueflops.errors import UnknownName
from trueflops.plan.captures import read_captures
from trueflops.sizes import Size
from trueflops.tables import Batch, by_value, column
from trueflops.units import BITS_PER_BYTE

Recompute = Literal["none", "selective", "products", "full"]
Schedule = Literal["gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe"]
Engine = Literal["ddp", "dataparallel", "parameter-server"]
Store = Literal["host", "nvme"]
Mixed = Literal["autocast", "engine"]
"""Who narrows wide weights: torch.autocast, for every product, or the engine that holds them, as a
whole, before they are gathered or used (FSDP's MixedPrecision, DeepSpeed, Megatron)."""
Loss = Literal["plain", "narrow", "fused", "chunked"]
"""The cross-entropy: of logits lifted to fp32 in memory; of logits as they are, where neither
autocast nor the program lifts them for PyTorch's; in one kernel that lifts them in registers
(TE, torch.compile); or with the head, some tokens at a time, so that logits are never whole
(Liger's fused linear cross-entropy, Cut Cross-Entropy)."""
Implementation = Literal["library", "eager", "compiled"]
"""Of norms, rotations, activations and the loss: kernels of a library, made for them; PyTorch's
functions one by one; or these as torch.compile fuses them."""
Adapters = Literal["", "lora", "qlora"]

BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {name: BY_NAME[name].bits / BITS_PER_BYTE for name in ("fp32", "bf16", "fp16", "fp8")}
)


@dataclass(frozen=True)
class Optimizer:
    """Bytes kept per parameter beside the parameter itself and its gradient."""

    name: str
    state_bytes: float
    master_bytes: float  # an fp32 copy of the weights, kept where the weights are narrower
    note: str
    one_by_one: bool = False  # its Python walks over the weights, one at a time
    factored: bool = False  # beside that, second moments of rows and columns: adafactor.py
    blockwise: int = 0  # moments in 8 bits: predict/training/blockwise.py

    def bytes_per_parameter(self, parameter_bytes: float) -> float:
        """States, and the master copy where the weights themselves are narrower."""
        narrower = parameter_bytes < BYTES["fp32"]
        return self.state_bytes + (self.master_bytes if narrower else 0.0)


ONE_8BIT: Final = 1.0 + BYTES["fp32"] / 256.0
"""A moment in 8 bits and, for every 256 of them, their largest in fp32 (bitsandbytes/optim/
optimizer.py, Optimizer1State.init_state: state1 and absmax1)."""

OPTIMIZERS: Final[Mapping[str, Optimizer]] = MappingProxyType(
    {
        o.name: o
        for o in (
            Optimizer("adamw", 8.0, 4.0, "two fp32 moments and fp32 weights (ZeRO, 1910.02054)"),
            Optimizer("adamw-bf16", 4.0, 0.0, "two bf16 moments, no master copy"),
            Optimizer(
                "adamw-8bit",
                2 * ONE_8BIT,
                4.0,
                "two 8-bit moments, fp32 weights",
                True,
                blockwise=2,
            ),
            Optimizer(
                "adamw-8bit-bf16",
                2 * ONE_8BIT,
                0.0,
                "two 8-bit moments, no master copy",
                True,
                blockwise=2,
            ),
            Optimizer("sgd", 4.0, 4.0, "fp32 momentum and weights"),
            Optimizer("muon", 4.0, 4.0, "fp32 momentum and weights, Newton–Schulz steps"),
            Optimizer("lion", 4.0, 4.0, "one fp32 moment and weights (arXiv 2302.06675)", True),
            Optimizer("lion-bf16", 4.0, 0.0, "one fp32 moment, no master (bitsandbytes)", True),
            Optimizer(
                "lion-8bit", ONE_8BIT, 4.0, "one 8-bit moment, fp32 weights", True, blockwise=1
            ),
            Optimizer(
                "lion-8bit-bf16",
                ONE_8BIT,
                0.0,
                "one 8-bit moment, no master copy",
                True,
                blockwise=1,
            ),
            Optimizer(
                "adafactor", 0.0, 4.0, "rows, columns, fp32 weights (arXiv 1804.04235)", True, True
            ),
            Optimizer("adafactor-bf16", 0.0, 0.0, "rows, columns, no master copy", True, True),
        )
    }
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a model is split: one plan or, where numeric fields are arrays, many.

    >>> import trueflops as tf
    >>> plan = tf.Plan(tp=8, sp=True, pp=2, dp_shard=4, zero=1)
    >>> plan.world
    64
    """

    tp: Size = 1
    cp: Size = 1
    pp: Size = 1
    vpp: Size = 1
    dp_replicate: Size = 1
    dp_shard: Size = 1
    zero: Size = 0
    ep: Size = 1
    etp: Size = 1
    micro_batch: Size = 1
    recompute_layers: Size = np.inf  # of each stage, from its first layer on
    first_stage_layers: Size = 0  # 0: stages are as even as can be
    last_stage_layers: Size = 0
    offload_optimizer: Size = 0.0  # fractions kept outside the accelerator
    offload_parameters: Size = 0.0
    offload_activations: Size = 0.0

    sp: bool = False
    cp_kind: Literal["ring", "all-to-all"] = "ring"
    schedule: Schedule = "1f1b"
    recompute: Recompute = "none"
    offload_to: Store = "host"
    optimizer: str = "adamw"
    compute: str = "bf16"
    parameter_dtype: str = "bf16"
    gradient_dtype: str = "bf16"
    mixed: Mixed = "autocast"
    engine: Engine = "ddp"
    dispatch: Literal["all-to-all", "deduplicated"] = "all-to-all"
    flash: bool = True
    implementation: Implementation = "library"
    fused: bool = True
    loss: Loss = "plain"
    launch_blocking: bool = False  # CUDA_LAUNCH_BLOCKING=1: the host waits for every kernel
    cuda_graphs: str = ""  # what is captured, as "attention,router" or "step": captures.py
    overlap: bool = True  # data-parallel communication runs beside the backward
    overlap_dispatch: bool = False  # tokens travel to experts beside another micro-batch's compute
    update_in_backward: bool = False  # each weight at once, so that its gradient need not stay
    paged_states: bool = False  # in unified memory, which leaves the device where room is short
    reduce_bucket: float = 0.0  # elements of gradients that ZeRO sums at a time; 0: the framework's

    adapters: Adapters = ""
    lora_rank: int = 16
    lora_targets: str = "attention"  # which linear layers: model/adapters.py
    lora_dropout: float = 0.0
    lora_fused: bool = False  # scaling and sum inside the second product
    adapter_dtype: str = "fp32"  # as PEFT keeps adapters beside 16-bit weights
    base_format: str = "nf4"  # of QLoRA's frozen weights: graph/passes/dequantise.py
    residual_dtype: str = ""  # "": as `stream_dtype` says
    dcp: int = 1  # ranks of tp over which a server spreads the keys of a sequence
    mtp: int = 0  # modules that predict further tokens, trained beside the model (DeepSeek-V3 §2.2)
    freeze_layers: int = 0  # the first layers, and the embedding before them, are not trained

    @property
    def dp(self) -> Size:
        """All data-parallel replicas."""
        return by_value(self.dp_replicate * self.dp_shard, "dp")

    @property
    def world(self) -> Size:
        """Accelerators in use."""
        return by_value(self.tp * self.cp * self.pp * self.dp, "world")

    @property
    def pieces(self) -> Size:
        """Pieces of the model that a micro-batch passes on each rank."""
        return 2 if self.schedule == "zb-v" else self.vpp

    @property
    def captured(self) -> frozenset[str]:
        """Parts of a layer that run as CUDA graphs, or the whole step."""
        return read_captures(self.cuda_graphs)

    @property
    def bidirectional(self) -> bool:
        """Whether micro-batches enter at both ends, so that a rank holds a stage of either way."""
        return self.schedule == "dualpipe"

    @property
    def pairs_dispatch(self) -> bool:
        """Whether a forward's all-to-all of experts runs beside another micro-batch's backward."""
        return self.bidirectional or self.overlap_dispatch

    def expert_ways(self, replicas: Size) -> Size:
        """How many ranks of so many replicas hold the same expert: what ep and etp leave over."""
        return np.maximum(self.tp * self.cp * replicas / (self.ep * self.etp), 1.0)

    @property
    def state_bytes(self) -> float:
        """Bytes of optimizer states a parameter, master copy included; what is kept of rows and
        columns is no such number.
        """
        return self._optimizer.bytes_per_parameter(BYTES[self.trained_dtype])

    @property
    def goes_one_by_one(self) -> bool:
        """Whether the optimizer's Python walks over the weights, one at a time."""
        return self._optimizer.one_by_one

    @property
    def factored(self) -> bool:
        """Whether second moments are kept of rows and columns alone."""
        return self._optimizer.factored

    @property
    def blockwise(self) -> int:
        """How many moments are kept in 8 bits."""
        return self._optimizer.blockwise

    @property
    def _optimizer(self) -> Optimizer:
        if self.optimizer not in OPTIMIZERS:
            raise UnknownName("optimizer", self.optimizer, OPTIMIZERS)
        return OPTIMIZERS[self.optimizer]

    @property
    def has_master(self) -> bool:
        """Whether the optimizer keeps a wider copy of the weights."""
        narrow = BYTES[self.trained_dtype] < BYTES["fp32"]
        return narrow and OPTIMIZERS[self.optimizer].master_bytes > 0.0

    @property
    def trained_dtype(self) -> str:
        """Of the weights that are trained: the model's, or the adapters' beside it."""
        return self.adapter_dtype if self.adapters else self.parameter_dtype

    @property
    def summed_dtype(self) -> str:
        """Of their gradients; an adapter's are as wide as it is."""
        return self.adapter_dtype if self.adapters else self.gradient_dtype

    @property
    def stream_dtype(self) -> str:
        """Of the residual stream, norms, embedding and head, "" where it is that of products.

        PEFT lifts everything that bitsandbytes does not pack to fp32
        (peft/utils/other.py, prepare_model_for_kbit_training), so that the stream is fp32 too.
        """
        lifted = self.adapters == "qlora" and self.base_format == "nf4"
        return self.residual_dtype or ("fp32" if lifted else "")

    @property
    def autocasts(self) -> bool:
        """Whether autocast casts wide weights again for every micro-batch."""
        narrows = BYTES[self.parameter_dtype] > BYTES["bf16"] and self.wide_bytes < BYTES["fp32"]
        return narrows and self.mixed == "autocast"

    @property
    def gathered_bytes(self) -> float:
        """Bytes of a weight as replicas exchange it: narrowed before, where the engine does so."""
        stored = BYTES[self.trained_dtype]
        return min(stored, self.wide_bytes) if self.mixed == "engine" else stored

    @property
    def wide_dtype(self) -> str:
        """The dtype of activations: what matmuls are narrowed from."""
        return "bf16" if self.compute in ("fp8", "fp4") else self.compute

    @property
    def wide_bytes(self) -> float:
        """Bytes of one activation; tf32 is fp32 in memory."""
        return BYTES.get(self.wide_dtype, BYTES["fp32"])

    @property
    def offloads(self) -> bool:
        """Whether anything is kept outside the accelerator."""
        return any(
            np.any(fraction)
            for fraction in (
                self.offload_optimizer,
                self.offload_parameters,
                self.offload_activations,
            )
        )

    def micro_batches(self, global_batch: float) -> Size:
        """Micro-batches that each pipeline works through in one step."""
        return global_batch / (self.micro_batch * self.dp)

    @property
    def count(self) -> int:
        """How many plans this is."""
        return max(np.size(getattr(self, name)) for name in NUMERIC)

    def pick(self, index: int) -> Plan:
        """One plan out of many."""
        return self._map(lambda values: values[index % values.size].item())

    def take(self, chosen: Any) -> Plan:
        """Several plans out of many, by index, mask or slice."""
        return self._map(lambda values: values[chosen] if values.size > 1 else values)

    def _map(self, pick: Any) -> Plan:
        changed = {
            name: pick(value) for name in NUMERIC if np.ndim(value := getattr(self, name)) == 1
        }
        return self.but(**changed)

    def batch(self) -> Batch:
        """The columns in which they differ."""
        arrays = {n: v for n in NUMERIC if np.size(v := getattr(self, n)) > 1}
        return Batch.of(arrays, self.count)

    def in_batch(self, batch: Batch) -> Plan:
        """Its array fields as a batch has them."""
        return self.but(**{n: column(batch, n) for n in NUMERIC if batch.has(n)})

    def but(self, **changes: Any) -> Plan:
        """The same plan with some fields changed."""
        return Plan(**({f.name: getattr(self, f.name) for f in dataclass_fields(self)} | changes))


NUMERIC: Final = (
    "tp",
    "cp",
    "pp",
    "vpp",
    "dp_replicate",
    "dp_shard",
    "zero",
    "ep",
    "etp",
    "micro_batch",
    "recompute_layers",
    "first_stage_layers",
    "last_stage_layers",
    "offload_optimizer",
    "offload_parameters",
    "offload_activations",
)
"""The fields that may be arrays."""
