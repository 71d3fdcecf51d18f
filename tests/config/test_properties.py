"""Java .properties files: what is a key, what is a value, and on which line it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkapy.config.properties import load_properties, parse_properties
from kafkapy.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a: b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("  a=b  ", {"a": "b  "}),
        ("a=b=c", {"a": "b=c"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("# a=b", {}),
        ("  ! a=b", {}),
        ("a=b#c", {"a": "b#c"}),
        ("a=1\\\n   2\\\n   3", {"a": "123"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("# no continuation \\\na=b", {"a": "b"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a=\\t\\n\\q", {"a": "\t\nq"}),
        ("a=\\u0041\\u00e9", {"a": "Aé"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("\n\n", {}),
    ],
)
def test_it_reads_what_java_reads(text: str, expected: dict[str, str]) -> None:
    assert dict(parse_properties(text)) == expected


def test_each_key_knows_its_line() -> None:
    properties = parse_properties("# head\n\na=1\nb=2\\\n  3\nc=4\na=5\n", "f.properties")
    assert [properties.line_of(key) for key in "abc"] == [7, 4, 6]
    assert properties.source_of("a") == "f.properties"


def test_a_bad_escape_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"hexadecimal digits \(f, line 2\)"):
        parse_properties("a=1\nb=\\u00x1", "f")


def test_an_override_goes_over_the_file_and_the_last_one_wins() -> None:
    properties = parse_properties("a=1\nb=2", "f").override(["a=x=y", "a=z", "c="])
    assert dict(properties) == {"a": "z", "b": "2", "c": ""}
    assert properties.line_of("a") is None
    assert properties.source_of("a") == "--override"
    assert properties.source_of("b") == "f"


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_an_override_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be key=value"):
        parse_properties("").override([text])


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.properties.*No such file"):
        load_properties(tmp_path / "missing.properties")
    (tmp_path / "bad").write_bytes(b"a=\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_properties(tmp_path / "bad")
