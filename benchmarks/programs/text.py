"""Language models of transformers beyond Llama, from configs of the published sizes."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    OPTConfig,
    OPTForCausalLM,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
)  # fmt: skip

from programs.kit import Step, fused, made, program, tokens, training

BF16 = torch.bfloat16


def language(model: Any, batch: int, seq: int, **how: Any) -> Step:
    """Train on random tokens, each its own label."""
    ids = tokens(model.config.vocab_size, batch, seq)
    return training(model.parameters(), lambda: model(input_ids=ids, labels=ids).loss, **how)


@program("bert")
def bert_mlm() -> Step:
    """BERT-base with its vocabulary of 30522, bf16 autocast, with padding masked."""
    model = made(BertForMaskedLM, BertConfig())
    ids = tokens(30522, 32, 512)
    mask = torch.ones_like(ids)
    return training(
        model.parameters(), lambda: model(input_ids=ids, attention_mask=mask, labels=ids).loss,
        mixed=BF16, clip=1.0,
    )  # fmt: skip


@program("bert")
def bert_small_fp32() -> Step:
    """Four layers of 512 on short texts in fp32: bound by launches."""
    config = BertConfig(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048
    )
    return language(made(BertForMaskedLM, config), 8, 64)


@program("bert")
def roberta_classify() -> Step:
    """RoBERTa-base as it is fine-tuned: fp16 with a scaler, 128 tokens."""
    config = RobertaConfig(vocab_size=50265, max_position_embeddings=514, num_labels=2)
    model = made(RobertaForSequenceClassification, config)
    ids, mask = tokens(50000, 64, 128) + 4, torch.ones(64, 128, device="cuda", dtype=torch.long)
    labels = tokens(2, 64)
    return training(
        model.parameters(), lambda: model(input_ids=ids, attention_mask=mask, labels=labels).loss,
        mixed=torch.float16, scaled=True, clip=1.0,
    )  # fmt: skip


@program("deberta", "modeling_utils.py:4608=false")  # no id is that of padding
def deberta_v3() -> Step:
    """DeBERTa-v3-base: attention to relative positions, written out."""
    config = DebertaV2Config(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
        relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm",
        share_att_key=True, pos_att_type="p2c|c2p", position_biased_input=False,
        max_relative_positions=-1, type_vocab_size=0,
    )  # fmt: skip
    return language(made(DebertaV2ForMaskedLM, config), 8, 256, mixed=BF16)


@program("gpt")
def gpt2() -> Step:
    """GPT-2 with its vocabulary of 50257, everything in bf16."""
    return language(made(GPT2LMHeadModel, GPT2Config(use_cache=False)).to(BF16), 8, 1024)


@program("gpt")
def gpt2_autocast() -> Step:
    """GPT-2 medium in autocast with fused AdamW and clipping."""
    config = GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False)
    return language(
        made(GPT2LMHeadModel, config), 4, 1024, mixed=BF16, optimizer=fused, clip=1.0
    )  # fmt: skip


@program("gpt")
def opt_350m() -> Step:
    """OPT-350M: a word embedding narrower than the model, norms after."""
    config = OPTConfig(
        hidden_size=1024, num_hidden_layers=24, ffn_dim=4096, num_attention_heads=16,
        word_embed_proj_dim=512, do_layer_norm_before=False, use_cache=False, layerdrop=0.0,
    )  # fmt: skip
    return language(made(OPTForCausalLM, config).to(BF16), 8, 512)


@program("encoder-decoder")
def t5_base() -> Step:
    """T5-base: biases of relative positions that are trained, no scale."""
    config = T5Config(
        d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0,
        use_cache=False,
    )  # fmt: skip
    model = made(T5ForConditionalGeneration, config)
    ids, labels = tokens(32000, 16, 512), tokens(32000, 16, 128)
    return training(
        model.parameters(), lambda: model(input_ids=ids, labels=labels).loss, mixed=BF16
    )


@program("encoder-decoder")
def bart_base() -> Step:
    """BART-base with its vocabulary of 50265."""
    config = BartConfig(
        d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12,
        decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072, use_cache=False,
    )  # fmt: skip
    model = made(BartForConditionalGeneration, config)
    ids, labels = tokens(50000, 16, 512), tokens(50000, 16, 128)
    return training(
        model.parameters(), lambda: model(input_ids=ids, labels=labels).loss, mixed=BF16
    )
