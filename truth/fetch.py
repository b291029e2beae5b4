"""Rebuild the folder of other people's tables that trueflops is judged by (`make truth`).

    python truth/fetch.py [FOLDER]      FOLDER: $TRUEFLOPS_TRUTH, else truth/others
        --from DIR                      read repositories that lie in DIR instead of the internet
        --check                         only say what is missing

Public repositories at pinned commits (sources.toml) come in, tables in our columns go out; both
are checked by sha256. What is already there is left alone. Nothing is sent, nothing else is read.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rebuild.sources import PINNED, CannotFetch, read_sources
from rebuild.tables import lacking, owners, rebuild

OTHERS = Path(__file__).parent / "others"


def main(words: Sequence[str] | None = None) -> int:
    """Fetch what is missing; 0 when nothing is any more."""
    said = _arguments().parse_args(words)
    sources, folder = read_sources(said.sources), said.folder
    reasons = []
    if not said.check:
        for repository in owners(lacking(folder, sources), sources):
            at = f"{repository.name} at {repository.commit[:12]}"
            print(f"{at} ({repository.licence}), {said.disk or repository.url}", flush=True)
            try:
                for name in rebuild(repository, sources, folder, said.disk):
                    print(f"  {name}: {sources.tables[name].rows:,} rows, as pinned")
            except CannotFetch as error:
                reasons.append(str(error))
    missing = lacking(folder, sources)
    if missing:
        why = "; ".join(reasons) or "`make truth` fetches them"
        print(f"{folder} lacks {', '.join(missing)}: {why}", file=sys.stderr)
        return 1
    print(f"{folder} holds all {len(sources.tables)} tables")
    return 0


def _arguments() -> argparse.ArgumentParser:
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    usual = Path(os.environ.get("TRUEFLOPS_TRUTH") or OTHERS)
    asked.add_argument("folder", type=Path, nargs="?", default=usual, help="where the tables go")
    asked.add_argument("--from", type=Path, dest="disk", metavar="DIR", help="repositories on disk")
    asked.add_argument("--check", action="store_true", help="only say what is missing")
    asked.add_argument("--sources", type=Path, default=PINNED, help="what is pinned")
    return asked


if __name__ == "__main__":
    raise SystemExit(main())
