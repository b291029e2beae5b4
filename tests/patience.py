"""How long a test waits for something that ought to come.

Times move with what else a machine does, and no test judges them: what has not come after so long
hangs, however many ranks share two cores.
"""

from __future__ import annotations

from typing import Final

HUNG: Final = 600.0  # seconds
