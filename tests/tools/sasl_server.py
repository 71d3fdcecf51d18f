"""A SASL broker for commands, and their options to log in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click.testing
from broker.sasl_broker import PLAIN_USERS

from kafkapy.broker.server import KafkaServer
from kafkapy.tools.cli import main

Run = Callable[..., click.testing.Result]
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def login_file(directory: Path, user: str) -> Path:
    """A --command-config file of a user."""
    path = directory / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} required username="{user}" password="{PLAIN_USERS[user]}";\n'
    )
    return path


def runner(server: KafkaServer, directory: Path, group: str) -> Run:
    """Runs commands of a group, as `user`."""

    def invoke(*arguments: str, user: str = "admin", stdin: str | None = None) -> click.testing.Result:
        options = ["-b", f"127.0.0.1:{server.endpoints[0].port}", "--command-config", str(login_file(directory, user))]
        return click.testing.CliRunner().invoke(main, [group, *arguments, *options], input=stdin)

    return invoke
