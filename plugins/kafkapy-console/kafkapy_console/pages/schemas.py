"""The schema registry: subjects, versions, differences, compatibility; register and delete."""

from __future__ import annotations

import asyncio
import difflib
import json

from starlette.responses import Response

from kafkapy_console.console import number
from kafkapy_console.errors import BadInputError, ConsoleError
from kafkapy_console.pages.topics import pages_of
from kafkapy_console.records.registry import Reference
from kafkapy_console.settings import Level
from kafkapy_console.text import url_part
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES"]

LEVELS = (
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE",
)  # fmt: skip
KINDS = ("AVRO", "JSON", "PROTOBUF")


async def subjects(visit: Visit) -> Response:
    """A page of the subjects with their newest version."""
    registry = visit.console.needed_registry()
    search = visit.query.text("q")
    deleted = bool(visit.query.text("deleted"))
    live = await registry.subjects()
    names = await registry.subjects(with_deleted=True) if deleted else live
    found = [each for each in visit.access.visible(names) if search.lower() in each.lower()]
    bounds = pages_of(visit, len(found), 25)
    names = found[bounds["start"] : bounds["end"]]
    newest = await asyncio.gather(*(registry.version(each, "latest") for each in names), return_exceptions=True)
    level, _ = await registry.compatibility()
    rows = [(name, None if isinstance(each, BaseException) else each) for name, each in zip(names, newest, strict=True)]
    return visit.render(
        "fragments/subjects.html" if visit.is_fragment else "subjects.html",
        rows=rows, live=set(live), q=search, deleted=deleted, level=level, levels=LEVELS, kinds=KINDS, **bounds,
    )  # fmt: skip


async def subject(visit: Visit) -> Response:
    """One version of a subject, and its difference to another one."""
    registry = visit.console.needed_registry()
    name = visit.path("subject")
    visit.require(Level.VIEWER, name)
    versions = await registry.versions(name)
    if not versions:
        raise BadInputError(f"Subject {name} has no version.")
    wanted = number(visit.query.text("version"), "Version", 1, 2**31 - 1, versions[-1])
    against = number(visit.query.text("against"), "Version", 1, 2**31 - 1, 0)
    schema = await registry.version(name, wanted)
    difference = None
    if against:
        other = await registry.version(name, against)
        difference = list(
            difflib.unified_diff(
                other.pretty.splitlines(), schema.pretty.splitlines(), f"version {against}", f"version {wanted}",
                lineterm="",
            )
        )  # fmt: skip
    level, own = await registry.compatibility(name)
    return visit.render(
        "subject.html",
        name=name,
        versions=versions,
        schema=schema,
        wanted=wanted,
        against=against,
        difference=difference,
        level=level,
        own=own,
        levels=LEVELS,
    )


async def register(visit: Visit, form: Form) -> Response:
    """Check the compatibility, then register a schema as a version."""
    registry = visit.console.needed_registry()
    name = form.needed("subject")
    visit.require(Level.EDITOR, name)
    kind, text = form.choice("kind", KINDS, "AVRO"), form.raw("schema").strip()
    if kind != "PROTOBUF":
        try:
            json.loads(text)
        except ValueError as error:
            raise BadInputError(f"The schema is no JSON: {error}") from None
    references = _references(form.raw("references"))
    problems = await registry.check(name, kind, text, references)
    if problems:
        level, _ = await registry.compatibility(name)
        raise BadInputError(f"The schema is not compatible ({level}): " + "; ".join(problems[:5]))
    if form.text("only_check"):
        visit.flash(f"The schema is compatible with subject {name}. Nothing was registered.")
        return visit.redirect("/schemas")
    schema_id = await registry.register(name, kind, text, references)
    visit.audit("register schema", name, id=schema_id)
    visit.flash(f"Schema {schema_id} is registered under {name}.")
    return visit.redirect(f"/schemas/{url_part(name)}")


def _references(text: str) -> list[Reference]:
    """The lines "name subject version" of the form. BadInputError for another line."""
    found = []
    for line in text.splitlines():
        parts = line.split()
        if not parts:
            continue
        if len(parts) != 3:
            raise BadInputError(f"A reference is a name, a subject and a version, not {line.strip()[:200]}.")
        found.append((parts[0], parts[1], number(parts[2], "Version", 1, 2**31 - 1)))
    return found


async def set_level(visit: Visit, form: Form) -> Response:
    """Set the compatibility of a subject, or of the registry."""
    registry = visit.console.needed_registry()
    name = form.text("subject")
    visit.require(Level.EDITOR if name else Level.ADMIN, name or None)
    level = form.choice("level", LEVELS)
    await registry.set_compatibility(name or None, level)
    visit.audit("set compatibility", name or "registry", level=level)
    visit.flash(f"The compatibility of {name or 'the registry'} is {level}.")
    return visit.redirect(f"/schemas/{url_part(name)}" if name else "/schemas")


async def delete_form(visit: Visit) -> Response:
    """What a deletion takes with it."""
    registry = visit.console.needed_registry()
    name = visit.path("subject")
    visit.require(Level.ADMIN, name)
    gone = name not in await registry.subjects()
    versions = await registry.versions(name, with_deleted=gone)
    wanted = number(visit.query.text("version"), "Version", 1, 2**31 - 1, 0)
    return visit.render("schema_delete.html", name=name, versions=versions, wanted=wanted, gone=gone)


async def delete(visit: Visit, form: Form) -> Response:
    """Delete a version, or the subject."""
    registry = visit.console.needed_registry()
    name = visit.path("subject")
    visit.require(Level.ADMIN, name)
    if form.text("name") != name:
        raise BadInputError(f"Type the name of the subject to delete it: {name}.")
    version = number(form.text("version"), "Version", 1, 2**31 - 1, 0)
    permanent = form.text("permanent") == "yes"
    await registry.delete(name, version or None, permanent=permanent)
    visit.audit("delete schema", name, version=version or "all", permanent=permanent)
    visit.flash(f"{f'Version {version} of' if version else 'Subject'} {name} is deleted.")
    try:
        left = await registry.versions(name)
    except ConsoleError:
        left = []
    return visit.redirect(f"/schemas/{url_part(name)}" if left else "/schemas")


ROUTES = [
    page("/schemas", subjects),
    action("/schemas", register, form_page=subjects),
    action("/schemas/compatibility", set_level),
    page("/schemas/{subject}", subject),
    page("/schemas/{subject}/delete", delete_form, Level.ADMIN),
    action("/schemas/{subject}/delete", delete, Level.ADMIN),
]
