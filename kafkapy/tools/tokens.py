"""`kafkapy tokens`: delegation tokens.

Counterpart of kafka-delegation-tokens.sh. Works with any Kafka broker that has delegation tokens, over a connection
that has authenticated without one. A token is named by its id, so its secret stays out of command lines.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import click

from kafkapy.errors import KafkaError
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import cluster_options, connected, json_option
from kafkapy.tools.output import Column, Output, time_text
from kafkapy.tools.reset_offsets import parse_duration

if TYPE_CHECKING:
    from kafkapy.clients.admin.delegation_tokens import DelegationToken
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["tokens"]

AS_THE_BROKER_SAYS = -1
COLUMNS = (
    Column("token_id", "token"),
    Column("owner"),
    Column("requester", quiet=True),
    Column("renewers"),
    Column("issued", quiet=True),
    Column("expires"),
    Column("max_lifetime", "end of lifetime"),
)
SECRET = Column("hmac", "secret")

DURATION = "DURATION"
duration_help = "such as 12h or 7d; the default is the broker's."


@click.group("tokens", cls=CommandGroup)
def tokens() -> None:
    """Create, list, renew and expire delegation tokens."""


@tokens.command("create")
@click.option("--owner", metavar="User:NAME", help="Owner of the token, by default yourself.")
@click.option("--renewer", "renewers", multiple=True, metavar="User:NAME", help="A user who may renew it.")
@click.option("--max-lifetime", metavar=DURATION, help=f"Lifetime with all renewals, {duration_help}")
@json_option
@cluster_options
def create(
    settings: dict[str, object], owner: str | None, renewers: tuple[str, ...], max_lifetime: str | None, as_json: bool
) -> None:
    """Create a token and print its id and secret.

    A client logs in by SCRAM with the id as user name and the secret as password, and with tokenauth=true.
    """
    lifetime_ms = AS_THE_BROKER_SAYS if max_lifetime is None else parse_duration(max_lifetime)
    with connected(settings) as admin:
        made = admin.create_delegation_token(renewers, lifetime_ms, owner)
    output = Output(as_json)
    row = _row(made, with_secret=True)
    if as_json:
        output.json(row)
    else:
        output.rows([row], (*COLUMNS, SECRET))


@tokens.command("list")
@click.option("--owner", "owners", multiple=True, metavar="User:NAME", help="Show only tokens of these users.")
@click.option("--with-secret", is_flag=True, help="Show the secrets too.")
@json_option
@cluster_options
def list_(settings: dict[str, object], owners: tuple[str, ...], with_secret: bool, as_json: bool) -> None:
    """List the tokens that you may see."""
    with connected(settings) as admin:
        found = admin.describe_delegation_token(owners or None)
    rows = [_row(each, with_secret) for each in sorted(found, key=lambda each: each.expiry_timestamp_ms)]
    columns = (*COLUMNS, SECRET) if with_secret else COLUMNS
    Output(as_json).rows(rows, columns, "There are no tokens that you may see; kafkapy tokens create makes one.")


@tokens.command("renew")
@click.argument("token_id", metavar="TOKEN")
@click.option("--for", "period", metavar=DURATION, help=f"Time until it expires, {duration_help}")
@cluster_options
def renew(settings: dict[str, object], token_id: str, period: str | None) -> None:
    """Move the expiry of a token.

    The end of the token's lifetime is the limit.
    """
    period_ms = AS_THE_BROKER_SAYS if period is None else parse_duration(period)
    with connected(settings) as admin:
        time_ms = admin.renew_delegation_token(_secret_of(admin, token_id), period_ms)
    Output().say(f"Token {token_id} expires at {time_text(time_ms)}.")


@tokens.command("expire")
@click.argument("token_id", metavar="TOKEN")
@click.option("--in", "period", metavar=DURATION, help="Time until it expires; by default it ends at once.")
@cluster_options
def expire(settings: dict[str, object], token_id: str, period: str | None) -> None:
    """End a token now or soon.

    Connections that have logged in by it go on until their session ends.
    """
    period_ms = -1 if period is None else parse_duration(period)
    with connected(settings) as admin:
        time_ms = admin.expire_delegation_token(_secret_of(admin, token_id), period_ms)
    Output().say(f"Token {token_id} {'removed' if period is None else f'expires at {time_text(time_ms)}'}.")


def _secret_of(admin: KafkaAdminClient, token_id: str) -> bytes:
    for each in admin.describe_delegation_token():
        if each.token_id == token_id:
            return each.hmac
    raise KafkaError(f"There is no token {token_id} that you may see; kafkapy tokens list shows the tokens.")


def _row(token: DelegationToken, with_secret: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": time_text(token.issue_timestamp_ms),
        "expires": time_text(token.expiry_timestamp_ms),
        "max_lifetime": time_text(token.max_timestamp_ms),
    }
    if with_secret:
        row["hmac"] = base64.b64encode(token.hmac).decode()
    return row
