"""Files of a broker's process that are slow on demand, and a list of what its control loop does with files."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

WRITE, SYNC, RENAME, OPEN, READ, TRUNCATE = 1, 2, 4, 8, 16, 32
EVERYTHING = 0x7FFFFFFF
_CONTROL = struct.Struct("<iiiii236s")


class SlowFiles:
    """Compiles slow_files.c into a directory and owns what the process reads of the test's wishes; `environment` is for
    that process. `root`: where the files are that `watched` lists.
    """

    def __init__(self, directory: Path, root: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        library = directory / "slow_files.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
        control = directory / "slow"
        control.write_bytes(bytes(_CONTROL.size))
        with control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _CONTROL.size)
        self._ended = 0
        self._listed = directory / "listed"
        self._on = directory / "listed.on"
        self.environment = {
            "LD_PRELOAD": str(library),
            "KAFKAPY_SLOW_FILES": str(control),
            "KAFKAPY_LOOP_FILES": str(self._listed),
            "KAFKAPY_LOOP_ROOT": str(root),
        }

    def be_slow(self, text: str, ms: int, operations: int = EVERYTHING, one_in: int = 1) -> None:
        """From here on those operations on paths with `text` in them take `ms` longer, or one in so many of them."""
        self.be_fast()
        self._map[:] = _CONTROL.pack(0, ms, one_in, 0, self._ended, text.encode())
        self._map[:4] = struct.pack("<i", operations)

    def be_fast(self) -> None:
        """All files are as fast as the disk, but for operations that are slow already."""
        self._map[:4] = bytes(4)

    def go_on(self) -> None:
        """All files are as fast as the disk, and operations that are slow already end at once."""
        self.be_fast()
        self._ended += 1
        self._map[16:20] = struct.pack("<i", self._ended)

    @property
    def hits(self) -> int:
        """How many operations were slow since `be_slow`."""
        return int(_CONTROL.unpack(self._map[:])[3])

    def watch(self) -> None:
        """Begin to list what the main thread does with files below the root."""
        self._on.touch()

    def watched(self) -> list[str]:
        """ "operation path" of each."""
        return self._listed.read_text().splitlines() if self._listed.exists() else []
