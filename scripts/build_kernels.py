"""Builds the kernels of kafkapy/_speedups: which of them need Cython, which need the compiler, and how many at a time.

`setup.py` is the only user. Both steps go by content, never by the times of files:

- Cython runs for a kernel when its .pyx, a .pxd that it reaches, the directives or Cython itself differ from what its
  C++ was made from. The new C++ replaces the old file only if it differs.
- The compiler runs for a kernel when its C++, the flags, the compiler or a header differ from what its module was built
  from, or when the module is not the file that was built.

A change of a .pxd therefore costs a run of Cython for each kernel that reaches it, and a compile only for those whose
C++ changed. Below build/, `cython*/` holds the C++ with a digest of its inputs, `kernels/` the inputs of each module.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections import Counter
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Any

import Cython
from Cython.Build import cythonize
from Cython.Build.Dependencies import create_dependency_tree
from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

BUILD = Path("build")
PR_SET_PDEATHSIG = 1
HEADERS = {
    "python3-dev": "Python.h",
    "liblz4-dev": "lz4frame.h",
    "libzstd-dev": "zstd.h",
    "libsnappy-dev": "snappy-c.h",
    "zlib1g-dev": "zlib.h",
    "libssl-dev": "openssl/ssl.h",
}
# A header of each package of Debian that the kernels are compiled with.
NEEDED = f"Building needs, on Debian: apt install g++ {' '.join(HEADERS)}"
CYTHON = f"{Path(Cython.__file__).parent}{os.sep}"
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))


class KernelError(Exception):
    """A kernel that does not translate or compile; the tool that failed has said why."""


def find_kernels(root: Path, only: set[str], libraries: dict[str, list[str]], **options: Any) -> list[Extension]:
    """One Extension for each .pyx below the package directory `root`, named by its path.

    `only` narrows the list to kernels with that stem, or that path below `root` (`log/partition_log`).
    `libraries` says by stem what a kernel links.
    """
    found, named = [], set()
    for source in sorted(root.rglob("*.pyx")):
        names = {source.stem, source.relative_to(root).with_suffix("").as_posix()}
        if only and not names & only:
            continue
        named |= names & only
        name = ".".join(source.with_suffix("").parts)
        found.append(
            Extension(name, [str(source)], language="c++", libraries=libraries.get(source.stem, []), **options)
        )
    if only - named:
        raise SystemExit(f"KAFKAPY_EXT: {root} has no kernel {', '.join(sorted(only - named))}")
    return found


class BuildKernels(build_ext):
    """Builds what differs, several kernels at a time, and says which; a wheel takes kernels that were built in place.

    A subclass sets the class attributes. Kernels below the packages `in_place_only` are in no wheel.
    """

    root = Path()
    variant = "cython"
    directives: dict[str, Any] = {}
    annotate = False
    in_place_only: tuple[str, ...] = ()
    everything = True
    scratch = Path()
    beside_sources = False

    def finalize_options(self) -> None:
        """Leave out of a wheel what is built in place only."""
        super().finalize_options()
        if not self.inplace:
            packages = tuple(f"{package}." for package in self.in_place_only)
            self.extensions = [ext for ext in self.extensions if not ext.name.startswith(packages)]

    def run(self) -> None:
        """Build every kernel that is not current."""
        self.beside_sources = bool(self.inplace)
        super().run()

    def copy_extensions_to_source(self) -> None:
        """Nothing: kernels that are built in place are built nowhere else."""

    def build_extensions(self) -> None:
        """Find what is not current, and build it in a pool of processes."""
        if self.beside_sources and self.everything:
            self.remove_orphans()
        waiting = [kernel for kernel in (Kernel(self, ext) for ext in self.extensions) if not kernel.is_current()]
        if not waiting:
            return
        missing = missing_packages(self.compiler)
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            said = f"{', '.join(missing)} {verb} missing: apt install {' '.join(missing)}"
            raise CompileError(f"kafkapy cannot be built: {said}")
        # The largest first: what starts last is what all wait for.
        waiting.sort(key=lambda kernel: -kernel.size())
        jobs = self.parallel if isinstance(self.parallel, int) and self.parallel > 1 else len(os.sched_getaffinity(0))
        fork = multiprocessing.get_context("fork")
        progress = Progress(len(waiting), fork.Value("i", 0))
        self.scratch = BUILD / f"{self.variant}-new-{os.getpid()}"
        try:
            with ProcessPoolExecutor(min(jobs, len(waiting)), fork, start_worker, (waiting, progress)) as pool:
                running = [pool.submit(build_waiting, number) for number in range(len(waiting))]
                done, _ = wait(running, return_when=FIRST_EXCEPTION)
                pool.shutdown(wait=True, cancel_futures=True)
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)
        for error in filter(None, (future.exception() for future in done)):
            # The last line of what pip shows.
            raise CompileError(str(error)) from None if isinstance(error, KernelError) else error

    def remove_orphans(self) -> None:
        """Remove modules whose .pyx is gone: a kernel that moved is not to be found under its old name."""
        for module in self.root.rglob(f"*{SUFFIX}"):
            source = module.with_name(module.name.removesuffix(SUFFIX) + ".pyx")
            if not source.exists():
                module.unlink()


class Kernel:
    """One kernel: what its C++ and its module were made from, and what they would be made from now."""

    def __init__(self, command: BuildKernels, ext: Extension) -> None:
        self.command = command
        self.ext = ext
        self.source = Path(ext.sources[0])
        self.label = self.source.relative_to(command.root).with_suffix("").as_posix()
        self.cpp = (BUILD / command.variant / self.source).with_suffix(".cpp")
        self.translated = self.cpp.with_suffix(".json")
        self.in_place = self.source.with_name(self.source.stem + SUFFIX)
        self.target = self.in_place if command.beside_sources else Path(command.get_ext_fullpath(ext.name))
        self.inputs = self.inputs_of_cython()

    def inputs_of_cython(self) -> str:
        """A digest of all that the C++ is made from."""
        command = self.command
        facts = [Cython.__version__, sorted(command.directives.items()), command.annotate, self.ext.name]
        paths = map(str, create_dependency_tree(quiet=True).all_dependencies(str(self.source)))
        # Its own declarations go with its version, wherever it is installed.
        ours = sorted(path for path in paths if not path.startswith(CYTHON))
        return digest_of(facts, [(path, digest_of_file(path)) for path in ours])

    def inputs_of_compiler(self) -> str:
        """A digest of all that the module is made from, but for headers."""
        return digest_of(digest_of_file.__wrapped__(str(self.cpp)), flags_of(self.command), options_of(self.ext))

    def record(self, module: Path) -> Path:
        """Where it is written what a module was built from."""
        place = "in-place" if module == self.in_place else "wheel"
        return BUILD / "kernels" / place / self.source.with_suffix(".json")

    def is_translated(self) -> bool:
        """Whether the C++ is what Cython would write now."""
        return self.cpp.exists() and read_record(self.translated) == {"inputs": self.inputs}

    def is_built(self, module: Path) -> bool:
        """Whether a module is what the compiler would make of the C++ now."""
        known = read_record(self.record(module))
        return (
            module.exists()
            and known.get("inputs") == self.inputs_of_compiler()
            and known.get("headers") == digest_of_headers(tuple(known.get("paths", ())))
            and known.get("module") == digest_of_file.__wrapped__(str(module))
        )

    def is_current(self) -> bool:
        """Whether nothing is to be done; a module that is wanted elsewhere is copied from its place."""
        if not self.is_translated():
            return False
        if self.is_built(self.target):
            return True
        if self.target == self.in_place or not self.is_built(self.in_place):
            return False
        self.copy()
        return True

    def size(self) -> int:
        """How long it takes, in no unit."""
        return (self.cpp if self.cpp.exists() else self.source).stat().st_size

    def build(self, progress: Progress) -> None:
        """Translate and compile, each if it is needed."""
        if not self.is_translated():
            self.translate()
        if self.is_built(self.target):
            progress.say("unchanged", self.label)
        elif self.target != self.in_place and self.is_built(self.in_place):
            self.copy()
            progress.say("copying", self.label)
        else:
            progress.say("compiling", self.label)
            self.compile()

    def translate(self) -> None:
        """Run Cython; its output becomes the C++ if it differs."""
        scratch = self.command.scratch / str(os.getpid())
        bare = Extension(self.ext.name, [str(self.source)], language="c++")
        try:
            cythonize(
                [bare],
                build_dir=str(scratch),
                force=True,
                quiet=True,
                annotate=self.command.annotate,
                compiler_directives=dict(self.command.directives),
                show_all_warnings=False,
            )
            made = (scratch / self.source).with_suffix(".cpp")
            text = made.read_text()
            if not self.command.annotate:
                text = without_unused(without_lines_of_declarations(text))
            made.unlink()
            self.cpp.parent.mkdir(parents=True, exist_ok=True)
            if not self.cpp.exists() or text != self.cpp.read_text():
                self.cpp.unlink(missing_ok=True)
                self.cpp.write_text(text)
            if self.command.annotate:
                made.with_suffix(".html").replace(self.cpp.with_suffix(".html"))
        except Cython.Compiler.Errors.CompileError:
            raise KernelError(f"{self.source} does not translate (see above)") from None
        write_record(self.translated, {"inputs": self.inputs})

    def compile(self) -> None:
        """Make the module from the C++. The old one stays in place until the new one is whole."""
        command, ext, compiler = self.command, self.ext, self.command.compiler
        depfile = (Path(command.build_temp) / self.cpp).with_suffix(".d")
        depfile.parent.mkdir(parents=True, exist_ok=True)
        made = self.target.with_name(self.target.name + ".new")
        made.parent.mkdir(parents=True, exist_ok=True)
        made.unlink(missing_ok=True)
        inputs = self.inputs_of_compiler()
        try:
            objects = compiler.compile(
                [str(self.cpp)],
                output_dir=command.build_temp,
                macros=ext.define_macros,
                include_dirs=ext.include_dirs,
                debug=command.debug,
                extra_postargs=[*ext.extra_compile_args, "-MD", "-MF", str(depfile)],
            )
            compiler.link_shared_object(
                objects,
                str(made),
                libraries=command.get_libraries(ext),
                library_dirs=ext.library_dirs,
                runtime_library_dirs=ext.runtime_library_dirs,
                extra_postargs=ext.extra_link_args,
                debug=command.debug,
                build_temp=command.build_temp,
                target_lang="c++",
            )
            made.replace(self.target)
        except (CompileError, LinkError) as error:
            raise KernelError(f"{self.source} does not compile (see above): {error}\n{NEEDED}") from None
        finally:
            made.unlink(missing_ok=True)
        self.write_built(inputs, headers_in(depfile.read_text(), str(self.cpp)))

    def copy(self) -> None:
        """Take the module that was built in place."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.in_place, self.target)
        known = read_record(self.record(self.in_place))
        self.write_built(known["inputs"], tuple(known["paths"]))

    def write_built(self, inputs: str, paths: tuple[str, ...]) -> None:
        write_record(
            self.record(self.target),
            {
                "inputs": inputs,
                "headers": digest_of_headers(paths),
                "module": digest_of_file.__wrapped__(str(self.target)),
                "paths": paths,
            },
        )


INLINE = re.compile(
    r"^static CYTHON_INLINE [^;{}\n]*?\b(__pyx_f_\w+)\([^;{}\n]*\) ?\{\n.*?^\}\n", re.MULTILINE | re.DOTALL
)


def without_unused(text: str) -> str:
    """C++ without the inline functions that nothing in it names.

    Cython writes every inline function of every .pxd that a kernel reaches. A change of one compiles only its users.
    """
    before = None
    while text != before:
        before = text
        uses = Counter(re.findall(r"__pyx_f_\w+", text))
        pieces, end = [], 0
        for match in INLINE.finditer(text):
            if uses[match[1]] == 1:
                pieces.append(text[end : match.start()])
                end = match.end()
        text = "".join([*pieces, text[end:]])
    return text


FILES = re.compile(r"^static const char\* const __pyx_f\[\] = \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"\b__PYX_ERR\((\d+), \d+,")


def without_lines_of_declarations(text: str) -> str:
    """C++ that names line 1 for every error in a .pxd, most of them failed imports, so that its lines may move."""
    files = FILES.search(text)
    if files is None:
        return text
    names = re.findall(r'^\s*"([^"]*)"', files[1], re.MULTILINE)
    declarations = {str(number) for number, name in enumerate(names) if name.endswith(".pxd")}
    return LINE.sub(lambda match: f"__PYX_ERR({match[1]}, 1," if match[1] in declarations else match[0], text)


class Progress:
    """Counts kernels of all processes, and prints one line for each."""

    def __init__(self, total: int, count: Any) -> None:
        self.total = total
        self.count = count

    def say(self, verb: str, label: str) -> None:
        """Print what happens to a kernel."""
        with self.count.get_lock():
            self.count.value += 1
            width = len(str(self.total))
            sys.stdout.write(f"[{self.count.value:{width}}/{self.total}] {verb} {label}\n")
            sys.stdout.flush()


# --- in the processes of the pool, which are forks and find here what the parent left ------------------------------

work: list[Kernel] = []
reporter: Progress


def start_worker(waiting: list[Kernel], progress: Progress) -> None:
    """Ctrl-C ends a process at once, and so does the end of its parent: half a module has another name."""
    global reporter
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    work[:] = waiting
    reporter = progress


def build_waiting(number: int) -> None:
    """Build one of the kernels that wait."""
    work[number].build(reporter)


# --- digests and records -------------------------------------------------------------------------------------------


def digest_of(*facts: Any) -> str:
    """A digest of what JSON can write."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@cache
def digest_of_file(path: str) -> str:
    """A digest of a file that does not change during the build."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        return type(error).__name__


@cache
def digest_of_headers(paths: tuple[str, ...]) -> str:
    """A digest of the headers of a kernel."""
    return digest_of([(path, digest_of_file(path)) for path in paths])


def missing_packages(compiler: Any) -> list[str]:
    """The packages of Debian that are not there, by one run of the preprocessor."""
    lines = [f"#if !__has_include(<{header}>)\n?{package}\n#endif" for package, header in HEADERS.items()]
    folders = [f"-I{folder}" for folder in compiler.include_dirs]
    command = [*compiler.compiler_cxx, *folders, "-E", "-P", "-x", "c++", "-"]
    try:
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    except OSError:
        return ["g++", *HEADERS]
    return [line[1:] for line in done.stdout.splitlines() if line.startswith("?")]


@cache
def flags_of(command: BuildKernels) -> str:
    """A digest of what is the same for all kernels: the compiler, its version and its flags."""
    compiler = command.compiler
    programs = {name: getattr(compiler, name, None) for name in sorted(compiler.executables)}
    try:
        version = subprocess.run([*compiler.compiler_cxx, "--version"], capture_output=True, text=True).stdout
    except OSError as error:
        version = type(error).__name__
    return digest_of(
        programs, version, compiler.include_dirs, compiler.macros, compiler.library_dirs, bool(command.debug)
    )


def options_of(ext: Extension) -> list[Any]:
    """What the compiler and the linker are told for one kernel."""
    return [
        ext.extra_compile_args,
        ext.extra_link_args,
        ext.libraries,
        ext.define_macros,
        ext.include_dirs,
        ext.library_dirs,
    ]


def headers_in(depfile: str, source: str) -> tuple[str, ...]:
    """The paths that a rule of the compiler (-MD) names, but for the source."""
    _, _, names = depfile.replace("\\\n", " ").partition(":")
    return tuple(sorted({name for name in shlex.split(names) if name != source}))


def read_record(path: Path) -> dict[str, Any]:
    """What was written last, or {}."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(json.dumps(record))
    new.replace(path)
