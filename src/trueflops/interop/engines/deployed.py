"""What the command that starts an engine says of a deployment, and which flags say it.

Flags as of vLLM 0.28 (EngineArgs), SGLang 0.5.18 (ServerArgs), TensorRT-LLM 1.2 (trtllm-serve and
LlmArgs) and llama.cpp of August 2026 (common/arg.cpp); older spellings are read as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Deployed:
    """A deployment; None where the command leaves it to the engine."""

    engine: str
    model: str = ""
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None  # replicas of a server, each with its own attention
    servers: int | None = None  # of these beside each other
    ep: int | None = None
    etp: int | None = None  # ranks that split each expert, where replicas share experts
    dcp: int | None = None  # ranks of tp over which cached keys are spread
    weights: str | None = None
    cache: str | None = None
    memory_share: float | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_layers: int | None = None  # on accelerators; the host computes the others
    tensor_split: str | None = None  # what each card of a pipeline takes, as "45,35"
    redundant_experts: int | None = None  # copies of popular experts in every layer
    enforce_eager: int | None = None  # 1: no step is a captured graph
    two_batch_overlap: int | None = None  # 1: half of a batch computes while the other is sent
    speculate: str | None = None  # how tokens are drafted
    draft_model: str | None = None  # the drafter, where it is no part of the model
    num_speculative_tokens: int | None = None  # verified beside the last one
    speculative_steps: int | None = None  # passes of the drafter
    speculative_topk: int | None = None  # alternatives that each of them extends
    cpu_offload_gb: float | None = None  # GiB of each accelerator's weights in host memory
    release: str | None = None  # of the image that it runs in
    ignored: tuple[str, ...] = ()  # flags that nothing here answers to

    @property
    def accelerators(self) -> int:
        """How many the command asks for."""
        return (self.tp or 1) * (self.pp or 1) * (self.dp or 1) * (self.servers or 1)

    @property
    def shares_experts(self) -> bool:
        """Whether its replicas share experts."""
        return (self.ep or 1) * (self.etp or 1) > (self.tp or 1)


@dataclass(frozen=True)
class Vocabulary:
    """How one engine is told: the first spelling of a flag is written, all are read."""

    started_by: tuple[str, ...]  # words of a command line that start it
    flags: Mapping[str, tuple[str, ...]]  # field of Deployed -> flags
    weights: Mapping[str, str]  # the engine's word -> our format
    caches: Mapping[str, str]  # likewise; the first of ours is written
    methods: Mapping[str, str] = field(default_factory=dict)  # of drafting, likewise
    switches: tuple[str, ...] = ()  # flags without a value
    harmless: tuple[str, ...] = ()  # flags that change neither time nor memory
    yaml: Mapping[str, str] | None = None  # key of its file of options -> field


_EIGHT: Final = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "int8": "int8"}
_HARMLESS: Final = (
    "host", "port", "served-model-name", "trust-remote-code", "api-key", "seed", "log-level",
    "tokenizer", "download-dir", "chat-template", "tool-call-parser", "reasoning-parser",
    "enable-auto-tool-choice", "disable-log-requests", "disable-log-stats", "enable-metrics",
    "uvicorn-log-level", "revision", "load-format", "dist-init-addr", "nnodes", "node-rank",
    "distributed-executor-backend", "no-enable-log-requests",
    "alias", "jinja", "metrics", "backend",
)  # fmt: skip
VOCABULARIES: Final[Mapping[str, Vocabulary]] = {
    "vllm": Vocabulary(
        ("vllm serve", "vllm.entrypoints.openai.api_server", "dynamo.vllm", "vllm bench"),
        {
            "model": ("model",),
            "tp": ("tensor-parallel-size", "tp"),
            "pp": ("pipeline-parallel-size", "pp"),
            "dp": ("data-parallel-size", "dp"),
            "ep": ("enable-expert-parallel", "ep"),
            "dcp": ("decode-context-parallel-size", "dcp"),
            "weights": ("quantization", "q"),
            "cache": ("kv-cache-dtype",),
            "memory_share": ("gpu-memory-utilization",),
            "max_model_len": ("max-model-len",),
            "block_size": ("block-size",),
            "max_num_seqs": ("max-num-seqs",),
            "max_num_batched_tokens": ("max-num-batched-tokens",),
            "cpu_offload_gb": ("cpu-offload-gb",),
            "enforce_eager": ("enforce-eager",),
            "two_batch_overlap": ("enable-dbo",),
            "speculate": ("speculative-config.method",),
            "draft_model": ("speculative-config.model",),
            "num_speculative_tokens": ("speculative-config.num_speculative_tokens",),
        },
        {
            "fp8": "fp8", "awq": "int4", "awq_marlin": "int4", "gptq": "int4",
            "gptq_marlin": "int4", "bitsandbytes": "int4", "modelopt": "fp8",
            "modelopt_fp4": "nvfp4", "mxfp4": "mxfp4",
        },
        {**_EIGHT, "bfloat16": "bf16", "float16": "fp16", "nvfp4": "nvfp4"},
        {
            "draft_model": "draft", "eagle": "eagle", "eagle3": "eagle3", "mtp": "mtp",
            "dflash": "dflash", "medusa": "medusa", "ngram": "ngram", "ngram_gpu": "ngram",
            "suffix": "suffix",
        },
        ("enable-expert-parallel", "ep", "enforce-eager", "enable-dbo", "enable-prefix-caching",
         "no-enable-prefix-caching", "enable-chunked-prefill", "no-enable-chunked-prefill"),
        _HARMLESS,
    ),
    "sglang": Vocabulary(
        ("sglang.launch_server", "sglang serve", "dynamo.sglang"),
        {
            "model": ("model-path", "model"),
            "tp": ("tp-size", "tp", "tensor-parallel-size"),
            "pp": ("pp-size", "pp", "pipeline-parallel-size"),
            "dp": ("dp-size", "dp", "data-parallel-size"),
            "ep": ("ep-size", "ep", "expert-parallel-size"),
            "dcp": ("dcp-size", "decode-context-parallel-size"),
            "weights": ("quantization",),
            "cache": ("kv-cache-dtype",),
            "memory_share": ("mem-fraction-static",),
            "max_model_len": ("context-length",),
            "block_size": ("page-size",),
            "max_num_seqs": ("max-running-requests",),
            "max_num_batched_tokens": ("chunked-prefill-size",),
            "redundant_experts": ("ep-num-redundant-experts",),
            "enforce_eager": ("disable-cuda-graph",),
            "two_batch_overlap": ("enable-two-batch-overlap",),
            "speculate": ("speculative-algorithm",),
            "draft_model": ("speculative-draft-model-path", "speculative-draft-model"),
            "speculative_steps": ("speculative-num-steps",),
            "speculative_topk": ("speculative-eagle-topk",),
            "num_speculative_tokens": ("speculative-num-draft-tokens",),
        },
        {
            "fp8": "fp8", "w8a8_fp8": "fp8", "w8a8_int8": "int8", "awq": "int4",
            "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4", "modelopt": "fp8",
            "modelopt_fp4": "nvfp4", "mxfp4": "mxfp4",
        },
        {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bf16": "bf16", "bfloat16": "bf16",
         "nvfp4": "nvfp4"},
        {
            "NEXTN": "mtp", "EAGLE": "eagle", "EAGLE3": "eagle3", "STANDALONE": "draft",
            "NGRAM": "ngram", "DFLASH": "dflash",
        },
        ("enable-dp-attention", "enable-ep-moe", "enable-deepep-moe", "disable-radix-cache",
         "enable-torch-compile", "disable-cuda-graph", "enable-two-batch-overlap",
         "enable-mixed-chunk", "enable-eplb"),
        (*_HARMLESS, "enable-eplb"),
    ),
    "trt-llm": Vocabulary(
        ("trtllm-serve", "dynamo.trtllm"),
        {
            "model": ("model-path", "model"),
            "tp": ("tp_size", "tensor_parallel_size"),
            "pp": ("pp_size", "pipeline_parallel_size"),
            "ep": ("ep_size", "moe_expert_parallel_size", "expert-parallel-size"),
            "memory_share": ("free_gpu_memory_fraction", "kv_cache_free_gpu_memory_fraction"),
            "block_size": ("kv-block-size",),
            "max_model_len": ("max_seq_len",),
            "max_num_seqs": ("max_batch_size",),
            "max_num_batched_tokens": ("max_num_tokens",),
        },
        {},
        {"fp8": "fp8", "nvfp4": "nvfp4"},
        {
            "MTP": "mtp", "Eagle": "eagle3", "Eagle3": "eagle3", "NGram": "ngram",
            "Draft_Target": "draft", "DraftTarget": "draft", "DFlash": "dflash",
        },
        ("enable-chunked-prefill", "enable-attention-dp"),
        _HARMLESS,
        {
            "tensor_parallel_size": "tp", "pipeline_parallel_size": "pp",
            "moe_expert_parallel_size": "ep", "max_seq_len": "max_model_len",
            "max_batch_size": "max_num_seqs", "max_num_tokens": "max_num_batched_tokens",
            "kv_cache_config.free_gpu_memory_fraction": "memory_share",
            "kv_cache_config.dtype": "cache", "kv_cache_config.tokens_per_block": "block_size",
            "speculative_config.decoding_type": "speculate",
            "speculative_config.max_draft_len": "num_speculative_tokens",
            "speculative_config.num_nextn_predict_layers": "num_speculative_tokens",
            "speculative_config.speculative_model": "draft_model",
            "speculative_config.speculative_model_dir": "draft_model",
        },
    ),
    "llama.cpp": Vocabulary(
        ("llama-server",),
        {
            "model": ("model", "m", "hf-repo", "hf", "hfr", "hf-file", "hff"),
            "cache": ("cache-type-k", "ctk"),
            "max_model_len": ("ctx-size", "c"),
            "max_num_seqs": ("parallel", "np"),
            "max_num_batched_tokens": ("ubatch-size", "ub"),
            "gpu_layers": ("n-gpu-layers", "gpu-layers", "ngl"),
            "speculate": ("spec-type",),
            "draft_model": ("spec-draft-model", "md", "model-draft", "spec-draft-hf", "hfd",
                            "hfrd", "hf-repo-draft"),
            "num_speculative_tokens": ("spec-draft-n-max", "spec-ngram-mod-n-max", "draft-max",
                                       "draft", "draft-n"),
        },
        {},
        {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "q8_0": "q8_0", "q4_0": "q4_0"},
        {
            "draft-simple": "draft", "draft-eagle3": "eagle3", "draft-mtp": "mtp",
            "draft-dflash": "dflash", "ngram-simple": "ngram", "ngram-mod": "ngram",
            "ngram-map-k": "ngram", "ngram-map-k4v": "ngram", "ngram-cache": "ngram",
        },
        ("cont-batching", "cb", "no-mmap", "mlock", "jinja", "metrics", "cpu-moe", "cmoe"),
        (*_HARMLESS, "cache-type-v", "ctv"),
    ),
}  # fmt: skip
