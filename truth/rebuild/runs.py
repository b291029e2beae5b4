"""Small tables: iteration times of vTrain, acceptance lengths of InferenceX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

VTRAIN: Final = "ground_truth_single.csv"
_KEY: Final = re.compile(r"( *)([^:#]+): *([\d.]*)$")


def vtrain_table(files: Mapping[str, bytes]) -> str:
    """Its own table; only the mark of the byte order before the header goes."""
    return files[VTRAIN].decode("utf-8-sig")


def acceptance_table(files: Mapping[str, bytes]) -> str:
    """One row for each number of draft tokens of files that say, indented, model: mode: number."""
    rows = ["source,model,mode,num_draft_tokens,mean_accept_len"]
    for path, data in sorted(files.items()):
        outer: dict[int, str] = {}
        for line in data.decode().splitlines():
            found = _KEY.match(line)
            if not found:
                continue
            indent, key, value = len(found[1]), found[2].strip(), found[3]
            if value:
                model, mode = outer[0], outer[2]
                source = path.removesuffix(".yaml")
                rows.append(f"{source},{model},{mode},{int(key)},{float(value)}")
            else:
                outer[indent] = key
    return "\n".join(rows) + "\n"
