"""What train and infer share: an earlier answer as input, the cluster, the price."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from trueflops import units
from trueflops.catalog import Accelerator, Cluster, Price, cluster, price
from trueflops.catalog.measured import cluster_measured
from trueflops.catalog.networks import read_network, with_network
from trueflops.cli.arguments import parse
from trueflops.clock.given import given_profile as read_given
from trueflops.errors import BadInput, UnknownName, join_or, nearest, printable, shorten
from trueflops.files import is_file, read_file
from trueflops.language import say, word
from trueflops.model import Model
from trueflops.model.config import decode_json
from trueflops.profile import Profile, frameworks, profile_of
from trueflops.profile.frameworks import USUAL, about, on_vendor, runs_on, serves
from trueflops.profile.library import find_profile
from trueflops.verify.training.frameworks import framework_key, knows_framework

# Of its own limit, to which a driver lets a card be set. Assumed: 100 of 350 W of an RTX 3090.
LEAST_LIMIT = 0.28
# How an answer looks, not what was asked.
SHOWN = {
    "json", "verbose", "explain", "provenance", "ops", "timeline", "top", "plot", "plot_front",
    "trace", "what_helps", "emit", "force", "from_file", "lang", "weights_why",
}  # fmt: skip


def recall(options: argparse.Namespace) -> argparse.Namespace:
    """If MODEL is an answer of --json, ask its question again; flags given now win.

    What the file holds is parsed like a command line, so that it can ask nothing that a user
    could not, and nothing that writes a file.
    """
    path = Path(options.model)
    if path.suffix != ".json" or not is_file(path):
        return options
    asked = decode_json(read_file(path), path).get("question")
    if not isinstance(asked, dict):
        return options  # a config.json
    where = printable(str(path))
    words = asked.get("arguments")
    if asked.get("command") != options.command or not isinstance(words, list):
        said = shorten(str(asked.get("command")))
        raise BadInput(
            say(
                "{where}: not an answer of {command} but of {said!r}; ask that",
                where=where,
                command=options.command,
                said=said,
            )
        )
    if len(words) > 200 or not all(isinstance(w, str) and len(w) < 300 for w in words):
        raise BadInput(
            say("{where}: the arguments of its question are not a list of short texts", where=where)
        )
    before = parse([options.command, *words])
    if before.model.endswith(".json") and Path(before.model) == path:
        raise BadInput(say("{where}: asks itself", where=where))
    for name, value in vars(before).items():
        if name not in SHOWN and (name == "model" or getattr(options, name) is None):
            setattr(options, name, value)
    return options


def question_of(options: argparse.Namespace) -> dict[str, Any]:
    """The command line that asks this question, without what only changes how it is shown."""
    words = [options.model]
    for name, value in vars(options).items():
        if name in SHOWN or name in ("command", "model") or value is None:
            continue
        flag = "--" + name.replace("_", "-")
        if value is True or (name in ("lora", "qlora") and value == 0):  # 0: no rank was given
            words.append(flag)
        elif value is False:
            words.append(flag.replace("--", "--no-", 1))
        else:
            words += [flag, str(value)]
    return {"command": options.command, "arguments": words}


def cluster_of(options: argparse.Namespace) -> Cluster:
    """What --on names; without it, the one device that --profile was measured on.

    A device that no catalog knows is where its profile says; --on 4xNAME is four of them.
    """
    said = getattr(options, "network", None)  # single kernels are not asked over one
    network = None if said is None else read_network(said)
    where = _asked_cluster(options, network)
    return where if network is None else with_network(where, network, where.per_node)


def _asked_cluster(options: argparse.Namespace, network: float | None) -> Cluster:
    given = given_profile(options)
    if given is not None and given.chip is not None:
        count, _, name = (options.on or "1").partition("x")
        if options.on == given.accelerator:
            count, name = "1", ""
        whole = count.isascii() and count.isdigit() and int(count) >= 1
        if not whole or name not in ("", given.accelerator):
            raise BadInput(
                say(
                    "--on {on}: --profile is of {accelerator!r}; write --on '4x{accelerator}' "
                    "for four of them",
                    on=shorten(options.on),
                    accelerator=given.accelerator,
                )
            )
        return cluster_measured(given.chip, int(count))
    if options.on:
        return cluster(options.on, unlike=options.command == "infer", network=network)
    if given is not None:
        return cluster(given.accelerator)
    raise BadInput(say("say where with --on: 64xH100, 16x8xH100, 4xDGX-H100, or a cluster TOML"))


def given_profile(options: argparse.Namespace) -> Profile | None:
    """What --profile names: a file, or a profile of the library."""
    return read_given(find_profile(options.profile)) if options.profile else None


def profile_for(options: argparse.Namespace, chip: Accelerator, framework: str = USUAL) -> Profile:
    """What is known of the chip, under --framework, with the curves of --profile before others."""
    given = given_profile(options)
    if given is not None and given.accelerator != chip.name:
        raise BadInput(
            say(
                "--profile is of {accelerator}, but --on asks for {name}",
                accelerator=given.accelerator,
                name=chip.name,
            )
        )
    profile = profile_of(chip, framework, given)
    limit = power_of(options, chip)
    return profile if limit is None else profile.capped(limit)


def power_of(options: argparse.Namespace, chip: Accelerator) -> float | None:
    """The power limit that --power sets; None leaves the chip its own."""
    said = getattr(options, "power", None)  # single kernels are not asked under one
    if said is None:
        return None
    watts = units.parse(f"{said} W" if said.strip().isdecimal() else said, "watts", what="--power")
    own = chip.get("power.tdp")
    if own is None:
        raise BadInput(
            say(
                "--power {said}: no power limit of {name} is known",
                said=shorten(said),
                name=chip.name,
            )
        )
    if watts > own:
        raise BadInput(
            say(
                "--power {said}: the limit of {name} is {own:.0f} W already; write less, or "
                "leave --power out",
                said=shorten(said),
                name=chip.name,
                own=own,
            )
        )
    if watts < LEAST_LIMIT * own:
        least = f"{LEAST_LIMIT * own:.0f}"
        raise BadInput(
            say(
                "--power {said}: {name} can be limited to between {least} and {own:.0f} W; "
                "write --power {least}W or more",
                said=shorten(said),
                name=chip.name,
                least=least,
                own=own,
            )
        )
    return watts


def power_note(options: argparse.Namespace, chip: Accelerator) -> list[str]:
    """What --power changes, as a note."""
    limit, own = power_of(options, chip), chip.get("power.tdp")
    if limit is None or own is None:
        return []
    return [
        say(
            "power limit {limit:.0f} W of {own:.0f} W: clocks fall where work would draw more",
            limit=limit,
            own=own,
        )
    ]


class Software(NamedTuple):
    """The framework or engine that a step is priced with."""

    name: str
    given: bool
    about: str

    def note(self, kind: str) -> str:
        """'engine vllm: …', and that nobody asked for it where that is so."""
        about = word(self.about)
        if self.given:
            titled = _TITLE.match(about)  # vLLM says vllm again, TensorRT-LLM not trt-llm
            if titled and titled[1].casefold() == self.name.casefold():
                about = about[titled.end() :]
            return say("{kind} {name}: {about}", kind=kind, name=self.name, about=about)
        return say("{kind} {name}, as none was named: {about}",
                   kind=kind, name=self.name, about=about)  # fmt: skip


_TITLE: Final = re.compile(r"([^:：]+)(?:: |：)")


def software_of(options: argparse.Namespace, chip: Accelerator, usual: str) -> Software:
    """What --framework or --engine names, as it is on this chip; else the usual one."""
    name = usual if options.framework is None else options.framework
    serving = options.command == "infer"
    if name not in (usual, *frameworks()):
        misspelt = nearest(name, frameworks(serving=serving))
        if not serving and not misspelt and knows_framework(name):
            raise BadInput(
                say(
                    "unknown framework {name!r}: what runs under it is priced as {framework}; "
                    "write --framework {framework}",
                    name=shorten(name),
                    framework=framework_key(name),
                )
            )
        raise UnknownName("engine" if serving else "framework", name, frameworks(serving=serving))
    if name != usual and serves(name) != serving:
        flag, other = ("--engine", "--framework") if serving else ("--framework", "--engine")
        does, else_ = ("trains", "train") if serving else ("serves", "infer")
        fitting = frameworks(serving=serving)
        raise BadInput(
            say(
                "{flag} {name}: {name} {does}; write {flag} with one of {names}, or ask "
                "trueflops {else_} … {other} {name}",
                flag=flag,
                name=name,
                does=does,
                names=", ".join(fitting),
                else_=else_,
                other=other,
            )
        )
    real = on_vendor(name, chip.vendor)
    if not runs_on(real, chip.vendor):
        flag = "--engine" if serving else "--framework"
        others = [
            n for n in frameworks(serving=serving)
            if n != usual and on_vendor(n, chip.vendor) == n and runs_on(n, chip.vendor)
        ]  # fmt: skip
        instead = say("; write one that does: {others}", others=join_or(others)) if others else ""
        raise BadInput(
            say(
                "{flag} {name}: it does not run on {vendor}'s chips, such as "
                "{chip}{instead}; without {flag} the usual settings are taken",
                flag=flag,
                name=name,
                vendor=chip.vendor,
                chip=chip.name,
                instead=instead,
            )
        )
    return Software(real, options.framework is not None, about(real, chip))


def rent_of(options: argparse.Namespace, where: Cluster) -> Price | None:
    """The rent that flags ask for; None leaves it to the catalog."""
    if options.price is not None and options.spot:
        raise BadInput(say("give --price or --spot, not both"))
    if options.price is not None:
        given = _usd_per_hour(options.price)
        if given > units.MILLION:
            raise BadInput(
                say(
                    "--price {price}: a million dollars an hour at most",
                    price=shorten(options.price),
                )
            )
        return Price(given, given, given, "", "--price", "given")
    if options.spot:
        found = price(where.accelerator, spot=True)
        if found is None:
            raise BadInput(
                say("no spot price of {name} is known; give --price", name=where.accelerator.name)
            )
        return found
    return None


# $2, 2, 2.50, 2$/h, 2 USD/h, $2.50/hour, USD 2/hr: dollars an hour however they are written.
_NUMBER, _DOLLARS = r"[+-]?\d*\.?\d+(?:e[+-]?\d+)?", r"(?:\$|USD)?"
_SUM = re.compile(rf"{_DOLLARS}\s*({_NUMBER}\s*[a-z]?)\s*{_DOLLARS}", re.IGNORECASE)
_HOUR = r"(?:(?:/|per )\s*h(?:r|our)?)?"
_PRICE = re.compile(rf"{_DOLLARS}\s*({_NUMBER})\s*{_DOLLARS}\s*{_HOUR}", re.IGNORECASE)


def _usd_per_hour(text: str) -> float:
    """What one accelerator costs an hour; a bare number is dollars."""
    found = _PRICE.fullmatch(text.strip())
    return units.parse(f"{found[1]} USD/h" if found else text, "usd_per_hour", what="--price")


def dollars(text: str, flag: str, example: str, most: float = math.inf) -> float:
    """A sum of dollars: 30000, $30000, 30k USD, 2M$; a bare number is dollars."""
    found = _SUM.fullmatch(text.strip())
    try:
        usd = units.parse(found[1] if found else "", "count", what=flag)
    except BadInput:
        raise BadInput(
            say(
                "{flag} {said}: write dollars, as {example}",
                flag=flag,
                said=shorten(text),
                example=example,
            )
        ) from None
    if usd > most:
        raise BadInput(
            say(
                "{flag} {text}: {most} at most",
                flag=flag,
                text=shorten(text),
                most=units.show(most, "usd"),
            )
        )
    return usd


def pue_of(options: argparse.Namespace) -> float:
    """Power usage effectiveness: at least one, rarely above two."""
    pue = 1.0 if options.pue is None else options.pue
    if not 1.0 <= pue <= 5.0:
        raise BadInput(say("--pue {pue:g}: must lie between 1 and 5", pue=pue))
    return float(pue)


def check_length(model: Model, tokens: int, what: str) -> list[str]:
    """A model with a table of positions cannot go beyond it; one with rope is only warned of."""
    if tokens <= model.max_positions:
        return []
    if model.learned_positions:
        raise BadInput(
            say(
                "{what} {tokens:,}: {name} has learned positions for {max_positions:,} tokens; "
                "write no more than that",
                what=what,
                tokens=tokens,
                name=model.name,
                max_positions=model.max_positions,
            )
        )
    return [
        say(
            "{tokens:,} tokens: {name} was made for {max_positions:,}",
            tokens=tokens,
            name=model.name,
            max_positions=model.max_positions,
        )
    ]
