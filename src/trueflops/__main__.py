"""The program: `trueflops`, and python -m trueflops. Ctrl-C ends it quietly from the start."""

import os
import signal
from typing import Any


def _leave(*_: Any) -> None:
    os._exit(130)  # while modules load there is nothing to clean up and nothing to say


def main() -> int:
    """Run the command line; until its command begins, an interruption just ends it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else someone ignores it
        signal.signal(signal.SIGINT, _leave)
    from trueflops.cli import main as run

    def begin() -> None:
        if signal.getsignal(signal.SIGINT) is _leave:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    return run(begin=begin)


if __name__ == "__main__":
    raise SystemExit(main())
