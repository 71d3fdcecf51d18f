"""The plugin: settings files, the command, and a console inside a broker."""

from __future__ import annotations

import socket
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from console_site import Person
from kafkapy_console import plugin
from kafkapy_console.cli import main
from kafkapy_console.security.passwords import matches
from kafkapy_console.server import check_exposure, is_loopback, split_address
from kafkapy_console.settings import Level, Settings

from kafkapy import testing
from kafkapy.errors import ConfigError

KAFKA = {"bootstrap.servers": "localhost:9092"}
FULL = """
name = "production"
read-only = true
hosts = ["console.example"]
[kafka]
"bootstrap.servers" = "a:9092"
[login]
mode = "users"
session-hours = 2
[login.users]
ann = "scrypt$..."
[[role]]
role = "editor"
users = ["ann"]
prefixes = ["team-a."]
[[mask]]
topics = ["payments.*"]
fields = ["card.number"]
pattern = "[0-9]{12,19}"
[registry]
url = "http://localhost:8081/"
[[connect]]
name = "main"
url = "http://localhost:8083"
[metrics]
urls = ["http://broker1:9400/metrics"]
[audit]
file = "audit.jsonl"
"""


def test_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "console.toml"
    file.write_text(FULL, encoding="utf-8")
    found = Settings.from_file(file)
    assert (found.name, found.read_only, found.login, found.session_hours) == ("production", True, "users", 2.0)
    assert found.roles[0].level is Level.EDITOR
    assert found.masks[0].fields == (("card", "number"),)
    assert found.registry is not None
    assert found.registry.url == "http://localhost:8081"
    assert found.audit_file == tmp_path / "audit.jsonl"
    assert "scrypt" not in repr(found)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("nmae = 'x'", "nmae"),
        ("read-only = 'yes'", "read-only"),
        ("[login]\nmode = 'ldap'", "login.mode"),
        ("[login]\nmode = 'users'", "login.users"),
        ("[login]\nmode = 'oidc'", "login.oidc"),
        ("[[role]]\nrole = 'owner'", "role.role"),
        ("[[mask]]\npattern = '('", "mask.pattern"),
        ("[[mask]]\ntopic = ['x']", "mask[0].topic"),
        ("[registry]", "registry.url"),
        ("[[connect]]\nname = 'x'", "connect[0].url"),
        ("name = \nx = 1", "line 1"),
        ('[kafka]\n"sasl.usrname" = "ann"', "sasl.usrname"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, key: str) -> None:
    file = tmp_path / "console.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        Settings.from_file(file, KAFKA)
    assert key in str(raised.value)


def test_a_console_without_logins_is_for_this_machine_only() -> None:
    settings = Settings(kafka=KAFKA)
    check_exposure(settings, ["127.0.0.1", "::1", "localhost"], allowed=False)
    with pytest.raises(ConfigError, match="gives everybody who reaches it all rights"):
        check_exposure(settings, ["0.0.0.0"], allowed=False)
    check_exposure(settings, ["0.0.0.0"], allowed=True)
    assert not is_loopback("console.example")


def test_addresses() -> None:
    assert split_address("localhost:80") == ("localhost", 80)
    assert split_address("[::1]:80") == ("::1", 80)
    assert split_address(":80") == ("0.0.0.0", 80)
    for text in ("localhost", "localhost:x", "localhost:99999"):
        with pytest.raises(ConfigError):
            split_address(text)


def test_the_command_hashes_a_password() -> None:
    result = CliRunner().invoke(main, ["--hash-password"], input="secret\nsecret\n")
    assert result.exit_code == 0
    assert matches("secret", result.output.split()[-1])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--host", "0.0.0.0"], "gives everybody who reaches it all rights"),
        (["--connect", "x"], "is not NAME=URL"),
        (["--certificate", __file__], "belong together"),
    ],
    ids=["exposed", "connect", "certificate"],
)
def test_the_command_refuses_with_a_sentence(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (1, 2)
    assert text in result.output
    assert "Traceback" not in result.output


def test_a_port_in_use_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = CliRunner().invoke(main, ["--port", str(taken.getsockname()[1])])
    assert result.exit_code == 1
    assert "cannot be listened on" in result.output


def plugins() -> list[ModuleType]:
    """The plugin, unless the environment has it installed: a broker loads it by itself then."""
    from kafkapy.installed_plugins import installed_plugins

    return [] if any(each.name == "console" for each in installed_plugins()) else [plugin]


def test_a_console_inside_a_broker() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with testing.Broker(plugins=plugins(), console_listeners=f"127.0.0.1:{port}") as broker:
        broker.create_topic("inside")
        person = Person(f"http://127.0.0.1:{port}")
        assert "inside" in person.get("/topics")
        person.close()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), 1):
        pass


def test_a_broker_without_the_key_has_no_console() -> None:
    with testing.Broker(plugins=plugins()):
        assert plugin._running == {}


def test_a_read_only_console_inside_a_broker() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with testing.Broker(plugins=plugins(), console_listeners=f"127.0.0.1:{port}", console_read_only=True):
        person = Person(f"http://127.0.0.1:{port}")
        assert "read-only" in person.get("/")
        person.close()
