"""An index of ACLs: decisions without a scan.

The rules of a resource pattern are masks by (principal, host): bit n allows operation n, bit n + 16 denies it. A
decision collects the masks of all patterns that cover the name (the literal one, ``*``, and one look-up for each length
that a prefix has) and tests two bits. Its cost depends on the number of prefix lengths, not on the number of ACLs.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from kafkapy.security.authorizer.bindings import (
    WILDCARD_RESOURCE,
    AclBindingFilter,
    ResourcePattern,
)
from kafkapy.security.authorizer.masks import DENY_SHIFT, Key, Rules, bits_of
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, PatternType, ResourceType

__all__ = ["ALLOWING", "DENYING", "AclIndex"]

_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""Operations whose permission includes another one. A deny includes nothing."""

DENYING: Final = {operation: (1 << operation | 1 << AclOperation.ALL) << DENY_SHIFT for operation in AclOperation}
"""The bits of a mask that deny an operation."""
ALLOWING: Final = {
    operation: sum(1 << each for each in {operation, AclOperation.ALL, *_IMPLIED_BY.get(operation, ())})
    for operation in AclOperation
}
"""The bits of a mask that allow an operation."""
_EXACTLY: Final = {operation: (1 << operation, 1 << AclOperation.ALL) for operation in AclOperation}
"""The bits that allow an operation by its own name; KIP-679 leaves implied permissions out."""

_NO_RULES: Final[Rules] = {}
_NO_NAMES: Final[frozenset[str]] = frozenset()


class _Patterns:
    """The patterns of one resource type."""

    __slots__ = ("_lengths", "holders", "literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, Rules] = {}
        self.prefixed: dict[str, Rules] = {}
        self.prefix_lengths: list[int] = []
        """The lengths of all prefixes, sorted, each once."""
        self._lengths: Counter[int] = Counter()
        self.holders: dict[tuple[PatternType, str, str, int], set[str]] = {}
        """The names with a bit, by pattern type, principal, host and bit."""

    def switch(self, pattern_type: PatternType, name: str, rules: Rules) -> Rules:
        """Replace the rules of a pattern, and return the former ones.

        `hold` has to follow for each changed mask.
        """
        table = self.literal if pattern_type is PatternType.LITERAL else self.prefixed
        before = table.get(name, _NO_RULES)
        if rules:
            table[name] = rules
        else:
            table.pop(name, None)
        if pattern_type is PatternType.PREFIXED and bool(before) != bool(rules):
            self._count_length(len(name), 1 if rules else -1)
        return before

    def hold(self, pattern_type: PatternType, name: str, key: Key, old: int, new: int) -> None:
        """Note a changed mask of a pattern."""
        for bit in bits_of(old ^ new):
            holder = (pattern_type, *key, bit)
            if new & bit:
                self.holders.setdefault(holder, set()).add(name)
            else:
                names = self.holders[holder]
                names.discard(name)
                if not names:
                    del self.holders[holder]

    def _count_length(self, length: int, change: int) -> None:
        self._lengths[length] += change
        if self._lengths[length] == 0:
            del self._lengths[length]
            self.prefix_lengths.remove(length)
        elif change == 1 and self._lengths[length] == 1:
            insort(self.prefix_lengths, length)

    def covering(self, name: str) -> Iterator[tuple[PatternType, str]]:
        """The patterns that cover a name."""
        for literal in dict.fromkeys((name, WILDCARD_RESOURCE)):
            if literal in self.literal:
                yield PatternType.LITERAL, literal
        for length in self.prefix_lengths:
            if length > len(name):
                return
            if name[:length] in self.prefixed:
                yield PatternType.PREFIXED, name[:length]


class AclIndex:
    """The ACLs of a cluster, in memory.

    Owned by an AclAuthorizer; used on the control loop. Rules that were put in must not change afterwards.
    """

    def __init__(self) -> None:
        self._types: dict[ResourceType, _Patterns] = {}
        self.count = 0
        """The number of ACLs."""

    async def put(self, pattern: ResourcePattern, rules: Rules) -> None:
        """Replace the rules of a pattern; empty rules remove it.

        Decisions about one resource follow the new rules at once, those about any resource at the end. One put at a
        time.
        """
        patterns = self._types.setdefault(pattern.resource_type, _Patterns())
        before = patterns.switch(pattern.pattern_type, pattern.name, rules)
        async for key in in_slices(chain(rules, (key for key in before if key not in rules))):
            old, new = before.get(key, 0), rules.get(key, 0)
            if old != new:
                patterns.hold(pattern.pattern_type, pattern.name, key, old, new)
                self.count += new.bit_count() - old.bit_count()

    def rules(self, pattern: ResourcePattern) -> Rules:
        """The rules of a pattern; empty where it has none."""
        patterns = self._types.get(pattern.resource_type)
        if patterns is None:
            return _NO_RULES
        table = patterns.literal if pattern.pattern_type is PatternType.LITERAL else patterns.prefixed
        return table.get(pattern.name, _NO_RULES)

    def mask(self, resource_type: ResourceType, name: str, keys: Iterable[Key]) -> int | None:
        """Joins the masks of all ACLs that cover a resource for one client.

        None when no ACL at all, of whatever principal, covers the resource.
        """
        patterns = self._types.get(resource_type)
        if patterns is None:
            return None
        mask, covered = 0, False
        for rules in (patterns.literal.get(name), patterns.literal.get(WILDCARD_RESOURCE)):
            if rules:
                covered = True
                for key in keys:
                    mask |= rules.get(key, 0)
        prefixed, size = patterns.prefixed, len(name)
        for length in patterns.prefix_lengths:
            if length > size:
                break
            rules = prefixed.get(name[:length])
            if rules:
                covered = True
                for key in keys:
                    mask |= rules.get(key, 0)
        return mask if covered else None

    # --- any resource of a type (KIP-679) -----------------------------------------------------------------------------

    def denies_all(self, resource_type: ResourceType, operation: AclOperation, keys: Sequence[Key]) -> bool:
        """Whether a deny on ``*`` covers the whole type."""
        denied = self._names(resource_type, PatternType.LITERAL, operation, keys, deny=True)
        return any(WILDCARD_RESOURCE in names for names in denied)

    def allows_any(self, resource_type: ResourceType, operation: AclOperation, keys: Sequence[Key]) -> bool:
        """Whether an allow exists that no deny dominates.

        A deny dominates an allow when it covers everything that the allow covers.
        """
        denied = self._names(resource_type, PatternType.LITERAL, operation, keys, deny=True)
        denied_prefixes = self._names(resource_type, PatternType.PREFIXED, operation, keys, deny=True)
        lengths = self._types[resource_type].prefix_lengths if denied_prefixes else ()

        def dominated(name: str) -> bool:
            return any(name[:length] in names for length in lengths if length <= len(name) for names in denied_prefixes)

        if any(
            not dominated(prefix)
            for names in self._names(resource_type, PatternType.PREFIXED, operation, keys)
            for prefix in names
        ):
            return True
        return any(
            name == WILDCARD_RESOURCE or not (any(name in names for names in denied) or dominated(name))
            for allowed in self._names(resource_type, PatternType.LITERAL, operation, keys)
            for name in allowed
        )

    def _names(
        self,
        resource_type: ResourceType,
        pattern_type: PatternType,
        operation: AclOperation,
        keys: Sequence[Key],
        *,
        deny: bool = False,
    ) -> list[set[str]]:
        """The names on which one of the keys has an operation allowed or denied."""
        patterns = self._types.get(resource_type)
        if patterns is None:
            return []
        bits = [bit << DENY_SHIFT if deny else bit for bit in _EXACTLY[operation]]
        found = (patterns.holders.get((pattern_type, *key, bit)) for key in keys for bit in bits)
        return [names for names in found if names]

    # --- filters ------------------------------------------------------------------------------------------------------

    def patterns(self, acl_filter: AclBindingFilter) -> Iterator[ResourcePattern]:
        """The patterns whose ACLs a filter may match.

        A copy of the names: the index may change meanwhile.
        """
        asked = acl_filter.resource_type
        for resource_type in list(self._types) if asked is ResourceType.ANY else [asked]:
            patterns = self._types.get(resource_type)
            if patterns is not None:
                yield from _matching(resource_type, patterns, acl_filter)


def _matching(
    resource_type: ResourceType, patterns: _Patterns, acl_filter: AclBindingFilter
) -> Iterator[ResourcePattern]:
    name, kind = acl_filter.resource_name, acl_filter.pattern_type
    if name is not None and kind is PatternType.MATCH:
        for pattern_type, each in list(patterns.covering(name)):
            yield ResourcePattern(resource_type, each, pattern_type)
        return
    for pattern_type, table in ((PatternType.LITERAL, patterns.literal), (PatternType.PREFIXED, patterns.prefixed)):
        if kind not in (PatternType.ANY, PatternType.MATCH, pattern_type):
            continue
        names = list(table) if name is None else [name] if name in table else []
        for each in names:
            yield ResourcePattern(resource_type, each, pattern_type)
