"""A client of a schema registry with Confluent's REST API (Confluent, Karapace, Apicurio's compatible one)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from kafkapy_console.errors import BadInputError, RemoteServiceError
from kafkapy_console.services.cache import Cache

__all__ = ["Reference", "Registry", "Schema", "rest"]

FOREVER_S = 10 * 365 * 86_400.0
"""A schema id never gets another schema."""
SUBJECTS_S = 3

Reference = tuple[str, str, int]
"""The name by which a schema refers to another one, the other's subject and its version."""


@dataclass(frozen=True)
class Schema:
    """A schema: its id, its type (AVRO, JSON, PROTOBUF), its text, and the schemas that it refers to."""

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int = 0

    @property
    def pretty(self) -> str:
        """The text for people; JSON is indented."""
        if self.kind == "PROTOBUF":
            return self.text
        try:
            return json.dumps(json.loads(self.text), indent=2, ensure_ascii=False)
        except ValueError:
            return self.text


def address_part(name: str) -> str:
    """A name as one part of an address. Clients resolve "." and "..": they are refused. BadInputError."""
    if name in (".", ".."):
        raise BadInputError(f"{name} is no name.")
    return quote(name, safe="")


async def rest(
    http: httpx.AsyncClient, what: str, method: str, url: str, *, auth: Any = None, body: Any = None, **arguments: Any
) -> Any:
    """The JSON of a REST API's answer. RemoteServiceError with the API's own words, or because it is away."""
    try:
        # httpx drops the query of an address beside empty params.
        given = {name: value for name, value in arguments.items() if value}
        try:
            response = await http.request(method, url, auth=auth, json=body, **given)
        except (httpx.ReadError, httpx.RemoteProtocolError):
            # The service may close a kept connection just as it is used again.
            if method != "GET":
                raise
            response = await http.request(method, url, auth=auth, json=body, **given)
    except httpx.HTTPError as error:
        raise RemoteServiceError(f"{what} at {url} gives no answer ({type(error).__name__}).") from None
    try:
        found = response.json() if response.content else None
    except ValueError:
        found = None
    if response.status_code >= 400:
        told = found.get("message") if isinstance(found, dict) else None
        raise RemoteServiceError(
            f"{what} answered {response.status_code}: {told or response.reason_phrase}", response.status_code
        )
    return found


class Registry:
    """Reads and writes schemas. Schemas by id are kept."""

    def __init__(self, http: httpx.AsyncClient, url: str, auth: tuple[str, str] | None) -> None:
        self._http = http
        self._url = url
        self._auth = auth
        self._cache = Cache()

    async def _ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        return await rest(
            self._http,
            "The schema registry",
            method,
            self._url + path,
            auth=self._auth,
            body=body,
            params=query,
            headers=headers,
        )

    # --- reading ----------------------------------------------------------------------------------------------------

    async def by_id(self, schema_id: int) -> Schema:
        """The schema of an id."""

        async def read() -> Schema:
            return _schema(await self._ask("GET", f"/schemas/ids/{schema_id}"), schema_id)

        return await self._cache.get(("id", schema_id), FOREVER_S, read)

    async def subjects(self, *, with_deleted: bool = False) -> list[str]:
        """The names of all subjects, sorted; also of those that are deleted, but not permanently."""

        async def read() -> list[str]:
            return sorted(await self._ask("GET", "/subjects", **_deleted(with_deleted)))

        return await self._cache.get(("subjects", with_deleted), SUBJECTS_S, read)

    async def versions(self, subject: str, *, with_deleted: bool = False) -> list[int]:
        """The versions of a subject, ascending; also those that are deleted, but not permanently."""
        return sorted(await self._ask("GET", f"/subjects/{address_part(subject)}/versions", **_deleted(with_deleted)))

    async def version(self, subject: str, version: int | str) -> Schema:
        """One version of a subject; "latest" is one, too."""
        return _schema(await self._ask("GET", f"/subjects/{address_part(subject)}/versions/{version}"))

    async def compatibility(self, subject: str | None = None) -> tuple[str, bool]:
        """The level of a subject, or of the registry; whether the subject sets it itself."""
        if subject is not None:
            try:
                found = await self._ask("GET", f"/config/{address_part(subject)}")
                return str(found.get("compatibilityLevel") or found.get("compatibility")), True
            except RemoteServiceError as error:
                if error.remote_status != 404:
                    raise
        found = await self._ask("GET", "/config")
        return str(found.get("compatibilityLevel") or found.get("compatibility")), False

    async def check(self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()) -> list[str]:
        """The reasons why a schema is not compatible with the newest version; [] for one that is."""
        try:
            found = await self._ask(
                "POST",
                f"/compatibility/subjects/{address_part(subject)}/versions/latest",
                _body(kind, text, references),
                verbose="true",
            )
        except RemoteServiceError as error:
            if error.remote_status == 404:
                return []
            raise
        if found.get("is_compatible"):
            return []
        return [str(each) for each in found.get("messages") or ()] or ["The registry says no and gives no reason."]

    # --- changes ----------------------------------------------------------------------------------------------------

    async def register(self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()) -> int:
        """The id of a schema that becomes a version of the subject."""
        found = await self._ask("POST", f"/subjects/{address_part(subject)}/versions", _body(kind, text, references))
        self._subjects_changed()
        return int(found["id"])

    async def set_compatibility(self, subject: str | None, level: str) -> None:
        """Sets the level of a subject, or of the registry."""
        path = "/config" if subject is None else f"/config/{address_part(subject)}"
        await self._ask("PUT", path, {"compatibility": level})

    async def delete(self, subject: str, version: int | None = None, *, permanent: bool = False) -> None:
        """Deletes a version, or the subject; a permanent deletion follows a soft one, which may be of earlier."""
        path = f"/subjects/{address_part(subject)}" + ("" if version is None else f"/versions/{version}")
        try:
            await self._ask("DELETE", path)
        except RemoteServiceError as error:
            if not permanent or error.remote_status != 404:
                raise
        if permanent:
            await self._ask("DELETE", path, permanent="true")
        self._subjects_changed()

    def _subjects_changed(self) -> None:
        self._cache.drop(("subjects", False), ("subjects", True))


def _deleted(wanted: bool) -> dict[str, str]:
    return {"deleted": "true"} if wanted else {}


def _body(kind: str, text: str, references: Sequence[Reference]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": text, "schemaType": kind}
    if references:
        names = ("name", "subject", "version")
        body["references"] = [dict(zip(names, each, strict=True)) for each in references]
    return body


def _schema(found: Mapping[str, Any], schema_id: int | None = None) -> Schema:
    return Schema(
        id=int(found.get("id", schema_id or 0)) if schema_id is None else schema_id,
        kind=str(found.get("schemaType") or "AVRO"),
        text=str(found["schema"]),
        references=tuple(
            (each["name"], each["subject"], int(each["version"])) for each in found.get("references") or ()
        ),
        subject=str(found.get("subject") or ""),
        version=int(found.get("version") or 0),
    )
