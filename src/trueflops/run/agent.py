"""torchrun, which says in one sentence why its ranks ended: `python -m trueflops.run.agent`.

In: torchrun's own arguments. Out: an exit code: that of the rank that failed first, or 130.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

INTERRUPTED = 130


def run(words: Sequence[str]) -> int:
    """Start ranks and wait for them."""
    logging.disable(logging.ERROR)  # ranks say themselves what was wrong
    try:
        main(list(words))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode == INTERRUPTED:
            return INTERRUPTED
        if failure.exitcode < 0:
            print(f"trueflops: rank {rank} was killed by signal {-failure.exitcode}; with "
                  "--checkpoint and --max-restarts a run goes on", file=sys.stderr)  # fmt: skip
        return failure.exitcode if failure.exitcode > 0 else 1
    except SignalException:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
