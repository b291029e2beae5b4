"""trueflops web: the same answers in a browser, and as an API."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trueflops.catalog.names import index
from trueflops.cli.arguments.forms import body_of, form_of
from trueflops.cli.arguments.software import ENGINES, FRAMEWORKS
from trueflops.cli.main import main
from trueflops.errors import BadInput
from trueflops.language import ENGLISH, say, speaking
from trueflops.profile.library import profiles
from trueflops.report import encode
from trueflops.web.allowed import COMMANDS

if TYPE_CHECKING:
    from trueflops.web.app import Commands


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    try:
        from trueflops.web.app import application
        from trueflops.web.serve import address_of, bind, hosts_of, serve
    except ModuleNotFoundError as error:
        name = (error.name or "trueflops[web]").partition(".")[0]
        raise BadInput(say("{name} is missing; pip install 'trueflops[web]'", name=name)) from None
    taken = bind(options.host, options.port)
    address = address_of(options.host, taken.getsockname()[1])
    if options.json:
        print(encode.to_json({"address": address}), flush=True)
    else:
        print(say("trueflops: {address}  (Ctrl-C ends it)", address=address), flush=True)
    with speaking(ENGLISH):  # the page says what it hears in its reader's language
        size = options.workers or os.cpu_count() or 1
        app = application(commands(), size, hosts_of(options.host))
        serve(app, taken, address, browser=options.open)
    return 0


def commands() -> Commands:
    """What the page may ask."""
    from trueflops.web.app import Commands

    return Commands(main, {name: form_of(name) for name in COMMANDS}, names, body_of)


def names() -> Mapping[str, Any]:
    """What forms choose from."""
    found = {kind: sorted(file.stem for file in index(kind).values())
             for kind in ("models", "accelerators", "nodes", "clusters")}  # fmt: skip
    return found | {
        "frameworks": list(FRAMEWORKS),
        "engines": list(ENGINES),
        "profiles": sorted(known.name for known in profiles()),
    }
