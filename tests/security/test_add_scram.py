"""--add-scram: Kafka's text, passwords from files and variables, and errors without secrets."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from kafkapy.errors import ConfigError
from kafkapy.security.add_scram import parse_add_scram
from kafkapy.security.scram import ScramMechanism, credential_of_password

SALT = base64.b64encode(b"some salt").decode()


def test_a_password_becomes_a_credential() -> None:
    made = parse_add_scram(f" SCRAM-SHA-256=[name=alice, password=wonder=land,salt={SALT}] ")
    assert (made.user, made.mechanism) == ("alice", ScramMechanism.SCRAM_SHA_256)
    assert made.credential == credential_of_password(made.mechanism, "wonder=land", 4096, b"some salt")


def test_values_may_be_quoted() -> None:
    made = parse_add_scram(f'SCRAM-SHA-512=[name="al ice",iterations="8192",password="x",salt="{SALT}"]')
    assert made.user == "al ice"
    assert made.credential == credential_of_password(ScramMechanism.SCRAM_SHA_512, "x", 8192, b"some salt")


def test_a_salted_password_is_taken_as_it_is() -> None:
    salted = base64.b64encode(hashlib.pbkdf2_hmac("sha256", b"x", b"some salt", 4096)).decode()
    made = parse_add_scram(f"SCRAM-SHA-256=[name=alice,salt={SALT},saltedpassword={salted}]")
    assert made.credential == credential_of_password(ScramMechanism.SCRAM_SHA_256, "x", 4096, b"some salt")


def test_a_password_comes_from_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("from, file\nmore\n")
    monkeypatch.setenv("SECRET_OF_ALICE", "from env")
    for key, value, password in (
        ("password-file", f"{tmp_path}/secret", "from, file"),
        ("password-env", "SECRET_OF_ALICE", "from env"),
    ):
        made = parse_add_scram(f"SCRAM-SHA-256=[name=alice,{key}={value},salt={SALT}]")
        assert made.credential == credential_of_password(ScramMechanism.SCRAM_SHA_256, password, 4096, b"some salt")


def test_a_salt_is_random_by_default() -> None:
    salts = {parse_add_scram("SCRAM-SHA-256=[name=a,password=b]").credential.salt for _ in range(3)}
    assert len(salts) == 3
    assert {len(salt) for salt in salts} == {24}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must begin with one of SCRAM-SHA-256=, SCRAM-SHA-512="),
        ("PLAIN=[name=a,password=SECRET]", "must begin with one of"),
        ("SCRAM-SHA-256", "must begin with one of"),
        ("SCRAM-SHA-256=name=a,password=SECRET", "must have square brackets"),
        ("SCRAM-SHA-256=[password=SECRET]", "must have a name"),
        ("SCRAM-SHA-256=[name=,password=SECRET]", "must have a name"),
        ("SCRAM-SHA-256=[name=a]", "must have one of password, password-file, password-env, saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=SECRET,password-env=HOME]", "must have one of"),
        ("SCRAM-SHA-256=[name=a,password=]", "must have a password"),
        ("SCRAM-SHA-256=[name=a,password=x,SECRET]", "may only have the keys name, iterations"),
        ("SCRAM-SHA-256=[name=a,password=x,SECRET=y]", "may only have the keys name, iterations"),
        ("SCRAM-SHA-256=[name=a,password=SECRET,iterations=4095]", "iterations between 4096 and 16384"),
        ("SCRAM-SHA-256=[name=a,password=SECRET,iterations=x]", "iterations between 4096 and 16384"),
        ("SCRAM-SHA-256=[name=a,password=SECRET,salt=?]", "must have a salt in base64"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0]", "must have a salt with saltedpassword"),
        (f"SCRAM-SHA-256=[name=a,salt={SALT},saltedpassword=c2VjcmV0]", "saltedpassword of 32 bytes"),
        ("SCRAM-SHA-256=[name=a,password-env=NO_SUCH_VARIABLE]", "a password in the variable NO_SUCH_VARIABLE"),
        ("SCRAM-SHA-256=[name=a,password-file=/nowhere]", "/nowhere, which cannot be read: No such file"),
    ],
)
def test_any_other_text_is_refused_without_being_shown(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="configuration --add-scram") as caught:
        parse_add_scram(text)
    assert reason in str(caught.value)
    assert "SECRET" not in str(caught.value)
