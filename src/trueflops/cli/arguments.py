"""Commands and flags. Imports nothing heavy: `trueflops --help` must answer at once."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from trueflops import __version__
from trueflops.errors import nearest, printable
from trueflops.measure.flags import add_flags


class Parser(argparse.ArgumentParser):
    """argparse that exits with one clear line and a suggestion."""

    def error(self, message: str) -> NoReturn:
        """One line, a suggestion, exit 2."""
        if "invalid choice" in message:
            wrong = message.split("'")[1] if "'" in message else ""
            near = nearest(wrong, [str(w) for a in self._actions for w in (a.choices or ())])
            message += f" — did you mean {near[0]}?" if near else ""
        refuse(message, self.prog)

    def flags(self) -> list[str]:
        """Every flag of this command."""
        return [flag for action in self._actions for flag in action.option_strings]

    def command(self, name: str) -> Parser:
        """The parser of one command."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found: Parser = action.choices[name]
                return found
        raise KeyError(name)


def refuse(message: str, program: str) -> NoReturn:
    """Say what was wrong with the command line and exit."""
    print(wrapped(f"trueflops: {message}"), file=sys.stderr)
    print(f"           [BAD_INPUT] see: {program} --help", file=sys.stderr)
    raise SystemExit(2)


def wrapped(message: str, width: int = 80) -> str:
    """An error on as many lines as it needs, indented under the program's name."""
    return textwrap.fill(
        message, width, subsequent_indent=" " * 11, break_on_hyphens=False, break_long_words=False
    )


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read a command line; an unknown flag is refused with the nearest of that command."""
    top = parser()
    options, unknown = top.parse_known_args(words)
    if unknown:
        command = top.command(options.command)
        wrong = unknown[0].split("=")[0]
        near = nearest(wrong, command.flags())
        hint = f"; did you mean {near[0]}?" if near else ""
        refuse(
            f"{options.command} has no flag or place for {printable(wrong, 60)!r}{hint}",
            command.prog,
        )
    return options


def whole(text: str) -> int:
    """A degree: a whole number of at least one."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is not a whole number") from None
    if not 1 <= value <= 10**9:
        raise argparse.ArgumentTypeError(f"{printable(text, 40)} must be at least 1")
    return value


def share(text: str) -> float:
    """A fraction between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is not a number") from None
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{printable(text, 40)} must lie between 0 and 1")
    return value


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="trueflops",
        description="What AI accelerators will really do: time, memory, money and energy of a\n"
        "model and a plan on any chip, each with an interval and an explanation.",
        epilog="examples:\n"
        "  trueflops train Llama-3.1-70B --on 64xH100 --tokens 1T\n"
        "  trueflops train Llama-3.1-70B --on 64xH100 --tp 8 --pp 4 --zero 1 --explain\n"
        "  trueflops infer Llama-3.1-70B --on 8xH100 --input 1024 --concurrency 64\n"
        "  trueflops compare H100 MI300X RTX4090 --for Llama-3.1-8B\n"
        "  trueflops explain matmul 4096x11008x4096 --on H100\n"
        "  trueflops catalog H100\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"trueflops {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (add, words) in _COMMANDS.items():
        add(commands.add_parser(name, help=words, allow_abbrev=False))
    return top


def _calibrate(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "folders", nargs="+", metavar="FOLDER", help="folders that hold measured kernels as CSV"
    )
    p.add_argument(
        "-o", "--output", metavar="FOLDER", help="where to write (default: the package's own data)"
    )
    p.add_argument("-v", "--verbose", action="store_true", help="tracebacks on errors")


def _profile(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--profile",
        metavar="PROFILE",
        default=None,
        help="what the chip delivers: a measured profile, by file or by name",
    )


def _common(p: argparse.ArgumentParser) -> None:
    p.add_argument("--json", action="store_true", help="one JSON object, SI units in the keys")
    p.add_argument("-v", "--verbose", action="store_true", help="tracebacks on errors")


def _where(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "model",
        metavar="MODEL",
        help="catalog name, config.json, a folder with one, or an answer of --json",
    )
    p.add_argument(
        "--on",
        metavar="CLUSTER",
        help="64xH100, 16x8xH100 (nodes × chips), 4xDGX-H100, Selene, or a TOML file",
    )
    p.add_argument("--price", metavar="USD/h", help="rent per accelerator-hour, as '2.5 USD/h'")
    p.add_argument(
        "--spot", action="store_true", default=None, help="price at spot instead of on demand"
    )
    p.add_argument(
        "--pue",
        type=float,
        default=None,
        metavar="X",
        help="data-centre overhead on energy (default 1: the machines alone)",
    )
    _profile(p)
    p.add_argument(
        "--framework",
        metavar="NAME",
        default=None,
        help="megatron, fsdp, composer, torchtitan, maxtext, plain …: its launches and overlap",
    )
    p.add_argument("--explain", action="store_true", help="every part of every total")
    p.add_argument("--top", type=whole, default=5, metavar="N", help="plans to list (default 5)")
    _common(p)


def _train(p: argparse.ArgumentParser) -> None:
    _where(p)
    asked = p.add_argument_group("workload")
    asked.add_argument("--tokens", metavar="N", help="15T, 300B … (default: 20 a parameter)")
    asked.add_argument("--seq", metavar="N", help="tokens a sequence (default: up to 8192)")
    asked.add_argument(
        "--global-batch", metavar="N", help="sequences a step (default: about 4 M tokens)"
    )
    p.add_argument("--plot", metavar="FILE.png", help="draw the waterfall (needs matplotlib)")
    plan = p.add_argument_group(
        "plan", "without any of tp, pp, cp, dp, ep: search; with --search: search the rest"
    )
    plan.add_argument(
        "--search", action="store_true", default=None, help="keep what is given, search the rest"
    )
    degree: dict[str, Any] = {"type": whole, "metavar": "N", "default": None}
    plan.add_argument("--tp", help="tensor parallel", **degree)
    plan.add_argument("--pp", help="pipeline stages", **degree)
    plan.add_argument("--vpp", help="interleaved pieces of each stage", **degree)
    plan.add_argument("--cp", help="context parallel", **degree)
    plan.add_argument("--dp", help="data parallel (default: what is left)", **degree)
    plan.add_argument("--dp-replicate", help="replicas that hold everything", **degree)
    plan.add_argument("--dp-shard", help="replicas that share by ZeRO", **degree)
    plan.add_argument("--ep", help="expert parallel", **degree)
    plan.add_argument(
        "--dispatch",
        choices=("all-to-all", "deduplicated"),
        default=None,
        help="send tokens once per expert, or once per node and forward them there (DeepEP)",
    )
    plan.add_argument("--etp", help="tensor parallel of each expert", **degree)
    plan.add_argument("--micro-batch", help="sequences a micro-batch", **degree)
    plan.add_argument(
        "--zero",
        type=int,
        choices=(0, 1, 2, 3),
        default=None,
        help="1: optimizer states shared, 2: and gradients, 3: and weights (FSDP)",
    )
    plan.add_argument(
        "--sp",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="sequence parallel beside tp (default: on when tp > 1)",
    )
    plan.add_argument("--cp-kind", choices=("ring", "all-to-all"), default=None)
    plan.add_argument(
        "--schedule",
        choices=("gpipe", "1f1b", "zb-h1", "zb-h2", "dualpipe"),
        default=None,
        help="pipeline schedule (vpp > 1 interleaves 1f1b)",
    )
    plan.add_argument("--first-stage-layers", help="layers of the first stage", **degree)
    plan.add_argument("--last-stage-layers", help="layers of the last stage", **degree)
    plan.add_argument("--recompute", choices=("none", "selective", "full"), default=None)
    plan.add_argument("--recompute-layers", help="layers of each stage that recompute", **degree)
    for what in ("optimizer", "parameters", "activations"):
        plan.add_argument(
            f"--offload-{what}",
            nargs="?",
            type=share,
            const=1.0,
            default=None,
            metavar="SHARE",
            help=f"keep {what} outside the accelerator",
        )
    plan.add_argument("--offload-to", choices=("host", "nvme"), default=None)
    plan.add_argument(
        "--optimizer",
        default=None,
        help="adamw (16 bytes a parameter in all), adamw-bf16, adamw-8bit, sgd, muon",
    )
    plan.add_argument(
        "--compute",
        choices=("bf16", "fp16", "fp8", "fp4", "tf32", "fp32"),
        default=None,
        help="dtype of matmuls (default: bf16 where the chip has it)",
    )
    plan.add_argument("--parameter-dtype", choices=("fp32", "bf16", "fp16"), default=None)
    plan.add_argument("--gradient-dtype", choices=("fp32", "bf16", "fp16"), default=None)
    plan.add_argument(
        "--engine",
        choices=("ddp", "dataparallel", "parameter-server"),
        default=None,
        help="how replicas agree on gradients",
    )
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": None}
    plan.add_argument("--flash", help="fused attention (default: on)", **switch)
    plan.add_argument("--fused", help="fused pointwise chains (default: on)", **switch)
    plan.add_argument(
        "--overlap", help="data-parallel communication beside compute (default: on)", **switch
    )


def _infer(p: argparse.ArgumentParser) -> None:
    _where(p)
    asked = p.add_argument_group("workload")
    asked.add_argument("--input", metavar="N", help="tokens to read (default 1024)")
    asked.add_argument("--output", metavar="N", help="tokens to write (default 256)")
    asked.add_argument("--concurrency", metavar="N", help="requests in flight (default 64)")
    asked.add_argument("--ttft", metavar="TIME", help="time to first token at most, as 500ms")
    asked.add_argument("--tpot", metavar="TIME", help="time per output token at most, as 50ms")
    plan = p.add_argument_group("plan", "without tp or pp: every cut of the cluster is tried")
    plan.add_argument("--tp", type=whole, default=None, metavar="N", help="tensor parallel")
    plan.add_argument("--pp", type=whole, default=None, metavar="N", help="pipeline stages")
    plan.add_argument("--ep", type=whole, default=None, metavar="N", help="expert parallel")
    plan.add_argument(
        "--weights",
        default=None,
        help="bf16 (default), fp16, fp8, int8, w8a16, int4, mxfp4, nvfp4, fp32",
    )
    plan.add_argument(
        "--cache",
        choices=("bf16", "fp16", "fp8", "fp32"),
        default=None,
        help="dtype of the KV cache (default: 16 bits)",
    )


def _compare(p: argparse.ArgumentParser) -> None:
    p.add_argument("chips", nargs="*", metavar="CHIP", help="chips (default: all that ship)")
    p.add_argument(
        "--for",
        dest="model",
        metavar="MODEL",
        help="add: does it fit, tokens/s, $ per million tokens, MFU",
    )
    p.add_argument("--vendor", metavar="NAME", help="only this vendor's")
    p.add_argument("--since", type=int, metavar="YEAR", help="only from this year on")
    p.add_argument("--until", type=int, metavar="YEAR", help="only up to this year")
    p.add_argument("--all", action="store_true", help="announced chips and rumours too")
    p.add_argument("--sort", metavar="COLUMN", help="bf16, fp8, memory, bandwidth, price, name …")
    p.add_argument("--seq", metavar="N", help="with --for: sequence length (default 4096)")
    _common(p)


def _catalog(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help="a chip, node, cluster, link, model or number format",
    )
    _common(p)


def _ops(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "file",
        metavar="FILE.csv",
        help="kernels by header: m,n,k | num_heads,…,isl | …,kv_len | experts,topk,… | "
        "op,gpus,bytes | kind,rows,columns",
    )
    p.add_argument("--on", metavar="CHIP", default=None, help="H100, or 8xH100 for collectives")
    _profile(p)
    _common(p)


def _capture(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "program", metavar="FILE.py:FUNCTION", help="builds all and returns the step, a callable"
    )
    p.add_argument("words", nargs="*", metavar="ARG", help="sys.argv of the program, after --")
    p.add_argument("--on", metavar="CHIP", default=None, help="H100, or 64xH100 for one rank of 64")
    p.add_argument("--world", type=whole, metavar="N", help="ranks (default: as --on has chips)")
    p.add_argument("--rank", type=int, metavar="R", help="which of them (default 0)")
    p.add_argument("--top", type=whole, default=12, metavar="N", help="kernels to list")
    p.add_argument("--graph", action="store_true", help="the IR: work and intensity by module")
    p.add_argument("--roofline", metavar="FILE.png", help="draw its kernels under the roofline")
    p.add_argument("--timeline", metavar="FILE.png", help="draw its memory over the step")
    p.add_argument("--trace", metavar="FILE.json", help="the timeline, for Perfetto")
    _profile(p)
    _common(p)


def _diagnose(p: argparse.ArgumentParser) -> None:
    p.add_argument("trace", metavar="TRACE.json", help="of PyTorch's profiler, packed or not")
    p.add_argument("--on", metavar="CHIP", default=None, help="H100 … (default: as the trace says)")
    p.add_argument(
        "--top", type=whole, default=12, metavar="N", help="kernels to list (default 12)"
    )
    _profile(p)
    _common(p)


def _explain(p: argparse.ArgumentParser) -> None:
    p.add_argument("what", choices=("matmul",), metavar="matmul", help="the kind of kernel")
    p.add_argument(
        "shape", nargs="+", metavar="MxNxK", help="y[m,n] = x[m,k]·W[n,k]ᵀ, as 4096x11008x4096"
    )
    p.add_argument("--on", metavar="CHIP", default=None, help="H100, MI300X, RTX4090 …")
    p.add_argument(
        "--dtype",
        default=None,
        help="bf16 (default, or fp32), fp16, tf32, fp32, fp8, fp8_block, int8, w8a16, int4, mxfp4, "
        "nvfp4",
    )
    _profile(p)
    p.add_argument("--plot", metavar="FILE.png", help="draw the roofline (needs matplotlib)")
    _common(p)


def _measure(p: argparse.ArgumentParser) -> None:
    add_flags(p)
    p.add_argument("--plot", metavar="FILE.png", help="show: draw the roofline")
    _common(p)


def _verify(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "files", nargs="+", metavar="FILE.csv", help="measured results, known by their header"
    )
    _profile(p)
    p.add_argument(
        "--held-out", action="store_true", help="only the rows that nothing was fitted to"
    )
    _common(p)


_COMMANDS = {
    "train": (_train, "predict a training plan, or search for the best"),
    "infer": (_infer, "predict serving: latency, tokens/s, KV cache"),
    "compare": (_compare, "chips side by side, dense only; --for a model"),
    "catalog": (_catalog, "every fact with its source"),
    "ops": (_ops, "price a list of kernels"),
    "capture": (_capture, "a real PyTorch program on a chip that you do not have"),
    "diagnose": (_diagnose, "why a real run is slow: a profiler's trace beside predictions"),
    "explain": (_explain, "how one matmul runs: limits, tiles, traffic"),
    "measure": (_measure, "what this machine really delivers: a profile"),
    "calibrate": (_calibrate, "rebuild the shipped profiles from measurements"),
    "verify": (_verify, "predicted against measured, by source"),
}
