"""The authorizer with access control lists: Kafka's AclAuthorizer and StandardAuthorizer.

It is registered as ``acl``; authorizer.class.name may also have Kafka's class names. The ACLs are in the metadata
store, in the nodes of Kafka's AclAuthorizer. The order of a decision:

1. super.users may do everything.
2. A resource that no ACL covers, of whatever principal: allow.everyone.if.no.acl.found.
3. A deny that covers principal, host and operation denies.
4. An allow that covers them, or an operation that includes the asked one, allows. Otherwise the answer is no.

Sources: kafka.security.authorizer.AclAuthorizer, org.apache.kafka.metadata.authorizer.StandardAuthorizerData.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError, ErrorCode, IllegalArgumentError, KafkaError, error_for
from kafkapy.protocol.registry import ApiKeys
from kafkapy.security.authorizer.acl_index import ALLOWING, DENYING, AclIndex
from kafkapy.security.authorizer.base import (
    AclBinding,
    AclBindingFilter,
    AclDeleteResult,
    Action,
    AuthorizableRequestContext,
    AuthorizationResult,
    AuthorizerServices,
)
from kafkapy.security.authorizer.bindings import (
    WILDCARD_HOST,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    ResourcePattern,
)
from kafkapy.security.authorizer.masks import Key, Rules, bit_of, entries_of, pascal_name
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

if TYPE_CHECKING:
    from kafkapy.metadata.acl_store import AclEdit, AclStore

__all__ = ["AclAuthorizer"]

T = TypeVar("T")

logger = logging.getLogger("kafka.security.authorizer.AclAuthorizer")
audit = logging.getLogger("kafka.authorizer.logger")
TRACE: Final = 5

_ALLOWED: Final = AuthorizationResult.ALLOWED
_DENIED: Final = AuthorizationResult.DENIED
_SPECIFIC_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)


class AclAuthorizer:
    """Decides by ACLs, from memory.

    Owned by the broker; used on the control loop. `decisions_epoch` grows with each change of an ACL.
    """

    def __init__(self) -> None:
        self._index = AclIndex()
        self._store: AclStore | None = None
        self._services: AuthorizerServices | None = None
        self._super_users: frozenset[str] = frozenset()
        self._allow_without_acl = False
        self._epoch = 1

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def decisions_epoch(self) -> int:
        """Grows with each change of an ACL."""
        return self._epoch

    @property
    def acl_count(self) -> int:
        """The number of ACLs."""
        return self._index.count

    def configure(self, config: BrokerConfig) -> None:
        """Read super.users and allow.everyone.if.no.acl.found. ConfigError."""
        self._super_users = _super_users(config.get_str("super.users"))
        self._allow_without_acl = config.get_bool("allow.everyone.if.no.acl.found")

    async def start(self, services: AuthorizerServices) -> None:
        """Read the ACLs, and follow their changes. StoreUnavailableError, StoreCorruptError."""
        self._services = services
        self._store = await services.acl_store()
        await self._store.start(self._changed)
        logger.info("The authorizer has loaded %d ACLs", self._index.count)

    def close(self) -> None:
        """Releases nothing: the broker stops the store of the ACLs."""

    async def _changed(self, changed: Mapping[ResourcePattern, Rules]) -> None:
        for pattern, rules in changed.items():
            await self._index.put(pattern, rules)
            logger.debug("The ACLs of %s have changed: %d principals and hosts", pattern, len(rules))
        self._epoch += 1
        if self._services is not None:
            self._services.decisions_changed()

    # --- decisions ----------------------------------------------------------------------------------------------------

    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        """One answer for each action. IllegalArgumentError for a pattern that is not literal."""
        principal, keys = _client(context)
        if principal in self._super_users:
            answers = [_ALLOWED] * len(actions)
        else:
            mask_of, without = self._index.mask, _ALLOWED if self._allow_without_acl else _DENIED
            answers = []
            for action in actions:
                if action.pattern_type is not PatternType.LITERAL:
                    raise IllegalArgumentError(f"only literal resources are authorized, not {action.pattern_type.name}")
                mask = mask_of(action.resource_type, action.resource_name, keys)
                if mask is None:
                    answers.append(without)
                elif mask & DENYING[action.operation] or not mask & ALLOWING[action.operation]:
                    answers.append(_DENIED)
                else:
                    answers.append(_ALLOWED)
        if audit.isEnabledFor(logging.DEBUG) or _DENIED in answers:
            self._audit(context, actions, answers)
        return answers

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether the client may do `operation` on any resource of the type (KIP-679)."""
        principal, keys = _client(context)
        if principal in self._super_users:
            return True
        allowed = not self._index.denies_all(resource_type, operation, keys) and (
            self._allow_without_acl or self._index.allows_any(resource_type, operation, keys)
        )
        action = Action(operation, resource_type, "NONE", PatternType.UNKNOWN, reference_count=0)
        self._audit(context, [action], [_ALLOWED if allowed else _DENIED])
        return allowed

    @staticmethod
    def _audit(
        context: AuthorizableRequestContext, actions: Sequence[Action], answers: Sequence[AuthorizationResult]
    ) -> None:
        """Write the decisions into the audit log, in the words of Kafka."""
        level = audit.getEffectiveLevel()
        for action, answer in zip(actions, answers, strict=True):
            if answer is _ALLOWED:
                told, at = "Allowed", logging.DEBUG if action.log_if_allowed else TRACE
            else:
                told, at = "Denied", logging.INFO if action.log_if_denied else TRACE
            if at >= level:
                audit.log(
                    at,
                    "Principal = %s is %s Operation = %s from host = %s on resource = %s:%s:%s for request = %s "
                    "with resourceRefCount = %d",
                    context.principal,
                    told,
                    pascal_name(action.operation),
                    context.client_address,
                    pascal_name(action.resource_type),
                    action.pattern_type.name,
                    action.resource_name,
                    _api_name(context.api_key),
                    action.reference_count,
                )

    # --- ACLs ---------------------------------------------------------------------------------------------------------

    def acls(self, acl_filter: AclBindingFilter) -> Iterator[AclBinding]:
        """The ACLs that match the filter, by resource pattern."""
        for pattern in self._index.patterns(acl_filter):
            for entry in entries_of(self._index.rules(pattern)):
                if acl_filter.matches_entry(entry):
                    yield AclBinding(pattern.resource_type, pattern.name, pattern.pattern_type, *entry)

    async def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding]
    ) -> list[KafkaError | None]:
        """Add ACLs. INVALID_REQUEST for those that cannot be.

        The ACLs of one resource pattern are written together or not at all.
        """
        results: list[KafkaError | None] = [None] * len(bindings)
        added: dict[ResourcePattern, dict[Key, int]] = {}
        async for number, binding in in_slices(enumerate(bindings)):
            reason = _invalid_reason(binding)
            if reason is not None:
                results[number] = error_for(ErrorCode.INVALID_REQUEST, reason)
                continue
            rules = added.setdefault(binding.pattern, {})
            key = (binding.principal, binding.host)
            rules[key] = rules.get(key, 0) | bit_of(binding.operation, binding.permission_type)
        failed = await self._written().change(_Edits(added, _adding))
        count = len(bindings)
        async for number, binding in in_slices(enumerate(bindings)):
            if failed and results[number] is None:
                results[number] = failed.get(binding.pattern)
            count -= results[number] is not None
        self._log_changes(context, "added", count)
        # A dict that is dropped as a whole takes longer than a slice.
        async for pattern in in_slices(list(added)):
            del added[pattern]
        return results

    async def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter]
    ) -> list[AclDeleteResult]:
        """Delete the ACLs that match.

        An ACL that several filters match is in the result of the first one. ACLs that other brokers have just added
        are deleted when a filter names their pattern, else when this broker has heard of them.
        """
        invalid: dict[int, KafkaError] = {}
        wanted: dict[ResourcePattern, dict[AclBindingFilter, int]] = {}
        async for number, acl_filter in in_slices(enumerate(filters)):
            reason = _invalid_filter_reason(acl_filter)
            if reason is not None:
                invalid[number] = error_for(ErrorCode.INVALID_REQUEST, reason)
                continue
            async for pattern in in_slices(self._candidates(acl_filter)):
                wanted.setdefault(pattern, {}).setdefault(acl_filter, number)
        deleted: dict[ResourcePattern, dict[AccessControlEntry, int]] = {}
        edits = _Edits(wanted, lambda pattern, asked: _removing(asked, pattern, deleted))
        failed = await self._written().change(edits)
        done: list[list[AclBinding]] = [[] for _ in filters]
        left: list[list[tuple[AclBinding, KafkaError]]] = [[] for _ in filters]
        for pattern, entries in deleted.items():
            error = failed.get(pattern)
            async for entry, number in in_slices(entries.items()):
                binding = AclBinding(pattern.resource_type, pattern.name, pattern.pattern_type, *entry)
                if error is None:
                    done[number].append(binding)
                else:
                    left[number].append((binding, error))
        self._log_changes(context, "deleted", sum(map(len, done)))
        return [
            AclDeleteResult(tuple(done[number]), invalid.get(number), tuple(left[number]))
            async for number in in_slices(range(len(filters)))
        ]

    def _candidates(self, acl_filter: AclBindingFilter) -> Iterable[ResourcePattern]:
        """The patterns that a filter may match: those of the index, and those it names."""
        name = acl_filter.resource_name
        if (
            name is None
            or acl_filter.resource_type is ResourceType.ANY
            or acl_filter.pattern_type is PatternType.MATCH
            or not self._written().is_shared
        ):
            return self._index.patterns(acl_filter)
        kinds = _SPECIFIC_PATTERNS if acl_filter.pattern_type is PatternType.ANY else (acl_filter.pattern_type,)
        return [ResourcePattern(acl_filter.resource_type, name, kind) for kind in kinds]

    def _written(self) -> AclStore:
        if self._store is None:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The authorizer has not been started.")
        return self._store

    @staticmethod
    def _log_changes(context: AuthorizableRequestContext, done: str, count: int) -> None:
        logger.info("%s from %s has %s %d ACLs", context.principal, context.client_address, done, count)


class _Edits(Mapping[ResourcePattern, "AclEdit"], Generic[T]):
    """Edits by pattern, each made when it is asked for: a client may want very many."""

    def __init__(self, wanted: Mapping[ResourcePattern, T], edit_of: Callable[[ResourcePattern, T], AclEdit]) -> None:
        self._wanted = wanted
        self._edit_of = edit_of

    def __getitem__(self, pattern: ResourcePattern) -> AclEdit:
        return self._edit_of(pattern, self._wanted[pattern])

    def __iter__(self) -> Iterator[ResourcePattern]:
        return iter(self._wanted)

    def __len__(self) -> int:
        return len(self._wanted)


def _adding(_: ResourcePattern, rules: Rules) -> Callable[[Rules], Awaitable[Rules]]:
    async def edit(present: Rules) -> Rules:
        made = dict(present)
        async for key, mask in in_slices(rules.items()):
            made[key] = made.get(key, 0) | mask
        return made

    return edit


def _removing(
    filters: Mapping[AclBindingFilter, int],
    pattern: ResourcePattern,
    deleted: dict[ResourcePattern, dict[AccessControlEntry, int]],
) -> Callable[[Rules], Awaitable[Rules]]:
    async def edit(present: Rules) -> Rules:
        made = dict(present)
        found: dict[AccessControlEntry, int] = {}
        async for entry in in_slices(entries_of(present)):
            for acl_filter, number in filters.items():
                if acl_filter.matches_entry(entry):
                    found[entry] = number
                    key = (entry.principal, entry.host)
                    made[key] &= ~bit_of(entry.operation, entry.permission_type)
                    if not made[key]:
                        del made[key]
                    break
        deleted[pattern] = found
        return made

    return edit


# --- what may be an ACL ----------------------------------------------------------------------------------------------


def _invalid_reason(binding: AclBinding) -> str | None:
    """The reason why an ACL is refused, or None."""
    if binding.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"An ACL needs a resource type, and {binding.resource_type.name} is none."
    if binding.pattern_type not in _SPECIFIC_PATTERNS:
        return f"An ACL needs the pattern type LITERAL or PREFIXED, not {binding.pattern_type.name}."
    if binding.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"An ACL needs an operation, and {binding.operation.name} is none."
    if binding.permission_type in (AclPermissionType.UNKNOWN, AclPermissionType.ANY):
        return f"An ACL needs the permission type ALLOW or DENY, not {binding.permission_type.name}."
    if not binding.resource_name:
        return "An ACL needs a resource name."
    if "/" in binding.resource_name:
        return f"The resource name of an ACL cannot contain '/': {binding.resource_name}"
    if not _is_principal(binding.principal):
        return f"The principal of an ACL has the form Type:name, as User:alice, and {binding.principal!r} has not."
    if not binding.host:
        return "An ACL needs a host: an address, or * for every address."
    return None


def _invalid_filter_reason(acl_filter: AclBindingFilter) -> str | None:
    unknown = (acl_filter.resource_type, acl_filter.pattern_type, acl_filter.operation, acl_filter.permission_type)
    if any(each == 0 for each in unknown):
        return "The filter has an unknown resource type, pattern type, operation or permission type."
    return None


def _is_principal(text: str) -> bool:
    try:
        KafkaPrincipal.parse(text)
    except ValueError:
        return False
    return True


def _super_users(text: str) -> frozenset[str]:
    users = frozenset(each.strip() for each in text.split(";")) - {""}
    for user in sorted(users):
        if not _is_principal(user):
            raise ConfigError("super.users", text, f"{user!r} is not of the form Type:name, as User:alice")
    return users


# --- the client -------------------------------------------------------------------------------------------------------


def _client(context: AuthorizableRequestContext) -> tuple[str, tuple[Key, ...]]:
    """The principal's text, and the keys of all rules that apply to the client."""
    return _keys(str(context.principal), context.client_address)


@lru_cache(4096)
def _keys(principal: str, address: str) -> tuple[str, tuple[Key, ...]]:
    hosts = (*_host_texts(address), WILDCARD_HOST)
    return principal, tuple((each, host) for each in (principal, WILDCARD_PRINCIPAL) for host in hosts)


def _host_texts(address: str) -> tuple[str, ...]:
    """The ways in which ACLs may write an address.

    Java writes IPv6 addresses without "::", as 0:0:0:0:0:0:0:1, and IPv4 in IPv6 as IPv4.
    """
    plain, percent, scope = address.partition("%")
    try:
        parsed = ipaddress.ip_address(plain)
    except ValueError:
        return (address,)
    if isinstance(parsed, ipaddress.IPv4Address):
        return (address,)
    if parsed.ipv4_mapped is not None:
        return (str(parsed.ipv4_mapped),)
    java = ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return tuple(dict.fromkeys(text + percent + scope for text in (str(parsed), java)))


@lru_cache(256)
def _api_name(key: int) -> str:
    try:
        return pascal_name(ApiKeys(key))
    except ValueError:
        return str(key)
