"""What a crash, a full disk or a new topic of an old name must not do to a log."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kafkapy._speedups.records.memory_records import Record
from kafkapy._speedups.testing.log_waiter import HIGH_WATERMARK, LogWaiter
from kafkapy.config.broker import BrokerConfig
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.backends.memory import MemoryBackend
from kafkapy.log.log_manager import LogManager
from kafkapy.log.retention import apply_retention
from kafkapy.log.timestamps import offset_for_timestamp
from kafkapy.records.legacy import build_message_set
from kafkapy.types import CompressionType, TopicPartition

ORDERS = TopicPartition("orders", 0)
NOW = time.time_ns() // 1_000_000

# Says which files were synced, and fails writes to files whose path begins with what the file KP_FULL says, half way.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void path_of(int fd, char* out) {
    char link[64]; snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, 4095); out[n < 0 ? 0 : n] = 0;
}
static void note(const char* what, int fd) {
    const char* log = getenv("KP_SYNCED"); char path[4096], line[4200]; int at;
    if (!log) return;
    path_of(fd, path);
    at = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    int n = snprintf(line, sizeof line, "%s %s\n", what, path);
    if (at >= 0) { if (write(at, line, n) != n) abort(); close(at); }
}
int fsync(int fd) { note("fsync", fd); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { note("fdatasync", fd); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
typedef ssize_t (*pwrite_type)(int, const void*, size_t, off_t);
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
    pwrite_type real = (pwrite_type)dlsym(RTLD_NEXT, "pwrite");
    const char* control = getenv("KP_FULL"); char full[4096], path[4096]; ssize_t n = 0; int c;
    if (control && (c = open(control, O_RDONLY)) >= 0) {
        n = read(c, full, 4095); close(c);
        if (n > 0) {
            full[n] = 0; path_of(fd, path);
            if (!strncmp(path, full, n)) {
                if (size > 1) return real(fd, data, size / 2, at);
                errno = ENOSPC; return -1;
            }
        }
    }
    return real(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off_t at) { return pwrite(fd, data, size, at); }
"""


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shim")
    source, library = directory / "shim.c", directory / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@pytest.fixture
def manage(tmp_path: Path) -> Any:
    def make() -> LogManager:
        path = tmp_path / "server.properties"
        path.write_text(f"broker.id=1\nlog.dirs={tmp_path / 'logs'}\n")
        backends = {"local": LocalBackend(), "memory": MemoryBackend()}
        manager = LogManager(BrokerConfig.load(str(path)), backends=backends)
        manager.acquire()
        manager.load()
        return manager

    return make


def crash(manager: LogManager) -> None:
    """The locks go, nothing else happens."""
    for log_dir in manager.dirs:
        log_dir.release()


def test_a_new_topic_does_not_inherit_the_log_start_of_a_deleted_one(manage: Any, batch: Any) -> None:
    manager = manage()
    log = manager.get_or_create(ORDERS)
    log.become_leader(1, 0, [1])
    for _ in range(5):
        log.append_as_leader(batch(2), api_version=9)
    log.delete_records(7)
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    manager.delete(ORDERS)
    log = manager.get_or_create(ORDERS)
    log.become_leader(1, 0, [1])
    log.append_as_leader(batch(2), api_version=9)
    crash(manager)
    manager = manage()
    assert manager.get(ORDERS).offsets()[:2] == (0, 2)
    manager.shutdown()


def test_work_left_for_a_deleted_log_leaves_the_new_one_alone(manage: Any, batch: Any) -> None:
    manager = manage()
    old = manager.get_or_create(ORDERS)
    old.become_leader(1, 0, [1])
    for _ in range(3):
        old.append_as_leader(batch(2), api_version=9)
        old.roll()
    manager.delete(ORDERS, delay_ms=0)
    new = manager.get_or_create(ORDERS)
    new.become_leader(1, 0, [1])
    new.append_as_leader(batch(2), api_version=9)
    before = {path.name: path.read_bytes() for path in Path(new.storage.directory).iterdir()}
    manager._after_roll(old)
    old.seal_segments()
    old.flush()
    assert {path.name: path.read_bytes() for path in Path(new.storage.directory).iterdir()} == before
    manager.on_log_offline(old.id, 5, b"too late")
    assert not manager.offline_dirs
    manager.shutdown()


def test_delete_picks_the_backend_that_has_the_log(manage: Any, tmp_path: Path) -> None:
    manager = manage()
    log = manager.get_or_create(ORDERS)
    from tests.log.conftest import config

    log.update_config(config(kafkapy_storage_backend="memory"))
    assert manager.delete(ORDERS, delay_ms=0)
    assert not (tmp_path / "logs" / "orders-0").exists()
    assert not manager.offline_dirs
    manager.shutdown()


def test_an_offline_log_is_not_closed_cleanly(manage: Any, tmp_path: Path) -> None:
    manager = manage()
    manager.get_or_create(ORDERS).go_offline(28)
    manager.shutdown()
    assert not (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def test_a_new_epoch_of_the_same_leader_wakes_all_who_wait(logs: Any, batch: Any) -> None:
    log = logs.open()
    log.append_as_leader(batch(1), api_version=9)
    waiter = LogWaiter(log)
    assert not waiter.wait(HIGH_WATERMARK, 100)
    log.become_leader(1, 0, [1])
    assert waiter.wakes == 0
    log.become_leader(1, 1, [1])
    assert waiter.wakes == 1


def test_truncation_takes_aborted_transactions_out_of_their_index(logs: Any, batch: Any, marker: Any) -> None:
    log = logs.open()
    log.append_as_leader(batch(2), api_version=9)
    log.append_as_leader(batch(2, producer_id=1, epoch=0, sequence=0, attributes=0x10, timestamp=NOW), api_version=9)
    log.append_as_leader(marker(1, 0, commit=False))
    assert len(log.aborted_transactions()) == 1
    log.become_follower(2, 1)
    log.truncate_to(2)
    log.become_leader(1, 2, [1])
    for _ in range(5):
        log.append_as_leader(batch(2), api_version=9)
    logs.stop(log)
    assert logs.open().aborted_transactions() == []


def test_snapshots_of_clean_stops_do_not_add_up(logs: Any, batch: Any) -> None:
    for _ in range(4):
        log = logs.open()
        log.append_as_leader(batch(1), api_version=9)
        logs.stop(log)
    logs.open()
    assert len(list(logs.directory.glob("*.snapshot"))) == 1


def test_a_hole_in_a_synced_segment_does_not_take_what_follows(logs: Any, batch: Any) -> None:
    log = logs.open(segment_bytes=250)
    for _ in range(9):
        log.append_as_leader(batch(2), api_version=9)
    bases = [segment[0] for segment in log.segments()]
    logs.stop(log)
    spoiled = logs.directory / f"{bases[1]:020d}.log"
    spoiled.write_bytes(spoiled.read_bytes()[:-3])
    (logs.directory / f"{bases[1]:020d}.index").unlink(missing_ok=True)
    (logs.directory / f"{bases[1]:020d}.index").write_bytes(b"xyz")
    log = logs.open(segment_bytes=250, recovery_point=18)
    assert log.log_end_offset == 18
    assert log.read(bases[2])[0]


def test_retention_never_takes_a_record_that_came_while_it_looked(logs: Any, batch: Any) -> None:
    log = logs.open(retention_ms=1000)
    log.append_as_leader(batch(2, timestamp=NOW - 100_000), api_version=9)

    class Slow:
        """Appends between the look at the segments and what follows."""

        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def segments(self) -> Any:
            found = log.segments()
            log.append_as_leader(batch(1, timestamp=NOW), api_version=9)
            return found

    apply_retention(Slow(), NOW)  # type: ignore[arg-type]
    assert log.log_start_offset <= 2
    assert log.read(2)[0]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_messages_of_old_formats_are_kept_and_served(logs: Any, magic: int, codec: CompressionType) -> None:
    timestamp = -1 if magic == 0 else 5000
    parts = [
        build_message_set([Record(first + n, timestamp, 0, None, b"v%d" % (first + n)) for n in range(3)], magic, codec)
        for first in range(0, 60, 3)
    ]
    logs.directory.mkdir()
    path = logs.directory / f"{0:020d}.log"
    path.write_bytes(b"".join(parts))
    for clean in (False, True):
        log = logs.open(clean=clean, leader_epoch=None, index_interval_bytes=100)
        assert logs.report.cut_bytes == 0
        assert path.read_bytes() == b"".join(parts)
        assert log.log_end_offset == 60
        assert log.read(0)[0] == b"".join(parts)
        served = log.read(31)[0]
        assert served
        assert b"".join(parts).endswith(served)
        if magic == 1:
            found = offset_for_timestamp(log, 5000)
            assert found is not None
            assert found.offset == 0
        logs.stop(log)
    spoiled = bytearray(path.read_bytes())
    spoiled[-1] ^= 1
    path.write_bytes(spoiled)
    log = logs.open(clean=False, leader_epoch=None)
    assert log.log_end_offset == (59 if codec is CompressionType.NONE else 57)


FLUSH = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tests.log.conftest import Logs, make_batch
log = Logs(Path(sys.argv[1])).open(segment_bytes=300)
log.append_as_leader(make_batch(2), api_version=9)
log.flush()
"""


def test_a_flush_syncs_all_that_the_recovery_point_stands_for(shim: Path, tmp_path: Path) -> None:
    synced = tmp_path / "synced"
    root = str(Path(__file__).parent.parent.parent)
    environment = {**os.environ, "LD_PRELOAD": str(shim), "KP_SYNCED": str(synced), "PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", FLUSH, str(tmp_path), root], check=True, env=environment)
    lines = synced.read_text().splitlines()
    directory = tmp_path / "orders-0"
    assert f"fsync {directory / 'leader-epoch-checkpoint'}" in lines
    assert f"fdatasync {directory / '00000000000000000000.log'}" in lines
    assert f"fsync {directory}" in lines
    assert lines.index(f"fdatasync {directory / '00000000000000000000.log'}") < len(lines) - 1 - lines[::-1].index(
        f"fsync {directory}"
    )
    assert f"fsync {tmp_path}" in lines


FLUSH_MESSAGES = """
import sys, threading
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tests.log.conftest import Logs, make_batch
synced = Path(sys.argv[3])
def count():
    return synced.read_text().count(".log") if synced.exists() else 0
log = Logs(Path(sys.argv[1])).open(flush_messages=3, segment_bytes=100000)
for _ in range(9):
    log.append_as_leader(make_batch(1), api_version=9)
    print(count(), log.unflushed_messages)
log.append_as_leader(make_batch(7), api_version=9)
print(count(), log.unflushed_messages)
log.update_config(Logs(Path(sys.argv[1])).open(flush_messages=1, leader_epoch=None).config)
left = []
def write():
    for _ in range(20):
        before = count()
        log.append_as_leader(make_batch(1), api_version=9)
        left.append(count() > before)
threads = [threading.Thread(target=write) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(all(left), log.recovery_point)
"""


def test_an_append_is_synced_when_flush_messages_are_due(shim: Path, tmp_path: Path) -> None:
    synced = tmp_path / "synced"
    root = str(Path(__file__).parent.parent.parent)
    environment = {**os.environ, "LD_PRELOAD": str(shim), "KP_SYNCED": str(synced), "PYTHONPATH": root}
    command = [sys.executable, "-c", FLUSH_MESSAGES, str(tmp_path), root, str(synced)]
    said = subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout.splitlines()
    assert said[:9] == ["0 1", "0 2", "1 0", "1 1", "1 2", "2 0", "2 1", "2 2", "3 0"]
    assert said[9] == "4 0"
    # With flush.messages=1 a sync has begun, and ended, between the append and its return; several may share it.
    assert said[10] == "True 0"


def test_the_disk_is_full_on_append(shim: Path, tmp_path: Path) -> None:
    """Half a batch gets to the file; it is cut off again, and nothing more is taken."""
    script = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from kafkapy.errors import KafkaStorageError
from tests.log.conftest import Logs, make_batch
logs = Logs(Path(sys.argv[1]))
log = logs.open()
log.append_as_leader(make_batch(2), api_version=9)
size = log.size
Path(sys.argv[3]).write_text(str(logs.directory))
for _ in range(2):
    try:
        log.append_as_leader(make_batch(50), api_version=9)
        raise SystemExit("it was taken")
    except KafkaStorageError:
        pass
assert (log.size, log.log_end_offset, log.offline_errno) == (size, 2, 28), log.offsets()
assert (logs.directory / f"{0:020d}.log").stat().st_size == size
Path(sys.argv[3]).write_text("")
log = logs.open(clean=False)
assert log.log_end_offset == 2
"""
    root = str(Path(__file__).parent.parent.parent)
    control = tmp_path / "full"
    environment = {**os.environ, "LD_PRELOAD": str(shim), "KP_FULL": str(control), "PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", script, str(tmp_path), root, str(control)], check=True, env=environment)
