"""Roles: which users may see or change which names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafkapy_console.errors import ForbiddenError
from kafkapy_console.settings import Level, RoleRule

__all__ = ["EVERYTHING", "Access", "access_of"]


@dataclass(frozen=True)
class Access:
    """The rights of a user: (level, prefixes) pairs. No prefixes: all names, and the cluster itself."""

    grants: tuple[tuple[Level, tuple[str, ...]], ...]

    def may(self, level: Level, name: str | None = None) -> bool:
        """Whether the user has the level for a name, or for the cluster (None)."""
        return any(
            granted >= level and (not prefixes or (name is not None and name.startswith(prefixes)))
            for granted, prefixes in self.grants
        )

    def require(self, level: Level, name: str | None = None) -> None:
        """ForbiddenError unless the user has the level."""
        if not self.may(level, name):
            about = "the cluster" if name is None else name
            raise ForbiddenError(f"Your roles do not allow this: it needs the role {level.name.lower()} for {about}.")

    def visible(self, names: Iterable[str]) -> list[str]:
        """The names that the user may see."""
        if self.may(Level.VIEWER):
            return list(names)
        return [name for name in names if self.may(Level.VIEWER, name)]

    @property
    def summary(self) -> Sequence[str]:
        """The rights in words."""
        return [
            f"{level.name.lower()} of {', '.join(prefix + '…' for prefix in prefixes) if prefixes else 'everything'}"
            for level, prefixes in self.grants
        ] or ["no role"]


EVERYTHING = Access(((Level.ADMIN, ()),))


def access_of(rules: Iterable[RoleRule], user: str, groups: Iterable[str]) -> Access:
    """The rights that the rules give to a user who is logged in."""
    mine = set(groups)
    return Access(
        tuple(
            (rule.level, rule.prefixes)
            for rule in rules
            if user in rule.users or "*" in rule.users or mine.intersection(rule.groups)
        )
    )
