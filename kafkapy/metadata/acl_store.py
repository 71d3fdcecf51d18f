"""The ACLs in the metadata store, in Kafka's nodes, and a copy of them.

A change is one transaction: the node of the resource pattern, if its version is the expected one, and a notification
for all other brokers. Sources: kafka.security.authorizer.AclAuthorizer.updateResourceAcls and kafka.zk.KafkaZkClient.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.acl_znodes import (
    ACL_CHANGE_PREFIX,
    ACL_CHANGES,
    ACL_PATHS,
    ACLS,
    EXTENDED_ACL_CHANGES,
    StoredAcls,
    acl_path,
    acl_type_path,
    decode_acl_change,
    decode_acls,
    decode_extended_acl_change,
    encode_acl_change,
    encode_acls,
    resource_type_of,
)
from kafkapy.metadata.change_notifications import ChangeNotifications
from kafkapy.metadata.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    MetadataStoreError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    Stat,
    StoreCorruptError,
    check_path,
)
from kafkapy.security.authorizer.bindings import ResourcePattern
from kafkapy.security.authorizer.masks import Rules
from kafkapy.slices import in_chunks, in_slices
from kafkapy.types import PatternType

__all__ = ["AclEdit", "AclStore"]

logger = logging.getLogger("kafka.security.authorizer.AclAuthorizer")

MOST_RETRIES: Final = 10
RETRY_S: Final = 0.1
RETRY_JITTER_S: Final = 0.05
BATCH_PATTERNS: Final = 250
"""Most resource patterns that one transaction writes."""
BATCH_BYTES: Final = 256 * 1024
"""Bytes after which a transaction takes no further pattern; ZooKeeper refuses packets of 1 MiB."""

AclEdit = Callable[[Rules], Awaitable[Rules]]
"""Makes the new rules of a pattern from its present ones, without changing these. It may be called again."""
AclListener = Callable[[Mapping[ResourcePattern, Rules]], Awaitable[None]]
"""Called with the changed patterns and all their rules."""


class _Node(NamedTuple):
    acls: StoredAcls
    version: int


class _Write(NamedTuple):
    """A pattern on its way into a transaction."""

    pattern: ResourcePattern
    acls: StoredAcls
    operation: Operation | None
    size: int


_CONFLICTS = (BadVersionError, NodeExistsError, NoNodeError)
_NOTHING: Final = StoredAcls()


class AclStore:
    """Reads, follows and changes the ACLs of a cluster.

    Owned by an authorizer; used on the control loop. The copy has the present ACLs of every pattern; `listener` hears
    of changes by this broker when they are written, and of others' soon after.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._nodes: dict[ResourcePattern, _Node] = {}
        self._listener: AclListener | None = None
        self._loading = True
        self._order = asyncio.Lock()
        """Held by changes and by the processing of notifications: what is read is not older than the copy."""
        self._followers = (
            ChangeNotifications(store, ACL_CHANGES, ACL_CHANGE_PREFIX, self._notified),
            ChangeNotifications(store, EXTENDED_ACL_CHANGES, ACL_CHANGE_PREFIX, self._notified_extended),
        )

    async def start(self, listener: AclListener) -> None:
        """Read all ACLs, and begin to follow changes.

        StoreUnavailableError; StoreCorruptError for a node that cannot be read, because it may deny something.
        """
        self._listener = listener
        await self._store.ensure_paths(ACL_PATHS)
        async with self._order:
            for follower in self._followers:
                await follower.start()
            for pattern_type, root in ACLS.items():
                for type_name in await self._store.children(root):
                    await self._load(pattern_type, type_name)
            self._loading = False

    async def stop(self) -> None:
        """Stop following changes."""
        for follower in self._followers:
            await follower.stop()

    def rules(self, pattern: ResourcePattern) -> Rules:
        """The rules of a pattern; empty where it has none."""
        node = self._nodes.get(pattern)
        return _NOTHING.rules if node is None else node.acls.rules

    @property
    def is_shared(self) -> bool:
        """Whether other brokers may change the ACLs."""
        return self._store.is_shared

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _load(self, pattern_type: PatternType, type_name: str) -> None:
        resource_type = resource_type_of(type_name)
        if resource_type is None:
            logger.warning("The broker ignores ACLs of an unknown resource type: %s", type_name)
            return
        names = await self._store.children(acl_type_path(pattern_type, resource_type))
        async for chunk in in_chunks(names):
            await self._read([ResourcePattern(resource_type, name, pattern_type) for name in chunk])

    async def _read(self, patterns: list[ResourcePattern]) -> None:
        """Bring patterns of the copy up to date, and tell of them."""
        found = await self._store.get_many([acl_path(pattern) for pattern in patterns])
        changed: dict[ResourcePattern, Rules] = {}
        for pattern, each in zip(patterns, found, strict=True):
            try:
                acls = _NOTHING if each is None else await decode_acls(pattern, each[0])
            except ValueError as error:
                # Its rules may deny something: the pattern keeps what the copy has of it, and a start has nothing.
                if self._loading:
                    raise StoreCorruptError(acl_path(pattern), str(error)) from None
                logger.error("%s", error)
                continue
            if acls.unreadable:
                logger.warning("%d ACLs of %s cannot be read, and have no effect", len(acls.unreadable), pattern)
            self._put(pattern, None if each is None else _Node(acls, each[1].version), changed)
        await self._tell(changed)

    def _put(self, pattern: ResourcePattern, node: _Node | None, changed: dict[ResourcePattern, Rules]) -> None:
        before = self.rules(pattern)
        if node is None:
            self._nodes.pop(pattern, None)
        else:
            self._nodes[pattern] = node
        after = self.rules(pattern)
        if after != before:
            changed[pattern] = after

    async def _tell(self, changed: Mapping[ResourcePattern, Rules]) -> None:
        if changed and self._listener is not None:
            await self._listener(changed)

    async def _notified(self, values: list[bytes]) -> None:
        await self._read_again(values, decode_acl_change)

    async def _notified_extended(self, values: list[bytes]) -> None:
        await self._read_again(values, decode_extended_acl_change)

    async def _read_again(self, values: list[bytes], decode: Callable[[bytes], ResourcePattern]) -> None:
        patterns: dict[ResourcePattern, None] = {}
        async for value in in_slices(values):
            try:
                pattern = decode(value)
                check_path(acl_path(pattern))
            except ValueError as error:
                logger.error("The broker ignores a malformed notification: %s", error)
            else:
                patterns[pattern] = None
        async with self._order:
            async for chunk in in_chunks(patterns):
                await self._read(chunk)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def change(self, edits: Mapping[ResourcePattern, AclEdit]) -> dict[ResourcePattern, KafkaError]:
        """Write the edits of many patterns, in transactions of limited size.

        Returns the error of each pattern that was not written. When it returns, `listener` has heard of the others.
        """
        failed: dict[ResourcePattern, KafkaError] = {}
        async with self._order:
            async for chunk in in_chunks(edits, BATCH_PATTERNS):
                writable = [pattern for pattern in chunk if self._check_name(pattern, failed)]
                await self._change_chunk(writable, edits, failed)
        return failed

    @staticmethod
    def _check_name(pattern: ResourcePattern, failed: dict[ResourcePattern, KafkaError]) -> bool:
        try:
            if "/" in pattern.name or pattern.name in (".", ".."):
                raise ValueError("it contains '/'" if "/" in pattern.name else "it is a relative path")
            check_path(acl_path(pattern))
        except ValueError as error:
            failed[pattern] = error_for(
                ErrorCode.INVALID_REQUEST, f"ACLs for a resource with the name {pattern.name!r} are not stored: {error}"
            )
            return False
        return True

    async def _change_chunk(
        self,
        patterns: list[ResourcePattern],
        edits: Mapping[ResourcePattern, AclEdit],
        failed: dict[ResourcePattern, KafkaError],
    ) -> None:
        try:
            if self._store.is_shared:
                unknown = [pattern for pattern in patterns if pattern not in self._nodes]
                await self._read(unknown)
        except MetadataStoreError as error:
            failed.update(dict.fromkeys(patterns, _unavailable(error)))
            return
        batch: list[_Write] = []
        size = 0
        for pattern in patterns:
            write = await self._prepare(pattern, edits[pattern])
            batch.append(write)
            size += write.size
            if size >= BATCH_BYTES:
                await self._write(batch, edits, failed)
                batch, size = [], 0
        await self._write(batch, edits, failed)

    async def _prepare(self, pattern: ResourcePattern, edit: AclEdit) -> _Write:
        node = self._nodes.get(pattern)
        present = _NOTHING if node is None else node.acls
        acls = StoredAcls(await edit(present.rules), present.unreadable)
        path = acl_path(pattern)
        if acls.rules == present.rules:
            # The copy may be older than the node: the transaction fails then, and the edit is made again.
            stale = self._store.is_shared and node is not None
            return _Write(pattern, acls, Check(path, node.version) if stale and node is not None else None, len(path))
        if not acls:
            assert node is not None
            return _Write(pattern, acls, Delete(path, node.version), len(path))
        value = await encode_acls(acls)
        size = len(path) + len(value)
        if node is None:
            return _Write(pattern, acls, Create(path, value), size)
        return _Write(pattern, acls, SetData(path, value, node.version), size)

    async def _write(
        self,
        batch: list[_Write],
        edits: Mapping[ResourcePattern, AclEdit],
        failed: dict[ResourcePattern, KafkaError],
    ) -> None:
        """Write prepared patterns together; one by one when another writer was faster."""
        try:
            await self._commit(batch)
        except _CONFLICTS:
            for write in batch:
                await self._write_alone(write.pattern, edits[write.pattern], failed)
        except MetadataStoreError as error:
            failed.update((write.pattern, _unavailable(error)) for write in batch)

    async def _write_alone(
        self, pattern: ResourcePattern, edit: AclEdit, failed: dict[ResourcePattern, KafkaError]
    ) -> None:
        try:
            for _ in range(MOST_RETRIES):
                await self._read([pattern])
                try:
                    await self._commit([await self._prepare(pattern, edit)])
                except _CONFLICTS:
                    await asyncio.sleep(RETRY_S + random.random() * RETRY_JITTER_S)
                else:
                    return
            failed[pattern] = error_for(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The ACLs of {pattern} were not updated: other brokers changed them {MOST_RETRIES} times meanwhile.",
            )
        except MetadataStoreError as error:
            failed[pattern] = _unavailable(error)

    async def _commit(self, batch: Iterable[_Write]) -> None:
        writes = [write for write in batch if write.operation is not None]
        operations = [write.operation for write in writes if write.operation is not None]
        if not operations:
            return
        if self._store.is_shared:
            changes = [write.pattern for write in writes if not isinstance(write.operation, Check)]
            operations += [self._announcement(pattern) for pattern in changes]
        results = await self._store.commit(operations)
        changed: dict[ResourcePattern, Rules] = {}
        for write, result in zip(writes, results, strict=False):
            if isinstance(write.operation, Check):
                continue
            version = result.version if isinstance(result, Stat) else 0
            self._put(write.pattern, _Node(write.acls, version) if write.acls else None, changed)
        await self._tell(changed)

    def _announcement(self, pattern: ResourcePattern) -> Create:
        literal, extended = self._followers
        follower = literal if pattern.pattern_type is PatternType.LITERAL else extended
        return follower.announcement(encode_acl_change(pattern))


def _unavailable(error: MetadataStoreError) -> KafkaError:
    code = getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
    return error_for(code, f"The ACLs could not be written: {error}")
