"""ZooKeeper's multi-read: the data of many nodes in one request.

kazoo does not have it. Servers know it since 3.6 (ZOOKEEPER-1962). A node that is missing is an error in its place, and
not of the whole. Source: org.apache.zookeeper.MultiOperationRecord, MultiResponse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import EXCEPTIONS  # type: ignore[import-untyped]
from kazoo.protocol.serialization import (  # type: ignore[import-untyped]
    GetData,
    MultiHeader,
    int_struct,
    multiheader_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat  # type: ignore[import-untyped]

__all__ = ["MultiRead"]

ERROR = -1


class MultiRead:
    """A request of kazoo for paths below the client's chroot.

    Its result has (data, stat) or an exception for each path.
    """

    type: ClassVar[int] = 22

    def __init__(self, paths: Sequence[str], chroot: str) -> None:
        self.paths = [chroot + path if path != "/" else chroot or path for path in paths]

    def send(self, client: KazooClient) -> Any:
        """Queue the request; the asynchronous result, as of kazoo's own calls."""
        result = client.handler.async_result()
        client._call(self, result)
        return result

    def serialize(self) -> bytearray:
        """The body, for kazoo's connection thread."""
        header = multiheader_struct.pack(GetData.type, False, ERROR)
        made = bytearray()
        for path in self.paths:
            made += header
            made += GetData(path, None).serialize()
        made += multiheader_struct.pack(ERROR, True, ERROR)
        return made

    @classmethod
    def deserialize(cls, body: bytes, offset: int) -> list[Any]:
        """The results, for kazoo's connection thread."""
        results: list[Any] = []
        header, offset = MultiHeader.deserialize(body, offset)
        while not header.done:
            if header.type == GetData.type:
                data, offset = read_buffer(body, offset)
                results.append((data, ZnodeStat._make(stat_struct.unpack_from(body, offset))))
                offset += stat_struct.size
            else:
                (code,) = int_struct.unpack_from(body, offset)
                offset += int_struct.size
                results.append(EXCEPTIONS[code]())
            header, offset = MultiHeader.deserialize(body, offset)
        return results
