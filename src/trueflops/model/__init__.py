"""What is computed: a frozen Model read from a Hugging Face config.json.

architecture.py  Model, Block, and the counts of their weights
layers.py        Attention, Ffn, Experts
parameters.py    every weight of a layer by named dimension
config.py        config.json as untrusted text
quantization.py  the number format in which a checkpoint is released
families/        one reader per model_type
read.py          a catalog name, a config.json or a folder as a Model
"""

from trueflops.model.architecture import Block as Block
from trueflops.model.architecture import Model as Model
from trueflops.model.layers import Attention as Attention
from trueflops.model.layers import Experts as Experts
from trueflops.model.layers import Ffn as Ffn
from trueflops.model.layers import Latent as Latent
from trueflops.model.parameters import Parameter as Parameter
from trueflops.model.read import read_model as read_model
