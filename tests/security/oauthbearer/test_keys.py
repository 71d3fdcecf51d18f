"""Key sets: bounds, the choice of a key, refreshes, and reads that unknown key ids cause."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from identity_provider import SigningKey, rsa_key

from kafkapy.security.oauthbearer.keys import (
    ALGORITHMS,
    FORCED_PAUSE_S,
    MISSING_S,
    MOST_CANDIDATES,
    MOST_DOCUMENT_BYTES,
    MOST_KEY_ID_LENGTH,
    MOST_KEYS,
    KeyCache,
    KeySet,
    KeySetError,
)
from kafkapy.security.oauthbearer.tokens import TokenError

FIRST, SECOND = SigningKey("first", private=rsa_key(0)), SigningKey("second", private=rsa_key(1))


def document(*keys: SigningKey | dict[str, Any]) -> bytes:
    return json.dumps({"keys": [key if isinstance(key, dict) else key.jwk() for key in keys]}).encode()


# --- documents ----------------------------------------------------------------------------------------------------


def test_a_document_has_keys() -> None:
    keys = KeySet.parse(document(FIRST, SECOND))
    assert (len(keys), keys.ids) == (2, {"first", "second"})
    assert keys.candidates("second", "RS256") == [1]
    assert keys.candidates("third", "RS256") == []


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"5", b"{}", b'{"keys":5}', b'{"keys":{}}', b"\xff", b"[" * 100_000, b'{"keys":' * 100_000],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(KeySetError):
        KeySet.parse(data)


def test_a_document_with_a_million_keys_is_refused() -> None:
    with pytest.raises(KeySetError, match=f"more than {MOST_DOCUMENT_BYTES}"):
        KeySet.parse(b'{"keys":[' + b",".join([b"{}"] * 1_000_000) + b"]}")
    with pytest.raises(KeySetError, match=f"has {MOST_KEYS + 1} keys"):
        KeySet.parse(b'{"keys":[' + b",".join([b"{}"] * (MOST_KEYS + 1)) + b"]}")
    assert len(KeySet.parse(b'{"keys":[' + b",".join([b"{}"] * MOST_KEYS) + b"]}")) == 0


def test_unknown_kinds_of_keys_are_left_out() -> None:
    keys = KeySet.parse(document({"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}, {"kty": "new"}, {}, FIRST))
    assert (len(keys), keys.ids) == (1, {"first"})


@pytest.mark.parametrize(
    "members",
    [
        {"use": "enc"},
        {"alg": "RS512"},
        {"alg": "HS256"},
        {"key_ops": ["sign"]},
        {"key_ops": "verify"},
        {"kty": "EC"},
    ],
)
def test_a_key_for_another_use_is_no_candidate(members: dict[str, Any]) -> None:
    assert KeySet.parse(document(FIRST.jwk(**members))).candidates("first", "RS256") == []


def test_a_curve_belongs_to_one_algorithm() -> None:
    key = SigningKey("curve", "ES256")
    jwk = key.jwk()
    del jwk["alg"]
    keys = KeySet.parse(document(jwk))
    assert keys.candidates("curve", "ES256") == [0]
    assert keys.candidates("curve", "ES384") == []
    assert keys.candidates("curve", "RS256") == []


def test_a_token_without_key_id_may_be_of_any_key_of_its_algorithm() -> None:
    keys = KeySet.parse(document(SigningKey("curve", "ES256"), FIRST, SECOND))
    assert keys.candidates(None, "RS256") == [1, 2]
    many = KeySet.parse(document(*[FIRST.jwk(kid=str(number)) for number in range(3 * MOST_CANDIDATES)]))
    assert len(many.candidates(None, "RS256")) == MOST_CANDIDATES


def test_a_private_key_in_the_document_is_not_used() -> None:
    from jwt.algorithms import RSAAlgorithm

    private = json.loads(RSAAlgorithm.to_jwk(FIRST.private))
    keys = KeySet.parse(document({**private, "kid": "first", "key_ops": ["verify"]}))
    header, payload, signature = FIRST.sign().split(".")
    from jwt.utils import base64url_decode

    assert keys.verify(0, "RS256", f"{header}.{payload}".encode(), base64url_decode(signature))


@pytest.mark.parametrize("members", [{"n": "AQ"}, {"n": None}, {"e": "AA"}, {"n": "!"}, {"n": 5}])
def test_an_invalid_key_is_refused_when_a_token_names_it(members: dict[str, Any]) -> None:
    keys = KeySet.parse(document(FIRST.jwk(**members)))
    assert keys.candidates("first", "RS256") == [0]
    with pytest.raises(TokenError, match="the key 'first' of the key set"):
        keys.verify(0, "RS256", b"", b"")


def test_a_short_rsa_key_is_refused() -> None:
    keys = KeySet.parse(document(SigningKey("short", private=rsa_key(0, 1024))))
    with pytest.raises(TokenError, match="has 1024 bits"):
        keys.verify(0, "RS256", b"", b"")


def test_no_algorithm_has_a_shared_secret() -> None:
    assert not [name for name in ALGORITHMS if name.startswith("HS") or name == "none"]


# --- the cache ----------------------------------------------------------------------------------------------------


class Source:
    """A document that changes, with a clock that only sleeps move."""

    def __init__(self, *keys: SigningKey) -> None:
        self.keys = keys
        self.reads = 0
        self.failures = 0
        """Reads that fail before the next good one."""
        self.now = 1000.0
        self.slept: list[float] = []
        self.interval: asyncio.Event | None = None
        """Ends the pause between two reads at intervals."""
        self.held: asyncio.Event | None = None
        """Ends the other pauses, when it is there."""

    def read(self) -> bytes:
        self.reads += 1
        if self.failures:
            self.failures -= 1
            raise KeySetError("out of order")
        return document(*self.keys)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if seconds > 100:
            self.interval = asyncio.Event()
            await self.interval.wait()
        elif self.held is not None:
            await self.held.wait()
        self.now += seconds

    def cache(self, **settings: int) -> KeyCache:
        every = {"refresh_ms": 3_600_000, "backoff_ms": 100, "backoff_max_ms": 1000, **settings}
        return KeyCache("test:keys", self.read, **every, clock=lambda: self.now, sleep=self.sleep)


def run(test: Callable[[KeyCache], Coroutine[Any, Any, None]], source: Source, **settings: int) -> None:
    async def main() -> None:
        cache = source.cache(**settings)
        await cache.start()
        try:
            await test(cache)
        finally:
            await cache.close()

    asyncio.run(main())


def test_a_known_key_causes_no_read() -> None:
    source = Source(FIRST)

    async def test(cache: KeyCache) -> None:
        for _ in range(10):
            assert (await cache.candidates("first", "RS256"))[1] == [0]
        assert source.reads == 1

    run(test, source)


def test_an_unknown_key_causes_one_read_and_is_found() -> None:
    source = Source(FIRST)

    async def test(cache: KeyCache) -> None:
        source.keys = (FIRST, SECOND)
        assert (await cache.candidates("second", "RS256"))[1] == [1]
        assert source.reads == 2
        assert [pause for pause in source.slept if pause < 100] == [FORCED_PAUSE_S]

    run(test, source)


def test_many_tokens_with_unknown_keys_share_one_read() -> None:
    source = Source(FIRST)

    async def test(cache: KeyCache) -> None:
        source.keys = (FIRST, SECOND)
        asked = [cache.candidates("second", "RS256") for _ in range(50)]
        asked += [cache.candidates(f"none{number}", "RS256") for number in range(50)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [each[1] for each in found[:50] if not isinstance(each, BaseException)] == [[1]] * 50
        assert all(isinstance(each, TokenError) for each in found[50:])
        assert source.reads == 2

    run(test, source)


def test_a_key_that_stays_unknown_causes_no_further_read_for_a_time() -> None:
    source = Source(FIRST)

    async def test(cache: KeyCache) -> None:
        for _ in range(10):
            with pytest.raises(TokenError, match="Unable to find a suitable verification key"):
                await cache.candidates("second", "RS256")
        assert source.reads == 2
        source.keys = (FIRST, SECOND)
        source.now += MISSING_S + 1
        assert (await cache.candidates("second", "RS256"))[1] == [1]
        assert source.reads == 3

    run(test, source)


def test_a_read_begins_after_the_question() -> None:
    """A read under way may have missed the key: a second one follows."""
    source = Source(FIRST)

    async def test(cache: KeyCache) -> None:
        loop = asyncio.get_running_loop()
        entered, go_on = asyncio.Event(), asyncio.Event()
        plain = source.read

        def read() -> bytes:
            data = plain()
            loop.call_soon_threadsafe(entered.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
            return data

        cache._read = read
        early = asyncio.create_task(cache.candidates("none", "RS256"))
        await entered.wait()
        source.keys = (FIRST, SECOND)
        late = asyncio.create_task(cache.candidates("second", "RS256"))
        await asyncio.sleep(0)
        go_on.set()
        assert (await late)[1] == [1]
        with pytest.raises(TokenError):
            await early
        assert source.reads == 3

    run(test, source)


@pytest.mark.parametrize("key_id", ["first", "x" * (MOST_KEY_ID_LENGTH + 1)])
def test_a_wrong_algorithm_or_a_huge_key_id_causes_no_read(key_id: str) -> None:
    source = Source(FIRST)

    async def test(cache: KeyCache) -> None:
        with pytest.raises(TokenError) as raised:
            await cache.candidates(key_id, "ES256")
        assert source.reads == 1
        assert len(str(raised.value)) < MOST_KEY_ID_LENGTH + 200

    run(test, source)


def test_the_memory_of_unknown_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkapy.security.oauthbearer.keys.MOST_MISSING", 3)
    source = Source(FIRST)

    async def test(cache: KeyCache) -> None:
        for number in range(10):
            with pytest.raises(TokenError):
                await cache.candidates(f"none{number}", "RS256")
        assert list(cache._missing) == ["none7", "none8", "none9"]

    run(test, source)


def test_only_so_many_logins_wait_for_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkapy.security.oauthbearer.keys.MOST_WAITING", 3)
    source = Source(FIRST)

    async def test(cache: KeyCache) -> None:
        source.keys = (FIRST, SECOND)
        asked = [cache.candidates("second", "RS256") for _ in range(10)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(not isinstance(each, BaseException) for each in found) == 3

    run(test, source)


def test_the_document_is_read_at_intervals() -> None:
    source = Source(FIRST)

    async def test(cache: KeyCache) -> None:
        while source.interval is None:
            await asyncio.sleep(0)
        assert source.slept == [3600.0]
        source.keys = (SECOND,)
        source.interval.set()
        while cache.keys.ids != {"second"}:
            await asyncio.sleep(0)
        assert source.reads == 2

    run(test, source)


def test_a_failed_read_keeps_the_keys_and_is_repeated() -> None:
    source = Source(FIRST)

    async def test(cache: KeyCache) -> None:
        source.failures = 1000
        with pytest.raises(TokenError):
            await cache.candidates("second", "RS256")
        assert cache.keys.ids == {"first"}
        pauses = [pause for pause in source.slept if pause < 100]
        assert pauses[:4] == [FORCED_PAUSE_S, 0.1, 0.2, 0.4]
        assert sum(pauses[1:]) == pytest.approx(1.0)
        source.failures, source.keys, source.now = 2, (FIRST, SECOND), source.now + MISSING_S
        assert (await cache.candidates("second", "RS256"))[1] == [1]

    run(test, source)


def test_a_document_that_cannot_be_read_at_the_start_is_an_error() -> None:
    source = Source(FIRST)
    source.failures = 1000

    async def main() -> None:
        cache = source.cache()
        with pytest.raises(KeySetError, match="out of order"):
            await cache.start()
        await cache.close()

    asyncio.run(main())


def test_closing_ends_a_read_that_waits() -> None:
    source = Source(FIRST)

    async def main() -> None:
        cache = source.cache()
        await cache.start()
        source.held = asyncio.Event()
        waiting = asyncio.create_task(cache.candidates("second", "RS256"))
        while len(source.slept) < 2:
            await asyncio.sleep(0)
        await cache.close()
        with pytest.raises(TokenError):
            await waiting
        assert source.reads == 1

    asyncio.run(main())
