"""Configuration keys as data: name, type, default, validator, documentation.

Source: org.apache.kafka.common.config.ConfigDef. Import fills a `ConfigDef` once (plugins may add keys before the
broker's configuration is read). It is read-only afterwards, so every thread may use it. Text parses as in Kafka, and
errors are `ConfigError`: key, value, allowed values, and the line of the file.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kafkapy.config.suggestions import did_you_mean, nearest
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigType

HIDDEN: Final = "[hidden]"
"""The text in place of a secret."""

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
MAX_DOUBLE: Final = sys.float_info.max

_INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")


class Importance(Enum):
    """How often users need to set a key."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Whether a broker key changes at run time, and for which brokers.

    See KIP-226.
    """

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Password(str):
    """A secret text that `str()` and `repr()` hide.

    It compares and hashes as its text; `value` is the text.
    """

    __slots__ = ()

    @property
    def value(self) -> str:
        """The secret itself."""
        return str.__str__(self)

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)


# --- validators ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Validator:
    """A check of a parsed value, and its allowed values in words.

    `accepts` is never called with None.
    """

    accepts: Callable[[Any], bool]
    allowed: str


def between(low: float, high: float) -> Validator:
    """Numbers from low to high, inclusive."""
    return Validator(lambda value: bool(low <= value <= high), f"between {low} and {high}")


def at_least(low: float) -> Validator:
    """Numbers of at least low."""
    return Validator(lambda value: bool(value >= low), f"at least {low}")


def one_of(*values: str) -> Validator:
    """One of the given words; for a list, each item."""

    def accepts(value: str | list[str]) -> bool:
        return value in values if isinstance(value, str) else all(item in values for item in value)

    return Validator(accepts, "one of " + ", ".join(values))


def one_of_ignoring_case(*values: str) -> Validator:
    """One of the given words in any case, or a list of them."""
    folded = frozenset(value.lower() for value in values)

    def accepts(value: str | list[str]) -> bool:
        return all(item.lower() in folded for item in ([value] if isinstance(value, str) else value))

    return Validator(accepts, "one of " + ", ".join(values))


def one_of_numbers(*ranges: tuple[int, int]) -> Validator:
    """Integers in any of the given inclusive ranges."""
    text = " or ".join(str(low) if low == high else f"{low} to {high}" for low, high in ranges)
    return Validator(lambda value: any(low <= value <= high for low, high in ranges), text)


def non_empty() -> Validator:
    """Text or a list that is not empty."""
    return Validator(lambda value: len(value) > 0, "not empty")


def matches(pattern: str, allowed: str) -> Validator:
    """Text that matches the whole pattern; for a list, each item."""
    compiled = re.compile(pattern)

    def accepts(value: str | list[str]) -> bool:
        return all(compiled.fullmatch(item) is not None for item in ([value] if isinstance(value, str) else value))

    return Validator(accepts, allowed)


def checked_by(check: Callable[[Any], bool], allowed: str) -> Validator:
    """Values that a function accepts; `allowed` describes them in words."""
    return Validator(check, allowed)


# --- keys ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key: type, default, allowed values and documentation. Immutable."""

    name: str
    type: ConfigType
    default: Any
    validator: Validator | None
    importance: Importance
    doc: str
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    internal: bool = False
    """Internal keys work, but are not on the reference page, as in Kafka."""

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret."""
        return self.type is ConfigType.PASSWORD

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        return self.validator.allowed if self.validator is not None else ""

    def parse(self, raw: object, line: int | None = None, source: str | None = None, name: str | None = None) -> Any:
        """The value for a raw text, or for a typed value.

        `name` is the name in the file, which may have a listener prefix. ConfigError for a value that is not allowed.
        """
        name = name or self.name
        shown = None if self.sensitive else raw
        try:
            value = parse_type(self.type, raw)
        except ValueError as error:
            raise ConfigError(name, shown, str(error), line, source) from None
        if value is not None and self.validator is not None and not self.validator.accepts(value):
            raise ConfigError(name, shown, f"must be {self.validator.allowed}", line, source)
        return value


def parse_type(type_: ConfigType, raw: object) -> Any:
    """Convert text to a value of the type, as Kafka does.

    Surrounding blanks are dropped, and lists split at commas. ValueError with the allowed values.
    """
    if raw is None:
        return None
    if isinstance(raw, Password):
        return raw
    text = raw.strip() if isinstance(raw, str) else None
    if type_ is ConfigType.BOOLEAN:
        if isinstance(raw, bool):
            return raw
        if text is not None and text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise ValueError("must be true or false")
    if type_ in _INTEGER_BITS:
        if isinstance(raw, int) and not isinstance(raw, bool):
            number = raw
        elif text is not None and len(text) <= 24 and _INTEGER.match(text):
            number = int(text)
        else:
            raise ValueError(f"must be a whole number ({type_.label})")
        limit = 1 << (_INTEGER_BITS[type_] - 1)
        if not -limit <= number < limit:
            raise ValueError(f"must be a whole number between {-limit} and {limit - 1} ({type_.label})")
        return number
    if type_ is ConfigType.DOUBLE:
        if isinstance(raw, (int, float)) and not isinstance(raw, bool):
            return float(raw)
        try:
            return float(text or "")
        except ValueError:
            raise ValueError("must be a number (double)") from None
    if type_ is ConfigType.LIST:
        if text is not None:
            return [item.strip() for item in text.split(",")] if text else []
        if isinstance(raw, Iterable):
            return [str(item) for item in raw]
        raise ValueError("must be a comma-separated list")
    if text is None:
        raise ValueError(f"must be text ({type_.label})")
    return Password(text) if type_ is ConfigType.PASSWORD else text


def format_value(type_: ConfigType, value: Any) -> str | None:
    """Format a value as in Kafka's DescribeConfigs and config records.

    Secrets are formatted as their text.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Password):
        return value.value
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    if type_ is ConfigType.DOUBLE:
        return _java_double(float(value))
    return str(value)


def _java_double(value: float) -> str:
    # Java writes 1.7976931348623157E308 where Python writes 1.7976931348623157e+308; clients compare the text.
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, exponent = repr(value).split("e") if "e" in repr(value) else f"{value:.17e}".split("e")
    if "e" not in repr(value):
        for digits in range(1, 18):
            mantissa, exponent = f"{value:.{digits}e}".split("e")
            if float(f"{mantissa}e{exponent}") == value:
                break
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


class ConfigDef:
    """An ordered set of keys, read-only after the import.

    Plugins add keys before the configuration is read. `prefixes` are key prefixes of plugins, with text values.
    """

    def __init__(self, keys: Iterable[ConfigKey] = (), prefixes: Iterable[str] = ()) -> None:
        self._keys: dict[str, ConfigKey] = {}
        self.prefixes: tuple[str, ...] = tuple(prefixes)
        self.add(keys)

    def define(
        self,
        name: str,
        type_: ConfigType,
        default: Any,
        validator: Validator | None,
        importance: Importance,
        doc: str,
        update_mode: UpdateMode = UpdateMode.READ_ONLY,
        internal: bool = False,
    ) -> None:
        """Add one key. ValueError for a taken name or a wrong default."""
        self.add([ConfigKey(name, type_, default, validator, importance, doc, update_mode, internal)])

    def add(self, keys: Iterable[ConfigKey]) -> None:
        """Add keys. ValueError for a taken name."""
        for key in keys:
            if key.name in self._keys:
                raise ValueError(f"configuration key {key.name} is defined twice")
            self._keys[key.name] = key

    def extended(self, keys: Iterable[ConfigKey], prefixes: Iterable[str] = ()) -> ConfigDef:
        """A new ConfigDef with more keys and prefixes."""
        return ConfigDef([*self._keys.values(), *keys], [*self.prefixes, *prefixes])

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def get(self, name: str) -> ConfigKey | None:
        """The key of that name, or None."""
        return self._keys.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def names(self) -> Sequence[str]:
        """All names, in the order of definition."""
        return list(self._keys)

    def defaults(self) -> dict[str, Any]:
        """The default of every key."""
        return {name: key.default for name, key in self._keys.items()}

    def has_prefix(self, name: str) -> bool:
        """Whether a plugin's prefix matches this name."""
        return name.startswith(self.prefixes) if self.prefixes else False

    def parse(self, raw: Mapping[str, object], source: str | None = None) -> dict[str, Any]:
        """Values for every key: parsed from `raw`, else the default.

        ConfigError for an unknown key, or a value that is not allowed.
        """
        values = self.defaults()
        for name, text in raw.items():
            key = self._keys.get(name)
            if key is None:
                if not self.has_prefix(name):
                    raise self.unknown_key(name, text, source=source)
                values[name] = text
            else:
                values[name] = key.parse(text, source=source)
        return values

    def has_near(self, name: str, likeness: float) -> bool:
        """Whether a defined name is this similar to `name`; 1.0 is equal."""
        return bool(nearest(name, self._keys, likeness))

    def known_names(self) -> Iterable[str]:
        """The names that an error may suggest."""
        return self._keys

    def unknown_key(self, name: str, value: object, line: int | None = None, source: str | None = None) -> ConfigError:
        """The error for an unknown key, with the closest known names."""
        question = did_you_mean(name, self.known_names())
        hint = f"; {question}" if question else ""
        # An unknown key may be a misspelt password, so its value is hidden when that is possible.
        secret = any(word in name.lower() for word in ("password", "secret", "jaas", ".key"))
        return ConfigError(name, None if secret else value, f"not a configuration key{hint}", line, source)
