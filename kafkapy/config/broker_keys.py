"""The broker's keys for server, sockets, logs and replication.

Names and defaults are those of Apache Kafka 3.9. The modules beside this one have the keys of security, coordinators,
remote storage and metadata stores; `broker.py` joins them. The documentation of a key without effect states that.
"""

from __future__ import annotations

import re

from kafkapy.config.config_def import (
    MAX_DOUBLE,
    MAX_INT,
    MAX_LONG,
    ConfigKey,
    Importance,
    UpdateMode,
    at_least,
    between,
    checked_by,
    matches,
    non_empty,
    one_of,
    one_of_numbers,
)
from kafkapy.types import CompressionType, ConfigType

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST, CLASS = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.CLASS
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CLUSTER, BROKER = UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER
K = ConfigKey

TIMESTAMP_AFTER_MAX_MS = 3_600_000
"""Kafka 4.0 refuses records more than an hour ahead (KIP-1030): retention would keep them for years."""

NO_EFFECT = "Accepted so that Kafka's configuration files load; has no effect."
# In Kafka's order, which its documentation and errors show.
CODECS = ("uncompressed", *reversed(CompressionType.config_names()[1:]), "producer")
GZIP_LEVEL = one_of_numbers((1, 9), (-1, -1))
LZ4_LEVEL = between(1, 17)
ZSTD_LEVEL = between(-131072, 22)


def _is_regular_expression(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


REGEX = checked_by(_is_regular_expression, "a regular expression")
TIMESTAMP_TYPES = one_of("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = one_of("compact", "delete")
SEGMENT_BYTES = at_least(14)
_HOST_PORT = r"(\[[0-9a-fA-F:]+\]|[^:\s]*):[0-9]{1,5}"

# fmt: off
SERVER_KEYS = (
    K("broker.id", INT, -1, None, HIGH,
      "Id of this broker. -1 uses the id in meta.properties, or generates one above reserved.broker.max.id."),
    K("node.id", INT, -1, None, HIGH, "The newer name of broker.id. Set one of them, or both to the same value."),
    K("broker.id.generation.enable", BOOLEAN, True, None, MEDIUM,
      "Whether the broker generates an id when broker.id is -1. When false, broker.id must be 0 or more."),
    K("reserved.broker.max.id", INT, 1000, at_least(0), MEDIUM, "Largest value that the file may set for broker.id."),
    K("config.providers", LIST, [], None, LOW,
      "Names of providers for variables in the properties file, such as ${file:path:key}. "
      "config.providers.<name>.class is the class of each.", CLUSTER),
    K("broker.rack", STRING, None, None, MEDIUM, "Rack of this broker, for rack-aware replica placement and reads."),
    K("message.max.bytes", INT, 1024 * 1024 + 12, at_least(0), HIGH,
      "Largest record batch in bytes, after compression. A topic's max.message.bytes overrides it.",
      CLUSTER),
    K("num.io.threads", INT, 8, at_least(1), HIGH,
      "Worker threads for requests that read records or wait for disks.", CLUSTER),
    K("background.threads", INT, 10, at_least(1), HIGH,
      "Upper bound of worker threads for background work: retention, flushes, deletes.", CLUSTER),
    K("num.replica.alter.log.dirs.threads", INT, None, None, HIGH,
      "Threads that move replicas between log directories. Not set: one for each directory."),
    K("request.timeout.ms", INT, 30000, None, HIGH,
      "Time in ms that this broker waits for the response of another broker."),
    K("socket.connection.setup.timeout.ms", LONG, 10000, None, MEDIUM,
      "Time in ms to establish a connection to another broker; doubles after each failure."),
    K("socket.connection.setup.timeout.max.ms", LONG, 30000, None, MEDIUM,
      "Upper bound in ms of the connection set-up timeout."),
    K("authorizer.class.name", STRING, "", None, LOW,
      "Name of a registered authorizer, or Kafka's class name. Empty: every operation is allowed."),
    K("super.users", STRING, "", None, MEDIUM,
      "Principals with all permissions, separated by semicolons: User:alice;User:bob."),
    K("allow.everyone.if.no.acl.found", BOOLEAN, False, None, MEDIUM,
      "Whether every principal may use a resource without any ACL."),
    K("early.start.listeners", LIST, None, None, HIGH,
      "Listeners that open before the authorizer has finished its start."),
    K("controlled.shutdown.max.retries", INT, 3, None, MEDIUM, "Attempts to move leaderships away before a stop."),
    K("controlled.shutdown.retry.backoff.ms", LONG, 5000, None, MEDIUM,
      "Pause in ms between two attempts to move leaderships away."),
    K("controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM,
      "Whether the broker moves its leaderships away before a stop."),
    K("delete.topic.enable", BOOLEAN, True, None, HIGH, "Whether clients may delete topics."),
    K("compression.type", STRING, "producer", one_of(*CODECS), HIGH,
      "Codec of stored batches; producer keeps the producer's codec.", CLUSTER),
    K("compression.gzip.level", INT, -1, GZIP_LEVEL, MEDIUM,
      "Level for compression.type=gzip; -1 is the codec's default.", CLUSTER),
    K("compression.lz4.level", INT, 9, LZ4_LEVEL, MEDIUM, "Level for compression.type=lz4.", CLUSTER),
    K("compression.zstd.level", INT, 3, ZSTD_LEVEL, MEDIUM, "Level for compression.type=zstd.", CLUSTER),
    K("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM,
      "Largest number of incremental fetch sessions (KIP-227)."),
    K("kafkapy.fetch.session.max.partitions", INT, 500_000, at_least(0), LOW,
      "Largest number of partitions in all incremental fetch sessions together. A client without room for its session "
      "sends full fetches. One partition costs 0.2 to 0.9 KB of memory, by the length of its topic's name."),
    K("fetch.max.bytes", INT, 55 * 1024 * 1024, at_least(1024), MEDIUM,
      "Upper bound in bytes of a fetch response. The broker still returns a larger first batch."),
    K("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM,
      "Most partitions in one DescribeTopicPartitions response."),
    K("unstable.api.versions.enable", BOOLEAN, False, None, HIGH, NO_EFFECT, internal=True),
    K("unstable.feature.versions.enable", BOOLEAN, False, None, HIGH, NO_EFFECT, internal=True),
    K("metric.reporters", LIST, [], None, LOW,
      "Names of registered metrics reporters to start. Prometheus starts by itself when metrics.listeners is set.",
      CLUSTER),
    K("metrics.num.samples", INT, 2, at_least(1), LOW, "Number of samples of a rate."),
    K("metrics.sample.window.ms", LONG, 30000, at_least(1), LOW, "Length in ms of one sample."),
    K("metrics.recording.level", STRING, "INFO", one_of("INFO", "DEBUG", "TRACE"), LOW,
      "Level of detail of the recorded metrics."),
    K("auto.include.jmx.reporter", BOOLEAN, True, None, LOW, NO_EFFECT),
    K("kafka.metrics.reporters", LIST, [], None, LOW, NO_EFFECT),
    K("kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW, NO_EFFECT),
    K("telemetry.max.bytes", INT, 1024 * 1024, at_least(1), LOW,
      "Largest size in bytes of the metrics that a client pushes, after compression. Decompressed they may have four "
      "times this size."),
    K("kafkapy.client.telemetry.receivers", LIST, [], None, LOW,
      "Names of registered receivers of the metrics that clients push (KIP-714). With metrics.listeners the broker "
      "shows these metrics itself."),
    K("kafkapy.client.telemetry.max.series", INT, 20_000, at_least(0), LOW,
      "Largest number of series that clients' metrics may have together at metrics.listeners."),
    K("kafkapy.metadata.store", STRING, None, non_empty(), HIGH,
      "Registered store of the cluster metadata: embedded (a file in the metadata directory; one broker), zookeeper, "
      "etcd, memory, or one from a plugin. "
      "With memory the broker writes no file and loses everything when it stops; it needs "
      "kafkapy.storage.backend=memory too, and log directories are only names. "
      "Not set: zookeeper when zookeeper.connect is set, etcd when kafkapy.etcd.endpoints is set, else embedded."),
    K("kafkapy.storage.backend", STRING, "local", non_empty(), MEDIUM,
      "Name of the registered storage backend that holds new segments: local (files), memory, or one from a plugin."),
    K("kafkapy.validate.compressed", STRING, "full", one_of("header", "full"), MEDIUM,
      "Validation of compressed batches: full (every record, as Apache Kafka does) or header (batch header and CRC; "
      "the batch's size bounds the record count). Compacted topics always use full.",
      CLUSTER),
    K("kafkapy.log.reserve.bytes", LONG, 4 * 1024 * 1024, at_least(0), LOW,
      "Most disk space in bytes that an active segment of 1 MB or more reserves ahead of appends, on ext4 and XFS; "
      "never more than the segment's size. Appends cost less with it. A segment gives the space back when it is "
      "closed, or has not grown for a minute. 0: none."),
    K("kafkapy.plugins.disabled", LIST, [], None, LOW,
      "Entry-point names of installed plugins that the broker does not load."),
    K("metrics.listeners", LIST, [], matches(_HOST_PORT, "host:port, comma-separated"), MEDIUM,
      "Addresses (host:port) that serve metrics over HTTP for Prometheus. Empty: none. Port 0: a free port."),
    K("kafkapy.metrics.topic.include", STRING, ".*", REGEX, LOW,
      "Regular expression that is found in the names of topics with metrics of their own."),
    K("kafkapy.metrics.topic.exclude", STRING, "^$", REGEX, LOW,
      "Regular expression that is found in the names of topics without metrics of their own."),
    K("kafkapy.metrics.group.include", STRING, ".*", REGEX, LOW,
      "Regular expression that is found in the ids of groups with metrics of their own."),
    K("kafkapy.metrics.group.exclude", STRING, "^$", REGEX, LOW,
      "Regular expression that is found in the ids of groups without metrics of their own."),
    K("kafkapy.metrics.max.series", INT, 200_000, at_least(0), LOW,
      "Largest number of series by partition, or by user and client id, in one scrape. Sums by topic and group are "
      "complete beyond it, and kafkapy_metrics_seriesdropped tells how many are left out."),
)

SOCKET_KEYS = (
    K("listeners", STRING, "PLAINTEXT://:9092", non_empty(), HIGH,
      "Addresses to listen on, NAME://host:port, comma-separated. Names and ports must differ (two of the same port "
      "may be one IPv4 and one IPv6 address). No host: all interfaces. Port 0: a free port.", BROKER),
    K("advertised.listeners", STRING, None, None, HIGH,
      "Addresses that clients connect to, NAME://host:port. Not set: the addresses of listeners.", BROKER),
    K("listener.security.protocol.map", STRING,
      "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None, LOW,
      "Security protocol of each listener name, NAME:PROTOCOL, comma-separated.", BROKER),
    K("control.plane.listener.name", STRING, None, None, HIGH,
      "Listener for requests of the controller."),
    K("inter.broker.listener.name", STRING, None, None, MEDIUM,
      "Listener for requests between brokers. Excludes security.inter.broker.protocol."),
    K("security.inter.broker.protocol", STRING, "PLAINTEXT", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
      MEDIUM, "Security protocol between brokers. Excludes inter.broker.listener.name."),
    K("socket.send.buffer.bytes", INT, 100 * 1024, None, HIGH,
      "SO_SNDBUF of the server sockets in bytes. -1: the system's default, which grows with the traffic of a "
      "connection. Clients on the same host get the system's default too when this key is not set."),
    K("socket.receive.buffer.bytes", INT, 100 * 1024, None, HIGH,
      "SO_RCVBUF of the server sockets in bytes. -1 or not set: the system's default, which grows with the traffic of "
      "a connection (Kafka uses 102400 when not set)."),
    K("socket.request.max.bytes", INT, 100 * 1024 * 1024, at_least(1), HIGH,
      "Largest request in bytes. The broker closes a connection that announces a larger one."),
    K("socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM,
      "Connections that wait for the acceptor; the kernel's net.core.somaxconn bounds it. When not set, the broker "
      "uses 1024 (Kafka: 50), so that many clients can connect at once."),
    K("max.connections.per.ip", INT, MAX_INT, at_least(0), MEDIUM,
      "Largest number of connections from one address. 0 only together with overrides.", CLUSTER),
    K("max.connections.per.ip.overrides", STRING, "", None, MEDIUM,
      "Limits for single hosts: host:number, comma-separated.", CLUSTER),
    K("max.connections", INT, MAX_INT, at_least(0), MEDIUM,
      "Largest number of connections, also for one listener with its prefix. The limit of open files (ulimit -n) "
      "bounds it.", CLUSTER),
    K("max.connection.creation.rate", INT, MAX_INT, at_least(0), MEDIUM,
      "Largest number of new connections per second, also for one listener with its prefix.", CLUSTER),
    K("connections.max.idle.ms", LONG, 600000, None, MEDIUM,
      "The broker closes a connection after this many idle ms. Negative: never."),
    K("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW,
      "Delay in ms before the broker closes a connection that failed to authenticate."),
    K("queued.max.requests", INT, 500, at_least(1), HIGH,
      "Requests that wait for the control plane before the network threads stop reading."),
    K("queued.max.request.bytes", LONG, -1, None, MEDIUM,
      "Bytes of requests in memory before the network threads stop reading. -1: no limit."),
    K("num.network.threads", INT, 3, at_least(1), HIGH,
      "Network threads (processors), shared by all listeners. Not set: 3, or the number of usable cores if that is "
      "smaller.", CLUSTER),
)

LOG_KEYS = (
    K("num.partitions", INT, 1, at_least(1), MEDIUM, "Partitions of a topic that is created without a number."),
    K("log.dir", LIST, ["/tmp/kafka-logs"], None, HIGH, "The log directory, when log.dirs is not set."),
    K("log.dirs", STRING, None, None, HIGH, "Log directories, comma-separated. Not set: log.dir."),
    K("cordoned.log.dirs", LIST, [], None, MEDIUM,
      "Log directories that get no new partitions, or * for all: then the broker gets none (KIP-1066).", BROKER),
    K("log.segment.bytes", INT, 1024 * 1024 * 1024, SEGMENT_BYTES, HIGH, "Largest size in bytes of a segment.",
      CLUSTER),
    K("log.roll.ms", LONG, None, None, HIGH,
      "The log rolls a segment older than this many ms. Not set: log.roll.hours.",
      CLUSTER),
    K("log.roll.hours", INT, 168, at_least(1), HIGH, "The log rolls a segment older than this many hours."),
    K("log.roll.jitter.ms", LONG, None, None, HIGH,
      "Largest random reduction of log.roll.ms, in ms. Not set: log.roll.jitter.hours.", CLUSTER),
    K("log.roll.jitter.hours", INT, 0, at_least(0), HIGH, "Largest random reduction of log.roll.hours, in hours."),
    K("log.retention.ms", LONG, None, None, HIGH,
      "Retention of records in ms. -1: for ever. Not set: log.retention.minutes.", CLUSTER),
    K("log.retention.minutes", INT, None, None, HIGH, "Retention of records in minutes. Not set: log.retention.hours."),
    K("log.retention.hours", INT, 168, None, HIGH,
      "Retention of records in hours, when neither ms nor minutes are set."),
    K("log.retention.bytes", LONG, -1, None, HIGH,
      "Largest size in bytes of a partition; retention deletes the oldest segments. -1: no limit.", CLUSTER),
    K("log.retention.check.interval.ms", LONG, 300000, at_least(1), MEDIUM, "Pause in ms between retention checks."),
    K("log.cleanup.policy", LIST, ["delete"], CLEANUP_POLICIES, MEDIUM,
      "Treatment of old segments: delete, compact, or both.", CLUSTER),
    K("log.index.size.max.bytes", INT, 10 * 1024 * 1024, at_least(4), MEDIUM, "Largest size in bytes of an index.",
      CLUSTER),
    K("log.index.interval.bytes", INT, 4096, at_least(0), MEDIUM, "Bytes of log between two index entries.", CLUSTER),
    K("log.flush.interval.messages", LONG, MAX_LONG, at_least(1), HIGH,
      "Messages in a partition after which the broker flushes it to disk.", CLUSTER),
    K("log.segment.delete.delay.ms", LONG, 60000, at_least(0), HIGH,
      "Time in ms between the removal of a segment from the log and the deletion of its file.", CLUSTER),
    K("log.flush.scheduler.interval.ms", LONG, MAX_LONG, None, HIGH, "Pause in ms between checks for logs to flush."),
    K("log.flush.interval.ms", LONG, None, None, HIGH,
      "Largest time in ms that a message stays unflushed. Not set: log.flush.scheduler.interval.ms.", CLUSTER),
    K("log.flush.offset.checkpoint.interval.ms", INT, 60000, at_least(0), HIGH,
      "Pause in ms between writes of the recovery-point checkpoint."),
    K("log.flush.start.offset.checkpoint.interval.ms", INT, 60000, at_least(0), HIGH,
      "Pause in ms between writes of the log-start-offset checkpoint."),
    K("log.preallocate", BOOLEAN, False, None, MEDIUM,
      "Whether the broker reserves the space of a segment at its creation.",
      CLUSTER),
    K("num.recovery.threads.per.data.dir", INT, 2, at_least(1), HIGH,
      "Threads for each log directory that recover and flush logs at start and stop.", CLUSTER),
    K("auto.create.topics.enable", BOOLEAN, True, None, HIGH,
      "Whether the broker creates a missing topic when a client asks for it."),
    K("min.insync.replicas", INT, 1, at_least(1), HIGH,
      "In-sync replicas that a produce with acks=all needs.", CLUSTER),
    K("log.message.format.version", STRING, "3.0-IV1", matches(r"[0-9]+\.[0-9]+(\.[0-9]+)?(-IV[0-9]+)?", "a version"),
      MEDIUM, NO_EFFECT),
    K("log.message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPES, MEDIUM,
      "Timestamp of records: the producer's (CreateTime) or the broker's at the append (LogAppendTime).", CLUSTER),
    K("log.message.timestamp.difference.max.ms", LONG, MAX_LONG, at_least(0), MEDIUM,
      "Deprecated: the value of both bounds below when they are not set.", CLUSTER),
    K("log.message.timestamp.before.max.ms", LONG, MAX_LONG, at_least(0), MEDIUM,
      "Largest time in ms by which a record's timestamp may lie behind the broker's clock (CreateTime only).", CLUSTER),
    K("log.message.timestamp.after.max.ms", LONG, TIMESTAMP_AFTER_MAX_MS, at_least(0), MEDIUM,
      "Largest time in ms by which a record's timestamp may lie ahead of the broker's clock (CreateTime "
      "only).", CLUSTER),
    K("create.topic.policy.class.name", CLASS, None, None, LOW,
      "Name of a registered policy that may refuse new topics (KIP-108)."),
    K("alter.config.policy.class.name", CLASS, None, None, LOW,
      "Name of a registered policy that may refuse changes of configurations (KIP-133)."),
    K("log.message.downconversion.enable", BOOLEAN, True, None, LOW,
      "Whether the broker converts records to an old format for clients that fetch with an old version.", CLUSTER),
    K("log.dir.failure.timeout.ms", LONG, 30000, at_least(1), LOW, NO_EFFECT),
    K("log.initial.task.delay.ms", LONG, 30000, at_least(0), LOW, "Pause in ms before the first background task of "
      "the log manager.", internal=True),
    K("log.cleaner.threads", INT, 1, at_least(0), MEDIUM, "Threads that compact logs.", CLUSTER),
    K("log.cleaner.io.max.bytes.per.second", DOUBLE, MAX_DOUBLE, None, MEDIUM,
      "Bytes per second that the cleaner reads and writes together.", CLUSTER),
    K("log.cleaner.dedupe.buffer.size", LONG, 128 * 1024 * 1024, None, MEDIUM,
      "Memory in bytes for the cleaner's key map, of all threads together.", CLUSTER),
    K("log.cleaner.io.buffer.size", INT, 512 * 1024, at_least(0), MEDIUM,
      "Memory in bytes for the cleaner's I/O buffers, of all threads together.", CLUSTER),
    K("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, None, MEDIUM, "Largest load factor of the cleaner's key map.",
      CLUSTER),
    K("log.cleaner.backoff.ms", LONG, 15000, at_least(0), MEDIUM, "Pause in ms of a cleaner without work.",
      CLUSTER),
    K("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM,
      "Share of uncleaned bytes in a log before the cleaner compacts it.", CLUSTER),
    K("log.cleaner.enable", BOOLEAN, True, None, MEDIUM, "Whether the cleaner runs."),
    K("log.cleaner.delete.retention.ms", LONG, 86400000, at_least(0), MEDIUM,
      "Time in ms that tombstones stay in a compacted log.", CLUSTER),
    K("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM,
      "Least age in ms of a record before the cleaner may remove it.", CLUSTER),
    K("log.cleaner.max.compaction.lag.ms", LONG, MAX_LONG, at_least(1), MEDIUM,
      "Largest time in ms that a record stays uncompacted.", CLUSTER),
)

REPLICATION_KEYS = (
    K("default.replication.factor", INT, 1, None, MEDIUM, "Replicas of a topic that is created without a number."),
    K("controller.socket.timeout.ms", INT, 30000, None, MEDIUM, "Socket timeout in ms between controller and broker."),
    K("replica.lag.time.max.ms", LONG, 30000, None, HIGH,
      "A follower leaves the in-sync set when it has not caught up for this many ms."),
    K("replica.socket.timeout.ms", INT, 30000, None, HIGH, "Socket timeout in ms of a follower's fetches."),
    K("replica.socket.receive.buffer.bytes", INT, 64 * 1024, None, HIGH, "SO_RCVBUF in bytes of a follower's sockets."),
    K("replica.fetch.max.bytes", INT, 1024 * 1024, at_least(0), MEDIUM, "Bytes that a follower fetches per partition."),
    K("replica.fetch.wait.max.ms", INT, 500, None, HIGH,
      "Largest time in ms that a follower's fetch waits for data. At most replica.lag.time.max.ms."),
    K("replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM, "Pause in ms after a failed fetch of a partition."),
    K("replica.fetch.min.bytes", INT, 1, None, HIGH, "Least bytes of an answer to a follower's fetch."),
    K("replica.fetch.response.max.bytes", INT, 10 * 1024 * 1024, at_least(0), MEDIUM,
      "Largest number of bytes in one fetch of a follower."),
    K("num.replica.fetchers", INT, 1, None, HIGH, "Fetchers for each source broker.", CLUSTER),
    K("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH,
      "Pause in ms between writes of the high-watermark checkpoint."),
    K("fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, NO_EFFECT),
    K("producer.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, NO_EFFECT),
    K("delete.records.purgatory.purge.interval.requests", INT, 1, None, MEDIUM, NO_EFFECT),
    K("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH,
      "Whether the controller moves leaderships back to preferred replicas."),
    K("leader.imbalance.per.broker.percentage", INT, 10, None, HIGH,
      "Share in percent of a broker's leaderships on other brokers before the controller moves them back."),
    K("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH,
      "Pause in seconds between checks of the leadership balance."),
    K("unclean.leader.election.interval.ms", LONG, 300000, at_least(1), MEDIUM,
      "Pause in ms between checks for partitions that need an unclean election.", internal=True),
    K("unclean.leader.election.enable", BOOLEAN, False, None, HIGH,
      "Whether an out-of-sync replica may become leader as a last resort, which loses records.",
      CLUSTER),
    K("inter.broker.protocol.version", STRING, "3.9-IV0",
      matches(r"[0-9]+\.[0-9]+(\.[0-9]+)?(-IV[0-9]+)?", "a version, as in 3.9 or 3.9-IV0"), MEDIUM,
      "Version of the requests and records that brokers exchange. Set it to that of the oldest Apache Kafka broker in "
      "the cluster during a rolling upgrade."),
    K("replica.selector.class", STRING, None, None, MEDIUM,
      "Selector of a consumer's preferred read replica (KIP-392). Not set: always the leader."),
    K("leader.replication.throttled.rate", LONG, MAX_LONG, at_least(0), MEDIUM,
      "Bytes per second that a leader sends to throttled replicas.", CLUSTER),
    K("follower.replication.throttled.rate", LONG, MAX_LONG, at_least(0), MEDIUM,
      "Bytes per second that a follower fetches for throttled replicas.", CLUSTER),
    K("replica.alter.log.dirs.io.max.bytes.per.second", LONG, MAX_LONG, at_least(0), MEDIUM,
      "Bytes per second for moving replicas between log directories.", CLUSTER),
    K("quota.window.num", INT, 11, at_least(1), LOW, "Samples kept for client quotas."),
    K("quota.window.size.seconds", INT, 1, at_least(1), LOW, "Length in seconds of a sample for client quotas."),
    K("controller.quota.window.num", INT, 11, at_least(1), LOW, "Samples kept for controller-mutation quotas."),
    K("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW,
      "Length in seconds of a sample for controller-mutation quotas."),
    K("replication.quota.window.num", INT, 11, at_least(1), LOW, "Samples kept for replication quotas."),
    K("replication.quota.window.size.seconds", INT, 1, at_least(1), LOW,
      "Length in seconds of a sample for replication quotas."),
    K("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW,
      "Samples kept for the quota on moves between log directories."),
    K("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW,
      "Length in seconds of a sample for the quota on moves between log directories."),
    K("client.quota.callback.class", CLASS, None, None, LOW, "Name of a registered quota manager."),
)
