"""Names of certificates read as Java prints them."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from kafkapy.security.ssl.distinguished_name import distinguished_name, name_text

KEY = ec.generate_private_key(ec.SECP256R1())
IP = ObjectIdentifier("1.3.6.1.4.1.42.2.11.2.1")
A = x509.NameAttribute


def _raw(oid: ObjectIdentifier, value: str | bytes, kind: _ASN1Type = _ASN1Type.UTF8String) -> x509.NameAttribute:
    return A(oid, value, kind, _validate=False)


WIDE = "CN=wide \N{SNOWMAN}"
NAMES = {
    "CN=alice,OU=Sales,O=Example,C=DE": [
        A(NameOID.COUNTRY_NAME, "DE"), A(NameOID.ORGANIZATION_NAME, "Example"),
        A(NameOID.ORGANIZATIONAL_UNIT_NAME, "Sales"), A(NameOID.COMMON_NAME, "alice"),
    ],
    "UID=u1,DC=example,DC=com,STREET=Main 1,ST=Bavaria,L=Munich": [
        A(NameOID.LOCALITY_NAME, "Munich"), A(NameOID.STATE_OR_PROVINCE_NAME, "Bavaria"),
        A(NameOID.STREET_ADDRESS, "Main 1"), A(NameOID.DOMAIN_COMPONENT, "com"),
        A(NameOID.DOMAIN_COMPONENT, "example"), A(NameOID.USER_ID, "u1"),
    ],
    "1.2.840.113549.1.9.1=#160461406220,CN=mail": [A(NameOID.COMMON_NAME, "mail"), A(NameOID.EMAIL_ADDRESS, "a@b ")],
    "2.5.4.5=#0c0137,2.5.4.12=#0c0144,2.5.4.42=#0c0147,2.5.4.4=#0c0153": [
        A(NameOID.SURNAME, "S"), A(NameOID.GIVEN_NAME, "G"), A(NameOID.TITLE, "D"),
        _raw(NameOID.SERIAL_NUMBER, "7"),
    ],
    "1.3.6.1.4.1.42.2.11.2.1=#0c0131": [_raw(IP, "1")],
    "CN=Zoë \N{SNOWMAN} \N{GRINNING FACE}": [A(NameOID.COMMON_NAME, "Zoë \N{SNOWMAN} \N{GRINNING FACE}")],
    r"CN=a\,b\+c\=d\<e\>f\#g\;h\"i\\j/k": [A(NameOID.COMMON_NAME, 'a,b+c=d<e>f#g;h"i\\j/k')],
    r"CN=\ \ two  blanks\ ": [A(NameOID.COMMON_NAME, "  two  blanks ")],
    r"CN=\ \ ": [A(NameOID.COMMON_NAME, "  ")],
    r"CN=nul\00x": [A(NameOID.COMMON_NAME, "nul\0x")],
    "CN=tab\tline\nend": [A(NameOID.COMMON_NAME, "tab\tline\nend")],
    WIDE: [A(NameOID.COMMON_NAME, "wide \N{SNOWMAN}", _ASN1Type.BMPString)],
    "CN=old": [A(NameOID.COMMON_NAME, "old", _ASN1Type.T61String)],
    "CN=#1c0400000061": [A(NameOID.COMMON_NAME, "a", _ASN1Type.UniversalString)],
    "CN=": [_raw(NameOID.COMMON_NAME, "")],  # cryptography warns of it
}  # fmt: skip


def _certificate(name: x509.Name) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([A(NameOID.COMMON_NAME, "not this one")]))
        .public_key(KEY.public_key())
        .serial_number(200)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.DER)


CERTIFICATES = {text: _certificate(x509.Name(attributes)) for text, attributes in NAMES.items()}
SEVERAL = "OU=x+CN=both,O=Example"
CERTIFICATES[SEVERAL] = _certificate(
    x509.Name(
        [
            x509.RelativeDistinguishedName([A(NameOID.ORGANIZATION_NAME, "Example")]),
            x509.RelativeDistinguishedName([A(NameOID.COMMON_NAME, "both"), A(NameOID.ORGANIZATIONAL_UNIT_NAME, "x")]),
        ]
    )
)
CERTIFICATES[""] = _certificate(x509.Name([]))


@pytest.mark.parametrize("text", CERTIFICATES)
def test_subject_is_written_as_in_java(text: str) -> None:
    assert distinguished_name(CERTIFICATES[text]) == text


def test_java_writes_the_same_names(tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("the JDK is not installed")
    (tmp_path / "Names.java").write_text(
        """
        import java.io.*;
        import java.nio.charset.StandardCharsets;
        import java.security.cert.*;
        public class Names {
            public static void main(String[] files) throws Exception {
                PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
                CertificateFactory factory = CertificateFactory.getInstance("X.509");
                for (String file : files) try (InputStream in = new FileInputStream(file)) {
                    X509Certificate c = (X509Certificate) factory.generateCertificate(in);
                    out.print(c.getSubjectX500Principal().getName() + '\\0' + '\\1');
                }
            }
        }
        """
    )
    # Java 17 reads two bytes of a BMPString as UTF-8; Java 25 reads them as UTF-16.
    names = [text for text in CERTIFICATES if text != WIDE]
    files = [tmp_path / f"{index}.der" for index in range(len(names))]
    for file, text in zip(files, names, strict=True):
        file.write_bytes(CERTIFICATES[text])
    command = ["java", str(tmp_path / "Names.java"), *map(str, files)]
    out = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    assert out.removesuffix("\0\1").split("\0\1") == names


def test_certificate_that_is_cut_off_anywhere_is_refused() -> None:
    whole = CERTIFICATES["CN=alice,OU=Sales,O=Example,C=DE"]
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"cut off|left|not valid"):
            distinguished_name(whole[:length])


def test_bytes_that_are_no_certificate_are_refused() -> None:
    for wrong in (b"", b"\x30\x00", b"\x30\x02\x30\x00", b"\x02\x01\x00", b"\x30\x80\x00\x00", b"\x30\x85\1\1\1\1\1"):
        with pytest.raises(ValueError, match=r"certificate|cut off|tag|left|not valid|no subject"):
            distinguished_name(wrong)


def test_changed_bytes_give_another_text_or_an_error() -> None:
    whole = CERTIFICATES[SEVERAL]
    for at in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            try:
                assert isinstance(distinguished_name(bytes(changed)), str)
            except ValueError as error:
                assert str(error)


def test_name_alone_is_read_too() -> None:
    name = x509.Name([A(NameOID.COMMON_NAME, "alice")])
    assert name_text(name.public_bytes()) == "CN=alice"
