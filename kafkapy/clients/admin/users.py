"""SCRAM credentials and client quotas.

Served by: DescribeUserScramCredentials, DescribeClientQuotas, AlterClientQuotas (any broker),
AlterUserScramCredentials (controller).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kafkapy.clients.admin.routing import AdminRouting
from kafkapy.clients.admin.shapes import checked, error_of, member_of
from kafkapy.errors import ErrorCode, IllegalArgumentError, error_for
from kafkapy.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkapy.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kafkapy.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kafkapy.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkapy.security.scram import DEFAULT_ITERATIONS, SALT_BYTES, ScramMechanism

__all__ = [
    "DEFAULT_ENTITY",
    "ClientQuota",
    "ScramMechanism",
    "UserAdmin",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]

EXACT, DEFAULT, ANY = 0, 1, 2
"""Match types of DescribeClientQuotas."""


class _DefaultEntity:
    """The default entity of a type, for example of users without quota."""

    def __repr__(self) -> str:
        return "DEFAULT_ENTITY"


DEFAULT_ENTITY: Final = _DefaultEntity()


class ClientQuota(NamedTuple):
    """An entity and its quotas.

    The entity is {type: name, None for the default}, the quotas are {quota key: value}.
    """

    entity: dict[str, str | None]
    values: dict[str, float]


class UserScramCredentialDeletion:
    """Deletes a user's credential of one mechanism."""

    def __init__(self, user: str, mechanism: ScramMechanism | str | int) -> None:
        self.user = user
        self.mechanism = member_of(ScramMechanism, mechanism)

    def __repr__(self) -> str:
        return f"UserScramCredentialDeletion({self.user!r}, {self.mechanism.name})"


class UserScramCredentialUpsertion:
    """Sets a user's password for one mechanism.

    The password does not leave the client, only its salted hash (PBKDF2). The default salt is random.
    IllegalArgumentError for ScramMechanism.UNKNOWN.
    """

    DEFAULT_ITERATIONS = DEFAULT_ITERATIONS

    def __init__(
        self,
        user: str,
        mechanism: ScramMechanism | str | int,
        password: bytes | str,
        iterations: int | None = None,
        salt: bytes | None = None,
    ) -> None:
        self.user = user
        self.mechanism = member_of(ScramMechanism, mechanism)
        if self.mechanism is ScramMechanism.UNKNOWN:
            raise IllegalArgumentError("the mechanism cannot be UNKNOWN")
        self.iterations = DEFAULT_ITERATIONS if iterations is None else iterations
        self.salt = os.urandom(SALT_BYTES) if salt is None else salt
        secret = password.encode() if isinstance(password, str) else password
        self.salted_password = hashlib.pbkdf2_hmac(self.mechanism.hash_name, secret, self.salt, self.iterations)

    def __repr__(self) -> str:
        return f"UserScramCredentialUpsertion({self.user!r}, {self.mechanism.name}, iterations={self.iterations})"


class UserAdmin(AdminRouting):
    """The admin client's calls for SCRAM credentials and client quotas."""

    async def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """The SCRAM credentials of these users, or of all.

        Raises an error of the whole request. {user: {'error': None or text, 'credential_infos': [{'mechanism',
        'iterations'}]}}.
        """
        request_class = DescribeUserScramCredentialsRequest
        request = request_class(users=None if users is None else [request_class.User(name=each) for each in users])
        deadline = self.deadline()

        async def ask(node: int) -> Any:
            return checked(await self.send(node, request, deadline))

        return {
            result.user: {
                "error": _sentence(result),
                "credential_infos": [
                    {"mechanism": ScramMechanism(each.mechanism), "iterations": each.iterations}
                    for each in result.credential_infos
                ],
            }
            for result in (await self.one(self.anywhere, ask, deadline)).results
        }

    async def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]
    ) -> dict[str, str | None]:
        """Changes SCRAM credentials: {user: None or the error}."""
        request_class = AlterUserScramCredentialsRequest
        request = request_class(deletions=[], upsertions=[])
        for each in alterations:
            if isinstance(each, UserScramCredentialDeletion):
                request.deletions.append(request_class.Deletion(name=each.user, mechanism=each.mechanism))
            elif isinstance(each, UserScramCredentialUpsertion):
                request.upsertions.append(
                    request_class.Upsertion(
                        name=each.user,
                        mechanism=each.mechanism,
                        iterations=each.iterations,
                        salt=each.salt,
                        salted_password=each.salted_password,
                    )
                )
            else:
                raise IllegalArgumentError(
                    "alterations must be UserScramCredentialDeletion or UserScramCredentialUpsertion objects, "
                    f"not {type(each).__name__}"
                )
        deadline = self.deadline()

        async def ask(node: int) -> Any:
            response = await self.send(node, request, deadline)
            for result in response.results:
                if result.error_code == ErrorCode.NOT_CONTROLLER:
                    raise error_for(result.error_code)
            return response

        response = await self.one(self.at_controller, ask, deadline)
        return {each.user: _sentence(each) for each in response.results}

    async def describe_client_quotas(
        self, components: Mapping[str, str | _DefaultEntity | None] | None = None, strict: bool = False
    ) -> list[ClientQuota]:
        """The quotas of matching entities, or of all. Raises the response's error.

        `components` is {entity type ("user", "client-id", "ip"): a name, DEFAULT_ENTITY, or None for any}. `strict`:
        only entities without further types.
        """
        request = DescribeClientQuotasRequest(
            components=[_component(kind, match) for kind, match in (components or {}).items()], strict=strict
        )
        deadline = self.deadline()

        async def ask(node: int) -> Any:
            return checked(await self.send(node, request, deadline))

        return [
            ClientQuota(_entity(entry), {value.key: value.value for value in entry.values})
            for entry in (await self.one(self.anywhere, ask, deadline)).entries or ()
        ]

    async def alter_client_quotas(
        self,
        quotas: Iterable[tuple[Mapping[str, str | None], Mapping[str, float | None]]],
        validate_only: bool = False,
    ) -> None:
        """Sets and removes quotas. Raises the first error.

        `quotas` are pairs of {type: name, None for the default} and {quota key: value, None to remove}.
        """
        request_class = AlterClientQuotasRequest
        request = request_class(
            entries=[
                request_class.Entry(
                    entity=[
                        request_class.Entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()
                    ],
                    ops=[
                        request_class.Entry.Op(key=key, value=value or 0.0, remove=value is None)
                        for key, value in values.items()
                    ],
                )
                for entity, values in quotas
            ],
            validate_only=validate_only,
        )
        deadline = self.deadline()
        response = await self.one(self.anywhere, lambda node: self.send(node, request, deadline), deadline)
        for entry in response.entries:
            if error := error_of(entry.error_code, entry.error_message):
                raise error


def _sentence(result: Any) -> str | None:
    error = error_of(result.error_code, result.error_message)
    return None if error is None else str(error)


def _component(kind: str, match: str | _DefaultEntity | None) -> DescribeClientQuotasRequest.Component:
    if match is None:
        return DescribeClientQuotasRequest.Component(entity_type=kind, match_type=ANY, match=None)
    if isinstance(match, _DefaultEntity):
        return DescribeClientQuotasRequest.Component(entity_type=kind, match_type=DEFAULT, match=None)
    return DescribeClientQuotasRequest.Component(entity_type=kind, match_type=EXACT, match=match)


def _entity(entry: Any) -> dict[str, str | None]:
    return {each.entity_type: each.entity_name for each in entry.entity}
