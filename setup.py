"""Builds every kernel in kafkapy/_speedups as one C++ extension module each.

Environment:
    KAFKAPY_DEBUG=1     bounds checks, assertions, line tracing and HTML annotation
    KAFKAPY_SANITIZE=address|thread   compile the kernels with that gcc sanitizer
    KAFKAPY_EXT=a,b     build only the named kernels
"""

from __future__ import annotations

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).parent
SPEEDUPS = Path("kafkapy") / "_speedups"
DEBUG = os.environ.get("KAFKAPY_DEBUG") == "1"
SANITIZE = os.environ.get("KAFKAPY_SANITIZE", "")
ONLY = {name for name in os.environ.get("KAFKAPY_EXT", "").split(",") if name}
JOBS = os.cpu_count() or 1

compile_args = ["-std=c++17", "-pthread", "-fno-strict-aliasing", "-fwrapv", "-Wno-unused-function"]
link_args = ["-pthread"]
if DEBUG or SANITIZE:
    compile_args += ["-O1", "-g", "-fno-omit-frame-pointer"]
else:
    compile_args += ["-O3", "-g0"]
    link_args += ["-Wl,-s"]
if SANITIZE:
    compile_args += [f"-fsanitize={SANITIZE}"]
    link_args += [f"-fsanitize={SANITIZE}"]

directives = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": DEBUG,
    "linetrace": DEBUG,
    "embedsignature": True,
    "freethreading_compatible": False,
}


def extensions() -> list[Extension]:
    """One Extension per .pyx file; KAFKAPY_EXT narrows the list."""
    os.chdir(ROOT)
    return [
        Extension(
            f"kafkapy._speedups.{source.stem}",
            [str(source)],
            language="c++",
            extra_compile_args=compile_args,
            extra_link_args=link_args,
            define_macros=[("CYTHON_TRACE_NOGIL", "1")] if DEBUG else [],
        )
        for source in sorted(SPEEDUPS.glob("*.pyx"))
        if not ONLY or source.stem in ONLY
    ]


setup(
    ext_modules=cythonize(
        extensions(),
        build_dir="build/cython",
        nthreads=0 if ONLY else JOBS,
        annotate=DEBUG,
        compiler_directives=directives,
        show_all_warnings=False,
    ),
    options={"build_ext": {"parallel": JOBS, "inplace": False}},
)
