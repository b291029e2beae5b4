"""Files that start a deployment: a script for each engine, TensorRT-LLM's options, Dynamo's graph.

In: a Deployed. Out: files by name, and back. Several replicas are the engine's own (vLLM, SGLang)
or so many servers beside each other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput, UnknownName, join_or, printable
from trueflops.files import is_file, read_file
from trueflops.interop.engines.commands import flag_words, read_command, settled, theirs
from trueflops.interop.engines.deployed import VOCABULARIES, Deployed
from trueflops.interop.engines.drafts import TO_BE_SET, counted_by, method_of, with_drafter
from trueflops.interop.engines.dynamo import IN_DYNAMO, read_graph, write_graph
from trueflops.interop.engines.manifests import copies_of, script_of, starts_containers
from trueflops.interop.engines.partition import exports
from trueflops.interop.engines.told import check_told
from trueflops.interop.engines.values import share_of, whole
from trueflops.interop.launch.texts import from_yaml, to_yaml
from trueflops.language import say

TOOLS: Final[Mapping[str, str]] = {
    "vllm": "vllm", "sglang": "sglang", "trtllm": "trt-llm", "llamacpp": "llama.cpp",
    "dynamo": "",
}  # fmt: skip
"""Tools of --emit and the engine of each; Dynamo starts one of three."""
RELEASES: Final = {
    "vllm": "vLLM 0.28", "sglang": "SGLang 0.5.18", "trtllm": "TensorRT-LLM 1.2",
    "llamacpp": "llama.cpp of August 2026", "dynamo": "Dynamo 1.4 (nvidia.com/v1beta1)",
}  # fmt: skip
_COMMANDS: Final = {
    "vllm": 'vllm serve "$MODEL"',
    "sglang": 'python3 -m sglang.launch_server --model-path "$MODEL"',
    "trt-llm": 'trtllm-serve "$MODEL"',
    "llama.cpp": 'llama-server --model "$MODEL"',
}
_DRAFT: Final = "DRAFT=${DRAFT:?the drafter: a folder or a name on Hugging Face}"
_SERVERS: Final = re.compile(r"^(?:REPLICAS|SERVERS)=(\d{1,6})\b", re.MULTILINE)
_NODES: Final = re.compile(r"^NODES=(\d{1,6})\b", re.MULTILINE)
_CHECKPOINT: Final = re.compile(
    r"^# MODEL must be a checkpoint whose weights are (\S+)$", re.MULTILINE
)
_OPTIONS: Final = re.compile(r"--(?:config|extra_llm_api_options|extra-engine-args)[= ]\s*(\S+)")


def engine_of_tool(tool: str, asked: str | None) -> str:
    """The engine whose deployment a tool starts."""
    if tool not in TOOLS:
        raise UnknownName("tool of --emit", tool, list(TOOLS))
    if engine := TOOLS[tool]:
        return engine
    if asked is not None and asked not in IN_DYNAMO:
        raise BadInput(
            say(
                "--emit dynamo: Dynamo starts {names}, not {asked}; write --engine with one of "
                "them",
                names=join_or(IN_DYNAMO),
                asked=asked,
            )
        )
    return asked or "vllm"


_TUNED: Final = {"vllm": "VLLM_ROCM_USE_AITER", "sglang": "SGLANG_USE_AITER"}
"""What has to be set for an engine to run the kernels that AMD tunes: off in vllm/envs.py, set in
SGLang's images for ROCm."""


def write_deployment(
    tool: str, deployed: Deployed, about: str, per_node: int, *, vendor: str = "NVIDIA"
) -> dict[str, str]:
    """The files by name; the first is what starts it, on accelerators of a vendor."""
    check_told(tool, deployed, per_node)
    before = exports(deployed, tool)
    if vendor == "AMD" and deployed.engine in _TUNED:
        before.append(f"export {_TUNED[deployed.engine]}=1")
    if tool == "dynamo":
        return {"graph.yaml": write_graph(deployed, about, _engine_words)}
    script = _script(deployed, about, per_node, before)
    if deployed.engine != "trt-llm":
        return {"serve.sh": script}
    return {"serve.sh": script, "options.yaml": _options(deployed, about)}


def read_deployment(
    path: Path, *, cards: int | None = None, typed: Collection[str] | None = None
) -> Deployed:
    """What a script, a file of containers, of TensorRT-LLM's options or a graph of Dynamo's says.

    `cards` are those of a node: what llama.cpp takes unless it is told. `typed` are the fields that
    win over the file's.
    """
    text, where = read_file(path).decode(errors="replace"), printable(path.name)
    if path.suffix in (".yaml", ".yml"):
        if "DynamoGraphDeployment" in text:
            return _with_checkpoint(with_drafter(read_graph(text, where), text), text)
        if starts_containers(text):
            script = script_of(text)
            said = read_command(script, where=where, folder=path.parent, cards=cards, typed=typed)
            return replace(said, servers=copies_of(text))
        said = _read_options(text, where, {}, ())
        return _with_checkpoint(with_drafter(said, text), text)
    several = _SERVERS.search(text)
    per_server = None if several else cards
    said = read_command(text, where=where, folder=path.parent, cards=per_server, typed=typed)
    if said.engine == "trt-llm":
        said = _with_options(said, _OPTIONS.search(text), path)
    if several:
        nodes = _NODES.search(text)
        said = replace(said, servers=int(several[1]) * int(nodes[1] if nodes else 1))
    return _with_checkpoint(with_drafter(said, text), text)


def checkpoint_line(weights: str) -> str:
    """What a file says of weights that the checkpoint must have, as no flag asks for them."""
    return f"MODEL must be a checkpoint whose weights are {weights}"


def _with_checkpoint(said: Deployed, text: str) -> Deployed:
    found = _CHECKPOINT.search(text)
    return replace(said, weights=found[1]) if found and said.weights is None else said


def _engine_words(deployed: Deployed) -> list[str]:
    """The flags, with what an engine calls the ranks of attention and how it counts drafts."""
    deployed = counted_by(deployed)
    tp, dp = deployed.tp or 1, deployed.dp or 1
    if deployed.engine == "sglang" and deployed.shares_experts:
        most, chunk = deployed.max_num_seqs, deployed.max_num_batched_tokens
        whole_group = replace(
            deployed,
            tp=tp * dp,
            max_num_seqs=most and most * dp,
            max_num_batched_tokens=chunk and chunk * dp,
        )
        balances = ["--enable-eplb"] if deployed.redundant_experts else []
        return [*flag_words(whole_group), "--enable-dp-attention", *balances]
    if deployed.engine == "llama.cpp":
        slots = deployed.max_num_seqs or 1
        length = (deployed.max_model_len or 0) * slots or None
        words = flag_words(replace(deployed, max_model_len=length))
        if deployed.cache:
            word = theirs(VOCABULARIES["llama.cpp"].caches, deployed.cache, "cache")
            words.append(f"--cache-type-v {word}")
        cards = tp * (deployed.pp or 1)
        if cards > 1:
            words.append(f"--split-mode {'row' if tp > 1 else 'layer'}")
            words.append(f"--tensor-split {deployed.tensor_split or ','.join(['1'] * cards)}")
        return words
    if deployed.engine == "trt-llm":
        return ['--config "$HERE/options.yaml"']
    return flag_words(deployed)


def _script(deployed: Deployed, about: str, per_node: int, before: list[str]) -> str:
    ranks = (deployed.tp or 1) * (deployed.pp or 1) * (deployed.dp or 1)
    servers = deployed.servers or 1
    words = _engine_words(deployed)
    lines = ["#!/usr/bin/env bash", *(f"# {line}" for line in about.splitlines())]
    lines += [
        "set -euo pipefail",
        *(['HERE=$(dirname "$0")'] if deployed.engine == "trt-llm" else []),
        "MODEL=${MODEL:?the checkpoint: a folder, a file or a name on Hugging Face}",
        "PORT=${PORT:-8000}",
        *([_DRAFT] if deployed.draft_model and deployed.engine != "trt-llm" else []),
        *before,
    ]
    command = _COMMANDS[deployed.engine]
    if ranks > per_node:
        nodes = -(-ranks // per_node)
        if servers > 1:
            lines.append(f"SERVERS={servers}  # groups of nodes: run this in each")
        lines.append(f"# {nodes} nodes: {_ACROSS[deployed.engine]}")
        words += _across_words(deployed.engine, nodes)
    each = per_node // ranks  # servers of a node
    if servers == 1 or not each:
        lines.append(" \\\n  ".join([command, *words, '--port "$PORT"', '"$@"']))
        return "\n".join(lines) + "\n"
    if servers > each:
        lines.append(f"NODES={-(-servers // each)}  # run this on each of them")
    lines += [
        f"SERVERS={min(servers, each)}",
        "for i in $(seq 0 $((SERVERS - 1))); do",
        f"  export CUDA_VISIBLE_DEVICES=$(seq -s, $((i * {ranks})) $((i * {ranks} + {ranks - 1})))",
        " \\\n    ".join([f"  {command}", *words, '--port "$((PORT + i))"', '"$@" &']),
        "done",
        "wait",
    ]
    return "\n".join(lines) + "\n"


_ACROSS: Final = {
    "vllm": "start Ray on each of them first, then this on the first",
    "sglang": "run this on each, with NODE_RANK and MASTER_ADDR set",
    "trt-llm": "run this in `srun --mpi=pmix` with trtllm-llmapi-launch before it",
    "llama.cpp": "",
}


def _across_words(engine: str, nodes: int) -> list[str]:
    if engine == "vllm":
        return ["--distributed-executor-backend ray"]
    if engine == "sglang":
        return [
            f"--nnodes {nodes}",
            '--node-rank "${NODE_RANK:-0}"',
            '--dist-init-addr "${MASTER_ADDR:-localhost}:20000"',
        ]
    return []


def _options(deployed: Deployed, about: str) -> str:
    """TensorRT-LLM's LlmArgs."""
    shared = deployed.shares_experts
    group = (deployed.tp or 1) * (deployed.dp or 1) if shared else deployed.tp
    spoken = VOCABULARIES["trt-llm"]
    values: dict[str, Any] = {}
    for key, field in (spoken.yaml or {}).items():
        if not key.startswith("speculative_config."):
            value = group if field == "tp" else getattr(deployed, field)
            values[key] = None if value == 1 and field in ("pp", "ep") else value
    if deployed.cache is not None:
        values["kv_cache_config.dtype"] = theirs(spoken.caches, deployed.cache, "cache")
    if shared:
        values["enable_attention_dp"] = True
    return to_yaml(values | _draft_options(deployed), about)


def _draft_options(deployed: Deployed) -> dict[str, Any]:
    """LlmArgs' speculative_config."""
    if deployed.speculate is None:
        return {}
    counted = "num_nextn_predict_layers" if deployed.speculate == "mtp" else "max_draft_len"
    methods = VOCABULARIES["trt-llm"].methods
    values = {
        "decoding_type": theirs(methods, deployed.speculate, "speculate"),
        counted: deployed.num_speculative_tokens,
        "speculative_model": TO_BE_SET if deployed.draft_model else None,
    }
    return {f"speculative_config.{key}": value for key, value in values.items()}


def _read_options(
    text: str, where: str, said: dict[str, Any], ignored: tuple[str, ...]
) -> Deployed:
    read = from_yaml(text, where)
    spoken = VOCABULARIES["trt-llm"]
    left: list[str] = []
    for key, value in read.values.items():
        field = (spoken.yaml or {}).get(key)
        at = say("{where}, line {line}: {key}", where=where, line=read.lines.get(key, 1), key=key)
        if field == "cache":
            if value in spoken.caches:
                said[field] = spoken.caches[value]
        elif field == "memory_share":
            said[field] = share_of(str(value), at)
        elif field == "draft_model":
            said[field] = str(value)
        elif field == "speculate":
            said[field] = method_of(str(value), "trt-llm")
            left += [] if said[field] else [f"{key} {value}"]
        elif field:
            said[field] = whole(str(value), at)
        elif key == "enable_attention_dp":
            said["dp_attention"] = value is True
        else:
            left.append(f"{key} {value}")
    if len(left) == len(read.values):
        raise BadInput(
            say(
                "{where}: holds none of TensorRT-LLM's options, such as tensor_parallel_size, and "
                "is no graph of Dynamo's; name the script or file that starts an engine",
                where=where,
            )
        )
    return settled("trt-llm", said, (*ignored, *left))


def _with_options(said: Deployed, found: re.Match[str] | None, path: Path) -> Deployed:
    """The file of options that a command names, which wins over its flags."""
    if found is None:
        return said
    name = found[1].strip("\"'").replace("$HERE/", "").replace("${HERE}/", "")
    beside = path.parent / name
    ignored = tuple(word for word in said.ignored if name not in word)
    if not is_file(beside):
        raise BadInput(
            say(
                "{where}: names {name}, which is not beside it; copy it there",
                where=printable(path.name),
                name=printable(name),
            )
        )
    known = {
        key: value
        for key, value in vars(said).items()
        if value is not None and key not in ("engine", "ignored")
    }
    return _read_options(read_file(beside).decode(errors="replace"), name, known, ignored)
