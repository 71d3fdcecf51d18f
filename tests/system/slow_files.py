"""Files that are slow on demand in a broker's process, and a list of what its control loop does with files."""

from __future__ import annotations

import subprocess
from pathlib import Path


class SlowFiles:
    """Compiles slow_files.c into a directory; `environment` is for the broker's process."""

    def __init__(self, directory: Path, root: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        library = directory / "slow_files.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
        self._slow = directory / "slow"
        self._listed = directory / "listed"
        self._on = directory / "listed.on"
        self.environment = {
            "LD_PRELOAD": str(library),
            "KAFKAPY_SLOW_FILES": str(self._slow),
            "KAFKAPY_LOOP_FILES": str(self._listed),
            "KAFKAPY_LOOP_ROOT": str(root),
        }

    def slow_down(self, text: str, ms: int) -> None:
        """From here on, operations on paths with that text in them take so much longer."""
        hidden = self._slow.with_suffix(".new")
        hidden.write_text(f"{ms} {text}")
        hidden.rename(self._slow)

    def speed_up(self) -> None:
        """All files are as fast as the disk."""
        self._slow.unlink(missing_ok=True)

    def watch(self) -> None:
        """Begin to list what the main thread does with files below the root."""
        self._on.touch()

    def watched(self) -> list[str]:
        """ "operation path" of each."""
        return self._listed.read_text().splitlines() if self._listed.exists() else []
