"""Values from files and the environment: the variables of configuration values (KIP-297, KIP-421).

    config.providers=file,env,dir
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/etc/kafka/secrets
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.env.param.allowlist.pattern=KAFKA_.*
    config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider

    ssl.key.password=${file:/etc/kafka/secrets/ssl.properties:key.password}     a key of a properties file
    ssl.keystore.password=${env:KAFKA_KEYSTORE_PASSWORD}                        an environment variable
    ssl.truststore.password=${dir:/run/secrets:truststore}                      the content of a file of a directory

A value may hold several variables. The value of a variable is taken as it is: variables in it stay text, as in Kafka.
Kafka also leaves a variable without a value as text; here it is an error that names the key, because the text would
become a password. Sources: org.apache.kafka.common.config.ConfigTransformer and AbstractConfig.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from kafkapy.config.properties import Properties, load_properties
from kafkapy.errors import ConfigError

__all__ = ["CLASSES", "PROVIDERS", "is_provider_key", "resolve", "resolve_properties"]

PROVIDERS: Final = "config.providers"
_VARIABLE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}]*)\}")
_USUAL: Final = ("file", "env", "dir", "directory")
LARGEST_FILE: Final = 1024 * 1024
"""Bytes of a file with a value, at most."""

_PACKAGE: Final = "org.apache.kafka.common.config.provider."


class _Provider(Protocol):
    def get(self, path: str, key: str) -> str:
        """The value. LookupError with the reason."""


class _Paths:
    """allowed.paths: the paths below which a provider may read; all without the parameter (KIP-993)."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        listed = parameters.get("allowed.paths", "")
        self._allowed = [Path(os.path.normpath(each.strip())) for each in listed.split(",") if each.strip()]
        for each in self._allowed:
            if not each.is_absolute():
                raise ValueError(f"allowed.paths must be absolute paths, not {str(each)!r}")
            if not each.exists():
                raise ValueError(f"allowed.paths names {str(each)!r}, which does not exist")

    def check(self, path: str) -> Path:
        if not path:
            raise LookupError("it names no path")
        found = Path(os.path.normpath(path))
        if self._allowed and not any(found.is_relative_to(each) for each in self._allowed):
            raise LookupError(f"{path} is not below allowed.paths")
        return found


class _FileProvider:
    """FileConfigProvider: the keys of properties files."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._paths = _Paths(parameters)
        self._load = cache(load_properties)

    def get(self, path: str, key: str) -> str:
        file = self._paths.check(path)
        try:
            values = self._load(file)
        except ConfigError as error:
            raise LookupError(f"{path}: {error.reason}") from None
        if key not in values:
            raise LookupError(f"{path} has no key {key}")
        return values[key]


class _EnvironmentProvider:
    """EnvVarConfigProvider: environment variables."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        pattern = parameters.get("allowlist.pattern", ".*")
        try:
            self._allowed = re.compile(pattern, re.DOTALL)
        except re.error as error:
            raise ValueError(f"allowlist.pattern is no regular expression: {error}") from None

    def get(self, path: str, key: str) -> str:
        if path:
            raise LookupError(f"variables of the environment have no path, such as {path}")
        if not self._allowed.fullmatch(key):
            raise LookupError(f"allowlist.pattern does not allow {key}")
        try:
            value = os.environ[key]
            value.encode()
        except KeyError:
            raise LookupError(f"the environment has no variable {key}") from None
        except UnicodeEncodeError:
            raise LookupError(f"the variable {key} of the environment is not UTF-8") from None
        return value


class _DirectoryProvider:
    """DirectoryConfigProvider: each file of a directory is a value. One line end at its end is dropped."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._paths = _Paths(parameters)

    def get(self, path: str, key: str) -> str:
        directory = self._paths.check(path)
        if not directory.is_dir():
            raise LookupError(f"{path} is not a directory")
        if not key or "/" in key or key in (".", ".."):
            raise LookupError(f"{key!r} is not the name of a file in {path}")
        file = directory / key
        if not file.is_file():
            raise LookupError(f"{file} is not a file")
        try:
            with file.open("rb") as opened:
                data = opened.read(LARGEST_FILE + 1)
        except OSError as error:
            raise LookupError(f"{file}: {error.strerror or error}") from None
        if len(data) > LARGEST_FILE:
            raise LookupError(f"{file} has more than {LARGEST_FILE} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise LookupError(f"{file} is not UTF-8 (byte {error.start})") from None
        return text.removesuffix("\n").removesuffix("\r")


CLASSES: Final[Mapping[str, Callable[[Mapping[str, str]], _Provider]]] = {
    _PACKAGE + "FileConfigProvider": _FileProvider,
    _PACKAGE + "EnvVarConfigProvider": _EnvironmentProvider,
    _PACKAGE + "DirectoryConfigProvider": _DirectoryProvider,
}
"""The providers by Kafka's class names."""


def is_provider_key(name: str) -> bool:
    """Whether this key configures a provider: config.providers.<name>.class or .param.<parameter>."""
    return name.startswith(PROVIDERS + ".")


def resolve(
    values: Mapping[str, str], error: Callable[[str, object, str], ConfigError] = ConfigError
) -> dict[str, str]:
    """The values with their variables replaced, and without the keys that configure providers.

    `error` makes the error from key, value and reason. ConfigError for a variable without a value, and for a provider
    that is not configured.
    """
    providers = _providers(values, error)
    resolved = {}
    for key, value in values.items():
        if is_provider_key(key):
            continue
        if "${" in value and key != PROVIDERS:
            value = _replaced(key, value, providers, error)
        resolved[key] = value
    return resolved


def resolve_properties(properties: Properties) -> Properties:
    """A properties file with its variables replaced; keys keep their lines. See `resolve`."""

    def error(key: str, value: object, reason: str) -> ConfigError:
        return ConfigError(key, value, reason, properties.line_of(key), properties.source_of(key))

    if PROVIDERS not in properties and not any("${" in value for value in properties.values()):
        return properties
    resolved = Properties(properties.source)
    for key, value in resolve(properties, error).items():
        resolved.set(key, value, properties.line_of(key))
    return resolved


def _providers(values: Mapping[str, str], error: Callable[[str, object, str], ConfigError]) -> dict[str, _Provider]:
    providers: dict[str, _Provider] = {}
    for name in [each.strip() for each in values.get(PROVIDERS, "").split(",") if each.strip()]:
        prefix = f"{PROVIDERS}.{name}."
        for key, value in values.items():
            if key.startswith(prefix) and _VARIABLE.search(value):
                raise error(key, value, "a provider's own settings cannot come from a provider")
        class_key = prefix + "class"
        class_name = values.get(class_key, "").strip()
        made = CLASSES.get(class_name)
        if made is None:
            raise error(class_key, class_name, f"must be one of {', '.join(CLASSES)}")
        parameters = {
            key.removeprefix(prefix + "param."): value
            for key, value in values.items()
            if key.startswith(prefix + "param.")
        }
        try:
            providers[name] = made(parameters)
        except ValueError as reason:
            parameter = str(reason).partition(" ")[0]
            raise error(f"{prefix}param.{parameter}", parameters.get(parameter), str(reason)) from None
    return providers


def _replaced(
    key: str, value: str, providers: Mapping[str, _Provider], error: Callable[[str, object, str], ConfigError]
) -> str:
    def of(match: re.Match[str]) -> str:
        name, path, wanted = match[1], match[2] or "", match[3]
        provider = providers.get(name)
        if provider is None:
            if not providers and name not in _USUAL:
                return match[0]
            raise error(key, match[0], f"{PROVIDERS} does not name a provider {name!r}")
        try:
            return provider.get(path, wanted)
        except LookupError as reason:
            raise error(key, match[0], f"this variable has no value: {reason.args[0]}") from None

    return _VARIABLE.sub(of, value)
