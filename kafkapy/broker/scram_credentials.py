"""The SCRAM credentials of users in the metadata store (KIP-554).

    /config/users/<percent-encoded user>  keys SCRAM-SHA-256 and SCRAM-SHA-512 beside the user's quotas

A change spreads like any configuration. Source: kafka.server.ZkAdminManager and
kafka.security.CredentialProvider.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kafkapy.errors import ErrorCode, KafkaError, code_of, error_for
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.store import MetadataStore, NodeExistsError, NoNodeError
from kafkapy.metadata.znodes import (
    CONFIG,
    CONFIG_USERS,
    DEFAULT_ENTITY,
    config_path,
    decode_config,
    desanitize,
    sanitize,
)
from kafkapy.security.add_scram import AddedUser
from kafkapy.security.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    CredentialCache,
    ScramMechanism,
    credential_from_salted_password,
    decode_credential,
    encode_credential,
)
from kafkapy.slices import in_slices

SECRET: Final = "/kafkapy/scram_secret"
"""The node of the secret that makes the salts of unknown users: no password depends on it."""
SECRET_BYTES: Final = 32

logger = logging.getLogger("kafka.security.CredentialProvider")


class CredentialInfo(NamedTuple):
    """A credential as DescribeUserScramCredentials shows it."""

    mechanism: ScramMechanism
    iterations: int


class Upsertion(NamedTuple):
    """A new credential for a user; `mechanism` is the number of the request."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class Deletion(NamedTuple):
    """A credential to delete; `mechanism` is the number of the request."""

    user: str
    mechanism: int


async def unknown_users_secret(store: MetadataStore) -> bytes:
    """The cluster's secret for the salts of unknown users; made at its first use."""
    try:
        return (await store.get(SECRET))[0]
    except NoNodeError:
        pass
    secret = os.urandom(SECRET_BYTES)
    try:
        await store.create(SECRET, secret, make_parents=True)
    except NodeExistsError:
        return (await store.get(SECRET))[0]
    return secret


def follow(repository: ConfigRepository, cache: CredentialCache) -> None:
    """Fill the cache with the users' credentials, and keep it up to date.

    The repository has read the users.
    """

    def take(name: str, config: Mapping[str, str]) -> None:
        if name == DEFAULT_ENTITY or "/" in name:
            return
        user = desanitize(name)
        for mechanism in cache.update(user, config):
            logger.error("The %s credential of user %s cannot be read", mechanism, user)

    async def changed(name: str, config: Mapping[str, str]) -> None:
        take(name, config)

    for name, config in repository.entities(CONFIG_USERS).items():
        take(name, config)
    repository.listen(CONFIG_USERS, changed)


async def add_missing(store: MetadataStore, repository: ConfigRepository, added: Sequence[AddedUser]) -> None:
    """Write credentials that do not exist yet.

    Others stay, so a repeated start changes no password.
    """
    if added:
        await store.ensure_path(f"{CONFIG}/{CONFIG_USERS}")
    for user, mechanism, credential in added:
        name, text = mechanism.mechanism_name, encode_credential(credential)
        if name in await repository.fetch(CONFIG_USERS, sanitize(user)):
            logger.info("User %s has a credential for %s already", user, name)
            continue

        def edit(config: dict[str, str], name: str = name, text: str = text) -> dict[str, str]:
            return {name: text, **config}

        await repository.change(CONFIG_USERS, sanitize(user), edit)
        logger.info("User %s has a new credential for %s", user, name)


class ScramCredentials:
    """Describes and alters credentials in the store.

    Owned by the broker; used on the control loop.
    """

    def __init__(self, store: MetadataStore, repository: ConfigRepository) -> None:
        self._store = store
        self._repository = repository

    async def users(self) -> list[str]:
        """All users with a node in the store, sorted; not all have credentials."""
        try:
            names = await self._store.children(f"{CONFIG}/{CONFIG_USERS}")
        except NoNodeError:
            return []
        return sorted(desanitize(name) for name in names if name != DEFAULT_ENTITY)

    async def describe(self, users: Sequence[str]) -> dict[str, list[CredentialInfo] | KafkaError]:
        """The credentials of each user; an empty list for a user without any.

        An error when the store's text cannot be read.
        """
        found = await self._store.get_many([config_path(CONFIG_USERS, sanitize(user)) for user in users])
        described: dict[str, list[CredentialInfo] | KafkaError] = {}
        for user, each in zip(users, found, strict=True):
            try:
                described[user] = _infos({} if each is None else decode_config(each[0]))
            except ValueError:
                logger.error("A SCRAM credential of user %s cannot be read", user)
                described[user] = error_for(ErrorCode.UNKNOWN_SERVER_ERROR)
        return described

    async def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> dict[str, KafkaError | None]:
        """Change credentials: for each user all of them or none, and the error."""
        results: dict[str, KafkaError | None] = {}
        async for user, error in in_slices(_illegal(deletions, upsertions)):
            results.setdefault(user, error)
        changes: dict[str, list[Deletion | Upsertion]] = {}
        asked: list[Deletion | Upsertion] = [*deletions, *upsertions]
        async for each in in_slices(asked):
            if each.user not in results:
                changes.setdefault(each.user, []).append(each)
        async for user, wanted in in_slices(changes.items()):
            if len({each.mechanism for each in wanted}) < len(wanted):
                text = "A user credential cannot be altered twice in the same request"
                results[user] = error_for(ErrorCode.DUPLICATE_RESOURCE, text)
                continue
            results[user] = await self._alter_user(user, wanted)
        return results

    async def _alter_user(self, user: str, wanted: Sequence[Deletion | Upsertion]) -> KafkaError | None:
        def edit(config: dict[str, str]) -> dict[str, str]:
            for each in wanted:
                mechanism = ScramMechanism(each.mechanism)
                if isinstance(each, Upsertion):
                    made = credential_from_salted_password(mechanism, each.salted_password, each.salt, each.iterations)
                    config[mechanism.mechanism_name] = encode_credential(made)
                elif config.pop(mechanism.mechanism_name, None) is None:
                    text = "Attempt to delete a user credential that does not exist"
                    raise error_for(ErrorCode.RESOURCE_NOT_FOUND, text)
            return config

        try:
            await self._repository.change(CONFIG_USERS, sanitize(user), edit)
        except KafkaError as error:
            return error
        except Exception as error:
            logger.info("SCRAM credentials cannot be altered", exc_info=error)
            return error_for(code_of(error))
        return None


def _infos(config: Mapping[str, str]) -> list[CredentialInfo]:
    return [
        CredentialInfo(ScramMechanism.of_name(name), decode_credential(config[name]).iterations)
        for name in SCRAM_MECHANISMS
        if name in config
    ]


def _illegal(deletions: Iterable[Deletion], upsertions: Iterable[Upsertion]) -> Iterable[tuple[str, KafkaError]]:
    """Users with a change that is wrong in itself, with the error; of two errors Kafka tells the upsertion's."""
    for upsertion in upsertions:
        if not upsertion.user:
            yield upsertion.user, _unacceptable("Username must not be empty")
        elif not ScramMechanism.of_number(upsertion.mechanism):
            yield upsertion.user, _unknown_mechanism()
        elif upsertion.iterations > MAX_ITERATIONS:
            yield upsertion.user, _unacceptable("Too many iterations")
        elif upsertion.iterations < MIN_ITERATIONS:
            yield upsertion.user, _unacceptable("Too few iterations")
    for deletion in deletions:
        if not deletion.user:
            yield deletion.user, _unacceptable("Username must not be empty")
        elif not ScramMechanism.of_number(deletion.mechanism):
            yield deletion.user, _unknown_mechanism()


def _unacceptable(text: str) -> KafkaError:
    return error_for(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)


def _unknown_mechanism() -> KafkaError:
    return error_for(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
