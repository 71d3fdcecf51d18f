"""JAAS settings: the value of sasl.jaas.config.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="secret" user_alice="wonder";

The text has one entry for each login module: class name, control flag, options, and a semicolon. Values stand in
quotes (" or ') with Java's escapes, or without quotes when they are words: letters, digits, "_", "$", "-" and ".", and
no digit, "-" or "." first. "//" and "/" begin a comment up to the end of the line, "/*" one up to "*/".

A JAAS file has named contexts around such entries: ``KafkaServer { ... };``. Source:
org.apache.kafka.common.security.JaasConfig and java.io.StreamTokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from kafkapy.config.config_def import Password

__all__ = ["LOGIN_MODULES", "JaasEntry", "JaasError", "mechanisms_of", "parse_jaas", "parse_jaas_file"]

CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
LOGIN_MODULES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        PLAIN_MODULE: ("PLAIN",),
        SCRAM_MODULE: ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        OAUTHBEARER_MODULE: ("OAUTHBEARER",),
        KERBEROS_MODULE: ("GSSAPI",),
    }
)
"""The mechanisms of Kafka's login modules."""
REFUSED_MODULES: Final = frozenset(
    ("com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.LdapLoginModule")
)
"""Login modules that Kafka refuses, because a configuration could make them load foreign code."""

_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL: Final = frozenset("01234567")
_MOST_OCTAL_DIGITS: Final = 3
_FIRST_NON_ASCII_LETTER: Final = "\xa0"


class JaasError(ValueError):
    """The text is no JAAS configuration.

    The error names the place and the key, never a value.
    """


class JaasEntry(NamedTuple):
    """A login module with its options. Immutable; `repr` hides the values."""

    login_module: str
    control_flag: str
    """In lower case."""
    options: Mapping[str, Password]

    def option(self, name: str) -> str | None:
        """The plain text of an option, None when it is not set."""
        value = self.options.get(name)
        return None if value is None else value.value


class _Token(NamedTuple):
    kind: str
    """"word", "quoted", "=", ";", "{", "}", "end", or "other"."""
    text: str
    at: int


def parse_jaas(text: str) -> list[JaasEntry]:
    """The entries of a sasl.jaas.config. JaasError for any other text."""
    tokens = _Tokens(text)
    entries = []
    while tokens.peek().kind != "end":
        entries.append(_entry(tokens))
    if not entries:
        raise JaasError("it names no login module")
    return entries


def parse_jaas_file(text: str) -> dict[str, list[JaasEntry]]:
    """The entries of each context of a JAAS file. JaasError for any other text."""
    tokens = _Tokens(text)
    contexts: dict[str, list[JaasEntry]] = {}
    while (name := tokens.take()).kind != "end":
        if name.kind not in ("word", "quoted"):
            raise JaasError(f"a context's name is expected at {tokens.place(name)}")
        if name.text in contexts:
            raise JaasError(f"the context {name.text} appears twice, at {tokens.place(name)}")
        tokens.expect("{", f"after the context's name {name.text}")
        entries = contexts[name.text] = []
        while tokens.peek().kind != "}":
            entries.append(_entry(tokens))
        tokens.take()
        tokens.expect(";", f"after the context {name.text}")
    return contexts


def mechanisms_of(entry: JaasEntry) -> tuple[str, ...]:
    """The mechanisms that Kafka's login module serves; empty for an unknown module."""
    return LOGIN_MODULES.get(entry.login_module, ())


def _entry(tokens: _Tokens) -> JaasEntry:
    module = tokens.take()
    if module.kind not in ("word", "quoted"):
        raise JaasError(f"a login module's class name is expected at {tokens.place(module)}")
    if module.text.strip() in REFUSED_MODULES:
        raise JaasError(f"the login module {module.text} is not allowed")
    # A text that is no known module may be a password without its surroundings.
    shown = module.text if module.text in LOGIN_MODULES else "the login module"
    flag = tokens.take()
    if flag.kind not in ("word", "quoted"):
        raise JaasError(f"the control flag of {shown} is missing at {tokens.place(flag)}")
    if flag.text.lower() not in CONTROL_FLAGS:
        # It may be a value at the wrong place, so it is not shown.
        allowed = ", ".join(CONTROL_FLAGS)
        raise JaasError(f"the control flag of {shown} at {tokens.place(flag)} must be one of {allowed}")
    options: dict[str, Password] = {}
    before = f"the control flag of {shown}"
    while (key := tokens.take()).kind != ";":
        if key.kind == "end":
            raise JaasError(f"the entry of {shown} has no semicolon at its end")
        if key.kind not in ("word", "quoted"):
            raise JaasError(
                f"an option's name or a semicolon is expected at {tokens.place(key)}, after {before}; a value with "
                "other characters than letters, digits and -_.$ needs quotes"
            )
        if tokens.peek().kind != "=":
            # The name may be the rest of a value without quotes, so it is not shown.
            raise JaasError(f"an equals sign is expected at {tokens.place(tokens.peek())}, after {before}")
        tokens.take()
        value = tokens.take()
        if value.kind not in ("word", "quoted"):
            raise JaasError(
                f"the option {key.text} has no value at {tokens.place(value)}; a value that begins with a digit, or "
                "has other characters than letters, digits and -_.$, needs quotes"
            )
        options[key.text] = Password(value.text)
        before = f"the option {key.text}"
    return JaasEntry(module.text, flag.text.lower(), MappingProxyType(options))


class _Tokens:
    """The tokens of a text, with one of look-ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next: _Token | None = None

    def peek(self) -> _Token:
        if self._next is None:
            self._next = next(self._tokens)
        return self._next

    def take(self) -> _Token:
        token, self._next = self.peek(), None
        return token

    def expect(self, kind: str, where: str) -> None:
        token = self.take()
        if token.kind != kind:
            raise JaasError(f"a {kind} is expected at {self.place(token)}, {where}")

    def place(self, token: _Token) -> str:
        return "the end" if token.kind == "end" else _place(self._text, token.at)


def _place(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text)
    while at < end:
        char = text[at]
        if char <= " ":
            at += 1
        elif char == "/":
            if text.startswith("/*", at):
                close = text.find("*/", at + 2)
                at = end if close < 0 else close + 2
            else:
                close = text.find("\n", at)
                at = end if close < 0 else close
        elif char in "\"'":
            value, after = _quoted(text, at)
            yield _Token("quoted", value, at)
            at = after
        elif _begins_word(char):
            after = at + 1
            while after < end and (_begins_word(text[after]) or text[after] in "0123456789.-"):
                after += 1
            yield _Token("word", text[at:after], at)
            at = after
        else:
            yield _Token(char if char in "=;{}" else "other", char, at)
            at += 1
    while True:
        yield _Token("end", "", end)


def _begins_word(char: str) -> bool:
    return "a" <= char <= "z" or "A" <= char <= "Z" or char in "_$" or char >= _FIRST_NON_ASCII_LETTER


def _quoted(text: str, start: int) -> tuple[str, int]:
    """The content of a quoted text and the place behind it."""
    quote, at, end = text[start], start + 1, len(text)
    out: list[str] = []
    while at < end and text[at] not in "\r\n":
        char = text[at]
        if char == quote:
            return "".join(out), at + 1
        if char != "\\":
            out.append(char)
            at += 1
            continue
        at += 1
        if at == end:
            break
        char = text[at]
        if char in _OCTAL:
            most = _MOST_OCTAL_DIGITS if char <= "3" else _MOST_OCTAL_DIGITS - 1
            after = at
            while after < min(at + most, end) and text[after] in _OCTAL:
                after += 1
            out.append(chr(int(text[at:after], 8)))
            at = after
        else:
            out.append(_ESCAPES.get(char, char))
            at += 1
    raise JaasError(f"the quoted text at {_place(text, start)} has no closing quote on its line")
