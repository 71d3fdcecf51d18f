"""A new user's first minute with an installed kafkapy: every codec, TLS, the commands, a clean stop.

    python scripts/smoke.py

Uses only what is installed beside the Python that runs it, and a temporary directory. Prints what it did, and how long
it took.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kafkapy import KafkaConsumer, KafkaProducer

BIN = Path(sys.executable).parent
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
START_S = 60.0


class Server:
    """A kafkapy-server on free ports; the log stands in a file."""

    def __init__(self, directory: Path, *overrides: str) -> None:
        self.log = directory / "server.log"
        command = [str(BIN / "kafkapy-server"), *(f"--override={each}" for each in overrides)]
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(command, cwd=directory, stdout=file, stderr=subprocess.STDOUT)

    def port(self, protocol: str) -> int:
        """The port of a listener, as soon as it is open."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = re.search(rf"listening on {protocol}://127\.0\.0\.1:(\d+)", self.log.read_text())
            if found:
                return int(found[1])
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"smoke.py: the broker does not listen on {protocol}\n{self.log.read_text()}")

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def check(what: str, holds: bool) -> None:
    """Say that something works, or end."""
    if not holds:
        sys.exit(f"smoke.py: {what}: no")
    print(f"{what}: yes", flush=True)


def tool(*arguments: str, stdin: str = "") -> str:
    """stdout of `kafkapy`."""
    done = subprocess.run([str(BIN / "kafkapy"), *arguments], input=stdin, capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"smoke.py: kafkapy {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def main() -> int:
    """Run all of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tool("certs", "create", str(directory / "certs"), "--host", "127.0.0.1")
        pem = f"ssl.keystore.type=PEM,ssl.keystore.location={directory}/certs/broker.pem"
        server = Server(
            directory, "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "broker.id=1", *pem.split(","),
            f"log.dirs={directory}/data",
        )  # fmt: skip
        try:
            plain, secure = (f"127.0.0.1:{server.port(protocol)}" for protocol in ("PLAINTEXT", "SSL"))
            print(f"the broker listens after {time.monotonic() - began:.2f} s", flush=True)
            values = []
            for codec in CODECS:
                with KafkaProducer(bootstrap_servers=plain, compression_type=codec) as producer:
                    for number in range(100):
                        values.append(f"{codec} {number}".encode() * 20)
                        producer.send("codecs", values[-1])
            consumer = KafkaConsumer(
                "codecs", bootstrap_servers=plain, group_id="smoke", auto_offset_reset="earliest",
                consumer_timeout_ms=20_000,
            )  # fmt: skip
            found = [next(consumer).value for _ in values]
            consumer.commit()
            consumer.close()
            check("records in every codec arrive", found == values)
            tls = {"security.protocol": "SSL", "ssl.ca.location": str(directory / "certs" / "ca.pem")}
            with KafkaProducer({"bootstrap.servers": secure, **tls}) as producer:
                producer.send("secure", b"secret").get(timeout=30)
            reader = KafkaConsumer(
                "secure", bootstrap_servers=plain, auto_offset_reset="earliest", consumer_timeout_ms=20_000
            )
            check("TLS works", next(reader).value == b"secret")
            reader.close()
            tool("topics", "create", "lines", "-b", plain)
            tool("produce", "lines", "-b", plain, stdin="one\ntwo\n")
            check("the command line works", tool("consume", "lines", "-b", plain).split() == ["one", "two"])
            check("lag is zero", "codecs" in tool("groups", "describe", "smoke", "-b", plain))
            rows = json.loads(tool("doctor", "--json", "--override=listeners=PLAINTEXT://127.0.0.1:0",
                              f"--override=log.dirs={directory}/other"))  # fmt: skip
            print("  " + next(row["found"] for row in rows if row["subject"] == "OpenSSL"))
        finally:
            code = server.stop()
        check("SIGTERM is a clean stop", code == 0 and (directory / "data" / ".kafka_cleanshutdown").exists())
    print(f"kafkapy works on Python {sys.version.split()[0]}, {os.uname().machine}: {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
