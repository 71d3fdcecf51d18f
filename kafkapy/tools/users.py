"""`kafkapy users`: the users of SASL/SCRAM and their passwords.

Counterpart of `kafka-configs.sh --entity-type users` with SCRAM keys. Works with any Kafka broker that has the SCRAM
APIs (2.7 and newer).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkapy.errors import KafkaError
from kafkapy.security.scram import DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_MECHANISMS
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import cluster_options, connected, json_option, yes_option
from kafkapy.tools.output import Column, Output
from kafkapy.tools.passwords import password_of, password_options

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["users"]

F = TypeVar("F", bound=Callable[..., Any])

Credentials = Mapping[str, Mapping[str, int]]
"""User: mechanism: iterations."""

COLUMNS = (Column("user"), Column("mechanism"), Column("iterations", right=True))

mechanism_option = click.option(
    "--mechanism",
    "-m",
    "mechanisms",
    multiple=True,
    type=click.Choice(SCRAM_MECHANISMS, case_sensitive=False),
    help="A mechanism of the user; may be repeated. The default is both.",
)
iterations_option = click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="Rounds of the password's hash.",
)


def credential_options(command: F) -> F:
    """Add the name of a user, and the options of a password."""
    for each in (cluster_options, password_options, iterations_option, mechanism_option):
        command = each(command)
    return click.argument("name", metavar="USER")(command)


@click.group("users", cls=CommandGroup)
def users() -> None:
    """List, add, change and delete SCRAM users."""


@users.command("list")
@click.argument("names", nargs=-1, metavar="[USER...]")
@click.option("--quiet", "-q", is_flag=True, help="Print only the names.")
@json_option
@cluster_options
def list_(settings: dict[str, object], names: tuple[str, ...], quiet: bool, as_json: bool) -> None:
    """List users with their mechanisms, never their passwords.

    Named users must exist.
    """
    with connected(settings) as admin:
        found = _credentials(admin)
    _check_known(found, names)
    shown = {user: found[user] for user in (dict.fromkeys(names) if names else sorted(found))}
    output = Output(as_json)
    if quiet:
        output.names(list(shown))
        return
    output.rows(
        [
            {"user": user, "mechanism": mechanism, "iterations": iterations}
            for user, mechanisms in shown.items()
            for mechanism, iterations in mechanisms.items()
        ],
        COLUMNS,
        "There are no SCRAM users; kafkapy users add NAME makes one.",
    )


@users.command("add")
@credential_options
def add(
    settings: dict[str, object], name: str, mechanisms: tuple[str, ...], iterations: int, **places: str | None
) -> None:
    """Add a user with a password.

    Only the salted hash of the password leaves this program. Example: kafkapy users add alice --password-file secret
    """
    password = password_of(**places, prompt=f"Password of {name}")
    with connected(settings) as admin:
        if name in _credentials(admin):
            raise KafkaError(f"The user {name} exists already; kafkapy users change-password {name} changes it.")
        _put(admin, name, mechanisms or SCRAM_MECHANISMS, password, iterations)
    Output().say(f"User {name} added.")


@users.command("change-password")
@credential_options
def change_password(
    settings: dict[str, object], name: str, mechanisms: tuple[str, ...], iterations: int, **places: str | None
) -> None:
    """Change the password of a user.

    The default is to change all mechanisms that the user has. Open connections go on until their session ends.
    """
    password = password_of(**places, prompt=f"New password of {name}")
    with connected(settings) as admin:
        found = _credentials(admin)
        _check_known(found, [name])
        _put(admin, name, mechanisms or tuple(found[name]), password, iterations)
    Output().say(f"Password of user {name} changed.")


@users.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="USER...")
@mechanism_option
@yes_option
@cluster_options
def delete(settings: dict[str, object], names: tuple[str, ...], mechanisms: tuple[str, ...], yes: bool) -> None:
    """Delete users, or single mechanisms of them.

    Open connections go on until their session ends. The command asks first on a terminal.
    """
    from kafkapy.clients.admin.users import UserScramCredentialDeletion

    with connected(settings) as admin:
        found = _credentials(admin)
        _check_known(found, names)
        if not yes and sys.stdin.isatty():
            click.confirm(f"Delete {', '.join(names)}?", abort=True, err=True)
        wanted = [
            UserScramCredentialDeletion(name, mechanism)
            for name in dict.fromkeys(names)
            for mechanism in (mechanisms or found[name])
        ]
        results = admin.alter_user_scram_credentials(wanted)
    _raise_failures(results)
    for name in dict.fromkeys(names):
        Output().say(f"User {name} deleted." if not mechanisms else f"User {name} changed.")


def _put(admin: KafkaAdminClient, name: str, mechanisms: Iterable[str], password: str, iterations: int) -> None:
    from kafkapy.clients.admin.users import UserScramCredentialUpsertion

    wanted = [UserScramCredentialUpsertion(name, each, password, iterations) for each in dict.fromkeys(mechanisms)]
    _raise_failures(admin.alter_user_scram_credentials(wanted))


def _raise_failures(results: Mapping[str, str | None]) -> None:
    failed = [f"User {name}: {error}" for name, error in results.items() if error is not None]
    if failed:
        raise KafkaError("; ".join(failed))


def _credentials(admin: KafkaAdminClient) -> Credentials:
    described: Mapping[str, Mapping[str, Any]] = admin.describe_user_scram_credentials()
    return {
        user: {each["mechanism"].mechanism_name: each["iterations"] for each in found["credential_infos"]}
        for user, found in described.items()
    }


def _check_known(found: Credentials, names: Iterable[str]) -> None:
    missing = [name for name in names if name not in found]
    if not missing:
        return
    from kafkapy.config.suggestions import did_you_mean

    question = did_you_mean(missing[0], found)
    raise KafkaError(f"The cluster has no SCRAM user {', '.join(missing)}" + (f"; {question}" if question else "."))
