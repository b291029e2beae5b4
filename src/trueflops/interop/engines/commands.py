"""A command line that starts an engine: read into a Deployed, and its words written.

>>> from trueflops.interop.engines import read_command
>>> said = read_command("vllm serve meta-llama/Llama-3.1-8B -tp 2 --max-num-seqs 64 --foo 1")
>>> said.engine, said.model, said.tp, said.max_num_seqs, said.ignored
('vllm', 'meta-llama/Llama-3.1-8B', 2, 64, ('--foo 1',))
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from trueflops.errors import BadInput, join_or, printable, shorten
from trueflops.interop.engines.deployed import VOCABULARIES, Deployed, Vocabulary
from trueflops.interop.engines.drafts import JSON_FLAG, keys_of, method_of, settle_drafts
from trueflops.interop.engines.partition import FLAGS, read_partition, settle
from trueflops.interop.variables import Variables
from trueflops.language import say
from trueflops.units import GIGA, read_number

WHOLE: Final = ("tp", "pp", "dp", "ep", "dcp", "max_model_len", "block_size", "max_num_seqs",
                "max_num_batched_tokens")  # fmt: skip
LARGEST: Final = int(GIGA)
_ENDS: Final = re.compile(r"--?[A-Za-z]|[&|;>]|\$@")  # where a flag has no value
END: Final = ";"
_ENDING: Final = (END, "&", "&&", "||", "|", ">", "2>&1")  # what ends a command
_THOUSANDS: Final = {"k": 1000, "m": 1_000_000, "K": 1024, "M": 1024**2}


def read_command(text: str, engine: str = "", where: str = "") -> Deployed:
    """What a command, or a script that holds one, says; flags alone where the engine is named.

    Flags that nothing answers to are named in `ignored`.
    """
    where = where or say("the command")
    words = list(_words(text, where))
    ignored: list[str] = []
    if engine:
        words = _until_end([word for word in words if word != END])
    else:
        engine, words, ignored = _started(words, where)
    spoken = VOCABULARIES.get(engine)
    if spoken is None:
        raise BadInput(
            say(
                "{where}: no flags of {engine!r} are known; write {known}",
                where=where,
                engine=engine,
                known=_known(),
            )
        )
    said: dict[str, Any] = read_partition(text)
    fields = {_dashed(flag): field for field, flags in spoken.flags.items() for flag in flags}
    for flag, value in _one_by_one(_pairs(words, spoken)):
        if not flag:
            said.setdefault("model", value)
        elif field := fields.get(flag):
            if not _take(said, field, flag, value, engine, where):
                ignored.append(f"--{flag} {value}".strip())
        elif flag in ("enable-dp-attention", "enable-attention-dp"):
            said["dp_attention"] = True
        elif engine == "llama.cpp" and flag in FLAGS:
            said[FLAGS[flag]] = value
        elif flag not in spoken.harmless:
            ignored.append(f"--{flag} {value}".strip())
    return settled(engine, said, tuple(printable(shorten(each, 60)) for each in ignored))


def settled(engine: str, said: dict[str, Any], ignored: tuple[str, ...]) -> Deployed:
    """What an engine's words mean together."""
    attention = said.pop("dp_attention", False)
    if engine == "sglang" and said.get("dp", 1) == 1:  # off then: _handle_data_parallelism
        attention = False
    ranks = said.get("tp", 1) * said.get("dp", 1)
    if engine == "vllm" and said.get("ep"):  # experts lie on all ranks
        said["ep"] = ranks
    elif engine == "vllm" and said.get("dp", 1) > 1:  # docs/serving/data_parallel_deployment.md:
        said["etp"] = ranks  # by default expert layers are a tensor-parallel group of dp x tp
    if attention and engine in ("sglang", "trt-llm"):  # tp there counts all ranks
        ranks = said.get("tp", 1)
        dp = said.get("dp") or ranks
        said["tp"], said["dp"] = max(ranks // dp, 1), dp
        if said.get("ep", 1) < ranks:  # moe_tp_size is what ep leaves of all ranks
            said["etp"] = ranks // said.get("ep", 1)
        for shared in ("max_num_seqs", "max_num_batched_tokens") if engine == "sglang" else ():
            if shared in said:  # of all replicas: server_args.py, kv_cache_configurator.py
                said[shared] = max(said[shared] // dp, 1)
    ignored += settle(said) if engine == "llama.cpp" else ()
    settle_drafts(engine, said)
    if engine == "llama.cpp" and said.get("max_model_len"):  # of all slots together
        said["max_model_len"] = max(said["max_model_len"] // said.get("max_num_seqs", 1), 1)
    return Deployed(engine, **said, ignored=ignored)


_NAMED: Final = ("weights", "cache", "speculate")


def _words_for(field: str, spoken: Vocabulary) -> Mapping[str, str]:
    """What the values of a field are called."""
    return {"weights": spoken.weights, "cache": spoken.caches}.get(field, spoken.methods)


def _one_by_one(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Flags and values; of one whose value holds several keys, each for itself."""
    for flag, value in pairs:
        if flag == JSON_FLAG and (several := list(keys_of(value))):
            yield from ((_dashed(each), own) for each, own in several)
        else:
            yield flag, value


def flag_words(deployed: Deployed) -> list[str]:
    """The flags that say it, `--flag value` each; the model is left out."""
    spoken = VOCABULARIES[deployed.engine]
    words = []
    for field, flags in spoken.flags.items():
        value = getattr(deployed, field)
        if field == "model" or value is None or (value == 1 and field in ("pp", "dp", "ep", "dcp")):
            continue
        flag = f"--{flags[0]}"
        if flags[0] in spoken.switches:
            words += [flag] if value and (value > 1 or field != "ep") else []
        elif field in _NAMED:
            words.append(f"{flag} {theirs(_words_for(field, spoken), value, field)}")
        else:
            words.append(f"{flag} {value:g}" if isinstance(value, float) else f"{flag} {value}")
    return words


def theirs(words: Mapping[str, str], ours: str, field: str) -> str:
    """The engine's word for one of our formats."""
    for word, meant in words.items():
        if meant == ours:
            return word
    raise BadInput(
        say(
            "--{field} {ours}: this engine has no word for it; {instead}",
            field=field,
            ours=ours,
            instead=_one_of(words),
        )
    )


def _one_of(words: Mapping[str, str]) -> str:
    known = list(dict.fromkeys(words.values()))
    return say("write {known}", known=join_or(known)) if known else say("it follows the checkpoint")


def _take(said: dict[str, Any], field: str, flag: str, value: str, engine: str, where: str) -> bool:
    """One flag; False where its word is not one of ours."""
    spoken = VOCABULARIES[engine]
    if field == "model":
        said["model"] = value
    elif flag in spoken.switches:
        said[field] = 1
    elif field == "draft_model":
        said[field] = value
    elif field == "speculate":
        said[field] = method_of(value, engine)
        return said[field] is not None
    elif field in _NAMED:
        words = _words_for(field, spoken)
        if value in words:
            said[field] = words[value]
        return value in words or value == "auto"
    elif field == "memory_share":
        said[field] = share_of(value, f"{where}: --{flag}")
    elif field == "cpu_offload_gb":
        return _offloaded(said, value, f"{where}: --{flag}")
    elif field == "gpu_layers":
        return _layers(said, value, f"{where}: --{flag}")
    else:
        said[field] = whole(value, f"{where}: --{flag}")
    return True


def _layers(said: dict[str, Any], value: str, what: str) -> bool:
    """llama.cpp's count of layers on accelerators; auto, all and -1 are as many as fit."""
    if value in ("auto", "all", "-1"):
        return True
    if value == "0":
        raise BadInput(
            say(
                "{what} 0: the host computes every layer; name it with --on, as EPYC-9654",
                what=what,
            )
        )
    said["gpu_layers"] = whole(value, what)
    return True


def _offloaded(said: dict[str, Any], value: str, what: str) -> bool:
    """GiB of vLLM's weights in host memory; 0 is none."""
    try:
        gib = read_number(value, what=what)
    except BadInput:
        gib = -1.0
    if not 0.0 <= gib <= LARGEST:
        raise BadInput(
            say(
                "{what} {value!r}: write GiB from 0 on, as 10",
                what=what,
                value=shorten(printable(value)),
            )
        )
    said["cpu_offload_gb"] = gib or None
    return True


def share_of(value: str, what: str) -> float:
    """A share, above 0 and up to 1."""
    try:
        share = read_number(value)
    except BadInput:
        share = -1.0
    if not 0.0 < share <= 1.0:
        raise BadInput(
            say(
                "{what} {value!r}: write a share above 0 and up to 1, as 0.9",
                what=what,
                value=shorten(printable(value)),
            )
        )
    return share


def whole(value: str, what: str) -> int:
    """A count, with vLLM's endings: 32k is 32,000, 32K 32,768."""
    digits, factor = value, 1
    if value[-1:] in _THOUSANDS:
        digits, factor = value[:-1], _THOUSANDS[value[-1]]
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits[:10]) * factor <= LARGEST:
        raise BadInput(
            say(
                "{what} {value!r}: write a whole number from 1 on",
                what=what,
                value=shorten(printable(value)),
            )
        )
    return int(digits) * factor


def _words(text: str, where: str) -> Iterator[str]:
    """Words of a script: continued lines joined, remarks left out, variables filled in."""
    variables = Variables()
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        if variables.takes(line):
            continue
        if line.strip()[:1] not in ("", "-", "#"):  # flags alone go on with the line before
            yield END
        try:
            parts = shlex.split(line, comments=True)
        except ValueError:
            raise BadInput(
                say(
                    "{where}: a quote is not closed in {line!r}; close it",
                    where=where,
                    line=shorten(line, 60),
                )
            ) from None
        for part in parts:
            yield from variables.words(part)


def _started(words: list[str], where: str) -> tuple[str, list[str], list[str]]:
    """The first engine that a script starts, what follows its name, and what else is started."""
    starts = [start for at in range(len(words)) if (start := _start_at(words, at))]
    if not starts:
        raise BadInput(
            say(
                "{where}: starts none of the engines that are known; write {known}",
                where=where,
                known=_known(),
            )
        )
    (engine, rest), *others = starts
    said = [" ".join([other, *_until_end(after)[:3]]) for other, after in others]
    return engine, _until_end(rest), said


def _start_at(words: list[str], at: int) -> tuple[str, list[str]] | None:
    """The engine that a word starts, and what follows."""
    name = words[at].rpartition("/")[2]
    for engine, spoken in VOCABULARIES.items():
        for start in spoken.started_by:
            first, _, second = start.partition(" ")
            if name == first and (not second or words[at + 1 : at + 2] == [second]):
                rest = words[at + (2 if second else 1) :]
                return engine, rest[1:] if rest[:1] == ["serve"] else rest
    return None


def _until_end(words: list[str]) -> list[str]:
    """Those of one command."""
    ends = (at for at, word in enumerate(words) if word in _ENDING)
    return words[: next(ends, len(words))]


def _dashed(flag: str) -> str:
    """Engines read underscores and dashes alike."""
    return flag.replace("_", "-")


def _known() -> str:
    return join_or([spoken.started_by[0] + " …" for spoken in VOCABULARIES.values()])


def _pairs(words: list[str], spoken: Vocabulary) -> Iterator[tuple[str, str]]:
    """Flags and their values; a word without a flag stands alone."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "$@":
            continue
        if not re.match(r"--?[A-Za-z]", word):
            yield "", word
            continue
        flag, equals, value = word.lstrip("-").partition("=")
        flag = _dashed(flag)
        if equals:
            yield flag, value
        elif flag in spoken.switches or at == len(words) or _ENDS.match(words[at]):
            yield flag, ""
        else:
            yield flag, words[at]
            at += 1
