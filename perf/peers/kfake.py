"""kfake, the broker for tests of the Go client franz-go, from the Go module proxy; with its log on disk."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from peers.apache_kafka import CACHE, PeerMissingError
from peers.process import ProgramPeer

MODULE = "github.com/twmb/franz-go/pkg/kfake"
VERSION = "v0.0.0-20260918054303-01f206a7e32c"
CLIENT_VERSION = "v1.22.2"  # the release of franz-go that has what this version of kfake calls


def program() -> Path:
    """Built on the first call. Raises PeerMissingError without Go or the module proxy."""
    folder = CACHE / f"kfake-{VERSION}"
    built = folder / "kfake"
    source = Path(__file__).with_name("kfake_main.go")
    if built.exists() and built.stat().st_mtime > source.stat().st_mtime:
        return built
    if shutil.which("go") is None:
        raise PeerMissingError("go is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder / "main.go")
    requires = f"require (\n\tgithub.com/twmb/franz-go {CLIENT_VERSION}\n\t{MODULE} {VERSION}\n)\n"
    (folder / "go.mod").write_text(f"module kfakepeer\n\ngo 1.25.0\n\n{requires}")
    steps = [["go", "mod", "tidy"], ["go", "build", "-o", "kfake", "."]]
    for step in steps:
        done = subprocess.run(step, cwd=folder, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise PeerMissingError(f"{' '.join(step)}: {done.stderr.strip()[-300:]}")
    return built


def prepare() -> str:
    program()
    return re.sub(r"^v0\.0\.0-(\d{8}).*", r"\1", VERSION)


class KFake(ProgramPeer):
    """Owns one kfake process."""

    def command(self) -> list[str]:
        (self.data_dir / "logs").mkdir(exist_ok=True)
        return [str(program()), str(self.port), str(self.data_dir / "logs")]
