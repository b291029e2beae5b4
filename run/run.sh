#!/usr/bin/env bash
# trueflops: Llama-3.1-70B on 64xH100 for Megatron-LM core_v0.16.1
# tp 8 · sp · pp 4 · dp 2 · zero 1 · mb 1 · gradient-dtype fp32 · mixed engine · seq 8192 · global batch 512
# On each node, with NODE_RANK and MASTER_ADDR set; other flags may follow.
set -euo pipefail
HERE=$(dirname "$0")
NNODES=${NNODES:-8}
GPUS=${GPUS:-8}
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-29500}
export CUDA_DEVICE_MAX_CONNECTIONS=1
# LR and DATA (--data-path …, --tokenizer-type …) are no part of a plan: set them.
PROGRAM=${PROGRAM:-pretrain_gpt.py}
torchrun --nnodes "$NNODES" --node_rank "$NODE_RANK" --nproc_per_node "$GPUS" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" "$PROGRAM" \
  --tensor-model-parallel-size 8 \
  --context-parallel-size 1 \
  --pipeline-model-parallel-size 4 \
  --micro-batch-size 1 \
  --global-batch-size 512 \
  --train-iters 336427 \
  --sequence-parallel \
  --attention-backend auto \
  --bf16 \
  --fp8-recipe delayed \
  --cross-entropy-fusion-impl native \
  --optimizer adam \
  --optimizer-offload-fraction 0.0 \
  --use-distributed-optimizer \
  --overlap-grad-reduce \
  --overlap-param-gather \
  --accumulate-allreduce-grads-in-fp32 \
  --seq-length 8192 \
  --num-layers 80 \
  --hidden-size 8192 \
  --ffn-hidden-size 28672 \
  --num-attention-heads 64 \
  --kv-channels 128 \
  --group-query-attention \
  --num-query-groups 8 \
  --max-position-embeddings 131072 \
  --position-embedding-type rope \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --hidden-dropout 0.0 \
  --attention-dropout 0.0 \
  --lr "${LR:-3e-4}" \
  ${DATA:---mock-data --tokenizer-type NullTokenizer --vocab-size 128255} \
  "$@"
