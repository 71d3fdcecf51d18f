"""DescribeClientQuotas, API key 48: versions 0 to 1.

The response has the quotas of all entities that match every component of the filter. A component names an entity type
with a name, the default entity, or any entity of the type; strict leaves out entities with further types. An empty or
repeated type, a missing or superfluous name, an unknown kind of match, and an address together with a user or client id
are INVALID_REQUEST; an unknown type is UNSUPPORTED_VERSION.

Versions:
0: the API (KIP-546).
1: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.quota_entities import CLIENT_ID, IP, USER, QuotaEntity
from kafkapy.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

REQUEST = DescribeClientQuotasRequest
RESPONSE = DescribeClientQuotasResponse

Entry = DescribeClientQuotasResponse.Entry

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2


class Filter(NamedTuple):
    """The entities that a request asks for."""

    names: Mapping[str, str | None]
    """Type to the name that it must have, None for the default entity."""
    types: frozenset[str]
    """Types with any name."""
    strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether an entity is asked for."""
        parts = dict(entity)
        if self.strict and len(parts) != len(self.names) + len(self.types):
            return False
        return all(kind in parts and parts[kind] == name for kind, name in self.names.items()) and all(
            kind in parts for kind in self.types
        )


async def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """The matching entities. CLUSTER_AUTHORIZATION_FAILED without DESCRIBE_CONFIGS on the cluster."""
    context.authorize_cluster(AclOperation.DESCRIBE_CONFIGS)
    wanted = _filter(request)
    entries = [
        _entry(entity, values)
        async for entity, values in in_slices(list(context.broker.client_quotas.entities.items()))
        if wanted.matches(entity)
    ]
    context.leave(entries)
    return DescribeClientQuotasResponse(entries=entries)


def error_response(
    request: DescribeClientQuotasRequest, error: ErrorCode, message: str
) -> DescribeClientQuotasResponse:
    """The error, and no list of entities."""
    del request
    return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)


def _filter(request: DescribeClientQuotasRequest) -> Filter:
    names: dict[str, str | None] = {}
    types: set[str] = set()
    # Only three types are known, and none may appear twice: the loop ends at the fourth component.
    for component in request.components:
        kind, match = component.entity_type, component.match
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in names or kind in types:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type == EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            names[kind] = match
        elif component.match_type in (DEFAULT, ANY):
            if match is not None:
                which = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
                raise _invalid(f"Request specified MATCH_TYPE_{which}, but also specified a match string.")
            if component.match_type == DEFAULT:
                names[kind] = None
            else:
                types.add(kind)
        else:
            raise _invalid(f"Unknown match type {component.match_type}")
    asked = names.keys() | types
    if IP in asked and len(asked) > 1:
        raise _invalid(
            "Invalid entity filter component combination. "
            "IP filter component should not be used with user or clientId filter component."
        )
    return Filter(names, frozenset(types), request.strict)


def _entry(entity: QuotaEntity, values: Mapping[str, float]) -> Entry:
    return Entry(
        entity=[Entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[Entry.Value(key=key, value=value) for key, value in values.items()],
    )


def _invalid(text: str) -> Exception:
    return error_for(ErrorCode.INVALID_REQUEST, text)
