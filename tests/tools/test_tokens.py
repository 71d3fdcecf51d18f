"""kafkapy tokens against a broker: a token is made, used, renewed and removed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
from broker.handlers.tokens import log_in_by_token
from broker.sasl_broker import sasl_config
from tools.sasl_server import Run, runner

from kafkapy.broker.server import KafkaServer
from kafkapy.tools.cli import main


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("tokens"))) as started:
        yield started


@pytest.fixture
def run(server: KafkaServer, tmp_path: Path) -> Run:
    return runner(server, tmp_path, "tokens")


def created(run: Run, *options: str, user: str = "alice") -> Any:
    result = run("create", "--json", *options, user=user)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def listed(run: Run, *options: str, user: str = "alice") -> dict[str, Any]:
    result = run("list", "--json", *options, user=user)
    assert result.exit_code == 0, result.output
    return {each["token_id"]: each for each in json.loads(result.stdout)}


def works(server: KafkaServer, token: Any) -> bool:
    client, response = log_in_by_token(server, token["token_id"], base64.b64decode(token["hmac"]))
    client.close()
    return bool(response.error_code == 0)


def test_a_token_is_created_and_logs_in(run: Run, server: KafkaServer) -> None:
    token = created(run, "--renewer", "User:bob", "--renewer", "User:admin")
    assert (token["owner"], token["requester"]) == ("User:alice", "User:alice")
    assert token["renewers"] == ["User:bob", "User:admin"]
    assert works(server, token)


def test_a_list_shows_no_secret_unless_asked(run: Run) -> None:
    token = created(run)
    shown = listed(run)[token["token_id"]]
    assert "hmac" not in shown
    assert listed(run, "--with-secret")[token["token_id"]]["hmac"] == token["hmac"]
    plain = run("list", user="alice").stdout
    assert token["token_id"] in plain
    assert token["hmac"] not in plain
    assert token["hmac"] in run("list", "--with-secret", user="alice").stdout


def test_owners_select(run: Run) -> None:
    alice, bob = created(run), created(run, user="bob")
    found = listed(run, "--owner", "User:bob")
    assert bob["token_id"] in found
    assert alice["token_id"] not in found


def test_another_owner_and_a_short_lifetime(run: Run) -> None:
    token = created(run, "--owner", "User:bob", "--max-lifetime", "2h")
    assert (token["owner"], token["requester"]) == ("User:bob", "User:alice")
    assert token["expires"] == token["max_lifetime"]


def test_a_token_is_renewed_by_a_renewer(run: Run) -> None:
    token = created(run, "--renewer", "User:bob")
    result = run("renew", token["token_id"], "--for", "3d", user="bob")
    assert result.exit_code == 0, result.output
    after = listed(run)[token["token_id"]]["expires"]
    assert after > token["expires"]
    assert result.stdout == f"Token {token['token_id']} expires at {after}.\n"


def test_a_token_is_expired_soon_or_now(run: Run, server: KafkaServer) -> None:
    token = created(run)
    result = run("expire", token["token_id"], "--in", "1h", user="alice")
    assert result.exit_code == 0, result.output
    assert listed(run)[token["token_id"]]["expires"] < token["expires"]
    assert works(server, token)
    assert run("expire", token["token_id"], user="alice").stdout == f"Token {token['token_id']} removed.\n"
    assert token["token_id"] not in listed(run)
    assert not works(server, token)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("renew", "nothing"), "There is no token nothing that you may see"),
        (("expire", "nothing"), "There is no token nothing that you may see"),
        (("create", "--owner", "bob"), "is not a principal"),
        (("create", "--renewer", "Group:bob"), "That principal type is not supported"),
        (("create", "--max-lifetime", "soon"), "is not a duration"),
    ],
)
def test_a_mistake_is_one_sentence(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments, user="alice")
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())


def test_commands_log_in_by_a_token(run: Run, server: KafkaServer, tmp_path: Path) -> None:
    token = created(run)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    (tmp_path / "token.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} required username="{token["token_id"]}" password="{token["hmac"]}" '
        'tokenauth="true";\n'
    )
    options = ["-b", f"127.0.0.1:{server.endpoints[0].port}", "--command-config", str(tmp_path / "token.properties")]
    result = click.testing.CliRunner().invoke(main, ["topics", "create", "by-token", *options])
    assert result.exit_code == 0, result.output
    refused = click.testing.CliRunner().invoke(main, ["tokens", "create", *options])
    assert refused.exit_code == 1
    assert "without a token" in refused.stderr
