"""Bytes of internal records, written out by hand from Kafka's formats: keys and values of topics, control records."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafkapy.protocol.messages.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
)
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkapy.protocol.messages.control_records import ControlRecordType, EndTxnMarker
from kafkapy.protocol.messages.group_metadata_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kafkapy.protocol.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from kafkapy.protocol.messages.transaction_log_records import TransactionLogKey, TransactionLogValue

Member = GroupMetadataValue.Member

RECORDS = [
    (OffsetCommitKey(group="g", topic="t", partition=3), 1, "0001 000167 000174 00000003"),
    (
        OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7, expire_timestamp=9),
        1,
        "0001 0000000000000005 00016d 0000000000000007 0000000000000009",
    ),
    (
        OffsetCommitValue(offset=5, leader_epoch=2, metadata="", commit_timestamp=7),
        3,
        "0003 0000000000000005 00000002 0000 0000000000000007",
    ),
    (
        OffsetCommitValue(offset=5, leader_epoch=2, metadata="", commit_timestamp=7),
        4,
        "0004 0000000000000005 00000002 01 0000000000000007 00",
    ),
    (GroupMetadataKey(group="g"), 2, "0002 000167"),
    (
        GroupMetadataValue(
            protocol_type="consumer",
            generation=1,
            protocol="range",
            leader="m",
            current_state_timestamp=2,
            members=[
                Member(
                    member_id="m",
                    group_instance_id=None,
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=300000,
                    session_timeout=45000,
                    subscription=b"s",
                    assignment=b"",
                )
            ],
        ),
        3,
        "0003 0008 636f6e73756d6572 00000001 0005 72616e6765 00016d 0000000000000002 00000001"
        "00016d ffff 000163 00022f68 000493e0 0000afc8 00000001 73 00000000",
    ),
    (
        GroupMetadataValue(protocol_type="consumer", protocol=None, leader=None),
        0,
        "0000 0008636f6e73756d657200000000 ffff ffff 00000000",
    ),
    (TransactionLogKey(transactional_id="x"), 0, "0000 000178"),
    (
        TransactionLogValue(
            producer_id=4,
            producer_epoch=1,
            transaction_timeout_ms=60000,
            transaction_status=1,
            transaction_partitions=[TransactionLogValue.TopicPartitions(topic="t", partition_ids=[0, 2])],
            transaction_last_update_timestamp_ms=8,
            transaction_start_timestamp_ms=7,
        ),
        0,
        "0000 0000000000000004 0001 0000ea60 01 00000001 000174 00000002 00000000 00000002"
        "0000000000000008 0000000000000007",
    ),
    (
        TransactionLogValue(
            producer_id=4,
            previous_producer_id=3,
            producer_epoch=1,
            transaction_timeout_ms=60000,
            transaction_status=0,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=8,
            transaction_start_timestamp_ms=-1,
            client_transaction_version=2,
        ),
        1,
        "0001 0000000000000004 0001 0000ea60 00 00 0000000000000008 ffffffffffffffff"
        "02 00 08 0000000000000003 02 02 0002",
    ),
    (ConsumerGroupMetadataKey(group_id="g"), 3, "0003 000167"),
    (ConsumerGroupMetadataValue(epoch=10), 0, "0000 0000000a 00"),
    (ConsumerGroupMetadataValue(epoch=10, metadata_hash=1), 0, "0000 0000000a 01 00 08 0000000000000001"),
    (ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a.*"), 16, "0010 000167 0003 612e2a"),
    (ShareSnapshotKey(group_id="g", topic_id=UUID(int=1), partition=3), 0, f"0000 000167 {1:032x} 00000003"),
    (
        ShareSnapshotValue(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=4,
            create_timestamp=5,
            write_timestamp=6,
            state_batches=[
                ShareSnapshotValue.StateBatch(first_offset=7, last_offset=8, delivery_state=2, delivery_count=1)
            ],
            delivery_complete_count=2,
        ),
        0,
        "0000 00000001 00000002 00000003 0000000000000004 0000000000000005 0000000000000006"
        "02 0000000000000007 0000000000000008 02 0001 00 01 00 04 00000002",
    ),
    (ShareUpdateKey(group_id="g", topic_id=UUID(int=1), partition=3), 1, f"0001 000167 {1:032x} 00000003"),
    (
        ShareUpdateValue(snapshot_epoch=1, leader_epoch=3, start_offset=-1),
        0,
        "0000 00000001 00000003 ffffffffffffffff 01 00",
    ),
    (ControlRecordType(type=1), 0, "0000 0001"),
    (EndTxnMarker(coordinator_epoch=13), 0, "0000 0000000d"),
    (ConsumerProtocolSubscription(topics=["t"], user_data=None), 0, "0000 00000001 000174 ffffffff"),
    (
        ConsumerProtocolSubscription(
            topics=["t"],
            user_data=b"u",
            owned_partitions=[ConsumerProtocolSubscription.TopicPartitions(topic="t", partitions=[1])],
            generation_id=5,
            rack_id="r",
        ),
        3,
        "0003 00000001 000174 00000001 75 00000001 000174 00000001 00000001 00000005 000172",
    ),
    (
        ConsumerProtocolAssignment(
            assigned_partitions=[ConsumerProtocolAssignment.TopicPartitions(topic="t", partitions=[1])],
            user_data=None,
        ),
        1,
        "0001 00000001 000174 00000001 00000001 ffffffff",
    ),
]


@pytest.mark.parametrize(("record", "version", "wire"), RECORDS, ids=lambda value: type(value).__name__)
def test_a_record_behind_its_version(record, version, wire):
    assert record.encode_versioned(version).hex() == bytes.fromhex(wire).hex()
    assert type(record).decode_versioned(bytes.fromhex(wire)) == (version, record)


def test_a_subscription_of_a_newer_consumer_is_read_as_far_as_it_is_known():
    wire = bytes.fromhex("0009 00000001 000174 ffffffff 00000000 ffffffff ffff abcdef")
    version, subscription = ConsumerProtocolSubscription.decode_versioned(wire, newer_as_newest=True)
    assert (version, subscription.topics, subscription.rack_id) == (9, ["t"], None)


def test_the_version_of_a_key_tells_the_kind_of_record():
    kinds = {OffsetCommitKey: "0-1", GroupMetadataKey: "2", ConsumerGroupMetadataKey: "3"}
    for key, versions in kinds.items():
        assert str(key.VERSIONS) == versions
