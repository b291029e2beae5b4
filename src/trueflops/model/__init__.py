"""What is computed: a frozen Model read from a Hugging Face config.json.

architecture.py  Model, Block, Attention, Ffn, Experts
parameters.py    every weight's shape by named dimension, and the counts
config.py        config.json as untrusted text
quantization.py  the number format in which a checkpoint is released
families/        one reader per model_type
read.py          a catalog name, a config.json or a folder as a Model
"""

from trueflops.model.architecture import Attention as Attention
from trueflops.model.architecture import Block as Block
from trueflops.model.architecture import Experts as Experts
from trueflops.model.architecture import Ffn as Ffn
from trueflops.model.architecture import Latent as Latent
from trueflops.model.architecture import Model as Model
from trueflops.model.parameters import Parameter as Parameter
from trueflops.model.read import read_model as read_model
