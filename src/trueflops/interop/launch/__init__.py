"""Files with which other tools start a plan, written and read back.

settings.py    what a file says: values by key, with lines; refusals
texts.py       JSON, TOML, YAML and flags, to and from settings
shell.py       the script that starts a plan on each node
core.py        megatron-core's settings, which two tools take; core_stages.py: its pipeline;
               core_graphs.py: its CUDA graphs; core_model.py: the model that they describe
megatron.py      Megatron-LM, as flags; megatron_model.py: those of a model; megatron_flags.py:
               the names of all
nemo.py          NeMo (Megatron-Bridge), as YAML
torchtitan.py  flags of 0.3 and the job config of 0.2; torchtitan_stages.py: its pipeline
deepspeed.py   its config as JSON; trainer.py: what it leaves to the program, TRL's SFT script or
               another; deepspeed_auto.py: what the Trainer fills in
accelerate.py  its config as YAML, beside the same program
tuned.py       what configs of fine-tuning programs share; tuned_layers.py: adapters and frozen
               layers; tuners.py: which program it is
axolotl.py     its config, axolotl_keys.py: the keys of it that are refused, told or nothing
llamafactory.py  the same of LLaMA-Factory, llamafactory_keys.py; torchtune.py: of its recipes
slurm.py       a batch script around any of these
writing.py     the files of a tool by its name
reading.py     which tool a file is of, and what it says; named.py: files that a file names
"""

from trueflops.interop.launch.reading import read_launch as read_launch
from trueflops.interop.launch.settings import Asked as Asked
from trueflops.interop.launch.settings import Found as Found
from trueflops.interop.launch.settings import Written as Written
from trueflops.interop.launch.writing import TOOLS as TOOLS
from trueflops.interop.launch.writing import framework_of as framework_of
from trueflops.interop.launch.writing import usual_of as usual_of
from trueflops.interop.launch.writing import writable as writable
from trueflops.interop.launch.writing import write_launch as write_launch
