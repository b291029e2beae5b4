"""Programs of many kinds, each a function that builds everything and returns its step.

kit.py        the list of programs, families and their split, one way of training
images.py     convolutional networks in plain torch      vision.py     Hugging Face's image models
text.py       encoders, decoders, encoder-decoders       audio.py      speech and sound
generative.py U-Nets, DCGAN, DiT                         sparse.py     graphs, points, recommenders
sequence.py   recurrent nets, nn.Transformer, Mamba      adapted.py    LoRA, decoding, MoE, compiled
Sizes are those of the published models, or of a smaller sibling; weights and data are random.
"""

from programs import adapted, audio, generative, images, sequence, sparse, text, vision
from programs.kit import FAMILIES, PROGRAMS, Program

__all__ = [
    "FAMILIES", "PROGRAMS", "Program",
    "adapted", "audio", "generative", "images", "sequence", "sparse", "text", "vision",
]  # fmt: skip
