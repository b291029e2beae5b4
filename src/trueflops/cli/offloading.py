"""What infer leaves in host memory: llama.cpp's --gpu-layers, vLLM's --cpu-offload-gb."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from typing import Final

from trueflops import units
from trueflops.catalog import Accelerator, Cluster, accelerator
from trueflops.catalog.facts import Fact
from trueflops.catalog.names import find
from trueflops.catalog.nodes import find_node
from trueflops.errors import BadInput, shorten
from trueflops.language import say
from trueflops.model import Model
from trueflops.predict import Server
from trueflops.predict.serving import Offload
from trueflops.predict.serving.offloading import (
    OF_A_DESKTOP,
    OF_A_SERVER,
    OF_HOST_MEMORY,
    OffloadedPasses,
)
from trueflops.profile import Engine
from trueflops.units import GIBI

_SOCKETS: Final = re.compile(r"^\d+x ")  # of a node's processors, as '2x EPYC 9654'


def offload_of(
    options: argparse.Namespace, engine: Engine, model: Model, where: Cluster
) -> Offload | None:
    """What the flags leave in host memory; None where that is nothing."""
    layers, weights = options.gpu_layers, options.cpu_offload_gb
    if layers is None and weights is None:
        if options.host_cpu is not None:
            raise BadInput(
                say("--host-cpu computes layers that --gpu-layers leaves to it; write that, too")
            )
        return None
    flag, can = (
        ("--gpu-layers", "layers") if layers is not None else ("--cpu-offload-gb", "weights")
    )
    if layers is not None and weights is not None:
        raise BadInput(say("give --gpu-layers or --cpu-offload-gb, not both"))
    if where.accelerator.is_cpu:
        raise BadInput(
            say(
                "{flag}: {name} is a host's own processor and has no other memory; leave it out",
                flag=flag,
                name=where.accelerator.name,
            )
        )
    if where.accelerator.form == OF_HOST_MEMORY:
        raise BadInput(
            say(
                "{flag}: {name} and its host share one memory; leave it out",
                flag=flag,
                name=where.accelerator.name,
            )
        )
    if engine.offloads != can:
        speaks = "llama.cpp" if can == "layers" else "vllm"
        raise BadInput(
            say(
                "{flag}: {engine} has no such setting; write --engine {speaks}",
                flag=flag,
                engine=engine.name,
                speaks=speaks,
            )
        )
    if any(getattr(options, name) is not None for name in ("prefill", "decode")):
        raise BadInput(
            say("{flag}: pools hold every layer on accelerators; leave it out", flag=flag)
        )
    if weights is not None:
        if options.host_cpu is not None:
            raise BadInput(
                say("--host-cpu: accelerators compute what vLLM keeps in host memory; leave it out")
            )
        held = _gib(weights)
        return Offload(weight_bytes=held) if held else None
    if layers > model.layers:  # the head counts as one more: llama.cpp's usual 99 is all
        return None
    return Offload(model.layers - layers, cpu=host_cpu(options, where))


def host_cpu(options: argparse.Namespace, where: Cluster) -> Accelerator:
    """One socket of the host: the one named, that of the node, or a usual one."""
    if options.host_cpu is not None:
        named = accelerator(options.host_cpu)
        if not named.is_cpu:
            raise BadInput(
                say(
                    "--host-cpu {name}: not a processor of a host; write one as {cpu}",
                    name=shorten(options.host_cpu),
                    cpu=accelerator(OF_A_DESKTOP).typed,
                )
            )
        return _with_memory(named, where)
    usual = OF_A_DESKTOP if where.accelerator.form in ("consumer", "workstation") else OF_A_SERVER
    return _with_memory(accelerator(_of_node(where) or usual), where)


def _of_node(where: Cluster) -> str:
    """The processor that the catalog's node states, where the catalog has it; else empty."""
    node = find_node(where.node_name) if where.node_name else None
    said = node.facts.get("host.cpus") if node else None
    name = _SOCKETS.sub("", said.text) if said else ""
    return name if name and find("accelerators", name) else ""


def _with_memory(cpu: Accelerator, where: Cluster) -> Accelerator:
    """With the memory that the user's own cluster file states."""
    stated = where.node_memory_bandwidth if where.own else None
    if not stated:
        return cpu
    fact = Fact(units.show(stated, "bytes_per_second"), "assumed", where.name)
    path = "memory.bandwidth"
    return replace(
        cpu,
        name=f"{cpu.name} ({fact.text})",
        facts={**cpu.facts, path: fact},
        values={**cpu.values, path: stated},
    )


def _gib(said: str) -> float:
    try:
        gib = units.read_number(said)
    except BadInput:
        gib = -1.0
    if not 0.0 <= gib <= units.MILLION:
        raise BadInput(
            say("--cpu-offload-gb {said!r}: write GiB from 0 on, as 10", said=shorten(said))
        )
    return gib * GIBI


def offload_notes(options: argparse.Namespace, server: Server) -> list[str]:
    """What the host holds and computes, and what nobody said of it."""
    passes, offload = server.passes, server.offload
    if offload is None or not isinstance(passes, OffloadedPasses):
        return []
    if offload.cpu is None:
        return [
            say(
                "{size} of each accelerator's weights in host memory, read in every pass",
                size=units.show(offload.weight_bytes, "memory"),
            )
        ]
    held = passes.host_bytes()
    notes = [
        say(
            "{on} of {layers} layers on accelerators; {off}, embedding and head on the host, "
            "{size} of weights",
            on=server.model.layers - offload.layers,
            layers=server.model.layers,
            off=offload.layers,
            size=units.show(held, "memory"),
        )
    ]
    room = server.cluster.node_memory_bytes or offload.cpu.need("memory.capacity")
    if held > room:
        raise BadInput(
            say(
                "--gpu-layers: the host would hold {held} of weights and has {room}; write a "
                "larger number, or narrower --weights",
                held=units.show(held, "memory"),
                room=units.show(room, "memory"),
            )
        )
    computes = say(
        "computed by {name}: DRAM at {rate}",
        name=offload.cpu.name,
        rate=units.show(offload.cpu.need("memory.bandwidth"), "bytes_per_second"),
    )
    if options.host_cpu is None and not _of_node(server.cluster):
        computes += say(" (assumed; name yours: --host-cpu)")
    return [*notes, computes]
