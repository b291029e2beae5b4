"""What the program says, in the reader's language. English is the key and what is said by default.

speech.py   say, mark and word: a text in the language that is spoken; who speaks which
choose.py   which language a command line, the environment or the locale asks for
table.py    zh/*.toml, read as one table when a language other than English is first spoken
lines.py    lines of a text in which some characters are two columns wide

In: an English text, perhaps with {places} for values. Out: the same in the language spoken. Only
the commands speak anything but English, and they do so on a terminal: --json and written files
stay English, so that a program that reads them need not know who asked.

Why not gettext: its keys hold no named values, its catalogs are compiled files that a checkout has
to build, and Babel, which would read them here, is one more thing to install. A TOML table is
what the catalog of chips is written in; a test holds it against the source.
"""

from trueflops.language.choose import ENGLISH as ENGLISH
from trueflops.language.choose import LANGUAGES as LANGUAGES
from trueflops.language.choose import asked_for as asked_for
from trueflops.language.lines import columns as columns
from trueflops.language.lines import lines as lines
from trueflops.language.speech import mark as mark
from trueflops.language.speech import say as say
from trueflops.language.speech import speaking as speaking
from trueflops.language.speech import spoken as spoken
from trueflops.language.speech import word as word
