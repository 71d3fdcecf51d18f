"""A client's token is fetched once, kept fresh, and fetched again after its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafkapy.clients.sasl.refresh import ClientToken, FreshToken, RefreshSettings, refresh_time_ms
from kafkapy.errors import KafkaConnectionError, SaslAuthenticationFailedError

NOW = 1_700_000_000_000
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("start", "expires", "chance", "after"),
    [
        (NOW, NOW + HOUR, 0.0, 0.8 * HOUR),
        (NOW, NOW + HOUR, 1.0, 0.85 * HOUR),
        (None, NOW + HOUR, 0.0, 0.8 * HOUR),
        # The share lies within the buffer before the end.
        (NOW, NOW + 1_000_000, 0.0, 700_000),
        # The share of the life is over already: the least period counts.
        (NOW - HOUR, NOW + 400_000, 0.0, 60_000),
        # Too short for period and buffer: the share of the rest.
        (NOW - HOUR, NOW + 300_000, 0.0, 240_000),
        (NOW, NOW + 10_000, 0.0, 8_000),
        (NOW, NOW, 0.0, 0),
        (NOW - HOUR, NOW - 1, 0.0, 10_000),
    ],
)
def test_the_time_of_a_refresh(start: int | None, expires: int, chance: float, after: float) -> None:
    token = ClientToken("t", expires, start)
    assert refresh_time_ms(token, NOW, RefreshSettings(), chance) - NOW == pytest.approx(after, abs=1)


def test_the_keys_of_a_client_set_the_time() -> None:
    config = {
        "sasl.login.refresh.window.factor": 0.5,
        "sasl.login.refresh.window.jitter": 0.0,
        "sasl.login.refresh.min.period.seconds": 0,
        "sasl.login.refresh.buffer.seconds": 0,
    }
    token = ClientToken("t", NOW + 100_000, NOW)
    assert refresh_time_ms(token, NOW, RefreshSettings.of(config), 1.0) == NOW + 50_000
    assert RefreshSettings.of({}) == RefreshSettings(0.8, 0.05, 60, 300)


class Source:
    """Tokens of an hour, with a clock that only the test moves."""

    def __init__(self) -> None:
        self.now = NOW
        self.asked: list[str] = []
        self.lifetime: int | None = HOUR
        self.errors: list[Exception] = []
        self.slept: list[float] = []
        self.woken = asyncio.Event()

    async def token(self, host: str) -> ClientToken:
        self.asked.append(host)
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        end = None if self.lifetime is None else self.now + self.lifetime
        return ClientToken(f"token{len(self.asked)}", end, self.now)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.woken.wait()
        self.woken.clear()
        self.now += int(seconds * 1000)

    async def wake(self) -> None:
        """End the pause, and wait for the next one."""
        number = len(self.slept)
        self.woken.set()
        while len(self.slept) == number:
            await asyncio.sleep(0)


def run(test: Callable[[Source, FreshToken], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        source = Source()
        settings = RefreshSettings(window_jitter=0.0)
        subject = FreshToken(source, settings, clock_ms=lambda: source.now, sleep=source.sleep)
        try:
            await test(source, subject)
        finally:
            await subject.close()
            await subject.close()

    asyncio.run(main())


def test_connections_share_a_token() -> None:
    async def test(source: Source, subject: FreshToken) -> None:
        found = await asyncio.gather(*(subject.get(f"host{number}") for number in range(10)))
        assert {token.value for token in found} == {"token1"}
        assert source.asked == ["host0"]

    run(test)


def test_a_token_is_refreshed_before_it_ends() -> None:
    async def test(source: Source, subject: FreshToken) -> None:
        await subject.get("host")
        await asyncio.sleep(0)
        assert source.slept == [0.8 * HOUR / 1000]
        await source.wake()
        assert (await subject.get("host")).value == "token2"
        assert source.asked == ["host", "host"]

    run(test)


def test_a_failed_refresh_keeps_the_token_and_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def test(source: Source, subject: FreshToken) -> None:
        await subject.get("host")
        await asyncio.sleep(0)
        source.errors = [KafkaConnectionError("down"), SaslAuthenticationFailedError("no")]
        await source.wake()
        assert (await subject.get("host")).value == "token1"
        await source.wake()
        assert source.slept[1:] == [10.0, 10.0]
        await source.wake()
        assert (await subject.get("host")).value == "token4"

    run(test)
    assert "could not be refreshed" in caplog.text


def test_a_token_that_has_ended_is_not_used() -> None:
    async def test(source: Source, subject: FreshToken) -> None:
        await subject.get("host")
        source.now += HOUR
        assert (await subject.get("host")).value == "token2"

    run(test)


def test_a_token_without_a_known_end_is_fetched_for_each_login() -> None:
    async def test(source: Source, subject: FreshToken) -> None:
        source.lifetime = None
        assert [(await subject.get("host")).value for _ in range(3)] == ["token1", "token2", "token3"]
        assert source.slept == []

    run(test)


def test_refreshes_begin_again_after_a_token_without_a_known_end() -> None:
    async def test(source: Source, subject: FreshToken) -> None:
        await subject.get("host")
        await asyncio.sleep(0)
        source.lifetime = None
        source.woken.set()
        while subject._refreshes is not None:
            await asyncio.sleep(0)
        source.lifetime = HOUR
        assert (await subject.get("host")).value == "token3"
        assert subject._refreshes is not None

    run(test)


def test_an_expired_token_of_a_provider_is_an_error() -> None:
    async def test(source: Source, subject: FreshToken) -> None:
        source.lifetime = 0
        with pytest.raises(SaslAuthenticationFailedError, match="gave an expired token"):
            await subject.get("host")
        source.lifetime = HOUR
        assert (await subject.get("host")).value == "token2"

    run(test)


def test_an_error_of_the_first_token_is_the_logins() -> None:
    async def test(source: Source, subject: FreshToken) -> None:
        source.errors = [KafkaConnectionError("down")]
        with pytest.raises(KafkaConnectionError, match="down"):
            await subject.get("host")
        assert (await subject.get("host")).value == "token2"

    run(test)
