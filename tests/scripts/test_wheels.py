"""scripts/wheels.py without a build: which Pythons it takes, and archives that are equal when their files are."""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from pathlib import Path

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
