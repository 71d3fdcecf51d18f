"""Distinguished names of certificates as text, as Java prints them.

    Name: SEQUENCE OF RelativeDistinguishedName, the most general first
    RelativeDistinguishedName: SET OF SEQUENCE {type OBJECT IDENTIFIER, value}

The text begins with the most specific part: ``CN=alice,OU=Sales,O=Example,C=DE``. Types without a keyword of RFC 2253
stand as numbers, with their values in hexadecimal: ``1.2.840.113549.1.9.1=#1613...`` is an e-mail address. Source:
javax.security.auth.x500.X500Principal.getName and sun.security.x509.AVA.
"""

from __future__ import annotations

import string
from typing import Final

from kafkapy.security.ssl.der import INTEGER, SEQUENCE, SET, DerValue, read_all

__all__ = ["distinguished_name", "name_text"]

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Java's keywords for RFC 2253."""
ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x13: "latin-1",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "latin-1",  # IA5String
    0x1B: "latin-1",  # GeneralString
    0x1E: "utf-16-be",  # BMPString
}
"""The string types that Java prints, as it decodes them."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANKS: Final = " \r"
_VERSION: Final = 0xA0
_HEX_FORM: Final = frozenset(string.digits)


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate in DER. ValueError for other bytes."""
    try:
        fields = iter(next(iter(read_all(certificate).expect(SEQUENCE))).expect(SEQUENCE))
        serial = next(fields)
        if serial.tag == _VERSION:
            serial = next(fields)
        serial.expect(INTEGER)
        _signature, _issuer, _validity, subject = [next(fields).expect(SEQUENCE) for _ in range(4)]
    except StopIteration:
        raise ValueError("the certificate has no subject") from None
    return _text(subject)


def name_text(name: bytes) -> str:
    """A Name in DER as text. ValueError for other bytes."""
    return _text(read_all(name).expect(SEQUENCE))


def _text(name: DerValue) -> str:
    parts = ["+".join(_attribute(each) for each in part.expect(SET)) for part in name]
    return ",".join(reversed(parts))


def _attribute(attribute: DerValue) -> str:
    pieces = list(attribute.expect(SEQUENCE))
    if len(pieces) != 2:
        raise ValueError(f"the attribute at byte {attribute.start} is not a type and a value")
    oid, value = pieces[0].oid, pieces[1]
    keyword = KEYWORDS.get(oid, oid)
    encoding = ENCODINGS.get(value.tag)
    if encoding is None or keyword[0] in _HEX_FORM:
        return f"{keyword}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.inner.decode(encoding, 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join("\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in text)
    inner = escaped.strip(_BLANKS)
    if len(inner) == len(escaped):
        return escaped
    if not inner:
        return "".join("\\" + char for char in escaped)
    lead = len(escaped) - len(escaped.lstrip(_BLANKS))
    trail = len(escaped.rstrip(_BLANKS))
    return "".join("\\" + char if not lead <= at < trail else char for at, char in enumerate(escaped))
