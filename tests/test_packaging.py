"""A wheel builds, installs into an empty environment, and has everything in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPEEDUPS = ROOT / "kafkapy" / "_speedups"
ALL_KERNELS = sorted(str(path.relative_to(ROOT).with_suffix("")) for path in SPEEDUPS.rglob("*.pyx"))
KERNELS = [name for name in ALL_KERNELS if "/testing/" not in name]



@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the work tree, made in a copy that keeps times: kernels that are built already are only packed."""
    directory = tmp_path_factory.mktemp("wheel")
    copy, dist = directory / "tree", directory / "dist"
    copy.mkdir()
    shutil.copytree(ROOT / "kafkapy", copy / "kafkapy", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("build/cython", "build/flags"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name)
        elif (ROOT / name).exists():
            (copy / name).parent.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy2(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w"]
    subprocess.run([*command, str(dist), str(copy)], check=True, timeout=1500)
    [path] = dist.glob("kafkapy-*.whl")
    return path


@pytest.mark.timeout(1600)
def test_a_wheel_has_kernels_declarations_and_types_but_no_sources_of_kernels(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for kernel in KERNELS:
        for ending in (suffix, ".pxd", *((".pyi",) if (ROOT / f"{kernel}.pyi").exists() else ())):
            assert f"{kernel}{ending}" in names
    assert len(KERNELS) < len(ALL_KERNELS)
    assert [name for name in names if name.startswith("kafkapy/_speedups/testing/")] == []
    paths = (path for path in (ROOT / "kafkapy").rglob("*.py") if SPEEDUPS / "testing" not in path.parents)
    modules = {str(path.relative_to(ROOT)) for path in paths}
    assert modules <= names
    assert "kafkapy/py.typed" in names
    assert [name for name in names if name.endswith((".pyx", ".cpp"))] == []
    assert [name for name in names if name.startswith(("tests/", "plugins/", "perf/"))] == []


def test_a_wheel_installs_into_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=120)

    # The dependencies come from this environment, so no network is needed; an editable kafkapy is not among them.
    variables = os.environ | {"PYTHONPATH": sysconfig.get_path("platlib"), "PYTHONDONTWRITEBYTECODE": "1"}
    imports = "; ".join(f"import {kernel.replace('/', '.')}" for kernel in KERNELS)
    code = f"import kafkapy; {imports}; print(kafkapy.__file__)"

    def run(*command: str) -> str:
        done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(str(python), "-c", code).startswith(str(environment))
    assert "kafkapy-server, version" in run(str(environment / "bin" / "kafkapy-server"), "--version")
