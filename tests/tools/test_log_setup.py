"""Logging files and the look of a line."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.errors import ConfigError
from kafkapy.tools.log_output import LogOutput
from kafkapy.tools.log_setup import JsonFormatter, KeyValueFormatter, configure_logging

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    names = ("kafka.request.logger", "kafka.authorizer.logger", "kafka.controller", "kafka.log.LogCleaner")
    levels = {name: logging.getLogger(name).level for name in ("kafka", *names, "state.change.logger")}
    # The tests of brokers quieten it for the whole process.
    logging.getLogger("kafka").setLevel(logging.NOTSET)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, each in levels.items():
        logging.getLogger(name).setLevel(each)


LOGGERS = {"kafka.server.KafkaServer", "kafka.log.LogManager", "kafka.controller"}


def only_of_this_test() -> None:
    """Leaves out lines of other tests: of brokers that still run, and of clients that are collected in this thread."""
    mine = threading.get_ident()
    (handler,) = (each for each in logging.getLogger().handlers if isinstance(each, LogOutput))
    handler.filters.insert(0, lambda record: record.thread == mine and record.name in LOGGERS)


def record(message: str, **extra: object) -> logging.LogRecord:
    return logging.getLogger("kafka.test").makeRecord(
        "kafka.test", logging.WARNING, "file", 1, message, (), None, extra=extra
    )


def test_a_line_is_key_value_with_extras_at_its_end() -> None:
    line = KeyValueFormatter().format(record("hello there", client="a b", version=3))
    assert 'level=WARN logger=kafka.test thread=MainThread msg="hello there" client="a b" version=3' in line
    assert line.startswith("ts=20")


def test_nothing_breaks_a_line_in_two() -> None:
    line = KeyValueFormatter().format(record('evil\nlevel=ERROR "quoted"', client="x\r\ny"))
    assert "\n" not in line
    assert r"evil\nlevel=ERROR \"quoted\"" in line


def test_json_lines_hold_the_same() -> None:
    found = json.loads(JsonFormatter().format(record("hello", client="a b")))
    assert (found["msg"], found["logger"], found["client"]) == ("hello", "kafka.test", "a b")


def test_the_file_in_config_is_understood() -> None:
    configure_logging(str(ROOT / "config" / "logging.properties"))
    assert logging.getLogger("kafka.request.logger").level == logging.WARNING
    assert logging.getLogger().level == logging.INFO


def test_the_environment_names_a_file(tmp_path: Path) -> None:
    file = tmp_path / "logging.properties"
    file.write_text("root=ERROR\n")
    configure_logging(None, {"KAFKAPY_LOGGING": str(file)})
    assert logging.getLogger().level == logging.ERROR


@pytest.mark.parametrize(
    "line", ["root=LOUD", "format=xml", "logger.kafka=7", "colour=red", "repeated=-1", "output=/proc/nowhere/x"]
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "logging.properties"
    file.write_text(f"# first\n{line}\n")
    with pytest.raises(ConfigError, match=line.partition("=")[2]):
        configure_logging(str(file))


def test_on_a_terminal_a_start_is_one_block_and_lines_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        configure_logging(None, {})
        only_of_this_test()
        server = logging.getLogger("kafka.server.KafkaServer")
        server.info("starting")
        logging.getLogger("kafka.log.LogManager").warning("Recovering", extra={"logs": 3})
        server.info("started", extra=START)
        logging.getLogger("kafka.controller").info("Topic orders\x1b[2J created")
        said = ""
        while not said.endswith("created\r\n"):
            assert select.select([screen], [], [], 60)[0], f"nothing more is said after {said!r}"
            said += os.read(screen, 65_536).decode()
    os.close(screen)
    warning, *block, after = said.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d WARN Recovering logs=3", warning)
    assert block == [
        "kafkapy 1.2 is ready after 0.25 s. Ctrl-C stops it.",
        "  listening on PLAINTEXT://127.0.0.1:9092",
        "  listening on SSL://127.0.0.1:9093",
        "  data in      /data/kafka",
        "  broker       1 of cluster abc",
    ]
    assert re.fullmatch(r"\d\d:\d\d:\d\d Topic orders\\x1b\[2J created", after)


def test_in_a_file_a_start_is_one_structured_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        configure_logging(None, {})
        only_of_this_test()
        logging.getLogger("kafka.server.KafkaServer").info("started", extra=START)
    assert (
        (tmp_path / "stderr")
        .read_text()
        .endswith(
            "msg=started version=1.2 seconds=0.251 broker_id=1 cluster_id=abc "
            "listeners=PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093 log_dirs=/data/kafka\n"
        )
    )


START = {
    "version": "1.2",
    "seconds": "0.251",
    "broker_id": 1,
    "cluster_id": "abc",
    "listeners": "PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093",
    "log_dirs": "/data/kafka",
}
