"""A wheel builds, installs into an empty environment, and has everything in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
import wheels

ROOT = Path(__file__).parent.parent
TESTING = ROOT / "kafkapy" / "_speedups" / "testing"
# Those that users get, as paths without an ending.
KERNELS = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix()
    for path in (ROOT / "kafkapy" / "_speedups").rglob("*.pyx")
    if not path.is_relative_to(TESTING)
)


VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


def test_the_version_of_each_distribution_stands_in_one_file() -> None:
    found = {}
    for project in (ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/kafkapy-*/pyproject.toml"))):
        text = tomllib.loads(project.read_text(encoding="utf-8"))
        assert text["project"]["dynamic"] == ["version"]
        module = text["tool"]["setuptools"]["dynamic"]["version"]["attr"].removesuffix(".__version__")
        path = project.parent / f"{module.replace('.', '/')}.py"
        [found[module]] = VERSION.findall(path.read_text(encoding="utf-8"))
    # They are released together.
    assert sorted(found) == ["kafkapy.version", "kafkapy_console.version", "kafkapy_spark.version"]
    assert len(set(found.values())) == 1


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the work tree, made in a copy: kernels that are built already are only packed."""
    directory = tmp_path_factory.mktemp("wheel")
    copy, dist = directory / "tree", directory / "dist"
    wheels.copy_of_tree(copy, reuse=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w"]
    subprocess.run([*command, str(dist), str(copy)], check=True, timeout=1500)
    [path] = dist.glob("kafkapy-*.whl")
    return path


@pytest.mark.timeout(1600)
def test_a_wheel_has_kernels_declarations_and_types_but_no_sources_of_kernels(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for kernel in KERNELS:
        endings = [ending for ending in (".pxd", ".pyi") if (ROOT / f"{kernel}{ending}").exists()]
        for ending in (suffix, *endings):
            assert f"{kernel}{ending}" in names
    assert [name for name in names if name.startswith("kafkapy/_speedups/testing/")] == []
    files = (path for path in (ROOT / "kafkapy").rglob("*.py") if not path.is_relative_to(TESTING))
    modules = {str(path.relative_to(ROOT)) for path in files}
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
