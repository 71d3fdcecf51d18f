"""Descriptors of .proto texts: Google's protoc, which grpcio-tools brings, compiles them in a process of its own.

Texts and names are a registry's, that is somebody else's: a text that crashes or stops protoc leaves the console alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from google.protobuf import descriptor_pb2

__all__ = ["compiled"]

# Without -P, Python would import modules of the directory where it starts.
COMMAND: Final = (sys.executable, "-P", "-m", "grpc_tools.protoc")
"""This protoc finds the well-known types by itself."""
TIME_LIMIT_S = 10.0
MOST_BYTES = 8 << 20
"""Bytes of the texts of one schema and all that it imports."""
MOST_SAID = 500
"""Characters of protoc's reason."""
ENVIRONMENT: Final = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH")
"""The variables that Python may need to start."""
# A value of google.protobuf.Any may have a type that its schema does not import.
WELL_KNOWN: Final = tuple(
    f"google/protobuf/{name}.proto"
    for name in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
)
_LOG_LINE = re.compile(r"WARNING: |[IWE]\d{4} ")


def compiled(files: Mapping[str, str], main: str) -> descriptor_pb2.FileDescriptorSet:
    """The descriptors of a file, of all that it imports before it, and of the well-known types.

    Files are texts by import name. ValueError with the reason for texts that protoc refuses.
    """
    texts = {_checked(name): text.encode() for name, text in files.items()}
    if sum(map(len, texts.values())) > MOST_BYTES:
        raise ValueError(f"the schema and its references have more than {MOST_BYTES >> 20} MiB")
    with tempfile.TemporaryDirectory(prefix="kafkapy-protoc-") as name:
        # Foreign names are in "schemas" only: beside it, they would be mistaken for protoc's files.
        directory = Path(name)
        for each, text in texts.items():
            file = directory / "schemas" / each
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text)
            except OSError as error:
                raise ValueError(f"{each[:100]!r} cannot be the name of a file: {error.strerror}") from None
        _run(directory, main)
        return descriptor_pb2.FileDescriptorSet.FromString((directory / "compiled").read_bytes())


def _run(directory: Path, main: str) -> None:
    said = directory / "said"
    with said.open("wb") as errors:
        try:
            status = subprocess.run(
                [*COMMAND, "-I", "schemas", "--include_imports", "--descriptor_set_out=compiled", main, *WELL_KNOWN],
                cwd=directory,
                env={each: os.environ[each] for each in ENVIRONMENT if each in os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=TIME_LIMIT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise ValueError(f"protoc was not ready after {TIME_LIMIT_S:g} seconds") from None
    if status:
        with said.open("rb") as told:
            lines = told.read(MOST_SAID * 8).decode(errors="replace").splitlines()
        reason = " ".join(line for line in lines if not _LOG_LINE.match(line))
        raise ValueError(reason[:MOST_SAID] or f"protoc ended with status {status}")


def _checked(name: str) -> str:
    """A name that stays in its directory."""
    if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{name[:100]!r} is no name of a .proto file")
    return name
