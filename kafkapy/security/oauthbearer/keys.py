"""Key sets (JWKS, RFC 7517), which verify tokens, and their cache.

`KeySet` has the public keys of one document. `KeyCache` reads the document again at intervals, and once more at once
when a token names an unknown key, so an identity provider may rotate its keys at any time. Sources:
org.apache.kafka.common.security.oauthbearer.internals.secured.RefreshingHttpsJwks, org.jose4j.jwk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkapy.security.oauthbearer.tokens import TokenError

if TYPE_CHECKING:
    from jwt.algorithms import Algorithm

__all__ = ["ALGORITHMS", "KeyCache", "KeySet", "KeySetError"]

ALGORITHMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512", "ES256K"), "EC"),
    "EdDSA": "OKP",
}
"""The signature algorithms and the type of their keys.

Signatures by a shared secret (HS256) are refused: whoever knew the key set could sign tokens.
"""
CURVES: Final[Mapping[str, tuple[str, ...]]] = {
    "ES256": ("P-256",),
    "ES384": ("P-384",),
    "ES512": ("P-521",),
    "ES256K": ("secp256k1",),
    "EdDSA": ("Ed25519", "Ed448"),
}
LEAST_RSA_BITS: Final = 2048
MOST_RSA_BITS: Final = 16_384
MOST_DOCUMENT_BYTES: Final = 1_048_576
MOST_KEYS: Final = 1_000
MOST_CANDIDATES: Final = 8
"""Keys that are tried for a token without a key id."""
MOST_KEY_ID_LENGTH: Final = 1_000
MOST_MISSING: Final = 1_000
MISSING_S: Final = 60.0
"""An unknown key id causes no second read of the document for this long."""
FORCED_PAUSE_S: Final = 1.0
"""Least time between reads that unknown key ids cause."""
MOST_WAITING: Final = 1_000
"""Authentications that wait for such a read at the same time."""

logger = logging.getLogger("org.apache.kafka.common.security.oauthbearer.internals.secured.RefreshingHttpsJwks")


class KeySetError(Exception):
    """The key set cannot be read. The text has the reason."""


class KeySet:
    """The keys of one document. Immutable; keys are decoded at their first use."""

    def __init__(self, keys: Sequence[Mapping[str, Any]]) -> None:
        self._keys = keys
        self._by_id: dict[str, list[int]] = {}
        for at, key in enumerate(keys):
            key_id = key.get("kid")
            if isinstance(key_id, str):
                self._by_id.setdefault(key_id, []).append(at)
        self._decoded: dict[tuple[int, str], Any] = {}

    @classmethod
    def parse(cls, data: bytes) -> KeySet:
        """The keys of a document.

        KeySetError for any other bytes, and for too many keys.
        """
        if len(data) > MOST_DOCUMENT_BYTES:
            raise KeySetError(f"the key set has {len(data)} bytes, more than {MOST_DOCUMENT_BYTES}")
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise KeySetError(f"the key set is no valid JSON: {type(error).__name__}") from None
        keys = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(keys, list):
            raise KeySetError('the key set is no JSON object with a list "keys"')
        if len(keys) > MOST_KEYS:
            raise KeySetError(f"the key set has {len(keys)} keys, more than {MOST_KEYS}")
        # Unknown kinds of keys are left out, as RFC 7517 wants.
        known = set(ALGORITHMS.values())
        return cls([key for key in keys if isinstance(key, dict) and key.get("kty") in known])

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def ids(self) -> frozenset[str]:
        """The key ids."""
        return frozenset(self._by_id)

    def candidates(self, key_id: str | None, algorithm: str) -> list[int]:
        """The places of the keys that may have signed a token.

        Keys of that id, or for a token without id all keys of that algorithm.
        """
        places = range(len(self._keys)) if key_id is None else self._by_id.get(key_id, ())
        fitting = [at for at in places if _fits(self._keys[at], algorithm)]
        return fitting[:MOST_CANDIDATES]

    def verify(self, at: int, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Whether the key at this place made the signature.

        TokenError for a key that cannot be used.
        """
        methods = _methods()
        found = self._decoded.get((at, algorithm))
        if found is None:
            found = self._decoded[at, algorithm] = _decode(self._keys[at], algorithm, methods[algorithm])
        return bool(methods[algorithm].verify(signed, found, signature))


def _fits(key: Mapping[str, Any], algorithm: str) -> bool:
    if key.get("kty") != ALGORITHMS[algorithm] or key.get("use", "sig") != "sig":
        return False
    if key.get("alg", algorithm) != algorithm or "verify" not in _operations(key):
        return False
    curves = CURVES.get(algorithm)
    return curves is None or key.get("crv") in curves


def _operations(key: Mapping[str, Any]) -> Sequence[Any]:
    operations = key.get("key_ops", ["verify"])
    return operations if isinstance(operations, list) else ()


_methods_cache: dict[str, Algorithm] = {}


def _methods() -> Mapping[str, Algorithm]:
    """PyJWT's algorithms. The import waits for the first token."""
    if not _methods_cache:
        from jwt.algorithms import get_default_algorithms

        _methods_cache.update({name: found for name, found in get_default_algorithms().items() if name in ALGORITHMS})
    return _methods_cache


def _decode(key: Mapping[str, Any], algorithm: str, method: Algorithm) -> Any:
    # Only the public part: a private key in the document is not needed.
    public = {name: key[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in key}
    try:
        found = method.from_jwk(public)
    except Exception as error:
        raise TokenError(f"the key {key.get('kid')!r} of the key set is invalid: {type(error).__name__}") from None
    if ALGORITHMS[algorithm] == "RSA" and not LEAST_RSA_BITS <= found.key_size <= MOST_RSA_BITS:
        raise TokenError(
            f"the key {key.get('kid')!r} of the key set has {found.key_size} bits, not {LEAST_RSA_BITS} to "
            f"{MOST_RSA_BITS}"
        )
    return found


class KeyCache:
    """The newest key set of one document.

    Owned by a listener's mechanism, on the control loop; `read` runs on a worker thread. A failed read keeps the keys
    before it.
    """

    def __init__(
        self,
        location: str,
        read: Callable[[], bytes],
        *,
        refresh_ms: int,
        backoff_ms: int,
        backoff_max_ms: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`location` is for the log. `read` gives the document, or raises KeySetError."""
        self.location = location
        self._read = read
        self._refresh_s = refresh_ms / 1000
        self._backoff_s = backoff_ms / 1000
        self._backoff_max_s = backoff_max_ms / 1000
        self._clock = clock
        self._sleep = sleep
        self._keys = KeySet(())
        self._missing: OrderedDict[str, float] = OrderedDict()
        """Until when an unknown key id causes no read, the oldest first."""
        self._last_read = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._begun = False
        """Whether that read has begun, and no longer waits for its pause."""
        self._timer: asyncio.Task[None] | None = None
        self._waiting = 0

    @property
    def keys(self) -> KeySet:
        """The newest keys."""
        return self._keys

    async def start(self) -> None:
        """Read the document, and begin to read it at intervals.

        KeySetError when it cannot be read.
        """
        await self._load()
        self._timer = asyncio.create_task(self._refresh_at_intervals(), name="kafkapy-jwks-refresh")

    async def close(self) -> None:
        """End the reads."""
        tasks = [task for task in (self._timer, self._reading) if task is not None]
        self._timer = self._reading = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def candidates(self, key_id: str | None, algorithm: str) -> tuple[KeySet, list[int]]:
        """The key set and the places of the keys for a token.

        For an unknown key it waits for one fresh read. TokenError when there still is none.
        """
        found = self._keys.candidates(key_id, algorithm)
        if not found and await self._forced_refresh(key_id):
            found = self._keys.candidates(key_id, algorithm)
        if not found:
            shown = "no key id" if key_id is None else f"the key id {key_id[:MOST_KEY_ID_LENGTH]!r}"
            raise TokenError(
                f"Unable to find a suitable verification key for a token with {shown} and the algorithm {algorithm} "
                f"among {len(self._keys)} keys of {self.location}"
            )
        return self._keys, found

    async def _forced_refresh(self, key_id: str | None) -> bool:
        """Wait for a read that begins now or later.

        False when this key id may not cause one.
        """
        name = "" if key_id is None else key_id
        now = self._clock()
        if name in self._keys.ids or len(name) > MOST_KEY_ID_LENGTH or self._waiting >= MOST_WAITING:
            return False
        if self._missing.get(name, now) > now:
            return False
        self._waiting += 1
        try:
            # A read that has begun may have begun before the key was published, so its end is not enough.
            if self._reading is not None and self._begun:
                await asyncio.wait([self._reading])
                if name in self._keys.ids:
                    return True
            await asyncio.wait([self._begin_read(max(0.0, self._last_read + FORCED_PAUSE_S - self._clock()))])
        finally:
            self._waiting -= 1
        if name not in self._keys.ids:
            self._missing[name] = self._clock() + MISSING_S
            self._missing.move_to_end(name)
            if len(self._missing) > MOST_MISSING:
                self._missing.popitem(last=False)
        return True

    def _begin_read(self, pause_s: float = 0.0) -> asyncio.Task[None]:
        """The read that all waiting ones share, begun after a pause."""
        if self._reading is None:
            self._begun = False
            self._reading = asyncio.create_task(self._read_once(pause_s), name="kafkapy-jwks-read")
            self._reading.add_done_callback(self._read_ended)
        return self._reading

    def _read_ended(self, task: asyncio.Task[None]) -> None:
        if self._reading is task:
            self._reading = None

    async def _read_once(self, pause_s: float) -> None:
        if pause_s:
            await self._sleep(pause_s)
        self._begun = True
        try:
            await self._load()
        except KeySetError as error:
            logger.warning("OAuth JWKS refresh of %s failed; the keys before stay in use: %s", self.location, error)

    async def _load(self) -> None:
        """Read the document, with repetitions after errors until their time has passed."""
        self._last_read = self._clock()
        end = self._last_read + self._backoff_max_s
        pause = self._backoff_s
        while True:
            try:
                keys = KeySet.parse(await asyncio.to_thread(self._read))
                break
            except KeySetError as error:
                left = end - self._clock()
                if left <= 0 or pause <= 0:
                    raise
                logger.info("OAuth JWKS refresh of %s is repeated after an error: %s", self.location, error)
            await self._sleep(min(pause, left))
            pause *= 2
        if not len(keys):
            logger.warning("The key set of %s has no key that can verify tokens", self.location)
        self._keys = keys
        for key_id in keys.ids & self._missing.keys():
            del self._missing[key_id]

    async def _refresh_at_intervals(self) -> None:
        while True:
            await self._sleep(self._refresh_s)
            await asyncio.wait([self._begin_read()])
