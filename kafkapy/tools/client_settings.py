"""The client's keys of a command.

    ~/.config/kafkapy/profiles/NAME.properties      keys of a profile, in the form of Kafka's client.properties
    ~/.config/kafkapy/current-profile               the name of the profile in use

Later sources win: profile, variables, file (`--config`), `-X`, `--bootstrap-server`. A file takes the place of the
profile in use. The files of profiles are readable by their owner only, because they may hold passwords.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafkapy.config.suggestions import did_you_mean
from kafkapy.errors import ConfigError, KafkaError

__all__ = [
    "current_profile",
    "environment_settings",
    "merged",
    "profile_names",
    "read_profile",
    "remove_profile",
    "use_profile",
    "write_profile",
]

PREFIX: Final = "KAFKAPY_"
FAMILIES: Final = ("SECURITY_", "SASL_", "SSL_")
"""KAFKAPY_SASL_USERNAME sets sasl.username: variables of these families are keys of the client."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
SUFFIX: Final = ".properties"


def merged(*layers: Mapping[str, str]) -> dict[str, str]:
    """The keys of all layers; later ones win.

    Names of the same key are equal. A layer that sets one of two contradicting keys also removes the other one of
    earlier layers.
    """
    from kafkapy.config.client_security import CONTRADICTIONS

    settings: dict[str, str] = {}
    for layer in layers:
        names = _keys(layer)
        for first, second in CONTRADICTIONS:
            for key, other in ((first, second), (second, first)):
                if key in names.values() and other not in names.values():
                    settings.pop(other, None)
        settings |= {names[name]: value for name, value in layer.items()}
    return settings


def _keys(layer: Mapping[str, str]) -> dict[str, str]:
    """{name: key}. A name stays when it is of no client, or of a key that the layer sets twice."""
    from kafkapy.config.clients import COMMON

    keys: dict[str, str] = {}
    for name in layer:
        try:
            key = COMMON.key_of(name)
        except ConfigError:
            key = None
        taken = key is None or key.name in keys.values() or (key.name in layer and key.name != name)
        keys[name] = name if taken or key is None else key.name
    return keys


def environment_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The keys that variables set.

    ConfigError for a variable of such a name that is no key.
    """
    from kafkapy.config.clients import COMMON

    found = {}
    for variable, value in environment.items():
        name = variable.removeprefix(PREFIX)
        if name != variable and name.startswith(FAMILIES):
            key = name.lower().replace("_", ".")
            try:
                COMMON.key_of(key)
            except ConfigError as error:
                raise ConfigError(variable, None, f"{key} is {error.reason}") from None
            found[key] = value
    return found


# --- profiles -----------------------------------------------------------------------------------------------------


def _directory() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "kafkapy"


def _file(name: str) -> Path:
    if not _NAME.match(name):
        raise KafkaError(f"{name!r} is no name of a profile: use letters, digits, dots, - and _.")
    return _directory() / "profiles" / f"{name}{SUFFIX}"


def profile_names() -> list[str]:
    """The names of all profiles, sorted."""
    folder = _directory() / "profiles"
    if not folder.is_dir():
        return []
    return sorted(file.name.removesuffix(SUFFIX) for file in folder.iterdir() if file.name.endswith(SUFFIX))


def current_profile() -> str | None:
    """The name of the profile in use, None without one."""
    try:
        name = (_directory() / "current-profile").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KafkaError(f"The profile in use cannot be read: {error.strerror} ({error.filename}).") from None
    return name or None


def read_profile(name: str) -> dict[str, str]:
    """The keys of a profile. KafkaError for an unknown one, with the closest names."""
    from kafkapy.config.properties import load_properties

    file = _file(name)
    if not file.is_file():
        question = did_you_mean(name, profile_names())
        hint = f" {question[:1].upper()}{question[1:]}" if question else " kafkapy profile list shows the profiles."
        raise KafkaError(f"There is no profile {name}.{hint}")
    return dict(load_properties(file))


def write_profile(name: str, settings: Mapping[str, str]) -> Path:
    """Write a profile, readable by its owner only, in one step. KafkaError."""
    file = _file(name)
    text = "".join(f"{_escaped(key, key=True)}={_escaped(value)}\n" for key, value in sorted(settings.items()))
    _write(file, text)
    return file


def use_profile(name: str | None) -> None:
    """Make a profile the one in use; None: no profile is. KafkaError."""
    if name is not None:
        read_profile(name)
    _write(_directory() / "current-profile", f"{name or ''}\n")


def remove_profile(name: str) -> None:
    """Remove a profile, which is then not in use either. KafkaError."""
    read_profile(name)
    try:
        _file(name).unlink()
    except OSError as error:
        raise KafkaError(f"The profile {name} cannot be removed: {error.strerror} ({error.filename}).") from None
    if current_profile() == name:
        use_profile(None)


def _write(file: Path, text: str) -> None:
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside.touch(0o600)
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise KafkaError(f"{file} cannot be written: {error.strerror}.") from None


def _escaped(text: str, *, key: bool = False) -> str:
    """A key or a value as it stands in a properties file."""
    out = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\f", "\\f")
    if key:
        return re.sub(r"([ =:#!])", r"\\\1", out)
    return "\\" + out if out.startswith(" ") else out
