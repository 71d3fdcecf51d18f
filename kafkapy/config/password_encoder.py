"""The encryption of secrets that are set at run time, in the metadata store.

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,iterations:4096,
    salt:<base64>,initializationVector:<base64>,encryptedPassword:<base64>,passwordLength:<number>

The text, in one line, says how it was made, so it stays readable when the algorithms of the configuration change; only
the secret must be the same. Source: org.apache.kafka.security.EncryptingPasswordEncoder.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.ciphers.modes import CBC as CBCMode

    from kafkapy.config.broker import BrokerConfig

__all__ = ["PasswordEncoder", "is_encoded"]

KEY_FACTORIES: Final = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}
DEFAULT_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
KEY_LENGTHS: Final = (128, 192, 256)
SALT_BYTES: Final = 256
BLOCK_BYTES: Final = 16
GCM_VECTOR_BYTES: Final = 12
GCM_TAG_BITS: Final = 128
MOST_ITERATIONS: Final = 10_000_000
MARK: Final = "encryptedPassword:"


class PasswordEncoder:
    """Encrypts and decrypts secrets under password.encoder.secret. Immutable; `repr` hides the secret."""

    def __init__(
        self,
        secret: str,
        key_factory: str = DEFAULT_KEY_FACTORY,
        cipher: str = CBC,
        key_length: int = 128,
        iterations: int = 4096,
    ) -> None:
        """ValueError for an algorithm or a key length that is not supported."""
        _check(key_factory, cipher, key_length)
        self._secret = secret
        self._key_factory = key_factory
        self._cipher = cipher
        self._key_length = key_length
        self._iterations = iterations

    @classmethod
    def of_config(cls, config: BrokerConfig, key: str = "password.encoder.secret") -> PasswordEncoder | None:
        """The encoder of a broker, None without a secret. ConfigError."""
        secret = config.get_password(key)
        if not secret:
            return None
        cipher = config.get_str("password.encoder.cipher.algorithm")
        length = config.get_int("password.encoder.key.length")
        factory = config.get_optional_str("password.encoder.keyfactory.algorithm") or DEFAULT_KEY_FACTORY
        try:
            return cls(secret.value, factory, cipher, length, config.get_int("password.encoder.iterations"))
        except ValueError as error:
            raise ConfigError("password.encoder", f"{factory}, {cipher}, {length}", str(error)) from None

    def __repr__(self) -> str:
        return f"PasswordEncoder({self._key_factory}, {self._cipher})"

    def encode(self, password: str) -> str:
        """The encrypted text of a secret; each call gives another one."""
        salt = os.urandom(SALT_BYTES)
        vector = os.urandom(BLOCK_BYTES if self._cipher == CBC else GCM_VECTOR_BYTES)
        key = _key(self._key_factory, self._secret, salt, self._iterations, self._key_length)
        encrypted = _encrypted(self._cipher, key, vector, password.encode())
        fields = {
            "keyFactoryAlgorithm": self._key_factory,
            "cipherAlgorithm": self._cipher,
            "keyLength": str(self._key_length),
            "iterations": str(self._iterations),
            "salt": _text(salt),
            "initializationVector": _text(vector),
            "encryptedPassword": _text(encrypted),
            "passwordLength": str(_java_length(password)),
        }
        if self._cipher == GCM:
            fields["authenticationTagLength"] = str(GCM_TAG_BITS)
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, encoded: str) -> str:
        """The secret of an encrypted text.

        ValueError for a text under another secret key, and for any other text.
        """
        fields = dict(item.rpartition(":")[::2] for item in encoded.split(","))
        try:
            factory, cipher = fields["keyFactoryAlgorithm"], fields["cipherAlgorithm"]
            length, iterations = int(fields["keyLength"]), int(fields["iterations"])
            expected_length = int(fields["passwordLength"])
            salt, vector, encrypted = (
                base64.b64decode(fields[name], validate=True)
                for name in ("salt", "initializationVector", "encryptedPassword")
            )
        except (KeyError, ValueError, binascii.Error):
            raise ValueError("the text is no encrypted password") from None
        _check(factory, cipher, length)
        if not 1 <= iterations <= MOST_ITERATIONS:
            raise ValueError(f"{iterations} iterations are not supported")
        try:
            key = _key(factory, self._secret, salt, iterations, length)
            password = _decrypted(cipher, key, vector, encrypted).decode()
        except Exception:
            raise ValueError("the password cannot be decoded: it was encoded under another secret") from None
        if _java_length(password) != expected_length:
            raise ValueError("the password cannot be decoded: its length is wrong")
        return password


def is_encoded(text: str) -> bool:
    """Whether a text of the store was encrypted."""
    return MARK in text


def _check(key_factory: str, cipher: str, key_length: int) -> None:
    if key_factory not in KEY_FACTORIES:
        raise ValueError(f"the key factory must be one of {', '.join(KEY_FACTORIES)}")
    if cipher not in (CBC, GCM):
        raise ValueError(f"the cipher must be {CBC} or {GCM}")
    if key_length not in KEY_LENGTHS:
        raise ValueError(f"the key length must be one of {', '.join(map(str, KEY_LENGTHS))}")


def _key(factory: str, secret: str, salt: bytes, iterations: int, length: int) -> bytes:
    import hashlib

    return hashlib.pbkdf2_hmac(KEY_FACTORIES[factory], secret.encode(), salt, iterations, length // 8)


def _cbc(key: bytes, vector: bytes) -> Cipher[CBCMode]:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CBC(vector))


def _gcm(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _encrypted(name: str, key: bytes, vector: bytes, plain: bytes) -> bytes:
    if name == GCM:
        return _gcm(key).encrypt(vector, plain, None)
    encryptor = _cbc(key, vector).encryptor()
    count = BLOCK_BYTES - len(plain) % BLOCK_BYTES
    return encryptor.update(plain + bytes([count]) * count) + encryptor.finalize()


def _decrypted(name: str, key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    if name == GCM:
        return _gcm(key).decrypt(vector, encrypted, None)
    decryptor = _cbc(key, vector).decryptor()
    padded = decryptor.update(encrypted) + decryptor.finalize()
    count = padded[-1]
    if not 1 <= count <= BLOCK_BYTES or padded[-count:] != bytes([count]) * count:
        raise ValueError("the padding is wrong")
    return padded[:-count]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
