"""Stand-ins for the command line in workers of the web server: each does what none should."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from trueflops.web.worker import STOP


def misbehave(words: Sequence[str]) -> int:
    """What the first word says; the answer is {} where nothing stopped it."""
    word, *given = words
    if word == "read":
        Path(given[0]).read_bytes()
    elif word == "write":
        Path(given[0]).write_text("written")
    elif word == "start":
        subprocess.run(["true"], check=True)
    elif word == "connect":
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    elif word == "sleep":
        time.sleep(float(given[0]))
    elif word == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, {STOP})
        time.sleep(float(given[0]))
    elif word == "allocate":
        bytearray(64 * 1024**3)
    elif word == "die":
        os._exit(1)
    elif word == "whoami":
        print(f'{{"pid": {os.getpid()}}}')
        return 0
    print("{}")
    return 0


def run(words: Sequence[str]) -> int:
    """As main() does: an error is a sentence."""
    import sys

    try:
        return misbehave(words)
    except (OSError, MemoryError) as error:
        print(f"trueflops: {type(error).__name__}: {error}", file=sys.stderr)
        print("           [BAD_INPUT]", file=sys.stderr)
        return 2
