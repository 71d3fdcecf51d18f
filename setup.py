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
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

ROOT = Path(__file__).parent
SPEEDUPS = Path("kafkapy") / "_speedups"
DEBUG = os.environ.get("KAFKAPY_DEBUG") == "1"
SANITIZE = os.environ.get("KAFKAPY_SANITIZE", "")
ONLY = {name for name in os.environ.get("KAFKAPY_EXT", "").split(",") if name}
JOBS = os.cpu_count() or 1
# What a kernel links beside the C++ runtime; see scripts/system-packages for where it comes from.
LIBRARIES = {kernel: ["lz4", "zstd", "snappy", "z"] for kernel in ("compression", "decompress_stream")}
NEEDED = "Building needs, on Debian: apt install g++ python3-dev liblz4-dev libzstd-dev libsnappy-dev zlib1g-dev"
VARIANT = "-".join(word for word in ("cython", "debug" if DEBUG else "", SANITIZE) if word)

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


def flags_file() -> Path:
    """A file that is touched when the flags are others than at the last build, so that every kernel is built again."""
    path = Path("build") / "flags"
    text = f"{VARIANT} {' '.join(compile_args + link_args)}\n"
    known = path.read_text() if path.exists() else None
    if known != text:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        if known is None and not DEBUG and not SANITIZE:
            os.utime(path, (0, 0))
    return path


def extensions() -> list[Extension]:
    """One Extension per .pyx file; KAFKAPY_EXT narrows the list."""
    os.chdir(ROOT)
    flags = str(flags_file())
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            language="c++",
            extra_compile_args=compile_args,
            extra_link_args=link_args,
            libraries=LIBRARIES.get(source.stem, []),
            define_macros=[("CYTHON_TRACE_NOGIL", "1")] if DEBUG else [],
            depends=[flags],
        )
        for source in sorted(SPEEDUPS.rglob("*.pyx"))
        if not ONLY or source.stem in ONLY or ".".join(source.with_suffix("").parts[2:]) in ONLY
    ]


class BuildKernels(build_ext):
    """Compiles the kernels, and for a wheel takes those that were built in place already and are up to date."""

    def build_extension(self, ext: Extension) -> None:
        """Compile one kernel, or copy it."""
        in_place = (ROOT / Path(*ext.name.split("."))).with_name(Path(self.get_ext_fullpath(ext.name)).name)
        inputs = [*ext.sources, *ext.depends]
        built = in_place.stat().st_mtime if in_place.exists() else 0.0
        current = all(Path(path).stat().st_mtime <= built for path in inputs)
        if self.inplace or not current:
            try:
                super().build_extension(ext)
            except (CompileError, LinkError) as error:
                # The last line of what pip shows.
                raise type(error)(f"{error}\n{NEEDED}") from error
            return
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(in_place), str(target))


setup(
    cmdclass={"build_ext": BuildKernels},
    ext_modules=cythonize(
        extensions(),
        build_dir=f"build/{VARIANT}",
        nthreads=0 if ONLY else JOBS,
        annotate=DEBUG,
        compiler_directives=directives,
        show_all_warnings=False,
    ),
    options={"build_ext": {"parallel": JOBS, "inplace": False}},
)
