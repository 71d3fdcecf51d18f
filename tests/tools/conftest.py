"""A broker for all tests of commands, and the command line to run against it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import click.testing
import pytest

from kafkapy.admin import KafkaAdminClient
from kafkapy.testing.broker import Broker
from kafkapy.tools.cli import main


class CommandLine:
    """Runs `kafkapy` in this process against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str, stdin: bytes = b"") -> click.testing.Result:
        """What came out, whatever the exit code."""
        options = ["--bootstrap-server", self.bootstrap, "-X", "bootstrap.timeout.ms=10000"]
        return click.testing.CliRunner().invoke(main, [*arguments, *options], input=stdin)

    def done(self, *arguments: str, stdin: bytes = b"") -> str:
        """stdout of a command that has to work."""
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.stderr or result.exception
        return result.stdout

    def rows(self, *arguments: str) -> list[dict[str, str]]:
        """The lines of a table as dicts of their texts."""
        first, *lines = self.done(*arguments).splitlines()
        names = first.split("\t")
        return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]

    def json(self, *arguments: str) -> Any:
        """The JSON document that --json prints."""
        return json.loads(self.done(*arguments, "--json"))

    def failure(self, *arguments: str, stdin: bytes = b"", code: int = 1) -> str:
        """The one sentence of a command that has to fail: exit code 1, or 2 for a wrong command line."""
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        *usage, sentence = result.stderr.splitlines()
        assert bool(usage) == (code == 2)
        assert sentence.startswith("Error: ")
        return sentence.removeprefix("Error: ")


@pytest.fixture(scope="session", autouse=True)
def no_profile_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands read profiles and variables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        for variable in [each for each in os.environ if each.startswith("KAFKAPY_")]:
            if variable.startswith(("KAFKAPY_SASL", "KAFKAPY_SSL", "KAFKAPY_SECURITY", "KAFKAPY_PROFILE")):
                patch.delenv(variable)
        yield


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(auto_create_topics_enable=False) as made:
        yield made


@pytest.fixture(scope="session")
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as client:
        yield client


@pytest.fixture(scope="session")
def kafkapy(broker: Broker) -> CommandLine:
    return CommandLine(broker.bootstrap_servers)


_numbers = itertools.count()


@pytest.fixture
def name() -> Callable[[], str]:
    """A new name for a topic or a group."""
    return lambda: f"name-{next(_numbers)}"


@pytest.fixture
def topic(broker: Broker, name: Callable[[], str]) -> str:
    """A topic of two partitions."""
    made = name()
    broker.create_topic(made, 2)
    return made
