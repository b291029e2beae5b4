"""JSON of any length, read piece by piece: only one value of it is in memory at a time.

In: a stream of bytes, packed by gzip or not. Out: the members of its object, entry by entry of its
one long list. Entries and bytes are counted as they come, so that a file of a few megabytes that
unpacks to a billion entries ends in an error and not in all the memory there is.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NoReturn

from trueflops.errors import BadInput, shorten
from trueflops.language import say

PIECE: Final = 1024 * 1024  # bytes read at once
LARGEST_VALUE: Final = 64 * 1024 * 1024  # characters of one value that is no list of events
MOST_ENTRIES: Final = 5_000_000
LITERAL: Final = 32  # characters within which a number or a word ends
_ZIPPED: Final = b"\x1f\x8b"
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_READ: Final = json.JSONDecoder(strict=False)
_SCAN: Final = _READ.scan_once  # type: ignore[attr-defined]  # as its own raw_decode does


class JsonStream:
    """A cursor in a text that is read as far as it is needed."""

    def __init__(self, stream: BinaryIO, where: str, largest: int) -> None:
        self.where, self.largest = where, largest
        self.listed = False  # whether the list was there
        packed = stream.read(2) == _ZIPPED
        stream.seek(0)
        self._stream: Any = gzip.GzipFile(fileobj=stream) if packed else stream
        self._packed, self._bytes = packed, 0
        self._text, self._at, self._ended = "", 0, False
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode

    def members(self, listed: str) -> Iterator[tuple[str, Any]]:
        """The members of an object; those of the list called `listed` come one by one.

        A bare list counts as one of that name. What is neither is a member without a name.
        """
        if self._next() == "[":
            yield from ((listed, entry) for entry in self._entries())
        elif self._next() == "{":
            yield from self._object(listed)
        else:
            yield "", self._value()
        if self._next():
            self._refuse("something follows its end")

    def _object(self, listed: str) -> Iterator[tuple[str, Any]]:
        self._at += 1
        while self._next() != "}":
            key = self._value()
            if not isinstance(key, str) or self._next() != ":":
                self._refuse("a name and a colon are expected")
            self._at += 1
            if key == listed and self._next() == "[":
                yield from ((listed, entry) for entry in self._entries())
            else:
                yield key, self._value()
            self._separated("}")
        self._at += 1

    def _entries(self) -> Iterator[Any]:
        self._at += 1
        self.listed = True
        count = 0
        while self._text[self._at : self._at + 1] == "{" or self._next() != "]":
            count += 1
            if count > MOST_ENTRIES:
                raise BadInput(
                    say(
                        "{where}: more than {most:,} events; profile fewer steps",
                        where=self.where,
                        most=MOST_ENTRIES,
                    )
                )
            yield self._value()
            if self._text[self._at : self._at + 2] == ",{":  # as profilers write them
                self._at += 1
            else:
                self._separated("]")
        self._at += 1

    def _separated(self, end: str) -> None:
        if self._next() == ",":
            self._at += 1
            if self._next() == end:
                self._refuse("a comma stands before its end")
        elif self._next() != end:
            self._refuse("a comma is expected")

    def _next(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._more()

    def _value(self) -> Any:
        try:
            value, end = _SCAN(self._text, self._at)
            if end + LITERAL < len(self._text):
                self._at = end
                return value
        except (StopIteration, ValueError, RecursionError):
            pass  # a space before it, its end not read yet, or an error to be told
        return self._slow_value()

    def _slow_value(self) -> Any:
        if not self._next():
            self._cut_short()
        while True:
            try:
                value, end = _READ.raw_decode(self._text, self._at)
            except RecursionError:
                raise BadInput(
                    say("{where}: not a trace (JSON nested too deeply)", where=self.where)
                ) from None
            except json.JSONDecodeError as error:
                near_end = error.pos >= len(self._text) - 1 or "Unterminated" in error.msg
                if self._ended and near_end:
                    self._cut_short()
                # A literal that is cut in two fails where it begins.
                if self._ended or not (near_end or len(self._text) - error.pos < LITERAL):
                    self._refuse(error.msg)
            except ValueError as error:  # a number of too many digits
                raise BadInput(
                    say(
                        "{where}: not a trace ({error})",
                        where=self.where,
                        error=shorten(str(error)),
                    )
                ) from None
            else:
                if end + LITERAL < len(self._text) or self._ended:  # else a number may go on
                    self._at = end
                    return value
            if len(self._text) - self._at > LARGEST_VALUE:
                raise BadInput(
                    say(
                        "{where}: not a trace (one value of {most:,} letters)",
                        where=self.where,
                        most=LARGEST_VALUE,
                    )
                )
            self._more(len(self._text) - self._at)

    def _more(self, least: int = 0) -> None:
        """Read on: at least as much as is kept, so that a long value is not tried too often."""
        pieces = [self._text[self._at :]]
        have = 0
        while have <= least and not self._ended:
            raw = self._unpacked()
            self._ended = not raw
            self._bytes += len(raw)
            if self._bytes > self.largest:
                most = self.largest // 1024 // 1024
                raise BadInput(
                    say(
                        "{where}: unpacks to more than {most} MiB; profile fewer steps",
                        where=self.where,
                        most=most,
                    )
                )
            pieces.append(self._decode(raw, self._ended))
            have += len(pieces[-1])
        self._text, self._at = "".join(pieces), 0

    def _unpacked(self) -> bytes:
        try:
            piece: bytes = self._stream.read(PIECE)
        except EOFError:
            raise BadInput(
                say("{where}: ends in the middle; copy or export it again", where=self.where)
            ) from None
        except (OSError, zlib.error) as error:
            said = shorten(str(error))
            why = say("{where}: cannot be read ({strerror})", where=self.where, strerror=said)
            if self._packed:
                why = say("{where}: cannot be unpacked ({said})", where=self.where, said=said)
            raise BadInput(why) from None
        return piece

    def _cut_short(self) -> NoReturn:
        raise BadInput(
            say(
                "{where}: ends in the middle; was the profiler still writing? Export it again",
                where=self.where,
            )
        )

    def _refuse(self, why: str) -> NoReturn:
        if not self._next():
            self._cut_short()
        raise BadInput(
            say("{where}: not a trace: not valid JSON ({why})", where=self.where, why=shorten(why))
        )
