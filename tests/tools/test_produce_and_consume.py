"""kafkapy produce and consume: what goes in comes out, in every format and from every place."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clients.admin.members import eventually
from confluent_kafka import Producer
from tools.conftest import CommandLine

from kafkapy import KafkaConsumer
from kafkapy.admin import KafkaAdminClient
from kafkapy.testing.broker import Broker
from kafkapy.tools import consume
from kafkapy.tools.record_format import FormatError, as_json_line, compile_format, from_json_line, unescape
from kafkapy.types import TopicPartition

Name = Callable[[], str]


def test_lines_come_out_as_they_went_in(kafkapy: CommandLine, topic: str) -> None:
    lines = b"".join(b"line %d\n" % each for each in range(2000))
    assert kafkapy.done("produce", topic, "-p", "0", stdin=lines) == ""
    assert kafkapy("consume", topic).stdout_bytes == lines
    assert kafkapy("consume", f"{topic}:0", "-c", "3").stdout_bytes == b"line 0\nline 1\nline 2\n"
    assert kafkapy("consume", f"{topic}:1").stdout_bytes == b""


def test_the_last_line_needs_no_delimiter_and_empty_lines_are_records(kafkapy: CommandLine, topic: str) -> None:
    kafkapy.done("produce", topic, "-p", "0", stdin=b"a\n\nb")
    assert kafkapy.done("consume", topic, "-f", "[%s]") == "[a][][b]"
    kafkapy.done("produce", topic, "-p", "1", "-D", ";;", stdin=b"a\n;;b;;")
    assert kafkapy.done("consume", f"{topic}:1", "-f", "[%s]") == "[a\n][b]"


def test_keys_headers_partitions_and_compression(kafkapy: CommandLine, topic: str) -> None:
    arguments = ("produce", topic, "-K", ":", "-H", "source=test", "-H", "empty=", "-p", "1", "-z", "lz4")
    kafkapy.done(*arguments, stdin=b"k1:v1\n:v2\nk3:a:b\n")
    text = kafkapy.done("consume", topic, "-f", r"%t/%p/%o %k(%K)=%s(%S) {%h}\n")
    assert text.splitlines() == [
        f"{topic}/1/0 k1(2)=v1(2) {{source=test,empty=}}",
        f"{topic}/1/1 (0)=v2(2) {{source=test,empty=}}",
        f"{topic}/1/2 k3(2)=a:b(3) {{source=test,empty=}}",
    ]


def test_null_keys_and_values(kafkapy: CommandLine, topic: str) -> None:
    kafkapy.done("produce", topic, "-K", ":", "-Z", "-p", "0", stdin=b"k1:\n:v2\n")
    kafkapy.done("produce", topic, "-k", "fixed", "-p", "0", stdin=b"v3\n")
    text = kafkapy.done("consume", topic, "-Z", "NULL", "-f", r"%k=%s %K %S\n")
    assert text == "k1=NULL 2 -1\nNULL=v2 -1 2\nfixed=v3 5 2\n"


def test_json_goes_round(kafkapy: CommandLine, topic: str, broker: Broker, name: Name) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    headers = [("a", b"x"), ("a", None), ("bin", b"\xff\x00")]
    producer.produce(topic, "Grüße".encode(), b"\xfe\xff", partition=1, timestamp=1234, headers=headers)
    producer.produce(topic, None, "ключ", partition=1, timestamp=1235)
    assert producer.flush(20) == 0
    lines = kafkapy.done("consume", topic, "--json").splitlines()
    assert json.loads(lines[0]) == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 1234,
        "key": {"base64": "/v8="},
        "value": "Grüße",
        "headers": [["a", "x"], ["a", None], ["bin", {"base64": "/wA="}]],
    }
    assert json.loads(lines[1])["value"] is None
    copy = name()
    kafkapy.done("topics", "create", copy, "-p", "2")
    kafkapy.done("produce", copy, "--json", stdin="\n".join(lines).encode())
    copied = kafkapy.done("consume", copy, "--json").splitlines()
    assert [line.replace(copy, topic) for line in copied] == lines


def test_files_are_lines_or_whole_values(kafkapy: CommandLine, topic: str, tmp_path: Path) -> None:
    one, two, out = tmp_path / "one", tmp_path / "two", tmp_path / "out"
    one.write_bytes(b"1\n2\n")
    two.write_bytes(b"3\n")
    kafkapy.done("produce", topic, str(one), str(two), "-p", "0")
    kafkapy.done("consume", topic, "--output", str(out))
    assert out.read_bytes() == b"1\n2\n3\n"
    kafkapy.done("produce", topic, "--whole", str(one), str(two), "-p", "1")
    assert kafkapy.done("consume", f"{topic}:1", "-f", "[%s]") == "[1\n2\n][3\n]"


def test_places_to_begin_and_to_end(kafkapy: CommandLine, topic: str, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for each in range(10):
        producer.produce(topic, str(each), partition=0, timestamp=1_000_000 + each * 1000)
    assert producer.flush(20) == 0

    def consumed(*arguments: str) -> str:
        return kafkapy.done("consume", topic, "-f", "%s", *arguments)

    assert consumed("--from", "7") == "789"
    assert consumed("--from", "-2") == "89"
    assert consumed("--from", "end") == ""
    assert consumed("--until", "3") == "012"
    assert consumed("--from", "2", "--until", "-4") == "2345"
    assert consumed("--from", "@1004000") == "456789"
    assert consumed("--from", "@1970-01-01T00:16:44+00:00", "--until", "@1006500") == "456"
    assert consumed("--from", "99") == ""
    assert consumed("--from", "1", "-c", "4") == "1234"


def test_open_and_aborted_transactions_are_left_out(
    kafkapy: CommandLine, topic: str, broker: Broker, name: Name
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name()})
    producer.init_transactions(30)
    for value, ends in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(20)
        if ends:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(20)
    assert kafkapy.done("consume", topic, "-f", "%s,", "--committed") == "a,c,"
    assert kafkapy.done("consume", topic, "-f", "%s,") == "a,b,c,open,"
    producer.abort_transaction(20)


def test_a_group_goes_on_where_it_was(kafkapy: CommandLine, topic: str, admin: KafkaAdminClient, name: Name) -> None:
    group = name()
    kafkapy.done("produce", topic, "-p", "0", stdin=b"a\nb\nc\nd\n")
    assert kafkapy.done("consume", topic, "-G", group, "-c", "3", "-f", "%s") == "abc"
    assert admin.list_group_offsets(group)[group][TopicPartition(topic, 0)].offset == 3
    assert kafkapy.done("consume", topic, "-G", group, "-f", "%s") == "d"
    assert kafkapy.done("consume", topic, "-G", group) == ""
    assert kafkapy.done("consume", topic, "-G", name(), "--from", "end") == ""


def test_a_group_commits_only_what_was_printed(
    kafkapy: CommandLine, topic: str, admin: KafkaAdminClient, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends are those of the beginning; a poll may give records that came later, which nobody printed."""
    kafkapy.done("produce", topic, "-p", "0", stdin=b"a\nb\n")
    real = KafkaConsumer.end_offsets

    def ends_before_the_last_record(consumer: KafkaConsumer, partitions: list[TopicPartition]) -> dict[object, int]:
        ends = real(consumer, partitions)
        return {partition: max(0, end - 1) for partition, end in ends.items()}

    group = name()
    with monkeypatch.context() as patch:
        patch.setattr(KafkaConsumer, "end_offsets", ends_before_the_last_record)
        assert kafkapy.done("consume", topic, "-G", group, "-f", "%s") == "a"
    assert admin.list_group_offsets(group)[group][TopicPartition(topic, 0)].offset == 1
    assert kafkapy.done("consume", topic, "-G", group, "-f", "%s") == "b"


def test_a_member_that_follows_commits_what_it_has_printed(
    kafkapy: CommandLine, topic: str, admin: KafkaAdminClient, name: Name
) -> None:
    group = name()
    kafkapy.done("produce", topic, "-p", "0", stdin=b"a\nb\n")
    command = [sys.executable, "-m", "kafkapy.tools.cli", "consume", topic, "-F", "-G", group, "-b", kafkapy.bootstrap]
    follower = subprocess.Popen(
        [*command, "-X", "auto.commit.interval.ms=100"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert follower.stdout is not None
        assert [follower.stdout.readline(), follower.stdout.readline()] == [b"a\n", b"b\n"]
        place = TopicPartition(topic, 0)
        eventually(lambda: place in (found := admin.list_group_offsets(group)[group]) and found[place].offset == 2)
        kafkapy.done("produce", topic, "-p", "0", stdin=b"c\n")
        assert follower.stdout.readline() == b"c\n"
        follower.send_signal(signal.SIGINT)
        _, error = follower.communicate(timeout=30)
    finally:
        follower.kill()
    assert (follower.returncode, error) == (0, b"")
    assert kafkapy.done("consume", topic, "-G", group) == ""


def test_what_was_written_when_ctrl_c_came_is_printed() -> None:
    """The signal comes when the records are out, and before anybody has noted that."""

    class Output(io.BytesIO):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1
            if self.flushed == 1:
                raise KeyboardInterrupt

    output, printed, place = Output(), dict[TopicPartition, int](), TopicPartition("t", 0)
    bar: Any = SimpleNamespace(advance=lambda count: None)
    consumer: Any = None
    with pytest.raises(KeyboardInterrupt):
        consume._copy(
            consumer, None, None, lambda record: b"c\n", output, bar, printed, {place: [SimpleNamespace(offset=4)]}
        )
    assert (output.getvalue(), output.flushed, printed) == (b"c\n", 2, {place: 5})


def test_a_file_of_nothing_is_empty(kafkapy: CommandLine, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    file.write_bytes(b"of yesterday")
    kafkapy.done("consume", topic, "--output", str(file))
    assert file.read_bytes() == b""


def test_new_records_are_followed_until_ctrl_c(kafkapy: CommandLine, topic: str) -> None:
    command = [sys.executable, "-m", "kafkapy.tools.cli", "consume", topic, "--follow", "-b", kafkapy.bootstrap]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert follower.stdout is not None
        for each in (b"one\n", b"two\n"):
            kafkapy.done("produce", topic, stdin=each)
            assert follower.stdout.readline() == each
        follower.send_signal(signal.SIGINT)
        out, error = follower.communicate(timeout=30)
    finally:
        follower.kill()
    assert (follower.returncode, out, error) == (0, b"", b"")


def test_a_slow_pipe_is_sent_line_by_line(kafkapy: CommandLine, topic: str) -> None:
    read, write = os.pipe()
    command = [sys.executable, "-m", "kafkapy.tools.cli", "produce", topic, "-b", kafkapy.bootstrap]
    with subprocess.Popen(command, stdin=read) as producer:
        os.close(read)
        os.write(write, b"first\n")
        eventually(lambda: kafkapy.done("consume", topic) == "first\n")
        os.write(write, b"second")
        os.close(write)
        assert producer.wait(30) == 0
    assert kafkapy.done("consume", topic, "-f", "%s,").count(",") == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("consume", "nowhere"), "The cluster has no topic nowhere. kafkapy topics list"),
        (("consume", "nowhere", "-G", "g"), "The cluster has no topic nowhere. kafkapy topics list"),
        (("consume", "{topic}:5"), "Topic {topic} has no partition 5: it has partitions 0 to 1."),
        (("produce", "nowhere"), "The cluster has no topic nowhere. kafkapy topics list"),
        (("produce", "{topic}", "-p", "2"), "Topic {topic} has no partition 2: it has partitions 0 to 1."),
        (("produce", "{topic}", "-K", "="), "Line 1 of stdin: no '=' separates a key from a value."),
        (("produce", "{topic}", "--json"), "Line 1 of stdin: it is not JSON"),
    ],
)
def test_errors_are_one_sentence(kafkapy: CommandLine, topic: str, arguments: tuple[str, ...], sentence: str) -> None:
    said = kafkapy.failure(*(each.replace("{topic}", topic) for each in arguments), stdin=b"{no\n")
    assert said.startswith(sentence.replace("{topic}", topic))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("consume", "t", "-f", "%x"), "'%x' is not a format: use %t %p %o %T %k %K %s %S %h %D or %%."),
        (("consume", "t", "-f", r"\q"), r"'\q' is not an escape: use \n \r \t \0 \\ or \xHH."),
        (("consume", "t", "-f", "%s", "--json"), "--json and --format exclude each other."),
        (("consume", "t", "--from", "noon"), "--from 'noon' is not a place: give beginning, end, an offset"),
        (("consume", "t", "--from", "@noon"), "--from 'noon' is not a time: give 2024-05-01T12:00:00"),
        (("consume", "t", "-F", "-u", "5"), "--follow and --until exclude each other."),
        (("consume", "t:0", "-G", "g"), "The group assigns partitions"),
        (("consume", "t", "-G", "g", "-o", "5"), "With --group, --from is beginning or end"),
        (("produce", "t", "-K", ":", "--json"), "--json, --whole and --key-delimiter exclude each other."),
        (("produce", "t", "-D", ""), "A delimiter cannot be empty."),
        (("produce", "t", "-H", "x"), "'x' is not NAME=VALUE."),
        (("produce", "t", "/no/file"), "Invalid value for '[FILE]...': File '/no/file' does not exist."),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    kafkapy: CommandLine, topic: str, arguments: tuple[str, ...], sentence: str
) -> None:
    command = [f"{topic}{each[1:]}" if each in ("t", "t:0") else each for each in arguments]
    assert kafkapy.failure(*command, code=2).startswith(sentence)


def test_a_broker_that_goes_is_one_sentence(name: Name) -> None:
    with Broker() as broker:
        line = CommandLine(broker.bootstrap_servers)
        line.done("topics", "create", "t")
        read, write = os.pipe()
        options = ["-b", broker.bootstrap_servers, "-X", "delivery.timeout.ms=3000", "-X", "request.timeout.ms=2000"]
        command = [sys.executable, "-m", "kafkapy.tools.cli", "produce", "t", "-X", "linger.ms=0", *options]
        producer = subprocess.Popen(command, stdin=read, stderr=subprocess.PIPE, text=True)
        os.close(read)
        os.write(write, b"first\n")
        eventually(lambda: line.done("consume", "t") == "first\n")
    os.write(write, b"second\n")
    threading.Timer(0.5, os.close, (write,)).start()
    _, error = producer.communicate(timeout=60)
    assert producer.returncode == 1
    (sentence,) = error.splitlines()
    assert sentence.startswith("Error: Not all of the first 2 records were sent: ")


RECORD = SimpleNamespace(
    topic="t", partition=3, offset=4, timestamp=5, key=b"k", value=None, headers=[("a", b"1"), ("b", None)]
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%t %p %o %T", b"t 3 4 5"),
        ("%k|%K|%s|%S", b"k|1|~|-1"),
        ("%h", b"a=1,b=~"),
        (r"100%% %k\t\x41\xff\0\\", b"100% k\tA\xff\0\\"),
        ("no sign", b"no sign"),
        ("%k", b"k"),
        ("é%k", "ék".encode()),
        ("", b""),
    ],
)
def test_formats(text: str, line: bytes) -> None:
    assert compile_format(text, b"~")(RECORD) == line


@pytest.mark.parametrize("text", ["%", "%q", "\\", "\\x4", "\\q", "a%"])
def test_formats_that_mean_nothing(text: str) -> None:
    with pytest.raises(FormatError):
        compile_format(text)


def test_json_lines_are_read_as_they_are_written() -> None:
    line = as_json_line(RECORD)
    assert line.endswith(b"\n")
    assert from_json_line(line) == {
        "key": b"k",
        "value": None,
        "partition": 3,
        "timestamp_ms": 5,
        "headers": [("a", b"1"), ("b", None)],
    }
    assert from_json_line(b'{"value": {"id": 7}, "headers": {"h": "x"}}') == {
        "key": None,
        "value": b'{"id":7}',
        "headers": [("h", b"x")],
    }
    for wrong in (b"[]", b'{"valeu": 1}', b'{"partition": "0"}', b'{"headers": [1]}', b'{"value": {"base64": "%"}}'):
        with pytest.raises(FormatError):
            from_json_line(wrong)
    assert unescape(r"\x00\xfe") == b"\0\xfe"
