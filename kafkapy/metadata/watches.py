"""The watches of a store in this process: callbacks by node."""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.metadata.store import Watch, WatchCallback, WatchEvent, WatchEventType, parent_of

__all__ = ["Watches"]


class Watches:
    """Owns the callbacks by path. Part of one MetadataStore; used on the control loop."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[WatchCallback]] = {}
        self._children: dict[str, list[WatchCallback]] = {}

    def add_node(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after the node is created, changed or deleted."""
        return _register(self._nodes, path, callback)

    def add_children(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after a child of the node is created or deleted."""
        return _register(self._children, path, callback)

    def clear(self) -> None:
        """Drop all watches."""
        self._nodes.clear()
        self._children.clear()

    def tell(self, events: Iterable[WatchEvent]) -> None:
        """Call back for the changes of one transaction."""
        told: set[tuple[WatchEventType, str]] = set()
        for event in events:
            # A thousand children made in one transaction are one event for a watcher of the parent.
            if (event.type, event.path) in told:
                continue
            told.add((event.type, event.path))
            watches = self._children if event.type is WatchEventType.CHILDREN else self._nodes
            for entry in list(watches.get(event.path, ())):
                entry(event)

    def tell_all_below(self, parent: str) -> None:
        """Call every watcher of the node's children back, because changes may have been missed."""
        events = [WatchEvent(WatchEventType.CHILDREN, parent)]
        events += [WatchEvent(WatchEventType.CHANGED, path) for path in self._nodes if parent_of(path) == parent]
        self.tell(events)


def _register(watches: dict[str, list[WatchCallback]], path: str, callback: WatchCallback) -> Watch:
    # Each watch has a separate entry, so that cancelling one of two with the same callback leaves the other.
    def entry(event: WatchEvent) -> None:
        callback(event)

    watches.setdefault(path, []).append(entry)

    def cancel() -> None:
        entries = watches.get(path, [])
        if entry in entries:
            entries.remove(entry)
            if not entries:
                del watches[path]

    return Watch(cancel)
