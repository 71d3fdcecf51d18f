"""The messages of OAUTHBEARER: what the client sends first, and the broker's error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.security.oauthbearer.messages import (
    MOST_EXTENSIONS,
    ClientFirstMessage,
    MessageError,
    check_extensions,
    error_json,
)


def test_a_message_has_a_token() -> None:
    message = ClientFirstMessage.parse(b"n,,\x01auth=Bearer a.b.c\x01\x01")
    assert (message.token, message.authorization_id, message.extensions) == ("a.b.c", "", {})


def test_a_message_has_an_authorization_id_and_extensions() -> None:
    message = ClientFirstMessage.parse(b"n,a=al=2Cice=3D,\x01traceId=1 2\t3\x01auth=bEaReR  t==\x01pool=x=y\x01\x01")
    assert (message.token, message.authorization_id) == ("t==", "al,ice=")
    assert message.extensions == {"traceId": "1 2\t3", "pool": "x=y"}


def test_encoding_and_parsing_agree() -> None:
    message = ClientFirstMessage("a.b.c", "a,b=c", {"one": "1", "two": "2="})
    assert message.encode() == b"n,a=a=2Cb=3Dc,\x01auth=Bearer a.b.c\x01one=1\x01two=2=\x01\x01"
    assert ClientFirstMessage.parse(message.encode()) == message


def test_the_token_is_hidden() -> None:
    assert "secret" not in repr(ClientFirstMessage("secret"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,\x01auth=Bearer t\x01\x01",
        b"n,\x01,\x01auth=Bearer t\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,a=x,y,\x01auth=Bearer t\x01\x01",
        b"n,a=x=2X,\x01auth=Bearer t\x01\x01",
        b"n,b=x,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Bearer t",
        b"n,,\x01auth=Bearer t\x01\x01x",
        b"n,,\x01auth=Bearer t\x01\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01\x01\x01",
        b"n,,\x01other=1\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,,\x01auth=Bearer \xc3\xa9\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
        b"n,,\x01auth=Bearer t\x01a1=x\x01\x01",
        b"n,,\x01auth=Bearer t\x01a=\x01\x01",
        b"n,,\x01auth=Bearer t\x01=x\x01\x01",
        b"n,,\x01auth=Bearer t\x01a\x01\x01",
        b"n,,\x01auth=Bearer t\x01a=\xc3\xa9\x01\x01",
        b"n,,\x01auth=Bearer t\x01a=\x00\x01\x01",
        b"\xff\xfe",
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError, match="OAUTHBEARER client first message"):
        ClientFirstMessage.parse(data)


def message_with(extensions: int) -> bytes:
    pairs = "".join(f"{'x' * (number + 1)}=1\x01" for number in range(extensions))
    return f"n,,\x01auth=Bearer t\x01{pairs}\x01".encode()


def test_the_number_of_extensions_has_a_bound() -> None:
    assert len(ClientFirstMessage.parse(message_with(MOST_EXTENSIONS)).extensions) == MOST_EXTENSIONS
    with pytest.raises(MessageError, match=f"more than {MOST_EXTENSIONS} extensions"):
        ClientFirstMessage.parse(message_with(MOST_EXTENSIONS + 1))


def test_the_error_has_no_part_of_the_token() -> None:
    with pytest.raises(MessageError) as raised:
        ClientFirstMessage.parse(b"n,,\x01auth=Basic secret\x01\x01")
    assert "secret" not in str(raised.value)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda data: b"n,,\x01auth=Bearer " + data + b"\x01\x01"))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    try:
        message = ClientFirstMessage.parse(data)
    except MessageError:
        return
    assert ClientFirstMessage.parse(message.encode()) == message


@pytest.mark.parametrize("name", ["auth", "a1", "", "a b", "é"])
def test_a_name_of_an_extension_has_letters_only(name: str) -> None:
    with pytest.raises(MessageError, match="Extension name"):
        check_extensions({name: "1"})


@pytest.mark.parametrize("value", ["", "é", "\x01", "\x7f"])
def test_a_value_of_an_extension_is_printable(value: str) -> None:
    with pytest.raises(MessageError, match="Extension value for extension a"):
        check_extensions({"a": value})
    check_extensions({"a": "1 2\r\n\t~"})


def test_the_error_is_json_as_kafka_writes_it() -> None:
    assert error_json("invalid_token") == '{"status":"invalid_token"}'
    text = error_json("insufficient_scope", "[a, b]", "https://x")
    assert text == '{"status":"insufficient_scope", "scope":"[a, b]", "openid-configuration":"https://x"}'
    assert json.loads(error_json('a"b', "\n")) == {"status": 'a"b', "scope": "\n"}
