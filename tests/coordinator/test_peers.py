"""Requests to other brokers over an InterBrokerSender."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkapy.coordinator.peers import SenderPeers
from kafkapy.errors import KafkaConnectionError, NetworkExceptionError
from kafkapy.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

REQUEST = WriteTxnMarkersRequest(markers=[])


class Sender:
    """An InterBrokerSender with an answer for each broker: a value, an error, or nothing until `go`."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.go = asyncio.Event()
        self.closed = False

    async def send(self, broker_id: int, request: Any, *, timeout_ms: int | None = None, version: Any = None) -> Any:
        answer = self.answers.get(f"b{broker_id}")
        if answer is None:
            await self.go.wait()
            return "late"
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed = True


def test_an_answer_and_an_error_arrive() -> None:
    async def run() -> None:
        sender = Sender(b1="fine", b2=KafkaConnectionError("away"), b3=RuntimeError("a defect"))
        peers = SenderPeers(lambda: sender)
        assert await peers.send(1, REQUEST, 1000).wait() == "fine"
        with pytest.raises(KafkaConnectionError):
            await peers.send(2, REQUEST, 1000).wait()
        with pytest.raises(NetworkExceptionError):
            await peers.send(3, REQUEST, 1000).wait()
        assert peers.brokers == set()
        await peers.close()
        assert sender.closed

    asyncio.run(run())


def test_nothing_waits_for_a_broker_that_has_gone() -> None:
    async def run() -> None:
        sender = Sender()
        peers = SenderPeers(lambda: sender)
        gone, other = peers.send(1, REQUEST, 1000), peers.send(2, REQUEST, 1000)
        await asyncio.sleep(0)
        assert peers.brokers == {1, 2}
        peers.disconnect(1)
        with pytest.raises(NetworkExceptionError):
            await gone.wait()
        sender.go.set()
        assert await other.wait() == "late"
        last = peers.send(3, REQUEST, 1000)
        sender.go.clear()
        await peers.close()
        assert last.done

    asyncio.run(run())


def test_no_connection_is_made_before_the_first_request() -> None:
    async def run() -> None:
        made: list[Sender] = []

        def connect() -> Sender:
            made.append(Sender(b1="fine"))
            return made[-1]

        peers = SenderPeers(connect)
        await peers.close()
        assert made == []
        assert await peers.send(1, REQUEST, 1000).wait() == "fine"
        await peers.send(1, REQUEST, 1000).wait()
        assert len(made) == 1

    asyncio.run(run())
