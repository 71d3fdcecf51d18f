"""Notifications for the controller: sequential nodes from brokers.

Brokers create them, and the controller removes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from kafkapy.metadata.store import MetadataStore, NoNodeError

logger = logging.getLogger("kafka.controller.KafkaController")

T = TypeVar("T")


async def read(store: MetadataStore, path: str, decode: Callable[[bytes], T]) -> tuple[list[str], list[T]]:
    """The nodes below `path`: all names, and what can be read of them."""
    names = await store.children(path)
    values = []
    for name, found in zip(names, await store.get_many([f"{path}/{name}" for name in names]), strict=True):
        if found is not None:
            try:
                values.append(decode(found[0]))
            except (ValueError, KeyError, TypeError) as error:
                logger.error("Notification %s/%s cannot be read: %s", path, name, error)
    return names, values


async def remove(store: MetadataStore, path: str, names: list[str]) -> None:
    """Remove the nodes of these names below `path`."""
    for name in names:
        try:
            await store.delete(f"{path}/{name}")
        except NoNodeError:
            continue
