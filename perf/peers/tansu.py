"""tansu, a broker in Rust from crates.io. It has no log on local files: it runs here with its storage engine in memory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from peers.apache_kafka import CACHE, PeerMissingError
from peers.process import ProgramPeer

VERSION = "0.6.0"
BUILD_LIMIT_S = 3600


def program() -> Path:
    """Built from source on the first call, which takes long. Raises PeerMissingError without cargo or crates.io."""
    folder = CACHE / f"tansu-{VERSION}"
    built = folder / "bin" / "tansu"
    if built.exists():
        return built
    if shutil.which("cargo") is None:
        raise PeerMissingError("cargo is not installed")
    command = ["cargo", "install", "tansu", "--version", VERSION, "--locked", "--features", "dynostore", "--root", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise PeerMissingError(f"its build did not end within {BUILD_LIMIT_S} s") from None
    if done.returncode != 0:
        raise PeerMissingError(f"cargo install tansu: {done.stderr.strip()[-300:]}")
    return built


def prepare() -> str:
    program()
    return f"{VERSION}, storage in memory"


class Tansu(ProgramPeer):
    """Owns one tansu process."""

    def command(self) -> list[str]:
        listener = f"tcp://127.0.0.1:{self.port}"
        return [
            str(program()), "broker", "--listener-url", listener, "--advertised-listener-url", listener,
            "--storage-engine", "memory://tansu/", "--silent",
        ]  # fmt: skip
