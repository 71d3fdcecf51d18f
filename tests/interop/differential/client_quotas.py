"""Exchanges about client quotas: DescribeClientQuotas, AlterClientQuotas."""

from __future__ import annotations

import time
from typing import Any

from interop.differential.exchanges import Peer, scenario

from kafkapy.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkapy.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kafkapy.protocol.registry import ApiKeys

Entry = AlterClientQuotasRequest.Entry
Component = DescribeClientQuotasRequest.Component
RATE = "producer_byte_rate"
EXACT, DEFAULT, ANY = 0, 1, 2


def entry(*parts: tuple[str, str | None], ops: dict[str, float | None]) -> Entry:
    return Entry(
        entity=[Entry.Entity(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[Entry.Op(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )


def settled(peer: Peer, user: str) -> Any:
    """The quotas of a user, once they are the same for a while: with KRaft that takes a moment."""
    request = DescribeClientQuotasRequest(
        components=[Component(entity_type="user", match_type=EXACT, match=user)], strict=False
    )
    seen: list[Any] = []
    while len(seen) < 200 and (len(seen) < 8 or seen[-1] != seen[-8]):
        found = peer.setup(request, 1).entries
        seen.append(
            sorted(
                (sorted((part.entity_type, str(part.entity_name)) for part in each.entity), str(each.values))
                for each in found
            )
        )
        if peer.is_apache:
            time.sleep(0.005)
    return seen[-1]


@scenario(ApiKeys.ALTER_CLIENT_QUOTAS)
def alter_client_quotas(peer: Peer, version: int) -> None:
    user = ("user", f"acq-{version}")

    def ask(label: str, *entries: Entry, validate_only: bool = False) -> None:
        peer.call(label, AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only), version)

    ask("set", entry(user, ops={RATE: 1e12, "request_percentage": 2000.5}))
    ask("set again", entry(user, ops={RATE: 1e12}))
    ask("remove", entry(user, ops={RATE: None}))
    ask("remove what is not there", entry(user, ops={"consumer_byte_rate": None}))
    ask("user and client id", entry(user, ("client-id", "c"), ops={RATE: 1e12}))
    ask("defaults", entry(user, ("client-id", None), ops={"controller_mutation_rate": 1e6}))
    ask("address", entry(("ip", "10.1.1.1"), ops={"connection_creation_rate": 100.0}))
    ask("only checked", entry(("user", "acq-checked"), ops={RATE: 1e12}), validate_only=True)
    ask("nothing", entry(user, ops={}))
    ask("no entries")
    ask("empty entity", entry(ops={RATE: 1.0}))
    ask("unknown type", entry(("topic", "t"), ops={RATE: 1.0}))
    ask("empty user", entry(("user", ""), ops={RATE: 1.0}))
    ask("empty client id", entry(("client-id", ""), ops={RATE: 1.0}))
    ask("address and user", entry(user, ("ip", "10.1.1.1"), ops={RATE: 1.0}))
    ask("bad address", entry(("ip", "not a host"), ops={"connection_creation_rate": 1.0}))
    ask("unknown key", entry(user, ops={"speed": 1.0}))
    ask("key of addresses", entry(user, ops={"connection_creation_rate": 1.0}))
    ask("key of users", entry(("ip", "10.1.1.1"), ops={RATE: 1.0}))
    ask("negative", entry(user, ops={RATE: -1.0}))
    ask("zero", Entry(entity=entry(user, ops={}).entity, ops=[Entry.Op(key=RATE, value=0.0, remove=False)]))
    ask("fraction", entry(user, ops={RATE: 1.5}))
    ask("too large", entry(user, ops={RATE: 1e30}))
    ask("too large for an int", entry(("ip", "10.1.1.1"), ops={"connection_creation_rate": 1e12}))
    ask("good and bad", entry(user, ops={RATE: 1e12}), entry(("user", ""), ops={RATE: 1.0}))
    ask("one good and one bad key", entry(user, ops={"consumer_byte_rate": 1e12, RATE: -1.0}))
    ask("remove all", entry(user, ops={RATE: None, "request_percentage": None}))


@scenario(ApiKeys.DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(peer: Peer, version: int) -> None:
    user = f"dcq-{version}"
    made = [
        entry(("user", user), ops={RATE: 1e12, "consumer_byte_rate": 2e12}),
        entry(("user", user), ("client-id", "c"), ops={RATE: 3e12}),
        entry(("user", user), ("client-id", None), ops={"request_percentage": 1500.5}),
    ]
    peer.setup(AlterClientQuotasRequest(entries=made, validate_only=False), 1)
    settled(peer, user)

    def ask(label: str, *components: tuple[str, int, str | None], strict: bool = False) -> None:
        wanted = [Component(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
        peer.call(label, DescribeClientQuotasRequest(components=wanted, strict=strict), version)

    ask("strict user", ("user", EXACT, user), strict=True)
    ask("strict user and client id", ("user", EXACT, user), ("client-id", EXACT, "c"), strict=True)
    ask("client id of user", ("user", EXACT, user), ("client-id", EXACT, "c"))
    ask("default client id", ("user", EXACT, user), ("client-id", DEFAULT, None))
    ask("nobody", ("user", EXACT, "dcq-nobody"))
    ask("empty name", ("user", EXACT, ""))
    ask("nothing strictly", strict=True)
    ask("empty type", ("", EXACT, "a"))
    ask("repeated type", ("user", EXACT, "a"), ("user", ANY, None))
    ask("unknown type", ("topic", EXACT, "a"))
    ask("exact without name", ("user", EXACT, None))
    ask("default with name", ("user", DEFAULT, "a"))
    ask("any with name", ("user", ANY, "a"))
    ask("unknown match", ("user", 7, None))
    ask("address and user", ("ip", ANY, None), ("user", ANY, None))
