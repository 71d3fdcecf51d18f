"""PEM blocks, as Kafka reads them.

A block may stand in one line, as a properties file joins lines.

    -----BEGIN CERTIFICATE-----
    base64 of DER
    -----END CERTIFICATE-----

Text around the blocks is ignored. Encrypted traditional keys ("BEGIN RSA PRIVATE KEY") have the headers Proc-Type and
DEK-Info before the base64. Source: DefaultSslEngineFactory.PemParser.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["PemBlock", "blocks"]

_BLOCK: Final = re.compile(
    r"-----BEGIN\s+(?P<label>[A-Z0-9 ]+?)\s*-----(?P<body>[^-]*(?:-(?!----)[^-]*)*)"
    r"-----END\s+(?P<end>[A-Z0-9 ]+?)\s*-----"
)
_HEADERS: Final = re.compile(
    r"\s*Proc-Type:\s*4,\s*ENCRYPTED\s+DEK-Info:\s*(?P<cipher>[A-Za-z0-9-]+),\s*(?P<iv>[0-9A-Fa-f]+)\s+"
)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]*=?\s*=?\s*")
_LINE: Final = 64


class PemBlock(NamedTuple):
    """One block: its label, such as CERTIFICATE, and its DER."""

    label: str
    der: bytes
    cipher: str = ""
    """Cipher and initialization vector of an encrypted traditional key."""

    @property
    def private_key(self) -> bool:
        """Whether this is a private key of any form."""
        return self.label.endswith("PRIVATE KEY")

    @property
    def pem(self) -> bytes:
        """The block in its usual form."""
        text = base64.b64encode(self.der).decode()
        lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
        headers = ["Proc-Type: 4,ENCRYPTED", f"DEK-Info: {self.cipher}", ""] if self.cipher else []
        return "\n".join(
            [f"-----BEGIN {self.label}-----", *headers, *lines, f"-----END {self.label}-----", ""]
        ).encode()


def blocks(text: str) -> Iterator[PemBlock]:
    """The blocks of a text.

    ValueError for a block that is not valid; the error has none of its content.
    """
    for match in _BLOCK.finditer(text):
        label = " ".join(match["label"].split())
        if " ".join(match["end"].split()) != label:
            raise ValueError(f"the block {label} does not end with its name")
        body, cipher = match["body"], ""
        headers = _HEADERS.match(body)
        if headers is not None:
            body, cipher = body[headers.end() :], f"{headers['cipher']},{headers['iv']}"
        if _BASE64.fullmatch(body) is None:
            raise ValueError(f"the block {label} is not base64")
        try:
            der = base64.b64decode("".join(body.split()), validate=True)
        except binascii.Error:
            raise ValueError(f"the block {label} is not base64") from None
        yield PemBlock(label, der, cipher)
