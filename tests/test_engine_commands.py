"""Commands and files that start engines: written, read back, and other people's read."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from conftest import Ask
from trueflops.cli.arguments.deployment import CACHES
from trueflops.cli.main import main
from trueflops.errors import BadInput, ImpossiblePlan
from trueflops.interop.engines import (
    TOOLS,
    Deployed,
    read_command,
    read_deployment,
    write_deployment,
)
from trueflops.interop.engines.dynamo import IN_DYNAMO
from trueflops.predict.serving.cache import CACHE_BITS

VLLM = "vllm serve M --speculative-config"
Cut = tuple[int, int, int, int, int, int]  # tp, pp, replicas, servers, ep, etp
CUTS: tuple[Cut, ...] = (
    (1, 1, 1, 1, 1, 0), (4, 1, 1, 1, 1, 0), (1, 2, 1, 1, 1, 0), (2, 2, 1, 1, 1, 0),
    (2, 1, 1, 4, 1, 0), (4, 1, 1, 4, 1, 0), (16, 1, 1, 2, 1, 0), (1, 1, 8, 1, 8, 0),
    (8, 1, 1, 1, 8, 0), (2, 1, 4, 1, 8, 0), (1, 1, 8, 1, 1, 8), (1, 1, 8, 2, 1, 8),
    (16, 1, 1, 1, 1, 0),
)  # fmt: skip
REFUSED = {
    ("trt-llm", (2, 1, 4, 1, 8, 0)), *(("llama.cpp", cut) for cut in CUTS
    if cut[0] * cut[1] > 8 or cut[0] > 1 < cut[1] or cut[4] > 1 or cut[5] > 1),
}  # fmt: skip


def _deployed(tool: str, engine: str, cut: Cut) -> Deployed:
    tp, pp, dp, servers, ep, etp = cut
    pooled = engine != "llama.cpp"
    cache: str | None = "fp8" if pooled else "q8_0"
    if (tool, engine) == ("dynamo", "trt-llm"):
        cache = None  # which has no flag for it
    return Deployed(
        engine, tp=tp, pp=pp, dp=dp, servers=servers, ep=ep, etp=etp or None, cache=cache,
        memory_share=0.85 if pooled else None, max_model_len=8192,
        block_size=32 if pooled else None, max_num_seqs=64, max_num_batched_tokens=4096,
        enforce_eager=1 if engine in ("vllm", "sglang") else None,
        two_batch_overlap=1 if engine in ("vllm", "sglang") else None,
    )  # fmt: skip


def _cases() -> list[tuple[str, str, Cut]]:
    return [
        (tool, engine, cut)
        for tool, cut in product(TOOLS, CUTS)
        for engine in ([TOOLS[tool]] if TOOLS[tool] else IN_DYNAMO)
    ]


@pytest.mark.parametrize(("tool", "engine", "cut"), _cases())
def test_what_is_written_is_read_back(tool: str, engine: str, cut: Cut, tmp_path: Path) -> None:
    asked = _deployed(tool, engine, cut)
    if engine == "llama.cpp" and cut[1] > 1:  # cards of one kind share layers evenly
        asked = replace(asked, tensor_split=",".join("1" * cut[1]))
    if (engine, cut) in REFUSED:
        with pytest.raises(ImpossiblePlan, match=f"^--emit {tool}: .*; (use|leave) ") as refused:
            write_deployment(tool, asked, "about", 8)
        assert refused.value.code.startswith("ENGINE_")
        return
    files = write_deployment(tool, asked, "about", 8)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    said = read_deployment(tmp_path / next(iter(files)))
    degrees = (said.tp, said.pp, said.dp, said.servers, said.ep)
    assert (*(degree or 1 for degree in degrees), said.etp or 0) == cut
    left: dict[str, Any] = dict.fromkeys(("tp", "pp", "dp", "servers", "ep"))
    assert replace(said, model="", **left) == replace(asked, **left)
    assert said.accelerators == cut[0] * cut[1] * cut[2] * cut[3]


def test_two_batches_are_asked_of_engines_that_have_them() -> None:
    with pytest.raises(BadInput, match="no flag of trt-llm for it"):
        write_deployment("trtllm", Deployed("trt-llm", two_batch_overlap=1), "about", 8)


@pytest.mark.parametrize("switch", ["--two-batch-overlap", "--enforce-eager"])
def test_a_switch_is_asked_of_engines_that_have_it(
    switch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["infer", "Llama-3.1-8B", "--on", "8xH100", "--tp", "8", switch, "--engine"]
    assert main([*words, "trt-llm"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{switch}: no flag of trt-llm for it is known" in said
    assert "write --engine vllm or sglang" in said
    assert main([*words, "sglang"]) == 0


def test_a_plan_of_a_file_that_its_engine_cannot_run_is_refused_by_the_files_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a file the file is named, as a typed flag is where it was typed."""
    script = tmp_path / "serve.sh"
    script.write_text("trtllm-serve serve a/b --tp_size 8 --ep_size 2\n")
    asked = ["infer", "DeepSeek-V3", "--on", "8xB200", "--from", str(script)]
    assert main([*asked, "--engine", "vllm"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "serve.sh: ep 2, etp 4: vllm spreads experts over all ranks" in said
    assert main([*asked, "--engine", "vllm", "--tp", "8", "--ep", "2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "serve.sh: ep" not in said
    assert "ep 2, etp 4: vllm spreads experts over all ranks" in said


def test_only_whole_groups_of_experts_can_be_told_to_vllm() -> None:
    with pytest.raises(BadInput, match="write --ep 8"):
        write_deployment("vllm", Deployed("vllm", tp=8, ep=4), "about", 8)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python3 -m vllm.entrypoints.openai.api_server --model=a/b --tensor_parallel_size=4 "
         "--gpu-memory-utilization 0.95 --port 80",
         Deployed("vllm", "a/b", tp=4, memory_share=0.95)),
        ("docker run --gpus all img vllm serve a/b -tp 2 -dp 4 --enable-expert-parallel "
         "--max-model-len 32k",
         Deployed("vllm", "a/b", tp=2, dp=4, ep=8, max_model_len=32000)),
        ("python -m sglang.launch_server --model a/b --tp 16 --dp 16 --enable-dp-attention "
         "--mem-fraction-static 0.8 --trust-remote-code",
         Deployed("sglang", "a/b", tp=1, dp=16, etp=16, memory_share=0.8)),
        ("sglang serve a/b --tp 8 --dp 4 --enable-dp-attention --max-running-requests 256 "
         "--chunked-prefill-size 16384",
         Deployed("sglang", "a/b", tp=2, dp=4, etp=8, max_num_seqs=64,
                  max_num_batched_tokens=4096)),
        ("sglang serve a/b --tp 8 --enable-dp-attention", Deployed("sglang", "a/b", tp=8)),
        ("sglang serve a/b --tp 8 --dp 8 --ep 4 --enable-dp-attention",
         Deployed("sglang", "a/b", tp=1, dp=8, ep=4, etp=2)),
        ("sglang serve a/b --tp 2 --dp 4", Deployed("sglang", "a/b", tp=2, dp=4)),
        ("vllm serve a/b -tp 2 -dp 4", Deployed("vllm", "a/b", tp=2, dp=4, etp=8)),
        ("trtllm-serve serve a/b --tp_size 8 --ep_size 8 --max_batch_size 512",
         Deployed("trt-llm", "a/b", tp=8, ep=8, max_num_seqs=512)),
        ("./build/bin/llama-server -m x.gguf -c 16384 -np 4 -ngl 99 -ctk q8_0 -sm row -ts 1,1 &",
         Deployed("llama.cpp", "x.gguf", tp=2, cache="q8_0", max_model_len=4096, max_num_seqs=4,
                  gpu_layers=99)),
        ("ARGS='-tp 4 --max-num-seqs 64' # both\nvllm serve a/b $ARGS",
         Deployed("vllm", "a/b", tp=4, max_num_seqs=64)),
        ("N=8\nvllm serve a/b \\\n  -tp $N # eight\n", Deployed("vllm", "a/b", tp=8)),
    ],
)  # fmt: skip
def test_commands_of_others_are_read(command: str, expected: Deployed) -> None:
    assert read_command(command) == expected


def test_the_first_server_of_a_script_counts_and_others_are_named() -> None:
    said = read_command(
        "cd /models\nvllm serve a/b -tp 2 \\\n  --max-num-seqs 64 &\nsglang serve c/d --tp 4 &\n"
        "vllm bench serve --model a/b\n"
    )
    assert (said.engine, said.model, said.tp, said.max_num_seqs) == ("vllm", "a/b", 2, 64)
    assert said.ignored == ("sglang c/d --tp 4", "vllm --model a/b")


def test_flags_alone_are_read_where_the_engine_is_known() -> None:
    said = read_command("--max-num-seqs 64 --enable-chunked-prefill --foo", engine="vllm")
    assert said.max_num_seqs == 64
    assert said.ignored == ("--enable-chunked-prefill", "--foo")
    beside = read_command("a/b\n-tp 2 # two\n--max-num-seqs 8 & other -tp 4", engine="vllm")
    assert (beside.model, beside.tp, beside.max_num_seqs) == ("a/b", 2, 8)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo hello", "starts none"),
        ("vllm serve a --max-num-seqs many", "write a whole number"),
        ("vllm serve a --gpu-memory-utilization 90", "write a share"),
        ("vllm serve a --gpu-memory-utilization 0_1", "write a share"),
        ('vllm serve "a', "quote is not closed"),
    ],
)
def test_a_command_that_cannot_be_read_says_why(command: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        read_command(command)


def test_options_that_are_of_no_engine_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    path.write_text("a: 1\n")
    with pytest.raises(BadInput, match="none of TensorRT-LLM's options"):
        read_deployment(path)


def test_both_forms_of_a_graph_are_read(tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(
        "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nspec:\n  services:\n"
        "    Frontend:\n      replicas: 1\n    VllmPrefillWorker:\n      extraPodSpec:\n"
        "        mainContainer:\n          command: [python3, -m, dynamo.vllm]\n"
        "          args:\n            - --model\n            - a/b\n"
        "    VllmDecodeWorker:\n      replicas: 3\n      extraPodSpec:\n        mainContainer:\n"
        "          command:\n            - python3\n            - -m\n            - dynamo.vllm\n"
        "          args:\n            - --model\n            - a/b\n            - -tp\n"
        "            - '2'\n"
    )
    said = read_deployment(path)
    assert (said.model, said.tp, said.servers) == ("a/b", 2, 3)
    assert said.ignored == ("component VllmPrefillWorker",)


def test_caches_that_can_be_asked_for_have_bits() -> None:
    assert set(CACHES) == set(CACHE_BITS)


@pytest.mark.parametrize("tool", ["vllm", "sglang", "trtllm"])
def test_a_deployment_is_answered_alike_when_it_is_read_back(
    tool: str, tmp_path: Path, ask: Ask
) -> None:
    folder = tmp_path / "out"
    where = ("--on", "4xH100")
    flags = ("--tp", "2", "--cache", "fp8", "--weights", "fp8", "--memory-share", "0.8")
    first = ask("infer", "Llama-3.1-8B", *where, *flags, "--emit", tool, str(folder))
    again = ask("infer", "Llama-3.1-8B", *where, "--from", str(folder / "serve.sh"))
    same = ("plan_flags", "weights", "kv_cache_tokens", "tpot_seconds", "memory_share")
    assert {key: first[key] for key in same} == {key: again[key] for key in same}


MIXTURE = ("infer", "Qwen3-235B-A22B", "--on", "8xH200", "--concurrency", "64")


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("sglang serve M --tp 8 --dp 8 --enable-dp-attention", ["--tp", "1", "--etp", "8"]),
        ("sglang serve M --tp 4 --dp 2", ["--tp", "4"]),
        ("vllm serve M -dp 8", ["--tp", "1", "--etp", "8"]),
        ("vllm serve M -dp 8 --enable-expert-parallel", ["--tp", "1", "--ep", "8"]),
    ],
)
def test_replicas_of_attention_share_experts_as_engines_have_it(
    command: str, flags: list[str], tmp_path: Path, ask: Ask
) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(command)
    engine = ["--engine", command.split()[0]]
    read, typed = ask(*MIXTURE, "--from", str(file)), ask(*MIXTURE, *engine, *flags)
    assert read["plan_flags"] == typed["plan_flags"] == " ".join(flags)
    assert read["tpot_seconds"] == typed["tpot_seconds"]


@pytest.mark.parametrize(("tool", "own"), [("vllm", False), ("sglang", True), ("dynamo", False)])
def test_whole_copies_of_a_mixture_are_servers_of_their_own(
    tool: str, own: bool, tmp_path: Path, ask: Ask
) -> None:
    """As vLLM's replicas share experts; SGLang's do so only if they are told to."""
    first = ask(*MIXTURE, "--tp", "4", "--emit", tool, str(tmp_path))
    path = tmp_path / ("graph.yaml" if tool == "dynamo" else "serve.sh")
    assert ("--dp-size 2" in path.read_text()) == own
    again = ask(*MIXTURE, "--from", str(path))
    assert again["plan_flags"] == first["plan_flags"] == "--tp 4"
    assert again["tpot_seconds"] == first["tpot_seconds"]


def test_replicas_of_a_model_without_experts_share_nothing(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "serve.sh").write_text("vllm serve M -dp 4")
    where = ("--on", "4xH100", "--from", str(tmp_path / "serve.sh"))
    assert ask("infer", "Llama-3.1-8B", *where)["plan_flags"] == "--tp 1"


def test_what_is_there_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "serve.sh").write_text("mine")
    words = ["infer", "Llama-3.1-8B", "--on", "H100", "--emit", "vllm", str(tmp_path)]
    assert main(words) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "serve.sh").read_text() == "mine"
    assert main([*words, "--force"]) == 0
    assert "vllm serve" in (tmp_path / "serve.sh").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--memory-share", "1.2"), "above 0 and up to 1"),
        (("--max-model-len", "100"), "1,280 tokens"),
        (("--release", "newest"), "as 0.11.0"),
        (("--emit", "vlm", "x"), "did you mean vllm"),
        (("--emit", "sglang", "x", "--engine", "vllm"), "--engine says vllm"),
        (("--force",), "--emit TOOL DIR"),
        (("--from", "nowhere.sh"), "no such file"),
    ],
)
def test_flags_that_cannot_be_meant_are_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", "Llama-3.1-8B", "--on", "H100", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_most_sequences_are_how_many_run(ask: Ask) -> None:
    given = ("--max-num-seqs", "16", "--concurrency", "64")
    answer = ask("infer", "Llama-3.1-8B", "--on", "H100", "--tp", "1", *given)
    assert answer["running_requests_per_replica"] == 16
    assert answer["waiting_requests_per_replica"] == 48


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo hello\n", "没有启动任何已知的引擎"),
        ("vllm serve m --max-num-seqs many\n", "请写不小于 1 的整数"),
        ("llama-server -m x.gguf -ngl -3\n", "请写不小于 1 的整数"),
    ],
)
def test_errors_of_launch_files_are_said_in_chinese(
    script: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(script)
    words = ["infer", "Llama-3.1-8B", "--on", "H100", "--from", str(file), "--lang", "zh"]
    assert main(words) == 2
    assert said in "".join(capsys.readouterr().err.split("\n")).replace(" " * 11, "")


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (f"""{VLLM} '{{"method": "deepseek_mtp", "num_speculative_tokens": 2}}'""",
         ("mtp", None, 2, None, None)),
        (f"""{VLLM} {{"method":"mtp","num_speculative_tokens":1}}""", ("mtp", None, 1, None, None)),
        (f"{VLLM}.method eagle3 --speculative-config.model some/head",
         ("eagle3", None, None, None, None)),
        (f"""{VLLM} '{{"method": "draft_model", "model": "Llama-3.2-1B"}}'""",
         ("draft", "Llama-3.2-1B", None, None, None)),
        ("sglang serve M --speculative-algorithm EAGLE --speculative-num-steps 3"
         " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4", ("mtp", None, 3, 3, 1)),
        ("sglang serve M --speculative-algorithm EAGLE --speculative-draft-model-path some/head",
         ("eagle", None, None, None, None)),
        ("llama-server -m M.gguf -md Llama-3.2-1B --draft-max 16",
         ("draft", "Llama-3.2-1B", 16, None, None)),
        ("llama-server -hf M -hfd some/head --spec-type draft-eagle3",
         ("eagle3", None, 3, None, None)),
        ("llama-server -m M.gguf --spec-type ngram-mod,draft-mtp --spec-ngram-mod-n-max 64",
         ("ngram", None, 64, None, None)),
    ],
)  # fmt: skip
def test_drafts_of_other_peoples_commands_are_read(
    command: str, found: tuple[str | int | None, ...]
) -> None:
    said = read_command(command)
    assert said.ignored == ()
    assert found == (
        said.speculate, said.draft_model, said.num_speculative_tokens, said.speculative_steps,
        said.speculative_topk,
    )  # fmt: skip


def test_drafts_that_are_not_understood_are_named() -> None:
    for value in ("nonsense", '{"method": "telepathy"}'):
        assert read_command(f"{VLLM} '{value}'").ignored


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("{decoding_type: MTP, num_nextn_predict_layers: 3}", ("mtp", None, 3)),
        ("{decoding_type: MTP}", ("mtp", None, 1)),
        ("{decoding_type: Eagle, max_draft_len: 4, speculative_model_dir: some/head}",
         ("eagle3", None, 4)),
        ("{decoding_type: DraftTarget, max_draft_len: 5, speculative_model: Llama-3.2-1B}",
         ("draft", "Llama-3.2-1B", 5)),
    ],
)  # fmt: skip
def test_drafts_of_tensorrt_llms_options_are_read(
    options: str, found: tuple[str | int | None, ...], tmp_path: Path
) -> None:
    keys = "".join(f"  {each.strip()}\n" for each in options.strip("{}").split(","))
    path = tmp_path / "options.yaml"
    path.write_text(f"tensor_parallel_size: 8\nspeculative_config:\n{keys}")
    said = read_deployment(path)
    assert said.ignored == ()
    assert found == (said.speculate, said.draft_model, said.num_speculative_tokens)


@pytest.mark.parametrize("tool", ["vllm", "sglang", "trtllm", "llamacpp", "dynamo"])
@pytest.mark.parametrize("method", ["eagle3", "mtp", "ngram", "draft"])
def test_an_answer_with_drafts_is_started_with_drafts(
    tool: str, method: str, tmp_path: Path, ask: Ask
) -> None:
    model = "DeepSeek-V3" if method == "mtp" else "Llama-3.3-70B"
    asked = ["infer", model, "--on", "8xH200", "--concurrency", "16"]
    said = ["--speculate", method, *(["--draft-model", "Llama-3.2-1B"] * (method == "draft"))]
    files = tmp_path / "files"
    first = ask(*asked, "--tp", "8", *said, "--emit", tool, str(files))
    path = files / ("graph.yaml" if tool == "dynamo" else "serve.sh")
    named = path.with_name("options.yaml") if tool == "trtllm" else path
    marked = "SET-ME" if tool == "trtllm" else "DRAFT"
    assert (marked in named.read_text()) == (method in ("eagle3", "draft"))
    engine = ["--engine", "vllm"] if tool in ("vllm", "dynamo") else []
    again = ask(*asked, *engine, "--from", str(path))
    assert again["tpot_seconds"] == first["tpot_seconds"]
    typed = ask(*asked, *engine, "--from", str(path), "--speculate", "suffix")
    assert typed["tpot_seconds"] != first["tpot_seconds"]


@pytest.mark.parametrize(
    ("tool", "engine", "drafts", "reason"),
    [
        ("dynamo", "trt-llm", ["mtp"], "write --emit trtllm"),
        ("vllm", "vllm", ["eagle2"], "ask for --speculative-topk 1"),
        ("trtllm", "trt-llm", ["medusa"], "no word for it"),
        ("vllm", "vllm", ["eagle3", "--speculative-topk", "4"], "ask for --speculative-topk 1"),
    ],
)
def test_drafts_that_an_engine_cannot_be_told_are_refused(
    tool: str, engine: str, drafts: list[str], reason: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    words = ["--on", "8xH200", "--tp", "8", "--engine", engine, "--emit", tool, str(tmp_path)]
    assert main(["infer", "DeepSeek-V3", *words, "--speculate", *drafts]) == 2
    assert reason in " ".join(capsys.readouterr().err.split())


SPAN = "sglang serve a/b --tp 16 --dp 16 --enable-dp-attention --moe-a2a-backend"


@pytest.mark.parametrize("flag", ["--enable-ep-moe", "--enable-deepep-moe"])
def test_older_words_of_sglang_spread_experts_likewise(flag: str) -> None:
    assert read_command(f"sglang serve {flag} a/b --tp 8") == Deployed("sglang", "a/b", tp=8, ep=8)


@pytest.mark.parametrize("backend", ["deepep", "mooncake", "ascend_fuseep", "mori", "none"])
def test_an_all_to_all_of_sglang_spreads_experts_over_all_ranks(backend: str) -> None:
    said = read_command(f"{SPAN} {backend}")
    assert (said.tp, said.dp) == (1, 16)
    spread = (16, None, ()) if backend != "none" else (None, 16, ("--moe-a2a-backend none",))
    assert (said.ep, said.etp, said.ignored) == spread


SGLANG = "python3 -m sglang.launch_server --model-path a/b"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("docker pull vllm/vllm-openai:v0.11.0\ndocker run --gpus all -p 8000:8000 "
         "docker.io/vllm/vllm-openai:v0.11.0 --model a/b --tensor-parallel-size 4",
         Deployed("vllm", "a/b", tp=4, release="0.11.0")),
        ("docker run --entrypoint vllm vllm/vllm-openai:latest serve a/b -tp 2",
         Deployed("vllm", "a/b", tp=2)),
        ("docker run --entrypoint=/bin/bash vllm/vllm-openai:v0.9.1 -c 'cd /x && vllm serve a/b'",
         Deployed("vllm", "a/b", release="0.9.1")),
        (f"docker run lmsysorg/sglang:v0.5.3-cu129 {SGLANG} --tp 8",
         Deployed("sglang", "a/b", tp=8, release="0.5.3")),
        (f'docker run lmsysorg/sglang:latest bash -c "pip list\n{SGLANG} \\\n --tp 8" # eight',
         Deployed("sglang", "a/b", tp=8)),
        ("srun --container-image=vllm/vllm-openai:v0.11.0 vllm serve a/b -tp 2",
         Deployed("vllm", "a/b", tp=2, release="0.11.0")),
        ("podman run ghcr.io/ggml-org/llama.cpp:server-cuda -m x.gguf -c 8192",
         Deployed("llama.cpp", "x.gguf", max_model_len=8192)),
    ],
)  # fmt: skip
def test_containers_are_read_by_their_image_and_by_what_a_shell_is_given(
    command: str, expected: Deployed
) -> None:
    assert read_command(command) == expected


def test_an_image_that_is_not_run_starts_nothing() -> None:
    with pytest.raises(BadInput, match="starts none"):
        read_command("docker pull vllm/vllm-openai:v0.11.0")


_POD = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
_DEPLOYED = _POD.replace("Pod", "Deployment").replace("spec:", "spec:\n  replicas: 3\n  template:")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_DEPLOYED + "  - name: m\n    image: vllm/vllm-openai:v0.10.2\n"
         "    command: [/bin/sh, -c]\n"
         "    args: [\n      \"vllm serve a/b -tp $(TP)\"\n    ]\n    env:\n    - name: TP\n"
         "      value: '2'\n    livenessProbe:\n      exec:\n        command: [curl, x]\n",
         Deployed("vllm", "a/b", tp=2, servers=3, release="0.10.2")),
        (_POD + "  - args:\n    - --model=a/b\n    - --tensor-parallel-size # cards\n    - '4'\n"
         "    image: vllm/vllm-openai:latest\n", Deployed("vllm", "a/b", tp=4)),
        (_POD + "    - image: lmsysorg/sglang:v0.5.3rc2\n      command:\n      - bash\n      - -c\n"
         f"      - |\n        # it's here\n        {SGLANG} \\\n          --tp 8\n"
         "      resources: {}\n", Deployed("sglang", "a/b", tp=8, release="0.5.3rc2")),
        ("services:\n  m:\n    image: vllm/vllm-openai:v0.11.0\n    command: >\n      --model a/b\n"
         "      --tensor-parallel-size ${TP:-2}\n    ports: ['80:80']\n",
         Deployed("vllm", "a/b", tp=2, release="0.11.0")),
        ("services:\n  m:\n    image: ghcr.io/ggml-org/llama.cpp:server\n    command: -m x.gguf\n",
         Deployed("llama.cpp", "x.gguf")),
        (_POD + "  - image: ghcr.io/ggml-org/llama.cpp:server-cuda\n    args: [-m, x.gguf]\n"
         "    resources:\n      limits:\n        nvidia.com/gpu: 2\n",
         Deployed("llama.cpp", "x.gguf", pp=2)),
    ],
)  # fmt: skip
def test_yaml_that_starts_containers_is_read(text: str, expected: Deployed, tmp_path: Path) -> None:
    (tmp_path / "start.yaml").write_text(text)
    assert read_deployment(tmp_path / "start.yaml") == expected


def test_a_file_of_flags_is_read_and_typed_flags_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flags.yaml").write_text(
        "model: a/b\ntensor-parallel-size: 4\nmax_num_seqs: 64\nenable-expert-parallel: true\n"
        "enforce-eager: false\nlora-x: 3\nspeculative-config:\n  method: mtp\n"
    )
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve --config /etc/flags.yaml -tp 2")
    expected = Deployed(
        "vllm", "a/b", tp=2, ep=2, max_num_seqs=64, speculate="mtp", ignored=("--lora-x 3",)
    )
    assert read_deployment(script) == expected
    (tmp_path / "work").mkdir()
    (tmp_path / "flags.yaml").rename(tmp_path / "work" / "own.yaml")
    script.write_text(f"{SGLANG} --config own.yaml")
    with pytest.raises(BadInput, match=r"serve.sh: names own.yaml, which is not beside it"):
        read_deployment(script)
    monkeypatch.chdir(tmp_path / "work")
    said = read_deployment(script)
    assert (said.model, said.tp) == ("a/b", 4)


@pytest.mark.parametrize(
    ("flags", "tp", "pp"),
    [
        ("", None, 4),
        ("-sm layer", None, 4),
        ("-sm row", 4, None),
        ("-sm none -mg 0", None, None),
        ("-ts 3,1", None, 2),
        ("-dev CUDA0,CUDA1", None, 2),
    ],
)
def test_llama_cpp_takes_every_card_that_it_sees(
    flags: str, tp: int | None, pp: int | None, tmp_path: Path
) -> None:
    (tmp_path / "serve.sh").write_text(f"llama-server -m x.gguf {flags}")
    said = read_deployment(tmp_path / "serve.sh", cards=4)
    assert (said.tp, said.pp) == (tp, pp)


def test_llama_cpp_sees_the_cards_that_its_environment_names() -> None:
    assert read_command("CUDA_VISIBLE_DEVICES=0,1 llama-server -m x.gguf", cards=4).pp == 2
    assert read_command("CUDA_VISIBLE_DEVICES=3 llama-server -m x.gguf", cards=4).pp is None
    image = "ghcr.io/ggml-org/llama.cpp:server-cuda -m x.gguf"
    for gpus, pp in (("2", 2), ("""'"device=0,1,3"'""", 3), ("all", 4)):
        assert read_command(f"docker run --gpus {gpus} {image}", cards=4).pp == pp


@pytest.mark.parametrize("flags", ["--cpu-moe", "-ncmoe 12", "-ot '.ffn_.*_exps.=CPU'"])
def test_experts_on_the_host_are_refused_with_what_is_modelled(flags: str) -> None:
    with pytest.raises(BadInput, match=rf"{flags.split()[0]} .*write --gpu-layers N in its place"):
        read_command(f"llama-server -m x.gguf {flags} -c 4096")


def test_what_is_ignored_is_quoted_as_it_is_written() -> None:
    said = read_command("llama-server -m x.gguf -fa on -b 2048 -mg 0 -ncmoe 0 --foo=1")
    assert said.ignored == ("-fa on", "-b 2048", "-mg 0", "-ncmoe 0", "--foo=1")
    assert read_command("vllm serve a/b -O3 -tp 2").ignored == ("-O3",)
    with pytest.raises(BadInput, match=r": -np 'many'"):
        read_command("llama-server -m x.gguf -np many")


def test_a_drafters_file_tells_its_model_or_is_refused_where_nothing_else_does(
    tmp_path: Path,
) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("llama-server -m x.gguf -md draft.gguf")
    with pytest.raises(BadInput, match=r"-md draft.gguf.*--speculate draft --draft-model NAME"):
        read_deployment(script, typed=("tp",))
    assert read_deployment(script, typed=("draft_model",)).speculate == "draft"
    script.write_text("llama-server -m x.gguf -md /models/Llama-3.2-1B-Q4_K_M.gguf")
    assert read_deployment(script, typed=()).draft_model == "Llama-3.2-1B-Q4_K_M.gguf"


def test_a_degree_that_only_the_machine_knows_is_left_to_what_is_typed(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("TP=$(nvidia-smi -L | wc -l)\nvllm serve a/b -tp $TP --max-num-seqs 8")
    with pytest.raises(BadInput, match="write a whole number"):
        read_deployment(script)
    said = read_deployment(script, typed=("tp",))
    assert (said.tp, said.max_num_seqs) == (None, 8)


@pytest.mark.parametrize(
    ("flags", "model"),
    [
        ("-hf a/B-GGUF", "a/B-GGUF:Q4_K_M"),
        ("-hf a/B-GGUF:Q8_0", "a/B-GGUF:Q8_0"),
        ("-hf a/B-Q8_0-GGUF", "a/B-Q8_0-GGUF"),
        ("-hf a/B-GGUF -hff B-Q8_0.gguf", "B-Q8_0.gguf"),
        ("-hf ggml-org/gpt-oss-20b-GGUF", "ggml-org/gpt-oss-20b-GGUF"),
    ],
)
def test_of_a_repository_llama_cpp_takes_its_usual_format(flags: str, model: str) -> None:
    said = read_command(f"llama-server {flags}")
    assert (said.model, said.ignored) == (model, ())


def test_the_usual_format_is_that_of_the_answer(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "serve.sh").write_text("llama-server -hf ggml-org/Qwen3-8B-GGUF")
    answer = ask("infer", "Qwen3-8B", "--on", "RTX4090", "--from", str(tmp_path / "serve.sh"))
    assert answer["weights"] == "q4_k_m"


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        ("""vllm serve a -tp 2 --kv-transfer-config '{"kv_role": "kv_producer"}' &\n"""
         """vllm serve a -tp 4 --kv-transfer-config '{"kv_role": "kv_consumer"}' &\n"""
         """vllm serve a -tp 4 --kv-transfer-config '{"kv_role": "kv_consumer"}' &\n""",
         "--engine vllm --prefill 1xtp2 --decode 2xtp4"),
        (f"{SGLANG} --tp 4 --disaggregation-mode prefill &\n{SGLANG} --tp 8 --dp 8 "
         "--enable-dp-attention --moe-a2a-backend deepep --disaggregation-mode decode",
         "--engine sglang --prefill 1xtp4 --decode 1xtp1dp8ep8"),
    ],
)  # fmt: skip
def test_pools_are_refused_with_the_flags_that_ask_for_them(script: str, flags: str) -> None:
    with pytest.raises(BadInput, match=flags):
        read_command(script)
