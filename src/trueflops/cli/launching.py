"""--from and --emit of train: other tools' launch files in, as flags, and out, as files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from trueflops.catalog import Cluster
from trueflops.cli.counts import count_of
from trueflops.errors import BadInput, UnknownName, printable
from trueflops.files import check_writable, is_file, is_folder, own_path, write_file
from trueflops.interop.launch import (
    TOOLS,
    Asked,
    Found,
    Written,
    framework_of,
    read_launch,
    usual_of,
    writable,
    write_launch,
)
from trueflops.interop.launch.deepspeed import BatchMismatch
from trueflops.interop.launch.settings import canonical
from trueflops.language import ENGLISH, say, speaking
from trueflops.model import Model
from trueflops.plan.pieces import deal
from trueflops.predict import TrainingStep
from trueflops.search import Space

_DEGREES: Final = ("tp", "pp", "cp", "dp", "dp_replicate", "dp_shard")


class Launch:
    """What a question says of launch files. It fills in flags that were not given."""

    def __init__(self, options: argparse.Namespace, model: Model, where: Cluster) -> None:
        self.model, self.where, self.options = model, where, options
        self.notes: list[str] = []
        self.done: list[str] = []
        self.zero, self.batch = options.zero, options.global_batch
        if options.from_file is not None:
            self._read(own_path(options.from_file))
        self.tool, self.folder = "", Path()
        if options.emit is not None:
            self._prepare(*options.emit)
        elif options.force:
            raise BadInput(say("--force overwrites the files of --emit; say --emit TOOL DIR"))

    def _read(self, file: Path) -> None:
        """The file's plan as flags; what was typed wins."""
        try:
            found = read_launch(file, self.model, self.where.count)
        except BatchMismatch as error:
            if self.options.global_batch is None:
                raise
            found = error.found
        typed = [n for n in _DEGREES if getattr(self.options, n) is not None]
        self.notes += found.beside(self.options.framework)
        for name, value in _as_flags(found).items():
            if typed and name in ("dp", "dp_replicate", "dp_shard"):
                continue  # other degrees leave another number of replicas
            if getattr(self.options, name) is None:
                setattr(self.options, name, value)
        self.zero = self.options.zero
        self.notes.append(
            say("plan of {name}, read as {tool}'s", name=printable(file.name), tool=found.tool)
        )
        self.notes += [*self._other_batch(found, file), *found.notes]
        if found.processes not in (None, self.where.count):
            said = say(
                "{name} starts {processes} processes",
                name=printable(file.name),
                processes=found.processes,
            )
            self.notes.append(
                say("{said}, and --on has {count} accelerators", said=said, count=self.where.count)
            )

    def _other_batch(self, found: Found, file: Path) -> list[str]:
        """That a batch was typed, where the file has another."""
        own, typed = found.workload.get("global_batch"), self.batch
        if own is None or typed is None or count_of(typed, "--global-batch") == own:
            return []
        return [
            say(
                "--global-batch {typed} is taken, not the {own} of {name}; accumulation follows",
                typed=typed,
                own=own,
                name=printable(file.name),
            )
        ]

    def _prepare(self, tool: str, folder: str) -> None:
        """The framework and the defaults of the tool that is written for."""
        if tool not in (*TOOLS, "slurm"):
            raise UnknownName("tool of --emit", tool, (*TOOLS, "slurm"))
        self.tool, self.folder = tool, own_path(folder)
        if is_file(self.folder):
            raise BadInput(
                say(
                    "--emit {tool} {folder}: a file; name a folder",
                    tool=tool,
                    folder=printable(folder),
                )
            )
        self._refuse_overwriting(["run.sh"])
        framework = framework_of(tool, self.options.framework)
        self.options.framework = framework
        packed = self.options.qlora is not None
        for name, value in usual_of(tool, framework, packed=packed).items():
            if getattr(self.options, name) is None:
                setattr(self.options, name, value)

    def searching(self, options: argparse.Namespace) -> argparse.Namespace:
        """Search over ZeRO's stages, too: whichever is found will be written out."""
        if self.tool:
            options.zero = self.zero
        return options

    def limited(self, space: Space) -> Space:
        """A search among the plans that the tool can be told."""
        if not self.tool:
            return space
        tool, framework = self.tool, str(self.options.framework)
        return replace(space, allows=lambda plans: writable(tool, framework, self.model, plans))

    def write(self, step: TrainingStep) -> list[str]:
        """Write the files of a plan that fits; say where they are and how it starts."""
        if not self.tool:
            return []
        plan = step.plan
        ends = int(plan.first_stage_layers), int(plan.last_stage_layers)
        stages = deal(self.model.layers, int(plan.pp), int(plan.vpp), *ends)
        framework = str(self.options.framework)
        asked = Asked(plan, self.model, step.workload, self.where, framework, tuple(stages))
        with speaking(ENGLISH):
            written = write_launch(self.tool, asked)
        if not step.fits:
            return [
                say("--emit {tool}: nothing was written, as the plan does not fit", tool=self.tool)
            ]
        paths = write_files(self.folder, written.files, bool(self.options.force))
        names = ", ".join(str(path) for path in paths)
        self.done = [
            say("written for {release}: {names}", release=written.release, names=names),
            say("start: {written}", written=self._start(written)),
        ]
        if step.plan.zero and not canonical(step.plan).zero:
            self.done.insert(
                0, say("ZeRO {zero:g} left out: there is nothing to share", zero=step.plan.zero)
            )
        return self.done if self.options.json else []

    def say(self, code: int) -> int:
        """Under an answer that a human reads, what was written and the command that starts it."""
        if self.done and not self.options.json:
            print("\n" + "\n".join(self.done))
        return code

    def _start(self, written: Written) -> str:
        if self.tool == "slurm":
            return f"cd {self.folder} && sbatch {written.start}"
        path = self.folder / written.start
        if self.where.nodes == 1:
            return f"bash {path}"
        last = self.where.nodes - 1
        return say(
            "NODE_RANK=$RANK MASTER_ADDR=$HOST bash {path}  (each node; RANK 0 to {last})",
            path=path,
            last=last,
        )

    def _refuse_overwriting(self, names: list[str]) -> None:
        _refuse_overwriting([self.folder / name for name in names], bool(self.options.force))


def write_files(folder: Path, files: Mapping[str, str], force: bool) -> list[Path]:
    """Write files into a folder, all or none; what is there stays without `force`."""
    paths = [folder / name for name in files]
    _refuse_overwriting(paths, force)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        where = printable(str(folder))
        raise BadInput(
            say("{where}: cannot be made ({strerror})", where=where, strerror=error.strerror)
        ) from None
    for path in paths:
        check_writable(path)
    for path, text in zip(paths, files.values(), strict=True):
        write_file(path, text)
    return paths


def _refuse_overwriting(paths: Sequence[Path], force: bool) -> None:
    there = [path for path in paths if is_file(path)]
    if there and not force:
        raise BadInput(
            say("{there}: is there; add --force to overwrite it", there=printable(str(there[0])))
        )
    if there and any(is_folder(path) for path in there):
        raise BadInput(
            say("{there}: a folder, where a file is to be written", there=printable(str(there[0])))
        )


def _as_flags(found: Found) -> dict[str, Any]:
    """The options that ask for what a file says."""
    said = dict(found.plan)
    replicas = said.pop("dp_replicate"), said.pop("dp_shard")
    tuned = {name: said.pop(name) for name in list(said) if name.startswith(("lora_", "adapter"))}
    flags: dict[str, Any] = {"framework": found.framework}
    if said["zero"] and replicas[0] > 1:
        flags |= {"dp_replicate": replicas[0], "dp_shard": replicas[1]}
    else:
        flags["dp"] = replicas[0] * replicas[1]
    if kind := tuned.get("adapters"):
        flags |= {kind: tuned["lora_rank"], "lora_targets": tuned["lora_targets"]}
        flags |= {name: tuned[name] for name in ("lora_dropout", "adapter_dtype", "lora_fused")}
    unsaid = {"recompute_layers": float("inf"), "residual_dtype": "", "base_format": "nf4"}
    unsaid |= {"first_stage_layers": 0, "last_stage_layers": 0, "freeze_layers": 0, "dcp": 1}
    flags |= {name: value for name, value in said.items() if unsaid.get(name) != value}
    return flags | dict(found.workload)
