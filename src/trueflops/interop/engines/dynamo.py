"""Dynamo's DynamoGraphDeployment: a frontend and workers, written for an engine and read back."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from trueflops.errors import BadInput, join_or, printable
from trueflops.interop.engines.commands import read_command
from trueflops.interop.engines.deployed import Deployed
from trueflops.interop.engines.drafts import CHECKPOINT
from trueflops.language import say

IN_DYNAMO: Final = {"vllm": "dynamo.vllm", "sglang": "dynamo.sglang", "trt-llm": "dynamo.trtllm"}


def write_graph(
    deployed: Deployed, about: str, engine_words: Callable[[Deployed], list[str]]
) -> str:
    """Dynamo's DynamoGraphDeployment: a frontend, and so many workers."""
    tp, pp, dp = deployed.tp or 1, deployed.pp or 1, deployed.dp or 1
    shared = deployed.shares_experts
    words = ["--model-path" if deployed.engine != "vllm" else "--model", "$(MODEL)"]
    if deployed.engine == "trt-llm":
        if deployed.cache is not None:
            raise BadInput(
                say("--emit dynamo: it has no flag for TensorRT-LLM's --cache; leave it out")
            )
        if deployed.speculate is not None:
            raise BadInput(
                say("--emit dynamo: it has no flag for TensorRT-LLM's drafts; write --emit trtllm")
            )
        group = replace(deployed, tp=tp * dp) if shared else deployed
        for field, flag in _DYNAMO_TRTLLM.items():
            value = getattr(group, field)
            words += [flag, f"{value}"] if value is not None else []
        words += ["--enable-attention-dp"] if shared else []
    else:
        for each in engine_words(deployed):
            words += each.replace(CHECKPOINT, "$(DRAFT)").split(" ")
    args = "".join(f'          - "{word}"\n' for word in words)
    name = deployed.engine.replace("-", "").replace(".", "")
    drafter = (
        '          - name: DRAFT\n            value: "SET-ME"\n' if deployed.draft_model else ""
    )
    return (
        "".join(f"# {line}\n" for line in about.splitlines())
        + f"""# Set MODEL's value and the images; then: kubectl apply -f graph.yaml
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata:
  name: {name}-serve
spec:
  components:
  - name: Frontend
    type: frontend
    replicas: 1
    podTemplate:
      spec:
        containers:
        - name: main
          image: nvcr.io/nvidia/ai-dynamo/{_IMAGES[deployed.engine]}:my-tag
  - name: Worker
    type: worker
    replicas: {deployed.servers or 1}
    podTemplate:
      spec:
        containers:
        - name: main
          image: nvcr.io/nvidia/ai-dynamo/{_IMAGES[deployed.engine]}:my-tag
          env:
          - name: MODEL
            value: "SET-ME"
{drafter}          command:
          - python3
          - -m
          - {IN_DYNAMO[deployed.engine]}
          args:
{args}          resources:
            limits:
              nvidia.com/gpu: "{tp * pp * dp}"
"""
    )


_IMAGES: Final = {
    "vllm": "vllm-runtime", "sglang": "sglang-runtime", "trt-llm": "tensorrtllm-runtime",
}  # fmt: skip
_DYNAMO_TRTLLM: Final = {
    "tp": "--tensor-parallel-size", "pp": "--pipeline-parallel-size",
    "ep": "--expert-parallel-size", "memory_share": "--free-gpu-memory-fraction",
    "max_model_len": "--max-seq-len", "max_num_seqs": "--max-batch-size",
    "max_num_batched_tokens": "--max-num-tokens", "block_size": "--kv-block-size",
}  # fmt: skip


def read_graph(text: str, where: str) -> Deployed:
    """The worker of a graph, or the one that decodes; other workers are named."""
    workers = []
    for name, lines in _components(text):
        words = _listed(lines, "command") + _listed(lines, "args")
        line = " ".join(words)
        if any(started in line for started in IN_DYNAMO.values()):
            said_replicas = re.search(r"replicas:\s*(\d{1,6})", "\n".join(lines))
            workers.append((name, line, int(said_replicas[1]) if said_replicas else 1))
    if not workers:
        raise BadInput(
            say(
                "{where}: no component of this graph starts {names}",
                where=where,
                names=join_or(IN_DYNAMO.values()),
            )
        )
    workers.sort(key=lambda worker: "prefill" in worker[0].casefold())
    name, line, replicas = workers[0]
    said = read_command(line, where=where)
    others = tuple(f"component {printable(other)}" for other, *_ in workers[1:])
    servers = replicas if replicas > 1 else None
    return replace(said, servers=servers, ignored=(*said.ignored, *others))


def _components(text: str) -> list[tuple[str, list[str]]]:
    """The parts of a graph: items of `components` (v1beta1) or keys of `services` (v1alpha1)."""
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[:1] != "#"]
    starts = [i for i, line in enumerate(lines) if line.strip() in ("components:", "services:")]
    if not starts or starts[0] + 1 >= len(lines):
        return []
    inside = lines[starts[0] + 1 :]
    indent = _indent(inside[0])
    found: list[tuple[str, list[str]]] = []
    for line in inside:
        if _indent(line) < indent:
            break
        if _indent(line) == indent:
            found.append((line.strip().lstrip("- ").removeprefix("name:").strip(" :"), []))
        found[-1][1].append(line)
        named = re.match(r"\s*name:\s*(\S+)", line)
        if named and _indent(line) == indent + 2:
            found[-1] = (named[1], found[-1][1])
    return found


def _listed(lines: list[str], key: str) -> list[str]:
    """The words of a list under a key, in brackets or one to a line."""
    words: list[str] = []
    depth = None
    for line in lines:
        bare = line.strip().removeprefix("- ") if depth is None else line.strip()
        if depth is None and bare.startswith(f"{key}:"):
            rest = bare.removeprefix(f"{key}:").strip()
            if rest:
                return [word.strip(" \"'") for word in rest.strip("[]").split(",")]
            # Of a list item `- args:` the key stands two further in.
            depth = _indent(line) + (2 if line.strip().startswith("- ") else 0)
        elif depth is not None:
            if not bare.startswith("- ") or _indent(line) < depth:
                break
            words.append(bare[2:].strip(" \"'"))
    return words


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
