"""The smooth roofline: what a kernel takes when neither compute nor memory alone decides.

    t = start + [(flop / e·P)^q + (bytes / b·BW)^q]^(1/q)
q → ∞ is the classic max of both (Williams 2009); real kernels lose most where the two are equal.
"""

from __future__ import annotations

import numpy as np

from trueflops.profile import Curve
from trueflops.sizes import Size


def roofline(flop: Size, moved_bytes: Size, peak: Size, bandwidth: float, law: Curve) -> Size:
    """Seconds of a kernel under one curve's law."""
    q = law["sharpness"]
    compute = flop / (law["efficiency"] * peak)
    memory = moved_bytes / (law["bandwidth"] * bandwidth)
    longest = np.maximum(compute, memory)
    # Scaled by the longer one: raising seconds of 1e-6 to a power loses digits.
    ratio = np.minimum(compute, memory) / np.maximum(longest, 1e-300)
    seconds: Size = law["start"] + longest * (1.0 + ratio**q) ** (1.0 / q)
    return seconds
