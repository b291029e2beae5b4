"""Find any record of the catalog by name, whatever its kind."""

from __future__ import annotations

from trueflops.catalog.accelerators import Accelerator, accelerator
from trueflops.catalog.clusters import Cluster, cluster
from trueflops.catalog.formats import NumberFormat, find_format, formats
from trueflops.catalog.links import Link, link, links
from trueflops.catalog.models import model_record
from trueflops.catalog.names import find, index
from trueflops.catalog.nodes import Node, find_node
from trueflops.catalog.partitions import is_slice
from trueflops.errors import UnknownName

Record = Accelerator | Node | Cluster | Link | NumberFormat | dict  # type: ignore[type-arg]


def look_up(name: str) -> Record:
    """A chip, node, cluster, model, link or number format; chips win over the rest."""
    if find("accelerators", name) or is_slice(name):
        return accelerator(name)
    if found := find_format(name):
        return found
    if find("models", name):
        return dict(model_record(name))
    if find("clusters", name):
        return cluster(name)
    if host := find_node(name):
        return host
    try:
        return link(name)
    except UnknownName:
        raise UnknownName(
            "name", name, known_names(), "(list all with: trueflops catalog)"
        ) from None


def known_names() -> list[str]:
    """Every name that `look_up` finds."""
    return [name for names in names_by_kind().values() for name in names]


def names_by_kind() -> dict[str, list[str]]:
    """The same names under what they are."""
    kinds = ("accelerators", "nodes", "clusters", "models")
    files = {kind: [path.stem for path in index(kind).values()] for kind in kinds}
    return files | {"formats": list(formats()), "links": [known.name for known in links()]}
