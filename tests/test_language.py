"""What the commands say in another language: nothing is missing, nothing is unused, JSON stays."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest
from rich.cells import cell_len

import trueflops
from trueflops.catalog.facts import read_toml
from trueflops.cli import main
from trueflops.language import asked_for, lines, say, speaking, spoken, word
from trueflops.language.table import table

SOURCE = Path(trueflops.__file__).parent
# Calls whose literals are shown as they stand, and keywords of any call that are.
SHOWN = {"grid", "Grid", "add_row", "row", "show_list", "_always", "add_argument_group"}
HELP = {"help", "description", "epilog", "title"}
OTHERWISE = {"pytest_plugin"}  # pytest prints its help
CHINESE = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
PLACE = re.compile(r"\{[^{}]*\}")
PERCENT = re.compile(r"%\(\w+\)\w|%[sr%]")  # argparse's places
# What has no Chinese name: units, and what a Chinese engineer calls by its English one.
NAMES = re.compile(
    r"\[/?[a-z ]*\]|--[\w-]+|\w+/\w+|\b(?:GiB|p\d+|[Kk]ernels?|rank|queries|keys|tokens?|key|"
    r"value|query|logits|flop|FILE.onnx|trueflops|fp8|busbw|algbw|cache|all-to-all|"
    r"scatter-reduce|all-gather|eager)\b"
)
# Words that stay English in a Chinese answer, beside those that begin with a capital.
KEPT = frozenset(
    re.findall(
        r"\w+",
        """token tokens tok kernel kernels rank worker query key value logits flop byte tp pp cp ep
        dp vpp sp mb zero gradients reduce all to gather scatter ring step full selective recompute
        layers first last stage schedule usual serving library eager compiled none any cudnn matmul
        attention trueflops train infer tables""",
    )
)


@cache
def trees() -> dict[Path, ast.Module]:
    """The source, but for the tables' own room."""
    files = [file for file in sorted(SOURCE.rglob("*.py")) if file.parent.name != "language"]
    return {file: ast.parse(file.read_text()) for file in files}


def literals(node: ast.AST) -> Iterator[str]:
    """Texts of an argument: a literal, either of two, or the first of a heading and its side."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple) and node.elts:
        yield from literals(node.elts[0])
    elif isinstance(node, ast.IfExp):
        yield from (*literals(node.body), *literals(node.orelse))


def marked(call: ast.Call) -> Iterator[str]:
    """The English texts that a call has shown in the reader's language."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("say", "mark") and call.args:
        yield from literals(call.args[0])
    elif name == "plural":
        yield from (f"{{number}} {what}s" for what in literals(call.args[1]))
    elif name in SHOWN:
        for argument in call.args:  # a cell is moved in by spaces
            yield from (text.lstrip(" ") for text in literals(argument))
    for keyword in call.keywords:
        if keyword.arg in HELP:
            yield from literals(keyword.value)


@cache
def collected() -> dict[str, str]:
    """Every marked text of the source, and where it stands first."""
    found: dict[str, str] = {}
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and file.stem not in OTHERWISE:
                for text in marked(node):
                    found.setdefault(text, f"{file.relative_to(SOURCE)}:{node.lineno}")
    return {text: at for text, at in found.items() if is_english(text)}


def is_english(text: str) -> bool:
    """Whether a text has words that are no names."""
    return bool(re.search(r"[a-z]{2}", NAMES.sub("", PERCENT.sub("", PLACE.sub("", text)))))


def places(text: str) -> set[str]:
    """The {places} of a text, without how their values are written."""
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_every_text_has_its_translation() -> None:
    texts = table("zh")
    missing = [f"{at}: {text!r}" for text, at in collected().items() if text not in texts]
    assert not missing, "add to src/trueflops/language/zh/*.toml:\n" + "\n".join(missing)


def test_what_every_framework_is_has_its_translation() -> None:
    raw = read_toml(SOURCE / "profile" / "data" / "frameworks.toml")
    said = [own for section in raw.values() for own in (section, *section.get("on", ()))]
    missing = [own["why"] for own in said if "why" in own and own["why"] not in table("zh")]
    assert not missing, "add to src/trueflops/language/zh/frameworks.toml:\n" + "\n".join(missing)


def test_no_translation_is_unused() -> None:
    """What is no marked text is a name or a sentence of the source or its data, shown by `word`."""
    known = set(collected())
    for tree in trees().values():
        texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        known |= {text for text in texts if isinstance(text, str)}
        known |= {
            text for node in ast.walk(tree) if isinstance(node, ast.Call) for text in marked(node)
        }
    data = (SOURCE / "profile/data/frameworks.toml").read_text(encoding="utf-8")
    # tests/test_web_words.py holds the page's own against the page.
    others = {
        text
        for name in ("argparse", "page")
        for text in tomllib.loads((SOURCE / f"language/zh/{name}.toml").read_text(encoding="utf-8"))
    }
    unused = [t for t in table("zh") if t not in known and t not in data and t not in others]
    assert not unused, "remove:\n" + "\n".join(map(repr, unused))


def test_a_translation_has_the_places_of_its_text() -> None:
    for text, said in table("zh").items():
        assert places(said) == places(text), text
        assert sorted(PERCENT.findall(said)) == sorted(PERCENT.findall(text)), text
        assert said.count("\n") == text.count("\n"), text
        assert CHINESE.search(said) or not is_english(said), f"{text!r} is still {said!r}"


def test_a_text_stands_in_one_table() -> None:
    folder = SOURCE / "language/zh"
    sizes = [len(tomllib.loads(file.read_text(encoding="utf-8"))) for file in folder.glob("*.toml")]
    assert sum(sizes) == len(table("zh"))


@pytest.mark.parametrize(
    ("words", "environment", "language"),
    [
        ((), {}, "en"),
        (("train", "--lang", "zh"), {"TRUEFLOPS_LANG": "en"}, "zh"),
        (("--lang=zh", "train"), {}, "zh"),
        (("run", "--", "--lang", "zh"), {}, "en"),  # a program's own
        (("train", "--lang"), {"LANG": "zh_CN.UTF-8"}, "zh"),  # argparse says what is missing
        (("train", "--lang", "xx"), {}, "en"),
        ((), {"TRUEFLOPS_LANG": "zh", "LANG": "en_US.UTF-8"}, "zh"),
        ((), {"TRUEFLOPS_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ((), {"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ((), {"LC_ALL": "", "LC_MESSAGES": "zh_TW", "LANG": "de_DE"}, "zh"),
        ((), {"LANG": "zh-Hans"}, "zh"),
    ],
)
def test_who_decides_on_the_language(
    words: tuple[str, ...], environment: dict[str, str], language: str
) -> None:
    assert asked_for(words, environment) == language


def test_a_language_is_spoken_within_its_block() -> None:
    with speaking("zh"):
        assert spoken() == "zh"
        with speaking("en"):
            assert word("weights") == "weights"
        assert word("weights") == "权重"
        # A name of ours among the values is said, too; what a user wrote is quoted and stays.
        assert (
            say("unknown {kind} {name!r}", kind="model", name="weights") == "未知的模型 'weights'"
        )
    assert word("weights") == "weights"
    with pytest.raises(ValueError, match="no texts in the language 'xx'"), speaking("xx"):
        pass


def test_lines_count_columns_and_begin_with_no_closing_mark() -> None:
    text = "每个 rank 每步向邻居传一块，通信库最快的算法：双树（4 × H100），一共 12 步。"
    for width in range(8, 60):
        found = lines(text, width)
        assert "".join(found).replace(" ", "") == text.replace(" ", "")
        assert all(cell_len(line) <= width for line in found)
        assert not any(line[0] in "，。：）" for line in found)
    assert lines("one two three", 7, indent="  ") == ["one two", "  three"]


def shown(words: str, capsys: pytest.CaptureFixture[str], language: str = "zh") -> str:
    main([*words.split(), "--lang", language])
    return capsys.readouterr().out


ASKED = (
    "train Llama-3.1-8B --on 8xH100 --tp 2 --zero 1 --tokens 1T --explain",
    "infer Llama-3.1-8B --on 2xH100 --tp 2",
    "compare H100 MI300X RTX4090",
    "explain matmul 4096x11008x4096 --on H100",
    "explain attention 1x32x8x4096x128 --on H100",
    "collective all_reduce --bytes 1GB --on 2x8xH100",
    "stragglers --on 8xH100 --step 500ms --slow-rank 2x --bytes 1GB",
    "stragglers --on 8xH100 --step 500ms --jitter 10% --timeline",
    "catalog DGX-H100",
    "catalog bf16",
    "diagnose tests/data/llama_160m_step.json.gz --on H200",
    "sweep examples/sweep.toml --dry-run",
)


@pytest.mark.parametrize("words", [words for words in ASKED if "catalog" not in words])
def test_no_english_words_are_left(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two English words side by side, one is a name that stays.

    The catalog's facts and notes are quoted from their sources, in their language.
    """
    text = shown(words, capsys)
    assert CHINESE.search(text)
    pairs = re.findall(r"(?<![-\w./:])(?=([a-z]{2,}) ([a-z]{2,})(?![-\w./:=]))", text)
    left = [f"{a} {b}" for a, b in pairs if a not in KEPT and b not in KEPT]
    assert not left, text


@pytest.mark.parametrize("words", [words for words in ASKED if "sweep" not in words])
def test_json_is_the_same_in_every_language(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [shown(f"{words} --json", capsys, language) for language in ("en", "zh")]
    assert answers[0] == answers[1]
    assert json.loads(answers[0])


def test_columns_stay_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures of a column end in the same column, whatever stands before them."""
    text = shown("train Llama-3.1-8B --on 8xH100 --tp 2 --zero 1", capsys)
    rows = text.partition(word_zh("Memory of the fullest accelerator"))[2].split("\n\n")[0]
    ends = {
        cell_len(row[: m.end()]) for row in rows.splitlines() if (m := re.search(r"\d\.\d", row))
    }
    assert len(rows.splitlines()) > 8
    assert len(ends) == 1


def test_headings_of_the_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    for words, heads in {
        "catalog RTX4090": ("事实", "来历", "出处", "数据手册", "租金"),
        "catalog DGX-H100": ("互连域", "事实"),
        "catalog bf16": ("内存中的字节数", "最小正规数", "更新丢失"),
        "catalog": ("种加速器", "个模型", "实测档案"),
    }.items():
        text = shown(words, capsys)
        assert [head for head in heads if head not in text] == []


def word_zh(text: str) -> str:
    with speaking("zh"):
        return word(text)


def test_help_and_errors_are_said_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "用法：trueflops" in shown("train --help", capsys)
    assert main(["--lang", "zh"]) == 0
    assert "预测一个训练方案" in capsys.readouterr().out
    for words, said in {
        "train Llama-3.1-8B --on 8xH1OO": "未知的加速器 'H1OO'；你是不是想写 H100、V100 或 P100？",
        "train Llama-3.1-8B --on 8xH100 --tp 3": "tp 3 不能整除 32 个头",
        "train": "缺少必需的参数",
        "train Llama-3.1-8B --framework megatronn --on 8xH100": "你是不是想写 megatron",
    }.items():
        assert main([*words.split(), "--lang", "zh"]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name", "content", "said"),
    [
        (["diagnose"], "trace.json", "{}", "不是 PyTorch profiler 的 trace"),
        (["diagnose"], "trace.json", '{"traceEvents": [{', "中途结束"),
        (["capture", "--on", "H100"], "model.onnx", "\x00", "不是 ONNX 文件"),
        (["train", "Llama-3.1-8B", "--on", "8xH100", "--from"], "ds.json", "{", "不是 JSON"),
        (
            ["train", "Llama-3.1-8B", "--on", "8xH100", "--from"],
            "a.yml",
            "ls",
            "a.yml 第 1 行：不是",
        ),
        (
            ["train", "Llama-3.1-8B", "--on", "8xH100", "--from"],
            "run.sh",
            "torchrun pretrain_gpt.py --tensor-model-parallel-size two",
            "run.sh 第 1 行：--tensor-model-parallel-size 是 two；可以是数",
        ),
    ],
)
def test_errors_of_other_programs_files_are_said_too(
    words: list[str],
    name: str,
    content: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if name.endswith(".onnx"):
        pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(content)
    assert main([*words, name, "--lang", "zh"]) == 2
    assert "".join(said.split()) in "".join(capsys.readouterr().err.split())
