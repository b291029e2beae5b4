"""What a framework's own code costs the host: steps of a small model on one GPU, two depths.

python benchmarks/framework_hosts.py measure [WAY ...] -o FILE.csv
python benchmarks/framework_hosts.py show FILE.csv    host time a layer, beside plain PyTorch's

Needs a GPU, torch and transformers; DeepSpeed and megatron-core where present.
Sequences are so short that the GPU waits for the host all the time, and the world has one rank:
what is left is Python, hooks and calls. A host's speed changes within seconds, so steps of plain
PyTorch and of the framework take turns; the depths' difference is that of their layers alone.
"""

from __future__ import annotations

import argparse
import csv
import gc
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent / "examples")]
from trueflops.measure.host_speed import python_loop_seconds  # noqa: E402

Step = Callable[[], Any]
FEW, MANY = 4, 12  # layers
STEPS, WARM = 30, 6
TOKENS = 16
VOCABULARY = 1024
BIASED = " biases"  # at the end of a way whose model has them
EXPERTS = " {} experts"  # and of one whose layers have so many
HIDDEN, FFN, HEADS = 512, 1408, 8
COLUMNS = (
    "way", "checkpointed", "layers", "step_seconds", "plain_seconds", "python_loop_seconds",
    "torch", "software",
)  # fmt: skip


def llama(layers: int, checkpointed: bool, biases: bool = False) -> Any:
    """A Llama whose every kernel is short; `biases`: 7 weights a layer more in as many modules."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=layers,
            num_attention_heads=HEADS, num_key_value_heads=HEADS, vocab_size=VOCABULARY,
            use_cache=False, attention_bias=biases, mlp_bias=biases,
        )
    )  # fmt: skip
    if checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train().to("cuda", torch.bfloat16)


def tokens() -> torch.Tensor:
    """One short sequence."""
    return torch.randint(0, VOCABULARY, (1, TOKENS), device="cuda")


def stepping(model: Any) -> Step:
    """PyTorch's own loop; a `fused` AdamW, so that the optimizer is one call."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = tokens()

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def plain(layers: int, checkpointed: bool, biases: bool = False) -> Step:
    """No framework."""
    return stepping(llama(layers, checkpointed, biases))


def ddp(layers: int, checkpointed: bool) -> Step:
    """Replicas."""
    return stepping(torch.nn.parallel.DistributedDataParallel(llama(layers, checkpointed)))


def fsdp2(layers: int, checkpointed: bool) -> Step:
    """`fully_shard` of every layer and of the whole."""
    from torch.distributed.fsdp import fully_shard

    model = llama(layers, checkpointed)
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    return stepping(model)


def zero(stage: int, biases: bool = False) -> Callable[[int, bool], Step]:
    """DeepSpeed's engine, in bf16."""

    def build(layers: int, checkpointed: bool) -> Step:
        import deepspeed

        model = llama(layers, checkpointed, biases)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        own = {"stage3_param_persistence_threshold": 0} if stage == 3 else {}
        engine, *_ = deepspeed.initialize(
            model=model,
            optimizer=optimizer,
            config={
                "train_micro_batch_size_per_gpu": 1,
                "gradient_clipping": 1.0,
                "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": stage, "reduce_bucket_size": 10**7, **own},
                "bf16": {"enabled": True},
            },
        )
        ids = tokens()

        def step() -> None:
            engine.backward(engine(input_ids=ids, labels=ids).loss)
            engine.step()

        return step

    return build


def megatron(layers: int, checkpointed: bool, experts: int = 0) -> Step:
    """Megatron-core's local layers, its schedule and its distributed optimizer; `experts`: so many
    instead of each feed-forward, run one after another, their tokens sent as to several ranks.
    """
    import megatron_gpt as example
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer.moe import moe_utils

    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(1, 1)
        tensor_parallel.model_parallel_cuda_manual_seed(1)
    options = Namespace(
        tp=1, pp=1, vpp=0, ep=1, experts=experts, topk=2, layers=layers, hidden=HIDDEN, heads=HEADS,
        seq=TOKENS, batch=1, microbatches=1, sp=False, recompute=checkpointed, overlap=False,
        dispatcher="alltoall",
    )  # fmt: skip
    config = example.configured(options)
    chunks = example.chunks_of(config, options)
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            lr=1e-4, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=True
        ),
        chunks,
    )
    run, data = get_forward_backward_func(), example.batches(options)
    balance = moe_utils.get_moe_layer_wise_logging_tracker()

    def step() -> None:
        balance.clear()  # as long as one model has layers, and two take turns
        chunks[0].zero_grad_buffer()
        optimizer.zero_grad()
        run(
            forward_step_func=example.forward_step, data_iterator=data, model=chunks[0],
            num_microbatches=1, seq_length=TOKENS, micro_batch_size=1, forward_only=False,
        )  # fmt: skip
        optimizer.step()

    return step


WAYS: dict[str, Callable[[int, bool], Step]] = {
    "zero3": zero(3), "zero2": zero(2), "megatron": megatron, "fsdp2": fsdp2, "zero1": zero(1),
    "ddp": ddp, **{f"zero{stage}{BIASED}": zero(stage, biases=True) for stage in (3, 2, 1)},
    **{f"megatron{EXPERTS.format(n)}": partial(megatron, experts=n) for n in (4, 16)},
}  # fmt: skip
PACKAGES = {
    **{way: "deepspeed" for way in WAYS if way.startswith("zero")},
    **{way: "megatron" for way in WAYS if way.startswith("megatron")},
}


MODULES = {"megatron": "megatron.core"}  # of a package, the one that knows its version


def turns(steps: Iterable[Step]) -> list[float]:
    """The median seconds of each step, all of them taking turns."""
    every = list(steps)
    times: list[list[float]] = [[] for _ in every]
    for number in range(WARM + STEPS):
        for step, seen in zip(every, times, strict=True):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            step()
            torch.cuda.synchronize()
            if number >= WARM:
                seen.append(time.perf_counter() - begun)
    return [statistics.median(seen) for seen in times]


def one(way: str, checkpointed: bool, out: Path) -> None:
    """A way in a process of its own: frameworks keep their state."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(29500 + os.getpid() % 1000)}  # fmt: skip
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda:0"))
    alike = partial(plain, biases=way.endswith(BIASED))
    built = [build(layers, checkpointed) for build in (alike, WAYS[way]) for layers in (FEW, MANY)]
    gc.disable()
    bare_few, bare_many, own_few, own_many = turns(built)
    software = ""
    if way in PACKAGES:
        package = importlib.import_module(MODULES.get(PACKAGES[way], PACKAGES[way]))
        software = f"{package.__name__} {package.__version__}"
    with out.open("a", newline="", encoding="utf-8") as file:
        write = csv.writer(file)
        for layers, own, bare in ((FEW, own_few, bare_few), (MANY, own_many, bare_many)):
            write.writerow(
                (way, int(checkpointed), layers, f"{own:.6f}", f"{bare:.6f}",
                 f"{python_loop_seconds():.6f}", torch.__version__, software)
            )  # fmt: skip
    os._exit(0)  # some frameworks hang in their farewells


def measure(out: Path, ways: Iterable[str]) -> None:
    """These ways, as far as their framework is here."""
    with out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow(COLUMNS)
    for way in ways:
        package = PACKAGES.get(way)
        if package and importlib.util.find_spec(package) is None:
            print(f"{way}: {package} is not installed, left out")
            continue
        for checkpointed in ("0", "1"):
            done = subprocess.run(
                [sys.executable, __file__, "one", way, checkpointed, "-o", str(out)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                print(f"{way} {checkpointed}: {done.stderr[-600:]}")


def show(path: Path) -> None:
    """Milliseconds of host work a layer, beside those of plain PyTorch at the same time."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by_case: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for row in rows:
        seconds = float(row["step_seconds"]), float(row["plain_seconds"])
        by_case.setdefault((row["way"], row["checkpointed"]), {})[int(row["layers"])] = seconds
    for (way, checkpointed), at in by_case.items():
        own, bare = ((at[MANY][i] - at[FEW][i]) / (MANY - FEW) * 1e3 for i in (0, 1))
        rest = [at[FEW][i] * 1e3 - FEW * each for i, each in enumerate((own, bare))]
        print(
            f"{way:12s} checkpointed {checkpointed}: {own:6.2f} ms a layer, plain {bare:5.2f} "
            f"({own / bare:.2f} times); {rest[0]:6.2f} ms beside them, plain {rest[1]:5.2f}"
        )


def main() -> None:
    """Measure, or show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure", "one", "show"))
    parser.add_argument("which", nargs="*")
    parser.add_argument("-o", "--out", type=Path, default=Path("framework_hosts.csv"))
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.out, options.which or WAYS)
    elif options.what == "one":
        way, checkpointed = options.which
        one(way, checkpointed == "1", options.out)
    else:
        show(Path(options.which[0]))


if __name__ == "__main__":
    main()
