"""How points of loaded servers were measured: what a benchmark sent, and how it set the engine.

Two campaigns publish such points, and their scripts are public. They differ in what decides a time
to first token, so that each is simulated as it ran:

InferenceX (github.com/SemiAnalysisAI/InferenceX, benchmarks/benchmark_lib.sh) draws lengths
uniformly from 0.8 to 1.0 of those named (`--random-range-ratio 0.8`) and sends ten prompts a user,
prefix caching off; budgets as in its scripts of one node.

aiconfigurator's generator (github.com/ai-dynamo/aiconfigurator, src/aiconfigurator/generator:
bench_run.sh.j2 and rule_plugin/benchmark/*.rule): all lengths are equal, twenty requests a user,
max_batch_size is the concurrency, max_num_tokens = concurrency + input + 1500; SGLang runs with
enable_mixed_chunk. Its vLLM servers of 2025 had prefix caching on, and AIPerf repeats a hundred
prompts (`--num-dataset-entries`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from trueflops.profile import Engine
from trueflops.serve.load import Lengths, Requests, draw_requests
from trueflops.workload import Serving

SHORT, LONG = 1024, 8192
_INFERENCEX: Final = {(SHORT, SHORT), (SHORT, LONG), (LONG, SHORT)}
DISTINCT: Final = 100  # prompts of AIPerf
MOST: Final = 2560  # requests that are simulated for one point, where ten rounds are not more


@dataclass(frozen=True)
class Harness:
    """What is sent, and what the engine is set to."""

    requests: Requests
    engine: Engine
    lag: float  # seconds that its client sees beside what the engine's own server adds


LAG: Final = {"vllm": 0.01, "sglang": 0.1, "trt-llm": 0.05}
"""Of both campaigns, fitted to four in five of their points: under other clients a first token of
vLLM comes within 46 ms (inference-perf, CodeLlama-34B), one of SGLang within 28 and one of
TensorRT-LLM within 60 (vLLM's benchmark, Qwen3-8B), so that this is no part of these engines."""


def harness_of(load: Serving, users: int, engine: Engine, dated: bool, room: float) -> Harness:
    """The harness of a row. `users` and `room` (tokens of the cache) are those of one replica."""
    if dated or (load.input, load.output) in _INFERENCEX:
        return _inferencex(load, users, engine)
    return _generator(load, users, engine, room)


def _inferencex(load: Serving, users: int, engine: Engine) -> Harness:
    if engine.name == "trt-llm":  # MAX_NUM_TOKENS of its scripts
        engine = engine.but(step_tokens=max((users + load.input + 127) // 64 * 64, LONG))
    elif engine.name == "sglang":
        engine = engine.but(step_tokens=32768)
    lengths = (Lengths(size, 0.8, 1.0) for size in (load.input, load.output))
    requests = draw_requests(10 * users, *lengths, users=users)
    return Harness(requests, engine, LAG.get(engine.name, 0.0))


def _generator(load: Serving, users: int, engine: Engine, room: float) -> Harness:
    set_to = engine.told(users).but(step_tokens=users + load.input + 1500)
    if engine.name == "sglang":
        set_to = set_to.but(policy="mixed")
    rounds = int(np.clip(MOST // users, 10, 20))
    lengths = (Lengths(size, 1.0, 1.0) for size in (load.input, load.output))
    requests = draw_requests(rounds * users, *lengths, users=users)
    if engine.name == "vllm":
        requests = repeated(requests, DISTINCT, users, engine.block, room)
    return Harness(requests, set_to, LAG.get(engine.name, 0.0))


def repeated(requests: Requests, distinct: int, users: int, block: int, room: float) -> Requests:
    """The same, where so many prompts come round and round and the cache keeps what it has read.

    The oldest is dropped just before it is asked for again, unless all of them find room beside
    the requests under way; what is found are whole blocks, and never the last token.
    """
    under_way = users * float(np.mean(requests.input + requests.output))
    if room <= distinct * float(requests.input.mean()) + under_way:
        return requests
    again = np.arange(requests.count) >= distinct
    blocks = (requests.input - 1.0) // block * block
    return replace(requests, cached=np.where(again, blocks, 0.0))
