"""Builds every kernel in kafkapy/_speedups and its rooms as one C++ extension module each (scripts/build_kernels.py).

Environment:
    KAFKAPY_DEBUG=1     bounds checks, assertions, line tracing and HTML annotation
    KAFKAPY_SANITIZE=address|thread   compile the kernels with that gcc sanitizer
    KAFKAPY_EXT=a,b     build only the named kernels: `wire`, or by path below _speedups, `base/wire`
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build import build

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)
sys.path.insert(0, str(ROOT / "scripts"))
from build_kernels import BuildKernels, find_kernels  # noqa: E402

SPEEDUPS = Path("kafkapy") / "_speedups"
DEBUG = os.environ.get("KAFKAPY_DEBUG") == "1"
SANITIZE = os.environ.get("KAFKAPY_SANITIZE", "")
ONLY = {name for name in os.environ.get("KAFKAPY_EXT", "").split(",") if name}
# What a kernel links beside the C++ runtime; see scripts/system-packages for where it comes from.
LIBRARIES = {kernel: ["lz4", "zstd", "snappy", "z"] for kernel in ("compression", "decompress_stream")}
LIBRARIES |= {kernel: ["ssl", "crypto"] for kernel in ("tls", "tls_transport")} | {"scram": ["crypto"]}

compile_args = [
    "-std=c++17",
    "-pthread",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-Wno-unused-function",
    "-Wno-sign-compare",
]
link_args = ["-pthread"]
if DEBUG or SANITIZE:
    compile_args += ["-O1", "-g", "-fno-omit-frame-pointer"]
else:
    compile_args += ["-O3", "-g0"]
    link_args += ["-Wl,-s"]
if SANITIZE:
    compile_args += [f"-fsanitize={SANITIZE}"]
    link_args += [f"-fsanitize={SANITIZE}"]


class Build(BuildKernels):
    """The kernels of this project."""

    root = SPEEDUPS
    variant = "-".join(word for word in ("cython", "debug" if DEBUG else "", SANITIZE) if word)
    annotate = DEBUG
    in_place_only = ("kafkapy._speedups.testing",)
    everything = not ONLY
    directives = {
        "language_level": 3,
        "boundscheck": DEBUG,
        "wraparound": False,
        "cdivision": True,
        "initializedcheck": DEBUG,
        "linetrace": DEBUG,
        "embedsignature": True,
        "freethreading_compatible": False,
        # Comments would change the C++ of every kernel that inlines a function, wherever a line of its .pxd moves.
        "emit_code_comments": DEBUG,
    }


class KernelsFirst(build):
    """What the compiler misses is said before a thousand files are copied."""

    sub_commands = sorted(build.sub_commands, key=lambda command: command[0] != "build_ext")


setup(
    cmdclass={"build": KernelsFirst, "build_ext": Build},
    ext_modules=find_kernels(
        SPEEDUPS,
        ONLY,
        LIBRARIES,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        define_macros=[("CYTHON_TRACE_NOGIL", "1")] if DEBUG else [],
    ),
)
