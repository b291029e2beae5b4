"""What is computed: a frozen Model read from a Hugging Face config.json.

architecture.py  Model, Block, and the counts of their weights
layers.py        Attention, Recurrent, Ffn, Experts
parameters.py    every weight of a layer by named dimension
adapters.py      the low-rank matrices beside linear layers (LoRA)
freezing.py      first layers that are not trained
redundant.py     copies of experts that keep ranks even
predicting.py    modules that predict further tokens in training
drafting.py      networks that draft tokens for a model that is served
config.py        config.json as untrusted text
quantization.py  the number format in which a checkpoint is released
checkpoints.py   and the one that its name tells
beyond.py        what a checkpoint is beyond a language model
families/        one reader per model_type
read.py          a catalog name, a config.json or a folder as a Model
"""

from trueflops.model.adapters import ADDED as ADDED
from trueflops.model.adapters import SCALED as SCALED
from trueflops.model.adapters import adapted_together as adapted_together
from trueflops.model.adapters import adapter_count as adapter_count
from trueflops.model.adapters import adapter_parameters as adapter_parameters
from trueflops.model.adapters import is_adapter as is_adapter
from trueflops.model.adapters import is_adapting as is_adapting
from trueflops.model.adapters import is_target as is_target
from trueflops.model.adapters import read_targets as read_targets
from trueflops.model.architecture import Block as Block
from trueflops.model.architecture import Model as Model
from trueflops.model.drafting import drafting_head as drafting_head
from trueflops.model.drafting import prediction_module as prediction_module
from trueflops.model.freezing import freeze_first as freeze_first
from trueflops.model.freezing import trained_count as trained_count
from trueflops.model.layers import Attention as Attention
from trueflops.model.layers import Experts as Experts
from trueflops.model.layers import Ffn as Ffn
from trueflops.model.layers import Indexer as Indexer
from trueflops.model.layers import Latent as Latent
from trueflops.model.layers import Pooled as Pooled
from trueflops.model.layers import Recurrent as Recurrent
from trueflops.model.parameters import Parameter as Parameter
from trueflops.model.predicting import predict_further as predict_further
from trueflops.model.read import another_model as another_model
from trueflops.model.read import known_model as known_model
from trueflops.model.read import read_model as read_model
from trueflops.model.redundant import add_copies as add_copies
