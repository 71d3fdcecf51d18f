"""Brokers and their keys in Chromium: search, dynamic changes, loggers, log directories, failures, moves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from console_browser import OpenTab, Tab
from console_site import serving
from kafkapy_console.settings import Settings
from waiting import wait_until

from kafkapy import KafkaProducer, testing
from kafkapy.admin import ConfigResource, KafkaAdminClient
from kafkapy.tools.output import size_text


def broker_keys(admin: KafkaAdminClient, kind: str = "broker") -> dict[str, dict[str, object]]:
    """All keys of broker 1, with sources and documentation."""
    wanted = [ConfigResource(kind, "1")]
    return admin.describe_configs(wanted, True, "all", include_documentation=True)[kind]["1"]


def values_by_source(admin: KafkaAdminClient, key: str) -> dict[str, str]:
    return {each["source"]: each["value"] for each in broker_keys(admin)[key]["synonyms"]}


def test_keys_are_found_with_documentation_and_source(tab: Tab, admin: KafkaAdminClient) -> None:
    tab.open("/")
    tab.click("1", "link", "main table")
    keys = broker_keys(admin)
    tab.sees(f"{len(keys)} of {len(keys)} keys")
    tab.page.keyboard.press("/")
    tab.page.keyboard.insert_text("log.retention")
    row = tab.row("Configuration", "log.retention.ms")
    tab.row("Configuration", "advertised.listeners").wait_for(state="detached")
    assert "q=log.retention" in tab.page.url
    found = row.filter(has=tab.page.locator("code").get_by_text("log.retention.ms", exact=True)).first
    found.get_by_text("What is it?").click()
    assert found.locator("details p").inner_text() == keys["log.retention.ms"]["documentation"]
    assert found.locator("td").nth(1).inner_text() == keys["log.retention.ms"]["value"] == "-1"
    assert found.locator("td").nth(2).inner_text() == "file"
    tab.page.get_by_label("only values that are set").check()
    tab.page.locator("#list .badge.muted").first.wait_for(state="detached")
    assert "log.retention.ms" in [cells[0].split()[0] for cells in tab.table("Configuration")]
    tab.page.get_by_role("searchbox").fill("no key has this name")
    tab.sees("No key matches.")


def test_a_key_is_changed_for_one_broker_and_for_all(tab: Tab, admin: KafkaAdminClient) -> None:
    key = "log.retention.bytes"

    def begin() -> None:
        tab.open(f"/brokers/1?q={key}")
        tab.click(f"Edit {key}", "link")
        tab.sees("Where the value comes from")

    for scope, value in (("all brokers (their default)", "111111111"), ("this broker", "222222222")):
        begin()
        tab.fill("New value", value)
        tab.page.get_by_label(scope).check()
        tab.click("Set")
        tab.told(f"{key} of broker {'1' if value[0] == '2' else 'defaults'} is set.")
    row = tab.row("Configuration", key).first
    assert row.locator("td").nth(1).inner_text() == "222222222"
    assert row.locator("td").nth(2).inner_text() == "dynamic, this broker"
    assert values_by_source(admin, key) == {
        "DYNAMIC_BROKER_CONFIG": "222222222", "DYNAMIC_DEFAULT_BROKER_CONFIG": "111111111", "DEFAULT_CONFIG": "-1",
    }  # fmt: skip
    for scope in ("this broker", "all brokers (their default)"):
        begin()
        tab.page.get_by_label(scope).check()
        tab.click("Reset to the source below")
        tab.told("is reset.")
    assert values_by_source(admin, key) == {"DEFAULT_CONFIG": "-1"}
    begin()
    tab.fill("New value", "many")
    tab.click("Set")
    tab.sees("The broker refuses the change")
    tab.forgive()
    assert values_by_source(admin, key) == {"DEFAULT_CONFIG": "-1"}


def test_the_page_of_a_broker_has_its_logs_versions_and_features(
    tab: Tab, topic: Callable[..., str], producer: KafkaProducer, admin: KafkaAdminClient
) -> None:
    # One replica alone would be counted in the singular.
    name = topic(2)
    # Large enough for one of the first rows: the page has the largest replicas.
    for _ in range(8):
        producer.send(name, os.urandom(900_000), partition=0).get(timeout=60)
    tab.open("/brokers/1")
    tab.click("Log directories", "link")
    tab.sees("replicas")
    (described,) = admin.describe_log_dirs({name: [0]}, [1])
    (directory,) = described["log_dirs"]
    size = directory["topics"][0]["partitions"][0]["partition_size"]
    assert size > 7_200_000
    assert [f"{name}-0", size_text(size), "0", ""] in tab.table("Replicas")
    assert directory["log_dir"] in tab.text()
    tab.click("API versions", "link")
    tab.sees("Newest")
    shown = {int(key): (int(low), int(high)) for key, _, low, high in tab.table("API versions")}
    assert shown == {int(key): pair for key, pair in admin.api_versions(1).items()}
    tab.click("Features", "link", "nav")
    tab.sees("Finalized levels")
    assert [cells[0] for cells in tab.table("Features")] == sorted(admin.describe_features())


def test_the_level_of_a_logger_is_set_by_clicks(tab: Tab, admin: KafkaAdminClient) -> None:
    before = broker_keys(admin, "broker_logger")
    name = sorted(each for each in before if each.startswith("kafkapy."))[-1]
    tab.open("/brokers/1")
    tab.click("Loggers", "link")
    for level in ("DEBUG", str(before[name]["value"])):
        tab.page.get_by_label(f"Level of {name}", exact=True).select_option(level)
        tab.row("Loggers", name).filter(has=tab.page.locator("code").get_by_text(name, exact=True)).get_by_role(
            "button", name="Set"
        ).click()
        tab.told(f"Logger {name} of broker 1 writes from {level} on.")
        assert tab.page.get_by_label(f"Level of {name}", exact=True).input_value() == level
        assert broker_keys(admin, "broker_logger")[name]["value"] == level


# --- three brokers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[testing.Cluster]:
    with testing.Cluster(3, racks=True) as started:
        yield started


@pytest.fixture
def wide(cluster: testing.Cluster, open_tab: OpenTab) -> Iterator[Tab]:
    """A tab at a console of the three brokers."""
    with serving(Settings(kafka={"bootstrap.servers": cluster.bootstrap_servers})) as url:
        tab = open_tab(url)
        yield tab
        # The console must not go away while the page asks it for charts.
        tab.page.close()


def replicas(cluster: testing.Cluster, topic: str) -> list[list[int]]:
    with cluster.admin() as admin:
        (found,) = admin.describe_topics([topic])
        return [each["replica_nodes"] for each in sorted(found["partitions"], key=lambda each: each["partition_index"])]


def test_replicas_are_moved_by_clicks(cluster: testing.Cluster, wide: Tab) -> None:
    cluster.create_topic("moved-by-clicks", partitions=2, replication_factor=1)
    [now], other = replicas(cluster, "moved-by-clicks")
    then = now % 3 + 1
    wide.open("/topics/moved-by-clicks")
    wide.click(f"Replicas of partition 0: {now}", "link")
    wide.fill("Replicas, the preferred leader first", "9")
    wide.click("Preview")
    wide.sees("is not in the cluster")
    wide.forgive()
    wide.page.go_back()
    wide.fill("Replicas, the preferred leader first", str(then))
    wide.click("Preview")
    wide.sees(f"Brokers {then} copy the partition")
    wide.sees(f"Brokers {now} delete their replica when the others are in sync.")
    assert replicas(cluster, "moved-by-clicks") == [[now], other]
    wide.click("Move the replicas")
    wide.told("moved-by-clicks")
    wait_until(lambda: replicas(cluster, "moved-by-clicks") == [[then], other], "the replica is at its new broker")

    def is_over() -> bool:
        wide.open("/reassignments")
        return "No partition moves." in wide.text()

    wait_until(is_over, "the page of reassignments is empty")

    def shown() -> list[str]:
        wide.open("/topics/moved-by-clicks")
        return [cells[6] for cells in wide.table("Partitions")]

    wait_until(lambda: shown() == [str(then), str(other[0])], "the page of the topic has its new replicas")


def test_the_first_page_shows_brokers_racks_disks_and_failures(cluster: testing.Cluster, wide: Tab) -> None:
    cluster.create_topic("on-all-brokers", partitions=3, replication_factor=3)
    cluster.create_topic("on-one-broker-each", partitions=3, replication_factor=1)
    wide.open("/")
    assert (wide.tile("Brokers"), wide.tile("Under-replicated"), wide.tile("Offline")) == ("3", "0", "0")
    rows = wide.table("Brokers")
    assert [(cells[0], cells[2]) for cells in rows] == [("1", "rack-1"), ("2", "rack-2"), ("3", "rack-3")]
    assert wide.page.get_by_label("Disk in use").count() == 3
    cluster.stop_broker(3)
    try:

        def shown() -> bool:
            wide.open("/")
            rows = {cells[0]: cells for cells in wide.table("Topics with a problem")}
            mine = [rows.get("on-one-broker-each", [])[:2], rows.get("on-all-brokers", [])[1:]]
            return wide.tile("Brokers") == "2" and mine == [["on-one-broker-each", "1"], ["0", "3"]]

        wait_until(shown, "the first page shows what the stopped broker leaves")
        wide.sees("Brokers that have replicas and are not in the cluster now: 3.")
        wide.click("on-one-broker-each", "link")
        wide.sees("1 partitions have no leader.")
        with cluster.admin() as admin:
            (found,) = admin.describe_topics(["on-one-broker-each"])
        away = [str(each["partition_index"]) for each in found["partitions"] if each["leader_id"] < 0]
        assert [cells[0] for cells in wide.table("Partitions") if cells[4] == "none"] == away
    finally:
        cluster.start_broker(3)
