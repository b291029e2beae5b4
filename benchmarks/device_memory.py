"""What the driver shows beside what PyTorch reserved, and what PyTorch reserved of a step.

    python benchmarks/device_memory.py beside FILE.csv     context, libraries, communicators
    python benchmarks/device_memory.py steps FILE.csv      Llamas by framework_programs/, one rank
    python benchmarks/device_memory.py compare FILE.csv    the same steps captured; needs no GPU
On one GPU that nothing else uses. `beside` runs one process, in which libraries are loaded one
after the other: a row is what the device has in use, less what it had before and what PyTorch's
allocator reserved (CUDA_MODULE_LOADING=EAGER loads all kernels at once). Each of `steps` is a
process of its own, of six steps, on tensors that `compare` does without.
"""

from __future__ import annotations

import csv
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from framework_programs.cases import (
    AGAIN,
    ALONE,
    DEEP,
    LISTS,
    MIXED,
    ONE_B,
    SMALL,
    THREE_B,
    WIDE,
    Case,
    Fields,
    case_of,
)

HERE = Path(__file__).parent
PROGRAM = HERE / "framework_programs" / "hugging_face.py"
MEBI = 2**20
# One rank, whatever shards: there is one GPU. framework_memory.py captures one rank of eight.
ONE: Fields = {"world": 1, **LISTS}
CASES = (
    Case(**ALONE, **SMALL, seq=2048, micro_batch=4),
    Case(**ALONE, **SMALL, seq=1024, micro_batch=8, **MIXED),
    Case(**ALONE, **ONE_B, seq=2048),
    Case(**ALONE, **ONE_B, seq=2048, micro_batch=4, **AGAIN),
    Case(**{**ALONE, "optimizer": "fused"}, **ONE_B, seq=1024, **MIXED),
    Case(**ALONE, **DEEP, seq=2048, micro_batch=2, accumulation=2),
    Case(**ALONE, **THREE_B, seq=4096, **AGAIN),
    Case(engine="ddp", **ONE, **ONE_B, seq=2048, **MIXED),
    Case(engine="fsdp2", **ONE, **ONE_B, seq=2048, **WIDE),
    Case(engine="fsdp2", **ONE, **DEEP, seq=512, **WIDE),
    Case(engine="fsdp2", **ONE, **DEEP, seq=2048, micro_batch=2, accumulation=2, **WIDE, **AGAIN),
    Case(engine="fsdp2", **ONE, **THREE_B, seq=2048, micro_batch=2, **WIDE),
    Case(engine="fsdp1", **ONE, **ONE_B, seq=2048, **WIDE),
    Case(engine="fsdp1", **ONE, **DEEP, seq=2048, micro_batch=2, **WIDE, **AGAIN),
)
COLUMNS = (
    "engine", "tied", "micro_batch", "accumulation", "world", "rank", "zero", "parameter_dtype",
    "gradient_dtype", "autocast", "recompute", "optimizer", "bucket", "bucket_view", *SMALL, "seq",
)  # fmt: skip
"""Of a case in the table, as in truth/h200/reserved_steps.csv: the others are as usual."""


def beside(out: Path) -> None:
    """Load one library after the other, and read what the device has in use."""
    before = _used_by_others()
    import torch
    from torch.nn import functional as F  # noqa: N812
    from torch.nn.attention import SDPBackend, sdpa_kernel

    rows: list[dict[str, Any]] = []

    def read(what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except (RuntimeError, ImportError) as error:
            print(f"{what}: {str(error)[:200]}", flush=True)
            return
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved()
        shown = total - free - before * MEBI - reserved
        row = {"after": what, "beside_mib": round(shown / MEBI, 1)}
        row |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        row["loading"] = os.environ.get("CUDA_MODULE_LOADING", "lazy").casefold()
        rows.append(row)
        print(row, f"reserved {reserved / MEBI:.0f} MiB, before {before} MiB", flush=True)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def backward(result: Any) -> None:
        result.sum().backward()

    def attend(kernel: SDPBackend) -> None:
        q = leaf(2, 16, 2048, 128)
        with sdpa_kernel(kernel):
            backward(F.scaled_dot_product_attention(q, q, q, is_causal=True))

    def pointwise() -> None:
        x, table = leaf(4, 2048, 1024), leaf(32000, 1024)
        y = F.embedding(torch.randint(0, 32000, (4, 2048), device="cuda"), table)
        y = F.silu(F.rms_norm(x + y, (1024,))) * F.layer_norm(x, (1024,))
        logits = F.dropout(y @ table.t(), 0.1).float().flatten(0, 1)
        labels = torch.randint(0, 32000, (8192,), device="cuda")
        backward(F.cross_entropy(logits, labels))
        torch.nn.utils.clip_grad_norm_([x, table], 1.0)
        torch.optim.AdamW([x, table], fused=True).step()
        torch.optim.AdamW([x, table], foreach=True).step()

    def communicate(count: int) -> None:
        dist = torch.distributed
        if not dist.is_initialized():
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
            dist.init_process_group("nccl", rank=0, world_size=1)
        x = torch.ones(1 << 20, device="cuda")
        for _ in range(count):
            dist.all_reduce(x, group=dist.new_group([0]))

    def generated() -> None:
        once = torch.compile(lambda x: (F.gelu(x) * 2 + x).sum())
        backward(once(leaf(2048, 2048)))

    read("context", lambda: torch.zeros(1, device="cuda"))
    read("products", lambda: backward(leaf(4096, 4096) @ leaf(4096, 4096)))
    read("pointwise, loss, AdamW", pointwise)
    read("FlashAttention-2", lambda: attend(SDPBackend.FLASH_ATTENTION))
    read("cuDNN attention", lambda: attend(SDPBackend.CUDNN_ATTENTION))
    read("memory-efficient attention", lambda: attend(SDPBackend.EFFICIENT_ATTENTION))
    read("convolution", lambda: backward(F.conv2d(leaf(8, 64, 56, 56), leaf(64, 64, 3, 3))))
    read("compiled", generated)
    read("1 communicator of one rank", lambda: communicate(1))
    for more, count in ((1, 2), (2, 4), (4, 8)):
        read(f"{count} communicators", partial(communicate, more))
    _write(out, rows)


def _used_by_others() -> int:
    """MiB in use before this process touches the device."""
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


def steps(out: Path) -> None:
    """Every case in a process of its own; peaks of all its steps."""
    rows = []
    for number, case in enumerate(CASES):
        asked = [sys.executable, __file__, "one", str(number)]
        ran = subprocess.run(asked, capture_output=True, text=True, check=False)
        found = ran.stdout.strip().splitlines()[-1:] or [""]
        if ran.returncode or not found[0].startswith("{"):
            print(number, ran.stderr[-300:], flush=True)
            continue
        rows.append({name: getattr(case, name) for name in COLUMNS} | json.loads(found[0]))
        print(number, found[0], flush=True)
        _write(out, rows)


def one(number: int) -> None:
    """One case, here."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + number), "RANK": "0",
        "WORLD_SIZE": "1", "LOCAL_RANK": "0",
    }  # fmt: skip
    before = _used_by_others()
    import torch

    sys.argv = [str(PROGRAM), json.dumps(asdict(CASES[number]))]
    runpy.run_path(str(PROGRAM), run_name="__main__")
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_reserved()
    print(
        json.dumps(
            {
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
                "beside_bytes": total - free - before * MEBI - reserved,
                "torch": torch.__version__,
                "device": torch.cuda.get_device_name(),
            }
        )
    )


def compare(table: Path) -> None:
    """Peaks of measured steps beside those that the replica of the allocator gives."""
    from framework_memory import apart

    with table.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            case = case_of(row)
            found = apart(case)
            for what, kind in (("peak", "allocated"), ("reserved", "reserved")):
                measured = int(row[f"peak_{kind}_bytes"])
                error = 100.0 * (found[what] / measured - 1.0)
                print(f"{error:+6.2f} %  {kind:9} {measured / 2**30:6.2f} GiB  {case.name}")


def _write(out: Path, rows: list[dict[str, Any]]) -> None:
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Do what was asked."""
    what, where = sys.argv[1], sys.argv[2]
    if what == "one":
        one(int(where))
    elif what == "beside":
        beside(Path(where))
    elif what == "compare":
        compare(Path(where))
    else:
        steps(Path(where))


if __name__ == "__main__":
    main()
