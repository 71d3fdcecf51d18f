"""The language of message declarations.

`Struct`, `Request`, `Response`, `Record`, and one function per field type. A message is a class with all its versions.
Indentation is the nesting on the wire, line order is the order on the wire:

    class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
        '''Tells the coordinator that a member is alive.'''

        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

- The first argument of a field function is the range of versions with the field: "6+", "2-4", "3". The default is all
  versions.
- `nullable="7+"` is the range of versions that allow null. `default` is the value of a field that is not set or not in
  the version; without a default it is the type's zero (0, "", b"", [], False, ZERO_UUID; None for a nullable struct).
  Type checkers, too, allow constructor calls without a field that has an explicit default.
- `tag=0` puts the field into the tagged section of flexible versions; `tagged="12+"` restricts the tag to these
  versions (default: all versions with the field).
- A value other than the default in a field that the version does not have is an EncodeError, unless the field is
  `ignorable`.
- `flexible="8+"` (or None) is the range of versions with compact lengths and tagged fields at the end of structs
  (KIP-482).

Instances are plain slotted objects with keyword constructors, equality and a readable repr; they are not hashable.
Unknown tagged fields survive in `_unknown_tags` ({tag: bytes} or None). A uuid is a `uuid.UUID`; the null uuid decodes
to the shared object `ZERO_UUID`; encoding also takes 16 raw bytes. `records` decodes to a memoryview over the input,
not a copy: it is valid until the input is reused. All other values are copies.

A class compiles on first use to one flat plan per version, which `kafkapy._speedups.protocol.codec` runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar, dataclass_transform
from uuid import UUID

from kafkapy._speedups.protocol.codec import DecodeError, decode_message, decode_message_from
from kafkapy._speedups.protocol.encoder import EncodeError, encode_message
from kafkapy._speedups.protocol.message_plan import KINDS, Plan, min_size_of
from kafkapy._speedups.protocol.struct_base import Layout, StructBase
from kafkapy.types import ZERO_UUID

__all__ = [
    "ZERO_UUID",
    "DecodeError",
    "EncodeError",
    "Field",
    "Message",
    "Record",
    "Request",
    "Response",
    "Struct",
    "VersionRange",
    "array",
    "boolean",
    "bytes_",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "records",
    "string",
    "struct",
    "uint16",
    "uint32",
    "uuid",
]

V = TypeVar("V", contravariant=True)

NEWEST = 0x7FFF
"""The highest version number of the wire's int16, and the end of "3+"."""


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions `low` to `high`, both included; empty when low > high."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str | None) -> VersionRange:
        """ "3+", "2-4", "3", or None for no version. Raises ValueError."""
        if text is None:
            return NO_VERSION
        low, dash, high = text.partition("-")
        if dash:
            return cls(int(low), int(high))
        if text.endswith("+"):
            return cls(int(text[:-1]), NEWEST)
        return cls(int(text), int(text))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __str__(self) -> str:
        if self.low > self.high:
            return "none"
        if self.high == NEWEST:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


NO_VERSION = VersionRange(0, -1)
ALL_VERSIONS = VersionRange(0, NEWEST)


class _Unset:
    """The marker of a declaration without a default."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = _Unset()

_ZEROS: dict[str, Any] = {
    "boolean": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
    "array": [],
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a declaration: type, and carried, nullable and tagged versions."""

    name: str
    kind: str
    versions: VersionRange
    nullable: VersionRange
    default: Any
    ignorable: bool
    tag: int | None
    tagged: VersionRange
    element: Field | None = None
    struct: type[Struct] | None = None
    compactable: bool = True


def _field(
    kind: str,
    versions: str | None,
    default: Any,
    nullable: str | None = None,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
    *,
    element: Field | None = None,
    struct: type[Struct] | None = None,
    compactable: bool = True,
) -> Any:
    carried = ALL_VERSIONS if versions is None else VersionRange.parse(versions)
    if default is UNSET:
        default = (None if nullable is not None else struct) if kind == "struct" else _ZEROS[kind]
    elif default is None and nullable is None:
        raise TypeError("a default of None needs nullable versions")
    if tag is None and tagged is not None:
        raise TypeError("tagged versions need a tag")
    in_tags = NO_VERSION if tag is None else carried if tagged is None else VersionRange.parse(tagged)
    can_be_null = VersionRange.parse(nullable)
    return Field("", kind, carried, can_be_null, default, ignorable, tag, in_tags, element, struct, compactable)


class _Scalar(Protocol[V]):
    """The declaration of a field whose values have one size."""

    def __call__(
        self,
        versions: str | None = None,
        /,
        *,
        default: V | _Unset = UNSET,
        ignorable: bool = False,
        tag: int | None = None,
        tagged: str | None = None,
    ) -> Any: ...


def _scalar(kind: str) -> _Scalar[Any]:
    def scalar(
        versions: str | None = None,
        /,
        *,
        default: Any = UNSET,
        ignorable: bool = False,
        tag: int | None = None,
        tagged: str | None = None,
    ) -> Any:
        return _field(kind, versions, default, None, ignorable, tag, tagged)

    scalar.__name__ = scalar.__qualname__ = kind
    return scalar


boolean: _Scalar[bool] = _scalar("boolean")
"""True or False, one byte."""
int8: _Scalar[int] = _scalar("int8")
"""A signed integer of 1 byte."""
int16: _Scalar[int] = _scalar("int16")
"""A signed integer of 2 bytes."""
uint16: _Scalar[int] = _scalar("uint16")
"""An unsigned integer of 2 bytes."""
int32: _Scalar[int] = _scalar("int32")
"""A signed integer of 4 bytes."""
uint32: _Scalar[int] = _scalar("uint32")
"""An unsigned integer of 4 bytes."""
int64: _Scalar[int] = _scalar("int64")
"""A signed integer of 8 bytes."""
float64: _Scalar[float] = _scalar("float64")
"""An IEEE 754 double, 8 bytes."""
uuid: _Scalar[UUID] = _scalar("uuid")
"""A uuid.UUID, 16 bytes; ZERO_UUID stands for none."""


def string(
    versions: str | None = None,
    /,
    *,
    default: str | _Unset | None = UNSET,
    nullable: str | None = None,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
    compactable: bool = True,
) -> Any:
    """Text of at most 32767 bytes of UTF-8.

    `compactable=False` keeps the int16 length in flexible versions too.
    """
    return _field("string", versions, default, nullable, ignorable, tag, tagged, compactable=compactable)


def bytes_(
    versions: str | None = None,
    /,
    *,
    default: bytes | _Unset | None = UNSET,
    nullable: str | None = None,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Opaque bytes, copied out of the message."""
    return _field("bytes", versions, default, nullable, ignorable, tag, tagged)


def records(
    versions: str | None = None,
    /,
    *,
    default: bytes | _Unset | None = UNSET,
    nullable: str | None = "0+",
    ignorable: bool = False,
) -> Any:
    """Record batches: bytes on the wire, decoded to a memoryview.

    The memoryview is over the message. Encoding takes any bytes-like object.
    """
    return _field("records", versions, default, nullable, ignorable)


def array(
    of: type[Struct] | Callable[..., Any],
    versions: str | None = None,
    /,
    *,
    default: list[Any] | _Unset | None = UNSET,
    nullable: str | None = None,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """A list of structs (`array(Partition)`) or of plain values (`array(int32)`)."""
    if isinstance(of, type):
        element: Field = _field("struct", None, UNSET, struct=of)
    else:
        element = of()
    return _field("array", versions, default, nullable, ignorable, tag, tagged, element=element)


def struct(
    of: type[Struct],
    versions: str | None = None,
    /,
    *,
    default: _Unset | None = UNSET,
    default_factory: type[Struct] | None = None,
    nullable: str | None = None,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """One nested struct.

    `default_factory`, always `of` itself, makes the constructor argument optional. Null, in versions that allow it,
    then differs from the default and is written.
    """
    if default_factory not in (None, of):
        raise TypeError("the default of a struct field is a new instance of its own type")
    if default_factory is not None and default is not UNSET:
        raise TypeError("a struct field has one default")
    if default_factory is not None:
        return _field("struct", versions, of, nullable, ignorable, tag, tagged, struct=of)
    return _field("struct", versions, default, nullable, ignorable, tag, tagged, struct=of)


@dataclass_transform(
    kw_only_default=True,
    eq_default=True,
    field_specifiers=(
        boolean, int8, int16, uint16, int32, uint32, int64, float64, uuid, string, bytes_, records, array, struct,
    ),
)  # fmt: skip
class StructType(type):
    """The metaclass of struct classes. Fields become slots."""

    _fields: tuple[Field, ...]
    _layout: Layout

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> StructType:
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        body = {key: value for key, value in namespace.items() if key not in fields}
        body["__slots__"] = tuple(fields)
        cls = super().__new__(mcs, name, bases, body, **options)
        if fields and any(getattr(base, "_fields", ()) for base in bases):
            raise TypeError(f"{name}: a struct with fields cannot be extended")
        if fields or not getattr(cls, "_fields", ()):
            cls._fields = tuple(_named(field, key) for key, field in fields.items())
            cls._layout = Layout(cls, tuple(fields), tuple(field.default for field in fields.values()))
        tags = [field.tag for field in cls._fields if field.tag is not None]
        if len(tags) != len(set(tags)):
            raise TypeError(f"{name}: two fields have the same tag")
        return cls


def _named(field: Field, name: str) -> Field:
    element = None if field.element is None else _named(field.element, name)
    return Field(
        name,
        field.kind,
        field.versions,
        field.nullable,
        field.default,
        field.ignorable,
        field.tag,
        field.tagged,
        element,
        field.struct,
        field.compactable,
    )


class Struct(StructBase, metaclass=StructType):
    """A group of fields inside a message.

    It has the versions of its message. It belongs to one thread at a time.
    """


class Message(Struct):
    """A struct with own versions; it can be encoded and decoded.

    Subclass Request, Response or Record instead.
    """

    NAME: ClassVar[str]
    """The class name: the protocol's name of the message."""
    VERSIONS: ClassVar[VersionRange]
    """The declared versions."""
    FLEXIBLE: ClassVar[VersionRange]
    """Versions with compact lengths and tagged fields."""

    _plans: ClassVar[list[Plan | None]]

    def __init_subclass__(cls, *, versions: str | None = None, flexible: str | None = None) -> None:
        super().__init_subclass__()
        if versions is None:
            return
        cls.NAME = cls.__name__
        cls.VERSIONS = VersionRange.parse(versions)
        cls.FLEXIBLE = VersionRange.parse(flexible)
        cls._plans = [None] * (cls.VERSIONS.high + 1)

    @classmethod
    def _compile_plan(cls, version: int, error: type[ValueError]) -> Plan:
        """The plan of one version, compiled on first use and kept.

        Raises `error` for an undeclared version.
        """
        if version not in cls.VERSIONS:
            raise error(f"{cls.NAME} has no version {version}, only {cls.VERSIONS}")
        plan = _compile(cls, version, version in cls.FLEXIBLE, {})
        cls._plans[version] = plan
        return plan

    def encode(self, version: int) -> bytes:
        """The message in that version, without header and frame size. Raises EncodeError."""
        return encode_message(self, version)

    @classmethod
    def decode(cls, buffer: bytes | bytearray | memoryview, version: int, *, exact: bool = True) -> Self:
        """A message from its bytes. DecodeError, also for leftover bytes if `exact`."""
        message: Self = decode_message(cls, buffer, version, exact)
        return message

    @classmethod
    def decode_from(cls, buffer: bytes | bytearray | memoryview, offset: int, version: int) -> tuple[Self, int]:
        """A message that starts at `offset`, and the offset after its end.

        DecodeError.
        """
        found: tuple[Self, int] = decode_message_from(cls, buffer, offset, version)
        return found


class Request(Message):
    """A request of the API with key `API_KEY`."""

    API_KEY: ClassVar[int]

    def __init_subclass__(cls, *, key: int, versions: str, flexible: str | None = None) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.API_KEY = key


class Response(Message):
    """A response of the API with key `API_KEY`."""

    API_KEY: ClassVar[int]

    def __init_subclass__(cls, *, key: int, versions: str, flexible: str | None = None) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.API_KEY = key


class Record(Message):
    """A structure outside of requests.

    Examples: keys and values in internal topics, control records, metadata between consumers. Most are stored behind an
    int16 version, which `encode_versioned` and `decode_versioned` write and read.
    """

    def __init_subclass__(cls, *, versions: str, flexible: str | None = None) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)

    def encode_versioned(self, version: int) -> bytes:
        """An int16 with the version, then the record. Raises EncodeError."""
        return encode_message(self, version, version.to_bytes(2, "big", signed=True))

    @classmethod
    def decode_versioned(
        cls, buffer: bytes | bytearray | memoryview, *, newer_as_newest: bool = False
    ) -> tuple[int, Self]:
        """(version, record) from an int16 version and the record. DecodeError.

        With `newer_as_newest` a version above the declared ones is read as the newest declared version, and the fields
        it adds at the end are ignored. Members of a consumer group read each other's metadata this way.
        """
        if len(buffer) < 2:
            raise DecodeError(f"{cls.NAME}: {len(buffer)} bytes cannot hold a version")
        version = int.from_bytes(buffer[:2], "big", signed=True)
        newer = newer_as_newest and version > cls.VERSIONS.high
        record, end = cls.decode_from(buffer, 2, cls.VERSIONS.high if newer else version)
        if end != len(buffer) and not newer_as_newest:
            raise DecodeError(f"{cls.NAME} version {version}: {len(buffer) - end} bytes are left over")
        return version, record


def _compile(cls: type[Struct], version: int, flexible: bool, done: dict[type[Struct], Plan]) -> Plan:
    if cls in done:
        return done[cls]
    positional: list[tuple[Any, ...]] = []
    tagged: list[tuple[Any, ...]] = []
    absent: list[tuple[Any, ...]] = []
    min_size = 0
    for field in cls._fields:
        if version not in field.versions:
            absent.append(_operation(field, version, flexible, done, carried=False))
        elif flexible and version in field.tagged:
            tagged.append(_operation(field, version, flexible, done))
        else:
            operation = _operation(field, version, flexible, done)
            positional.append(operation)
            min_size += _smallest(operation)
    tagged.sort(key=lambda operation: int(operation[6]))
    plan = Plan(cls, version, flexible, positional, tagged, absent, min_size + (1 if flexible else 0))
    done[cls] = plan
    return plan


def _operation(
    field: Field, version: int, flexible: bool, done: dict[type[Struct], Plan], *, carried: bool = True
) -> tuple[Any, ...]:
    """The tuple that `Plan` takes for a field.

    The structs inside a field that is not carried are not compiled.
    """
    inner: Any = None
    if carried and field.struct is not None:
        inner = _compile(field.struct, version, flexible, done)
    elif carried and field.element is not None:
        inner = _operation(field.element, version, flexible, done)
    tag = field.tag if field.tag is not None and flexible and version in field.tagged else -1
    return (
        KINDS[field.kind],
        field.name,
        field.default,
        flexible and field.compactable,
        version in field.nullable,
        field.ignorable,
        tag,
        inner,
    )


def _smallest(operation: tuple[Any, ...]) -> int:
    kind, _name, _default, compact, nullable, _ignorable, _tag, inner = operation
    if kind == KINDS["struct"]:
        return 1 if nullable else int(inner.min_size)
    return min_size_of(kind, compact)
