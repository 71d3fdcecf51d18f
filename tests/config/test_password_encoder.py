"""Encrypted passwords: Kafka's text in both directions.

tests/reference/kafka_3_9/encoded_passwords.txt was written by EncryptingPasswordEncoder of Apache Kafka 3.9.1, for
both ciphers.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.password_encoder import PasswordEncoder, is_encoded
from kafkapy.errors import ConfigError

SECRET = "encoder-secr\u00e9t"
PASSWORD = "p\u00e4ssword,:\U0001f600"
BY_KAFKA = (Path(__file__).parents[1] / "reference" / "kafka_3_9" / "encoded_passwords.txt").read_text().splitlines()


@pytest.mark.parametrize("encoded", BY_KAFKA, ids=["CBC", "CBC-SHA1", "GCM", "GCM-SHA1"])
def test_passwords_that_kafka_has_encoded_are_read(encoded: str) -> None:
    assert PasswordEncoder(SECRET).decode(encoded) == PASSWORD
    with pytest.raises(ValueError, match="encoded under another secret"):
        PasswordEncoder("other").decode(encoded)


@pytest.mark.parametrize("cipher", ["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"])
@pytest.mark.parametrize("length", [128, 192, 256])
@pytest.mark.parametrize("password", ["", "x" * 15, "x" * 16, "x" * 1000, PASSWORD])
def test_a_password_survives_its_text(cipher: str, length: int, password: str) -> None:
    encoder = PasswordEncoder(SECRET, "PBKDF2WithHmacSHA256", cipher, length, 1024)
    encoded = encoder.encode(password)
    assert is_encoded(encoded)
    assert encoded != encoder.encode(password)
    assert PasswordEncoder(SECRET).decode(encoded) == password
    assert SECRET not in encoded + repr(encoder)


def test_the_text_has_kafkas_fields() -> None:
    def fields(text: str) -> dict[str, str]:
        return dict(item.rsplit(":", 1) for item in text.split(","))

    ours = {cipher: fields(PasswordEncoder(SECRET, cipher=cipher, key_length=length).encode(PASSWORD))
            for cipher, length in (("AES/CBC/PKCS5Padding", 128), ("AES/GCM/NoPadding", 256))}  # fmt: skip
    for text in BY_KAFKA:
        theirs = fields(text)
        mine = ours[theirs["cipherAlgorithm"]]
        assert mine.keys() == theirs.keys()
        for name in ("keyLength", "iterations", "passwordLength", "authenticationTagLength"):
            assert mine.get(name) == theirs.get(name)
        for name in ("salt", "initializationVector", "encryptedPassword"):
            assert len(mine[name]) == len(theirs[name])


@pytest.mark.parametrize("text", ["", "secret", "encryptedPassword:x", "a:b,c", "keyLength:128,iterations:x"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no encrypted password"):
        PasswordEncoder(SECRET).decode(text)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("iterations:4096", "iterations:999999999999", "iterations are not supported"),
        ("iterations:4096", "iterations:0", "iterations are not supported"),
        ("keyLength:128", "keyLength:8", "key length must be"),
        ("AES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding", "cipher must be"),
        ("PBKDF2WithHmacSHA512", "MD5", "key factory must be"),
        ("passwordLength:12", "passwordLength:13", "its length is wrong"),
    ],
)
def test_a_changed_field_is_refused(old: str, new: str, reason: str) -> None:
    encoded = BY_KAFKA[0].replace(old, new)
    assert encoded != BY_KAFKA[0]
    with pytest.raises(ValueError, match=reason):
        PasswordEncoder(SECRET).decode(encoded)


def test_any_cut_and_any_flipped_bit_is_a_password_or_a_value_error() -> None:
    generator = random.Random(21)
    encoder = PasswordEncoder(SECRET, iterations=1024)
    for cipher in ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"):
        encoded = PasswordEncoder(SECRET, cipher=cipher, iterations=1024).encode("password")
        broken = [encoded[: generator.randrange(len(encoded))] for _ in range(100)]
        for _ in range(200):
            data = bytearray(encoded.encode())
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(7)
            broken.append(data.decode(errors="replace"))
        for each in broken:
            try:
                encoder.decode(each)
            except ValueError:
                continue


def test_the_keys_of_the_broker_choose_the_algorithms() -> None:
    assert PasswordEncoder.of_config(BrokerConfig({})) is None
    keys = {
        "password.encoder.secret": SECRET,
        "password.encoder.keyfactory.algorithm": "PBKDF2WithHmacSHA1",
        "password.encoder.cipher.algorithm": "AES/GCM/NoPadding",
        "password.encoder.key.length": "256",
        "password.encoder.iterations": "2048",
    }
    encoder = PasswordEncoder.of_config(BrokerConfig(keys))
    assert encoder is not None
    encoded = encoder.encode("x")
    for field in ("PBKDF2WithHmacSHA1", "AES/GCM/NoPadding", "keyLength:256", "iterations:2048"):
        assert field in encoded
    with pytest.raises(ConfigError, match=r"password\.encoder.*cipher must be"):
        PasswordEncoder.of_config(BrokerConfig(keys | {"password.encoder.cipher.algorithm": "ROT13"}))
