"""python -m trueflops.measure: for a node that has torch and numpy alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from trueflops.errors import BadInput
from trueflops.measure.flags import add_flags


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the rows; they are fitted where the whole package is."""
    parser = argparse.ArgumentParser("python -m trueflops.measure", description=__doc__)
    add_flags(parser)
    options = parser.parse_args(arguments)
    if options.words:
        parser.error("this command only measures; `trueflops measure show|fit FILE` does the rest")
    try:
        from trueflops.measure.start import sides_of_config, start

        sides = sides_of_config(options.model) if options.model else ()
        record = start(options, sides, lambda _: {})
    except BadInput as error:
        print(f"trueflops: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"trueflops: measuring needs {error.name}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("trueflops: stopped; what was measured is kept, the same command resumes it",
              file=sys.stderr)  # fmt: skip
        return 130
    if record is not None:
        print(record.path)
        print("not fitted yet: trueflops measure fit FILE", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
