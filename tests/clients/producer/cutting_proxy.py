"""A TCP proxy that cuts connections in the middle of whatever goes through them."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading


class CuttingProxy:
    """Owns a listening socket and a thread. `cut_every` bytes, on average, a connection is cut; 0: never."""

    def __init__(self, target_port: int = 0, seed: int = 1) -> None:
        self.target_port = target_port
        self.cut_every = 0
        self.cuts = 0
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peers: dict[socket.socket, socket.socket] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()
        for each in list(self._peers):
            self._drop(each)
        self._listener.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._stopped:
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._forward(key.fileobj)

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:
            return
        try:
            far = socket.create_connection(("127.0.0.1", self.target_port), timeout=5)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            one.settimeout(5)
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        target = self._peers.get(source)
        if target is None:
            return
        try:
            data = source.recv(65536)
            if data and self.cut_every and self._random.random() < len(data) / self.cut_every:
                # A part of it still arrives: the frame is torn.
                target.sendall(data[: self._random.randrange(len(data))])
                self.cuts += 1
                data = b""
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        other = self._peers.pop(one, None)
        for each in (one, other):
            if each is not None:
                self._peers.pop(each, None)
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(each)
                each.close()
