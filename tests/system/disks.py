"""Small file systems that tests mount, fill and make fail."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN: every later operation on the file system is an input/output error."""
MKFS = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
"""It is on the path of root's shells only."""


class DiskRefusedError(Exception):
    """The machine does not permit the file system; the message says why."""


def run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


class Disk:
    """A mounted file system that can be made to fail: ext4 in a file `image`, or a tmpfs of `size`.

    DiskRefusedError where it cannot be mounted.
    """

    def __init__(self, path: Path, image: Path | None, size: str = "4m") -> None:
        if os.geteuid() != 0:
            raise DiskRefusedError("only root can mount a file system")
        if image is not None and MKFS is None:
            raise DiskRefusedError("mkfs.ext4 (e2fsprogs) is not installed")
        self.path = path
        self.image = image
        path.mkdir(parents=True)
        try:
            self._mount(size)
        except OSError as error:
            raise DiskRefusedError(f"no file system can be mounted here: {error}") from None

    def _mount(self, size: str) -> None:
        if self.image is None:
            run("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(self.path))
            return
        with self.image.open("wb") as file:
            file.truncate(32 << 20)
        assert MKFS is not None
        run(MKFS, "-q", str(self.image))
        run("mount", "-o", "loop", str(self.image), str(self.path))

    def fail(self) -> None:
        """Everything is EIO from here."""
        fd = os.open(self.path, os.O_RDONLY)
        fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", 2))
        os.close(fd)

    def fail_writes(self) -> None:
        """The file system finds an error and goes read-only: EROFS."""
        run("mount", "-o", "remount,abort", str(self.path))

    def fill(self) -> None:
        """ENOSPC."""
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass

    def empty(self) -> None:
        """There is space again after `fill`."""
        self._ballast.unlink(missing_ok=True)

    def wipe(self) -> None:
        """Remove all files."""
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)
