"""Notifications for the controller: sequential nodes from brokers.

Brokers create them, and the controller removes them.
"""

from __future__ import annotations

from kafkapy.metadata.store import MetadataStore, NoNodeError


async def read(store: MetadataStore, path: str) -> tuple[list[str], list[bytes]]:
    """The nodes below `path`: all names, and the data still present."""
    names = await store.children(path)
    found = await store.get_many([f"{path}/{name}" for name in names])
    return names, [each[0] for each in found if each is not None]


async def remove(store: MetadataStore, path: str, names: list[str]) -> None:
    """Remove the nodes of these names below `path`."""
    for name in names:
        try:
            await store.delete(f"{path}/{name}")
        except NoNodeError:
            continue
