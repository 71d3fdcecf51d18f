"""scripts/wheels.py without a build: the Pythons it takes, archives that are equal when their files are, and hashes."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import wheels


def archive(stamp: int, user: str, names: list[str]) -> bytes:
    made = io.BytesIO()
    with gzip.GzipFile(filename="x.tar", fileobj=made, mode="wb", mtime=stamp) as packed, tarfile.open(
        fileobj=packed, mode="w"
    ) as target:
        folder = tarfile.TarInfo("kafkapy-1")
        folder.type, folder.mtime, folder.uname, folder.mode = tarfile.DIRTYPE, stamp, user, 0o700
        target.addfile(folder)
        for name in names:
            member = tarfile.TarInfo(f"kafkapy-1/{name}")
            member.size, member.mtime, member.uname, member.mode = len(name), stamp, user, 0o600
            target.addfile(member, io.BytesIO(name.encode()))
    return made.getvalue()


def test_archives_of_the_same_files_are_equal() -> None:
    one = wheels.normalised(archive(5, "ann", ["a", "b"]), 1_700_000_000)
    two = wheels.normalised(archive(9, "bob", ["b", "a"]), 1_700_000_000)
    assert one == two
    assert one != wheels.normalised(archive(5, "ann", ["a", "c"]), 1_700_000_000)
    with tarfile.open(fileobj=io.BytesIO(one)) as file:
        assert [(each.name, each.mtime, each.uname, oct(each.mode)) for each in file] == [
            ("kafkapy-1", 1_700_000_000, "", "0o755"),
            ("kafkapy-1/a", 1_700_000_000, "", "0o644"),
            ("kafkapy-1/b", 1_700_000_000, "", "0o644"),
        ]
        member = file.extractfile("kafkapy-1/a")
        assert member is not None and member.read() == b"a"


def test_each_python_of_this_machine_is_named_once_and_runs() -> None:
    found = wheels.pythons()
    code = "import sys; print(sys.version_info[:2])"
    versions = [subprocess.run([each, "-c", code], capture_output=True, text=True).stdout for each in found]
    assert versions
    assert len(set(versions)) == len(versions)
    assert all(each.startswith("(3, 1") for each in versions)


def test_the_copy_of_the_tree_has_no_module_unless_it_is_asked_for(tmp_path: Path) -> None:
    wheels.copy_of_tree(tmp_path / "plain", reuse=False)
    assert list((tmp_path / "plain").rglob("*.so")) == []
    assert (tmp_path / "plain" / "scripts" / "build_kernels.py").is_file()
    assert (tmp_path / "plain" / "kafkapy" / "_speedups" / "base" / "crc32c.pyx").is_file()


def test_a_build_shows_the_lines_that_count_kernels(capfd: pytest.CaptureFixture[str]) -> None:
    lines = ["running build_ext", "  [ 1/12] compiling first", "g++ [2/12] x", "  [12/12] copying second"]
    wheels.run_with_progress(sys.executable, "-c", f"print(*{lines!r}, sep=chr(10))")
    shown = capfd.readouterr()
    assert shown.err.splitlines() == ["[ 1/12] compiling first", "[12/12] copying second"]
    assert shown.out == ""


def test_a_build_that_fails_ends_with_what_it_said_last() -> None:
    code = "import sys; print('\\n'.join(map(str, range(100)))); sys.exit('error: kafkapy cannot be built')"
    with pytest.raises(SystemExit) as raised:
        wheels.run_with_progress(sys.executable, "-c", code)
    lines = str(raised.value).splitlines()
    assert lines[0].endswith("failed with exit code 1")
    assert "error: kafkapy cannot be built" in lines
    assert "10" not in lines


def test_hashes_are_of_all_files_but_their_list(tmp_path: Path) -> None:
    (tmp_path / "b.whl").write_bytes(b"b")
    (tmp_path / "a.tar.gz").write_bytes(b"")
    (tmp_path / wheels.SUMS).write_text("old\n")
    wheels.write_sums(tmp_path)
    done = subprocess.run(["sha256sum", "-c", wheels.SUMS], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["a.tar.gz: OK", "b.whl: OK"]
    known = wheels.sums(tmp_path)
    assert wheels.differing(known, known) == []
    assert wheels.differing(known, known | {"b.whl": "other"}) == ["b.whl"]
    assert wheels.differing({"b.whl": known["b.whl"]}, known) == ["a.tar.gz"]


@pytest.mark.parametrize(
    "platform", ["manylinux_2_34_x86_64", "linux_aarch64", "manylinux_2_17_x86_64.manylinux2014_x86_64"]
)
def test_a_wheel_replaces_those_of_its_python_and_machine(platform: str, tmp_path: Path) -> None:
    machine = platform[-len("x86_64") :] if platform.endswith("x86_64") else "aarch64"
    for name in ("1-cp311-cp311-manylinux_2_36_x86_64", "1-cp311-cp311-manylinux_2_36_aarch64",
                 "1-cp312-cp312-manylinux_2_36_x86_64", "2-cp311-cp311-manylinux_2_36_x86_64"):  # fmt: skip
        (tmp_path / f"kafkapy-{name}.whl").touch()
    found = [path.name for path in tmp_path.glob(wheels.others_of(f"kafkapy-1-cp311-cp311-{platform}.whl"))]
    assert found == [f"kafkapy-1-cp311-cp311-manylinux_2_36_{machine}.whl"]
