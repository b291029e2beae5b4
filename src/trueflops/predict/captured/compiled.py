"""placeholder."""

from trueflops.capture.recording import Recording


def fuse_regions(recording: Recording) -> Recording:
    return recording
