"""Profiles, variables and files with the client's keys, against a broker with TLS and SASL."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest

from kafkapy.errors import ConfigError, KafkaError
from kafkapy.testing.broker import Broker
from kafkapy.tools.cli import main
from kafkapy.tools.client_settings import (
    current_profile,
    environment_settings,
    merged,
    profile_names,
    read_profile,
    write_profile,
)

SECRET = 'hun"t\\er2 =x'


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(security="SASL_SSL", users={"ann": SECRET}) as broker:
        broker.create_topic("orders")
        yield broker


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KAFKAPY_BOOTSTRAP_SERVER", raising=False)
    return tmp_path / "config" / "kafkapy"


def run(*arguments: str, stdin: str = "") -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, list(arguments), input=stdin)


def done(*arguments: str, stdin: str = "") -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.stderr or result.exception
    assert SECRET not in result.output
    return result.stdout


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code != 0
    assert SECRET not in result.output
    return " ".join(result.stderr.split())


def create(secured: Broker, name: str = "prod", *more: str) -> str:
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "ssl.ca.location": secured.ca_file,
    }
    keys = [part for key, value in options.items() for part in ("-X", f"{key}={value}")]
    line = ["profile", "create", name, "-b", secured.bootstrap_servers, *keys, "--password-file", "-", *more]
    return done(*line, stdin=SECRET + "\n")


def test_a_profile_is_used_by_every_command(secured: Broker, home: Path) -> None:
    assert "Profile prod is in use" in create(secured)
    assert done("topics", "list", "-q").split() == ["orders"]
    assert current_profile() == "prod"
    file = home / "profiles" / "prod.properties"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_profile("prod")["sasl.plain.password"] == SECRET


def test_profiles_are_listed_shown_and_deleted_without_secrets(secured: Broker) -> None:
    create(secured)
    done("profile", "create", "local", "-b", "localhost:9092")
    rows = [line.split("\t") for line in done("profile", "list").splitlines()[1:]]
    assert [(row[0], row[1], row[3]) for row in rows] == [("*", "local", "PLAINTEXT"), ("-", "prod", "SASL_SSL")]
    shown = done("profile", "show", "prod")
    assert "sasl.plain.password\t[hidden]" in shown
    assert "sasl.plain.username\tann" in shown
    done("profile", "use", "prod")
    assert current_profile() == "prod"
    done("profile", "delete", "prod")
    assert profile_names() == ["local"]
    assert current_profile() is None
    assert "No profile is in use" in refused("profile", "show")
    done("profile", "use", "local")
    done("profile", "clear")
    assert current_profile() is None


def test_wrong_profiles_are_refused(secured: Broker) -> None:
    create(secured)
    assert "There is a profile prod already" in refused("profile", "create", "prod")
    assert "Did you mean prod?" in refused("profile", "use", "prot")
    assert "There is no profile" in refused("topics", "list", "--profile", "nothing")
    assert "no name of a profile" in refused("profile", "create", "../x")
    assert "did you mean sasl.username" in refused("profile", "create", "x", "-X", "sasl.usernam=ann")
    assert "give -X sasl.username" in refused("profile", "create", "x", "--password-env", "HOME")
    assert profile_names() == ["prod"]
    create(secured, "prod", "--replace")


def test_a_file_takes_the_place_of_the_profile(secured: Broker, tmp_path: Path) -> None:
    done("profile", "create", "elsewhere", "-b", "127.0.0.1:1", "-X", "security.protocol=SSL")
    file = tmp_path / "client.properties"
    keys = secured.client_config(mechanism="PLAIN")
    write_profile("copy", keys)
    file.write_text((tmp_path / "config/kafkapy/profiles/copy.properties").read_text())
    for option in ("--config", "--command-config"):
        assert done("topics", "list", "-q", option, str(file)).split() == ["orders"]
    assert done("topics", "list", "-q", "--profile", "copy").split() == ["orders"]


def test_variables_set_keys(secured: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", secured.bootstrap_servers)
    monkeypatch.setenv("KAFKAPY_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("KAFKAPY_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("KAFKAPY_SASL_USERNAME", "ann")
    monkeypatch.setenv("KAFKAPY_SASL_PASSWORD", SECRET)
    monkeypatch.setenv("KAFKAPY_SSL_CA_LOCATION", secured.ca_file)
    assert done("topics", "list", "-q").split() == ["orders"]
    said = refused("topics", "list", "-X", "sasl.password=wrong")
    assert "refused authentication by PLAIN" in said
    write_profile("named", {"sasl.plain.password": "wrong too"})
    monkeypatch.setenv("KAFKAPY_PROFILE", "named")
    assert done("topics", "list", "-q").split() == ["orders"], "variables win over a profile"
    monkeypatch.setenv("KAFKAPY_SASL_PASWORD", SECRET)
    assert "KAFKAPY_SASL_PASWORD" in refused("topics", "list")


def test_later_layers_win_whatever_names_they_use() -> None:
    assert merged({"sasl.username": "a"}, {"sasl.plain.username": "b"}) == {"sasl.plain.username": "b"}
    assert merged({"ssl_cafile": "a", "x.y": "1"}, {"x.y": "2"}) == {"ssl.ca.location": "a", "x.y": "2"}
    jaas = {"sasl.jaas.config": "x"}
    assert merged({"sasl.username": "a", "sasl.password": "b"}, jaas) == jaas
    assert merged(jaas, {"sasl.username": "a"}) == {"sasl.plain.username": "a"}
    twice = {"sasl.username": "a", "sasl.plain.username": "b"}
    assert len(merged(twice)) == 2, "the client refuses them"


def test_only_variables_of_security_are_keys() -> None:
    assert environment_settings({"KAFKAPY_BENCH": "1", "SASL_USERNAME": "x", "KAFKAPY_SASL_USERNAME": "ann"}) == {
        "sasl.username": "ann"
    }
    with pytest.raises(ConfigError, match="KAFKAPY_SSL_CA_LOCATON.*did you mean ssl.ca.location"):
        environment_settings({"KAFKAPY_SSL_CA_LOCATON": "x"})


@pytest.mark.parametrize("value", ["", " blank", "a\\b", "line\nline", "tab\t", "#!=: ", "ü€"])
def test_every_value_comes_back_from_a_profile(value: str) -> None:
    write_profile("x", {"client.id": value, "od d:k=e#y": value})
    assert read_profile("x") == {"client.id": value, "od d:k=e#y": value}


def test_a_profile_that_cannot_be_written_is_an_error(home: Path) -> None:
    home.parent.mkdir(parents=True)
    home.write_text("a file in the place of the directory")
    with pytest.raises(KafkaError, match="cannot be written"):
        write_profile("x", {})
