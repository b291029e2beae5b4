"""What `make demo` runs: train Llama-3.1-70B on 64 H100s, and serve it from 8."""

from __future__ import annotations

from trueflops.cli.main import main
from trueflops.report.tables import console

QUESTIONS = (
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--tokens", "1T"],
    ["infer", "Llama-3.1-70B", "--on", "8xH100"],
)


def run() -> int:
    """Ask both questions as a user would."""
    out = console()
    codes = []
    for question in QUESTIONS:
        out.rule(f"[bold]trueflops {' '.join(question)}[/]", align="left")
        codes.append(main(question))
        out.print()
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(run())
