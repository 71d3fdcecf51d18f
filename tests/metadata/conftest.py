"""A ZooKeeper server for the tests that need one."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A ZooKeeper server of Debian's package on 127.0.0.1, its host:port."""
    if not ZOOKEEPER_JAR.exists() or shutil.which("java") is None:
        pytest.skip("ZooKeeper is not installed (apt-get install zookeeper)")
    directory = tmp_path_factory.mktemp("zookeeper")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = directory / "zoo.cfg"
    config.write_text(
        f"tickTime=1000\ndataDir={directory}\nclientPortAddress=127.0.0.1\nclientPort={port}\nadmin.enableServer=false\n"
    )
    command = [
        "java",
        "-Xmx128m",
        "-cp",
        str(ZOOKEEPER_JAR),
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(config),
    ]
    with (directory / "out").open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        while True:
            assert server.poll() is None, (directory / "out").read_text()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
