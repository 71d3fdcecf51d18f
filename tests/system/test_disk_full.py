"""One of two log directories has a disk error: it is offline, the other lives on, no half batch is served."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from kafkapy.testing.broker_process import BrokerProcess

# Fails writes to log segments in the directory that the file KP_FULL names, after half of the bytes.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef ssize_t (*pwrite_type)(int, const void*, size_t, off_t);
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
    static pwrite_type real;
    const char* control = getenv("KP_FULL"); char full[4096], path[4096], link[64]; ssize_t n, m; int c;
    if (!real) real = (pwrite_type)dlsym(RTLD_NEXT, "pwrite");
    if (control && (c = open(control, O_RDONLY)) >= 0) {
        n = read(c, full, 4095); close(c);
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        m = readlink(link, path, 4095);
        if (n > 0 && m >= n && !memcmp(path, full, n)) {
            if (size > 1) return real(fd, data, size / 2, at);
            errno = ENOSPC; return -1;
        }
    }
    return real(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off_t at) { return pwrite(fd, data, size, at); }
"""
PARTITIONS = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    made = BrokerProcess(
        tmp_path / "broker",
        {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"},
        environment={"LD_PRELOAD": str(library), "KP_FULL": str(tmp_path / "full")},
    )
    made.start()
    yield made
    made.remove()


def produce(bootstrap: str, partition: int, values: list[bytes], timeout_ms: int) -> list[str | None]:
    """The error's name of each record, None for an acknowledged one."""
    outcomes: list[str | None] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": timeout_ms, "linger.ms": 0, "log_level": 0}
    )
    for value in values:
        producer.produce(
            "t", value, partition=partition, on_delivery=lambda error, _: outcomes.append(error and error.name())
        )
    producer.flush(60)
    return outcomes


def read(bootstrap: str, partition: int, count: int, wait_s: float) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", partition, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + wait_s
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(100, timeout=0.5) if message.error() is None]
    consumer.close()
    return found


def test_a_full_disk_takes_its_directory_offline_and_no_other(broker: BrokerProcess, tmp_path: Path) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic("t", PARTITIONS, 1)])["t"].result(30)
    where = {p: next(d for d in ("one", "two") if (tmp_path / d / f"t-{p}").is_dir()) for p in range(PARTITIONS)}
    assert sorted(where.values()) == ["one", "one", "two", "two"]
    for partition in where:
        assert produce(broker.bootstrap, partition, [b"first"], 30_000) == [None]
    sizes = {p: (tmp_path / where[p] / f"t-{p}" / f"{0:020d}.log").stat().st_size for p in where}
    (tmp_path / "full").write_text(str(tmp_path / "two") + "/")
    sick = [p for p in where if where[p] == "two"]
    assert produce(broker.bootstrap, sick[0], [b"x" * 5000], 3_000) != [None]
    (tmp_path / "full").unlink()
    # The whole directory is offline, its other partition as well, although the disk would take bytes again.
    for partition in where:
        healthy = where[partition] == "one"
        timeout_ms = 30_000 if healthy else 2_000
        assert (produce(broker.bootstrap, partition, [b"second"], timeout_ms) == [None]) == healthy
        if healthy:
            assert read(broker.bootstrap, partition, 2, 30) == [b"first", b"second"]
        else:
            assert (tmp_path / "two" / f"t-{partition}" / f"{0:020d}.log").stat().st_size == sizes[partition]
    broker.kill()
    broker.start()
    for partition in where:
        expected = [b"first", b"second"] if where[partition] == "one" else [b"first"]
        assert read(broker.bootstrap, partition, len(expected), 30) == expected
        assert produce(broker.bootstrap, partition, [b"third"], 30_000) == [None]
