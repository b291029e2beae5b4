"""A script is run as it is: its step is found by the optimizer that closes it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture, capture_script
from trueflops.cli import main
from trueflops.errors import BadInput
from trueflops.predict.captured.memory import captured_memory
from trueflops.records.recording import Allocated, Call, Recording
from trueflops.units import GIBI, MEBI

H100 = Machine("NVIDIA H100 80GB HBM3", 80 * int(GIBI), 132, (9, 0), 50 * int(MEBI))
WIDTH = 64
LOOP = """
    import sys
    import torch
    from torch import nn
    import torch.distributed as dist

    if __name__ == "__main__":
        log, steps = open(sys.argv[1], "a", buffering=1), int(sys.argv[2])
        model = nn.Linear({width}, {width}).cuda()
        {before}
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        x = torch.randn(8, {width}, device="cuda")
        for number in range(steps):
            print(number, file=log)
            {line}
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        {after}
"""


def run(
    folder: Path, *, steps: int = 9, before: str = "", line: str = "", after: str = "", **place: Any
) -> tuple[Recording, int]:
    """The recording of the loop, and how many of its steps were begun."""
    file, log = folder / "train.py", folder / "log"
    text = LOOP.format(width=WIDTH, before=before, line=line or "pass", after=after)
    file.write_text(dedent(text))
    found = capture_script(file, [str(log), str(steps)], H100, **place)
    return found, len(log.read_text().split())


def ops(recording: Recording) -> Counter[str]:
    return Counter(call.op for call in recording.calls())


def test_a_script_runs_until_its_second_step_is_recorded(tmp_path: Path) -> None:
    found, begun = run(tmp_path)
    assert begun == 3  # one to warm up, one recorded, and the call that ends it
    assert found.parameter_count == WIDTH * WIDTH + WIDTH

    def program() -> Any:
        model = nn.Linear(WIDTH, WIDTH).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        x = torch.randn(8, WIDTH, device="cuda")

        def step() -> None:
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    assert ops(found) == ops(capture(lambda: program, H100))


def test_the_last_step_of_a_script_may_be_the_recorded_one(tmp_path: Path) -> None:
    found, begun = run(tmp_path, steps=2)
    assert begun == 2
    assert ops(found)["aten._fused_adamw_.default"] == 1


def test_a_step_of_two_optimizers_and_of_two_micro_batches_is_one(tmp_path: Path) -> None:
    before = "other = nn.Linear(64, 64).cuda(); second = torch.optim.SGD(other.parameters())"
    line = "model(x).sum().backward(); other(x).sum().backward(); second.step()"
    found, begun = run(tmp_path, before=before, line=line)
    assert begun == 3
    assert ops(found)["aten._fused_adamw_.default"] == 1
    assert ops(found)["aten.addmm.default"] == 3
    made = [e for e in found.step() if isinstance(e, Allocated) and e.phase == "optimizer"]
    assert not made  # all states were there


def test_a_script_that_catches_errors_does_not_catch_the_end(tmp_path: Path) -> None:
    line = "exec('try: model(x)\\nexcept Exception: print(number, file=log)')"
    assert run(tmp_path, line=line)[1] == 3


def test_a_script_that_ends_too_early_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="ended after 1 step"):
        run(tmp_path, steps=1)
    with pytest.raises(BadInput, match=r"no optimizer of torch\.optim was stepped: write a funct"):
        run(tmp_path, steps=0)
    with pytest.raises(BadInput, match=r"at train\.py:\d+ .*the program ended itself \(3\)"):
        run(tmp_path, steps=1, after="sys.exit(3)")


def test_a_script_sees_torchruns_environment(tmp_path: Path) -> None:
    before = "dist.init_process_group('nccl'); assert dist.get_rank() == 5"
    line = "dist.all_reduce(x)"
    found, _ = run(tmp_path, before=before, line=line, world=8, rank=5)
    assert (found.rank, found.world) == (5, 8)
    assert [c.group for c in found.calls() if c.group] == [tuple(range(8))]
    with pytest.raises(BadInput, match=r"rank 5 ended its process \(7\)"):
        run(tmp_path, before="import os; os._exit(7)", world=8, rank=5)


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_segments_grow_where_a_script_asks_for_it(tmp_path: Path, name: str) -> None:
    plain, _ = run(tmp_path)
    before = f"import os; os.environ['{name}'] = 'max_split_size_mb:64, expandable_segments:True'"
    found, _ = run(tmp_path, before=before)
    assert (plain.expandable, found.expandable) == (False, True)
    assert name not in os.environ


@pytest.mark.parametrize("words", ["--on H100 {}", "{} --on H100", "--on H100 {} --json"])
def test_capture_of_a_script_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    file = tmp_path / "train.py"
    file.write_text(dedent(LOOP.format(width=WIDTH, before="", line="pass", after="")))
    own = ["--", str(tmp_path / "log"), "4"]
    assert main(["capture", *words.format(file).split(), *own]) == 0
    assert "step" in capsys.readouterr().out


def test_only_what_runs_a_program_takes_words_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "Llama-3.1-8B", "--on", "H100", "--", "4"]) == 2
    assert "runs no program" in capsys.readouterr().err


# ── what frameworks do ───────────────────────────────────────────────────────────────────────────


def test_a_ddp_that_is_made_in_every_step_ends() -> None:
    ran: list[int] = []

    def program() -> Any:
        dist.init_process_group("nccl")
        model = nn.Linear(WIDTH, WIDTH).cuda()
        x = torch.randn(8, WIDTH, device="cuda")

        def step() -> None:
            ran.append(1)
            nn.parallel.DistributedDataParallel(model)(x).sum().backward()

        return step

    capture(lambda: program, H100, world=8)
    assert len(ran) == 4  # three to warm up, and the recorded one


def test_buffers_of_gradients_and_copies_of_weights_are_named() -> None:
    def program() -> Any:
        model: Any = nn.Linear(WIDTH, WIDTH, bias=False).cuda().bfloat16()
        model.weight.main_grad = torch.zeros(WIDTH, WIDTH, device="cuda")
        wide = nn.Parameter(model.weight.detach().float())
        optimizer = torch.optim.AdamW([wide])
        x = torch.randn(8, WIDTH, device="cuda", dtype=torch.bfloat16)

        def step() -> None:
            model(x).sum().backward()
            model.weight.main_grad.add_(model.weight.grad)
            wide.grad = model.weight.main_grad
            optimizer.step()
            model.weight.grad = None
            model.weight.data.copy_(wide)

        return step

    held = captured_memory(capture(lambda: program, H100)).by("category")
    count = WIDTH * WIDTH
    assert held["parameters"] == 2 * count
    assert held["gradients"] == 4 * count + 2 * count  # the buffer, and what the backward leaves
    assert held["optimizer state"] == 3 * 4 * count  # weights in fp32 and two moments


def test_weights_without_a_module_are_parameters() -> None:
    def program() -> Any:
        weight: Any = torch.randn(WIDTH, WIDTH, device="cuda", requires_grad=True)
        optimizer = torch.optim.SGD([weight], momentum=0.9)

        def step() -> None:
            (weight @ weight).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    held = captured_memory(capture(lambda: program, H100)).by("category")
    assert held["parameters"] == held["optimizer state"] == 4 * WIDTH * WIDTH


def test_the_backward_of_a_users_own_function_may_ask_for_the_device() -> None:
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad + torch.ones(grad.shape, device=torch.cuda.current_device())

    def program() -> Any:
        x = torch.randn(8, WIDTH, device="cuda", requires_grad=True)
        own: Any = Own
        return lambda: own.apply(x).sum().backward()

    found = [call for call in capture(lambda: program, H100).calls() if call.phase == "backward"]
    assert any(call.outputs[0].device == "cuda" and "ones" in call.op for call in found)


def test_what_lies_below_torch_cuda_is_answered() -> None:
    def program() -> Any:
        x = torch.ones(4, dtype=torch.bfloat16, device="cuda")
        assert torch._C._cuda_getDevice() == 0
        assert torch.cuda.random.get_rng_state().dtype == torch.uint8
        assert torch.cuda.default_generators[0].get_state().dtype == torch.uint8
        assert x.type() == "torch.cuda.BFloat16Tensor"
        assert x.type("torch.cuda.FloatTensor").dtype == torch.float32
        norms = torch.tensor([[torch.randn(4, device="cuda").norm() for _ in range(3)]])
        assert norms.shape == (1, 3)
        assert norms.device.type == "cpu"
        assert float(torch.tensor([x.float().sum(), 1.0])[0]) == 4.0
        return lambda: x.sum()

    before = hasattr(torch._C, "_cuda_getDevice")
    capture(lambda: program, H100)
    assert hasattr(torch._C, "_cuda_getDevice") == before


def test_a_router_is_taken_to_choose_evenly_and_the_answer_says_so() -> None:
    tokens, experts, chosen = 48, 8, 2
    counts: list[int] = []

    def program() -> Any:
        router = nn.Linear(WIDTH, experts).cuda()
        x = torch.randn(tokens, WIDTH, device="cuda")

        def step() -> None:
            scores = router(x).softmax(-1)
            places = scores.topk(chosen, dim=-1).indices
            mask = torch.zeros_like(scores).int().scatter(1, places, 1).bool()
            counts[:] = mask.sum(0).tolist()
            picked = scores.T.contiguous().masked_select(mask.T.contiguous())
            assert picked.shape == (tokens * chosen,)
            assert x[mask[:, 0]].shape == (tokens * chosen // experts, WIDTH)
            picked.sum().backward()

        return step

    found = capture(lambda: program, H100)
    assert counts == [tokens * chosen // experts] * experts
    assert any("topk" in warning and "evenly" in warning for warning in found.warnings)
    # On CUDA, masked_select looks for the places of a mask and takes what is there.
    selected = [c for c in found.calls() if isinstance(c, Call) and c.op == "aten.index.Tensor"]
    assert selected[0].outputs[0].shape == (tokens * chosen,)
