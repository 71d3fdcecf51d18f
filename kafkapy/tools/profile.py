"""`kafkapy profile`: named sets of client keys, one of them in use.

Counterpart of `rpk profile`. `client_settings.py` describes the files.
"""

from __future__ import annotations

import click

from kafkapy.errors import KafkaError
from kafkapy.tools.client_settings import (
    current_profile,
    merged,
    profile_names,
    read_profile,
    remove_profile,
    use_profile,
    write_profile,
)
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import json_option, local_errors
from kafkapy.tools.output import Column, Output
from kafkapy.tools.passwords import client_keys, password_of, password_options

__all__ = ["profile"]

COLUMNS = (Column("current"), Column("name"), Column("bootstrap_servers"), Column("security_protocol"))
KEY_COLUMNS = (Column("key"), Column("value"))


@click.group(cls=CommandGroup)
def profile() -> None:
    """Create, use, show and delete profiles of clusters."""


@profile.command("create")
@click.argument("name")
@click.option("--bootstrap-server", "-b", "bootstrap", metavar="HOST:PORT[,...]", help="Addresses of brokers.")
@click.option(
    "-X",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one configuration key of the client. The key of a secret, without =VALUE, asks for it.",
)
@click.option(
    "--from", "file", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="File with keys of the client."
)
@click.option("--password", "with_password", is_flag=True, help="Ask for the password of sasl.username.")
@password_options
@click.option("--replace", is_flag=True, help="Replace a profile of that name.")
@local_errors
def create(
    name: str,
    bootstrap: str | None,
    properties: tuple[str, ...],
    file: str | None,
    with_password: bool,
    password_file: str | None,
    password_env: str | None,
    replace: bool,
) -> None:
    """Create a profile and use it.

    Example: kafkapy profile create prod -b kafka:9093 -X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-512 -X
    sasl.username=ann --password
    """
    from kafkapy.config.clients import COMMON, ClientConfig
    from kafkapy.config.properties import load_properties

    if name in profile_names() and not replace:
        raise KafkaError(f"There is a profile {name} already; --replace replaces it.")
    settings = merged(load_properties(file) if file else {}, client_keys(properties))
    if bootstrap:
        settings["bootstrap.servers"] = bootstrap
    if with_password or password_file is not None or password_env is not None:
        user = settings.get("sasl.plain.username")
        if not user:
            raise click.UsageError("A password needs a user: give -X sasl.username=NAME.")
        settings["sasl.plain.password"] = password_of(password_file, password_env, f"Password of {user}")
    ClientConfig(COMMON, {key: value for key, value in settings.items() if _is_known(key)})
    path = write_profile(name, settings)
    use_profile(name)
    Output().say(f"Profile {name} is in use ({path}).")


def _is_known(key: str) -> bool:
    """Whether every client has the key, or none. Keys of single clients are checked when such a client starts."""
    from kafkapy.config.admin import ADMIN
    from kafkapy.config.clients import COMMON
    from kafkapy.config.consumer import CONSUMER
    from kafkapy.config.producer import PRODUCER

    if key in COMMON:
        return True
    return not any(key in definition for definition in (ADMIN, CONSUMER, PRODUCER))


@profile.command("use")
@click.argument("name")
@local_errors
def use(name: str) -> None:
    """Use a profile in the following commands."""
    use_profile(name)
    Output().say(f"Profile {name} is in use.")


@profile.command("clear")
@local_errors
def clear() -> None:
    """Use no profile."""
    use_profile(None)
    Output().say("No profile is in use.")


@profile.command("list")
@json_option
@local_errors
def list_(as_json: bool) -> None:
    """List the profiles."""
    current = current_profile()
    rows = []
    for name in profile_names():
        settings = merged(read_profile(name))
        rows.append(
            {
                "current": "*" if name == current else "",
                "name": name,
                "bootstrap_servers": settings.get("bootstrap.servers"),
                "security_protocol": settings.get("security.protocol", "PLAINTEXT").upper(),
            }
        )
    Output(as_json).rows(rows, COLUMNS, "There are no profiles; kafkapy profile create NAME makes one.")


@profile.command("show")
@click.argument("name", required=False)
@json_option
@local_errors
def show(name: str | None, as_json: bool) -> None:
    """Show the keys of a profile, without its secrets.

    Without a name: of the profile in use.
    """
    from kafkapy.config.clients import shown

    name = name or current_profile()
    if name is None:
        raise KafkaError("No profile is in use; kafkapy profile list shows the profiles.")
    settings = read_profile(name)
    rows = [{"key": key, "value": shown(key, settings[key])} for key in sorted(settings)]
    Output(as_json).rows(rows, KEY_COLUMNS, f"Profile {name} has no keys.")


@profile.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@local_errors
def delete(names: tuple[str, ...]) -> None:
    """Delete profiles."""
    for name in names:
        remove_profile(name)
        Output().say(f"Profile {name} deleted.")
