"""What one cluster, group or login may not do to others: audit lines, time-outs, empty bounds of roles."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from kafkapy_console.security.audit import KEPT, KEPT_LOGINS, Audit
from kafkapy_console.services.groups import _each
from kafkapy_console.settings import Settings

from kafkapy.errors import (
    ConfigError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    UnsupportedVersionError,
)

# --- the audit log ------------------------------------------------------------------------------------------------


def test_lines_of_others_push_no_line_of_a_cluster_out() -> None:
    logins = Audit(None)
    one, two = logins.of("one"), logins.of("two")
    one.write("ann", "create topic", "orders")
    for number in range(KEPT + 1):
        two.write("bob", "read records", str(number))
        logins.write("eve", "log in", "somewhere", "refused")
    found = one.newest
    assert [line["about"] for line in found if line["user"] == "ann"] == ["orders"]
    assert len(found) == KEPT_LOGINS + 1 < 500
    assert {line.get("cluster", "") for line in two.newest} == {"two", ""}
    assert len(two.newest) == KEPT + KEPT_LOGINS


def test_lines_of_a_cluster_and_logins_stand_in_order_of_time() -> None:
    logins = Audit(None)
    one = logins.of("one")
    for number in range(20):
        (one if number % 2 else logins).write("ann", "act", str(number))
    times = [line["time"] for line in one.newest]
    assert len(times) == 20
    assert times == sorted(times, reverse=True)


def test_a_late_line_after_the_end_is_kept_from_the_file(tmp_path: Path) -> None:
    logins = Audit(tmp_path / "audit.jsonl")
    one = logins.of("one")
    one.write("ann", "act", "early")
    logins.close()
    one.write("ann", "act", "late")
    logins.write("ann", "act", "late")
    text = (tmp_path / "audit.jsonl").read_text(encoding="utf-8")
    assert "early" in text
    assert "late" not in text


# --- groups -------------------------------------------------------------------------------------------------------


def asked(errors: Mapping[str, type[KafkaError]], names: Sequence[str]) -> tuple[dict[str, object], list[list[str]]]:
    """What `_each` finds, and the calls, when a call with one of these names fails."""
    calls: list[list[str]] = []

    async def ask(wanted: Sequence[str]) -> Mapping[str, object]:
        calls.append(list(wanted))
        for name in wanted:
            if name in errors:
                raise errors[name]("no")
        return dict.fromkeys(wanted, "found")

    return asyncio.run(_each(names, ask)), calls


@pytest.mark.parametrize("error", [KafkaTimeoutError, RequestTimedOutError, UnsupportedVersionError])
def test_an_error_of_all_groups_is_met_once(error: type[KafkaError]) -> None:
    found, calls = asked({"b": error}, "abc")
    assert [type(each) for each in found.values()] == [error] * 3
    assert len(calls) == 1


def test_a_group_that_is_refused_takes_none_with_it() -> None:
    found, calls = asked({"b": GroupAuthorizationFailedError}, "abc")
    assert (found["a"], type(found["b"]), found["c"]) == ("found", GroupAuthorizationFailedError, "found")
    assert len(calls) == 4


def test_a_time_out_ends_the_calls_by_group() -> None:
    found, calls = asked({"a": GroupAuthorizationFailedError, "b": KafkaTimeoutError}, "abcd")
    assert [type(each) for each in found.values()] == [GroupAuthorizationFailedError, *[KafkaTimeoutError] * 3]
    assert calls == [["a", "b", "c", "d"], ["a"], ["b"]]


# --- settings -----------------------------------------------------------------------------------------------------

CLUSTER = {"name": "one", "kafka": {"bootstrap.servers": "a:9092"}}


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"role": [{"role": "admin", "clusters": []}], "cluster": [CLUSTER]}, "role[0].clusters"),
        ({"role": [{"role": "admin", "prefixes": []}], "cluster": [CLUSTER]}, "role[0].prefixes"),
        ({"cluster": [1]}, "cluster[0]"),
        ({"role": ["admin"]}, "role[0]"),
        ({"cluster": [CLUSTER, {"name": "two"}]}, "cluster[1] (two).kafka.bootstrap.servers"),
        ({"cluster": [{**CLUSTER, "kafka": {"bootstrap.servers": "a:1", "acsk": 1}}]}, "cluster[0] (one).acsk"),
        ({"cluster": [{**CLUSTER, "mask": [{"pattern": "("}]}]}, "cluster[0] (one).mask.pattern"),
        ({"cluster": [{**CLUSTER, "read-onyl": True}]}, "cluster[0] (one).read-onyl"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Settings.from_mapping(settings)
    assert raised.value.key == key
