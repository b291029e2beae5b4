"""How straight the road from a question to its seconds is: which of our files it enters, in order.

    python benchmarks/walks.py [--files]

A stay is a run of calls into one file; a return is a stay in a file that was left before. Who reads
the code along that road opens a file at every stay, and opens one again at every return. Counted
are entries of functions (a generator that goes on is entered again), the second time that a
question is asked, when everything that is kept in memory is there. Rooms in which figures are only
looked up or shown stand aside: catalog, profile, cli, report, and the errors.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import trueflops
from trueflops.cli import main as run_command

ASIDE = ("catalog/", "profile/", "cli/", "report/", "errors.py")
PACKAGE = f"{Path(trueflops.__file__).parent}/"
ROWS = {
    "matmul": "gpu,dtype,m,n,k,latency_us,backend,version,kernel\n"
    "a100,bfloat16,768,1024,2560,25.782,sglang,0.5.10,sglang\n",
    "attention": "gpu,attn_dtype,kv_dtype,head_dim,num_heads,num_kv_heads,window,batch,isl,"
    "latency_us,backend,version,kernel\n"
    "a100,bfloat16,bfloat16,128,1,1,0,2,16,14.115,sglang,0.5.10,flash_attention\n",
    "collective": "gpu,op,library,version,dtype,gpus,bytes,kernel,latency_us\n"
    "a100,all_gather,nccl,2.27.3,half,2,1024,NCCL,9.08\n",
}  # of truth/ops
PLAN = "train Llama-3.1-70B --on 64xH100 --tp 8 --pp 4 --recompute full --json"


def stays(words: Sequence[str]) -> list[str]:
    """The files that a command enters, one after another."""
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            file = code.co_filename.removeprefix(PACKAGE)
            if not file.startswith(ASIDE):
                entered.append(file)

    with contextlib.redirect_stdout(io.StringIO()):
        run_command(words)
        sys.setprofile(note)
        try:
            failed = run_command(words)
        finally:
            sys.setprofile(None)
    if failed:
        raise SystemExit(f"trueflops {' '.join(words)} failed")
    return [file for file, _ in groupby(entered)]


def show(question: str, words: Sequence[str], *, with_files: bool) -> None:
    """Print one question's stays and returns, and with `with_files` where it passes."""
    path = stays(words)
    files = len(set(path))
    print(f"{len(path):5d} stays in {files} files, {len(path) - files:4d} returns  {question}")
    if with_files:
        seen: set[str] = set()
        for file in path:
            print(f"      {'↩' if file in seen else ' '} {file}")
            seen.add(file)


def main() -> None:
    """Ask every question twice and show the second walk."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--files", action="store_true", help="list the files, ↩ at returns")
    with_files = options.parse_args().files
    with tempfile.TemporaryDirectory() as folder:
        for name, table in ROWS.items():
            file = Path(folder, f"{name}.csv")
            file.write_text(table)
            show(f"verify: one measured {name}", ("verify", str(file)), with_files=with_files)
    show(PLAN, PLAN.split(), with_files=with_files)


if __name__ == "__main__":
    main()
