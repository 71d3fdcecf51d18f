"""Patterns of subscriptions: RE2's syntax, Kafka's words for what is wrong, and no pattern that hangs or bloats."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.coordinator.group import subscription_patterns
from kafkapy.coordinator.group.subscription_patterns import MAX_PROGRAM, MAX_WEIGHT, compile_pattern, resolve
from kafkapy.errors import ErrorCode, KafkaError

TOPICS = ["foo", "foo-1.x", "bar", "Foo", "xfoo"]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("foo", ["foo"]),
        ("foo.*", ["foo", "foo-1.x"]),
        (".*foo", ["foo", "xfoo"]),
        ("^foo$", ["foo"]),
        (r"foo-\d\.\w|bar", ["foo-1.x", "bar"]),
        ("(?i)FOO", ["foo", "Foo"]),
        (r"\Qfoo-1.x\E", ["foo-1.x"]),
        ("(?P<name>f)oo", ["foo"]),
        ("(?<name>f)oo", ["foo"]),
        ("[[:lower:]]+", ["foo", "bar", "xfoo"]),
        (r"\p{Lu}.*", ["Foo"]),
        ("[^f].{2}", ["bar", "Foo"]),
        ("", []),
        ("fo", []),
        ("fo{2}", ["foo"]),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matched: list[str]) -> None:
    assert resolve([pattern], TOPICS) == {pattern: frozenset(matched)}
    assert [topic for topic in TOPICS if compile_pattern(pattern).matches(topic)] == matched


@pytest.mark.parametrize(
    ("pattern", "description"),
    [
        # The descriptions are what RE2/J 1.8 gives for the same patterns.
        ("[a", "missing closing ]"),
        ("(a", "missing closing )"),
        ("a)", "regexp/syntax: internal error"),
        ("*a", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a++", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("a{2,1}", "invalid repeat count"),
        (r"(a)\1", "invalid escape sequence"),
        (r"a\Z", "invalid escape sequence"),
        ("\\", "trailing backslash at end of expression"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?!a)", "invalid or unsupported Perl syntax"),
        ("(?>a)", "invalid or unsupported Perl syntax"),
        ("(?<!a)", "invalid named capture"),
        ("(?P<n", "invalid named capture"),
        ("[z-a]", "invalid character class range"),
        (r"\p{Foo}", "invalid character class range"),
        ("[[:foo:]]", "invalid character class range"),
    ],
)
def test_what_is_wrong_is_said_in_kafkas_words(pattern: str, description: str) -> None:
    with pytest.raises(KafkaError) as caught:
        compile_pattern(pattern)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    expected = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {description}."
    assert str(caught.value) == expected


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(KafkaError, match="invalid UTF-8") as caught:
        compile_pattern("\ud800")
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_list_of_a_thousand_topics_is_a_pattern() -> None:
    names = [f"a-topic-with-number-{number}" for number in range(1000)]
    assert resolve(["|".join(names)], [*names, "a-topic-with-number-1001"]) == {"|".join(names): frozenset(names)}


@pytest.mark.parametrize(
    "pattern",
    [
        "a" * (MAX_WEIGHT + 1),
        r"\pL" * 30_000,
        r"\p{L}{1000}" * 30,
        "(?:(?:a?){30}){30}" * 40,
        "(?:(?:a?){30}){30}" * 2000,
        ".?" * 15_000,
        "[a-c]?" * 16_000,
        "(a|" * 100_000 + ")" * 100_000,
        "." * (MAX_PROGRAM + 1),
        "\u00e9" * 20_000,
    ],
)
def test_a_pattern_that_would_take_much_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError, match="expression too large") as caught:
        compile_pattern(pattern)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(str(caught.value)) < MAX_WEIGHT + 200


@pytest.mark.parametrize(
    "pattern", ["(x+x+)+y", "(a|aa)+$", "(a*)*b", "(.*)*(.*)*(.*)*b", "(a|b)*a(a|b){200}", "(?:(?:a?){30}){15}"]
)
def test_a_pattern_that_would_backtrack_is_answered(pattern: str) -> None:
    names = ["a" * 249, "ab" * 124, "x" * 249] * 20
    assert resolve([pattern], names)[pattern] <= set(names)


def test_a_pattern_that_takes_too_long_matches_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subscription_patterns, "MAX_SECONDS", -1.0)
    assert resolve(["a.*"], ["ab"]) == {"a.*": frozenset()}
    assert "took longer" in caplog.text


def test_a_pattern_that_is_not_valid_matches_nothing_beside_one_that_is(caplog: pytest.LogCaptureFixture) -> None:
    assert resolve(["(a", "foo"], TOPICS) == {"(a": frozenset(), "foo": frozenset({"foo"})}
    assert "SubscribedTopicRegex `(a` is not a valid" in caplog.text


@settings(max_examples=300, deadline=None)
@given(text=st.one_of(st.text(max_size=60), st.text(alphabet=r"ab()[]{}|*+?.\^$-,:<>P=!0123pLQEi", max_size=60)))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    try:
        compile_pattern(text).matches("a-topic")
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
