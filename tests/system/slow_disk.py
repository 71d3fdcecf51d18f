"""A broker whose file operations on one partition can be made slow, while it runs (slow_disk.c)."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

PWRITE, SYNC, RENAME, OPEN, READ = 1, 2, 4, 8, 16
_CONTROL = struct.Struct("<iiii240s")


class SlowDisk:
    """Owns the preloaded library and what the broker reads of the test's wishes. `environment` goes to the broker."""

    def __init__(self, directory: Path) -> None:
        library = directory / "slow_disk.so"
        source = Path(__file__).with_name("slow_disk.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        control = directory / "slow_disk_control"
        control.write_bytes(bytes(_CONTROL.size))
        with control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _CONTROL.size)
        self.environment = {"LD_PRELOAD": str(library), "SLOW_DISK_CONTROL": str(control)}

    def be_slow(self, calls: int, part: str, ms: int, one_in: int = 1) -> None:
        """From here on those calls on paths with `part` in them take `ms` longer, or one in so many of them."""
        self.be_fast()
        self._map[:] = _CONTROL.pack(0, ms, one_in, 0, part.encode())
        self._map[:4] = struct.pack("<i", calls)

    def be_fast(self) -> None:
        self._map[:4] = bytes(4)

    @property
    def hits(self) -> int:
        """How many calls were slow since `be_slow`."""
        return int(_CONTROL.unpack(self._map[:])[3])
