r"""Records as text: kcat's format strings, and JSON lines.

    %t topic   %p partition   %o offset   %T timestamp (ms)   %h headers (name=value,...)
    %k key     %K its size    %s value    %S its size         %% a percent sign
    %D delivery count in a share group
    \n \r \t \0 \\ \xHH escapes

Keys and values are printed as bytes, or on a terminal without control characters. JSON has text for valid UTF-8, else
{"base64": "..."}.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final

from kafkapy.tools.terminal import json_without_controls, printable_bytes

__all__ = ["FormatError", "as_json_line", "compile_format", "from_json_line", "unescape"]

Part = Callable[[Any], bytes]

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)?", re.DOTALL)
NULL_SIZE = b"-1"
RANGES: Final = {"partition": (0, 2**31 - 1), "timestamp": (0, 2**63 - 1)}
NO_TIMESTAMP: Final = -1
"""Timestamp of a record without one; `kafkapy produce` then uses the time of sending."""
FOREIGN = frozenset("tksh")
"""The signs with foreign text."""
FIELDS = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers", "delivery_count"})
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_quoted: Callable[[str], str] = json.encoder.encode_basestring
"""Encodes a text as JSON. Lines are concatenated, which is faster than an encoder for whole records."""


class FormatError(ValueError):
    """A wrong format string or line; the message has the allowed forms."""


def unescape(text: str) -> bytes:
    r"""The bytes of a text with \n, \t, \xHH and so on. FormatError."""

    def replaced(match: re.Match[str]) -> str:
        code = match[1] or ""
        if code.startswith("x") and len(code) == 3:
            return chr(0xDC00 + int(code[1:], 16)) if int(code[1:], 16) >= 0x80 else chr(int(code[1:], 16))
        if code not in ESCAPES:
            raise FormatError(rf"'\{code}' is not an escape: use \n \r \t \0 \\ or \xHH.")
        return ESCAPES[code]

    return ESCAPE.sub(replaced, text).encode("utf-8", "surrogateescape")


def compile_format(text: str, null: bytes = b"", clean: bool = False) -> Callable[[Any], bytes]:
    """A function from a record to its line.

    `null` is the text for a key or value of None. With `clean`, text from records is printable; the format's own
    escapes stay. FormatError for an unknown sign.
    """
    parts: list[bytes | Part] = []
    signs: dict[str, Part] = {
        "t": lambda record: record.topic.encode(errors="backslashreplace"),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp,
        "k": lambda record: null if record.key is None else record.key,
        "s": lambda record: null if record.value is None else record.value,
        "K": lambda record: NULL_SIZE if record.key is None else b"%d" % len(record.key),
        "S": lambda record: NULL_SIZE if record.value is None else b"%d" % len(record.value),
        "h": lambda record: _headers(record, null),
        "D": lambda record: b"%d" % (record.delivery_count or 0),
        "%": lambda record: b"%",
    }
    for literal, sign in re.findall(r"([^%]*)(%.?)?", text, re.DOTALL):
        if literal:
            parts.append(unescape(literal))
        if sign:
            if sign[1:] not in signs:
                raise FormatError(f"{sign!r} is not a format: use %t %p %o %T %k %K %s %S %h %D or %%.")
            parts.append(_cleaned(signs[sign[1:]]) if clean and sign[1:] in FOREIGN else signs[sign[1:]])
    # One formatting per record: for the usual formats that is most of what printing costs.
    template = b"".join(part.replace(b"%", b"%%") if isinstance(part, bytes) else b"%b" for part in parts)
    values = [part for part in parts if not isinstance(part, bytes)]
    if len(values) == 1:
        value = values[0]
        return lambda record: template % value(record)
    return lambda record: template % tuple([value(record) for value in values])


def _cleaned(part: Part) -> Part:
    return lambda record: printable_bytes(part(record))


def as_json_line(record: Any) -> bytes:
    """A record as one line of JSON."""
    headers = ",".join([f"[{_quoted(name)},{_json(value)}]" for name, value in record.headers])
    count = getattr(record, "delivery_count", None)
    deliveries = "" if count is None else f',"delivery_count":{count}'
    return json_without_controls(
        f'{{"topic":{_quoted(record.topic)},"partition":{record.partition},"offset":{record.offset},'
        f'"timestamp":{record.timestamp},"key":{_json(record.key)},"value":{_json(record.value)},'
        f'"headers":[{headers}]{deliveries}}}\n'
    ).encode()


def from_json_line(line: bytes) -> dict[str, Any]:
    """{value, key, headers, partition, timestamp_ms} of a JSON line.

    `as_json_line` writes such lines. Missing fields, topic and offset are left out. FormatError.
    """
    try:
        given = json.loads(line)
    except RecursionError:
        raise FormatError("its values are nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"it is not JSON ({error})") from None
    if not isinstance(given, dict):
        raise FormatError("it is not a JSON object")
    if not given.keys() <= FIELDS:
        unknown = min(given.keys() - FIELDS)
        raise FormatError(f"{unknown!r} is not key, value, headers, partition or timestamp")
    record: dict[str, Any] = {"value": _bytes(given.get("value")), "key": _bytes(given.get("key"))}
    for name, argument in (("partition", "partition"), ("timestamp", "timestamp_ms")):
        number = given.get(name)
        if number is None or (name == "timestamp" and number == NO_TIMESTAMP):
            continue
        low, high = RANGES[name]
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise FormatError(f"{name} is a whole number from {low} to {high}, not {_short(number)}")
        record[argument] = number
    record["headers"] = _header_pairs(given.get("headers") or [])
    return record


def _header_pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list):
        raise FormatError("headers are an object, or an array of [name, value]")
    found = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise FormatError("headers are an object, or an array of [name, value]")
        _utf8(pair[0])
        found.append((pair[0], _bytes(pair[1])))
    return found


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FormatError("a text has half of a surrogate pair, which UTF-8 cannot express") from None


def _headers(record: Any, null: bytes) -> bytes:
    return b",".join(b"%s=%s" % (name.encode(), null if value is None else value) for name, value in record.headers)


def _json(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return _quoted(data.decode())
    except UnicodeDecodeError:
        return f'{{"base64":"{base64.b64encode(data).decode()}"}}'


def _bytes(value: Any) -> bytes | None:
    """The bytes of text, null or {"base64": ...}.

    Any other JSON value gives its JSON text.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, dict) and list(value) == ["base64"]:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (ValueError, TypeError):
            raise FormatError("the value of base64 is not base64") from None
    try:
        return _utf8(_encode(value))
    except RecursionError:
        raise FormatError("its values are nested too deeply") from None
