"""A plugin that keeps the broker's control loop, and with it the GIL, busy with pure Python for 200 ms at a time.

It does so as long as the file named by KAFKAPY_BUSY_FLAG exists, and appends "start end" (monotonic seconds) of each
spell to that
file's name + ".spells". While the file's name + ".stuck" exists, the control loop sleeps and nothing runs on it; it
says so with the file's name + ".sleeps".
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from kafkapy.plugins import hookimpl

SPELL_S = 0.2
_tasks: set[asyncio.Task[None]] = set()


async def _be_busy(flag: Path) -> None:
    spells = Path(f"{flag}.spells")
    stuck = Path(f"{flag}.stuck")
    while True:
        if stuck.exists():
            Path(f"{flag}.sleeps").touch()
            while stuck.exists():
                time.sleep(0.01)
        if not flag.exists():
            await asyncio.sleep(0.01)
            continue
        start = time.monotonic()
        number = 0
        while time.monotonic() - start < SPELL_S:
            number = (number * 1_103_515_245 + 12_345) % 2**31
        with spells.open("a") as out:
            out.write(f"{start} {time.monotonic()}\n")
        await asyncio.sleep(0)


@hookimpl
def broker_started(broker: Any) -> None:
    _tasks.add(asyncio.get_running_loop().create_task(_be_busy(Path(os.environ["KAFKAPY_BUSY_FLAG"]))))
