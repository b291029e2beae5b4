"""torchrun, which says in one sentence why its ranks ended: `python -m trueflops.run.agent`.

In: the plan's engine, then torchrun's own arguments. Out: an exit code: that of the rank that
failed first, or 130.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

from trueflops.language import asked_for, say, speaking

INTERRUPTED = 130


def run(engine: str, words: Sequence[str]) -> int:
    """Start ranks and wait for them."""
    logging.disable(logging.ERROR)  # ranks say themselves what was wrong
    try:
        main(list(words))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode == INTERRUPTED:
            return INTERRUPTED
        if failure.exitcode < 0:
            killed = say(
                "trueflops: rank {rank} was killed by signal {signal}; {onward}",
                rank=rank,
                signal=-failure.exitcode,
                onward=_onward(engine),
            )
            print(killed, file=sys.stderr)
        return failure.exitcode if failure.exitcode > 0 else 1
    except SignalException:
        return INTERRUPTED
    return 0


def _onward(engine: str) -> str:
    """What would have gone on: run/job.py refuses --checkpoint of any engine but ddp."""
    if engine == "ddp":
        return say("with --checkpoint and --max-restarts a run goes on")
    return say(
        "engine {engine} saves nothing, so --max-restarts would begin anew; only ddp goes on from "
        "a --checkpoint",
        engine=engine,
    )


if __name__ == "__main__":
    with speaking(asked_for(sys.argv, os.environ)):
        raise SystemExit(run(sys.argv[1], sys.argv[2:]))
