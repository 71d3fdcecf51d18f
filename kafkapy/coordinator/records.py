"""Records of coordinators: a typed key, and a value or a tombstone.

Key and value start with an int16 version. In both of Kafka's internal topics the key's version is the record type, so a
topic's `RecordTypes` is a table from key version to the two messages. Source: CoordinatorRecord.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from kafkapy.errors import CorruptMessageError, UnsupportedVersionError
from kafkapy.protocol.schema import DecodeError, Record

_VERSION = struct.Struct(">h")


class CoordinatorRecord(NamedTuple):
    """One record as its shard sees it. Immutable.

    `value` None is a tombstone.
    """

    key: Record
    key_version: int
    value: Record | None
    value_version: int = 0

    def encode(self, newest: Mapping[int, int] = MappingProxyType({})) -> tuple[bytes, bytes | None]:
        """The bytes of key and value in the log.

        `newest`: by key version, the newest version of the value that all brokers can read.
        """
        version = min(self.value_version, newest.get(self.key_version, self.value_version))
        value = None if self.value is None else self.value.encode_versioned(version)
        return self.key.encode_versioned(self.key_version), value


@dataclass(frozen=True, slots=True)
class RecordTypes:
    """The record types of one internal topic. Immutable.

    Key version to the messages of key and value.
    """

    kinds: Mapping[int, tuple[type[Any], type[Any]]]

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """A record of the log; None for an unknown type.

        An unknown type is skipped (KIP-915). CORRUPT_MESSAGE for bytes that do not match their version, and
        UNSUPPORTED_VERSION for a value of a version above the known ones, which a newer broker wrote.
        """
        if len(key) < _VERSION.size:
            raise CorruptMessageError(f"a key of {len(key)} bytes is too short for a version")
        (key_version,) = _VERSION.unpack_from(key)
        kind = self.kinds.get(key_version)
        if kind is None:
            return None
        try:
            _, decoded_key = kind[0].decode_versioned(key)
            if value is None:
                return CoordinatorRecord(decoded_key, key_version, None)
            if int.from_bytes(value[:2], "big", signed=True) > kind[1].VERSIONS.high:
                raise UnsupportedVersionError(f"a {kind[1].__name__} record is newer than {kind[1].VERSIONS.high}")
            value_version, decoded_value = kind[1].decode_versioned(value)
            return CoordinatorRecord(decoded_key, key_version, decoded_value, value_version)
        except DecodeError as error:
            raise CorruptMessageError(f"a {kind[0].__name__} record cannot be decoded: {error}") from error
