"""A system root of another architecture, and the environment in which setuptools builds for it.

The root is Debian's, of the release that the Python of the build is of: headers and libraries are unpacked there and
never run, but that qemu can run its Python (`qemu-aarch64-static -L ROOT ROOT/usr/bin/python3`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
SUITE = "bookworm"
PYTHON = "python3.11"
"""The Python of that release."""
MACHINES = {"aarch64": "arm64"}
"""Machines as the kernel and compilers name them, and as Debian does."""
LIBRARIES = ("python3-dev", "liblz4-dev", "libzstd-dev", "libsnappy-dev", "libssl-dev", "zlib1g-dev")


def system_root(machine: str) -> Path:
    """The unpacked packages, made once in build/; needs root, as debootstrap does."""
    root = ROOT / "build" / "cross" / machine
    ready = root.with_suffix(".ready")
    if ready.exists():
        return root
    subprocess.run([str(ROOT / "scripts" / "system-packages"), "cross"], check=True)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    command = ["debootstrap", "--foreign", f"--arch={MACHINES[machine]}", "--variant=minbase"]
    command += [f"--include={','.join(LIBRARIES)}", SUITE, str(root), MIRROR]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"cross_build.py: debootstrap failed with exit code {done.returncode}\n{done.stdout[-1000:]}")
    # What is not essential was only fetched.
    for package in sorted((root / "var" / "cache" / "apt" / "archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
        package.unlink()
    ready.touch()
    return root


def libraries(root: Path, machine: str) -> str:
    """Where the libraries of a root lie."""
    return str(root / "usr" / "lib" / f"{machine}-linux-gnu")


def variables(root: Path, machine: str, scratch: Path) -> dict[str, str]:
    """The environment: Python answers as the one of the root, and compilers find headers and libraries there."""
    triplet = f"{machine}-linux-gnu"
    data = f"_sysconfigdata__{triplet}"
    scratch.mkdir()
    shutil.copy(root / "usr" / "lib" / PYTHON / f"{data}.py", scratch)
    include = root / "usr" / "include"
    # Before the headers of the Python that runs the build, which may be another release of another machine.
    found = f"-I{include / PYTHON} -idirafter {include} -idirafter {include / triplet}"
    return {
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "_PYTHON_SYSCONFIGDATA_NAME": data,
        "PYTHONPATH": str(scratch),
        "CC": f"{triplet}-gcc {found}",
        "CXX": f"{triplet}-g++ {found}",
        "LDSHARED": f"{triplet}-gcc --sysroot={root} -shared",
        "LDCXXSHARED": f"{triplet}-g++ --sysroot={root} -shared",
        "LDFLAGS": f"-L{libraries(root, machine)} -Wl,-rpath-link,{libraries(root, machine)}",
    }
