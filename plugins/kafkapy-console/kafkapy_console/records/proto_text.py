"""The text of a .proto file as a FileDescriptorProto, with what decoding needs.

Names, numbers and types of fields are kept. Options, services, reserved numbers and extensions are passed over: a field
of an extension is shown as one that the message does not know. Source: the language specifications of proto2, proto3
and editions.
"""

from __future__ import annotations

import re
from typing import Final

from google.protobuf import descriptor_pb2

__all__ = ["parsed_file"]

MOST_DEPTH = 32
"""Messages within messages."""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
        "sfixed64", "bool", "string", "bytes",
    )
}  # fmt: skip
_LABELS: Final = {
    "optional": _Field.LABEL_OPTIONAL,
    "required": _Field.LABEL_REQUIRED,
    "repeated": _Field.LABEL_REPEATED,
}
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | ("(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | [\w.]+ | [^\w\s"'.])""",
    re.DOTALL | re.VERBOSE | re.ASCII,
)
_OPENING: Final = {"{": "}", "[": "]", "(": ")"}


def parsed_file(text: str) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of a file. ValueError for a text that is no .proto file, or has groups."""
    reader = _Reader(text)
    file = descriptor_pb2.FileDescriptorProto()
    while not reader.at_end:
        word = reader.take()
        if word in ("syntax", "edition"):
            reader.expect("=")
            value = reader.string()
            reader.expect(";")
            if word == "edition":
                file.syntax = "editions"
                file.edition = descriptor_pb2.Edition.Value(f"EDITION_{value}")
            elif value != "proto2":  # as protoc does
                file.syntax = value
        elif word == "package":
            file.package = reader.take()
            reader.expect(";")
        elif word == "import":
            public = reader.skip("public")
            reader.skip("weak")
            if public:
                file.public_dependency.append(len(file.dependency))
            file.dependency.append(reader.string())
            reader.expect(";")
        elif word == "message":
            _message(reader, file.message_type.add(), file.syntax == "proto3", 1)
        elif word == "enum":
            _enum(reader, file.enum_type.add())
        elif word in ("option", "service", "extend"):
            reader.pass_statement()
        elif word != ";":
            raise ValueError(f"a .proto file has no {word!r} here")
    return file


class _Reader:
    """The tokens of a text, without comments."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        self._next = 0
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"the text has an open string or comment at {text[at : at + 20]!r}")
            if found[1]:
                self._tokens.append(found[1])
            at = found.end()

    @property
    def at_end(self) -> bool:
        return self._next >= len(self._tokens)

    def peek(self, ahead: int = 0) -> str:
        at = self._next + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def take(self) -> str:
        if self.at_end:
            raise ValueError("the text ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def skip(self, token: str) -> bool:
        """Whether this token came."""
        came = self.peek() == token
        self._next += came
        return came

    def expect(self, token: str) -> None:
        found = self.take()
        if found != token:
            raise ValueError(f"{token!r} is missing before {found!r}")

    def string(self) -> str:
        """A string without escapes, as names of files have."""
        found = self.take()
        if found[0] not in "\"'" or "\\" in found:
            raise ValueError(f"{found} is not the name of a file or a syntax")
        return found[1:-1]

    def number(self) -> int:
        sign = -1 if self.skip("-") else 1
        digits = self.take()
        return sign * int(digits, 8 if re.fullmatch("0[0-7]+", digits) else 0)

    def options(self) -> dict[str, str]:
        """The options in brackets that are one word, when there are any."""
        found: dict[str, str] = {}
        if self.peek() != "[":
            return found
        start = self._next
        self._pass_brackets()
        for at in range(start, self._next - 3):
            if self._tokens[at] in ("[", ",") and self._tokens[at + 2] == "=":
                found[self._tokens[at + 1]] = self._tokens[at + 3]
        return found

    def pass_statement(self) -> None:
        """To the end of a statement: a semicolon or a block."""
        while (token := self.peek()) != ";":
            if token in _OPENING:
                self._pass_brackets()
                # The block of an option is a value, which a semicolon follows; a lone one is an empty statement.
                if token == "{":
                    break
            else:
                self.take()
        self.skip(";")

    def _pass_brackets(self) -> None:
        closing = [_OPENING[self.take()]]
        while closing:
            token = self.take()
            if token in _OPENING:
                closing.append(_OPENING[token])
            elif token == closing[-1]:
                closing.pop()


def _message(reader: _Reader, message: descriptor_pb2.DescriptorProto, proto3: bool, depth: int) -> None:
    if depth > MOST_DEPTH:
        raise ValueError(f"the file has more than {MOST_DEPTH} messages within messages")
    message.name = reader.take()
    reader.expect("{")
    optional: list[descriptor_pb2.FieldDescriptorProto] = []
    while not reader.skip("}"):
        word = reader.peek()
        if word == "message":
            reader.take()
            _message(reader, message.nested_type.add(), proto3, depth + 1)
        elif word == "enum":
            reader.take()
            _enum(reader, message.enum_type.add())
        elif word == "oneof":
            reader.take()
            _oneof(reader, message)
        elif word in ("option", "reserved", "extensions", "extend"):
            reader.pass_statement()
        elif not reader.skip(";"):
            given = _LABELS.get(word)
            if given is not None:
                reader.take()
            field = _field(reader, message)
            if field.label != _Field.LABEL_REPEATED:
                field.label = given or _Field.LABEL_OPTIONAL
            if proto3 and word == "optional":
                optional.append(field)
    # A proto3 field with "optional" is alone in a oneof; those are behind the written ones.
    for field in optional:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _oneof(reader: _Reader, message: descriptor_pb2.DescriptorProto) -> None:
    index = len(message.oneof_decl)
    message.oneof_decl.add(name=reader.take())
    reader.expect("{")
    while not reader.skip("}"):
        if reader.peek() == "option":
            reader.pass_statement()
        elif not reader.skip(";"):
            field = _field(reader, message)
            field.label = _Field.LABEL_OPTIONAL
            field.oneof_index = index


def _field(reader: _Reader, message: descriptor_pb2.DescriptorProto) -> descriptor_pb2.FieldDescriptorProto:
    """A field without its label; a map's has one."""
    field = message.field.add()
    kind = reader.take()
    if kind == "group":
        raise ValueError("groups are not supported")
    if kind == "map" and reader.skip("<"):
        key = reader.take()
        reader.expect(",")
        value = reader.take()
        reader.expect(">")
        field.name = reader.take()
        entry = message.nested_type.add(name=_entry_name(field.name))
        entry.options.map_entry = True
        _set_type(entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL), key)
        _set_type(entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), value)
        field.label = _Field.LABEL_REPEATED
        field.type = _Field.TYPE_MESSAGE
        field.type_name = entry.name
    else:
        _set_type(field, kind)
        field.name = reader.take()
    reader.expect("=")
    field.number = reader.number()
    packed = reader.options().get("packed")
    if packed in ("true", "false"):
        field.options.packed = packed == "true"
    reader.expect(";")
    return field


def _entry_name(name: str) -> str:
    """The name of the message of a map's entries, as protoc makes it: descriptors check it."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _set_type(field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        # The pool finds a name from the inner messages outwards, and whether it is of a message or of an enumeration.
        field.type_name = kind


def _enum(reader: _Reader, enum: descriptor_pb2.EnumDescriptorProto) -> None:
    enum.name = reader.take()
    reader.expect("{")
    while not reader.skip("}"):
        if reader.peek() in ("option", "reserved") and reader.peek(1) != "=":
            if reader.peek(1) == "allow_alias" and reader.peek(3) == "true":
                enum.options.allow_alias = True
            reader.pass_statement()
        elif not reader.skip(";"):
            name = reader.take()
            reader.expect("=")
            enum.value.add(name=name, number=reader.number())
            reader.options()
            reader.expect(";")
