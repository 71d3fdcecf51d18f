"""What one cluster, group or login may not do to others: audit lines, time-outs, waits, bounds, ended sessions."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from console_site import Person
from kafkapy_console.errors import UNEXPECTED
from kafkapy_console.pages.home import _row
from kafkapy_console.security.audit import KEPT, KEPT_LOGINS, Audit
from kafkapy_console.security.passwords import hashed
from kafkapy_console.security.roles import EVERYTHING
from kafkapy_console.security.sessions import Sessions
from kafkapy_console.services import looks
from kafkapy_console.services.groups import _each
from kafkapy_console.services.looks import Look, Looks
from kafkapy_console.services.topics import Topic, Topics
from kafkapy_console.settings import Settings
from kafkapy_console.web import Visit, templates
from starlette.requests import Request

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


# --- looks at clusters --------------------------------------------------------------------------------------------


def looked(patch: pytest.MonkeyPatch, answer: Callable[[str], Awaitable[dict[str, Any]]]) -> Looks:
    """Looks at clusters whose descriptions are these; a cluster is its name."""

    async def no_topics(self: Topics) -> dict[str, Topic]:
        return {}

    patch.setattr(looks, "described_cluster", answer)
    patch.setattr(Topics, "all", no_topics)
    return Looks()


def test_a_cluster_that_is_away_delays_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever waits for a look that has a last one waits for ever.
    monkeypatch.setattr(looks, "WAIT_S", 100_000.0)
    hangs: set[str] = set()
    begun: list[str] = []

    async def answer(name: str) -> dict[str, Any]:
        begun.append(name)
        if name in hangs:
            await asyncio.Event().wait()
        return {"brokers": [1]}

    async def run() -> None:
        found = looked(monkeypatch, answer)
        clusters = cast(Any, {name: name for name in ("one", "two")})
        first = await found.at(clusters)
        assert [look and look.brokers for look in first.values()] == [1, 1]
        hangs.add("two")
        await asyncio.wait_for(found.at(clusters), 120)
        for _ in range(1000):
            await asyncio.sleep(0)
        last = await asyncio.wait_for(found.at(clusters), 120)
        assert last["two"] is not None
        assert begun.count("two") == 2, "one look at a time"
        await found.close()

    asyncio.run(run())


def test_a_look_that_fails_without_reason_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(name: str) -> dict[str, Any]:
        raise RuntimeError("broken")

    look = asyncio.run(looked(monkeypatch, answer).at(cast(Any, {"one": "one"})))["one"]
    assert look is not None
    assert (look.error, look.away) == (UNEXPECTED, False)
    assert "Look at cluster one failed" in caplog.text


def test_the_list_tells_the_age_of_an_old_look() -> None:
    nobody = cast(Any, None)
    assert _row(nobody, Look(1), EVERYTHING).age_s is None
    old = _row(nobody, Look(1, ended=time.monotonic() - 300), EVERYTHING)
    assert old.age_s is not None
    assert old.age_s >= 300
    console = SimpleNamespace(root="/one", cluster="one", settings=SimpleNamespace(read_only=False))
    listed = templates.get_template("fragments/clusters.html").render(rows=[replace(old, console=cast(Any, console))])
    assert re.search(r'<span class="muted">\d+ \w+ ago</span>', listed)


# --- sessions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["logout", "expiry"])
def test_a_session_that_ended_is_no_session(way: str) -> None:
    sessions = Sessions(b"secret", 3600.0)
    session = sessions.begin("ann", EVERYTHING, logged_in=True)
    other = sessions.begin("bob", EVERYTHING, logged_in=True)
    assert sessions.has(session)
    if way == "logout":
        sessions.end(session)
    else:
        session.used -= 3601
    assert not sessions.has(session)
    assert sessions.has(other)


def test_a_live_view_ends_with_its_session(
    console: Callable[..., Person], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    visitor = console(login="users", users={"ann": hashed("secret")})
    visitor.log_in("ann", "secret")
    with visitor.http.stream("GET", f"/topics/{name}/tail") as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("event: ")) == "event: begin"
        visitor.send("/logout", page="/topics")
        send(name, [b"after the logout"])
        rest: list[str] = []
        for line in lines:
            rest.append(line)
            if "after the logout" in line:
                break
    assert "after the logout" not in "".join(rest)
    assert rest[-3:-1] == ["event: end", "data: Your session has ended. Log in again."]


# --- addresses ----------------------------------------------------------------------------------------------------


def test_an_address_for_the_script_is_quoted() -> None:
    request = Request({"type": "http", "headers": [(b"hx-request", b"true")]})
    visit = Visit(request, cast(Any, None), cast(Any, None))
    assert visit.leave("/topics/ä b?next=%2Fx\r\nX: y").headers["HX-Redirect"] == (
        "/topics/%C3%A4%20b?next=%2Fx%0D%0AX:%20y"
    )


# --- settings -----------------------------------------------------------------------------------------------------

CLUSTER = {"name": "one", "kafka": {"bootstrap.servers": "a:9092"}}


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"role": [{"role": "admin", "clusters": []}], "cluster": [CLUSTER]}, "role[0].clusters"),
        ({"role": [{"role": "admin", "prefixes": []}], "cluster": [CLUSTER]}, "role[0].prefixes"),
        ({"role": [{"role": "admin", "prefixes": ["a.", ""]}], "cluster": [CLUSTER]}, "role[0].prefixes"),
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
