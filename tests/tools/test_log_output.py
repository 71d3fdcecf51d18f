"""The broker's log when it cannot be written, and when a client provokes the same line again and again."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.admin import KafkaAdminClient
from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.tools.log_output import AUDIT, MOST_KINDS, NOTE_EVERY_S, LineLimit, LogOutput
from kafkapy.tools.log_setup import KeyValueFormatter

MEGABYTE = 1 << 20


def record(message: str, level: int = logging.INFO, line: int = 1, name: str = "kafka.test") -> logging.LogRecord:
    return logging.LogRecord(name, level, "file", line, message, None, None)


def said(notes: Iterator[logging.LogRecord]) -> list[str]:
    return [note.getMessage() for note in notes]


def output(descriptor: int, repeated: int = 1000) -> LogOutput:
    made = LogOutput(descriptor, LineLimit(repeated))
    made.setFormatter(KeyValueFormatter())
    return made


def test_a_hundred_thousand_lines_of_a_kind_are_a_thousand_and_a_count() -> None:
    limit = LineLimit(1000)
    written = sum(limit.allows(record(f"closed {n}"), 5.0) for n in range(100_000))
    assert written == 1000
    assert limit.allows(record("closed", line=2), 5.0)
    assert limit.allows(record("closed", logging.WARNING), 5.0)
    assert limit.allows(record("closed", name="kafka.other"), 5.0)
    assert said(limit.notes(5.0)) == []
    assert said(limit.notes(5.0 + NOTE_EVERY_S)) == ["99000 more like this were suppressed: closed 1000"]
    assert said(limit.notes(1e9)) == [], "it is said once"


def test_a_kind_that_was_too_frequent_has_one_line_a_second() -> None:
    limit = LineLimit(10)
    written = [second for second in range(100) for _ in range(50) if limit.allows(record("again"), float(second))]
    assert written == [0] * 10 + list(range(1, 100))


def test_lines_that_were_turned_on_are_all_written() -> None:
    limit = LineLimit(10)
    assert all(limit.allows(record("request", logging.DEBUG), 0.0) for _ in range(1000))
    assert all(LineLimit(0).allows(record("no limit"), 0.0) for _ in range(1000))


def audit_record(principal: str) -> logging.LogRecord:
    text = "Principal = %s is Denied Operation = %s"
    return logging.LogRecord(AUDIT, logging.INFO, "acl.py", 1, text, (principal, "Read"), None)


def test_nobody_hides_the_denials_of_others_behind_his_own() -> None:
    limit = LineLimit(10)
    written = [limit.allows(audit_record("User:eve"), 0.0) for _ in range(1000)]
    assert sum(written) == 10
    assert limit.allows(audit_record("User:alice"), 0.0)
    (note,) = limit.notes(NOTE_EVERY_S)
    assert note.getMessage().startswith("990 more like this were suppressed: Principal = User:eve is Denied")


def test_many_principals_make_a_bounded_number_of_audit_lines() -> None:
    limit = LineLimit(10)
    assert sum(limit.allows(audit_record(f"User:{n}"), 0.0) for n in range(3 * MOST_KINDS)) == MOST_KINDS + 10


def test_what_was_left_out_is_said_when_the_log_is_closed(tmp_path: Path) -> None:
    handler = LogOutput.to_file(str(tmp_path / "made" / "broker.log"), LineLimit(3))
    handler.setFormatter(KeyValueFormatter())
    for number in range(10):
        handler.handle(record(f"line {number}"))
    handler.close()
    handler.handle(record("after the end"))
    messages = re.findall(r'msg="(.*)"', (tmp_path / "made" / "broker.log").read_text())
    assert messages == ["line 0", "line 1", "line 2", "7 more like this were suppressed: line 3"]


def test_lines_for_which_there_is_no_space_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    handler = output(descriptor)
    for number in range(5):
        handler.handle(record(f"lost {number}"))
    file = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(file, descriptor)
    handler.handle(record("space again"))
    handler.handle(record("and more"))
    os.close(file)
    os.close(descriptor)
    messages = re.findall(r'msg="(.*)"', (tmp_path / "log").read_text())
    assert messages == ["5 lines could not be written: No space left on device", "space again", "and more"]
    assert capfd.readouterr() == ("", "")


FILLS = """
import logging, os, resource, sys
from kafkapy.tools.log_setup import configure_logging
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
configure_logging(sys.argv[1])
for number in range(100):
    logging.getLogger("kafka.test").info("line %d", number)
assert os.stat(sys.argv[2]).st_size == 1000
os.truncate(sys.argv[2], 900)
logging.getLogger("kafka.test").info("short")
os.truncate(sys.argv[2], 10)
logging.getLogger("kafka.test").info("space again")
"""


def test_a_log_of_the_largest_size_allowed_ends_nothing(tmp_path: Path) -> None:
    config, log = tmp_path / "logging.properties", tmp_path / "log"
    config.write_text(f"output={log}\n")
    done = subprocess.run([sys.executable, "-c", FILLS, str(config), str(log)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    torn, lost, again = log.read_text().splitlines()
    assert "line 0" not in torn
    assert re.search(r'msg="\d+ lines could not be written: File too large"', lost)
    assert 'msg="space again"' in again


def refused_creations(bootstrap: str, count: int) -> None:
    host, _, port = bootstrap.rpartition(":")
    topic = CreateTopicsRequest.Topic(name="no/topic", num_partitions=1, replication_factor=1)
    frame = encode_request(ApiKeys.CREATE_TOPICS, 5, 1, "flood", CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as reader:
        for _ in range(count):
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            reader.read(int.from_bytes(reader.read(4), "big"))


def refused_connections(bootstrap: str, count: int) -> None:
    host, _, port = bootstrap.rpartition(":")
    for number in range(count):
        with socket.socket() as connection:
            connection.bind((f"127.0.2.{number % 200 + 1}", 0))
            connection.connect((host, int(port)))
            connection.sendall(b"\0\0\0\x08\x7f\x7f\0\0\0\0\0\0")
            assert connection.recv(1) == b""


def test_a_client_provokes_a_bounded_number_of_lines(tmp_path: Path) -> None:
    config = tmp_path / "logging.properties"
    config.write_text("repeated=20\n")
    with BrokerProcess(tmp_path / "broker", environment={"KAFKAPY_LOGGING": str(config)}) as broker:
        began = time.monotonic()
        refused_creations(broker.bootstrap, 2000)
        refused_connections(broker.bootstrap, 2000)
        allowed = 20 + time.monotonic() - began + 1
        assert broker.stop() == 0
        log = broker.log_path.read_text()
    assert 1 <= len(re.findall(r'msg="Connection \d+ from \S+ is closed: ', log)) <= allowed
    created = len(re.findall(r"msg=\"Topic 'no/topic' is not created", log))
    assert 20 <= created <= allowed
    left_out = re.findall(r"(\d+) more like this were suppressed: Topic 'no/topic' is not created", log)
    assert created + sum(int(count) for count in left_out) == 2000


def test_a_broker_whose_log_is_full_goes_on(tmp_path: Path) -> None:
    largest = 16 * MEGABYTE
    broker = BrokerProcess(
        tmp_path / "broker",
        {"log.segment.bytes": str(MEGABYTE), "log.index.size.max.bytes": "65536"},
        command=["prlimit", f"--fsize={largest}", sys.executable, "-m", "kafkapy.tools.server"],
    )
    with broker:
        os.truncate(broker.log_path, largest)
        refused_creations(broker.bootstrap, 50)
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics(["made"])
            assert "made" in admin.list_topics()
        assert broker.log_path.stat().st_size == largest
        os.truncate(broker.log_path, 0)
        refused_creations(broker.bootstrap, 1)
        assert re.search(r"\d+ lines could not be written: File too large", broker.log_path.read_text())
        assert broker.stop() == 0
