"""Lets each file operation of a LogManager's life fail for want of descriptors or memory, and then a few more.

Started by test_shortage.py with the library of file_faults.c preloaded:

    python shortage_runner.py <directory> <stride>

Every `stride`-th operation is spoiled, with the errnos and numbers of failures in turn; with 1 every operation in every
way. What was refused is tried again until it is taken. Prints `{"points": operations, "runs": ..., "failures": [...]}`.
"""

from __future__ import annotations

import errno
import json
import logging
import shutil
import sys
import traceback
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from conftest import make_batch
from fault_log_manager import ManagerContext, config_of
from file_faults import SHORTAGE, Faults

from kafkapy.errors import KafkaError
from kafkapy.log import shortage
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.log_dir import LogDirError
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition

KEPT, DELETED = TopicPartition("kept", 0), TopicPartition("deleted", 0)
VALUES = [b"%06d" % number for number in range(30)]
TRIES = 40
KINDS = [
    times * SHORTAGE + code for times in (1, 9) for code in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
]


def again(work: Callable[..., Any], *args: Any) -> Any:
    """A client, or a periodic task, that tries again. What is wrong with the disk is no shortage."""
    for _ in range(TRIES):
        try:
            return work(*args)
        except KafkaError as error:
            assert error.retriable, error
        except OSError as error:
            assert shortage.is_shortage(error), error
    raise AssertionError(f"{work} is refused for good")


def manager_in(directory: Path) -> LogManager:
    return LogManager(config_of(directory), backends={"local": LocalBackend()})


def started(directory: Path) -> LogManager:
    """A start that is refused is another process's next one."""
    for _ in range(TRIES):
        manager = manager_in(directory)
        try:
            manager.acquire()
            manager.load()
        except LogDirError:
            for log_dir in manager.dirs:
                log_dir.release()
        else:
            return manager
    raise AssertionError("the broker does not start any more")


def check_online(manager: LogManager) -> None:
    assert not manager.offline_dirs, manager.offline_dirs[0].failure
    for log in manager.logs().values():
        assert log.offline_errno == 0, log


def values_of(log: Any) -> list[bytes]:
    found: list[bytes] = again(ManagerContext.values_of, log)
    return found


def check_values(log: Any) -> None:
    found = values_of(log)
    assert found == VALUES, f"{len(found)} values, {log}, segments {log.segments()}, last {found[-3:]}"


def life(directory: Path) -> None:
    """Two runs of a broker: appends with rolls, flushes, checkpoints, deletions, a clean stop and what is left."""
    manager = started(directory)
    log = again(manager.get_or_create, KEPT)
    again(log.become_leader, 1, 0, [1])
    again(manager.get_or_create, DELETED)
    for number, value in enumerate(VALUES):
        again(log.append_as_leader, make_batch(value=value))
        check_online(manager)
        if number % 8 == 7:
            again(log.seal_segments)
            again(log.flush)
            manager.checkpoints.write_recovery_points()
            manager.checkpoints.write_high_watermarks()
    check_values(log)
    again(log.truncate_to, len(VALUES) - 2)
    for value in VALUES[-2:]:
        again(log.append_as_leader, make_batch(value=value))
    check_values(log)
    manager.delete(DELETED, delay_ms=0)
    check_online(manager)
    manager.shutdown()
    manager = started(directory)
    check_online(manager)
    log = manager.get(KEPT)
    check_values(log)
    manager.shutdown()


def main(root: Path, stride: int) -> None:
    logging.disable(logging.CRITICAL)
    shortage.PAUSES_S = (0.0, 0.0, 0.0)  # type: ignore[misc]
    faults, failures, runs = Faults(), [], 0
    faults.begin(root)
    life(root / "logs")
    points = faults.count
    kinds = cycle(KINDS)
    for at in range(1, points + 1, stride):
        for kind in KINDS if stride == 1 else [next(kinds)]:
            shutil.rmtree(root)
            root.mkdir()
            faults.begin(root, at, kind)
            runs += 1
            try:
                life(root / "logs")
            except BaseException:
                failures.append(f"operation {at}, kind {kind}: {traceback.format_exc(limit=-6)}")
            finally:
                faults.disarm()
    print(json.dumps({"points": points, "runs": runs, "failures": failures}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
