"""The instrument that measures brokers: it refuses wrong replies, counts right, and renders what it stored."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import client
import measure
import peers
import pytest
import report
from work import replicated
from work.session import Session

from kafkapy._speedups.records.record_batch import check_crc
from kafkapy.testing.broker_process import BrokerFailedError

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator is compiled with gcc"),
]

TOPIC = "t"
Answer = Callable[[bytes], bytes]


class FakeBroker:
    """Owns a listener and a thread for each connection; answers every frame with what `answer` makes of it."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader, contextlib.suppress(OSError):
            while len(size := reader.read(4)) == 4:
                connection.sendall(self.answer(reader.read(int.from_bytes(size, "big"))))


@pytest.fixture
def broker() -> Iterator[Callable[[Answer], int]]:
    """Starts fake brokers; gives the port."""
    running: list[FakeBroker] = []

    def start(answer: Answer) -> int:
        running.append(FakeBroker(answer))
        return running[-1].port

    yield start
    for each in running:
        each.listener.close()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class ProduceReplies:
    """Right answers to Produce version 7, with one field at a time made wrong."""

    def __init__(
        self, *, error: int = 0, correlation: int = 0, offset_step: int = 1, cut: int = 0, extra: bytes = b""
    ) -> None:
        self.error, self.correlation, self.offset_step, self.cut, self.extra = (
            error,
            correlation,
            offset_step,
            cut,
            extra,
        )
        self.offset = 0
        self.lock = threading.Lock()

    def __call__(self, frame: bytes) -> bytes:
        with self.lock:
            self.offset += self.offset_step
            offset = self.offset
        correlation = int.from_bytes(frame[4:8], "big") + self.correlation
        name = TOPIC.encode()
        body = struct.pack(">iih", correlation, 1, len(name)) + name
        body += struct.pack(">iihqqqi", 1, 0, self.error, offset, -1, 0, 0)
        return framed(body[: len(body) - self.cut]) + self.extra


def fetch_reply(frame: bytes, *, error: int = 0, shift: int = 0, records: bytes | None = None) -> bytes:
    """A right answer to the generator's Fetch version 11: one batch of one record at the offset asked for."""
    name_at = 10 + 4 + 4 + 4 + 4 + 4 + 1 + 4 + 4 + 4
    offset_at = name_at + 2 + len(TOPIC) + 4 + 4 + 4
    offset = int.from_bytes(frame[offset_at : offset_at + 8], "big") + shift
    if records is None:
        batch = bytearray(client.record_batch([b"x" * 40]))
        batch[0:8] = offset.to_bytes(8, "big")
        records = bytes(batch)
    name = TOPIC.encode()
    body = frame[4:8] + struct.pack(">ihii", 0, 0, 0, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iihqqqiii", 1, 0, error, 100, 100, 0, -1, -1, len(records)) + records
    return framed(body)


@pytest.fixture
def frame(tmp_path: Path) -> str:
    return client.write_frames(tmp_path, TOPIC, [client.record_batch([b"x" * 100])], 1)[0]


def produce(port: int, frame: str, **named: object) -> dict[str, object]:
    options = measure.options(**({"port": port, "topic": TOPIC, "seconds": 0.1, "connections": 2} | named))
    return measure.run_native("load", "produce", *options, frame, pinned=False)


def fetch(port: int, **named: object) -> dict[str, object]:
    options = measure.options(**({"port": port, "topic": TOPIC, "seconds": 0.1, "end_offset": 50} | named))
    return measure.run_native("load", "fetch", *options, pinned=False)


@pytest.mark.parametrize("poll", [0, 1])
def test_the_generator_counts_right_produce_replies(broker, frame, poll):
    replies = ProduceReplies()
    measured = produce(broker(replies), frame, poll=poll)
    assert measured["requests"] == replies.offset > 0
    assert measured["bytes"] == replies.offset * (Path(frame).stat().st_size + 4)
    assert measured["latency_us"]["count"] == measured["requests"]
    assert measured["load_cpu_s"] > 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"error": 6}, "produce error code (6)"),
        ({"error": -1}, "produce error code (-1)"),
        ({"correlation": 1}, "wrong correlation id"),
        ({"offset_step": 0}, "base offset does not rise"),
        ({"cut": 30}, "short produce reply"),
        ({"extra": b"junk"}, "bytes after the reply"),
    ],
)
def test_the_generator_refuses_wrong_produce_replies(broker, frame, wrong, said):
    with pytest.raises(measure.LoadError) as refused:
        produce(broker(ProduceReplies(**wrong)), frame)
    assert said in str(refused.value)


def test_a_wrong_reply_ends_the_generator_with_exit_code_1(broker, frame):
    port = broker(ProduceReplies(error=3))
    command = [str(measure.native("load")), "produce", "--port", str(port), "--seconds", "0.1", frame]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "")


def test_a_closed_connection_is_an_error(broker, frame):
    def gone(_: bytes) -> bytes:
        raise ConnectionResetError

    with pytest.raises(measure.LoadError, match="closed the connection"):
        produce(broker(gone), frame)


def test_the_generator_reads_on_from_batch_to_batch(broker):
    asked: list[int] = []

    def answer(request: bytes) -> bytes:
        reply = fetch_reply(request)
        asked.append(int.from_bytes(request[-26:-18], "big"))
        return reply

    measured = fetch(broker(answer))
    assert measured["requests"] == len(asked) > 50
    assert asked[:60] == [i % 50 for i in range(60)]


@pytest.mark.parametrize("whole", [1, 4])
def test_the_generator_may_throw_most_of_most_replies_away(broker, whole):
    """Replies of eight batches and a part of another; what is thrown away is counted and skipped as if it were read."""
    asked: list[int] = []
    made = [bytearray(client.record_batch([b"x" * 400] * 3)) for _ in range(9)]

    def answer(request: bytes) -> bytes:
        asked.append(int.from_bytes(request[-26:-18], "big"))
        for number, batch in enumerate(made):
            batch[0:8] = (asked[-1] + 3 * number).to_bytes(8, "big")
        return fetch_reply(request, records=b"".join(made)[:-100])

    measured = fetch(broker(answer), whole=whole, end_offset=240)
    assert measured["requests"] == len(asked) > 20
    assert asked[:20] == [24 * (i % 10) for i in range(20)]
    assert measured["bytes"] == len(asked) * 8 * len(made[0])


@pytest.mark.parametrize("whole", [1, 1000])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"error": 1}, "fetch partition error code (1)"),
        ({"shift": 1}, "a batch that was not asked for"),
        ({"records": b""}, "fetch brought nothing"),
        ({"records": bytes(30)}, "fetch brought nothing"),
    ],
)
def test_the_generator_refuses_wrong_fetch_replies(broker, wrong, said, whole):
    asked: list[int] = []

    def answer(request: bytes) -> bytes:
        asked.append(0)
        return fetch_reply(request, **(wrong if len(asked) > 6 else {}))

    with pytest.raises(measure.LoadError) as refused:
        fetch(broker(answer), whole=whole)
    assert said in str(refused.value)


def test_the_tailing_consumer_gets_all_that_was_produced(broker, tmp_path):
    """A log in memory behind both requests; the stamps are covered by the CRC."""
    log: list[bytes] = []
    arrived = threading.Condition()

    def answer(request: bytes) -> bytes:
        if request[1] == 0:
            batch_at = request.index(b"KAFKAPY!") - batch.index(b"KAFKAPY!")
            stored = bytearray(request[batch_at:])
            with arrived:
                stored[0:8] = len(log).to_bytes(8, "big")
                log.append(bytes(stored))
                arrived.notify_all()
                replies = ProduceReplies()
                replies.offset = len(log) - 2
            return replies(request)
        offset = int.from_bytes(request[-26:-18], "big")
        with arrived:
            arrived.wait_for(lambda: len(log) > offset, timeout=0.05)
            return fetch_reply(request, records=b"".join(log[offset:]))

    batch = client.record_batch([b"KAFKAPY!" + bytes(8) + b"x" * 100])
    frame = client.write_frames(tmp_path, TOPIC, [batch], 1)[0]
    port = broker(answer)
    named = measure.options(port=port, topic=TOPIC, rate=200, seconds=0.3, connections=1)
    measured = measure.run_native("tail", *named, frame, pinned=False)
    assert measured["requests"] == measured["received"] == measured["end_to_end_us"]["count"] == len(log)
    for stored in log:
        assert check_crc(stored)


def test_a_broker_of_another_tree_has_the_code_of_that_tree(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    (tmp_path / "kafkapy").mkdir()
    (tmp_path / "kafkapy" / "__init__.py").write_text("raise SystemExit('the other tree')\n")
    monkeypatch.setenv(peers.OTHER_TREE, str(tmp_path))
    with pytest.raises(BrokerFailedError, match="the other tree"):
        peers.OTHER.make(tmp_path / "data", {}).start()


def test_the_others_stand_still_while_one_is_measured(tmp_path):
    def stands_still(process: subprocess.Popen[bytes]) -> bool:
        """Stopped, by its word in /proc; a stop arrives when the process runs next, so it may take a moment."""
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    brokers = {name: subprocess.Popen(["sleep", "60"]) for name in ("one", "other", "gone")}
    session = Session([], 1, True, tmp_path, pids={name: each.pid for name, each in brokers.items()})
    try:
        with pytest.raises(KeyError), session.alone("one"):
            deadline = time.monotonic() + 10
            while not stands_still(brokers["other"]):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert not stands_still(brokers["one"])
            brokers["gone"].kill()
            brokers["gone"].wait()
            raise KeyError
        assert not stands_still(brokers["other"])
    finally:
        for each in brokers.values():
            each.kill()
            each.wait()


def test_cores_are_kept_awake_as_long_as_pinned_brokers_run(tmp_path):
    def allowed_latency_us():
        with measure.CPU_LATENCY.open("rb") as current:
            return int.from_bytes(current.read(4), sys.byteorder)

    if not os.access(measure.CPU_LATENCY, os.W_OK) or len(measure.all_cores()) == 1:
        pytest.skip(f"needs {measure.CPU_LATENCY} and two cores")
    before = allowed_latency_us()
    assert before > 0
    session = Session([], 1, True, tmp_path)
    with session.running(pinned=True):
        assert allowed_latency_us() == 0
    assert allowed_latency_us() == before
    with session.running(pinned=False):
        assert allowed_latency_us() == before


def test_brokers_run_before_other_processes_where_the_system_allows_it(monkeypatch):
    asked = []

    def refused(*wanted):
        asked.append(wanted)
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refused)
    measure.run_before_others()
    assert asked == [(os.PRIO_PROCESS, 0, -15)]
    assert measure.machine()["nice"] == os.getpriority(os.PRIO_PROCESS, 0)


def test_cores_that_this_process_cannot_keep_awake_halt(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "CPU_LATENCY", tmp_path / "no" / "such device")
    with measure.kept_awake() as awake:
        assert not awake
    assert not measure.machine()["may_keep_cores_awake"]


def test_percentiles_are_nearest_ranks():
    rng = random.Random(3)
    values = sorted(int(rng.lognormvariate(12, 2)) + 1000 for _ in range(20_000))
    done = subprocess.run(
        [str(measure.native("load")), "percentiles"],
        input="\n".join(map(str, rng.sample(values, len(values)))), capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    found = json.loads(done.stdout)["latency_us"]
    assert found["count"] == len(values)
    assert found["max"] == pytest.approx(values[-1] / 1000, abs=0.1)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        assert found[name] == pytest.approx(values[int(share * len(values)) - 1] / 1000, rel=0.012, abs=0.15), name


def test_batches_have_exactly_the_size_asked_for():
    for size in (16 << 10, 64 << 10, 1 << 20):
        batch, records = client.batch_of_size(size, 1000, 1)
        assert len(batch) == size
        assert int.from_bytes(batch[57:61], "big") == records


def test_a_batch_that_differs_anywhere_but_in_broker_fields_is_noticed():
    sent = client.record_batch([b"value"])
    stored = bytearray(sent)
    stored[0:8], stored[12:16] = (7).to_bytes(8, "big"), (3).to_bytes(4, "big")
    assert client.same_batch(bytes(stored), sent)
    stored[-2] ^= 1
    assert not client.same_batch(bytes(stored), sent)


def test_cpu_and_memory_of_a_process_tree():
    child = "import time; x = bytearray(64 << 20); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{child}'])"
    parent = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while measure.rss_bytes(parent.pid) < 64 << 20 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(measure.process_tree(parent.pid)) == 2
        assert measure.rss_bytes(parent.pid) > 64 << 20
        assert measure.cpu_seconds(parent.pid) > 0
    finally:
        os.killpg(parent.pid, 9)
        parent.wait()
    before = measure.cpu_seconds(os.getpid())
    sum(range(200_000))
    assert measure.cpu_seconds(os.getpid()) > before


# --- the report -------------------------------------------------------------------------------------------------


def stored_results() -> dict[str, object]:
    def row(work: str, cell: str, peer: str, **metrics: list[float]) -> dict[str, object]:
        mode = "unpinned" if work in ("W5", "W6") else "pinned"
        return {"work": work, "cell": cell, "mode": mode, "peer": peer, "metrics": metrics}

    peers = [
        {"name": name, "title": title, "version": "1", "status": "measured", "why": ""}
        for name, title in (
            ("kafkapy", "kafkapy"),
            ("apache-3.9", "Apache Kafka 3.9.1"),
            ("apache-4.x", "Apache Kafka 4.4.0"),
        )
    ]
    peers.append(
        {"name": "redpanda", "title": "Redpanda", "version": "", "status": "missing", "why": "no <registry> has it"}
    )
    peers.append({"name": "limit", "title": "the machine's limit", "version": "C", "status": "measured", "why": ""})
    rows = []
    for cell, ours in (("64 KB, none", 0.5), ("1 MB, none", 0.7)):
        rows += [
            row("W1", cell, "kafkapy", cpu_s_per_gb=[ours, ours * 3, ours / 3], gb_per_s=[1.6]),
            row("W1", cell, "apache-3.9", cpu_s_per_gb=[1.0], gb_per_s=[0.9]),
            row("W1", cell, "apache-4.x", cpu_s_per_gb=[1.2], gb_per_s=[1.0]),
            row("W1", cell, "limit", cpu_s_per_gb=[0.5], gb_per_s=[2.0]),
        ]
    rows += [row("W6", "start", name, first_produce_s=[s]) for name, s in (("kafkapy", 0.2), ("apache-4.x", 3.0))]
    return {
        "runs": {"W1": run_on("2026-01-01 00:00"), "W6": run_on("2026-01-02 00:00")},
        "peers": peers,
        "work": {"W1": "produce", "W6": "start"},
        "elsewhere": {},
        "errors": ["W1 kafkapy: it broke"],
        "rows": rows,
    }


def run_on(date):
    return {
        "cpu": "a <CPU>", "cores": 2, "memory_gb": 8, "kernel": "6", "commit": "abc", "date": date,
        "rounds": 3, "smoke": False, "took_s": 90, "load_average_at_start": 0.1,
        "may_keep_cores_awake": date < "2026-01-02",
        "nice": -15 if date < "2026-01-02" else 0,
    }  # fmt: skip


def test_a_partial_run_takes_the_place_of_its_own_works_only():
    old = stored_results()
    new = json.loads(json.dumps(old)) | {"work": {"W1": "produce"}, "runs": {"W1": run_on("2026-02-02 00:00")}}
    new["rows"] = [row for row in new["rows"] if row["work"] == "W1" and row["peer"] in ("kafkapy", "limit")]
    new["errors"] = []
    for peer in new["peers"]:
        if peer["name"].startswith("apache"):
            peer |= {"version": "", "status": "left out", "why": "not asked for"}
    both = report.merged(old, new)
    again = report.merged(both | {"peers": [each | {"status": "missing"} for each in both["peers"]]}, new)
    assert {each["status"] for each in again["peers"] if each["name"] == "apache-3.9"} == {"missing"}
    assert {name: run["date"] for name, run in both["runs"].items()} == {
        "W1": "2026-02-02 00:00",
        "W6": "2026-01-02 00:00",
    }
    assert [row for row in both["rows"] if row["work"] == "W6"] == old["rows"][-2:]
    assert {row["peer"] for row in both["rows"] if row["work"] == "W1"} == {"kafkapy", "limit"}
    status = {peer["name"]: peer["status"] for peer in both["peers"]}
    assert (status["apache-3.9"], status["apache-4.x"]) == ("left out", "measured")
    assert both["errors"] == []


def test_works_stand_in_the_order_of_their_numbers():
    old = stored_results()
    old["work"] |= {"W10": "a cluster", "X": "others", "W2": "requests"}
    old["runs"] |= dict.fromkeys(("W10", "X", "W2"), run_on("2026-01-03 00:00"))
    assert list(report.merged(old, old)["work"]) == ["W1", "W2", "W6", "W10", "X"]


def test_floors_are_judged_by_the_worst_cell_against_the_best_apache():
    stored = json.loads(json.dumps(stored_results()))
    verdicts = {verdict.floor.title: verdict for verdict in report.verdicts(stored)}
    cpu = verdicts["W1 broker CPU, s/GB (none) vs best Apache Kafka"]
    assert cpu.ratios == {"64 KB, none": 0.5, "1 MB, none": 0.7}
    assert (cpu.worst, cpu.words) == (0.7, "MISS")
    limit = verdicts["W1 broker CPU, s/GB (none) vs the limit"]
    assert (limit.worst, limit.words) == (1.4, "MISS")
    assert verdicts["W6 start to first accepted produce, ms vs best Apache Kafka"].words == "pass"
    assert verdicts["W3 broker CPU, s/GB vs the limit"].words == "not measured"
    assert len({floor.title for floor in report.FLOORS}) == len(report.FLOORS)


@pytest.mark.parametrize(
    ("limit", "ahead", "behind"),
    [
        (2.0, {"64 KB, none": 1.6, "1 MB, none": 1.6}, {}),
        (1.5, {"64 KB, none": 1.6, "1 MB, none": 1.6}, {}),
        (1.25, {}, {"64 KB, none": 1.28, "1 MB, none": 1.28}),
    ],
)
def test_throughput_is_judged_by_the_limit_where_that_is_not_ahead_enough(limit, ahead, behind):
    stored = json.loads(json.dumps(stored_results()))
    for row in stored["rows"]:
        if row["work"] == "W1" and row["peer"] == "limit":
            row["metrics"]["gb_per_s"] = [limit]
    verdicts = {verdict.floor.title: verdict for verdict in report.verdicts(stored)}
    throughput = "W1 throughput, GB/s vs"
    assert verdicts[f"{throughput} best Apache Kafka, where the limit reaches 1.5"].ratios == ahead
    assert verdicts[f"{throughput} the limit, where it does not"].ratios == behind


def test_every_cell_of_the_limit_names_its_mode():
    stored = json.loads((Path(report.__file__).parents[1] / "docs" / "performance.json").read_text())
    cells = {(row["work"], row["cell"]) for row in stored["rows"] if row["peer"] == "limit"}
    assert cells and [cell for cell in cells if not report.limit_mode(*cell)] == []
    assert report.limit_mode("W7", "offset commits, 1 connection") == "offset commit"
    assert report.limit_mode("W7", "transactions, 1 producer") == ""
    assert report.limit_mode("W1", "1 MB, acks=1, 1 partition, lz4") == "Produce, decompressed"
    assert {report.limit_mode("W10", cell) for cell in (replicated.PRODUCE, replicated.PACED)} == {
        "leader, two followers"
    }
    assert report.limit_mode("W10", replicated.CATCH_UP) == "leader, follower"


def test_the_report_renders_from_stored_results(tmp_path):
    stored = tmp_path / "results.json"
    stored.write_text(json.dumps(stored_results()))
    report.write(json.loads(stored.read_text()), tmp_path)
    page = (tmp_path / "performance.md").read_text()
    for words in (
        "Redpanda |  | missing: no <registry> has it",
        "| W6 | 2026-01-02 00:00 | abc |",
        "Linux 6, pinned cores kept awake, nice -15",
        "Linux 6, idle cores halt",
        "it broke",
        "MISS",
        "not measured",
        "## Method",
        "| ÷ limit | limit's mode |",
        "| 0.50 | 1.00 | Produce |",
    ):
        assert words in page
    charts = sorted(path.name for path in (tmp_path / "performance").iterdir())
    assert charts == ["w1-cpu.svg", "w1-throughput.svg", "w6-start.svg"]
    for name in charts:
        assert f"(performance/{name})" in page
        drawn = ElementTree.fromstring((tmp_path / "performance" / name).read_text())
        bars = drawn.findall("{http://www.w3.org/2000/svg}rect")
        widths = [float(bar.get("width", "0")) for bar in bars if bar.get("height") != "11" or bar.get("x") == "320"]
        assert widths and max(widths) <= 480
    table = report.table(json.loads(stored.read_text()))
    assert "0.50 ±" not in table.splitlines()[0]
    assert "Redpanda: missing" in table


def test_the_readme_gets_what_was_measured_of_both(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.README_BEGIN}\nold\n{report.README_END}\nafter\n")
    report.write_readme(stored_results(), readme)
    first, *lines, last = readme.read_text().splitlines()
    assert (first, last) == ("before", "after")
    assert [line.split("|")[1].strip() for line in lines[3:-1]] == ["W1", "W1", "W6"]
    assert "| W1 | produce records of 1 KB: broker CPU, s/GB | 0.600 | 1.000 |" in lines
    readme.write_text("nothing to write between")
    with pytest.raises(ValueError, match="no place for the measured numbers"):
        report.write_readme(stored_results(), readme)


def test_the_readme_and_the_page_are_those_of_the_stored_report(tmp_path):
    root = Path(report.__file__).parents[1]
    stored = json.loads((root / "docs" / "performance.json").read_text())
    readme = tmp_path / "README.md"
    readme.write_text((root / "README.md").read_text())
    report.write_readme(stored, readme)
    assert readme.read_text() == (root / "README.md").read_text()
    (tmp_path / "performance-findings.md").write_text((root / "docs" / "performance-findings.md").read_text())
    report.write(stored, tmp_path)
    assert (tmp_path / "performance.md").read_text() == (root / "docs" / "performance.md").read_text()
