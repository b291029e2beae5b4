"""The texts of a language: every *.toml of its folder, read once, as one table.

In: a language. Out: English text -> its translation. A text belongs to one file only.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@cache
def table(language: str) -> dict[str, str]:
    """Every text of a language; about 100 KB, so it is read when the language is first spoken."""
    import tomllib  # who speaks English needs none

    texts: dict[str, str] = {}
    for file in sorted((HERE / language).glob("*.toml")):
        for key, text in tomllib.loads(file.read_text(encoding="utf-8")).items():
            if key in texts:
                raise ValueError(f"{file.name}: {key!r} stands in another table of {language} too")
            texts[key] = text
    return texts
