"""The group coordinator in a broker of its own: offset commits per second with their CPU, and a mass join.

    .venv/bin/python perf/groups_bench.py [bootstrap]

Without an address a kafkapy broker is started, and its CPU time is shown too; with one (Apache Kafka, say) only what a
client sees. Raw sockets and prepared frames, so that the client is not what is measured.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from typing import Any

from kafkapy.protocol.header import decode_response, encode_request
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest
from kafkapy.protocol.schema import Request
from kafkapy.testing.broker_process import BrokerProcess

TOPIC = "groups-bench"
COMMITS = 20_000
MEMBERS = 1_000
REBALANCE_IN_PROGRESS = 27


class Connection:
    """One connection, one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.correlation = 0

    async def open(self) -> Connection:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self

    def frame(self, request: Request, version: int) -> bytes:
        self.correlation += 1
        body = encode_request(request.API_KEY, version, self.correlation, "bench", request)
        return struct.pack(">i", len(body)) + body

    async def exchange(self, frame: bytes) -> bytes:
        self.writer.write(frame)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def __call__(self, request: Request, version: int) -> Any:
        return decode_response(request.API_KEY, version, await self.exchange(self.frame(request, version)))[1]


def commit_of(group: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=5, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequest.Topic(name=TOPIC, partitions=[partition])])


async def prepare(client: Connection) -> None:
    """The topic, and every partition of __consumer_offsets loaded."""
    topic = CreateTopicsRequest.Topic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    await client(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)
    for number in range(200):
        while True:
            await client(FindCoordinatorRequest(key=f"g{number}", key_type=0), 1)
            answer = await client(commit_of(f"g{number}"), 8)
            if answer.topics[0].partitions[0].error_code == 0:
                break
            await asyncio.sleep(0.02)


async def commits(host: str, port: int, connections: int) -> float:
    """Seconds that COMMITS commits took, each connection for a group of its own with one commit under way."""
    clients = [await Connection(host, port).open() for _ in range(connections)]

    async def work(number: int, client: Connection) -> None:
        frame = client.frame(commit_of(f"g{number}"), 8)
        for _ in range(COMMITS // connections):
            await client.exchange(frame)

    started = time.perf_counter()
    await asyncio.gather(*(work(number, client) for number, client in enumerate(clients)))
    took = time.perf_counter() - started
    for client in clients:
        client.writer.close()
    return took


async def mass_join(host: str, port: int) -> tuple[float, int]:
    """Seconds until MEMBERS members that come at once all have their assignment, and the generation they are in."""
    clients = [await Connection(host, port).open() for _ in range(MEMBERS)]

    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="mass",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=bytes(60))],
        )

    async def member(client: Connection) -> int:
        member_id = (await client(join(""), 9)).member_id
        while True:
            joined = await client(join(member_id), 9)
            sync = SyncGroupRequest(
                group_id="mass",
                generation_id=joined.generation_id,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequest.Assignment(member_id=each.member_id, assignment=bytes(50))
                    for each in joined.members
                ],
            )
            error = (await client(sync, 5)).error_code
            if error == 0:
                return int(joined.generation_id)
            if error != REBALANCE_IN_PROGRESS:
                raise RuntimeError(f"SyncGroup is answered with error {error}")

    started = time.perf_counter()
    generations = await asyncio.gather(*(member(client) for client in clients))
    return time.perf_counter() - started, max(generations)


async def measure(host: str, port: int, broker: BrokerProcess | None) -> None:
    def cpu() -> float:
        return 0.0 if broker is None else broker.cpu_seconds()

    await prepare(await Connection(host, port).open())
    for connections in (1, 50, 200):
        before = cpu()
        took = await commits(host, port, connections)
        used = f", {(cpu() - before) / COMMITS * 1e6:.0f} us of the broker's CPU each" if broker else ""
        print(f"offset commits, {connections} connections: {COMMITS / took:.0f}/s{used}")
    before = cpu()
    took, generation = await mass_join(host, port)
    used = f", {cpu() - before:.2f} s of the broker's CPU" if broker else ""
    print(f"{MEMBERS} members that join at once are settled after {took:.2f} s in generation {generation}{used}")


def main() -> None:
    if len(sys.argv) > 1:
        host, _, port = sys.argv[1].rpartition(":")
        asyncio.run(measure(host, int(port), None))
        return
    with BrokerProcess() as broker:
        asyncio.run(measure("127.0.0.1", broker.port, broker))


if __name__ == "__main__":
    main()
