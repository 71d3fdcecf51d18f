"""Kafka's command-line tools of one release, run one after another in one JVM."""

from __future__ import annotations

import subprocess
import threading
from base64 import b64decode
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from peers.apache_kafka import compiled, tools_jars

SOURCE = Path(__file__).parent / "java" / "RunTools.java"
SERVER_FIRST = ("org.apache.kafka.tools.TransactionsCommand", "org.apache.kafka.tools.FeatureCommand")
TOOL_S = 300.0
"""Far beyond what a tool takes; then its JVM is killed."""


class Done(NamedTuple):
    """How a tool ended."""

    code: int
    text: str
    """What it wrote, on both outputs."""


class ToolRunner:
    """Owns the JVM. `bootstrap` is given to each tool."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self.version = version
        self.bootstrap = bootstrap
        libs = tools_jars(version)
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
             "-cp", f"{compiled(SOURCE, libs)}:{libs}/*", "RunTools"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> ToolRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __call__(self, main: str, *arguments: str) -> Done:
        """Run one tool. The subcommands of most tools take the server behind them, those of others before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        server = ("--bootstrap-server", self.bootstrap)
        words = [main, *server, *arguments] if main in SERVER_FIRST else [main, *arguments, *server]
        self._process.stdin.write("\t".join(words).encode() + b"\n")
        self._process.stdin.flush()
        guard = threading.Timer(TOOL_S, self._process.kill)
        guard.start()
        try:
            answer = self._process.stdout.readline()
        finally:
            guard.cancel()
        assert answer, f"{main} did not end"
        code, _, text = answer.partition(b" ")
        return Done(int(code), b64decode(text).decode(errors="replace"))

    def done(self, main: str, *arguments: str) -> str:
        """What the tool wrote; it has to end well."""
        code, text = self(main, *arguments)
        assert code == 0, text[-3000:]
        return text
