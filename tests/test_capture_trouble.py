"""What a capture cannot follow is said with the user's line and what to write instead."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture, load
from trueflops.errors import BadInput
from trueflops.language import speaking
from trueflops.units import GIBI, MEBI

H100 = Machine("NVIDIA H100 80GB HBM3", 80 * int(GIBI), 132, (9, 0), 50 * int(MEBI))
PROGRAM = """
    import math
    import torch
    from torch import nn
    from torch.nn import functional

    def build():
        model = nn.Linear(16, 16).cuda()
        x = torch.randn(8, 16, device="cuda")
        names = list("abcdefgh")

        def step():
            y = model(x)
            loss = y.square().mean()
            {line}
            loss.backward()
            model.zero_grad()

        return step
"""
AT = 14  # the line of the program that makes trouble


def trouble(tmp_path: Path, text: str, name: str = "build") -> str:
    """What a capture says of a program, on one line."""
    file = tmp_path / "train.py"
    file.write_text(dedent(text).strip() + "\n")
    with pytest.raises(BadInput) as caught:
        capture(lambda: load(f"{file}:{name}"), H100)
    said = str(caught.value)
    assert "\n" not in said
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("line", "what", "instead"),
    [
        ("torch.unique(y)", "unique", "--assume train.py:14=COUNT"),
        ("torch.bincount((y > 0).long().flatten())", "bincount", "--assume train.py:14=COUNT"),
        ("y = y * 2 if 3.0 in y else y", "`in` of a tensor", "--assume train.py:14=true"),
        ("if (y > 0).all(): y = y * 2", "a branch on a tensor", "--assume train.py:14=true"),
        ("y.split(y[:2, 0].long().tolist())", "a size is", "the line that reads it (.item() or"),
        ("torch.repeat_interleave(y, (y[:, 0] > 0).long(), 0)", "repeat_interleave", "output_size"),
        ("if loss.item() > 3: y = y * 2", "comparing .item()", "a number of the program's own"),
        ("y = y * 2 if loss.item() else y", "a branch on .item()", "leave the branch out"),
        ("if float(loss) > 3: y = y * 2", "float() of a tensor", "a number of the program's own"),
        ("ok = float(loss.item()) > 3", "comparing .item()", "a number of the program's own"),
        ("if (y > 0).any(): y = y * 2", "a branch on a tensor", "a number of the program's own"),
        ("while loss > 1: loss = loss / 2", "a branch on a tensor", "leave the branch out"),
        ("int(loss)", "int() of a tensor", "a number of the program's own"),
        ("int(loss.item())", "int() of .item()", "a number of the program's own"),
        ("math.floor(loss.item())", "int() of .item()", "a number of the program's own"),
        ("names[y.argmax() // 99]", "a tensor as an index or a count", "of the program's own"),
        ("list(range(y.argmax()))", "a tensor as an index or a count", "of the program's own"),
        ("y.detach().cpu().numpy()", ".numpy()", "keep the numbers in tensors"),
        ("if y.tolist()[0][0] > 0: y = y * 2", "comparing .item()", "of the program's own"),
        ("torch.equal(y, x)", "torch.equal", "--assume train.py:14=true"),
        ("torch.zeros(int(y.sum()), device='cuda')", "int() of a tensor", "of the program's own"),
        ("nn.Embedding(9, 9, sparse=True).cuda()(x.long()).sum().backward()", "layout", "dense"),
        ("nn.DataParallel(model)(x)", "nn.DataParallel", "DistributedDataParallel"),
    ],
)
def test_what_needs_values(tmp_path: Path, line: str, what: str, instead: str) -> None:
    said = trouble(tmp_path, PROGRAM.format(line=line))
    assert what in said
    assert f"train.py:{AT} ({line[:60]}" in said
    assert instead in said.partition(f"train.py:{AT}")[2]


def test_the_line_is_the_users_though_a_library_asks(tmp_path: Path) -> None:
    line = "torch.optim.LBFGS(model.parameters()).step(lambda: (loss.backward(), loss)[1])"
    said = trouble(tmp_path, PROGRAM.format(line=line))
    assert f"train.py:{AT} (torch.optim.LBFGS" in said


def test_an_op_without_a_rule_for_its_shape(tmp_path: Path) -> None:
    said = trouble(
        tmp_path,
        """
        import torch

        @torch.library.custom_op("trueflops_tests::unshaped", mutates_args=())
        def unshaped(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        def build():
            x = torch.randn(8, 16, device="cuda")
            return lambda: unshaped(x)
        """,
    )
    assert "trueflops_tests.unshaped has no rule for the shape" in said
    assert "train.py:9 (return lambda: unshaped(x))" in said
    assert "register_fake" in said


def test_an_error_of_the_users_own(tmp_path: Path) -> None:
    said = trouble(tmp_path, PROGRAM.format(line="model(x[:, :3])"))
    assert said.startswith(f"the first step at train.py:{AT} (model(x[:, :3]))")
    assert "[8, 3] X [16, 16]" in said
    raised = trouble(tmp_path, PROGRAM.format(line="raise ValueError('no such thing')"))
    assert f"train.py:{AT}" in raised
    assert "ValueError: no such thing" in raised


def test_an_error_that_is_its_own_cause(tmp_path: Path) -> None:
    text = """
        def build():
            error = ValueError("mine")
            raise error from error
    """
    assert "ValueError: mine" in trouble(tmp_path, text)


def test_an_error_while_building(tmp_path: Path) -> None:
    said = trouble(tmp_path, "def build():\n    x = 1\n    return x / 0\n")
    assert said == "building the program at train.py:3 (return x / 0): ZeroDivisionError: " + (
        "division by zero"
    )


def test_a_program_that_ends_itself(tmp_path: Path) -> None:
    said = trouble(tmp_path, "import sys\n\ndef build():\n    sys.exit(3)\n")
    assert "train.py:4 (sys.exit(3))" in said
    assert "ended itself (3)" in said


def test_what_is_not_a_program(tmp_path: Path) -> None:
    for text, words in (
        ("train", "write FILE.py:FUNCTION"),
        ("nothing.py", "no such file"),
        (f"{tmp_path}/nothing.py:build", "no such file"),
        (f"{tmp_path}:build", "no such file"),
        ("train.py:not a name", "write FILE.py:FUNCTION"),
    ):
        with pytest.raises(BadInput, match=words):
            load(text)


def test_a_function_that_is_not_there(tmp_path: Path) -> None:
    said = trouble(tmp_path, "def built():\n    pass\n\nSIZE = 3\n")
    assert said == "train.py has no function 'build'; it has: built"
    assert "it has: none" in trouble(tmp_path, "SIZE = 3\n")


def test_a_function_that_returns_no_step(tmp_path: Path) -> None:
    said = trouble(tmp_path, "def build():\n    pass\n")
    assert said == (
        "build returned NoneType; it must return the step, a function without arguments"
    )


def test_a_step_that_wants_arguments(tmp_path: Path) -> None:
    said = trouble(tmp_path, "def build():\n    return lambda batch: batch\n")
    assert "missing 1 required positional argument: 'batch'" in said


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    said = trouble(tmp_path, "def build(:\n    pass\n")
    assert "running train.py at train.py:1" in said
    assert "def build(:" in said
    assert "SyntaxError" in said


def test_a_file_that_fails_while_it_is_imported(tmp_path: Path) -> None:
    said = trouble(tmp_path, "import torch\nimport no_such_module\ndef build(): pass\n")
    assert "train.py:2 (import no_such_module)" in said
    assert "ModuleNotFoundError" in said


def test_refusals_are_said_in_the_readers_language(tmp_path: Path) -> None:
    with speaking("zh"):
        assert "unique 在 train.py:14 (torch.unique(y)) 处需要张量的值" in trouble(
            tmp_path, PROGRAM.format(line="torch.unique(y)")
        )
        assert "按张量分支在 train.py:14" in trouble(
            tmp_path, PROGRAM.format(line="if (y > 0).all(): y = y * 2")
        )
        assert "train.py 里没有函数 'other'；有：build" in trouble(
            tmp_path, PROGRAM.format(line="pass"), "other"
        )
        assert "构建程序" in trouble(tmp_path, "def build():\n    raise ValueError('no')\n")


def test_everything_is_put_back(tmp_path: Path) -> None:
    import torch

    trouble(tmp_path, PROGRAM.format(line="torch.unique(y)"))
    assert not torch.cuda.is_available()
    assert torch.ones(2).device.type == "cpu"
    assert torch.ones(2).sum().item() == 2.0
