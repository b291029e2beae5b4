"""The front of a server: what lies between a client and the scheduler, HTTP and tokenising.

In: when requests come. Out: when each reaches the scheduler.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final


@dataclass(frozen=True)
class Front:
    """What lies between a client and the scheduler: HTTP, tokenising, detokenising.

    One process takes requests in, `each` seconds for one. Its event loop goes round all that it
    has before it comes back to one (processor sharing): of many that come at once none reaches
    the scheduler before nearly all have been read. Answers reach their client `lag` later than the
    scheduler gave them.
    """

    each: float = 0.0
    lag: float = 0.0

    def taken_in(self, came: list[float]) -> list[float]:
        """When requests that came at these times, in order, reach the scheduler."""
        taken: list[float] = []
        shares: deque[float] = deque()  # of the process, that those under way need in all
        now = share = 0.0
        for when in [*came, inf]:
            while shares and (until := now + (shares[0] - share) * len(shares)) <= when:
                now, share = until, shares.popleft()
                taken.append(now)
            if shares:
                share += (when - now) / len(shares)
            now = when
            shares.append(share + self.each)
        return taken


NO_FRONT: Final = Front()
