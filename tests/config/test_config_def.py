"""Keys: what text is a value of which type, and what the error says when it is not."""

from __future__ import annotations

import math

import pytest

from kafkapy.config.config_def import (
    ConfigDef,
    ConfigKey,
    Importance,
    Password,
    at_least,
    format_value,
    one_of,
    parse_type,
)
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigType as T


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (T.BOOLEAN, " TRUE ", True),
        (T.BOOLEAN, "false", False),
        (T.INT, " 42 ", 42),
        (T.INT, "-2147483648", -(2**31)),
        (T.SHORT, "32767", 32767),
        (T.LONG, "9223372036854775807", 2**63 - 1),
        (T.DOUBLE, "0.5", 0.5),
        (T.DOUBLE, "1e3", 1000.0),
        (T.LIST, "a, b ,c", ["a", "b", "c"]),
        (T.LIST, "", []),
        (T.LIST, "  ", []),
        (T.STRING, " x ", "x"),
        (T.CLASS, "a.B", "a.B"),
        (T.PASSWORD, "s3cret", "s3cret"),
    ],
)
def test_text_becomes_a_value(kind: T, text: str, value: object) -> None:
    parsed = parse_type(kind, text)
    assert parsed == value
    assert isinstance(parsed, type(value))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (T.BOOLEAN, "yes"),
        (T.BOOLEAN, "1"),
        (T.INT, "2147483648"),
        (T.INT, "1.0"),
        (T.INT, ""),
        (T.INT, "1_000"),
        (T.INT, "٣"),
        (T.SHORT, "40000"),
        (T.LONG, "9223372036854775808"),
        (T.LONG, "9" * 5000),
        (T.DOUBLE, "much"),
        (T.DOUBLE, ""),
    ],
)
def test_text_that_is_no_value_is_refused(kind: T, text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_type(kind, text)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (T.BOOLEAN, True, "true"),
        (T.INT, -1, "-1"),
        (T.LIST, ["a", "b"], "a,b"),
        (T.LIST, [], ""),
        (T.DOUBLE, 0.5, "0.5"),
        (T.DOUBLE, 1.7976931348623157e308, "1.7976931348623157E308"),
        (T.DOUBLE, 2147483647.0, "2.147483647E9"),
        (T.DOUBLE, 0.00001, "1.0E-5"),
        (T.DOUBLE, math.nan, "NaN"),
        (T.DOUBLE, math.inf, "Infinity"),
        (T.DOUBLE, -math.inf, "-Infinity"),
        (T.PASSWORD, Password("x"), "x"),
        (T.STRING, None, None),
    ],
)
def test_values_are_written_as_java_writes_them(kind: T, value: object, text: str | None) -> None:
    assert format_value(kind, value) == text


def test_a_password_does_not_show() -> None:
    secret = Password("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert secret.value == "hunter2"
    assert type(secret.value) is str


@pytest.fixture
def definition() -> ConfigDef:
    return ConfigDef(
        [
            ConfigKey("threads", T.INT, 3, at_least(1), Importance.HIGH, "Threads."),
            ConfigKey("mode", T.STRING, "fast", one_of("fast", "safe"), Importance.LOW, "Mode."),
            ConfigKey("token.password", T.PASSWORD, None, None, Importance.LOW, "Secret."),
        ]
    )


def test_what_is_not_said_has_its_default(definition: ConfigDef) -> None:
    assert definition.parse({"threads": "5"}) == {"threads": 5, "mode": "fast", "token.password": None}


def test_an_error_says_what_is_allowed(definition: ConfigDef) -> None:
    with pytest.raises(ConfigError, match="'0' for configuration threads: must be at least 1"):
        definition.parse({"threads": "0"})
    with pytest.raises(ConfigError, match="must be one of fast, safe"):
        definition.parse({"mode": "FAST"})


def test_an_unknown_key_gets_a_suggestion(definition: ConfigDef) -> None:
    with pytest.raises(ConfigError, match="did you mean threads"):
        definition.parse({"thraeds": "5"})


def test_an_unknown_key_that_may_be_a_secret_is_not_shown(definition: ConfigDef) -> None:
    with pytest.raises(ConfigError) as caught:
        definition.parse({"tokn.password": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_key_is_defined_once(definition: ConfigDef) -> None:
    with pytest.raises(ValueError, match="defined twice"):
        definition.define("mode", T.STRING, "", None, Importance.LOW, "")


def test_a_claimed_prefix_lets_keys_pass(definition: ConfigDef) -> None:
    extended = definition.extended([], ["mine."])
    assert extended.parse({"mine.x": "1"})["mine.x"] == "1"
    with pytest.raises(ConfigError):
        definition.parse({"mine.x": "1"})
