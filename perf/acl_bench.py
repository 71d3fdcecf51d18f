"""The price of ACLs: Produce with a cached decision beside allow-all, and one decision of the authorizer itself.

    PYTHONPATH=. .venv/bin/python perf/acl_bench.py [--count N]

The rows of Produce are the best of several rounds in the data plane, taken in turns (with ACLs, without, with, ...),
and their ratio. The decision comes from an authorizer with 1,000 ACLs; the connection caches it until an ACL changes.
The rows of decisions give the time of one `authorize` for one topic, and the load of the ACLs into the index.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from types import SimpleNamespace
from typing import Any

from request_bench import PRODUCE, Bench, batch, produce_body

from kafkapy.broker.context import decide
from kafkapy.broker.data_plane_asks import _question
from kafkapy.config.broker import BrokerConfig
from kafkapy.security.authorizer.acl import AclAuthorizer
from kafkapy.security.authorizer.base import ALLOW_ALL_EPOCH, Action
from kafkapy.security.authorizer.bindings import ResourcePattern
from kafkapy.security.authorizer.masks import bit_of
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

ROUNDS = 60
VERSION = 9
TOPIC = "topic-of-the-bench"
READ_AND_WRITE = bit_of(AclOperation.READ, AclPermissionType.ALLOW) | bit_of(
    AclOperation.WRITE, AclPermissionType.ALLOW
)
WHO: Any = SimpleNamespace(principal=KafkaPrincipal("User", "alice"), client_address="127.0.0.1", api_key=0)


def authorizer_with(count: int, kind: str) -> tuple[AclAuthorizer, float]:
    """An authorizer with ACLs, and the seconds that they took; alice may write to the topic of the bench."""
    authorizer = AclAuthorizer()
    authorizer.configure(BrokerConfig({}))
    rules: dict[ResourcePattern, dict[tuple[str, str], int]] = {}
    for number in range(count - 1):
        if kind == "topics":
            pattern = ResourcePattern(ResourceType.TOPIC, f"topic-{number}")
        elif kind == "prefixes":
            pattern = ResourcePattern(
                ResourceType.TOPIC, f"{number}-".ljust(7 + number % 200, "x"), PatternType.PREFIXED
            )
        else:
            pattern = ResourcePattern(ResourceType.TOPIC, "*")
        rules.setdefault(pattern, {})[f"User:u{number}", "*"] = READ_AND_WRITE
    rules.setdefault(ResourcePattern(ResourceType.TOPIC, TOPIC), {})["User:alice", "*"] = READ_AND_WRITE
    started = time.perf_counter()
    asyncio.run(authorizer._changed(rules))
    return authorizer, time.perf_counter() - started


def produce(count: int) -> None:
    """Produce of one batch of 1 KB and of 100 topics' worth of look-ups in one connection."""
    authorizer, _ = authorizer_with(1000, "topics")
    for label, size in (("1 record of 100 bytes", 100), ("1 record of 1 KB", 1000)):
        bench = Bench(1)
        body = produce_body(VERSION, 1, batch(1, size), -1)
        best = {"allow all": float("inf"), "1,000 ACLs": float("inf")}
        for _ in range(ROUNDS):
            for name in best:
                epoch = ALLOW_ALL_EPOCH if name == "allow all" else authorizer.decisions_epoch
                bench.plane.authorizer_epoch = epoch
                if epoch != ALLOW_ALL_EPOCH:
                    asked = bench.driver.handle(PRODUCE, VERSION, 1, "bench", body).questions
                    answers = decide(authorizer, WHO, [_question(each) for each in asked], True)
                    bench.driver.decide(dict(zip(asked, answers, strict=True)))
                taken = bench.driver.measure(PRODUCE, VERSION, body, count) / count / 1000
                best[name] = min(best[name], taken)
        ratio = best["1,000 ACLs"] / best["allow all"]
        told = ", ".join(f"{name} {taken:.3f} us" for name, taken in best.items())
        print(f"Produce, {label:22} {told}: {ratio:.3f}")


def decisions(count: int) -> None:
    """One decision, by the number and kind of ACLs."""
    for kind in ("topics", "prefixes", "users"):
        for acls in (1_000, 100_000):
            authorizer, seconds = authorizer_with(acls, kind)
            action = [Action(AclOperation.WRITE, ResourceType.TOPIC, TOPIC)]
            best = float("inf")
            for _ in range(ROUNDS):
                started = time.perf_counter()
                for _ in range(count):
                    authorizer.authorize(WHO, action)
                best = min(best, (time.perf_counter() - started) / count * 1e6)
            started = time.perf_counter()
            authorizer.authorize_by_resource_type(WHO, AclOperation.WRITE, ResourceType.TOPIC)
            any_us = (time.perf_counter() - started) * 1e6
            print(
                f"decision, {acls:7,} ACLs of different {kind:9} {best:7.2f} us, any topic {any_us:7.1f} us, "
                f"loaded in {seconds:.2f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5_000, help="requests of one round")
    arguments = parser.parse_args()
    produce(arguments.count)
    decisions(arguments.count // 5)


if __name__ == "__main__":
    main()
