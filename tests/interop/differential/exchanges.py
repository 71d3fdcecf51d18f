"""The same requests to several brokers, and what of their answers must be equal.

A scenario is a function that talks to one Peer; every call has a label. The Peer keeps, under that label, what the
answer said once everything that differs between any two runs of the same broker (ids, ports, the time of an append)
is taken out. Two recordings are compared label by label, field by field.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from fuzz.frames import served_versions
from system.raw_client import RawClient

from kafkapy.protocol.header import decode_response
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import ZERO_UUID, EncodeError, Request, Struct
from kafkapy.records.batches import iter_batches
from kafkapy.records.legacy import decode_message_set

CLOSED = "the connection was closed"
SILENT = "no answer"
CONVERTED_BELOW = 4

# What differs between two runs of one broker: only its shape is kept.
_WITHOUT_VALUE = {"throttle_time_ms", "port", "cluster_id", "total_bytes", "usable_bytes", "log_dir", "last_timestamp"}
# Every broker has words of its own for an error; that there are words at all is what counts.
_WORDS = {"error_message", "batch_index_error_message", "documentation"}
# Neither protocol nor broker promises an order of these: the fields that identify an element.
_KEYS = (
    "name", "topic", "partition_index", "index", "partition", "api_key", "resource_type", "resource_name", "error_code",
    "entity_type", "key",
)  # fmt: skip


def plain(value: Any, name: str = "", version: int | None = None) -> Any:
    """A message as dictionaries and lists that two brokers can be compared by."""
    if isinstance(value, Struct):
        fields = type(value)._fields
        return {f.name: plain(getattr(value, f.name), f.name, version) for f in fields if _carried(f, version)}
    if isinstance(value, list):
        made = [plain(each, name, version) for each in value]
        if made and isinstance(made[0], dict) and name not in ("synonyms", "record_errors"):
            made.sort(key=lambda each: [str(each[key]) for key in _KEYS if key in each])
        return made
    if name == "records":
        return [] if value is None else batches(value, version)
    if name in _WITHOUT_VALUE:
        return "*"
    if name in _WORDS:
        return "words" if value else None
    if isinstance(value, UUID):
        return "no id" if value == ZERO_UUID else "id"
    if name in ("producer_id", "session_id", "log_append_time_ms"):
        return value if value <= 0 else "set"
    return value


def without_offsets(value: Any) -> Any:
    """The same, with nothing said of an offset but whether there is one."""
    if isinstance(value, list):
        return [without_offsets(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: ("set" if each >= 0 else each) if name == "base_offset" else without_offsets(each)
        for name, each in value.items()
    }


def _carried(declared: Any, version: int | None) -> bool:
    return version is None or version in declared.versions


def batches(data: Any, version: int | None = None) -> Any:
    """What a consumer can see of record batches; the number of bytes where the last one is cut off.

    Of message sets, which a Fetch before version 4 brings, only what whole messages say: the rest is filled up at will.
    """
    if version is not None and version < CONVERTED_BELOW:
        try:
            return [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in decode_message_set(data)]
        except Exception as error:  # whatever it is, it is a difference to be seen
            return type(error).__name__
    seen, size = [], len(data)
    try:
        for batch in iter_batches(data):
            seen.append({each: getattr(batch, each) for each in ("base_offset", "last_offset", "magic", "codec")})
            size -= batch.size
    except Exception as error:  # whatever it is, it is a difference to be seen
        return [*seen, type(error).__name__]
    return [*seen, f"{size} bytes more"] if size else seen


@dataclass
class Peer:
    """One running broker and what it answered. Used by one test at a time."""

    name: str
    bootstrap: str
    serves: dict[int, tuple[int, int]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    with_offsets: bool = True
    """Whether offsets count; not where a batch that only one broker takes moves all that follow."""

    def __post_init__(self) -> None:
        self.serves = self.serves or served_versions(self.bootstrap)
        self._connection: RawClient | None = None
        self._prefix = ""

    @property
    def is_apache(self) -> bool:
        return self.name != "kafkapy"

    def scope(self, prefix: str) -> None:
        """What the following labels start with."""
        self._prefix = prefix

    def can(self, key: int, version: int) -> bool:
        low, high = self.serves.get(key, (0, -1))
        return low <= version <= high

    def newest(self, key: int, below: int = 1000) -> int:
        """The newest version served, at most `below`."""
        return min(self.serves[key][1], below)

    def call(self, label: str, request: Request, version: int) -> Any:
        """Sends, records and returns the answer; None where there was none, or the version cannot carry the request."""
        if not self.can(request.API_KEY, version):
            return None
        try:
            frame = self.connection.encode(request, version)
        except EncodeError:
            return None
        answer = self._exchange(frame, request, version)
        seen = plain(answer, version=version) if isinstance(answer, Struct) else answer
        self._record(label, seen if self.with_offsets else without_offsets(seen))
        return answer if isinstance(answer, Struct) else None

    def send_bytes(self, label: str, frame: bytes) -> None:
        """Sends a frame that is no valid request, on a connection of its own, and records whether it was answered."""
        client = RawClient(self.bootstrap)
        client.socket.settimeout(5)
        try:
            client.socket.sendall(frame)
            answer = client.receive_frame()
            self._record(label, "an answer" if answer else CLOSED)
        except TimeoutError:
            self._record(label, SILENT)
        except OSError:
            self._record(label, CLOSED)
        finally:
            client.close()

    def note(self, label: str, value: Any) -> None:
        """Records something that is not an answer as such."""
        self._record(label, value)

    @property
    def connection(self) -> RawClient:
        """The connection in use; a new one after the broker closed the last."""
        if self._connection is None:
            self._connection = RawClient(self.bootstrap)
            self._connection.socket.settimeout(10)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def setup(self, request: Request, version: int) -> Any:
        """A call that prepares a scenario, in a version that all brokers serve; nothing is recorded."""
        return self.connection.call(request, version)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        """A topic that is there when this returns; config keys are written with underscores for dots."""
        Topic = CreateTopicsRequest.Topic
        pairs = [Topic.Config(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = Topic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=pairs)
        result = self.setup(CreateTopicsRequest(topics=[topic]), 7).topics[0]
        assert result.error_code == 0, f"{self.name}: {name}: {result.error_message}"
        topic_id: UUID = result.topic_id
        self.wait_for_topic(name)
        return topic_id

    def wait_for_topic(self, name: str) -> None:
        """Until the broker leads the topic: with KRaft that is a moment after the controller said that it is there."""
        ask = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)
        Topic = ListOffsetsRequest.Topic
        for _ in range(2_000):
            partitions = self.setup(ask, 8).topics[0].partitions
            asked = [Topic.Partition(partition_index=each.partition_index, timestamp=-1) for each in partitions]
            latest = ListOffsetsRequest(replica_id=-1, topics=[Topic(name=name, partitions=asked)])
            found = self.setup(latest, 5).topics if asked else []
            if found and all(each.error_code == 0 and each.leader_epoch >= 0 for each in found[0].partitions):
                return
            time.sleep(0.005)
        raise AssertionError(f"{self.name}: {name} did not come up")

    def produce(self, topic: str, records: bytes, partition: int = 0) -> int:
        """Appends and returns the base offset."""
        entry = ProduceRequest.Topic.Partition(index=partition, records=records)
        data = [ProduceRequest.Topic(name=topic, partition_data=[entry])]
        answer = self.setup(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data), 9)
        result = answer.responses[0].partition_responses[0]
        assert result.error_code == 0, f"{self.name}: {result}"
        return int(result.base_offset)

    def producer_id(self) -> int:
        """A fresh producer id, epoch 0."""
        for _ in range(2_000):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = self.setup(request, 4)
            if answer.error_code == 0:
                return int(answer.producer_id)
            time.sleep(0.005)
        raise AssertionError(f"{self.name}: no producer id")

    def _record(self, label: str, value: Any) -> None:
        full = f"{self._prefix} {label}"
        assert full not in self.answers, f"label used twice: {full}"
        self.answers[full] = value

    def _exchange(self, frame: bytes, request: Request, version: int) -> Any:
        try:
            self.connection.socket.sendall(frame)
            if isinstance(request, ProduceRequest) and request.acks == 0:
                return self._after_acks_0()
            answer = self.connection.receive_frame()
        except TimeoutError:
            self.close()
            return SILENT
        except OSError:
            answer = b""
        if not answer:
            self.close()
            return CLOSED
        return decode_response(request.API_KEY, version, answer)[1]

    def _after_acks_0(self) -> str:
        """A produce with acks=0 has no answer: whether the connection lives on is what can be seen."""
        try:
            self.connection.send(ApiVersionsRequest(), 0)
            if self.connection.receive_frame():
                return SILENT
        except OSError:
            pass
        self.close()
        return CLOSED


Scenario = Callable[[Peer, int], None]
SCENARIOS: list[tuple[str, int, Scenario]] = []


def scenario(key: int) -> Callable[[Scenario], Scenario]:
    """Registers a scenario that is run in every version of that API."""

    def register(function: Scenario) -> Scenario:
        SCENARIOS.append((function.__name__, key, function))
        return function

    return register


def run(peer: Peer, name: str, key: int, function: Scenario, version: int) -> dict[str, Any]:
    """The recording of one scenario in one version, and nothing where the broker does not serve that version."""
    if not peer.can(key, version):
        return {}
    peer.answers = {}
    peer.with_offsets = True
    peer.scope(f"{ApiKeys(key).name} v{version} {name}:")
    function(peer, version)
    return peer.answers


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Every field in which two recordings differ, one line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in itertools.chain(ours, (key for key in theirs if key not in ours)):
            here = f"{path}.{key}" if path else str(key)
            if key not in theirs:
                yield f"{here}: only ours: {short(ours[key])}"
            elif key not in ours:
                yield f"{here}: only theirs: {short(theirs[key])}"
            else:
                yield from differences(ours[key], theirs[key], here)
    elif isinstance(ours, list) and isinstance(theirs, list):
        by_name, others_by_name = named(ours), named(theirs)
        if by_name and others_by_name:
            yield from differences(by_name, others_by_name, path)
        elif len(ours) == len(theirs):
            for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from differences(one, other, f"{path}[{number}]")
        else:
            yield f"{path}: {len(ours)} elements {short(ours)}, theirs {len(theirs)} {short(theirs)}"
    elif ours != theirs:
        yield f"{path}: {short(ours)}, theirs {short(theirs)}"


def named(values: list[Any]) -> dict[str, Any] | None:
    """A list whose elements have names that identify them, by name."""
    if not values or not all(isinstance(each, dict) and "name" in each for each in values):
        return None
    made = {f"<{each['name']}>": each for each in values}
    return made if len(made) == len(values) else None


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 240 else text[:240] + "..."


def size_frame(size: int, body: bytes = b"") -> bytes:
    """A frame whose size field says something else than its length."""
    return struct.pack(">i", size) + body
