"""sasl.jaas.config: Kafka's grammar, and errors that name key and place but no secret."""

from __future__ import annotations

import random

import pytest

from kafkapy.security.jaas import JaasError, mechanisms_of, parse_jaas, parse_jaas_file

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def plain_options(text: str) -> dict[str, str]:
    (entry,) = parse_jaas(text)
    return {name: entry.option(name) or "" for name in entry.options}


def test_an_entry_has_module_flag_and_options() -> None:
    (entry,) = parse_jaas(f'{PLAIN} required username="admin" password="s3cret" user_alice=wonder;')
    assert entry.login_module == PLAIN
    assert entry.control_flag == "required"
    assert {name: value.value for name, value in entry.options.items()} == {
        "username": "admin",
        "password": "s3cret",
        "user_alice": "wonder",
    }
    assert mechanisms_of(entry) == ("PLAIN",)
    assert entry.option("nothing") is None


def test_entries_follow_each_other_and_need_no_options() -> None:
    first, second = parse_jaas(f"{SCRAM} REQUIRED; {PLAIN} sufficient a=b;")
    assert (first.login_module, first.control_flag, dict(first.options)) == (SCRAM, "required", {})
    assert mechanisms_of(first) == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert second.control_flag == "sufficient"
    assert mechanisms_of(parse_jaas("com.example.Own required;")[0]) == ()


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"a b"', "a b"),
        ("'a \" b'", 'a " b'),
        ('"a \' b"', "a ' b"),
        (r'"a\"b\\c"', 'a"b\\c'),
        (r'"\t\n\r\b\f\a\v"', "\t\n\r\b\f\a\v"),
        (r'"\101\7\400\0"', "A\7 0\0"),
        (r'"\q\;"', "q;"),
        ('"="', "="),
        ('"// no comment /* here"', "// no comment /* here"),
        ('""', ""),
        ("word-with_all.of$them9", "word-with_all.of$them9"),
        ("_9", "_9"),
        ("\u00e9t\u00e9", "\u00e9t\u00e9"),
        ('"\u96ea"', "\u96ea"),
    ],
)
def test_values_are_quoted_or_words(written: str, value: str) -> None:
    assert plain_options(f"{PLAIN} required password={written};") == {"password": value}


def test_white_space_line_breaks_and_comments_stand_between_tokens() -> None:
    text = f"""
    /* two
       lines */ {PLAIN}   required // to the end; of = the "line
        password = "x" / also a comment
        serviceName=kafka
    ;"""
    assert plain_options(text) == {"password": "x", "serviceName": "kafka"}


def test_keys_may_be_quoted_and_the_last_value_counts() -> None:
    assert plain_options(f'{PLAIN} required "user_a b"=x user_c="1" user_c="2";') == {"user_a b": "x", "user_c": "2"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it names no login module"),
        ("  // only a comment", "it names no login module"),
        (PLAIN, f"the control flag of {PLAIN} is missing at the end"),
        (f"{PLAIN};", f"the control flag of {PLAIN} is missing at line 1, column 56"),
        (f"{PLAIN} SECRET;", "at line 1, column 57 must be one of required, requisite, sufficient, optional"),
        (f"{PLAIN} required", f"the entry of {PLAIN} has no semicolon at its end"),
        (f"{PLAIN} required password=SECRET", "has no semicolon at its end"),
        (f"{PLAIN} required\npassword=;", "the option password has no value at line 2, column 10"),
        (f"{PLAIN} required password=1SECRET;", "the option password has no value at line 1, column 75; .* quotes"),
        (f"{PLAIN} required password=SE@CRET;", "expected at line 1, column 77, after the option password; .* quotes"),
        (f"{PLAIN} required user_a SECRET;", "an equals sign is expected at line 1, column 73, after the control flag"),
        (f"{PLAIN} required a=b SECRET;", "an equals sign is expected at line 1, column 76, after the option a"),
        (f'{PLAIN} required a=b password="SECRET;', "the quoted text at line 1, column 79 has no closing quote"),
        (f'{PLAIN} required password="SECRET\n";', "the quoted text at line 1, column 75 has no closing quote"),
        (f'{PLAIN} required password="SECRET\\', "the quoted text at line 1, column 75 has no closing quote"),
        (f"= {PLAIN}", "a login module's class name is expected at line 1, column 1"),
        ("com.sun.security.auth.module.JndiLoginModule required x=SECRET;", "JndiLoginModule is not allowed"),
    ],
)
def test_an_error_names_key_and_place_and_no_value(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason) as caught:
        parse_jaas(text)
    assert "SECRET" not in str(caught.value)


def test_an_entry_hides_its_values() -> None:
    (entry,) = parse_jaas(f"{PLAIN} required password=SECRET;")
    for shown in (repr(entry), str(entry), f"{entry.options['password']}", repr(entry.options)):
        assert "SECRET" not in shown
        assert "password" in shown or shown == "[hidden]"


def test_a_file_has_contexts() -> None:
    contexts = parse_jaas_file(
        f"""
        KafkaServer {{
            {PLAIN} required user_a="1";
            {SCRAM} required;
        }};
        sasl_ssl.KafkaServer {{ {PLAIN} required; }};
        Client {{ }};
        """
    )
    assert {name: len(entries) for name, entries in contexts.items()} == {
        "KafkaServer": 2,
        "sasl_ssl.KafkaServer": 1,
        "Client": 0,
    }
    assert contexts["KafkaServer"][0].option("user_a") == "1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("KafkaServer", "a { is expected at the end, after the context's name KafkaServer"),
        (f"KafkaServer {{ {PLAIN} required password=SECRET; }}", "a ; is expected at the end, after the context"),
        (f"KafkaServer {{ {PLAIN} required password=SECRET;", "a login module's class name is expected at the end"),
        ("A { }; A { };", "the context A appears twice, at line 1, column 8"),
        ("{ };", "a context's name is expected at line 1, column 1"),
    ],
)
def test_a_malformed_file_is_refused(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason) as caught:
        parse_jaas_file(text)
    assert "SECRET" not in str(caught.value)


def test_any_cut_and_any_changed_character_is_an_entry_or_an_error() -> None:
    text = f"{PLAIN} required /* c */ username=\"a\\\"b\" user_alice='w\\101' x=y; // end"
    generator = random.Random(21)
    broken = [text[:length] for length in range(len(text))]
    for _ in range(2000):
        at = generator.randrange(len(text))
        broken.append(text[:at] + generator.choice("\"'\\/*=;{} \nq0\0") + text[at + 1 :])
    for each in broken:
        try:
            entries = parse_jaas(each)
        except JaasError:
            continue
        assert entries
        assert all(entry.login_module for entry in entries)
