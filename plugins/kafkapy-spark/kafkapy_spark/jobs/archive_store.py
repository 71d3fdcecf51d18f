"""The directory that an archive is in, on this machine or anywhere that pyarrow or fsspec has a filesystem for."""

from __future__ import annotations

import os
import uuid
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from kafkapy.errors import IllegalArgumentError

__all__ = ["Store"]

_TEMPORARY: Final = ".new-"


class Store:
    """Files below one directory, by paths relative to it. Made from its URI or path in the driver and in each task.

    URIs are pyarrow's (file, s3, gs, abfs, hdfs) or, with fsspec installed, any of its.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._files, self._base = _filesystem(uri)
        self.is_local: Final = isinstance(self._files, fs.LocalFileSystem)

    def path(self, path: str) -> str:
        """As the filesystem has it."""
        return f"{self._base}/{path}" if path else self._base

    def output(self, path: str) -> pa.NativeFile:
        """A new file; directories above it are made."""
        self._files.create_dir(str(PurePosixPath(self.path(path)).parent), recursive=True)
        return self._files.open_output_stream(self.path(path))

    def sync(self, path: str) -> None:
        """On a local disk: what was written to the file is there after a power failure."""
        if self.is_local:
            _sync(self.path(path))
            _sync(str(Path(self.path(path)).parent))

    def read(self, path: str) -> bytes:
        """A file's bytes. FileNotFoundError."""
        with self._files.open_input_stream(self.path(path)) as stream:
            return bytes(stream.read())

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return bool(self._files.get_file_info(self.path(path)).type != fs.FileType.NotFound)

    def names(self, directory: str) -> list[str]:
        """What is in a directory, in order; nothing when it is not there."""
        chosen = fs.FileSelector(self.path(directory), allow_not_found=True)
        names = (info.base_name for info in self._files.get_file_info(chosen))
        return sorted(name for name in names if not name.startswith(_TEMPORARY))

    def create(self, path: str, data: bytes) -> None:
        """A new file with this in it, complete or not there. FileExistsError: on a local disk, of any number of
        processes that create the same file one succeeds; elsewhere those that come while another is at it may all."""
        temporary = str(PurePosixPath(path).with_name(f"{_TEMPORARY}{uuid.uuid4().hex}"))
        with self.output(temporary) as stream:
            stream.write(data)
        try:
            if self.is_local:
                _sync(self.path(temporary))
                os.link(self.path(temporary), self.path(path))
                _sync(str(Path(self.path(path)).parent))
            elif self.exists(path):
                raise FileExistsError(path)
            else:
                self._files.move(self.path(temporary), self.path(path))
        finally:
            self.delete(temporary)

    def move(self, source: str, target: str) -> bool:
        """Gives a file its other name; directories above it are made. False where it is not there (any more)."""
        if not self.exists(source):
            return False
        self._files.create_dir(str(PurePosixPath(self.path(target)).parent), recursive=True)
        try:
            self._files.move(self.path(source), self.path(target))
        except FileNotFoundError:
            return False
        return True

    def delete(self, path: str) -> None:
        """Removes a file, if it is there."""
        try:
            self._files.delete_file(self.path(path))
        except FileNotFoundError:
            pass

    def delete_directory(self, path: str) -> None:
        """Removes a directory with all that is in it, if it is there."""
        try:
            self._files.delete_dir(self.path(path))
        except FileNotFoundError:
            pass


def _filesystem(uri: str) -> tuple[Any, str]:
    """A filesystem and the path on it. IllegalArgumentError where there is none for the URI."""
    if "://" not in uri:
        return fs.LocalFileSystem(), str(Path(uri).absolute())
    try:
        files, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise IllegalArgumentError(f"No filesystem for {uri} ({error}); fsspec may have one") from None
        try:
            handler, path = url_to_fs(uri)
        except (ValueError, ImportError) as refused:
            raise IllegalArgumentError(f"No filesystem for {uri}: {refused}") from None
        files = fs.PyFileSystem(fs.FSSpecHandler(handler))
    return files, path.rstrip("/")


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
