"""What the Trainer fills into a config of DeepSpeed that says "auto", from the program's flags.

As transformers 5.22.2 does: integrations/deepspeed.py, HfTrainerDeepSpeedConfig
(trainer_config_process and trainer_config_finalize). What a config and a flag both say must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from trueflops.errors import BadInput
from trueflops.interop.launch import trainer
from trueflops.interop.launch.settings import Said
from trueflops.language import say
from trueflops.model import Model

WHOLE: Final = "train_batch_size"
MICRO: Final = "train_micro_batch_size_per_gpu"
STEPS: Final = "gradient_accumulation_steps"
BUCKET: Final = "zero_optimization.reduce_bucket_size"
_FLAGS: Final = {MICRO: "per_device_train_batch_size", STEPS: "gradient_accumulation_steps"}
_HALVES: Final = {"bf16.enabled": "bf16", "fp16.enabled": "fp16"}
_UNSAID: Final = (None, "auto")


class Filled(NamedTuple):
    """A config without "auto", flags of the program whose default that took, and notes."""

    config: Said
    taken: tuple[str, ...]
    notes: tuple[str, ...]


def fill(said: Said, model: Model, program: Said | None) -> Filled:
    """A config as the Trainer completes it; without a program, half precision is assumed."""
    values = dict(said.values)
    if values.get(BUCKET) == "auto":
        values[BUCKET] = model.hidden**2
    autos = [key for key in _HALVES if values.get(key) == "auto"]
    if program is None:
        if not autos:
            return Filled(replace(said, values=values), (), ())
        given = any(key not in autos and said.values.get(key) is True for key in _HALVES)
        values |= {key: key == autos[0] and not given for key in autos}
        notes = [
            say(
                "{place}: {name} is auto, taken as {value}; the program's --bf16 or --fp16 says it",
                place=said.place(key),
                name=key,
                value=str(values[key]).lower(),
            )
            for key in autos
        ]
        return Filled(replace(said, values=values), (), tuple(notes))
    half = trainer.half_of(program)
    values |= {key: half == _HALVES[key] for key in autos}
    unsaid = autos and program.get("bf16") is None and program.get("fp16") is None
    batch = _batch(said, program)
    taken = [_FLAGS[key] for key in batch if program.get(_FLAGS[key]) is None]
    config = replace(said, values={**values, **batch})
    return Filled(config, (*taken, *(["bf16"] if unsaid else [])), ())


def _batch(said: Said, program: Said) -> Mapping[str, Any]:
    """The sizes that the config leaves to the program."""
    flags = dict(zip(_FLAGS, trainer.batch_of(program), strict=True))
    alone = all(said.values.get(key) in _UNSAID for key in (WHOLE, MICRO))
    filled = {}
    for key, value in flags.items():
        own, flag = said.values.get(key), _FLAGS[key]
        stated = program.get(flag) is not None
        if own not in _UNSAID:
            if stated and own != value:
                raise BadInput(
                    say(
                        "{place}: {name} is {own}, and the program says --{flag} {value}, which "
                        "the Trainer refuses; write auto there",
                        place=said.place(key),
                        name=said.spelt.get(key, key),
                        own=own,
                        flag=flag,
                        value=value,
                    )
                )
        elif stated or own == "auto" or (alone and key == MICRO):
            filled[key] = value
    return filled
