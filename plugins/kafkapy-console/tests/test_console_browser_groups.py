"""Groups and transactions in Chromium: members, lag, resets, deletions, an abort."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from console_broker import committed, committed_or_none, read
from console_browser import Tab
from waiting import wait_until

from kafkapy import KafkaProducer, KafkaShareConsumer, TopicPartition, testing
from kafkapy.admin import KafkaAdminClient
from kafkapy.errors import ProducerFencedError

Send = Callable[..., None]
MakeTopic = Callable[..., str]


def find(tab: Tab, group_id: str) -> None:
    """From the list of groups to the page of one."""

    def is_listed() -> bool:
        """The console asks the brokers for their groups every few seconds only."""
        tab.open("/groups")
        with tab.page.expect_response("**/groups?q=*"):
            tab.page.get_by_role("searchbox").fill(group_id)
        found = tab.page.get_by_role("link", name=group_id, exact=True)
        found.or_(tab.page.get_by_text("No group is here.")).wait_for()
        return bool(found.count())

    wait_until(is_listed, "the page of groups has the group")
    tab.click(group_id, "link")
    tab.sees(f"{group_id}", "h1")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_lag_of_a_group_of_either_protocol(
    tab: Tab, broker: testing.Broker, topic: MakeTopic, send: Send, admin: KafkaAdminClient, protocol: str
) -> None:
    name = topic(2)
    send(name, [b"x"] * 30, 0)
    send(name, [b"x"] * 10, 1)
    group_id = f"g-{name}"
    with read(broker, group_id, name, 25, group_protocol=protocol, client_id=f"reader-of-{name}"):
        find(tab, group_id)
        assert (tab.tile("Lag"), tab.tile("Members"), tab.tile("Kind")) == ("15", "1", protocol)
        described = admin.describe_consumer_groups([group_id])[group_id]
        (member,) = tab.table("Members")
        assert member[:2] == [f"reader-of-{name}", described.members[0].member_id]
        tab.page.locator("[aria-label=Members] summary").click()
        assert tab.text("[aria-label=Members] details[open] p") == f"{name}-0, {name}-1"
        offsets = committed(broker, group_id, name)
        rows = {cells[0]: (int(cells[1]), int(cells[4]), cells[6]) for cells in tab.table("Partitions")}
        ends = {0: 30, 1: 10}
        assert rows == {
            f"{name}-{number}": (at, ends[number] - at, f"reader-of-{name}") for number, at in offsets.items()
        }
        tab.page.wait_for_selector(".chart output:has-text('15 records')")
        tab.click("Reset offsets", "link")
        tab.click("Preview")
        tab.sees("The group has 1 member. Stop them before the reset")
        assert tab.page.get_by_role("button", name="Reset 2 partitions").is_disabled()
    tab.open(f"/topics/{name}/groups")
    assert [cells[:2] for cells in tab.table("Groups")] == [[group_id, protocol]]


def test_offsets_are_reset_by_clicks(tab: Tab, broker: testing.Broker, topic: MakeTopic, send: Send) -> None:
    """Each way has its preview, which changes nothing; the last one is carried out."""
    name = topic()
    send(name, [b"x"] * 20)
    for group_id, count in ((f"g-{name}", 12), (f"other-{name}", 5)):
        read(broker, group_id, name, count).close()
    find(tab, f"g-{name}")
    tab.click("Reset offsets", "link")
    tab.fill("Partition", "0")
    tab.click("Preview")
    tab.sees("Name the topic of the partition, too.")
    tab.forgive()
    tab.page.go_back()
    tab.fill("Partition", "")
    for way, at, text in (
        ("the oldest record", "", "12 records are read again."),
        ("the end", "", "8 records are skipped."),
        ("a time", "1h", "12 records are read again."),
        ("an offset", "7", "5 records are read again."),
        ("a number of records forward or back", "3", "3 records are skipped."),
        ("the offsets of another group", f"other-{name}", "7 records are read again."),
    ):
        tab.page.locator("select[name=way]").select_option(label=way)
        tab.fill("Time, offset, number or group", at)
        tab.click("Preview")
        tab.sees(text)
        assert committed(broker, f"g-{name}", name) == {0: 12}
    tab.picture("reset-preview")
    assert tab.table("Preview") == [[f"{name}-0", "12", "5", "7 again", "0", "20"]]
    tab.page.get_by_label("I want to commit these offsets").check()
    tab.click("Reset 1 partition")
    tab.told("are reset")
    assert committed(broker, f"g-{name}", name) == {0: 5}
    assert tab.tile("Lag") == "15"


def test_a_share_group_is_looked_at_reset_and_emptied_by_clicks(
    tab: Tab, admin: KafkaAdminClient, queue: Callable[..., tuple[str, KafkaShareConsumer]]
) -> None:
    """Its worker accepted five of ten records, those below 4 among them."""
    name, worker = queue()
    first = TopicPartition(name, 0)
    wait_until(lambda: admin.list_share_group_offsets(name)[name][first].lag == 5, "all acknowledgements are told")
    find(tab, name)
    assert (tab.tile("Lag"), tab.tile("Members"), tab.tile("Kind")) == ("5", "1", "share")
    assert tab.table("Partitions")[0][:6] == [f"{name}-0", "4", "0", "10", "5", "1"]
    worker.close()
    wait_until(lambda: not admin.describe_share_groups([name])[name]["members"], "the worker has left")
    tab.open(f"/groups/{name}")
    tab.click("Reset start offsets", "link")
    tab.page.locator("select[name=way]").select_option(label="the end")
    tab.click("Preview")
    tab.page.locator("main form[method=post] input[type=checkbox]").check()
    tab.click("Reset 2 partitions")
    tab.told("are reset")
    starts = admin.list_share_group_offsets(name)[name]
    assert starts[first].start_offset == 10
    tab.open(f"/groups/{name}/delete-offsets?topic={name}")
    tab.page.locator("main form[method=post] button.danger").click()
    tab.told("deleted")
    assert admin.list_share_group_offsets(name)[name] == {}


def test_offsets_and_a_group_are_deleted_by_clicks(
    tab: Tab, broker: testing.Broker, topic: MakeTopic, send: Send, admin: KafkaAdminClient
) -> None:
    first, second = topic(), topic()
    group_id = f"g-{first}"
    for name in (first, second):
        send(name, [b"x"] * 5)
        read(broker, group_id, name, 5).close()
    find(tab, group_id)
    tab.click(f"delete those of {second}", "link")
    tab.sees("It deletes 1 committed offset.")
    tab.click("Delete 1 offset")
    tab.told("deleted")
    wait_until(lambda: committed(broker, group_id, second) == {}, "the offsets of one topic are gone")
    assert committed(broker, group_id, first) == {0: 5}
    tab.click("Delete", "link")
    tab.sees("It deletes 1 committed offset.")
    button = tab.page.get_by_role("button", name="Delete the group")
    tab.field("Type the name").fill("another")
    assert button.is_disabled()
    tab.field("Type the name").fill(group_id)
    tab.press("Enter")
    tab.told("deleted")
    assert committed_or_none(broker, group_id, first) == {}
    assert group_id not in [each["group_id"] for each in admin.list_groups()]


def test_a_transaction_is_described_and_aborted_by_clicks(
    tab: Tab, broker: testing.Broker, topic: MakeTopic, admin: KafkaAdminClient
) -> None:
    name = topic()
    transactional_id = f"txn/{name}"
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id, transaction_timeout_ms=600_000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"open").get(timeout=60)
        tab.open("/transactions")
        tab.fill("Search", name)
        tab.page.get_by_label("only open ones").check()
        tab.click("Search")
        tab.sees("1 transactional id")
        tab.click(transactional_id, "link")
        tab.sees(f"{transactional_id}", "h1")
        tab.sees("Ongoing", ".titles")
        described = admin.describe_transactions([transactional_id])[transactional_id]
        assert f"id {described.producer_id}, epoch {described.producer_epoch}" in tab.text()
        assert tab.page.get_by_role("link", name=f"{name}-0", exact=True).count() == 1
        tab.open(f"/topics/{name}/producers")
        assert tab.table("Producers")[0][5] == "open since offset 0"
        tab.page.go_back()
        tab.field("Type the transactional id").fill(transactional_id)
        tab.click("Abort the transaction")
        tab.told("abort")

        def state() -> str:
            return admin.describe_transactions([transactional_id])[transactional_id].state.value

        wait_until(lambda: state() in ("CompleteAbort", "Empty"), "the transaction is aborted")
        tab.open(f"/transactions/txn%2F{name}")
        assert tab.text(".titles .badge") == state()
        assert tab.page.get_by_role("button", name="Abort the transaction").count() == 0
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
    partition = TopicPartition(name, 0)
    ends = [admin.list_partition_offsets({partition: -1}, level)[partition].offset for level in (0, 1)]
    assert ends == [2, 2], "readers of committed records go past the marker"
