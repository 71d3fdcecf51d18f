"""kafkapy log-dirs against a broker: what it shows and moves, and its one-sentence errors."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click.testing
import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
from kafkapy.config.broker import BrokerConfig
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.tools.cli import main
from kafkapy.types import TopicPartition

Run = Callable[..., click.testing.Result]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    root = tmp_path_factory.mktemp("log-dirs")
    keys = {
        "broker.id": "3",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": f"{root / 'one'},{root / 'two'}",
        "log.segment.delete.delay.ms": "0",
    }
    with KafkaServer(BrokerConfig(keys)) as made:
        with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{made.endpoints[0].port}") as admin:
            admin.create_topics({name: {"num_partitions": 2} for name in ("t", "other")})
        yield made


@pytest.fixture
def run(server: KafkaServer) -> Run:
    def invoke(*arguments: str, bootstrap: str | None = None) -> click.testing.Result:
        options = ["--bootstrap-server", f"127.0.0.1:{server.endpoints[0].port}"]
        if bootstrap is not None:
            options = ["--bootstrap-server", bootstrap, "-X", "bootstrap.timeout.ms=300"]
        return click.testing.CliRunner().invoke(main, ["log-dirs", *arguments, *options])

    return invoke


def test_json_is_as_that_of_kafkas_tool(run: Run, server: KafkaServer) -> None:
    result = run("describe", "--json", "--broker-list", "3", "--topic-list", "t")
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert (shown["version"], [each["broker"] for each in shown["brokers"]]) == (1, [3])
    directories = shown["brokers"][0]["logDirs"]
    assert [each["logDir"] for each in directories] == sorted(server.config.log_dirs)
    partitions = [row for each in directories for row in each["partitions"]]
    assert sorted(row.pop("partition") for row in partitions) == ["t-0", "t-1"]
    assert partitions == [{"size": 0, "offsetLag": 0, "isFuture": False}] * 2
    assert all(0 < each["usableBytes"] <= each["totalBytes"] and each["error"] is None for each in directories)


def test_lines_are_one_for_each_partition(run: Run, server: KafkaServer) -> None:
    result = run("describe")
    assert result.exit_code == 0
    first, *lines = result.stdout.splitlines()
    assert first.split("\t") == ["broker", "log_dir", "partition", "size", "offset_lag", "future", "error"]
    rows = [line.split("\t") for line in lines]
    assert sorted(row[2] for row in rows) == ["other-0", "other-1", "t-0", "t-1"]
    assert {row[1] for row in rows} == set(server.config.log_dirs)
    assert all(row[0] == "3" and row[3:] == ["0", "0", "false", "-"] for row in rows)


def test_partitions_move_and_the_wait_ends_when_they_have(run: Run, server: KafkaServer) -> None:
    for directory in (*server.config.log_dirs, server.config.log_dirs[0]):
        result = run("move", "t-0", "t-1", "--to", directory, "--wait")
        assert result.exit_code == 0, result.output
        assert result.stdout.count("moved") == 2
        assert {path.name for path in Path(directory).glob("t-*")} >= {"t-0", "t-1"}
    result = run("move", "t-0", "--to", server.config.log_dirs[0], "--broker", "3", "--json")
    assert json.loads(result.stdout)["moves"] == [
        {"partition": "t-0", "broker": 3, "logDir": server.config.log_dirs[0], "error": None}
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("move", "t-0", "--to", "/nowhere"), "/nowhere: Broker 3 has no such log directory; it has {dir}, "),
        (("move", "unknown-0", "--to", "{dir}"), "1 of 1 partitions cannot be moved to {dir}: The cluster has no"),
        (("move", "others-0", "--to", "{dir}"), "The cluster has no topic others; did you mean other?"),
        (("move", "t:7", "--to", "{dir}"), "Topic t has no partition 7: it has "),
        (("describe", "--topic-list", "t,others"), "The cluster has no topic others; did you mean other?"),
        (("move", "t-0", "--to", "{dir}", "--broker", "8"), "The cluster has no broker 8; it has 3."),
        (("describe", "--broker-list", "8,9"), "The cluster has no broker 8, 9; it has 3."),
    ],
)
def test_errors_are_one_sentence(run: Run, server: KafkaServer, arguments: tuple[str, ...], sentence: str) -> None:
    result = run(*(each.replace("{dir}", server.config.log_dirs[0]) for each in arguments))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert sentence.replace("{dir}", server.config.log_dirs[0]) in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("move", "t0", "--to", "/d"), "'t0' is not a partition: give TOPIC-NUMBER, such as orders-0."),
        (("move", "t-99999999999", "--to", "/d"), "'t-99999999999' is not a partition"),
        (("describe", "--broker-list", "x"), "'x' is not a list of broker ids, such as 1,2,3."),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert f"Error: {sentence}" in result.stderr


def test_a_broker_that_is_not_there_is_one_sentence(run: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        result = run("describe", bootstrap=address)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: No broker at {address} answered within 300 ms")
    assert len(result.stderr.splitlines()) == 1
    result = run("describe", bootstrap="localhost:port")
    assert (result.exit_code, len(result.stderr.splitlines()), "localhost:port" in result.stderr) == (1, 1, True)


@pytest.mark.parametrize("answer", [b"", b"\x7f\xff\xff\xff", b"\0\0\0\x02\0\0", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_is_no_broker_is_one_sentence(run: Run, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.recv(1000)
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        result = run("describe", bootstrap=f"127.0.0.1:{listener.getsockname()[1]}")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_a_failed_directory_is_shown_and_no_move_out_of_it_waited_for(run: Run, server: KafkaServer) -> None:
    one, two = server.config.log_dirs
    manager = server.context.log_manager
    partition = TopicPartition("other", 0)
    assert run("move", "other-0", "--to", two, "--wait").exit_code == 0
    builder = RecordBatchBuilder()
    builder.append(0, b"key", b"v" * 50_000)
    log = manager.get(partition)
    assert log is not None
    log.append_as_leader(builder.build())
    manager.futures.pace.bytes_per_second = 1.0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, "move", "other-0", "--to", one, "--wait")
        while not manager.futures.is_moving(partition):
            time.sleep(0.01)
        manager.table.fail_dir(Path(two), OSError(5, "gone"))
        result = waiting.result()
    assert (result.exit_code, "1 of 1 partitions cannot be moved" in result.stderr) == (1, True)
    result = run("describe")
    assert f"3\t{two}\t-\t-\t-\t-\tKAFKA_STORAGE_ERROR" in result.stdout.splitlines()
    shown = json.loads(run("describe", "--json").stdout)["brokers"][0]["logDirs"]
    assert {each["logDir"]: each["error"] for each in shown} == {one: None, two: "KAFKA_STORAGE_ERROR"}
    result = run("move", "t-0", "--to", two)
    assert result.exit_code == 1
    assert run("move", "t-0", "--to", one).exit_code == 0
