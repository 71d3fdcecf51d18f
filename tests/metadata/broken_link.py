"""A TCP link between a store and its server, which a test breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

CHUNK = 65536


class BrokenLink:
    """Forwards connections to host:port, on a port of its own. Used on the test's loop.

    `forward` is the link as it should be. With `swallow` bytes go nowhere in both directions, and the connections stay.
    `lose_replies` lets the bytes of a client pass, and cuts the connections in place of the reply.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._host, self._port = host, int(port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._losing = False
        self._marker = b""
        self._refusing = False
        self.lost = 0
        """Replies that were lost."""

    @property
    def address(self) -> str:
        """host:port for the store."""
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> BrokenLink:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *ignored: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def forward(self) -> None:
        """Pass everything, also what `swallow` has held back."""
        self._losing = self._refusing = False
        self._marker = b""
        self._open.set()

    def swallow(self) -> None:
        """Hold all bytes back."""
        self._open.clear()

    def lose_replies(self, after: bytes = b"") -> None:
        """Cut each connection when the server replies, until `forward`.

        With `after` only once a client has sent these bytes.
        """
        self._losing, self._marker = not after, after

    def refuse(self) -> None:
        """Cut all connections, and each new one at once."""
        self._refusing = True
        self.cut()

    def cut(self) -> None:
        """Cut all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        for source, sink, replies in ((reader, far_writer, False), (far_reader, writer, True)):
            task = asyncio.get_running_loop().create_task(self._pump(source, sink, replies))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, replies: bool) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                await self._open.wait()
                if not replies and self._marker and self._marker in data:
                    self._losing = True
                if replies and self._losing:
                    self.lost += 1
                    self.cut()
                    return
                sink.write(data)
                await sink.drain()
        sink.transport.abort()


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; the test's own timeout is the limit."""
    while not condition():
        await asyncio.sleep(0.01)
