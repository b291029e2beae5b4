"""Files are always whole: what was there stays until its successor is complete."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from trueflops.errors import BadInput
from trueflops.files import check_writable, own_path, read_file, write_file
from trueflops.report.plots import save


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_file(path, "one")
    path.chmod(0o640)
    write_file(path, "two")
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    path.write_text("before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="the disk is full"):
        save(Figure(), path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.png"]


def test_an_interruption_leaves_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "a.json", "x")
    assert os.listdir(tmp_path) == []


def test_two_writers_never_share_a_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is in the middle of the file, another writes it: the last one wins, whole."""
    path, real = tmp_path / "a.json", os.fsync
    inside: list[bool] = []

    def slow(handle: int) -> None:
        real(handle)
        if not inside:
            inside.append(True)
            write_file(path, "second")

    monkeypatch.setattr(os, "fsync", slow)
    write_file(path, "first")
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "far"
    folder.mkdir()
    link, broken = tmp_path / "link", tmp_path / "new"
    (folder / "a.json").write_text("before")
    link.symlink_to(folder / "a.json")
    broken.symlink_to(folder / "b.json")
    write_file(link, "after")
    write_file(broken, "fresh")
    assert link.is_symlink()
    assert broken.is_symlink()
    assert (folder / "a.json").read_text() == "after"
    assert (folder / "b.json").read_text() == "fresh"


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_file(Path("/dev/null"), "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_pipe_is_written_to_if_somebody_reads_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match="nobody reads"):
        write_file(pipe, "x")
    handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = threading.Thread(target=write_file, args=(pipe, "answer"))
    writer.start()
    writer.join()
    assert os.read(handle, 100) == b"answer"
    os.close(handle)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["none/a.json", "", "a\x00b", "x" * 300, "loop"])
def test_what_cannot_be_written_is_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    path = tmp_path / name
    with pytest.raises(BadInput, match="cannot be written"):
        write_file(path, "x")
    if name in ("none/a.json", "", "loop"):
        with pytest.raises(BadInput, match="cannot be written"):
            check_writable(path)


def test_a_home_that_is_not_there() -> None:
    assert own_path("~nosuchuser/p.toml") == Path("~nosuchuser/p.toml")


def test_what_is_no_file_says_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in {"pipe": "a pipe or a device", "none": "no such file"}.items():
        with pytest.raises(BadInput, match=why):
            read_file(tmp_path / name)
