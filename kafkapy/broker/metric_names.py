"""The table of the metrics: names, kinds, labels and documentation.

docs/metrics.md is made from it.

Names follow Apache Kafka's MBeans as the JMX exporter's common rules spell them, and kafka_exporter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


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


_TOPIC, _PARTITION, _REQUEST, _GROUP = ("topic",), ("topic", "partition"), ("request",), ("consumergroup",)
_QUOTA = ("user", "client_id")

METRICS: Final = (
    MetricSpec("kafka_server_brokertopicmetrics_messagesin", COUNTER, _TOPIC,
               "Records appended. An empty topic is all topics, here and below."),
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
    MetricSpec("kafka_log_logflushstats_logflushrateandtimems", HISTOGRAM, (), "Ms that flushes of a log took."),
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
    MetricSpec("kafka_brokers", GAUGE, (), "Live brokers; from the controller."),
    MetricSpec("kafka_broker_info", GAUGE, ("id", "address"), "1 for each live broker; from the controller."),
    MetricSpec("kafka_topic_partitions", GAUGE, _TOPIC, "Partitions of a topic; from the controller."),
    MetricSpec("kafka_topic_partition_current_offset", GAUGE, _PARTITION,
               "High watermark of a partition; from its leader."),
    MetricSpec("kafka_topic_partition_oldest_offset", GAUGE, _PARTITION,
               "First offset of a partition; from its leader."),
    MetricSpec("kafka_topic_partition_leader", GAUGE, _PARTITION,
               "Id of a partition's leader; from the leader, and from the controller where it is -1."),
    MetricSpec("kafka_topic_partition_leader_is_preferred", GAUGE, _PARTITION,
               "1 when the first replica of a partition leads it; from the same broker."),
    MetricSpec("kafka_topic_partition_replicas", GAUGE, _PARTITION, "Replicas of a partition; from the same broker."),
    MetricSpec("kafka_topic_partition_in_sync_replica", GAUGE, _PARTITION,
               "Replicas of a partition in sync; from the same broker."),
    MetricSpec("kafka_topic_partition_under_replicated_partition", GAUGE, _PARTITION,
               "1 when fewer replicas are in sync than assigned; from the same broker."),
    MetricSpec("kafka_consumergroup_members", GAUGE, _GROUP, "Members of a group; from its coordinator."),
    MetricSpec("kafka_consumergroup_current_offset", GAUGE, (*_GROUP, *_PARTITION),
               "Committed offset of a group; from its coordinator."),
    MetricSpec("kafka_consumergroup_current_offset_sum", GAUGE, (*_GROUP, *_TOPIC),
               "Sum of a group's committed offsets in a topic."),
    MetricSpec("kafka_consumergroup_lag", GAUGE, (*_GROUP, *_PARTITION),
               "Records between a group's committed offset and the high watermark; where this broker has a replica."),
    MetricSpec("kafka_consumergroup_lag_sum", GAUGE, (*_GROUP, *_TOPIC), "Sum of a group's lags in a topic."),
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
    MetricSpec("kafka_network_requestmetrics_requestqueuetimems", HISTOGRAM, _REQUEST,
               "Ms that requests waited for the control loop."),
    MetricSpec("kafka_network_requestmetrics_localtimems", HISTOGRAM, _REQUEST,
               "Ms that the broker worked on requests."),
    MetricSpec("kafka_network_requestmetrics_remotetimems", HISTOGRAM, _REQUEST,
               "Ms that requests waited for data or replicas."),
    MetricSpec("kafka_network_requestmetrics_responsequeuetimems", HISTOGRAM, _REQUEST,
               "Ms that responses waited for the network thread."),
    MetricSpec("kafka_network_requestmetrics_responsesendtimems", HISTOGRAM, _REQUEST,
               "Ms from the first to the last write of a response."),
    MetricSpec("kafka_network_requestmetrics_throttletimems", HISTOGRAM, _REQUEST,
               "Ms that connections were muted after their response, for a quota."),
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
               "Share of the last minute that the network threads were idle, 0 to 1."),
    MetricSpec("kafka_network_socketserver_networkprocessoravgidle_percent", GAUGE, (),
               "The same, under the name that the JMX exporter's rules give it."),
    MetricSpec("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent", GAUGE, (),
               "Share of the last minute that the control loop's thread was idle, 0 to 1."),
    MetricSpec("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", GAUGE, (),
               "The same, under the name that the JMX exporter's rules give it."),
    MetricSpec("kafkapy_workerpool_avgidlepercent", GAUGE, (),
               "Share of the last minute that the validation workers were idle, 0 to 1."),
    MetricSpec("kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE, ("delayedOperation",),
               "Produce and Fetch requests that wait for replicas or data."),
    MetricSpec("kafka_server_delayedoperationpurgatory_numdelayedoperations", GAUGE, ("delayedOperation",),
               "The same: a request leaves the purgatory when it completes."),
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
    MetricSpec("kafka_server_sharesessioncache_sharesessionscount", GAUGE, (), "Share sessions."),
    MetricSpec("kafka_server_sharesessioncache_sharepartitionscount", GAUGE, (), "Partitions in share sessions."),
    MetricSpec("kafka_server_sharesessioncache_sharesessionevictions", COUNTER, (),
               "Share sessions that ended with their connection."),
    MetricSpec("kafka_server_sharegroupmetrics_shareacknowledgement", COUNTER, (),
               "Requests with acknowledgements of share groups."),
    MetricSpec("kafka_server_sharegroupmetrics_recordacknowledgement", COUNTER, ("type",),
               "Acknowledgements of share groups: one for each type of each batch."),
    MetricSpec("kafkapy_sharepartitions_count", GAUGE, (), "Share partitions that this broker leads and has loaded."),
    MetricSpec("kafkapy_sharepartitions_acquiredrecords", COUNTER, (), "Records that share groups acquired."),
    MetricSpec("kafkapy_sharepartitions_loads", COUNTER, (), "States of share partitions that were read."),
    MetricSpec("kafkapy_sharepartitions_loadfailures", COUNTER, (), "Reads of states that failed."),
    MetricSpec("kafkapy_sharepartitions_writes", COUNTER, (), "States of share partitions that were written."),
    MetricSpec("kafkapy_sharepartitions_writefailures", COUNTER, (), "Writes of states that failed."),
    MetricSpec("kafkapy_sharepartitions_timeouts", COUNTER, (),
               "Looks at share partitions that found locks whose time was over."),
    MetricSpec("kafka_server_produce_byterate", GAUGE, _QUOTA,
               "Bytes per second of Produce requests, while any client has a quota of them."),
    MetricSpec("kafka_server_produce_throttletime", GAUGE, _QUOTA, "Mean throttle time of Produce in ms."),
    MetricSpec("kafka_server_fetch_byterate", GAUGE, _QUOTA,
               "Bytes per second of Fetch responses, while any client has a quota of them."),
    MetricSpec("kafka_server_fetch_throttletime", GAUGE, _QUOTA, "Mean throttle time of Fetch in ms."),
    MetricSpec("kafka_server_request_requesttime", GAUGE, _QUOTA,
               "Thread time of requests in percent of one thread, while any client has a quota of it."),
    MetricSpec("kafka_server_request_throttletime", GAUGE, _QUOTA, "Mean throttle time by thread time in ms."),
    MetricSpec("kafka_server_request_exemptrequesttime", GAUGE, (),
               "Thread time of requests that are not throttled, in percent of one thread; 0 without request quotas."),
    MetricSpec("kafka_server_controllermutation_mutations", COUNTER, _QUOTA,
               "Partitions created and deleted, while any client has a quota of them."),
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
    MetricSpec("kafka_server_client_metrics_instance_count", GAUGE, (),
               "Clients that asked for a subscription to their metrics or pushed them lately (KIP-714)."),
    MetricSpec("kafka_server_client_metrics_unknown_subscription_request", COUNTER, (),
               "Pushes with the id of a former subscription."),
    MetricSpec("kafka_server_client_metrics_throttle", COUNTER, (),
               "Requests for subscriptions, and pushes, before they were due."),
    MetricSpec("kafka_server_client_metrics_plugin_export", COUNTER, (), "Pushes that plugins took, by each of them."),
    MetricSpec("kafka_server_client_metrics_plugin_error", COUNTER, (), "Pushes that a plugin failed to take."),
    MetricSpec("kafka_server_client_metrics_plugin_export_timems", COUNTER, (), "Ms that plugins took for pushes."),
    MetricSpec("kafkapy_clienttelemetry_series", GAUGE, (), "Series of clients' metrics."),
    MetricSpec("kafkapy_clienttelemetry_pointsdropped", COUNTER, (),
               "Points of pushes that were left out: for kafkapy.client.telemetry.max.series, or for their name."),
    MetricSpec("kafkapy_build_info", GAUGE, ("version", "python"), "1, with the versions of the broker and of Python."),
    MetricSpec("kafkapy_metrics_seriesdropped", GAUGE, (),
               "Series by partition or client that the last scrape left out for kafkapy.metrics.max.series."),
    MetricSpec("kafkapy_controlloop_lagms", GAUGE, (), "Ms by which the control loop was late at its last beat."),
    MetricSpec("kafkapy_controlloop_maxlagms", GAUGE, (), "Largest lag of the control loop since the start, in ms."),
    MetricSpec("kafkapy_eventqueue_dropped", COUNTER, (),
               "Log lines that the data plane dropped because too many came at once."),
)  # fmt: skip
"""Every metric, in the order it is exposed."""


def family(spec: MetricSpec) -> Any:
    """The metric without samples."""
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
        "`python -m kafkapy.broker.metric_names` writes this page."
    )
    yield ""
    yield "| name | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for spec in METRICS:
        labels = ", ".join(spec.labels) or "-"
        yield f"| `{spec.exposed_name}` | {spec.kind} | {labels} | {spec.doc} |"


if __name__ == "__main__":
    print("\n".join(reference()))
