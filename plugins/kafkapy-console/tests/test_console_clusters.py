"""Several clusters in one console: addresses, the list of clusters, roles, what each cluster keeps for itself."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import kafkapy_console
import pytest
from click.testing import CliRunner
from console_site import PATIENT, Person, links, serving, shown
from kafkapy_console.cli import main
from kafkapy_console.pages.home import Row, _row
from kafkapy_console.security.passwords import hashed
from kafkapy_console.security.roles import EVERYTHING, access_of
from kafkapy_console.server import broker_settings
from kafkapy_console.services.looks import Look
from kafkapy_console.settings import Level, MaskRule, RoleRule, Settings
from waiting import wait_until

from kafkapy import KafkaConsumer, KafkaProducer, testing
from kafkapy.errors import ConfigError

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "bootstrap.timeout.ms": 500}
USERS = {name: hashed(f"secret of {name}") for name in ("ann", "bob", "eve")}
ROLES = (
    RoleRule(Level.ADMIN, ("ann",)),
    RoleRule(Level.VIEWER, ("bob",), clusters=("one",)),
    RoleRule(Level.EDITOR, ("bob",), prefixes=("team-b.",), clusters=("two",)),
)
ADDRESS = re.compile(r'\b(?:href|action|hx-get|hx-post|data-url|data-stream|src)="(/[^"]*)"')
SHARED = re.compile(r"/(?:static/.*|logout|(?:one|two|away)/[a-z]*)?")
"""Addresses of no cluster, and those of the picker."""
MOST_PAGES = 120


@pytest.fixture(scope="module")
def other() -> Iterator[testing.Broker]:
    """A second cluster."""
    with testing.Broker(auto_create_topics_enable=False) as started:
        yield started


@pytest.fixture(scope="module")
def clusters(broker: testing.Broker, other: testing.Broker) -> tuple[Settings, ...]:
    """Two clusters, and one that is away."""
    addresses = {"one": broker.bootstrap_servers, "two": other.bootstrap_servers}
    found = [Settings(kafka={**PATIENT, "bootstrap.servers": each}, name=name) for name, each in addresses.items()]
    return (*found, Settings(kafka=NOWHERE, name="away"))


@pytest.fixture(scope="module")
def url(clusters: tuple[Settings, ...]) -> Iterator[str]:
    with serving(Settings(clusters=clusters)) as started:
        yield started


@pytest.fixture
def visitor(url: str) -> Iterator[Person]:
    opened = Person(url)
    yield opened
    opened.close()


@pytest.fixture
def people(clusters: tuple[Settings, ...]) -> Iterator[Person]:
    """Somebody at a console with logins and roles."""
    with serving(Settings(clusters=clusters, login="users", users=USERS, roles=ROLES)) as started:
        opened = Person(started)
        yield opened
        opened.close()


def row_of(page: str, cluster: str) -> list[str]:
    """The cells of a cluster in the list."""
    found = re.search(rf'<tr><td><a href="/{cluster}/">.*?</tr>', page, re.DOTALL)
    assert found, cluster
    return [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", found[0], re.DOTALL)]


# --- the list -----------------------------------------------------------------------------------------------------


def test_the_first_page_lists_all_clusters(visitor: Person, other: testing.Broker, topic: Callable[..., str]) -> None:
    topic()
    other.create_topic("of-the-other")
    wait_until(lambda: row_of(visitor.get("/"), "away")[1].startswith("away"), "the third cluster is known to be away")
    wait_until(lambda: row_of(visitor.get("/"), "one")[1] == "up", "the first cluster has answered")
    wait_until(lambda: row_of(visitor.get("/"), "two")[1:] == ["up", "1", "1", "0", "0"], "the second one has, too")
    page = visitor.get("/")
    assert "The cluster does not answer" not in page
    assert row_of(page, "away")[2:] == ["–", "–", "–", "–"]
    assert visitor.get("/health") == "ok\n"


def test_a_cluster_with_troubled_partitions_is_degraded() -> None:
    topics = {
        "a": SimpleNamespace(under_replicated=2, offline=0),
        "b": SimpleNamespace(under_replicated=1, offline=1),
    }
    look = Look(3, cast(Any, topics))
    nobody = cast(Any, None)
    assert _row(nobody, look, EVERYTHING) == Row(nobody, "degraded", "", 3, 2, 3, 1)
    mine = access_of([RoleRule(Level.VIEWER, ("ann",), prefixes=("a",))], "ann", ())
    assert _row(nobody, look, mine) == Row(nobody, "degraded", "", 3, 1, 2, 0)
    assert _row(nobody, None, EVERYTHING).state == "no answer yet"
    assert _row(nobody, Look(error="Denied."), EVERYTHING) == Row(nobody, "failed", "Denied.")


@pytest.mark.parametrize("path", ["/nowhere", "/nowhere/topics", "/topics"])
def test_an_unknown_cluster_is_no_page(visitor: Person, path: str) -> None:
    name = path.split("/")[1]
    assert f"This console has no cluster {name}." in visitor.get(path, 404)


def test_a_cluster_that_is_away_has_a_banner_on_its_own_pages_only(visitor: Person) -> None:
    for path in ("/away/", "/away/topics", "/away/groups"):
        page = visitor.get(path, 503)
        assert "The cluster does not answer" in page
        assert f'<a class="button" href="{path}">Try again</a>' in page
    for path in ("/one/", "/one/topics", "/two/groups"):
        assert 'class="banner bad"' not in visitor.get(path)


# --- addresses ----------------------------------------------------------------------------------------------------


def test_every_address_begins_with_the_name_of_the_cluster(
    visitor: Person, broker: testing.Broker, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic(2)
    send(name, [b'{"n": 1}'] * 5)
    with KafkaConsumer(
        name, bootstrap_servers=broker.bootstrap_servers, group_id=f"group-of-{name}", auto_offset_reset="earliest"
    ) as consumer:
        consumer.poll(timeout_ms=10_000)
        consumer.commit()
    waiting = deque(["/one/", f"/one/topics/{name}/records", f"/one/groups/group-of-{name}"])
    seen: set[str] = set()
    while waiting and len(seen) < MOST_PAGES:
        path = waiting.popleft()
        bare = path.partition("?")[0]
        parts = bare.split("/")
        foreign = len(parts) > 3 and parts[2] in ("topics", "groups", "transactions") and name not in bare
        if bare in seen or not bare.startswith("/one/") or foreign or "/configs/" in bare or bare.endswith("/after"):
            continue
        seen.add(bare)
        response = visitor.http.get(path)
        missing_record = "/records/" in path and response.status_code == 404
        assert response.status_code == 200 or missing_record, (path, response.status_code, shown(response.text))
        if "text/html" in response.headers["content-type"]:
            wrong = [
                each
                for each in ADDRESS.findall(response.text)
                if not each.startswith("/one/") and not SHARED.fullmatch(each.partition("?")[0])
            ]
            assert wrong == [], path
            parsed = links(visitor.url + path, response.text)
            assert parsed.inline == [], path
            waiting.extend(parsed.found)
    assert len(seen) > 30, sorted(seen)
    assert visitor.http.get("/one").headers["location"] == "/one/"
    events = visitor.events(f"/one/topics/{name}/search?filter=true")
    records = [data for kind, data in events if kind == "record"]
    assert len(records) == 5
    assert all(f'href="/one/topics/{name}/records/' in each for each in records)


def test_templates_have_no_address_without_the_cluster() -> None:
    for file in sorted(Path(kafkapy_console.__file__).parent.glob("templates/**/*.html")):
        found = ADDRESS.findall(file.read_text(encoding="utf-8"))
        assert [each for each in found if not re.match(r"/(static/|login|logout$|$)", each)] == [], file.name


def test_a_change_stays_in_its_cluster(visitor: Person, other: testing.Broker) -> None:
    made = visitor.send(
        "/two/create-topic", {"name": "only-here", "partitions": "2", "replicas": "1"}, page="/two/create-topic"
    )
    assert made.headers["location"] == "/two/topics/only-here"
    wait_until(lambda: "only-here" in visitor.get("/two/topics"), "the topic is on the page")
    assert "only-here" not in visitor.get("/one/topics")
    visitor.get("/one/topics/only-here", 404)
    path = "/two/topics/only-here/configs/retention.ms"
    saved = visitor.send(path, {"operation": "set", "value": "3600000"}, page=path)
    assert saved.headers["location"].startswith("/two/topics/only-here")
    assert "create topic" in visitor.get("/two/audit")
    assert "only-here" not in visitor.get("/one/audit")
    visitor.send("/two/topics/only-here/copy", {"name": "copied"}, page="/two/topics/only-here/copy")
    assert "copied" in visitor.get("/two/jobs")
    assert "copied" not in visitor.get("/one/jobs")
    visitor.send("/one/jobs/1/stop", page="/one/create-topic", status=404)


def test_groups_of_one_name_have_their_own_history(
    visitor: Person, broker: testing.Broker, other: testing.Broker
) -> None:
    for each, records in ((broker, 7), (other, 3)):
        each.create_topic("lagging")
        with KafkaProducer(bootstrap_servers=each.bootstrap_servers) as producer:
            for _ in range(records):
                producer.send("lagging", b"x", partition=0).get(timeout=30)
        with KafkaConsumer(bootstrap_servers=each.bootstrap_servers, group_id="same-name") as reader:
            from kafkapy import OffsetAndMetadata, TopicPartition

            reader.assign([TopicPartition("lagging", 0)])
            reader.commit({TopicPartition("lagging", 0): OffsetAndMetadata(1, "", -1)})
    for name, lag in (("one", 6), ("two", 2)):
        assert set(visitor.json(f"/{name}/groups/same-name/lag.json")["values"]) == {lag}


def test_the_picker_keeps_the_part_of_the_console(visitor: Person) -> None:
    page = visitor.get("/one/topics?q=x")
    for name in ("one", "two", "away"):
        assert f'<a href="/{name}/topics"' in page
    assert '<a href="/one/topics" aria-current="true">one</a>' in page
    # What one cluster has, another may not have.
    assert '<a href="/two/">two</a>' in visitor.get("/one/create-topic")


def test_a_console_of_one_cluster_has_no_picker(person: Person) -> None:
    page = person.get("/topics")
    assert "All clusters" not in page
    assert '<body data-root="">' in page


# --- people -------------------------------------------------------------------------------------------------------


def test_one_login_is_for_all_clusters(people: Person) -> None:
    refused = people.http.get("/two/topics?q=x")
    assert (refused.status_code, refused.headers["location"]) == (303, "/login?next=%2Ftwo%2Ftopics%3Fq%3Dx")
    assert people.http.get("/").headers["location"] == "/login?next=%2F"
    for name in ("one", "two", "away"):
        assert f"/{name}/" not in people.get("/login")
    fields = {"user": "ann", "password": "secret of ann", "next": "/two/topics?q=x"}
    assert people.send("/login", fields, page="/login").headers["location"] == "/two/topics?q=x"
    assert "Audit log" in people.get("/one/topics")
    assert "Audit log" in people.get("/two/topics")
    assert "log in" in people.get("/one/audit")
    people.send("/logout", page="/two/topics")
    assert people.http.get("/one/topics").status_code == 303


def test_a_role_may_be_bound_to_clusters(people: Person, topic: Callable[..., str], other: testing.Broker) -> None:
    name = topic()
    other.create_topic("team-b.orders")
    other.create_topic("team-c.orders")
    people.log_in("bob", "secret of bob")
    page = people.get("/")
    assert 'href="/one/"' in page
    assert 'href="/two/"' in page
    assert 'href="/away/"' not in page
    assert "This console has no cluster away." in people.get("/away/topics", 404)
    # A viewer of everything in one, an editor of some names in the other.
    # The console may have looked at the topics a moment before these were made.
    wait_until(lambda: name in people.get(f"/one/topics?q={name}"), "the topic is on the page")
    wait_until(lambda: "team-b.orders" in people.get("/two/topics"), "the other cluster's topic is on its page")
    people.get(f"/one/topics/{name}/produce", 403)
    people.send(f"/one/topics/{name}/produce", {"value": "x"}, page="/two/create-topic", status=403)
    page = people.get("/two/topics")
    assert "team-c.orders" not in page
    people.get("/two/topics/team-c.orders", 403)
    path = "/two/topics/team-b.orders/produce"
    people.send(path, {"value": "x"}, page=path)
    assert "viewer of everything" in people.get("/one/topics")
    assert "editor of team-b.…" in people.get("/two/topics")
    wait_until(lambda: row_of(people.get("/"), "two")[3] == "1", "the list counts visible topics")


def test_a_person_without_a_role_sees_no_cluster(people: Person) -> None:
    people.log_in("eve", "secret of eve")
    page = people.get("/", 403)
    for name in ("one", "two", "away"):
        assert f"/{name}/" not in page
        people.get(f"/{name}/topics", 404)


HIDDEN = ("", "/", "/topics", "/topics/", "/no-such-page", "/create-topic", "/topics/x/tail")


def answers(visitor: Person, cluster: str) -> list[tuple[int, str, str]]:
    """What tells a cluster of this name from others: status, address and banner of each answer."""
    found = []
    for path in HIDDEN:
        for method in ("GET", "POST", "PUT"):
            for headers in ({}, {"HX-Request": "true"}):
                response = visitor.http.request(method, f"/{cluster}{path}", headers=headers)
                onward = response.headers.get("location", response.headers.get("hx-redirect", ""))
                title = "".join(re.findall(r"<title>.*?</title>", response.text))
                told = f"{onward} {title} {shown(response.text)[:300]}"
                found.append((response.status_code, path, told.replace(cluster, "NAME")))
    return found


def test_nobody_without_a_role_learns_the_names_of_clusters(people: Person) -> None:
    before = answers(people, "one")
    assert before == answers(people, "nowhere")
    assert {status for status, _, _ in before} == {303, 200}
    people.log_in("eve", "secret of eve")
    refused = answers(people, "one")
    assert refused == answers(people, "nowhere")
    assert {status for status, _, _ in refused} == {404}
    people.http.cookies.clear()
    people.log_in("bob", "secret of bob")
    assert answers(people, "away") == answers(people, "nowhere")
    people.get("/one/no-such-page", 404)
    assert people.http.get("/one").headers["location"] == "/one/"


def test_a_flash_names_its_cluster_on_pages_of_others(visitor: Person) -> None:
    for page, said in (("/one/topics", "Cluster two: Topic flashed-0 "), ("/two/topics", ">Topic flashed-1 ")):
        name = said.split()[-1]
        visitor.send("/two/create-topic", {"name": name, "partitions": "1"}, page="/two/create-topic")
        assert said in visitor.get(page)


def test_one_cluster_may_be_read_only(clusters: tuple[Settings, ...]) -> None:
    one, two, _ = clusters
    with serving(Settings(clusters=(one, replace(two, read_only=True)))) as started:
        visitor = Person(started)
        assert "Create a topic" in visitor.get("/one/topics")
        page = visitor.get("/two/topics")
        assert "Create a topic" not in page
        assert "read-only" in page
        refused = visitor.send("/two/create-topic", {"name": "x"}, page="/one/create-topic", status=403)
        assert "read-only" in refused.text
        visitor.close()


def test_the_audit_file_names_the_cluster(clusters: tuple[Settings, ...], tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with serving(Settings(clusters=clusters, audit_file=file)) as started:
        visitor = Person(started)
        visitor.send("/two/create-topic", {"name": "audited", "partitions": "1"}, page="/two/create-topic")
        visitor.close()
    assert '"cluster": "two"' in file.read_text(encoding="utf-8")


# --- settings -----------------------------------------------------------------------------------------------------

FULL = """
read-only = false
[[mask]]
fields = ["card"]
[[role]]
role = "admin"
users = ["*"]
clusters = ["staging"]
[[cluster]]
name = "production"
read-only = true
[cluster.kafka]
"bootstrap.servers" = "a:9092"
[cluster.registry]
url = "http://localhost:8081"
[[cluster.mask]]
fields = ["iban"]
[[cluster]]
name = "staging"
[cluster.kafka]
"bootstrap.servers" = "b:9092"
[[cluster.connect]]
name = "main"
url = "http://localhost:8083"
"""


def test_a_settings_file_with_several_clusters(tmp_path: Path) -> None:
    file = tmp_path / "console.toml"
    file.write_text(FULL, encoding="utf-8")
    found = Settings.from_file(file)
    production, staging = found.clusters
    assert (production.name, production.read_only, staging.name, staging.read_only) == (
        "production",
        True,
        "staging",
        False,
    )
    assert (production.kafka, staging.kafka) == ({"bootstrap.servers": "a:9092"}, {"bootstrap.servers": "b:9092"})
    assert production.registry is not None
    assert staging.registry is None
    assert [each.name for each in staging.connect] == ["main"]
    card, iban = MaskRule(("*",), (("card",),)), MaskRule(("*",), (("iban",),))
    assert (production.masks, staging.masks) == ((card, iban), (card,))
    assert found.roles[0].clusters == ("staging",)
    assert all(each.read_only for each in found.with_changes(read_only=True).clusters)


BROKERS = '[cluster.kafka]\n"bootstrap.servers" = "a:9092"\n'
ONE = f"[[cluster]]\nname = 'one'\n{BROKERS}"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"[[cluster]]\n{BROKERS}", "cluster[0].name"),
        (f"[[cluster]]\nname = 'a/b'\n{BROKERS}", "cluster.name"),
        (f"[[cluster]]\nname = 'login'\n{BROKERS}", "cluster.name"),
        (f"[[cluster]]\nname = '..'\n{BROKERS}", "cluster.name"),
        (ONE + ONE, "two clusters have this name"),
        ("[[cluster]]\nname = 'one'", "kafka.bootstrap.servers"),
        (f'[kafka]\n"client.id" = "x"\n{ONE}', "own table kafka"),
        (f"[registry]\nurl = 'http://x'\n{ONE}", "own table registry"),
        (f"[login]\nmode = 'sasl'\n{ONE}", "for a console of one cluster"),
        (f"[[role]]\nrole = 'viewer'\nclusters = ['two']\n{ONE}", "no [[cluster]] has this name"),
        ("[[role]]\nrole = 'viewer'\nclusters = ['two']\n[kafka]\n'bootstrap.servers' = 'a:1'", "no [[cluster]]"),
        (ONE.replace("name", "nmae"), "cluster[0].nmae"),
    ],
)
def test_a_wrong_setting_of_clusters_is_named(tmp_path: Path, text: str, key: str) -> None:
    file = tmp_path / "console.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        Settings.from_file(file)
    assert key in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--bootstrap-server", "a:9092"], "keys of the command line are of none"),
        (["--registry", "http://localhost:8081"], "The settings file names several clusters"),
    ],
    ids=["brokers", "registry"],
)
def test_the_command_refuses_keys_of_one_cluster(tmp_path: Path, arguments: list[str], text: str) -> None:
    file = tmp_path / "console.toml"
    file.write_text(FULL, encoding="utf-8")
    result = CliRunner().invoke(main, ["--settings", str(file), *arguments])
    assert result.exit_code in (1, 2)
    assert text in " ".join(result.output.split())


def test_a_console_inside_a_broker_may_have_several_clusters(tmp_path: Path) -> None:
    file = tmp_path / "console.toml"
    file.write_text(FULL, encoding="utf-8")
    config = {"console.config.file": str(file), "console.read.only": True}
    found = broker_settings(SimpleNamespace(config=config, endpoints=[]))
    assert [(each.name, each.read_only) for each in found.clusters] == [("production", True), ("staging", True)]
