"""Names of the flags that Megatron-LM's programs know, so that a slip of the pen can be told.

Of every release from core_v0.5.0 to core_v0.19.0 and of main in August 2026: what arguments.py adds
(megatron/training/arguments.py), and the fields of the dataclasses that it makes flags of since
core_v0.16 (ArgumentGroupFactory). Those of torchrun, which stand on the same command: torch/
distributed/run.py.
"""

from __future__ import annotations

from typing import Final

_TORCHRUN: Final = """
nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts
monitor-interval start-method event-log-handler module no-python run-path log-dir redirects tee
local-ranks-filter node-rank master-addr master-port local-addr logs-specs numa-binding
signals-to-handle virtual-local-rank role duplicate-stdout-filters duplicate-stderr-filters
"""
_MEGATRON: Final = """
account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split
accumulate-allreduce-grads-in-fp32 activation-func activation-func-clamp-value
activation-func-fp8-input-store activation-offload-fraction adam-beta1 adam-beta2 adam-eps
add-bias-linear add-qkv-bias adlr-autoresume adlr-autoresume-interval align-grad-reduce
allow-ambiguous-pad-tokens app-tag-run-name app-tag-run-version apply-layernorm-1p
apply-query-key-layer-scaling apply-residual-connection-post-layernorm apply-rope-fusion
apply-wd-to-qk-layernorm async-ckpt-cpu-priority async-ckpt-io-priority async-ckpt-use-cpu-shm
async-save async-strategy async-tensor-model-parallel-allreduce attention-backend
attention-dropout attention-output-gate attention-softmax-in-fp32 auto-detect-ckpt-format
autocast-dtype barrier-with-L1-time batch-invariant-backend batch-invariant-mode batch-p2p-comm
batch-p2p-sync batch-size bert-embedder-type bert-load bert-no-binary-head bf16
bias-activation-fusion bias-dropout-fusion biencoder-projection-dim
biencoder-shared-query-context-model block-data-path cache-mla-latents calc-ft-timeouts
calculate-per-token-loss chat-template check-for-large-grads check-for-nan-in-loss
check-for-spiky-loss check-weight-hash-across-dp-replicas-interval checkpoint-activations
ckpt-assume-constant-structure ckpt-convert-format ckpt-convert-save
ckpt-convert-update-legacy-dist-opt-format ckpt-drop-redundant-extra-state ckpt-format
ckpt-fully-parallel-load ckpt-fully-parallel-load-exchange-algo
ckpt-fully-parallel-load-per-rank-objects ckpt-fully-parallel-load-process-group
ckpt-fully-parallel-save ckpt-fully-parallel-save-process-group
ckpt-load-validate-sharding-integrity ckpt-pg-tensors-cache-create ckpt-pg-tensors-cache-path
ckpt-step classes-fraction clip-grad clone-scatter-output-in-embedding config-logger-dir
context-parallel-size cp-comm-type cpu-offloading cpu-offloading-activations
cpu-offloading-double-buffering cpu-offloading-num-layers
cpu-offloading-retain-pinned-cpu-buffers cpu-offloading-weights create-all-gather-group
cross-entropy-fusion-impl cross-entropy-loss-fusion cuda-graph-impl cuda-graph-modules
cuda-graph-retain-backward-graph cuda-graph-scope cuda-graph-use-single-mempool
cuda-graph-warmup-steps data-args-path data-cache-path data-parallel-random-init
data-parallel-sharding-strategy data-path data-per-class-fraction
dataloader-defer-npy-index-mmap dataloader-fast-cache-load dataloader-inter-document-masking
dataloader-type ddp-average-in-collective ddp-bucket-size ddp-num-buckets
ddp-pad-buckets-for-high-nccl-busbw ddp-param-name-patterns-for-fp32-local-accumulation
ddp-reduce-scatter-with-fp32-accumulation deallocate-pipeline-outputs decode-only-cuda-graphs
decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers decoder-num-layers
decoder-seq-length decoupled-lr decoupled-min-lr decrease-batch-size-if-needed
defer-embedding-wgrad-compute delay-offload-until-cuda-graph delay-param-gather
delay-wgrad-compute delta-offload-bytes-across-pp-ranks deterministic-mode dino-bottleneck-size
dino-freeze-last-layer dino-head-hidden-size dino-local-crops-number dino-local-img-size
dino-norm-last-layer dino-teacher-temp dino-warmup-teacher-temp dino-warmup-teacher-temp-epochs
disable-add-bias-linear disable-align-grad-reduce disable-async-tensor-model-parallel-allreduce
disable-attention-softmax-in-fp32 disable-barrier-with-L1-time disable-batch-p2p-comm
disable-batch-p2p-sync disable-bf16-reduced-precision-matmul disable-bias-linear
disable-check-for-nan-in-loss disable-chunked-prefill disable-ckpt-fully-parallel-save
disable-ckpt-load-validate-sharding-integrity disable-clone-scatter-output-in-embedding
disable-cpu-offloading-activations disable-cuda-graph-use-single-mempool
disable-dsa-indexer-rotate-activation disable-dsa-indexer-scoring-relu disable-filter-warnings
disable-flight-recorder-dump-on-timeout disable-flight-recorder-extra-dump-on-exec
disable-flight-recorder-include-only-active disable-fp8-wgrad disable-fully-parallel-save
disable-gloo-process-groups disable-jit-fuser disable-load-optim disable-load-rng
disable-log-loss-scale-to-tensorboard disable-mamba-mem-eff-path disable-manual-gc-eval
disable-msc disable-pad-vocab-size disable-parameter-transpose-cache
disable-perform-initialization disable-save-optim disable-save-rng disable-save-tokenizer-assets
disable-straggler-on-startup disable-stream-ckpt-dequant disable-strict-fsdp-dtensor-load
disable-symmetric-registration disable-tokenizer-sentencepiece-ignore-extra-whitespaces
disable-tp-comm-bulk-dgrad disable-tp-comm-bulk-wgrad disable-tp-comm-overlap-ag
disable-tp-comm-overlap-rs disable-tp-comm-split-ag disable-tp-comm-split-rs
disable-use-gloo-process-groups disable-use-mamba-mem-eff-path
disable-use-tokenizer-model-from-checkpoint-args dist-ckpt-format
dist-ckpt-optim-fully-reshardable dist-ckpt-save-pre-mcore-014 dist-ckpt-strictness
dist-ckpt-workers distrib-optim-fully-reshardable-mem-efficient distribute-saved-activations
distributed-backend distributed-timeout-minutes distributed-timeout-seconds-after-init
dsa-indexer-head-dim dsa-indexer-k-norm-epsilon dsa-indexer-k-norm-fp32 dsa-indexer-loss-coeff
dsa-indexer-n-heads dsa-indexer-rope-interleaved dsa-indexer-rotate-activation
dsa-indexer-scoring-relu dsa-indexer-skip-topk-offset dsa-indexer-topk dsa-indexer-topk-freq
dsa-indexer-use-sparse-loss dsa-kernel-backend dump-param-to-param-group-map
embedding-init-method embedding-init-method-std embedding-path empty-unused-memory-level
enable-autocast enable-chunked-prefill enable-cuda-graph enable-experimental enable-ft-package
enable-full-sharding-in-hsdp enable-mhc-connections enable-msc enable-one-logger
encoder-num-layers encoder-pipeline-model-parallel-size encoder-seq-length
encoder-tensor-model-parallel-size end-weight-decay eod-mask-loss
ep-overlap-early-attn-memory-release error-injection-rate error-injection-type
eval-global-batch-size eval-interval eval-iters eval-micro-batch-size evidence-data-path
exit-duration-in-mins exit-interval exit-on-missing-checkpoint exit-signal exit-signal-handler
exit-signal-handler-for-dataloader exit-signal-handler-for-training exp-avg-dtype
exp-avg-sq-dtype experimental-attention-variant experimental-attention-variant-loss-scale-func
expert-gtp-weight-remat-size expert-model-parallel-size expert-tensor-parallel-num-weight-shards
expert-tensor-parallel-size external-cuda-graph fake-process-group ffn-hidden-size
filter-warnings fim-data fim-eod-token fim-fragment-rate fim-middle-token fim-no-prefix
fim-pad-token fim-prefix-token fim-rate fim-split-sample fim-spm-rate fim-suffix-token
finalize-model-grads-func fine-grained-activation-offloading
fine-grained-offloading-max-inflight-offloads finetune first-last-layers-bf16
flash-attention-version flash-decode flight-recorder-dump-on-timeout flight-recorder-dump-path
flight-recorder-extra-dump-on-exec flight-recorder-include-only-active
flight-recorder-include-stack-trace flight-recorder-trace-buffer-size fp16 fp16-lm-cross-entropy
fp32-residual-connection fp4 fp4-format fp4-param fp4-param-gather fp4-quantizer-factory
fp4-recipe fp8 fp8-amax-compute-algo fp8-amax-history-len fp8-dot-product-attention fp8-format
fp8-interval fp8-margin fp8-multi-head-attention fp8-output-proj fp8-param fp8-param-gather
fp8-quantizer-factory fp8-recipe fp8-wgrad freeze-all-layers
fsdp-db-use-persist-buf-on-alloc-fail fsdp-double-buffer fsdp-manual-registration
ft-num-warmup-iters full-validation fully-parallel-load fully-parallel-save
fused-residual-rmsnorm fused-single-qkv-rope gated-linear-unit gdp-cutedsl-kernel
gdp-num-chunk-states-to-recompute gdp-num-householder global-batch-size glu-linear-offset
gpu-sniff-test-interval grad-reduce-in-bf16 grad-scale-func grad-sync-func
gradient-accumulation-fusion group-query-attention grpo-clamp-eps-lower grpo-clamp-eps-upper
grpo-default-temperature grpo-default-top-p grpo-entropy-term-weight
grpo-filter-groups-with-same-reward grpo-group-size grpo-iterations grpo-kl-beta
grpo-prompts-per-step gtp-expert-remat-nccl-ub gtp-remat-nccl-ub gtp-remat-opt-in-modules
gtp-remat-reduce-scatter-with-fp32-accumulation gtp-weight-remat-size head-lr-mult
hetereogenous-dist-checkpoint heterogeneous-block-specs heterogeneous-layers-config-encoded-json
heterogeneous-layers-config-path hidden-dropout hidden-size hierarchical-context-parallel-sizes
high-priority-a2a-comm-stream high-priority-stream-groups hybrid-attention-ratio
hybrid-context-parallel hybrid-layer-pattern hybrid-mlp-ratio hybrid-override-pattern hysteresis
ict-head-size ict-load img-h img-w indexer-batch-size indexer-log-interval
inference-batch-times-seqlen-threshold inference-coordinator-port
inference-cuda-graph-all-prefills inference-cuda-graph-max-tokens inference-cuda-graph-scope
inference-disable-ep-consensus inference-disable-triton-nvls-kernels inference-dynamic-batching
inference-dynamic-batching-async-sched-mode inference-dynamic-batching-block-size
inference-dynamic-batching-buffer-guaranteed-fraction
inference-dynamic-batching-buffer-overflow-factor inference-dynamic-batching-buffer-size-gb
inference-dynamic-batching-chunk-size inference-dynamic-batching-cuda-graph-max-tokens
inference-dynamic-batching-cuda-graph-mixed-prefill-count
inference-dynamic-batching-cuda-graph-sizing-distribution
inference-dynamic-batching-logprobs-mode inference-dynamic-batching-mamba-memory-ratio
inference-dynamic-batching-max-requests inference-dynamic-batching-max-requests-override
inference-dynamic-batching-max-tokens inference-dynamic-batching-max-tokens-override
inference-dynamic-batching-num-cuda-graphs inference-dynamic-batching-paused-buffer-size-gb
inference-dynamic-batching-prefix-caching
inference-dynamic-batching-prefix-caching-coordinator-policy
inference-dynamic-batching-prefix-caching-eviction-policy
inference-dynamic-batching-prefix-caching-mamba-gb
inference-dynamic-batching-prefix-caching-routing-alpha
inference-dynamic-batching-sampling-backend
inference-dynamic-batching-track-generated-token-events
inference-dynamic-batching-track-paused-request-events
inference-dynamic-batching-unified-memory-level inference-fuse-tp-communication
inference-grouped-gemm-backend inference-logging-step-interval inference-max-batch-size
inference-max-requests inference-max-seq-length inference-moe-disable-fused-quant-kernels
inference-moe-token-dispatcher-type inference-rng-tracker inference-sampling-seed
inference-shards inference-text-gen-server-logging inference-use-synchronous-zmq-collectives
inference-wandb-logging init-method init-method-std init-method-xavier-uniform
init-model-with-meta-device initial-loss-scale inprocess-active-world-size
inprocess-barrier-timeout inprocess-completion-timeout inprocess-empty-cuda-cache
inprocess-granularity inprocess-hard-timeout inprocess-heartbeat-interval
inprocess-heartbeat-timeout inprocess-last-call-wait inprocess-max-iterations
inprocess-monitor-process-interval inprocess-monitor-thread-interval
inprocess-progress-watchdog-interval inprocess-restart inprocess-soft-timeout
inprocess-termination-grace-time is-hybrid-model iter-per-epoch iterations-to-skip
keep-fp8-transpose-cache keep-fp8-transpose-cache-when-using-custom-fsdp
kitchen-attention-backend kitchen-config-file kitchen-recipe-number kv-channels kv-lora-rank
langrl-env-config langrl-external-server langrl-inference-server-conversation-template
langrl-inference-server-type layernorm-epsilon layernorm-zero-centered-gamma lazy-mpu-init
legacy-tokenizer linear-attention-freq linear-conv-kernel-dim linear-key-head-dim
linear-num-key-heads linear-num-value-heads linear-value-head-dim lion-beta1 lion-beta2 load
load-main-params-from-ckpt load-model-opt-format load-optim load-rng local-rank
log-batch-size-to-tensorboard log-device-memory-used log-energy log-interval
log-l2-norm-grad-to-tensorboard log-loss-scale-to-tensorboard log-max-attention-logit
log-memory-interval log-memory-to-tensorboard log-num-zeros-in-grad log-params-norm log-progress
log-runtime-to-tensorboard log-straggler log-throughput log-throughput-to-tensorboard
log-timers-to-tensorboard log-validation-ppl-to-tensorboard log-world-size-to-tensorboard
logging-level logits-load-decode-threads logits-load-dir logits-load-ignore-errors
logits-load-kd-loss-alpha logits-load-msc-prefetch-depth logits-load-prefetch-factor
logits-save-dir logits-save-dtype logits-save-top-k logits-save-top-p logits-save-top-p-min-k
loss-scale loss-scale-window lr lr-decay-iters lr-decay-samples lr-decay-steps lr-decay-style
lr-warmup-fraction lr-warmup-init lr-warmup-iters lr-warmup-samples lr-warmup-steps
lr-wsd-decay-iters lr-wsd-decay-samples lr-wsd-decay-style main-grads-dtype main-params-dtype
make-vocab-size-divisible-by mamba-head-dim mamba-inference-conv-states-dtype
mamba-inference-ssm-states-dtype mamba-num-groups mamba-num-heads mamba-state-dim
mamba-training-ssm-states-dtype manual-gc manual-gc-eval manual-gc-interval mask-factor
mask-prob mask-type masked-softmax-fusion max-position-embeddings max-seqlen-per-dp-cp-rank
max-tokens-to-oom megatron-fsdp-enable-fine-grained-param-gather megatron-fsdp-grad-comm-dtype
megatron-fsdp-main-grads-dtype megatron-fsdp-main-params-dtype
megatron-fsdp-max-pool-double-buffer megatron-fsdp-version memory-efficient-layer-norm
memory-keys memory-snapshot-path merge-file metadata-path mhc-init-gating-factor
mhc-num-residual-streams mhc-recompute-layer-num mhc-sinkhorn-iterations micro-batch-size
microbatch-group-size-per-virtual-pipeline-stage microbatch-group-size-per-vp-stage
mid-level-dataset-surplus min-loss-scale min-lr min-offloaded-tensor-size mla-down-proj-fusion
mlp-chunks-for-prefill mlp-chunks-for-training mock-data model-parallel-size modules-to-filter
moe-apply-probs-on-input moe-aux-loss-coeff moe-combine-bwd-dtype moe-deepep-num-sms
moe-dispatch-fwd-dtype moe-enable-deepep moe-enable-routing-replay moe-expert-capacity-factor
moe-expert-rank-capacity-factor moe-extended-tp moe-ffn-hidden-size moe-flex-dispatcher-backend
moe-flex-dispatcher-num-sms moe-grad-scale-func moe-grouped-gemm moe-hybridep-num-blocks-permute
moe-hybridep-num-blocks-unpermute moe-hybridep-num-sms moe-hybridep-num-sms-preprocessing
moe-hybridep-pad-uneven-dispatch-inputs moe-input-jitter-eps moe-latent-size moe-layer-freq
moe-layer-recompute moe-mlp-glu-interleave-size moe-ncclep-static-shape moe-ncclep-zero-copy
moe-pad-expert-input-to-capacity moe-pad-experts-for-cuda-graph-inference moe-paged-stash
moe-paged-stash-buffer-size-factor-cpu moe-paged-stash-buffer-size-factor-cuda
moe-paged-stash-page-size moe-per-layer-logging moe-permute-fusion
moe-permute-fusion-into-hybridep moe-router-bias-update-rate moe-router-dtype
moe-router-enable-expert-bias moe-router-force-biased moe-router-force-load-balancing
moe-router-fusion moe-router-group-topk moe-router-load-balancing-type moe-router-num-groups
moe-router-padding-for-fp8 moe-router-padding-for-quantization moe-router-pre-softmax
moe-router-quantile-balancing-ema moe-router-score-function moe-router-topk
moe-router-topk-limited-devices moe-router-topk-scaling-factor
moe-routing-trace-capture-hidden-states moe-routing-trace-capture-logits
moe-routing-trace-dump-weights moe-routing-trace-max-training-iters moe-routing-trace-path
moe-shared-expert-gate moe-shared-expert-glu-interleave-size moe-shared-expert-intermediate-size
moe-shared-expert-overlap moe-single-grouped-bias moe-single-grouped-weight
moe-token-dispatcher-type moe-token-drop-policy moe-token-dropping moe-upcycling-granularity
moe-use-grouped-tensor moe-use-legacy-grouped-gemm moe-use-upcycling moe-z-loss-coeff
most-recent-k mrope-section mscale mscale-all-dim mtp-detach-heads mtp-grad-scale-func mtp-hsm
mtp-hybrid-override-pattern mtp-loss-scaling-factor mtp-num-layers mtp-standalone
mtp-use-repeated-layer multi-latent-attention multiple-validation-sets muon-coefficient-type
muon-extra-scale-factor muon-fp32-matmul-prec muon-momentum muon-nesterov muon-no-split-qkv
muon-num-ns-steps muon-scalar-optimizer muon-scale-mode muon-tp-mode muon-use-nesterov
muon-use-syrk mup-attn-scale-power mup-base-head-dim mup-base-hidden-size mup-embedding-mult
mup-output-mult mup-width-mult nccl-all-reduce-for-prefill nccl-communicator-config-path
no-add-bias-linear no-align-grad-reduce no-align-param-gather
no-async-tensor-model-parallel-allreduce no-attention-softmax-in-fp32 no-barrier-with-L1-time
no-barrier-with-level-1-timing no-batch-p2p-comm no-batch-p2p-sync no-bias-dropout-fusion
no-bias-gelu-fusion no-bias-swiglu-fusion no-check-for-nan-in-loss
no-check-for-nan-in-loss-and-grad no-ckpt-fully-parallel-save
no-ckpt-load-validate-sharding-integrity no-clone-scatter-output-in-embedding
no-cpu-offloading-activations no-create-attention-mask-in-dataloader
no-cuda-graph-use-single-mempool no-data-sharding no-delay-grad-reduce
no-dsa-indexer-rotate-activation no-dsa-indexer-scoring-relu no-filter-warnings
no-flight-recorder-dump-on-timeout no-flight-recorder-extra-dump-on-exec
no-flight-recorder-include-only-active no-fp8-wgrad no-fully-parallel-save
no-gradient-accumulation-fusion no-gradient-reduce-div-fusion no-initialization no-load-optim
no-load-rng no-log-learnig-rate-to-tensorboard no-log-loss-scale-to-tensorboard
no-manual-gc-eval no-masked-softmax-fusion no-mmap-bin-files no-one-logger
no-overlap-p2p-communication no-pad-vocab-size no-perform-initialization no-persist-layer-norm
no-pin-cpu-grads no-pin-cpu-params no-position-embedding no-rope-freq no-rope-fusion
no-save-optim no-save-rng no-save-tokenizer-assets no-scatter-gather-tensors-in-pipeline
no-stream-ckpt-dequant no-strict-fsdp-dtensor-load no-sync-func
no-tokenizer-sentencepiece-ignore-extra-whitespaces no-tp-comm-bulk-dgrad no-tp-comm-bulk-wgrad
no-tp-comm-overlap-ag no-tp-comm-overlap-rs no-tp-comm-split-ag no-tp-comm-split-rs
no-use-gloo-process-groups no-use-layer-wise-param-layout no-use-mamba-mem-eff-path
no-use-tokenizer-model-from-checkpoint-args no-weight-decay-cond-type
no-yarn-correction-range-round-to-int non-persistent-ckpt-type non-persistent-global-ckpt-dir
non-persistent-local-ckpt-algo non-persistent-local-ckpt-dir non-persistent-save-interval
norm-epsilon normalization null-tokenizer-eod-id null-tokenizer-pad-id num-attention-heads
num-channels num-classes num-dataset-builder-threads num-distributed-optimizer-instances
num-experts num-layers num-layers-at-end-in-bf16 num-layers-at-start-in-bf16
num-layers-in-first-pipeline-stage num-layers-in-last-pipeline-stage
num-layers-per-virtual-pipeline-stage num-microbatches-with-partial-activation-checkpoints
num-moe-experts num-query-groups num-speculative-tokens num-virtual-stages-per-pipeline-rank
num-workers nvtx-ranges object-storage-cache-path offload-modules one-logger-async
one-logger-entity one-logger-project one-logger-run-name onnx-safe openai-gelu optimizer
optimizer-cpu-offload optimizer-cuda-graph optimizer-offload-fraction otel-enabled
otel-service-name otel-span-groups outer-dp-sharding-strategy output-bert-embeddings
output-layer-init-method output-logit-dtype overlap-cpu-optimizer-d2h-h2d
overlap-dispatch-backward-with-experts-wgrad overlap-grad-reduce
overlap-moe-expert-parallel-comm overlap-p2p-comm overlap-p2p-comm-warmup-flush
overlap-p2p-communication-warmup-flush overlap-param-gather
overlap-param-gather-with-optimizer-step override-ckpt-iteration override-opt-param-scheduler
pad-vocab-size padded-vocab-size param-sync-func params-dtype patch-dim
per-dataset-sequences-path per-split-data-args-path perform-initialization perform-rl-step
persist-layer-norm persistent-save-interval phase-transition-iterations pipeline-dtype
pipeline-model-parallel-comm-backend pipeline-model-parallel-layout pipeline-model-parallel-size
pipeline-model-parallel-split-rank position-embedding-type pretrained-checkpoint profile
profile-ranks profile-step-end profile-step-start pytorch-profiler-collect-callstack
pytorch-profiler-collect-chakra pytorch-profiler-collect-shapes q-lora-rank qk-clip
qk-clip-alpha qk-clip-threshold qk-head-dim qk-l2-norm qk-layernorm qk-pos-emb-head-dim
quant-recipe query-in-block-prob quick-geglu rampup-batch-size recompute-activations
recompute-granularity recompute-method recompute-modules recompute-num-layers
record-memory-history record-shapes refit-method relative-attention-max-distance
relative-attention-num-buckets replication replication-factor replication-jump rerun-mode
reset-attention-mask reset-position-ids result-rejected-tracker-filename
retriever-report-topk-accuracies retriever-score-scaling retriever-seq-length
retro-add-retriever retro-attention-gate retro-cyclic-train-iters
retro-encoder-attention-dropout retro-encoder-hidden-dropout retro-encoder-layers
retro-no-verify-neighbor-count retro-num-neighbors retro-num-retrieved-chunks retro-project-dir
retro-return-doc-ids retro-workdir reuse-grad-buf-for-mxfp8-param-ag
rl-calculate-intra-group-similarity rl-consumption-granularity rl-default-temperature
rl-default-top-k rl-default-top-p rl-durable-rollout-bank rl-generation-batch-size
rl-generation-lag rl-importance-sampling-truncation-coef rl-inference-expert-model-parallel-size
rl-inference-expert-tensor-model-parallel-size rl-inference-logprobs-is-correction
rl-inference-model-unified-memory-level rl-inference-parsers
rl-inference-pipeline-model-parallel-size rl-inference-tensor-model-parallel-size
rl-kv-cache-management-mode rl-max-inflight-requests rl-num-parallel-generation-batches
rl-num-parallel-generations rl-offload-inference-model-weights-when-idle
rl-offload-kv-cache-during-training rl-offload-optimizer-during-inference
rl-parallel-generation-tasks rl-partial-rollouts rl-persist-cuda-graphs rl-profile
rl-profile-dir rl-prompts-per-eval rl-remove-kv-cache-during-training rl-reset-cuda-graphs
rl-rollout-bank-dir rl-rollout-bank-max-bytes rl-sequence-packing-algo
rl-sequence-packing-bin-size rl-sequence-packing-max-sequences-per-bin rl-skip-bos-token
rl-submission-granularity rl-training-cuda-graphs rl-use-sequence-packing
rl-verify-model-weights-swap rope-scaling-factor rope-type rotary-base rotary-interleaved
rotary-percent rotary-scaling-factor rotary-seq-len-interpolation-factor
run-workload-inspector-server runtime-time-unit s3-cache-path sample-rate save
save-activations-interval save-config-filepath save-dgrads-interval save-interval save-optim
save-params-interval save-retain-interval save-rng save-tokenizer-assets
save-tokens-per-expert-interval save-wgrads-interval seed seq-length sequence-parallel
set-level-for-all-loggers sft sft-tokenizer-prompt-format sgd-momentum sharp-enabled-group
short-seq-prob skip-train softmax-scale softmax-type spec special-tokens split squared-relu
standalone-embedding-stage start-eval-at-iter start-weight-decay step-batch-size-schedule
straggler-ctrlr-port straggler-minmax-count stream-ckpt-dequant strict-fsdp-dtensor-load
suggested-communication-unit-size swiglu swin-backbone-type symmetric-ar-type
te-precision-config-file te-rng-tracker tensor-model-parallel-size
tensor-parallel-num-weight-shards tensorboard-dir tensorboard-log-interval
tensorboard-queue-size test-data-path test-mode throughput-window-size
tiktoken-num-special-tokens tiktoken-pattern tiktoken-special-tokens timers timing-log-level
timing-log-option titles-data-path tokenizer-hf-include-special-tokens
tokenizer-hf-no-include-special-tokens tokenizer-hf-no-use-fast tokenizer-hf-use-fast
tokenizer-metadata tokenizer-model tokenizer-sentencepiece-ignore-extra-whitespaces
tokenizer-sentencepiece-legacy tokenizer-special-tokens tokenizer-type
torch-fsdp2-no-reshard-after-forward tp-comm-atomic-ag tp-comm-atomic-rs
tp-comm-bootstrap-backend tp-comm-bulk-dgrad tp-comm-bulk-wgrad tp-comm-overlap
tp-comm-overlap-ag tp-comm-overlap-cfg tp-comm-overlap-disable-fc1 tp-comm-overlap-disable-qkv
tp-comm-overlap-rs tp-comm-overlap-rs-dgrad tp-comm-split-ag tp-comm-split-rs tp-only-amax-red
train-data-path train-iters train-samples train-sync-interval transformer-impl trust-remote-code
untie-embeddings-and-output-weights use-checkpoint-args use-checkpoint-opt-param-scheduler
use-cpu-initialization use-custom-fsdp use-dist-ckpt use-distributed-optimizer use-flash-attn
use-fused-weighted-squared-relu use-gigatoken use-gloo-process-groups
use-grouped-gemm-for-dense-mlp use-grouped-gemm-for-shared-expert use-inference-optimized-layers
use-kitchen use-kitchen-attention use-legacy-models use-legacy-static-engine
use-mamba-mem-eff-path use-mcore-models use-megatron-fsdp use-mp-args-from-checkpoint-args
use-mup use-nccl-ub use-nsys-profiler use-one-sent-docs use-persistent-ckpt-worker
use-precision-aware-optimizer use-pytorch-profiler use-ring-exchange-p2p use-rope-scaling
use-rotary-position-embeddings use-same-sampling-seed-across-dp-ranks use-sharp
use-te-activation-func use-te-rng-tracker use-tokenizer-model-from-checkpoint-args
use-torch-fsdp2 use-torch-optimizer-for-cpu-offload use-tp-pp-dp-mapping
use-transformer-engine-op-fuser v-head-dim valid-data-path validation-set-names
variable-seq-lengths verify-integrity virtual-pipeline-model-parallel-size vision-backbone-type
vision-pretraining vision-pretraining-type vocab-extra-ids vocab-file vocab-size wandb-entity
wandb-exp-name wandb-project wandb-save-dir warmup wd-incr-steps weight-decay
weight-decay-incr-style wgrad-deferral-limit window-attn-skip-freq window-size wsd-decay-steps
yaml-cfg yarn-beta-fast yarn-beta-slow yarn-correction-range-round-to-int
yarn-original-max-position-embeddings
"""
FLAGS: Final = frozenset([*_TORCHRUN.split(), *_MEGATRON.split()])
