"""JSON web tokens in compact form (RFC 7515, RFC 7519), read with bounds.

    base64url(header) . base64url(claims) . base64url(signature)

Nothing here trusts a token: `validators.py` does, after its checks. Sizes are checked before anything is decoded, and
JSON that nests deeply, repeats a name or has numbers without end is refused.
"""

from __future__ import annotations

import json
import math
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["MOST_TOKEN_BYTES", "BearerToken", "CompactToken", "TokenError", "claims_of", "milliseconds"]

MOST_TOKEN_BYTES: Final = 131_072
MOST_HEADER_BYTES: Final = 16_384
MOST_DEPTH: Final = 32
"""Nested objects and arrays of JSON."""
MOST_DIGITS: Final = 30
"""Digits of a number in JSON."""
MOST_SECONDS: Final = 2**40
"""Times after the year 36,000 are refused."""

_SECTION: Final = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)
_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{\]}]', re.DOTALL)
_BASIC_ALPHABET: Final = str.maketrans("+/", "-_")


class TokenError(Exception):
    """A token is refused.

    The text is for the log and has no part of the token but names of claims. `status` and `scope` go to the client.
    """

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token that is checked, or the client's token. Immutable; `repr` hides its text."""

    value: str = field(repr=False)
    principal_name: str
    expires_ms: int | None
    """Its end in ms since 1970; None when unknown."""
    start_ms: int | None = None
    """Its issue in ms since 1970; None when unknown."""
    scope: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CompactToken:
    """The three sections of a token, with the header decoded.

    Immutable; `repr` hides the claims.
    """

    header: Mapping[str, Any]
    payload: str = field(repr=False)
    signature: str = field(repr=False)
    signed: bytes = field(repr=False)
    """The bytes that the signature covers."""

    @classmethod
    def parse(cls, text: str, *, basic_alphabet: bool = False) -> CompactToken:
        """The sections of a token. TokenError for any other text.

        `basic_alphabet`: the sections may use + and / with padding, as in Kafka's unsecured tokens.
        """
        if len(text) > MOST_TOKEN_BYTES:
            raise TokenError(f"the token has {len(text)} bytes, more than {MOST_TOKEN_BYTES}")
        sections = text.split(".", 3)
        if len(sections) != 3:
            count = text.count(".") + 1
            raise TokenError(
                "Malformed JWT provided; expected three sections (header, payload, and signature), "
                f"but {count} sections provided"
            )
        if basic_alphabet:
            sections = [section.rstrip("=").translate(_BASIC_ALPHABET) for section in sections]
        header, payload, signature = sections
        if len(header) > MOST_HEADER_BYTES:
            raise TokenError(f"the token's header has {len(header)} bytes, more than {MOST_HEADER_BYTES}")
        signed = text.rpartition(".")[0].encode("ascii", "replace")
        return cls(json_object(decode_section(header, "header"), "header"), payload, signature, signed)

    def claims(self) -> dict[str, Any]:
        """The claims. TokenError when they are no JSON object."""
        return json_object(decode_section(self.payload, "payload"), "payload")


def decode_section(section: str, name: str) -> bytes:
    """The bytes of a section.

    TokenError when it is empty, or no base64url without padding.
    """
    if not section:
        raise TokenError(f"Malformed JWT provided; the {name} section is missing")
    if not _SECTION.fullmatch(section) or len(section) % 4 == 1:
        raise TokenError(f"the token's {name} is not base64url")
    return urlsafe_b64decode(section + "=" * (-len(section) % 4))


def json_object(data: bytes, name: str) -> dict[str, Any]:
    """The JSON object in these bytes.

    TokenError for anything else, and for JSON beyond the bounds.
    """
    try:
        text = data.decode()
        _check_depth(text)
        value = json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError) as error:
        raise TokenError(f"the token's {name} is no valid JSON: {_reason(error)}") from None
    if not isinstance(value, dict):
        raise TokenError(f"the token's {name} is no JSON object")
    return value


def claims_of(text: str) -> dict[str, Any] | None:
    """The claims of a token without any check of it.

    None when it is no JSON web token.
    """
    try:
        return CompactToken.parse(text).claims()
    except TokenError:
        return None


def milliseconds(claims: Mapping[str, Any], name: str, *, required: bool = False) -> int | None:
    """A time claim in ms since 1970.

    TokenError when it is missing but required, or no time.
    """
    value = claims.get(name)
    if value is None:
        if required:
            raise TokenError(f"{name} value must be non-null")
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TokenError(f"the {name} claim is no number")
    if not 0 <= value <= MOST_SECONDS:
        raise TokenError(f"the {name} claim is no time in seconds since 1970")
    return round(value * 1000)


def text_claim(claims: Mapping[str, Any], name: str) -> str:
    """A claim that has to be a text, without space around it. TokenError."""
    value = claims.get(name)
    if not isinstance(value, str):
        raise TokenError(f"{name} value must be non-null" if value is None else f"the {name} claim is no string")
    value = value.strip()
    if not value:
        raise TokenError(f"{name} value must not contain only whitespace")
    return value


def texts_claim(claims: Mapping[str, Any], name: str) -> Sequence[str]:
    """A claim that is a text or a list of texts.

    Empty when it is missing. TokenError.
    """
    value = claims.get(name)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TokenError(f"the {name} claim is neither a string nor a list of strings")
    return value


def _check_depth(text: str) -> None:
    """The parser recurses as deep as the text nests."""
    depth = 0
    for part in _STRING_OR_BRACKET.findall(text):
        if part in ("[", "{"):
            depth += 1
            if depth > MOST_DEPTH:
                raise ValueError(f"it nests more than {MOST_DEPTH} objects and arrays")
        elif part in ("]", "}"):
            depth -= 1


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has more than {MOST_DIGITS} digits")
    return int(text)


def _number(text: str) -> float:
    if len(text) > MOST_DIGITS or not math.isfinite(number := float(text)):
        raise ValueError("a number is too large")
    return number


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _reason(error: Exception) -> str:
    """The parser's reason without a part of the text.

    JSONDecodeError has it apart from the document.
    """
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(error)
