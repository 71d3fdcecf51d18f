"""The mapping rules give the names that Kafka's SslPrincipalMapper gives."""

from __future__ import annotations

import pytest

from kafkapy.security.ssl.principal_mapper import NoMatchingRuleError, SslPrincipalMapper

DUKE = "CN=Duke, OU=ServiceUsers, O=Org, C=US"


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        # From Kafka's SslPrincipalMapperTest.
        ("DEFAULT", DUKE, DUKE),
        ("RULE:^CN=(.*?), OU=ServiceUsers.*$/$1/L, DEFAULT", DUKE, "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L , "
         "RULE:^CN=(.*?), OU=(.*?), O=(.*?), L=(.*?), ST=(.*?), C=(.*?)$/$1@$2/L",
         "CN=JavaDuke, OU=SME, O=mycp, L=Fulton, ST=MD, C=US", "javaduke@sme"),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=duke,ou=JavaSE,dc=example,dc=com", "DUKE@JAVASE"),
        ("RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/, DEFAULT", "CN=Rick,OU=x", "Rick"),
        ("RULE:^CN=(.*?)/$1/,DEFAULT", "CN=x", "x"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT", "OU=a,CN=Ab.c,O=b", "ab.c"),
        # Escapes: a slash in the pattern, and in the replacement.
        (r"RULE:^CN=host\/([^,]+),.*$/svc\/$1/", "CN=host/web1,O=x", "svc/web1"),
        (r"RULE:^CN=([^,]+).*$/\$1/", "CN=x,O=y", "$1"),
        # Commas, and words of the grammar, inside a pattern.
        ("RULE:^CN=(DEFAULT|RULE:)[,]O=(.*)$/$2,$1/,DEFAULT", "CN=RULE:,O=y", "y,RULE:"),
        # Groups: of two digits as long as they exist, missing ones are text, the whole match.
        ("RULE:^(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)$/$11-$12/", "abcdefghijk", "k-a2"),
        ("RULE:^(a)(b)$/$1@$4/", "ab", "a@$4"),
        ("RULE:^CN=x$/<$0>/", "CN=x", "<CN=x>"),
        ("RULE:^CN=(x)(y)?$/$1$2./", "CN=x", "x."),
        # replaceAll matches again behind the first match.
        ("RULE:.*/x/", "abc", "xx"),
        ("RULE:a|ab/x/", "ab", "xb"),
        # The first rule that matches wins; the match is of the whole name.
        ("RULE:^CN=a/first/,RULE:CN=ab/second/,DEFAULT", "CN=ab", "second"),
        (" ,, DEFAULT ,", "CN=x", "CN=x"),
    ],
)  # fmt: skip
def test_rule_gives_kafkas_name(rules: str, name: str, principal: str) -> None:
    assert SslPrincipalMapper(rules).name(name) == principal


@pytest.mark.parametrize("rules", ["RULE:^CN=(.*)$/$1/", "", "RULE:^CN=([A-Z]+)$/$1/,RULE:^O=.*$/o/"])
def test_name_without_a_rule_is_refused(rules: str) -> None:
    with pytest.raises(NoMatchingRuleError, match="OU=Sales"):
        SslPrincipalMapper(rules).name("OU=Sales,CN=b")


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("default", "neither DEFAULT nor RULE"),
        ("DEFAULT,DEFAUL", "neither DEFAULT nor RULE"),
        ("DEFAULT/L", "more behind its end: '/L'"),
        ("DEFAULT/", "more behind its end: '/'"),
        ("RULE:CN=(.*?),OU=ServiceUsers.*/$1", "neither DEFAULT nor RULE"),
        ("RULE:^CN=(.*?),OU=ServiceUsers(.*)$/$1/L/", "more behind its end: '/'"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/LU", "more behind its end: 'U'"),
        ("RULE:^CN=(.*?,OU=ServiceUsers.*$/$1/L", "pattern of the rule"),
        ("RULE:^CN=(?=x).*$/x/", "pattern of the rule"),
        ("RULE:^CN=(.*)$/$x/", r"without a digit"),
        ("RULE:^CN=(.*)$/a$/", r"without a digit"),
        ("RULE:^CN=.*$/$1/", "the pattern has no group"),
    ],
)
def test_wrong_rule_is_refused_with_the_rule_and_the_reason(rules: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        SslPrincipalMapper(rules)
    assert any(rule in str(caught.value) for rule in rules.split(","))


def test_pattern_that_takes_ages_elsewhere_takes_linear_time() -> None:
    mapper = SslPrincipalMapper("RULE:^(a+)+$/x/,DEFAULT")
    name = "a" * 5000 + "!"
    assert mapper.name(name) == name
