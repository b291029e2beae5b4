"""Write docs/accuracy.md: what is predicted how well, on rows that no fit has seen.

    python docs/accuracy.py [FOLDER]    FOLDER: other people's tables, as `make truth` fetches them;
                                        else $TRUEFLOPS_TRUTH, or ../shared/truth and truth/others
Published runs and our own measurements lie in `truth/`. Where a table of others is missing, one
line says which, and nothing is written.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trueflops.profile.stored import DATA, read_profile
from trueflops.records.tables import read_table
from trueflops.verify.findings import Findings
from trueflops.verify.measured import judge_measured
from trueflops.verify.profiles import best_known, leaving_out
from trueflops.verify.recognise import reader_of, verify_tables
from trueflops.verify.regimes import AITER, REGIMES, Reached, Regime, reach
from trueflops.verify.score import summary

ROOT = Path(__file__).parent.parent
PUBLISHED = ROOT / "truth" / "published" / "train_runs.csv"
LAST = sorted((ROOT / "truth" / "unseen").glob("*_3.csv"))
UNSEEN = sorted({*(ROOT / "truth" / "unseen").glob("*.csv")} - {*LAST})
OTHERS = tuple(tomllib.loads((ROOT / "truth" / "sources.toml").read_text())["tables"])
GATHERED = ("kv_cache.csv", "serving_latency.csv")
"""What engines and benchmarks printed, gathered by hand: judged where the folder has them."""
TITLES = {
    "README.md": ("regime", "rows", "error", "in 90 %"),
    "README.zh-CN.md": ("范围", "行数", "误差", "落入 90 % 区间"),
}
IN_CHINESE = (
    "bf16 矩阵乘，芯片有自己的数据，n、k ≥ 256",
    "边长不被 8 整除的矩阵乘（H200）",
    "逐个计时的 ATen 调用（H200）",
    "卷积及其梯度（H200）",
    "fp8 矩阵乘，同上，含激活量化",
    "其他格式（int8、int4、w8a16、nvfp4）",
    "整段提示的注意力",
    "解码一个词元的注意力",
    "融合专家层，均衡与倾斜",
    "节点内集合通信，NCCL 与推理引擎自带",
    "MI300X 与 MI355X 上推理引擎的矩阵乘",
    "…… 融合专家层",
    "解码的一趟前向，捕获为 CUDA 图（H200）",
    "实测档案下的 bf16 矩阵乘（H200）",
    "…… fp8 矩阵乘",
    "…… 注意力，前向与反向",
    "…… 访存受限的算子",
    "训练运行，含拟合与留出",
    "…… 仅留出的运行",
    "…… Megatron SC21",
    "…… Korthikanti 2022",
    "…… LLM Foundry",
    "…… 从未见过的来源",
    "…… 每个来源都由不含它的设置预测",
    "全参数微调",
    "LoRA 与 QLoRA",
    "vTrain 单节点，留出的模型",
    "我们自己在 H200 上的训练步，逐算子与编译",
    "峰值显存，我们自己的训练步",
    "峰值显存，公开数据",
    "…… 从未见过的来源",
    "…… 全参数微调",
    "…… LoRA 与 QLoRA",
    "满载服务器，每词元时间",
    "满载服务器，首词元时间",
    "满载服务器，多词元预测，每词元时间",
    "已知负载下的延迟，首词元时间均值",
    "…… 每词元时间均值",
    "引擎启动时的 KV 缓存，词元数",
    "…… 字节",
    "引擎加载的权重",
    "公开的推理结果，单个请求的词元",
    "…… 提示",
    "…… 整个请求，一项实验除外",
    "…… 那项实验",
    "…… 带草稿",
    "草稿带来的加速",
    "…… 没有拟合过开销的来源",
    *(
        name.format(title=title)
        for title in ("事后收集的来源", "最后收集的来源")
        for name in (
            "{title}：训练运行",
            "…… 全参数微调",
            "…… LoRA 与 QLoRA",
            "…… 训练的峰值显存",
            "…… 引擎启动时的 KV 缓存，词元数",
            "…… 引擎加载的权重",
            "…… 已知负载下的延迟，首词元时间均值",
            "…… 每词元时间均值",
        )
    ),
)
MEASURES = {"median and p90": "中位数与 p90", "MAPE": "MAPE", "macro MAPE": "按来源平均的 MAPE"}
BLOCK = re.compile(r"(<!-- accuracy -->\n).*?(<!-- /accuracy -->)", re.DOTALL)
PAGE = ROOT / "docs" / "accuracy.md"
FITTED = ("matmul", "matmul.fp8", "matmul.int8", "attention", "attention_decode", "experts")
HEAD = """# How accurate trueflops is

Written by `python docs/accuracy.py`; `tests/test_accuracy.py` holds the figures.

Errors are |predicted − measured| / measured. Rows are split by a hash of what they are: four in
five may be fitted to, one in five never is, and the figures below are of those, unless a line says
that nothing was fitted to its rows. *In 90 %* is the share of measured values inside our interval.

Numbers were fitted to the four in five alone. Which terms a training step or a server has was
decided with all published runs in view, so their figures are somewhat kinder than those of a new
source; the steps kept apart on our own H200 were measured after PyTorch's settings were chosen.

Kernel tables and loaded servers: ai-dynamo/aiconfigurator (Apache-2.0); kernels of AMD's chips:
ROCm/aiter (MIT). vTrain: VIA-Research/vTrain (MIT). `make truth` fetches all of them at pinned
commits, so that everyone can run every claim again.
Published training and inference runs: `truth/published`, each row with its source. Our own:
`truth/h200`.
"""


WHY_NOT = """
Where an aim is not reached:

- *Training runs, fitted and held out*: 9.0 % while every framework had a loss beside communication
  of its own, fitted to its rows; one law for all of them gives sources that were left out 14.3
  instead of 15.0 %.
- *Held-out training runs*: a source with one held-out row weighs as much as LLM Foundry with 45.
  torchtitan's runs are the outlier: a "B200 (power limited)" does not say to what.
- *Sources that no number was fitted to*, and *each source without it*: small batches wait for hosts
  of which nothing is known (the same machine issues calls at half its speed on another day), V100s
  of 2021 run an eager GPT-2 slower than our laws of later kernels, "B200 (power limited)"
  does not say to what. Laws were chosen, and facts of frameworks looked up, with these sources in
  view; numbers not.
- *Peak memory of sources that no number was fitted to*: 17 rows print whole GiB without saying of
  what. What tensors take is known to 1 % (truth/captured); what an allocator keeps beyond is not.
- *Published inference runs*: two campaigns dominate the mean, one whose first tokens take ten times
  any queue (InferenceX-experimental), one of limited slots and cached prefixes (4x3090-archive);
  the others lie between 8 and 36 %, source by source below."""


AFTERWARDS = """
## Sources gathered afterwards, one by one

Transcribed from documents that nobody here had looked at, when all laws and settings stood, and
committed before any was predicted (truth/unseen, its first two editions). What they showed then
stands in that folder's README; causes that were found since are facts of frameworks and engines,
looked up with these rows in view. The last edition, below, judges.
"""


def truth_folders(named: str = "") -> list[Path]:
    """Where other people's tables lie: what one folder lacks, the next may hold."""
    named = named or os.environ.get("TRUEFLOPS_TRUTH", "")
    usual = (ROOT.parent / "shared" / "truth", ROOT / "truth" / "others")
    return [f for f in ([Path(named)] if named else usual) if f.is_dir()]


def _there(folders: list[Path], names: Iterable[str]) -> list[Path]:
    """Those files that one of the folders holds, each from the first that does."""
    found = (next((f / n for f in folders if (f / n).is_file()), None) for n in names)
    return [path for path in found if path]


def tables_of_others(folders: list[Path]) -> list[Path]:
    """Those that are here."""
    return _there(folders, OTHERS)


def gathered(folders: list[Path]) -> list[Path]:
    """Tables gathered by hand that are here."""
    return _there(folders, GATHERED)


def what_is_missing(folders: list[Path], regime: Regime | None = None) -> str:
    """One line: which tables of others are not here, and how to get them; empty if all are.

    Of a regime only those count that its rows may come from.
    """
    of_amd = None if regime is None else regime.fitted == AITER
    needed = [n for n in OTHERS if of_amd in (None, n.startswith("amd/"))]
    missing = [name for name in needed if not _there(folders, [name])]
    return f"not here: {', '.join(missing)}; `make truth` fetches them" if missing else ""


class Judged(NamedTuple):
    """Every row by all that is known, published training runs without their source, and sources
    that were gathered afterwards: those whose causes were looked for since, and the last.
    """

    known: Findings
    without_source: Findings
    unseen: Findings
    last: Findings

    def reach(self, regime: Regime) -> Reached | None:
        """A regime's figures, judged as it says."""
        match regime.judged:
            case "by all that is known":
                found = self.known
            case "without its source":
                found = self.without_source
            case "gathered afterwards":
                found = self.unseen
            case "gathered last":
                found = self.last
        return reach(regime, found.rows)


def judge_without_source() -> Findings:
    """Published training runs, each by settings chosen without its source."""
    return verify_tables([read_table(PUBLISHED)], leaving_out)


def judge_unseen(tables: list[Path]) -> Findings:
    """Sources that were gathered when laws and settings stood."""
    return verify_tables(map(read_table, tables), best_known)


def judge(folders: list[Path]) -> Judged:
    """Tables of others, published runs and our own measurements."""
    own = [p for room in ("published", "h200") for p in (ROOT / "truth" / room).glob("*.csv")]
    paths = sorted([*tables_of_others(folders), *gathered(folders), *own])
    tables = [table for table in map(read_table, paths) if reader_of(table)]
    unseen = map(read_table, sorted((ROOT / "truth" / "h200_unseen").glob("*.csv")))
    measured = judge_measured(unseen, "H200-SXM-141GB")
    known = verify_tables(tables, best_known).extend([measured])
    gathered_since = (judge_unseen(tables) for tables in (UNSEEN, LAST))
    return Judged(known, judge_without_source(), *gathered_since)


def percent(value: float) -> str:
    """12.3 %."""
    return f"{100 * value:.1f} %"


def line(regime: Regime, found: Reached | None) -> str:
    """One row of the first table."""
    if found is None:
        return f"| {regime.name} | – | no rows here | | | | |"
    aim = " / ".join(percent(a) for a in regime.aim)
    got = " / ".join(percent(f) for f in found.figures)
    cells = (regime.name, str(found.rows), regime.measure, got, aim, percent(found.coverage))
    return f"| {' | '.join(cells)} | {regime.fitted}{'; ' + regime.noise if regime.noise else ''} |"


def transfer_lines() -> list[str]:
    """Chips left out of the fit, one at a time, as `trueflops calibrate` found it."""
    across = read_profile(DATA / "transfer.json")
    lines = []
    for name in FITTED:
        held = across.curve(name).held_out
        if held:
            got = f"{percent(held.median)} / {percent(held.p90)}"
            lines.append(f"| {name} | {held.rows} | {got} |")
    return lines


def group_lines(judged: Judged) -> list[str]:
    """Errors of runs, source by source: by all that is known, and without the source itself."""
    lines = [
        "| source | quantity | rows | MAPE | bias | in 90 % | without the source | in 90 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    alone = {(s.group, s.quantity): s for s in summary(judged.without_source)}
    for s in summary(judged.known):
        if s.quantity == "op_seconds" or not (s.scored or (s.group, s.quantity) in alone):
            continue
        own = alone.get((s.group, s.quantity))
        without = f"{percent(own.mape)} | {percent(own.coverage)}" if own else "– | –"
        lines.append(
            f"| {s.group} | {s.quantity} | {s.rows} | {percent(s.mape)} | {s.bias:+.1%} "
            f"| {percent(s.coverage)} | {without} |"
        )
    return lines


def unseen_lines(found: Findings) -> list[str]:
    """Errors of sources that were gathered afterwards."""
    lines = [
        "| source | quantity | rows | MAPE | bias | in 90 % |",
        "|---|---|---|---|---|---|",
    ]
    for s in summary(found):
        cells = (s.group, s.quantity, str(s.rows), percent(s.mape), f"{s.bias:+.1%}")
        lines.append(f"| {' | '.join(cells)} | {percent(s.coverage)} |")
    return lines


def short_table(judged: Judged, titles: tuple[str, ...], *, chinese: bool) -> str:
    """The regimes as the READMEs show them."""
    lines = [f"| {' | '.join(titles)} |", "|---|---|---|---|"]
    for regime, in_chinese in zip(REGIMES, IN_CHINESE, strict=True):
        found = judged.reach(regime)
        if found is not None:
            got = " / ".join(percent(f) for f in found.figures)
            name = in_chinese if chinese else regime.name
            measure = MEASURES[regime.measure] if chinese else regime.measure
            cells = (name, f"{found.rows:,}", f"{measure} {got}")
            lines.append(f"| {' | '.join(cells)} | {percent(found.coverage)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Judge and write."""
    folders = truth_folders(*sys.argv[1:2])
    if missing := what_is_missing(folders):
        print(missing)
        return 2
    judged = judge(folders)
    parts = [
        HEAD,
        "## Regime by regime\n",
        "| regime | rows | figure | reached | aim | in 90 % | fitted on; noise floor |",
        "|---|---|---|---|---|---|---|",
        *(line(regime, judged.reach(regime)) for regime in REGIMES),
        WHY_NOT,
        "\n## A chip left out of the fit entirely\n",
        "Parameters fitted to all other chips, as functions of units, clock, cache, bandwidth and",
        "peak; every shape counts. This is what a chip known by its datasheet alone gets.\n",
        "| kernels | rows | median / p90 |",
        "|---|---|---|",
        *transfer_lines(),
        "\n## Runs, source by source\n",
        "Sources with a word in brackets stand apart and do not count in the figures above.\n",
        *group_lines(judged),
        AFTERWARDS,
        *unseen_lines(judged.unseen),
        "\n## Sources gathered last, one by one\n",
        *unseen_lines(judged.last),
    ]
    PAGE.write_text("\n".join(parts) + "\n")
    for name, titles in TITLES.items():
        page = ROOT / name
        table = short_table(judged, titles, chinese="zh" in name)
        page.write_text(BLOCK.sub(rf"\g<1>{table}\g<2>", page.read_text()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
