"""Short names of Kerberos principals: the rules of Kafka, their grammar and their errors."""

from __future__ import annotations

import pytest

from kafkapy.security.kerberos.short_namer import KerberosName, KerberosShortNamer, NoMatchingRuleError

REALM = "REALM.COM"


def short(principal: str, *rules: str, realm: str = REALM) -> str:
    return KerberosShortNamer(realm, rules or ("DEFAULT",)).short_name(KerberosName.parse(principal))


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("App.service-name/example.com@REALM.COM", ("App.service-name", "example.com", "REALM.COM")),
        ("App.service-name@REALM.COM", ("App.service-name", None, "REALM.COM")),
        ("user/host@REALM.COM", ("user", "host", "REALM.COM")),
        ("user", ("user", None, None)),
        ("user/host", ("user/host", None, None)),
        ("@REALM.COM", ("", None, "REALM.COM")),
        ("", ("", None, None)),
    ],
)
def test_a_name_has_up_to_three_parts(text: str, parts: tuple[str, str | None, str | None]) -> None:
    assert KerberosName.parse(text) == parts
    assert str(KerberosName.parse(text)) == text


@pytest.mark.parametrize("text", ["a/b/c@R", "a@b@R", "a@R/x", "a@R@"])
def test_a_malformed_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Malformed Kerberos name"):
        KerberosName.parse(text)


# --- rules --------------------------------------------------------------------------------------------------------


def test_default_takes_the_primary_in_the_default_realm() -> None:
    assert short("alice@REALM.COM") == "alice"
    assert short("kafka/host.example.com@REALM.COM") == "kafka"


def test_default_refuses_other_realms() -> None:
    with pytest.raises(NoMatchingRuleError, match=r"No rules apply to alice@OTHER, rules \[DEFAULT\]"):
        short("alice@OTHER")
    with pytest.raises(NoMatchingRuleError):
        short("alice@", realm="REALM.COM")


def test_a_simple_name_needs_no_rule() -> None:
    assert short("alice", "RULE:[1:nobody]") == "alice"


RULES = (
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("App.service-name/example.com@REALM.COM", "service-name"),
        ("App.service-name@REALM.COM", "service-name"),
        ("user/host@REALM.COM", "user"),
    ],
)
def test_the_first_rule_that_applies_wins(principal: str, name: str) -> None:
    assert short(principal, *RULES) == name


@pytest.mark.parametrize(
    ("rule", "principal", "name"),
    [
        ("RULE:[1:$1]", "Alice@OTHER", "Alice"),
        ("RULE:[1:$1]/L", "Alice@OTHER", "alice"),
        ("RULE:[1:$1]L", "Alice@OTHER", "alice"),
        ("RULE:[1:$1]/U", "Alice@OTHER", "ALICE"),
        ("RULE:[2:$1]/L", "User/host@REALM.COM", "user"),
        ("RULE:[2:$2]/U", "user/Host@REALM.COM", "HOST"),
        ("RULE:[1:$1_$0]", "alice@REALM.COM", "alice_REALM.COM"),
        ("RULE:[2:$1;$2](.*;admin)s/;admin$//", "alice/admin@R", "alice"),
        ("RULE:[2:$1;$2](^.*;admin$)s/^(.*);admin$/$1_root/U", "alice/admin@R", "ALICE_ROOT"),
        ("RULE:[1:$1](A.*)s/A/x/", "AAA@R", "xAA"),
        ("RULE:[1:$1](A.*)s/A/x/g", "AAA@R", "xxx"),
        ("RULE:[1:$1]s/(a)(b)/$2$1/", "abc@R", "bac"),
        ("RULE:[1:$1]s/a/\\$1/", "abc@R", "$1bc"),
        ("RULE:[1:$1]s/(?<first>a)/${first}${first}/", "abc@R", "aabc"),
        ("RULE:[1:$1]s/(a)/$11/", "abc@R", "a1bc"),
        (r"RULE:[1:$1]s/\(?<a>b/x/", "<a>b@R", "x"),
        ("RULE:[1:fixed]", "abc@R", "fixed"),
        ("RULE:[1:]", "abc@R", ""),
        ("RULE:[01:$1]", "abc@R", "abc"),
    ],
)
def test_a_rule(rule: str, principal: str, name: str) -> None:
    assert short(principal, rule) == name


@pytest.mark.parametrize(
    ("rule", "principal"),
    [
        ("RULE:[1:$1]", "alice/host@R"),
        ("RULE:[2:$1]", "alice@R"),
        ("RULE:[3:$1]", "alice/host@R"),
        ("RULE:[1:$1](ali)", "alice@R"),
        ("RULE:[1:$1](lice)", "alice@R"),
    ],
)
def test_a_rule_for_other_names_does_not_apply(rule: str, principal: str) -> None:
    with pytest.raises(NoMatchingRuleError, match="No rules apply"):
        short(principal, rule)
    assert short(principal, rule, f"RULE:[{2 if '/' in principal else 1}:other]") == "other"


@pytest.mark.parametrize(
    ("rule", "principal"), [("RULE:[1:$1@$0]", "a@R"), ("RULE:[2:$1/$2]", "a/b@R"), ("RULE:[1:$1]s/a/b@/", "a@R")]
)
def test_a_result_that_is_no_simple_name_is_an_error(rule: str, principal: str) -> None:
    """A later rule is not consulted, as in Kafka."""
    with pytest.raises(NoMatchingRuleError, match="Non-simple name"):
        short(principal, rule, "RULE:[1:x]", "RULE:[2:x]")


@pytest.mark.parametrize("rule", ["RULE:[1:$2]", "RULE:[1:$]", "RULE:[1:$x]", "RULE:[1:$99999999999]"])
def test_a_wrong_parameter_is_an_error_for_names_of_the_rule(rule: str) -> None:
    with pytest.raises(ValueError, match=r"is none of \$0 to \$1"):
        short("alice@R", rule, "RULE:[1:x]")
    assert short("alice/host@R", rule, "RULE:[2:x]") == "x"


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("", "Invalid rule"),
        ("default", "Invalid rule"),
        ("DEFAULT/L", "Invalid rule"),
        ("RULE", "Invalid rule"),
        ("RULE:", "Invalid rule"),
        ("RULE:[1]", "Invalid rule"),
        ("RULE:[:$1]", "number of components"),
        ("RULE:[0:$1]", "number of components"),
        ("RULE:[12345678901:$1]", "number of components"),
        ("RULE:[1:$1", "Invalid rule"),
        ("RULE:[1:$1](a", "unmatched substring"),
        ("RULE:[1:$1]s/a", "unmatched substring"),
        ("RULE:[1:$1]s/a/b", "unmatched substring"),
        ("RULE:[1:$1]s/a/b/x", "unmatched substring: `x`"),
        ("RULE:[1:$1]/LU", "unmatched substring: `U`"),
        ("RULE:[1:$1]/l", "unmatched substring: `l`"),
        ("RULE:[1:$1] ", "unmatched substring"),
        ("RULE:[1:$1]([)", "no supported regular expression"),
        ("RULE:[1:$1]s/*/x/", "no supported regular expression"),
        ("RULE:[1:$1]([a-z&&[^b]]+)", "no supported regular expression"),
    ],
)
def test_a_malformed_rule_is_refused_with_its_text(rule: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        KerberosShortNamer(REALM, [rule])
    assert rule in str(raised.value)


def test_digits_and_words_are_ascii_as_in_java() -> None:
    with pytest.raises(NoMatchingRuleError):
        short("u٣@R", r"RULE:[1:$1](u\d)")
    assert short("u3@R", r"RULE:[1:$1](u\d)") == "u3"


@pytest.mark.parametrize("to", ["$2", "$x", "$", "x\\", "${first}", "${first"])
def test_a_replacement_without_such_a_group_is_an_error(to: str) -> None:
    with pytest.raises(ValueError, match="the replacement"):
        short("alice@R", f"RULE:[1:$1]s/(a)/{to}/")
