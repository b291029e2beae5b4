"""A command line that starts an engine: read into a Deployed, and its words written.

>>> from trueflops.interop.engines import read_command
>>> said = read_command("vllm serve meta-llama/Llama-3.1-8B -tp 2 --max-num-seqs 64 --foo 1")
>>> said.engine, said.model, said.tp, said.max_num_seqs, said.ignored
('vllm', 'meta-llama/Llama-3.1-8B', 2, 64, ('--foo 1',))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from trueflops.errors import BadInput, join_or, printable, shorten
from trueflops.interop.engines.configs import FLAG, config_flags, named_config
from trueflops.interop.engines.deployed import VOCABULARIES, Deployed
from trueflops.interop.engines.drafts import settle_drafts
from trueflops.interop.engines.flags import flags_in
from trueflops.interop.engines.partition import read_partition, settle, visible_cards
from trueflops.interop.engines.pools import pools_of
from trueflops.interop.engines.starts import Start, described, known_starts, release_of, started
from trueflops.interop.engines.values import NAMED, Reading, words_for
from trueflops.interop.engines.words import END, until_end, words_of
from trueflops.language import say


def read_command(
    text: str,
    engine: str = "",
    where: str = "",
    *,
    folder: Path | None = None,
    cards: int | None = None,
    typed: Collection[str] | None = None,
) -> Deployed:
    """What a command, or a script that holds one, says; flags alone where the engine is named.

    Flags that nothing answers to are named in `ignored`. A file of flags is sought in `folder`.
    `cards` are those of a node, where they are known; fields in `typed` were said elsewhere, and
    are not read.
    """
    where = where or say("the command")
    words = list(words_of(text, where))
    if engine:
        start, others = Start(engine, until_end([word for word in words if word != END])), []
    else:
        start, *others = started(words, where)
    spoken = VOCABULARIES.get(start.engine)
    if spoken is None:
        raise BadInput(
            say(
                "{where}: no flags of {engine!r} are known; write {known}",
                where=where,
                engine=start.engine,
                known=known_starts(),
            )
        )
    asked = Reading(start.engine, where, folder, typed)
    said, ignored = _read(start, asked)
    if pools := pools_of([start, *others]):
        raise _pooled(pools, asked)
    said = read_partition(text) | said
    if release := release_of(words, start.engine):
        said["release"] = release
    left = [*map(described, others), *ignored]
    short = tuple(printable(shorten(each, 60)) for each in left)
    return settled(start.engine, said, short, visible_cards(text) or cards)


def _read(start: Start, reading: Reading) -> tuple[dict[str, Any], list[str]]:
    """The fields that a start's flags say, and what no field answers to."""
    flags = list(flags_in(start.words, VOCABULARIES[start.engine]))
    config = named_config(start.engine, flags) if reading.folder is not None else None
    if config is None or reading.folder is None:
        return reading.take(flags)
    said, ignored = reading.take([flag for flag in flags if flag.name != FLAG])
    below, more = reading.take(config_flags(config, reading.folder, reading.where))
    return below | said, ignored + more


def _pooled(pools: Mapping[str, Sequence[Start]], reading: Reading) -> BadInput:
    """Two pools are asked for by flags: what to write."""
    flags = []
    for name, starts in pools.items():
        worker = settled(starts[0].engine, _read(starts[0], reading)[0], ())
        degrees = {"tp": worker.tp or 1, "pp": worker.pp, "dp": worker.dp, "ep": worker.ep}
        degrees["etp"] = worker.etp
        words = "".join(f"{key}{n}" for key, n in degrees.items() if n and (n > 1 or key == "tp"))
        flags.append(f"--{name} {len(starts)}x{words}")
    return BadInput(
        say(
            "{where}: starts servers that prefill and others that decode; write them as two pools, "
            "without --from: --engine {engine} {flags}",
            where=reading.where,
            engine=reading.engine,
            flags=" ".join(flags),
        )
    )


def settled(
    engine: str, said: dict[str, Any], ignored: tuple[str, ...], cards: int | None = None
) -> Deployed:
    """What an engine's words mean together, on a node of so many cards where that is known."""
    if said.pop("spans_ranks", False):  # before what ep leaves is known: _a2a_ep_size of SGLang's
        said["ep"] = said.get("tp", 1)  # arg_groups/overrides.py (older: _handle_a2a_moe)
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
    ignored += settle(said, cards) if engine == "llama.cpp" else ()
    settle_drafts(engine, said)
    if engine == "llama.cpp" and said.get("max_model_len"):  # of all slots together
        said["max_model_len"] = max(said["max_model_len"] // said.get("max_num_seqs", 1), 1)
    return Deployed(engine, **said, ignored=ignored)


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
        elif field in NAMED:
            words.append(f"{flag} {theirs(words_for(field, spoken), value, field)}")
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
