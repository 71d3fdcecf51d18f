"""Variables in configuration values: files, the environment and directories, as in Kafka, and what has no value."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkapy.config.admin import ADMIN
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.config.effects import ineffective_keys
from kafkapy.config.properties import parse_properties
from kafkapy.config.providers import resolve
from kafkapy.errors import ConfigError

PACKAGE = "org.apache.kafka.common.config.provider."
FILE = {"config.providers": "file", "config.providers.file.class": PACKAGE + "FileConfigProvider"}
ENV = {"config.providers": "env", "config.providers.env.class": PACKAGE + "EnvVarConfigProvider"}
DIR = {"config.providers": "dir", "config.providers.dir.class": PACKAGE + "DirectoryConfigProvider"}


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "secrets"
    directory.mkdir()
    (directory / "a.properties").write_text("k=v1\nmore=${env:KP_SECRET}\nescaped=a\\:b\n")
    (directory / "password").write_text("from a directory\n")
    monkeypatch.setenv("KP_SECRET", "from the environment")
    return directory


def test_every_provider(secrets: Path) -> None:
    values = {
        "config.providers": "file, env ,dir",
        **{key: value for each in (FILE, ENV, DIR) for key, value in each.items() if key != "config.providers"},
        "several": f"x${{file:{secrets}/a.properties:k}}y${{env:KP_SECRET}}z",
        "escaped": f"${{file:{secrets}/a.properties:escaped}}",
        "directory": f"[${{dir:{secrets}:password}}]",
        # As in Kafka: a value is not looked through for variables, and what is no variable stays.
        "once": f"${{file:{secrets}/a.properties:more}}",
        "none": "${HOME} $HOME ${} {env:x}",
        "beside": "$${env:KP_SECRET}",
    }
    assert resolve(values) == {
        "config.providers": "file, env ,dir",
        "several": "xv1yfrom the environmentz",
        "escaped": "a:b",
        "directory": "[from a directory]",
        "once": "${env:KP_SECRET}",
        "none": "${HOME} $HOME ${} {env:x}",
        "beside": "$from the environment",
    }


@pytest.mark.parametrize(
    ("providers", "variable", "reason"),
    [
        (FILE, "${file:/nowhere/x.properties:k}", "/nowhere/x.properties: No such file or directory"),
        (FILE, "${file:SECRETS/a.properties:missing}", "a.properties has no key missing"),
        (FILE, "${file:SECRETS/a.properties}", "it names no path"),
        (FILE, "${env:KP_SECRET}", "config.providers does not name a provider 'env'"),
        (FILE, "${vault:x:y}", "config.providers does not name a provider 'vault'"),
        ({}, "${env:KP_SECRET}", "config.providers does not name a provider 'env'"),
        ({}, "${file:/x:y}", "config.providers does not name a provider 'file'"),
        (ENV, "${env:KP_MISSING}", "the environment has no variable KP_MISSING"),
        (ENV, "${env:path:KP_SECRET}", "variables of the environment have no path"),
        (ENV, "${env:}", "the environment has no variable "),
        (ENV, "${env:KP_NOT_UTF8}", "is not UTF-8"),
        (DIR, "${dir:/nowhere:password}", "/nowhere is not a directory"),
        (DIR, "${dir:SECRETS:missing}", "secrets/missing is not a file"),
        (DIR, "${dir:SECRETS:..}", "'..' is not the name of a file"),
        (DIR, "${dir:SECRETS:../secrets/password}", "is not the name of a file"),
        (DIR, "${dir:SECRETS:large}", "has more than 1048576 bytes"),
        (DIR, "${dir:SECRETS:binary}", "is not UTF-8 (byte 0)"),
    ],
)
def test_variable_without_a_value_is_refused_with_key_and_line(
    secrets: Path, monkeypatch: pytest.MonkeyPatch, providers: dict[str, str], variable: str, reason: str
) -> None:
    monkeypatch.setenv("KP_NOT_UTF8", os.fsdecode(b"\xff"))
    (secrets / "large").write_bytes(b"x" * (1 << 20) + b"x")
    (secrets / "binary").write_bytes(b"\xff")
    variable = variable.replace("SECRETS", str(secrets))
    text = "".join(f"{key}={value}\n" for key, value in providers.items()) + "\n# two more lines\n"
    text += f"ssl.keystore.password=hidden-part {variable}\n"
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties(parse_properties(text, "server.properties"))
    error = caught.value
    assert (error.key, error.value, error.source) == ("ssl.keystore.password", variable, "server.properties")
    assert error.line == len(text.splitlines())
    assert reason in error.reason
    assert "hidden-part" not in str(error)


def test_allowed_paths_limit_files_and_directories(secrets: Path) -> None:
    other = secrets.parent / "other"
    other.mkdir()
    for name, file in (("file", "/a.properties:k"), ("dir", ":password")):
        given = {**(FILE if name == "file" else DIR), f"config.providers.{name}.param.allowed.paths": str(other)}
        inside = f"${{{name}:{secrets}{file}}}"
        with pytest.raises(ConfigError, match=r"is not below allowed\.paths"):
            resolve({**given, "x": inside})
        with pytest.raises(ConfigError, match=r"is not below allowed\.paths"):
            resolve({**given, "x": inside.replace(str(secrets), f"{other}/../secrets")})
        given[f"config.providers.{name}.param.allowed.paths"] = f"{other}, {secrets}"
        assert "x" in resolve({**given, "x": inside})


def test_allowlist_pattern_limits_the_environment(secrets: Path) -> None:
    given = {**ENV, "x": "${env:KP_SECRET}"}
    allowed = {"config.providers.env.param.allowlist.pattern": "KP_.*"}
    assert resolve({**given, **allowed})["x"] == "from the environment"
    for pattern in ("KP_", "P_SECRET", "OTHER"):
        with pytest.raises(ConfigError, match=r"allowlist\.pattern does not allow KP_SECRET"):
            resolve({**given, "config.providers.env.param.allowlist.pattern": pattern})


@pytest.mark.parametrize(
    ("values", "key", "reason"),
    [
        ({"config.providers": "file"}, "config.providers.file.class", "must be one of org.apache.kafka"),
        ({**FILE, "config.providers.file.class": "com.example.Vault"}, "config.providers.file.class", "must be one of"),
        ({**FILE, "config.providers.file.param.allowed.paths": "relative"},
         "config.providers.file.param.allowed.paths", "must be absolute paths"),
        ({**FILE, "config.providers.file.param.allowed.paths": "/no/where"},
         "config.providers.file.param.allowed.paths", "does not exist"),
        ({**ENV, "config.providers.env.param.allowlist.pattern": "("},
         "config.providers.env.param.allowlist.pattern", "no regular expression"),
        # A loop: the provider would need itself.
        ({**FILE, "config.providers.file.param.allowed.paths": "${file:/x:y}"},
         "config.providers.file.param.allowed.paths", "cannot come from a provider"),
    ],
)  # fmt: skip
def test_provider_that_cannot_work_is_refused(values: dict[str, str], key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(values)
    assert (caught.value.key, reason in caught.value.reason) == (key, True)


def test_broker_reads_variables_of_its_file_and_of_overrides(secrets: Path) -> None:
    text = (
        "".join(f"{key}={value}\n" for key, value in FILE.items()) + f"listeners=PLAINTEXT://:9092\nlog.dir={secrets}\n"
    )
    properties = parse_properties(text, "server.properties")
    properties.override([f"ssl.key.password=${{file:{secrets}/a.properties:k}}"])
    config = BrokerConfig.from_properties(properties)
    password = config.get_password("ssl.key.password")
    assert password is not None
    assert password.value == "v1"
    assert config.get_list("config.providers") == ["file"]
    assert config.unknown_keys == []
    assert "config.providers" not in ineffective_keys(config)
    # A later change of the dynamic configuration does not replace anything again.
    later = config.with_dynamic({"max.connections": "5"})
    assert later["ssl.key.password"] == password


def test_value_error_names_the_line_of_the_variable(secrets: Path) -> None:
    text = "".join(f"{key}={value}\n" for key, value in FILE.items())
    text += f"num.network.threads=${{file:{secrets}/a.properties:k}}\n"
    with pytest.raises(ConfigError, match=r"Invalid value 'v1' for configuration num.network.threads: .*line 3"):
        BrokerConfig.from_properties(parse_properties(text, "server.properties"))


def test_clients_read_variables(secrets: Path) -> None:
    variable = f"${{file:{secrets}/a.properties:k}}"
    config = ClientConfig(COMMON, {**FILE, "ssl.key.password": variable, "client.id": f"c-{variable}"})
    assert config["ssl.key.password"].value == "v1"
    assert config["client.id"] == "c-v1"
    listed = ClientConfig(ADMIN, {**FILE, "config.providers": ["file"], "ssl.key.password": variable})
    assert listed["ssl.key.password"].value == "v1"
    with pytest.raises(ConfigError, match="does not name a provider 'file'") as caught:
        ClientConfig(COMMON, {"ssl.key.password": variable})
    assert caught.value.key == "ssl.key.password"


def test_values_that_are_no_text_stay(secrets: Path) -> None:
    marker = object()
    config = ClientConfig(COMMON, {**FILE, "ssl.context": marker})
    assert config["ssl.context"] is marker
