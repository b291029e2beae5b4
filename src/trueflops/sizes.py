"""A number, or one number per plan: the type that lets one code serve one plan and a million."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Size: TypeAlias = float | NDArray[np.float64]
