"""The page's strings in a language: English text -> the same in it, out of the one table.

In: a language. Out: every text of it, the page's own and, for what an answer says (names of parts,
notes, errors), the command line's; empty for English, whose texts are the keys.
"""

from __future__ import annotations

from collections.abc import Mapping

from trueflops.errors import BadInput, join_or, printable
from trueflops.language import ENGLISH, LANGUAGES, say
from trueflops.language.table import table


def page_words(language: str) -> Mapping[str, str]:
    """What the page calls words(text) with, in a language; a text that is missing stays English."""
    if language not in LANGUAGES:
        raise BadInput(
            say(
                "no language {language!r}; write {known}",
                language=printable(language, 20),
                known=join_or(LANGUAGES),
            )
        )
    return {} if language == ENGLISH else table(language)
