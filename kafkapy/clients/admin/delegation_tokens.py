"""Delegation tokens (KIP-48): create, renew, expire, describe.

Served by: CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken (any broker, on
an authenticated connection). Principals are texts such as "User:alice".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kafkapy.clients.admin.routing import AdminRouting
from kafkapy.clients.admin.shapes import checked
from kafkapy.errors import IllegalArgumentError
from kafkapy.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkapy.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkapy.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkapy.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kafkapy.protocol.schema import Request

__all__ = ["DelegationToken", "DelegationTokenAdmin"]

AS_THE_BROKER_SAYS = -1
OLDEST_WITH_OWNER = 3


class DelegationToken(NamedTuple):
    """A token; times in ms since 1970. `hmac` is the secret."""

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    renewers: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, owner={self.owner!r}, expires at {self.expiry_timestamp_ms})"


class DelegationTokenAdmin(AdminRouting):
    """The admin client's calls for delegation tokens. Errors are raised."""

    async def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = AS_THE_BROKER_SAYS,
        owner: str | None = None,
    ) -> DelegationToken:
        """Creates a token of the client's principal or of another owner.

        Another owner needs Kafka 3.3.
        """
        request_class = CreateDelegationTokenRequest
        wanted = list(renewers)
        kind, name = ("", "") if owner is None else _principal(owner)

        request = request_class(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[
                request_class.Renewer(principal_type=each_kind, principal_name=each_name)
                for each_kind, each_name in map(_principal, wanted)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        token = await self._ask_plainly(request, OLDEST_WITH_OWNER if owner else 0)
        return DelegationToken(
            token.token_id,
            token.hmac,
            f"{token.principal_type}:{token.principal_name}",
            _requester(token),
            token.issue_timestamp_ms,
            token.expiry_timestamp_ms,
            token.max_timestamp_ms,
            tuple(wanted),
        )

    async def renew_delegation_token(self, hmac: bytes, renew_period_ms: int = AS_THE_BROKER_SAYS) -> int:
        """Renews a token; returns its expiry time in ms since 1970."""
        response = await self._ask_plainly(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms))
        return int(response.expiry_timestamp_ms)

    async def expire_delegation_token(self, hmac: bytes, expiry_time_period_ms: int = -1) -> int:
        """Changes a token's expiry time; returns it in ms since 1970.

        A negative period expires the token at once.
        """
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_time_period_ms)
        return int((await self._ask_plainly(request)).expiry_timestamp_ms)

    async def describe_delegation_token(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """The visible tokens of all owners, or of these."""
        request_class = DescribeDelegationTokenRequest
        wanted = None
        if owners is not None:
            wanted = [
                request_class.Owner(principal_type=kind, principal_name=name) for kind, name in map(_principal, owners)
            ]
        return [
            DelegationToken(
                each.token_id,
                each.hmac,
                f"{each.principal_type}:{each.principal_name}",
                _requester(each),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
                tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in each.renewers),
            )
            for each in (await self._ask_plainly(request_class(owners=wanted))).tokens
        ]

    async def _ask_plainly(self, request: Request, low: int = 0) -> Any:
        deadline = self.deadline()

        async def ask(node: int) -> Any:
            return checked(await self.send(node, request, deadline, low=low))

        return await self.one(self.anywhere, ask, deadline)


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise IllegalArgumentError(f"{text!r} is not a principal (TYPE:NAME, such as User:alice)")
    return kind, name


def _requester(token: Any) -> str:
    """The requester of a token; before Kafka 3.3 it is the owner."""
    if not token.token_requester_principal_name:
        return f"{token.principal_type}:{token.principal_name}"
    return f"{token.token_requester_principal_type}:{token.token_requester_principal_name}"
