"""Image models of transformers, from configs of the published sizes."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    ConvNextConfig,
    ConvNextForImageClassification,
    DetrConfig,
    DetrForObjectDetection,
    EfficientNetConfig,
    EfficientNetForImageClassification,
    MobileNetV2Config,
    MobileNetV2ForImageClassification,
    RegNetConfig,
    RegNetForImageClassification,
    ResNetConfig,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    SwinConfig,
    SwinForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)  # fmt: skip

from programs.kit import Step, fused, made, noise, program, sgd, tokens, training

BF16 = torch.bfloat16


def labelled(kind: Any, config: Any, batch: int, side: int = 224, **how: Any) -> Step:
    """Train on random images with the model's own loss."""
    config.num_labels = 1000
    model = made(kind, config)
    images, labels = noise(batch, 3, side, side), tokens(1000, batch)
    return training(
        model.parameters(), lambda: model(pixel_values=images, labels=labels).loss, **how
    )


@program("vit")
def vit_base() -> Step:
    """ViT-B/16 in bf16 autocast: 197 tokens, an odd number."""
    return labelled(ViTForImageClassification, ViTConfig(), 64, mixed=BF16, clip=1.0)


@program("vit")
def vit_small_fp32() -> Step:
    """ViT-S/16 in fp32."""
    config = ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536)
    return labelled(ViTForImageClassification, config, 32)


@program("windowed")
def swin_tiny() -> Step:
    """Attention in windows of 7 × 7, rolled and masked."""
    return labelled(SwinForImageClassification, SwinConfig(drop_path_rate=0.0), 64, mixed=BF16)


@program("windowed")
def segformer() -> Step:
    """MiT-b1 and its light head on 512-pixel images: reduced attention, depthwise, up-sampling."""
    config = SegformerConfig(
        hidden_sizes=[64, 128, 320, 512], decoder_hidden_size=256, num_labels=150
    )
    model = made(SegformerForSemanticSegmentation, config)
    images, labels = noise(8, 3, 512, 512), tokens(150, 8, 512, 512)
    return training(
        model.parameters(), lambda: model(pixel_values=images, labels=labels).loss, mixed=BF16
    )


@program("convnext")
def convnext_tiny() -> Step:
    """Depthwise 7 × 7, layer norm over channels, GELU."""
    return labelled(ConvNextForImageClassification, ConvNextConfig(), 64, mixed=BF16)


@program("residual")
def regnet() -> Step:
    """RegNetY-4GF: grouped convolutions with gates."""
    config = RegNetConfig(hidden_sizes=[128, 192, 512, 1088], depths=[2, 6, 12, 2], groups_width=64)
    return labelled(RegNetForImageClassification, config, 64, mixed=BF16, optimizer=sgd)


@program("depthwise")
def mobilenet_v2() -> Step:
    """Depthwise convolutions in fp32."""
    return labelled(MobileNetV2ForImageClassification, MobileNetV2Config(), 96, optimizer=sgd)


@program("depthwise")
def efficientnet_b0() -> Step:
    """Depthwise convolutions, gates and SiLU in bf16 autocast."""
    config = EfficientNetConfig(
        image_size=224, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280,
        dropout_rate=0.2,
    )  # fmt: skip
    return labelled(EfficientNetForImageClassification, config, 64, mixed=BF16)


@program("clip")
def clip_base() -> Step:
    """CLIP ViT-B/32, its text tower and the loss over all pairs, in bf16 autocast."""
    model = made(CLIPModel, CLIPConfig())
    images, ids = noise(128, 3, 224, 224), tokens(49000, 128, 77)
    ids[:, -1] = 49407  # the end of a text, which is where the text tower is read
    return training(
        model.parameters(),
        lambda: model(input_ids=ids, pixel_values=images, return_loss=True).loss,
        fused, mixed=BF16,
    )  # fmt: skip


@program("detection", "masking_utils.py:333=true")  # nothing is masked
def detr() -> Step:
    """DETR with a ResNet-50; the loss is over all queries, as matching needs values."""
    config = DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, num_labels=91,
        backbone_config=ResNetConfig(out_features=["stage4"]),
    )  # fmt: skip
    model = made(DetrForObjectDetection, config)
    images, seen = noise(4, 3, 800, 800), torch.ones(4, 800, 800, device="cuda", dtype=torch.long)
    classes, boxes = tokens(91, 4, 100), torch.rand(4, 100, 4, device="cuda")

    def loss() -> torch.Tensor:
        found = model(pixel_values=images, pixel_mask=seen)
        named = torch.nn.functional.cross_entropy(found.logits.flatten(0, 1), classes.flatten())
        return named + 5.0 * torch.nn.functional.l1_loss(found.pred_boxes, boxes)

    return training(model.parameters(), loss, clip=0.1)
