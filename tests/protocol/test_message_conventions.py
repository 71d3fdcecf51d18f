"""What every declaration keeps to."""

from __future__ import annotations

import ast
import inspect
import re

from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import Request, Response, Struct


def nested_structs(cls):
    for field in cls._fields:
        inner = field.struct or (field.element.struct if field.element else None)
        if inner is not None:
            yield field, inner
            yield from nested_structs(inner)


def test_says_what_it_does(message_class):
    doc = message_class.__doc__
    assert doc, f"{message_class.NAME} has no docstring"
    assert doc.splitlines()[0].endswith((".", ":")), message_class.NAME


def test_every_module_says_what_it_holds(modules):
    for module in modules:
        assert module.__doc__, module.__name__


def test_modules_hold_declarations_only(modules):
    for module in modules:
        for node in ast.parse(inspect.getsource(module)).body:
            docstring = isinstance(node, ast.Expr)
            assert docstring or isinstance(node, ast.ImportFrom | ast.ClassDef), f"{module.__name__}:{node.lineno}"


def test_every_declared_api_is_in_the_registry(modules):
    for module in modules:
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, Request | Response) and cls.__module__ == module.__name__:
                entry = ApiKeys(cls.API_KEY)
                assert module.__name__.endswith(f".{entry.module}")
                assert cls in (entry.request, entry.response)


def test_request_and_response_have_the_same_versions():
    for entry in ApiKeys:
        assert entry.request.VERSIONS == entry.response.VERSIONS
        assert entry.request.FLEXIBLE == entry.response.FLEXIBLE
        assert entry.request.API_KEY == entry.response.API_KEY == entry


def test_field_names_are_snake_case_and_fields_are_used(message_class):
    for owner in {message_class, *(inner for _, inner in nested_structs(message_class))}:
        assert issubclass(owner, Struct)
        for field in owner._fields:
            assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", field.name)
            assert field.versions.low <= message_class.VERSIONS.high, f"{owner.__qualname__}.{field.name}"


def test_tagged_fields_are_tagged_in_flexible_versions_only(message_class):
    for owner in {message_class, *(inner for _, inner in nested_structs(message_class))}:
        for field in owner._fields:
            if field.tag is None:
                continue
            for version in range(message_class.VERSIONS.low, message_class.VERSIONS.high + 1):
                if version in field.tagged:
                    assert version in message_class.FLEXIBLE, f"{owner.__qualname__}.{field.name}"
