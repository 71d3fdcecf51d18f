"""The broker's metrics, for Prometheus. The names follow Apache Kafka's MBeans.

`METRICS` is the one table of names, kinds, labels and documentation; docs/metrics.md is made from it.
`BrokerCollector` fills it from the data plane's counters and the control plane's state when it is asked, and costs
nothing otherwise. Kafka's times in ms are counters here (total ms and number of requests), from which Prometheus
computes means and rates; the request's whole time is a histogram as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kafkapy.broker.quota_metrics import add_quotas
from kafkapy.coordinator.group.consumer.group import ConsumerGroupState
from kafkapy.coordinator.group.group import GroupType
from kafkapy.coordinator.hosted import ShardState
from kafkapy.protocol.registry import ApiKeys

if TYPE_CHECKING:
    from kafkapy.broker.broker_state import BrokerState
    from kafkapy.broker.context import BrokerContext
    from kafkapy.broker.loop_lag import LoopLag
    from kafkapy.broker.message_conversion import ConversionCounts
    from kafkapy.network.socket_server import SocketServer

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
NS_PER_MS: Final = 1e6


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric: its name (without Prometheus's `_total`), kind, labels and what it says."""

    name: str
    kind: str
    labels: tuple[str, ...]
    doc: str

    @property
    def exposed_name(self) -> str:
        """The name as Prometheus shows it."""
        return f"{self.name}_total" if self.kind == COUNTER else self.name


_TOPIC, _PARTITION, _REQUEST = ("topic",), ("topic", "partition"), ("request",)
_QUOTA = ("user", "client_id")

METRICS: Final = (
    MetricSpec("kafka_server_brokertopicmetrics_messagesin", COUNTER, _TOPIC, "Records appended."),
    MetricSpec("kafka_server_brokertopicmetrics_bytesin", COUNTER, _TOPIC, "Bytes of record batches appended."),
    MetricSpec("kafka_server_brokertopicmetrics_bytesout", COUNTER, _TOPIC, "Bytes of record batches fetched."),
    MetricSpec("kafka_server_brokertopicmetrics_bytesrejected", COUNTER, _TOPIC, "Bytes of record batches refused."),
    MetricSpec("kafka_server_brokertopicmetrics_totalproducerequests", COUNTER, _TOPIC,
               "Produce requests, one for each partition in them."),
    MetricSpec("kafka_server_brokertopicmetrics_totalfetchrequests", COUNTER, _TOPIC,
               "Fetch requests, one for each partition in them."),
    MetricSpec("kafka_server_brokertopicmetrics_failedproducerequests", COUNTER, _TOPIC,
               "Produce requests that a partition refused."),
    MetricSpec("kafka_server_brokertopicmetrics_failedfetchrequests", COUNTER, _TOPIC,
               "Fetch requests that a partition refused."),
    MetricSpec("kafka_server_brokertopicmetrics_producemessageconversions", COUNTER, _TOPIC,
               "Records of Produce requests that the broker converted to another message format or codec."),
    MetricSpec("kafka_server_brokertopicmetrics_fetchmessageconversions", COUNTER, _TOPIC,
               "Records of Fetch replies that the broker converted for old clients."),
    MetricSpec("kafka_log_log_size", GAUGE, _PARTITION, "Bytes in the segments of a partition."),
    MetricSpec("kafka_log_log_numlogsegments", GAUGE, _PARTITION, "Segments of a partition."),
    MetricSpec("kafka_log_log_logstartoffset", GAUGE, _PARTITION, "First offset of a partition."),
    MetricSpec("kafka_log_log_logendoffset", GAUGE, _PARTITION, "Offset the next record of a partition gets."),
    MetricSpec("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, (), "Log directories that have failed."),
    MetricSpec("kafka_log_logcleanermanager_uncleanablepartitionscount", GAUGE, (),
               "Compacted partitions that the cleaner cannot clean; the log has the reasons."),
    MetricSpec("kafka_log_logcleanermanager_uncleanablebytes", GAUGE, (),
               "Bytes that wait for compaction in uncleanable partitions."),
    MetricSpec("kafka_log_logcleanermanager_maxdirtypercent", GAUGE, (),
               "Dirty share of the dirtiest cleanable log at the cleaner's last look, in percent."),
    MetricSpec("kafka_log_logcleaner_maxcompactiondelaysecs", GAUGE, (),
               "Seconds by which a log exceeds max.compaction.lag.ms."),
    MetricSpec("kafka_log_logcleaner_cleanerrecopypercent", GAUGE, (),
               "Bytes that the last cleanings wrote, in percent of the bytes they read."),
    MetricSpec("kafka_log_logcleaner_maxcleantimesecs", GAUGE, (), "Seconds of the longest of the last cleanings."),
    MetricSpec("kafka_log_logcleaner_deadthreadcount", GAUGE, (), "Cleaner threads that have ended."),
    MetricSpec("kafka_log_logcleaner_maxbufferutilizationpercent", GAUGE, (),
               "Fill of the fullest key map of the last cleanings, in percent."),
    MetricSpec("kafka_log_logcleanermanager_timesincelastrunms", GAUGE, (),
               "ms since a cleaner thread last looked for work."),
    MetricSpec("kafka_server_replicamanager_partitioncount", GAUGE, (), "Partitions on this broker."),
    MetricSpec("kafka_server_replicamanager_leadercount", GAUGE, (), "Partitions this broker leads."),
    MetricSpec("kafka_server_replicamanager_offlinereplicacount", GAUGE, (),
               "Partitions on this broker with a failed log."),
    MetricSpec("kafka_server_replicamanager_underreplicatedpartitions", GAUGE, (),
               "Partitions led here with fewer replicas in sync than assigned."),
    MetricSpec("kafka_server_replicamanager_underminisrpartitioncount", GAUGE, (),
               "Partitions led here with fewer replicas in sync than min.insync.replicas."),
    MetricSpec("kafka_cluster_partition_atminisr", GAUGE, (),
               "Partitions led here with exactly min.insync.replicas in sync."),
    MetricSpec("kafka_server_replicamanager_reassigningpartitions", GAUGE, (),
               "Partitions led here whose replicas are being reassigned."),
    MetricSpec("kafka_server_replicamanager_isrexpands", COUNTER, (), "Replicas that joined an ISR led here."),
    MetricSpec("kafka_server_replicamanager_isrshrinks", COUNTER, (), "Times that an ISR led here shrank."),
    MetricSpec("kafka_server_replicamanager_failedisrupdates", COUNTER, (),
               "Changes of an ISR that the controller refused."),
    MetricSpec("kafka_server_replicafetchermanager_maxlag", GAUGE, (),
               "Records that the partition with the largest lag, of those followed here, is behind its leader."),
    MetricSpec("kafka_server_replicafetchermanager_minfetchrate", GAUGE, (),
               "Fetch requests per second of the slowest fetcher, over the last minute."),
    MetricSpec("kafka_server_replicafetchermanager_failedpartitionscount", GAUGE, (),
               "Partitions that are followed no more until their next leader epoch."),
    MetricSpec("kafka_server_replicafetchermanager_deadthreadcount", GAUGE, (),
               "Fetchers without a connection to their leader."),
    MetricSpec("kafka_server_fetcherstats_requests", COUNTER, (), "Fetch requests of this follower with an answer."),
    MetricSpec("kafka_server_brokertopicmetrics_replicationbytesin", COUNTER, (),
               "Bytes of record batches copied from leaders."),
    MetricSpec("kafka_server_fetcherlagmetrics_consumerlag", GAUGE, _PARTITION,
               "Records that a followed partition is behind its leader's high watermark."),
    MetricSpec("kafka_server_leaderreplication_byterate", GAUGE, (),
               "Bytes per second sent to throttled followers, over the windows of the replication quota."),
    MetricSpec("kafka_controller_kafkacontroller_activecontrollercount", GAUGE, (),
               "1 when this broker is the controller."),
    MetricSpec("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, (), "Topics in the cluster."),
    MetricSpec("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, (), "Partitions in the cluster."),
    MetricSpec("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE, (),
               "Partitions in the cluster without a leader."),
    MetricSpec("kafka_controller_kafkacontroller_activebrokercount", GAUGE, (), "Live brokers."),
    MetricSpec("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", GAUGE, (),
               "Partitions in the cluster that another replica than the preferred one leads."),
    MetricSpec("kafka_controller_kafkacontroller_topicstodeletecount", GAUGE, (), "Topics whose deletion has begun."),
    MetricSpec("kafka_controller_kafkacontroller_replicastodeletecount", GAUGE, (),
               "Replicas of these topics that still exist."),
    MetricSpec("kafka_controller_kafkacontroller_topicsineligibletodeletecount", GAUGE, (),
               "Topics whose deletion waits, for instance for a dead broker."),
    MetricSpec("kafka_controller_kafkacontroller_replicasineligibletodeletecount", GAUGE, (),
               "Replicas that cannot be deleted now."),
    MetricSpec("kafka_controller_kafkacontroller_controllerstate", GAUGE, (),
               "Kind of the running event, 0 without one (kafka.controller.ControllerState)."),
    MetricSpec("kafka_controller_controllereventmanager_eventqueuesize", GAUGE, (), "Events that wait."),
    MetricSpec("kafka_controller_controllerchannelmanager_totalqueuesize", GAUGE, (),
               "Requests that wait for brokers."),
    MetricSpec("kafka_controller_controllerstats_events", COUNTER, ("state",), "Events by kind."),
    MetricSpec("kafka_controller_controllerstats_rateandtimems", COUNTER, ("state",),
               "Ms that events of the kind took, in total."),
    MetricSpec("kafka_controller_controllerstats_uncleanleaderelections", COUNTER, (),
               "Leaders that were elected out of sync."),
    MetricSpec("kafka_server_kafkaserver_brokerstate", GAUGE, (),
               "State of the broker: 0 not running, 1 starting, 2 recovering, 3 running, "
               "6 pending controlled shutdown, 7 shutting down."),
    MetricSpec("kafka_network_requestmetrics_requests", COUNTER, _REQUEST, "Requests answered."),
    MetricSpec("kafka_network_requestmetrics_errors", COUNTER, _REQUEST,
               "Requests that the broker answered by closing the connection."),
    MetricSpec("kafka_network_requestmetrics_requestbytes", COUNTER, _REQUEST, "Bytes of requests."),
    MetricSpec("kafka_network_requestmetrics_responsebytes", COUNTER, _REQUEST, "Bytes of responses."),
    MetricSpec("kafka_network_requestmetrics_requestqueuetimems", COUNTER, _REQUEST,
               "Ms that requests waited for the control loop, in total."),
    MetricSpec("kafka_network_requestmetrics_localtimems", COUNTER, _REQUEST,
               "Ms that the broker worked on requests, in total."),
    MetricSpec("kafka_network_requestmetrics_remotetimems", COUNTER, _REQUEST,
               "Ms that requests waited for data or replicas, in total."),
    MetricSpec("kafka_network_requestmetrics_totaltimems", HISTOGRAM, _REQUEST,
               "Ms from a request's last byte to its response's last byte."),
    MetricSpec("kafka_network_requestmetrics_messageconversionstimems", COUNTER, _REQUEST,
               "Ms that conversions of records took, in total (Produce and Fetch)."),
    MetricSpec("kafka_network_requestmetrics_temporarymemorybytes", COUNTER, _REQUEST,
               "Bytes of temporary memory of conversions and decompression, in total (Produce and Fetch)."),
    MetricSpec("kafka_network_requestchannel_requestqueuesize", GAUGE, (), "Requests waiting for the control loop."),
    MetricSpec("kafka_network_socketserver_memorypoolused", GAUGE, (), "Bytes of requests held in memory."),
    MetricSpec("kafka_network_socketserver_memorypoolavailable", GAUGE, (),
               "Bytes left of queued.max.request.bytes; -1 without a limit."),
    MetricSpec("kafka_network_socketserver_memorypoolrefused", COUNTER, (),
               "Refused allocations of request memory; the request waits."),
    MetricSpec("kafka_network_socketserver_networkprocessoravgidlepercent", GAUGE, (),
               "Share of the time that the network threads were idle, 0 to 1."),
    MetricSpec("kafka_server_socketservermetrics_connectioncount", GAUGE, ("listener",), "Connections open now."),
    MetricSpec("kafka_server_socketservermetrics_connectioncreation", COUNTER, (), "Connections accepted."),
    MetricSpec("kafka_server_socketservermetrics_connectionclose", COUNTER, ("reason",),
               "Connections closed, by reason."),
    MetricSpec("kafka_server_socketservermetrics_successfulauthentication", COUNTER, ("listener",),
               "Connections authenticated, on listeners with TLS or SASL."),
    MetricSpec("kafka_server_socketservermetrics_failedauthentication", COUNTER, ("listener",),
               "Authentications refused, failed TLS handshakes among them."),
    MetricSpec("kafka_server_socketservermetrics_successfulreauthentication", COUNTER, ("listener",),
               "Connections authenticated again."),
    MetricSpec("kafka_server_socketservermetrics_failedreauthentication", COUNTER, ("listener",),
               "Repeated authentications refused."),
    MetricSpec("kafka_server_socketservermetrics_expiredconnectionskilled", COUNTER, ("listener",),
               "Connections closed after the end of their session."),
    MetricSpec("kafka_server_socketservermetrics_authenticationtimeout", COUNTER, ("listener",),
               "Connections closed because their handshake and authentication took too long."),
    MetricSpec("kafka_server_socketservermetrics_connections", GAUGE, ("listener", "protocol", "cipher"),
               "TLS connections open now, by TLS version and cipher suite."),
    MetricSpec("kafka_server_fetchsessioncache_numincrementalfetchsessions", GAUGE, (), "Incremental fetch sessions."),
    MetricSpec("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", GAUGE, (),
               "Partitions in incremental fetch sessions."),
    MetricSpec("kafka_server_fetchsessioncache_incrementalfetchsessionevictions", COUNTER, (),
               "Incremental fetch sessions that the broker evicted for others."),
    MetricSpec("kafka_server_produce_byterate", GAUGE, _QUOTA, "Bytes per second of Produce requests under a quota."),
    MetricSpec("kafka_server_produce_throttletime", GAUGE, _QUOTA, "Mean throttle time of Produce in ms."),
    MetricSpec("kafka_server_fetch_byterate", GAUGE, _QUOTA, "Bytes per second of Fetch responses under a quota."),
    MetricSpec("kafka_server_fetch_throttletime", GAUGE, _QUOTA, "Mean throttle time of Fetch in ms."),
    MetricSpec("kafka_server_request_requesttime", GAUGE, _QUOTA,
               "Thread time of requests under a quota, in percent of one thread."),
    MetricSpec("kafka_server_request_throttletime", GAUGE, _QUOTA, "Mean throttle time by thread time in ms."),
    MetricSpec("kafka_server_request_exemptrequesttime", GAUGE, (),
               "Thread time of requests that are not throttled, in percent of one thread; 0 without request quotas."),
    MetricSpec("kafka_server_controllermutation_mutations", COUNTER, _QUOTA,
               "Partitions created and deleted under a quota."),
    MetricSpec("kafka_server_controllermutation_tokens", GAUGE, _QUOTA,
               "Partitions that a client may create or delete at once."),
    MetricSpec("kafka_server_controllermutation_throttletime", GAUGE, _QUOTA,
               "Mean throttle time by controller mutations in ms."),
    MetricSpec("kafka_server_socketservermetrics_connectioncreationrate", GAUGE, ("listener",),
               "Connections per second, over the windows of quotas."),
    MetricSpec("kafka_server_socketservermetrics_connectionratethrottletime", COUNTER, ("listener",),
               "Ms by which connection rates of broker and listener delayed connections, in total."),
    MetricSpec("kafka_server_socketservermetrics_ipconnectionratethrottletime", COUNTER, ("listener",),
               "Ms that connections of addresses above their rate waited for their close, in total."),
    MetricSpec("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE, ("protocol", "state"),
               "Groups coordinated here, by protocol and state."),
    MetricSpec("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE, (),
               "Committed offsets held for the groups coordinated here."),
    MetricSpec("kafka_server_groupcoordinatormetrics_groupcount", GAUGE, ("protocol",), "Groups by protocol."),
    MetricSpec("kafka_server_groupcoordinatormetrics_consumergroupcount", GAUGE, ("state",),
               "Groups of the consumer protocol by state."),
    MetricSpec("kafka_server_groupcoordinatormetrics_partitioncount", GAUGE, ("state",),
               "Partitions of __consumer_offsets coordinated here, by loading state."),
    MetricSpec("kafka_server_groupcoordinatormetrics_consumergrouprebalance", COUNTER, (),
               "Group epochs begun in groups of the consumer protocol."),
    MetricSpec("kafka_server_groupcoordinatormetrics_groupcompletedrebalance", COUNTER, (),
               "Completed rebalances of groups of the classic protocol."),
    MetricSpec("kafka_server_groupcoordinatormetrics_offsetcommit", COUNTER, (), "Offsets committed."),
    MetricSpec("kafka_server_groupcoordinatormetrics_offsetexpiration", COUNTER, (), "Expired offsets."),
    MetricSpec("kafka_server_groupcoordinatormetrics_offsetdeletion", COUNTER, (),
               "Offsets that administrators deleted."),
    MetricSpec("kafka_coordinator_transaction_transactionstatemanager_numtransactionalids", GAUGE, ("state",),
               "Transactional ids coordinated here, by the state of their transaction."),
    MetricSpec("kafka_coordinator_transaction_transactionmarkerchannelmanager_unfinishedtransactions", GAUGE, (),
               "Decided transactions without markers in all of their partitions yet."),
    MetricSpec("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize", GAUGE, (),
               "Markers for partitions that cannot take them yet."),
    MetricSpec("kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize", GAUGE, (),
               "Transactions with all markers whose last record waits for a retry."),
    MetricSpec("kafka_server_transaction_coordinator_metrics_partition_load_time_max", GAUGE, (),
               "Longest loading time of a partition of __transaction_state since the start, in ms."),
    MetricSpec("kafka_server_transaction_coordinator_metrics_partition_load_time_avg", GAUGE, (),
               "Mean loading time of partitions of __transaction_state since the start, in ms."),
    MetricSpec("kafka_server_addpartitionstotxnmanager_verificationfailure", COUNTER, (),
               "Partitions that the transaction coordinator did not confirm for a transaction."),
    MetricSpec("kafka_server_addpartitionstotxnmanager_verificationtimems", HISTOGRAM, (),
               "Ms that verifications of partitions in transactions took."),
    MetricSpec("kafkapy_controlloop_lagms", GAUGE, (), "Ms by which the control loop was late at its last beat."),
    MetricSpec("kafkapy_controlloop_maxlagms", GAUGE, (), "Largest lag of the control loop since the start, in ms."),
    MetricSpec("kafkapy_eventqueue_dropped", COUNTER, (),
               "Log lines that the data plane dropped because too many came at once."),
)  # fmt: skip
"""Every metric, in the order it is exposed."""

_TOPIC_COUNTERS: Final = {
    "messagesin": "messages_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "bytesrejected": "bytes_rejected",
    "totalproducerequests": "produce_requests",
    "totalfetchrequests": "fetch_requests",
    "failedproducerequests": "failed_produce_requests",
    "failedfetchrequests": "failed_fetch_requests",
}
_API_COUNTERS: Final = {
    "requests": ("requests", 1.0),
    "errors": ("errors", 1.0),
    "requestbytes": ("request_bytes", 1.0),
    "responsebytes": ("response_bytes", 1.0),
    "requestqueuetimems": ("queue_ns", NS_PER_MS),
    "localtimems": ("local_ns", NS_PER_MS),
    "remotetimems": ("remote_ns", NS_PER_MS),
}
_AUTHENTICATION_COUNTERS: Final = {
    "successfulauthentication": "authenticated",
    "failedauthentication": "failed",
    "successfulreauthentication": "reauthenticated",
    "failedreauthentication": "reauthentication_failed",
    "expiredconnectionskilled": "expired",
    "authenticationtimeout": "timed_out",
}


class MeasuredBroker(Protocol):
    """The parts of a KafkaServer that have numbers."""

    context: BrokerContext
    conversions: ConversionCounts
    loop_lag: LoopLag
    socket_server: SocketServer
    state: BrokerState


class BrokerCollector(Collector):
    """Reads the broker's numbers when Prometheus asks.

    Registered by the metrics listener, called on its thread: everything it touches is either a counter of the data
    plane or replaced as a whole by the control plane.
    """

    def __init__(self, server: MeasuredBroker) -> None:
        self._server = server
        self._gone: dict[tuple[str, str], int] = {}

    def collect(self) -> Iterable[Metric]:
        """Every metric of METRICS with its samples, in that order."""
        families = {spec.name: _family(spec) for spec in METRICS}

        def add(name: str, value: float, *labels: str) -> None:
            families[name].add_metric(labels, value)

        self._logs(add)
        self._replicas(add)
        self._controller(add)
        self._requests(add, families["kafka_network_requestmetrics_totaltimems"])
        self._groups(add)
        self._group_coordinator(add)
        self._transactions(add, families["kafka_server_addpartitionstotxnmanager_verificationtimems"])
        self._network(add)
        add_quotas(add, self._server.context.client_quotas)
        return list(families.values())

    def describe(self) -> Iterable[Metric]:
        """The names alone, so that registering does not collect."""
        return [_family(spec) for spec in METRICS]

    def _logs(self, add: Any) -> None:
        topics: dict[str, dict[str, int]] = {}
        for log in self._server.context.log_manager.logs().values():
            totals = topics.setdefault(log.topic, {})
            for name, value in log.counters().items():
                totals[name] = totals.get(name, 0) + value
            partition = str(log.partition)
            start, end = log.log_start_offset, log.log_end_offset
            add("kafka_log_log_size", log.size, log.topic, partition)
            add("kafka_log_log_numlogsegments", len(log.segments()), log.topic, partition)
            add("kafka_log_log_logstartoffset", start, log.topic, partition)
            add("kafka_log_log_logendoffset", end, log.topic, partition)
        for topic, totals in topics.items():
            for name, counter in _TOPIC_COUNTERS.items():
                add(f"kafka_server_brokertopicmetrics_{name}", totals.get(counter, 0), topic)
        for (api_title, topic), records in self._server.conversions.records().items():
            add(f"kafka_server_brokertopicmetrics_{api_title.lower()}messageconversions", records, topic)
        add("kafka_log_logmanager_offlinelogdirectorycount", len(self._server.context.log_manager.offline_dirs))
        for name, figure in self._server.context.log_manager.cleaner.figures().items():
            add(name, figure)

    def _replicas(self, add: Any) -> None:
        server = self._server
        replicas = server.context.replica_manager
        hosted = leaders = offline = under_replicated = under_min_isr = at_min_isr = reassigning = 0
        for log in server.context.log_manager.logs().values():
            hosted += 1
            offline += bool(log.offline_errno)
        for partition in replicas.partitions.values():
            assignment, led = partition.assignment, partition.log
            if assignment is None or led is None or not partition.is_leader:
                continue
            leaders += 1
            in_sync = len(assignment.state.isr)
            # New replicas of a reassignment do not make a partition under-replicated.
            under_replicated += in_sync < len(set(assignment.replicas) - set(assignment.adding))
            under_min_isr += in_sync < led.min_in_sync_replicas
            at_min_isr += in_sync == led.min_in_sync_replicas
            reassigning += bool(assignment.adding or assignment.removing)
        add("kafka_server_replicamanager_partitioncount", hosted)
        add("kafka_server_replicamanager_leadercount", leaders)
        add("kafka_server_replicamanager_offlinereplicacount", offline)
        add("kafka_server_replicamanager_underreplicatedpartitions", under_replicated)
        add("kafka_server_replicamanager_underminisrpartitioncount", under_min_isr)
        add("kafka_cluster_partition_atminisr", at_min_isr)
        add("kafka_server_replicamanager_reassigningpartitions", reassigning)
        isr = replicas.isr
        add("kafka_server_replicamanager_isrexpands", 0 if isr is None else isr.expands)
        add("kafka_server_replicamanager_isrshrinks", 0 if isr is None else isr.shrinks)
        add("kafka_server_replicamanager_failedisrupdates", 0 if isr is None else isr.failed)
        if replicas.fetchers is not None:
            fetchers = replicas.fetchers.metrics()
            add("kafka_server_replicafetchermanager_maxlag", max(fetchers.max_lag, 0))
            add("kafka_server_replicafetchermanager_minfetchrate", fetchers.min_fetch_rate)
            add("kafka_server_replicafetchermanager_failedpartitionscount", fetchers.failed_partitions)
            add("kafka_server_replicafetchermanager_deadthreadcount", fetchers.dead_threads)
            add("kafka_server_fetcherstats_requests", fetchers.requests)
            add("kafka_server_brokertopicmetrics_replicationbytesin", fetchers.bytes_in)
            for followed, lag in replicas.fetchers.lags().items():
                if lag >= 0:
                    add("kafka_server_fetcherlagmetrics_consumerlag", lag, followed.topic, str(followed.partition))
        add("kafka_server_leaderreplication_byterate", replicas.replication.leader_throughput())
        add("kafka_server_kafkaserver_brokerstate", server.state.value)

    def _controller(self, add: Any) -> None:
        context = self._server.context
        topics = context.metadata_cache.snapshot.topics
        partitions = [partition for topic in topics.values() for partition in topic.partitions.values()]
        add("kafka_controller_kafkacontroller_activecontrollercount", int(context.controller.is_active))
        add("kafka_controller_kafkacontroller_globaltopiccount", len(topics))
        add("kafka_controller_kafkacontroller_globalpartitioncount", len(partitions))
        add(
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            sum(partition.leader < 0 for partition in partitions),
        )
        prefix = "kafka_controller_kafkacontroller"
        numbers, stats = context.controller.numbers(), context.controller.stats
        add(f"{prefix}_activebrokercount", numbers.active_brokers)
        add(f"{prefix}_preferredreplicaimbalancecount", numbers.preferred_replica_imbalance)
        add(f"{prefix}_topicstodeletecount", numbers.topics_to_delete)
        add(f"{prefix}_replicastodeletecount", numbers.replicas_to_delete)
        add(f"{prefix}_topicsineligibletodeletecount", numbers.ineligible_topics_to_delete)
        add(f"{prefix}_replicasineligibletodeletecount", numbers.ineligible_replicas_to_delete)
        add(f"{prefix}_controllerstate", stats.state)
        add("kafka_controller_controllereventmanager_eventqueuesize", context.controller.queued_events)
        add("kafka_controller_controllerchannelmanager_totalqueuesize", numbers.queued_requests)
        for state, count in stats.counts.items():
            add("kafka_controller_controllerstats_events", count, state)
            add("kafka_controller_controllerstats_rateandtimems", 1000 * stats.seconds[state], state)
        add("kafka_controller_controllerstats_uncleanleaderelections", stats.unclean_elections)

    def _groups(self, add: Any) -> None:
        coordinator = self._server.context.coordinators.group
        for (protocol, state), count in coordinator.count_states().items():
            add("kafka_coordinator_group_groupmetadatamanager_numgroups", count, protocol.value, state)
        add("kafka_coordinator_group_groupmetadatamanager_numoffsets", coordinator.count_offsets())

    def _group_coordinator(self, add: Any) -> None:
        coordinator = self._server.context.coordinators.group
        prefix = "kafka_server_groupcoordinatormetrics"
        protocols = dict.fromkeys(GroupType, 0)
        states = dict.fromkeys(ConsumerGroupState, 0)
        for (protocol, state), count in coordinator.count_states().items():
            protocols[protocol] += count
            if protocol is GroupType.CONSUMER:
                states[ConsumerGroupState(state)] += count
        for kind, total in protocols.items():
            add(f"{prefix}_groupcount", total, kind.value)
        for each, total in states.items():
            add(f"{prefix}_consumergroupcount", total, each.value.lower())
        loaded = list(coordinator.runtime.states().values())
        for shard_state in ShardState:
            add(f"{prefix}_partitioncount", loaded.count(shard_state), shard_state.value.lower())
        counters = coordinator.counters
        add(f"{prefix}_consumergrouprebalance", counters.consumer_rebalances)
        add(f"{prefix}_groupcompletedrebalance", counters.completed_rebalances)
        add(f"{prefix}_offsetcommit", counters.offset_commits)
        add(f"{prefix}_offsetexpiration", counters.offset_expirations)
        add(f"{prefix}_offsetdeletion", counters.offset_deletions)

    def _transactions(self, add: Any, verification_times: Any) -> None:
        coordinator = self._server.context.coordinators.transaction
        for state, count in coordinator.count_states().items():
            add("kafka_coordinator_transaction_transactionstatemanager_numtransactionalids", count, state)
        add(
            "kafka_coordinator_transaction_transactionmarkerchannelmanager_unfinishedtransactions",
            len(coordinator.completions),
        )
        queues = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
        add(f"{queues}_unknowndestinationqueuesize", coordinator.completions.waiting_markers)
        add(f"{queues}_logappendretryqueuesize", coordinator.completions.waiting_ends)
        loads = coordinator.runtime.load_times
        add("kafka_server_transaction_coordinator_metrics_partition_load_time_max", loads.max_ms)
        mean = loads.total_ms / loads.count if loads.count else 0
        add("kafka_server_transaction_coordinator_metrics_partition_load_time_avg", mean)
        verification = self._server.context.coordinators.verification
        add("kafka_server_addpartitionstotxnmanager_verificationfailure", verification.failures)
        buckets, so_far = [], 0
        for power, count in enumerate(verification.times.buckets):
            so_far += count
            buckets.append((str(2**power), so_far))  # bucket n holds what took less than 2**n ms
        verification_times.add_metric((), [*buckets[:-1], ("+Inf", so_far)], verification.times.total_ms)

    def _requests(self, add: Any, histogram: Any) -> None:
        for key, counters in self._server.socket_server.counters()["apis"].items():
            try:
                title = ApiKeys(key).title
            except ValueError:
                title = f"Unknown{key}"
            for name, (counter, scale) in _API_COUNTERS.items():
                add(f"kafka_network_requestmetrics_{name}", counters[counter] / scale, title)
            buckets, so_far = [], 0
            for power, count in enumerate(counters["total_histogram"]):
                so_far += count
                buckets.append((str(2**power / 1000), so_far))  # bucket n holds what took less than 2**n microseconds
            histogram.add_metric((title,), [*buckets, ("+Inf", so_far)], counters["total_ns"] / NS_PER_MS)
        for title, (spent_ms, memory) in self._server.conversions.price().items():
            add("kafka_network_requestmetrics_messageconversionstimems", spent_ms, title)
            add("kafka_network_requestmetrics_temporarymemorybytes", memory, title)

    def _network(self, add: Any) -> None:
        server = self._server
        channel = server.socket_server.request_channel
        counters = server.socket_server.counters()
        add("kafka_network_requestchannel_requestqueuesize", counters["request_channel"]["queue_size"])
        pool = counters["memory_pool"]
        add("kafka_network_socketserver_memorypoolused", pool["used"])
        add("kafka_network_socketserver_memorypoolavailable", pool["free"] if pool["limit"] > 0 else -1)
        add("kafka_network_socketserver_memorypoolrefused", pool["refused"])
        idle = counters["processor_idle_ratio"]
        add("kafka_network_socketserver_networkprocessoravgidlepercent", idle)
        for listener, count in counters["listeners"].items():
            add("kafka_server_socketservermetrics_connectioncount", count, listener)
        for listener, (rate, throttled_ms, address_ms) in counters["creation_rates"].items():
            add("kafka_server_socketservermetrics_connectioncreationrate", rate, listener)
            add("kafka_server_socketservermetrics_connectionratethrottletime", throttled_ms, listener)
            add("kafka_server_socketservermetrics_ipconnectionratethrottletime", address_ms, listener)
        for name, value in counters["connections"].items():
            if name == "created":
                add("kafka_server_socketservermetrics_connectioncreation", value)
            elif name != "current":
                add("kafka_server_socketservermetrics_connectionclose", value, name.removeprefix("closed_"))
        self._authentication(add, counters["authentication"])
        sessions = channel.plane.fetch_session_cache.counters()
        add("kafka_server_fetchsessioncache_numincrementalfetchsessions", sessions["sessions"])
        add("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", sessions["partitions"])
        add("kafka_server_fetchsessioncache_incrementalfetchsessionevictions", sessions["evictions"])
        lag = server.loop_lag
        add("kafkapy_controlloop_lagms", lag.last_ms)
        add("kafkapy_controlloop_maxlagms", lag.max_ms)
        add("kafkapy_eventqueue_dropped", channel.plane.event_queue.dropped)

    def _authentication(self, add: Any, listeners: Mapping[str, Mapping[str, int]]) -> None:
        for listener, counters in listeners.items():
            for name, counter in _AUTHENTICATION_COUNTERS.items():
                add(f"kafka_server_socketservermetrics_{name}", counters[counter], listener)
        if listeners:
            connections = Counter(
                (each["listener_name"], each["tls_protocol"], each["cipher_suite"])
                for each in self._server.socket_server.connections()
                if each["tls_protocol"]
            )
            for labels, count in connections.items():
                add("kafka_server_socketservermetrics_connections", count, *labels)


def _family(spec: MetricSpec) -> Any:
    if spec.kind == COUNTER:
        return CounterMetricFamily(spec.name, spec.doc, labels=spec.labels)
    if spec.kind == GAUGE:
        return GaugeMetricFamily(spec.name, spec.doc, labels=spec.labels)
    return HistogramMetricFamily(spec.name, spec.doc, labels=spec.labels)


def reference() -> Iterator[str]:
    """The lines of docs/metrics.md."""
    yield "# Metrics"
    yield ""
    yield (
        "With `metrics.listeners=host:port` the broker serves these at `http://host:port/metrics` in Prometheus's text "
        "format, beside the process and Python metrics of prometheus_client. Names follow Apache Kafka's MBeans. "
        "`python -m kafkapy.broker.metrics` writes this page."
    )
    yield ""
    yield "| name | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for spec in METRICS:
        labels = ", ".join(spec.labels) or "-"
        yield f"| `{spec.exposed_name}` | {spec.kind} | {labels} | {spec.doc} |"


if __name__ == "__main__":
    print("\n".join(reference()))
