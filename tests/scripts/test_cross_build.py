"""scripts/cross_build.py without a compiler: the Python of a build answers as that of the other machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cross_build
import pytest


@pytest.mark.parametrize("machine", sorted(cross_build.MACHINES))
def test_the_python_of_a_build_answers_as_that_of_the_other_machine(machine: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = root / "usr" / "lib" / cross_build.PYTHON
    folder.mkdir(parents=True)
    suffix = f".cpython-311-{machine}-linux-gnu.so"
    (folder / f"_sysconfigdata__{machine}-linux-gnu.py").write_text(f"build_time_vars = {{'EXT_SUFFIX': {suffix!r}}}\n")
    variables = cross_build.variables(root, machine, tmp_path / "scratch")
    code = "import sysconfig; print(sysconfig.get_platform(), sysconfig.get_config_var('EXT_SUFFIX'))"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True)
    assert done.stdout.split() == [f"linux-{machine}", suffix], done.stderr
    assert variables["CXX"].startswith(f"{machine}-linux-gnu-g++ -I{root}/usr/include/python")
    assert f"--sysroot={root}" in variables["LDCXXSHARED"]
