"""What an exactly-once sink is called, and how long its transactions may last."""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from typing import Final

from kafkapy.admin import ConfigResource, ConfigResourceType
from kafkapy.errors import KafkaError
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_session import SinkSession

__all__ = ["batch_sink", "stream_sink", "transaction_timeout_ms"]

logger = logging.getLogger("kafkapy.spark")

DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
"""transaction.max.timeout.ms where brokers do not say."""
NAME: Final = "kafkapy-spark"


def batch_sink(options: SinkOptions) -> str:
    """Each application has a name of its own, so that versions of one say nothing of another's."""
    prefix = options.transactional_id_prefix or NAME
    if options.txn_app_id is None:
        return f"{prefix}-{uuid.uuid4().hex}"
    return f"{prefix}-{_hash(options.txn_app_id, '' if options.transactional_id_prefix else options.topic or '')}"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def stream_sink(options: SinkOptions) -> str | None:
    """The name of a streaming query's sink; None where neither option that it follows from is known."""
    if options.transactional_id_prefix:
        return options.transactional_id_prefix
    if options.checkpoint_location:
        return f"{NAME}-{_hash(checkpoint_name(options.checkpoint_location), options.topic or '')}"
    return None


def checkpoint_name(location: str) -> str:
    """A checkpoint's path, spelled in one way: /checkpoints/x for file:///checkpoints/x and /checkpoints/./x/.

    A scheme without a host names the file system that Spark would take anyway. s3, s3a and s3n are one. What a path is
    relative to, or which host a default file system has, only Spark knows; a query that comes under two names because
    of that is refused (MovedError).
    """
    found = re.fullmatch(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)", location.strip(), re.DOTALL)
    assert found is not None
    scheme, host, path = (found[1] or "").lower(), (found[2] or "").lower(), found[3]
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in ("", ".") and not (part == ".." and path.startswith("/")):
            parts.append(part)
    absolute = "/" if path.startswith("/") or host else ""
    name = absolute + "/".join(parts)
    if not host or scheme == "file":
        return name
    return f"{'s3' if scheme in ('s3', 's3a', 's3n') else scheme}://{host}{name}"


def transaction_timeout_ms(session: SinkSession, options: SinkOptions) -> int:
    """Of tasks' transactions: what the user has set, else the longest that the brokers allow."""
    given = options.kafka.get("transaction.timeout.ms")
    if given is not None:
        return int(given)
    if session.timeout_ms is None:
        session.timeout_ms = session.run(_longest_timeout_ms(session))
    return session.timeout_ms


async def _longest_timeout_ms(session: SinkSession) -> int:
    broker = str(min(await session.client.brokers()))
    try:
        found = await session.client.describe_configs(
            [ConfigResource(ConfigResourceType.BROKER, broker)], config_filter="all"
        )
    except KafkaError as error:
        logger.info("The broker's configuration cannot be read, transactions may last 15 minutes: %s", error)
        return DEFAULT_MAX_TIMEOUT_MS
    return int(found["broker"][broker].get("transaction.max.timeout.ms", {}).get("value") or DEFAULT_MAX_TIMEOUT_MS)
