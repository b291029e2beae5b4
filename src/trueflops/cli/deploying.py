"""How infer sets an engine: its defaults on the chip, flags, and files that start deployments."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from trueflops.catalog import Accelerator
from trueflops.cli.launching import write_files
from trueflops.cli.question import cluster_of
from trueflops.errors import BadInput, ImpossiblePlan, printable, shorten
from trueflops.files import is_file, own_path
from trueflops.interop.engines import (
    Deployed,
    engine_of_tool,
    read_deployment,
    write_deployment,
)
from trueflops.interop.engines.drafts import CHECKPOINT, drafter_line
from trueflops.interop.engines.drafts import FIELDS as DRAFTS
from trueflops.interop.engines.files import RELEASES, checkpoint_line
from trueflops.interop.engines.told import check_switch
from trueflops.language import ENGLISH, say, speaking
from trueflops.model import another_model, known_model, read_model
from trueflops.model.checkpoints import format_in, in_format
from trueflops.plan.serving import DEGREES, shares_experts
from trueflops.predict import ServingPoint
from trueflops.predict.released import served_weights
from trueflops.predict.serving.speculation import Speculation
from trueflops.predict.serving.splitting import split_words
from trueflops.profile import Engine, engine_on
from trueflops.report.serving.answer import describe_replicas
from trueflops.units import GIBI, read_number
from trueflops.workload import Serving

_RELEASE: Final = re.compile(r"v?\d{1,4}(\.\d{1,6}){0,3}[\w.+-]{0,40}")
_TYPED: Final = ("memory_share", "cpu_offload_gb")  # flags that are read as they are typed
ALL_LAYERS: Final = 999  # as people write it
MOST_TOKENS: Final = 2**31  # that any of these flags may ask for


def engine_for(options: argparse.Namespace, name: str, chip: Accelerator) -> Engine:
    """The engine of this name on this chip, as the flags set it."""
    release = options.release or ""
    if release and not _RELEASE.fullmatch(release):
        raise BadInput(
            say(
                "--release {release!r}: write the engine's number, as 0.11.0",
                release=shorten(release),
            )
        )
    engine = engine_on(name, chip, release)
    given: dict[str, Any] = {
        "block": options.block_size,
        "most_sequences": options.max_num_seqs,
        "step_tokens": options.max_num_batched_tokens,
    }
    for flag, value in given.items():
        if value is not None and not 1 <= value <= MOST_TOKENS:
            raise BadInput(
                say(
                    "{flags} {value}: write a number from 1 to {most_tokens:,}",
                    flags=_FLAGS[flag],
                    value=value,
                    most_tokens=MOST_TOKENS,
                )
            )
    given |= {"policy": options.policy, "two_batches": options.two_batch_overlap}
    engine = engine.naming(**{key: value for key, value in given.items() if value is not None})
    if options.max_num_seqs is not None:
        engine = engine.told(options.max_num_seqs)
    for switch in ("two_batch_overlap", "enforce_eager"):
        if getattr(options, switch):
            check_switch(switch, name)
    if options.enforce_eager:
        engine = engine.uncaptured()
    if options.memory_share is None:
        return engine
    return engine.naming(memory_share=_share(options.memory_share))


def engine_notes(options: argparse.Namespace) -> list[str]:
    """How the engine is not as it comes, where its own line does not say it."""
    notes = []
    if options.release:
        notes.append(say("the engine as of release {release}", release=options.release))
    if options.enforce_eager:
        notes.append(say("no step is a captured graph: --enforce-eager"))
    return notes


_FLAGS: Final = {
    "block": "--block-size",
    "most_sequences": "--max-num-seqs",
    "step_tokens": "--max-num-batched-tokens",
}


def length_for(options: argparse.Namespace, asked: Serving) -> int | None:
    """The longest request that the engine must take."""
    longest: int | None = options.max_model_len
    if longest is not None and longest < asked.context:
        raise BadInput(
            say(
                "--max-model-len {longest:,}: the requests have {context:,} tokens (--input "
                "and --output); write at least that, or ask for shorter ones",
                longest=longest,
                context=asked.context,
            )
        )
    return longest


def _share(said: str) -> float:
    try:
        share = read_number(said)
    except BadInput:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise BadInput(
            say("--memory-share {said!r}: write a number above 0 and up to 1", said=shorten(said))
        )
    return share


class Deployment:
    """What a question says of files that start engines. It fills in flags that were not given."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.notes: list[str] = []
        self.cut_of = ""  # the file that says the plan, if one does
        if options.from_file is not None:
            self._read(options.from_file)
        if options.emit is not None:
            tool, folder = options.emit
            engine = engine_of_tool(tool, options.framework)
            if options.framework not in (None, engine):
                raise BadInput(
                    say(
                        "--emit {tool}: starts {engine}, and --engine says {framework}",
                        tool=tool,
                        engine=engine,
                        framework=options.framework,
                    )
                )
            if is_file(own_path(folder)):
                raise BadInput(
                    say(
                        "--emit {tool} {folder}: a file; name a folder",
                        tool=tool,
                        folder=printable(folder),
                    )
                )
            options.framework = engine
        elif options.force:
            raise BadInput(say("--force overwrites the files of --emit; say --emit TOOL DIR"))

    def _read(self, name: str) -> None:
        """The file's deployment as flags; what was typed wins."""
        path = own_path(name)
        where_to = cluster_of(self.options)
        fields = (field.name for field in dataclasses.fields(Deployed))
        self.said = said = read_deployment(
            path,
            cards=None if where_to.accelerator.is_cpu else where_to.per_node,
            typed=[name for name in fields if getattr(self.options, name, None) is not None],
        )
        model, where = read_model(self.options.model), printable(path.name)
        typed = any(getattr(self.options, each) is not None for each in ("tp", "pp", "ep", "etp"))
        flags = {
            key: value
            for key, value in vars(said).items()
            if key not in ("engine", "model", "dp", "servers", "ignored") and value is not None
        }
        cut = {"tp": 1} | {key: flags.pop(key) for key in DEGREES if key in flags}
        if "etp" in cut and not model.is_moe:
            del cut["etp"]  # replicas of a model without experts share nothing
        if not typed:
            flags |= cut
            self.cut_of = where
        if form := said.weights or (format_in(said.model) if _is_name(said.model) else ""):
            # On a chip without products of it the weights alone are narrow.
            stored = served_weights(in_format(model, form, said.model), where_to.accelerator)
            flags["weights"] = stored.name
            if self.options.weights is None:
                flag_says = say("as {where} says", where=where)
                self.options.weights_why = flag_says if said.weights else stored.why
        if any(getattr(self.options, each) is not None for each in DRAFTS):
            flags = {key: value for key, value in flags.items() if key not in DRAFTS}
        for key, value in flags.items():
            if getattr(self.options, key) is None:
                setattr(self.options, key, str(value) if key in _TYPED else value)
        if self.options.framework is None:
            self.options.framework = said.engine
        named = say(" of {model}", model=printable(said.model)) if _is_name(said.model) else ""
        self.notes.append(
            say(
                "deployment{model} in {where}, read as {engine}'s",
                model=named,
                where=where,
                engine=said.engine,
            )
        )
        other = known_model(said.model) if _is_name(said.model) else None
        self.notes += another_model(where, other, model)
        self.notes += [
            say("{where}: {word} is ignored", where=where, word=printable(word))
            for word in said.ignored
        ]

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Where the plan is the file's, what refuses it names the file."""
        try:
            yield
        except ImpossiblePlan as error:
            if not self.cut_of:
                raise
            said = say("{where}: {why}", where=self.cut_of, why=error)
            raise ImpossiblePlan(error.code, said) from None

    def compare(self, count: int) -> list[str]:
        """What to say where a file asks for another number of accelerators than --on has."""
        if self.options.from_file is None or self.said.accelerators == count:
            return self.notes
        asks = say("the file asks for {accelerators}", accelerators=self.said.accelerators)
        return [
            *self.notes,
            say(
                "--on has {count} accelerators, and {asks}: replicas fill the rest",
                count=count,
                asks=asks,
            ),
        ]

    def leaves_pools(self) -> list[str]:
        """That pairs of pools were not tried for a goal, where files are to be written."""
        if self.options.emit is None:
            return []
        return [
            say(
                "pools of workers are left out, as --emit {tool} cannot write them; without --emit "
                "they are tried",
                tool=self.options.emit[0],
            )
        ]

    @contextmanager
    def started(
        self, point: ServingPoint, more: dict[str, Any], *, in_time: bool = True
    ) -> Iterator[None]:
        """An answer of this point, with its files: in JSON among its fields, else told below it."""
        written = self._write(point, in_time=in_time)
        if written and self.options.json:
            more["written"] = written
        yield
        if written and not self.options.json:
            print("\n" + "\n".join(written))

    def _write(self, point: ServingPoint, *, in_time: bool) -> list[str]:
        """Write the files of a point that fits and is in time; say where they are and how it
        starts.
        """
        if self.options.emit is None:
            return []
        tool, folder = self.options.emit
        if not point.fits:
            return [say("--emit {tool}: nothing was written, as it does not fit", tool=tool)]
        if not in_time:
            return [say("--emit {tool}: nothing was written, as it is not in time", tool=tool)]
        with speaking(ENGLISH):
            replicas = describe_replicas(point)
        about = (
            f"trueflops: {point.model.name} on {point.cluster.name} for {RELEASES[tool]}\n"
            f"{replicas}, weights {point.weights.name}"
        )
        deployed = _deployed(self.options, point)
        if deployed.weights is None and not _as_released(point):
            about += f"\n{checkpoint_line(point.weights.name)}"
        if deployed.speculate == "draft" and point.gain and point.gain.speculation.drafter:
            about += f"\n{drafter_line(point.gain.speculation.drafter.name)}"
        where = point.cluster
        files = write_deployment(
            tool, deployed, about, where.per_node, vendor=where.accelerator.vendor
        )
        paths = write_files(own_path(folder), files, bool(self.options.force))
        first = paths[0]
        in_file = tool == "trtllm"  # the drafter's name, which no variable fills in there
        given = "MODEL=… DRAFT=…" if deployed.draft_model and not in_file else "MODEL=…"
        start = f"kubectl apply -f {first}" if tool == "dynamo" else f"{given} bash {first}"
        named = ", ".join(str(path) for path in paths)
        drafter = say("set speculative_model in {file} to the drafter's checkpoint", file=paths[-1])
        return [
            say("written for {releases}: {named}", releases=RELEASES[tool], named=named),
            *([drafter] if deployed.draft_model and in_file else []),
            say("start: {start}", start=start),
        ]


def _deployed(options: argparse.Namespace, point: ServingPoint) -> Deployed:
    """A point in the words of its engine; only fp8 is something that it narrows weights to."""
    plan, engine = point.plan, point.engine
    narrows = engine.name in ("vllm", "sglang") and point.weights.name in ("fp8", "fp8_block")
    pooled = engine.pool != "asked"
    dp, servers = _replicas(engine.name, options.emit[0], point)
    return Deployed(
        engine.name,
        tp=int(plan.tp),
        pp=int(plan.pp),
        dp=dp,
        servers=servers,
        ep=int(plan.ep),
        etp=int(plan.etp) if shares_experts(plan) else None,
        dcp=plan.dcp if plan.dcp > 1 else None,
        weights="fp8" if narrows and not _as_released(point) else None,
        cache=options.cache,
        memory_share=engine.share(int(plan.tp * plan.pp)) if pooled else None,
        max_model_len=point.kv_cache.length,
        block_size=engine.block if pooled else None,
        max_num_seqs=engine.most_sequences if pooled else point.running,
        max_num_batched_tokens=engine.step_tokens,
        tensor_split=split_words(engine, [stage.layers for stage in point.stages]) or None,
        enforce_eager=None if engine.captured else 1,
        two_batch_overlap=1 if engine.two_batches else None,
        redundant_experts=options.redundant_experts if engine.name == "sglang" else None,
        gpu_layers=_gpu_layers(point) if engine.offloads == "layers" else None,
        cpu_offload_gb=point.offload.weight_bytes / GIBI or None if point.offload else None,
        **(_drafts(point.gain.speculation) if point.gain else {}),
    )


def _replicas(engine: str, tool: str, point: ServingPoint) -> tuple[int, int]:
    """How many replicas a server has, and how many servers stand beside each other.

    Those of a server share experts. Whole copies are an engine's own where it has them: vLLM's
    share the experts of every mixture, and Dynamo routes to workers.
    """
    plan = point.plan
    if shares_experts(plan):
        together = int(plan.ep * plan.etp / plan.tp)
        return together, point.replicas // together
    own = engine == "sglang" or (engine == "vllm" and not point.model.is_moe)
    if own and tool != "dynamo":
        return point.replicas, 1
    return 1, point.replicas


def _drafts(speculation: Speculation) -> dict[str, Any]:
    """How tokens are drafted; heads and models of their own have a checkpoint."""
    s, drafter = speculation, speculation.method.drafter
    passes = drafter not in ("none", "heads")
    return {
        "speculate": s.method.name,
        "draft_model": CHECKPOINT if drafter in ("model", "head", "heads") else None,
        "num_speculative_tokens": s.drafted,
        "speculative_steps": s.passes if passes else None,
        "speculative_topk": s.branches if passes else None,
    }


def _is_name(checkpoint: str) -> bool:
    """Whether a file names its model, which scripts leave to a variable."""
    return checkpoint[:1] not in ("", "$")


def _gpu_layers(point: ServingPoint) -> int:
    return point.model.layers - point.offload.layers if point.offload else ALL_LAYERS


def _as_released(point: ServingPoint) -> bool:
    return point.weights.name == served_weights(point.model, point.cluster.accelerator).name
