"""The differences between kafkapy and Apache Kafka that are meant to be, each with its reason.

An entry is (what the label matches, what the difference matches, why); both are regular expressions, searched. A
difference that no entry covers fails the suite, and so does an entry that covers nothing any more.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kafkapy.config.accepted_keys import ACCEPTED_KEYS
from kafkapy.config.coordinator_keys import SHARE_COORDINATOR_KEYS


class Intended(NamedTuple):
    label: str
    difference: str
    reason: str

    def covers(self, label: str, difference: str) -> bool:
        return bool(re.search(self.label, label) and re.search(self.difference, difference))


NEW_TOPIC_KEYS = {
    "errors.deadletterqueue.group.enable",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
}
NEW_BROKER_KEYS = {
    "config.providers",
    "cordoned.log.dirs",
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.topic.name.prefix",
    "group.consumer.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.share.assignment.interval.ms",
    "group.share.max.assignment.interval.ms",
    "group.share.max.delivery.count.limit",
    "group.share.max.partition.max.record.locks",
    "group.share.min.assignment.interval.ms",
    "group.share.min.delivery.count.limit",
    "group.share.min.partition.max.record.locks",
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
    "transaction.two.phase.commit.enable",
}
NEW_KEYS = {key.name for key in (*ACCEPTED_KEYS, *SHARE_COORDINATOR_KEYS)} | NEW_TOPIC_KEYS | NEW_BROKER_KEYS
NEW_IN_4_4 = "|".join(re.escape(name) for name in sorted(NEW_KEYS))
REMOVED_IN_4 = r"message\.downconversion\.enable|message\.format\.version|message\.timestamp\.difference\.max\.ms"

INTENDED = [
    Intended(
        "",
        r"(error_message|batch_index_error_message): 'words', theirs None$",
        "An error says in words what is wrong where Kafka leaves that to the error code.",
    ),
    Intended(
        "^API_VERSIONS",
        r"^api_keys(\.|: )|features|zk_migration",
        "Versions are compared by test_versions_of_every_api; features belong to KRaft, which is not spoken here.",
    ),
    Intended(
        "^METADATA .*(auto-created name|v[0-3] .*(name|other))",
        r"error_code: 0, theirs (3|5)$|partitions: 1 elements",
        "The answer waits for the topic that it creates and names its leader; Kafka lets the client ask again.",
    ),
    Intended(
        "^METADATA v1[23] metadata: null name",
        "",
        "A topic with neither name nor id is overlooked; Kafka answers UNKNOWN_SERVER_ERROR without brokers.",
    ),
    Intended(
        "^CREATE_TOPICS .*: collision in one request",
        r"_c>\.(error_code|error_message|topic_id|num_partitions|replication_factor|configs)",
        "Names that collide are refused in one request as in two; KRaft's controller overlooks the first.",
    ),
    Intended(
        f"^CREATE_TOPICS .*: config (downconversion|format|dup timestamps)|({REMOVED_IN_4})",
        "",
        "Topic keys of 3.9 that 4.x has dropped are still taken, so that scripts and tools of 3.x go on working.",
    ),
    Intended("", REMOVED_IN_4, "Topic keys of 3.9 that 4.x has dropped are shown where they are set."),
    Intended("", r"<kafkapy\.", "Keys of kafkapy's own."),
    Intended(
        "",
        r"<min\.insync\.replicas>\.(config_source|is_default|synonyms)",
        "With eligible leader replicas KRaft sets min.insync.replicas as a dynamic default of the cluster.",
    ),
    Intended(
        "^CREATE_TOPICS v7 .*validat",
        "topic_id: 'no id', theirs 'id'",
        "A topic that was only validated has no id; KRaft's controller makes one up that is never used.",
    ),
    Intended(
        "^CREATE_TOPICS .*: config space",
        r"\.value: ",
        "A value is shown as it is understood, without the spaces that it was given with.",
    ),
    Intended(
        "^CREATE_PARTITIONS .*: 2147483647 partitions",
        "error_code: 44, theirs -1|error_message",
        "The limit of partitions for one request is said, as for CreateTopics; Kafka fails with UNKNOWN_SERVER_ERROR.",
    ),
    Intended(
        "^DESCRIBE_TOPIC_PARTITIONS .*: name empty",
        "error_code: 17, theirs -1|topic_authorized_operations",
        "An empty name is an invalid name; Kafka fails with UNKNOWN_SERVER_ERROR.",
    ),
    Intended(
        "^(DESCRIBE_CONFIGS|CREATE_TOPICS) v0 ",
        r"<(log\.)?(message\.timestamp\.after\.max\.ms|num\.recovery\.threads\.per\.data\.dir|"
        r"group\.coordinator\.(append\.linger\.ms|threads)|group\.share\.partition\.max\.record\.locks|"
        r"remote\.log\.manager\..*thread\.pool\.size)>\.value",
        "Defaults are those of 4.x (KIP-1030); version 0 is served by 3.9 only.",
    ),
    Intended(
        "^DESCRIBE_CONFIGS .*: broker",
        r"<group\.coordinator\.append\.linger\.ms>|<sasl\.oauthbearer\.expected\.audience>|"
        r"<(early\.start\.listeners|log\.dir)>\.config_type",
        "Defaults and types are those of 4.4.",
    ),
    Intended(
        "^DESCRIBE_CONFIGS v0 ",
        "is_default: True, theirs False",
        "Kafka never sets the field of version 0 since there are config sources.",
    ),
    Intended(
        "^LIST_OFFSETS v0 list_offsets: -1 offsets",
        "error_code: 0, theirs -1",
        "No offsets are asked for and none are given; Kafka fails with UNKNOWN_SERVER_ERROR.",
    ),
    Intended(
        "^LIST_OFFSETS .*: after deleting, timestamp -3",
        r"offset: 5, theirs 3",
        "The largest timestamp is looked for among the records that are left; Kafka may give a deleted one.",
    ),
    Intended(
        "^OFFSET_FOR_LEADER_EPOCH .* epoch -2 ",
        "leader_epoch: -1, theirs -2|end_offset: -1, theirs",
        "No record was ever written in a negative epoch; Kafka says that epoch -2 ended where the log begins.",
    ),
    Intended(
        "^ALTER_CONFIGS .*: resource twice$",
        "theirs 'no answer'",
        "A resource given twice is refused; KRaft's broker never answers.",
    ),
    Intended(
        "^(INCREMENTAL_)?ALTER_CONFIGS .*: broker, unknown key",
        "error_code: 42, theirs 0",
        "A key that is none is refused with its likely spelling; Kafka stores it and nobody reads it.",
    ),
    Intended(
        "^INCREMENTAL_ALTER_CONFIGS .*(unknown|negative) operation",
        "error_code: 42, theirs -1",
        "An operation that is none is INVALID_REQUEST; Kafka fails with UNKNOWN_SERVER_ERROR.",
    ),
    Intended(
        "^DESCRIBE_CONFIGS .*: broker",
        r"<(metrics\.listeners|console\.[a-z.]+)>: only ours",
        "Keys of kafkapy's own, and of its plugins.",
    ),
    Intended(
        "^(DESCRIBE_CONFIGS|CREATE_TOPICS) ",
        rf"<({NEW_IN_4_4})>: only ours",
        "Keys of 4.4, which older releases do not have.",
    ),
    Intended(
        "^DESCRIBE_CLUSTER .*_admin: (create|configs)$",
        rf"\.({NEW_IN_4_4}): only ours|config_entries: 35 elements",
        "The same, in what other clients make of the answers.",
    ),
    Intended(
        "^DESCRIBE_CONFIGS .*: broker",
        r"<share\.coordinator\.append\.linger\.ms>",
        "The default is that of 4.4; 4.1 has another one.",
    ),
    Intended(
        "^DESCRIBE_CONFIGS v0 .*: broker",
        ">: only (ours|theirs)",
        "The list is that of 4.4, without the keys that 4.0 removed; version 0 is served by 3.9 only.",
    ),
    Intended(
        "^DESCRIBE_CONFIGS .*: (all )?broker",
        r"<(share\.|group\.share\.|group\.streams\.|group\.consumer\.migration|sasl\.oauthbearer\.|transaction\.two|"
        r"remote\.list\.offsets|no\.such\.key|internal\.)[^>]*>: only theirs",
        "Keys of what this broker does not do: share groups, streams groups, two-phase commit, assertions of OAuth.",
    ),
    Intended(
        "^DESCRIBE_CONFIGS .*: (all )?broker",
        r"<(advertised\.listeners|listeners|controller\.|log\.dirs|node\.id|process\.roles|group\.consumer\.assignors|"
        r"group\.coordinator\.rebalance\.protocols|metric\.reporters|principal\.builder\.class|broker\.id)",
        "What KRaft needs set, ports and paths, classes of Java, and group protocols that are not served yet.",
    ),
    Intended(
        "^DESCRIBE_CONFIGS .*: broker",
        r"<remote\.log\.(reader\.threads|manager\.\w+\.thread\.pool\.size)>\.read_only|<group\.share\.max\.size>\.config_type",
        "Read when the broker starts; a short is enough.",
    ),
    Intended(
        "^DESCRIBE_CONFIGS .*: all brokers",
        "elements",
        "As above: what KRaft has set for the cluster.",
    ),
    Intended(
        "^FETCH .*: (partition )?limit -",
        "",
        "A negative limit is as good as 0; Kafka fails with UNKNOWN_SERVER_ERROR.",
    ),
    Intended(
        "^FETCH .*: isolation (2|-1)$",
        "'the connection was closed'",
        "A level that is none is a malformed request; Kafka fails with UNKNOWN_SERVER_ERROR for every partition.",
    ),
    Intended(
        "^FETCH .*: unknown (topic|partition) (joins|stays)$",
        "session_id: 0, theirs 'set'|error_code: 70, theirs 0|elements",
        "A session ends when a topic or partition joins that does not exist: it would be kept for nobody.",
    ),
    Intended(
        "^LIST_OFFSETS .*: isolation (2|-1)$",
        "error_code: 42, theirs -1",
        "A level that is none is INVALID_REQUEST; Kafka fails with UNKNOWN_SERVER_ERROR.",
    ),
    Intended(
        "^FETCH .*: replica 7$",
        "",
        "A replica that is none of the partition's reads as a follower; NOT_LEADER_OR_FOLLOWER comes with replication.",
    ),
    Intended(
        "^PRODUCE .*: (a batch and (its beginning again|one byte))",
        "error_code: 87, theirs 0|base_offset|log_start_offset",
        "Bytes that make no batch are refused, not dropped without a word.",
    ),
    Intended(
        "^PRODUCE .*: (partition|topic) twice",
        "elements|base_offset",
        "Batches of a partition named twice are all appended; Kafka keeps the last and drops the others.",
    ),
    Intended(
        "^PRODUCE .*: null records",
        "theirs 'no answer'",
        "Null records are refused; Kafka never answers.",
    ),
    Intended(
        "^PRODUCE .*: no partitions",
        "elements",
        "A topic without partitions is answered as such; Kafka leaves it out.",
    ),
    Intended(
        "^PRODUCE .*compressed",
        "error_message|record_errors",
        "A batch that does not add up is refused as a whole, with a text of its own.",
    ),
    Intended(
        "^PRODUCE .*: says codec",
        "error_code: 2, theirs -1|base_offset|log_start_offset|'no answer', theirs 'the connection|error_message",
        "Bytes that the batch's codec does not write are CORRUPT_MESSAGE; Kafka has UNKNOWN_SERVER_ERROR or closes.",
    ),
    Intended(
        "^PRODUCE .*: (codec [567]|length 2147483647)",
        "error_code: 2, theirs -1|log_start_offset",
        "CORRUPT_MESSAGE says more than UNKNOWN_SERVER_ERROR.",
    ),
    Intended(
        "^PRODUCE .*: length (49|70)",
        "error_code: 87, theirs 2|log_start_offset",
        "That bytes are left over is seen before the CRC is computed.",
    ),
    Intended(
        "^PRODUCE ",
        r"log_start_offset: (0, theirs -1|-1, theirs 0)$",
        "The log start offset of a refused batch, which no client reads, is there whenever it is at hand.",
    ),
    Intended(
        "^PRODUCE .*produce_idempotent: ",
        "log_append_time_ms: -1, theirs 'set'",
        "A duplicate is answered like the first time; Kafka gives the batch's largest timestamp as append time.",
    ),
    Intended(
        "^API_VERSIONS .*: (negative client id|bytes behind the body|array of -2|string that is not UTF-8)",
        "'the connection was closed', theirs 'an answer'",
        "A request that is not as the protocol says closes the connection; Kafka overlooks these.",
    ),
]
