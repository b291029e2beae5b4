"""The accelerator that a row of results names: free text and a memory size to a catalog chip."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final

from trueflops.catalog import Accelerator, Cluster, accelerator, cluster_of
from trueflops.catalog.names import find
from trueflops.errors import BadInput, UnknownName
from trueflops.units import GIGA, MEBI

_MEMORY: Final = re.compile(
    r"[\s_-]*\b(\d{1,9}(?:\.\d{1,9})?)(?:\s*Gi?B|(?<=\d\d)\s*Gi?)\b", re.IGNORECASE
)
"""80GB, 46Gi, 16G; the 2g of Google's a2-ultragpu-2g are two of them."""
_MEBIBYTES: Final = re.compile(r"[\s,]*\b(\d{4,7})\s*MiB\b")  # as nvidia-smi prints memory
_ASIDES: Final = re.compile(r"[\s_-]*\b(?:\d{2,4}\s*W|NVL\d{1,3})\b", re.IGNORECASE)
_CORES: Final = re.compile(r"[\s_-]*\b(\d{1,9})[\s_-]?core\b", re.IGNORECASE)
_ASIDE: Final = re.compile(r"\s*\([^)]*\)")
_CARD: Final = re.compile(r"\([^)]*\bPCIe\b[^)]*\)")  # 'H100 80GB (PCIe)'
_NUMBERS: Final = {"one": 1, "two": 2, "three": 3, "four": 4, "eight": 8, "sixteen": 16}
_COUNT: Final = re.compile(
    rf"^\s*(?:(?:A )?single|(\d{{1,6}})\s*[x×*]|(\d{{1,3}}|{'|'.join(_NUMBERS)})(?=\s+\D))\s*"
    r"|(?:\s+x|\s*[×*])\s*(\d{1,6})\s*(?=\(|$)|,\s*single\b",
    re.IGNORECASE,
)
_SLICE: Final = re.compile(
    r"(?i)(?<=TPU)([ _-]?v\d{1,2}[a-z]?)-\d{1,6}\s*$|(?<=litepod)()-\d{1,6}\s*$"
)
"""'TPU v5p-128' names a slice of that size; how many chips ran is a column of its own."""
_BRAND: Final = re.compile(
    r"(?<![^\W_])(NVIDIA|AMD|Apple|Intel|Google|Huawei|Cloud|GeForce|Radeon|Instinct|Tesla|Quadro|GPU"
    r"|DGX(?:-[12]V?)?|HGX|OAM|HBM\de?|NeuronCore-v\d|Tensor[ -]Core|GPUs|NPUs?|GCDs?|cards?"
    r"|on a single node|node with|VRAM|NVLink\d?|NVSwitch)"
    r"(?![^\W_])[\s_-]*",
    re.IGNORECASE,
)
_PLURAL: Final = re.compile(r"(?<=\d)s$", re.IGNORECASE)
_WORDS: Final = re.compile(r"[^\W_]+")
_MODULE: Final = re.compile(r"SXM\d?", re.IGNORECASE)
_TIMES: Final = re.compile(r"(?<=\d)[x×*](?=\d)", re.IGNORECASE)  # 'A800x80G'
_HARMLESS: Final = re.compile(
    r"nvidia|amd|intel|google|apple|huawei|geforce|radeon|instinct|tesla|gpus?|cards?|chip"
    r"|accelerator|node|tensor|core|dgx|hgx|oam|memory|unified|vram|gi?b|with|by|the|its|total"
    r"|repository|blackwell|hopper|ampere|turing|volta|pascal|grace|lovelace|cdna"
    r"|\d+gi?b?|hbm\de?|gddr\dx?",
    re.IGNORECASE,
)
"""Words beside a chip's name that make it no other chip, as Laptop, Ti or PCIe do."""
_NO_NVLINK: Final = re.compile(r"\bno NVLink\b", re.IGNORECASE)
LONGEST: Final = 24  # words of a chip that are looked at
SAME_SIZE: Final = 0.15  # 141 GB and 141 GiB, 180 and 192 GB are one chip


@cache
def how_many(said: str) -> tuple[int, str]:
    """'8 × H200', 'two L40S GPUs', 'A single H100', 'H200*8': how many, one where none is said,
    and which.

    >>> from trueflops.records.chips import how_many
    >>> how_many("8 × H200"), how_many("H200 x 8"), how_many("RTX 4090")
    ((8, 'H200'), (8, 'H200'), (1, 'RTX 4090'))
    """
    numbers = [number for found in _COUNT.findall(said) for number in found if number]
    first = numbers[0].casefold() if numbers else "one"
    return _NUMBERS.get(first) or int(first), _COUNT.sub("", said).strip()


def chip_of(said: str, memory_gb: float | None = None, notes: str = "") -> Accelerator:
    """Find the chip; cores and memory that differ from the catalog's are taken from the row.

    Where the text leaves the form open, notes of "no NVLink" mean the PCIe card. How many there are
    ('8x A100') is not the chip's name, nor is the slice of a TPU.
    """
    form = " PCIe" if _CARD.search(said) and "PCIe" not in _ASIDE.sub("", said) else ""
    if mebibytes := _MEBIBYTES.search(said):
        memory_gb = float(mebibytes[1]) * MEBI / GIGA
        said = _MEBIBYTES.sub("", said)
    name = _SLICE.sub(r"\1", how_many(_ASIDE.sub("", said))[1]) + form
    if not name:
        raise BadInput("accelerator is empty")
    printed = _MEMORY.search(name) or _MEMORY.search(said)
    size = float(printed[1]) if printed else memory_gb
    cores = _CORES.search(name)
    plain = _ASIDES.sub("", _CORES.sub("", _MEMORY.sub("", name))).strip()
    prefer_card = bool(_NO_NVLINK.search(notes))
    found = next((n for n in _spellings(name, plain, size, prefer_card) if _known(n)), None)
    found = found or _within(said, size)
    if found is None:
        raise UnknownName("accelerator", plain, [], "(column accelerator)")
    chip = accelerator(found)
    if cores:
        chip = _with_cores(chip, float(cores[1]))
    named = _MEMORY.search(found)  # GH200-480GB is sold by the memory of its processor
    return chip if named else _with_memory(chip, size)


def cluster_of_cut(chip: Accelerator, devices: int) -> Cluster:
    """So many of them, in the node that is usual for the whole chip."""
    return replace(cluster_of(accelerator(chip.whole), devices), accelerator=chip)


def _spellings(name: str, plain: str, size: float | None, prefer_card: bool) -> Iterator[str]:
    """From the most to the least specific."""
    bare = _BRAND.sub("", plain).strip(" _-.,")
    names = list(dict.fromkeys((name, plain, bare, _PLURAL.sub("", bare))))
    suffixes = [f"-{size:g}GB", ""] if size else [""]
    if prefer_card:
        yield from (f"{said}-PCIe{suffix}" for said in names for suffix in suffixes)
    yield from (f"{said}{suffix}" for said in names for suffix in suffixes)


def _within(said: str, size: float | None) -> str | None:
    """The one chip that a longer text names: 'NVIDIA Blackwell GPU (B200-SXM-180GB)'.

    Of names within one another the longest counts. None where other words are left, which may make
    it another chip ('RTX 4090 Laptop'), or where several chips are named.
    """
    words = _WORDS.findall(_TIMES.sub(" ", how_many(said)[1]))[:LONGEST]
    suffixes = [f"-{size:g}GB", ""] if size else [""]
    runs = sorted(
        ((start, end) for end in range(len(words) + 1) for start in range(end)),
        key=lambda run: run[0] - run[1],
    )
    chips: set[str] = set()
    left = set(range(len(words)))
    for start, end in runs:
        joined = " ".join(words[start:end])
        found = next((joined + suffix for suffix in suffixes if _known(joined + suffix)), None)
        if found and left.issuperset(range(start, end)):
            chips.add(accelerator(found).name)
            left -= set(range(start, end))
    if len(chips) != 1:
        return None
    chip = chips.pop()
    others = [words[n] for n in left if not _HARMLESS.fullmatch(words[n])]
    return chip if all(_MODULE.fullmatch(w) and _MODULE.search(chip) for w in others) else None


def _known(name: str) -> bool:
    return find("accelerators", name) is not None


def _with_cores(chip: Accelerator, cores: float) -> Accelerator:
    """A smaller cut of the same die: same clock and memory, fewer units."""
    units = chip.get("compute.units")
    if not units or cores == units:
        return chip
    values = dict(chip.values)
    for path, value in chip.values.items():
        if value and path.startswith(("peak.", "compute.units")):
            values[path] = value * cores / units
    name = f"{chip.name} of {cores:g} cores"
    return replace(chip, name=name, values=values, cut_of=chip.whole)


def _with_memory(chip: Accelerator, size_gb: float | None) -> Accelerator:
    """The size that was bought, where a chip is sold with several."""
    if not size_gb:
        return chip
    own = chip.get("memory.capacity") or 0.0
    if own and abs(size_gb * GIGA / own - 1.0) < SAME_SIZE:
        return chip
    name = chip.name if chip.cut_of else f"{chip.name} of {size_gb:g} GB"
    values = {**chip.values, "memory.capacity": size_gb * GIGA}
    return replace(chip, name=name, values=values, cut_of=chip.whole)
