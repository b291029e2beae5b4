"""Points of loaded servers, of aiconfigurator's sample of measured servers.

Taken are servers that prefill and decode on the same H100 or H200. Two of their models are left
out: nothing here is fitted or tuned to them, so that they can judge. The sample lists some
measurements twice: equal settings of one day are one point, their mean; equal figures under other
settings are one point, that of fewer ranks.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from io import StringIO
from statistics import fmean
from typing import Final

SAMPLE: Final = "silicon_sample.csv"
SYSTEMS: Final = ("h100_sxm", "h200_sxm")
LEFT_OUT: Final = ("Qwen/Qwen3-32B", "openai/gpt-oss-120b")
SETTINGS: Final = (
    "backend", "backend_version", "model_path", "system", "precision", "mode", "isl", "osl",
    "gemm_quant_mode", "moe_quant_mode", "batch_size", "tp_size", "pp_size", "attention_dp_size",
    "moe_tp_size", "moe_ep_size",
)  # fmt: skip
FIGURES: Final = ("silicon_ttft_ms", "silicon_tpot_ms")
COLUMNS: Final = (*SETTINGS, "measured_on", "label", "id", *FIGURES, "n_measured")
MTP_CAMPAIGN: Final = ("deepseek-ai/DeepSeek-R1", "2026-01-14")
"""The sample does not say where multi-token prediction ran. InferenceX, whose points these look to
be, added it for this model in that week (its pull request 392)."""
Row = dict[str, str]


def serving_table(files: Mapping[str, bytes]) -> str:
    """The points that are taken, those of few ranks first."""
    sample = csv.DictReader(StringIO(files[SAMPLE].decode()))
    points: dict[tuple[str, ...], list[Row]] = {}
    for row in sample:
        if row["mode"] == "agg" and row["system"] in SYSTEMS and row["model_path"] not in LEFT_OUT:
            settings = (*(row[column] for column in SETTINGS), _day(row))
            points.setdefault(settings, []).append(row)
    out = StringIO()
    write = csv.DictWriter(out, COLUMNS, extrasaction="ignore", lineterminator="\n")
    write.writeheader()
    seen = set()
    for repeats in sorted(points.values(), key=lambda rows: _ranks(rows[0])):
        point = _point(repeats)
        figures = tuple(point[column] for column in FIGURES)
        if figures not in seen:
            seen.add(figures)
            write.writerow(point)
    return out.getvalue()


def _point(repeats: list[Row]) -> Row:
    first, day = repeats[0], _day(repeats[0])
    means = {name: fmean(float(row[name]) for row in repeats) for name in FIGURES}
    return {
        **first,
        **{name: f"{mean:.4f}" for name, mean in means.items()},
        "measured_on": day,
        "label": "mtp" if (first["model_path"], day) == MTP_CAMPAIGN else "",
        "n_measured": str(len(repeats)),
    }


def _day(row: Row) -> str:
    found = re.search(r"measured=([\d-]+)", row["silicon_data_source"])
    return found[1] if found else ""


def _ranks(row: Row) -> int:
    return int(row["tp_size"]) * int(row["pp_size"]) * int(row["attention_dp_size"] or 1)
