"""The broker's metrics, for Prometheus.

`METRICS` (metric_names.py) is the one table of names. `BrokerCollector` fills it from the data plane's counters and the
control plane's state when it is asked, and costs nothing otherwise. Kafka's times in ms are histograms here, from which
Prometheus computes means, rates and quantiles.
"""

from __future__ import annotations

import platform
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kafkapy._speedups.log.cut import flush_times
from kafkapy.broker.metric_names import METRICS, family
from kafkapy.broker.metric_samples import Filter, Samples
from kafkapy.broker.quota_metrics import add_quotas
from kafkapy.broker.share_metrics import add_shares
from kafkapy.broker.telemetry_metrics import add_clients
from kafkapy.broker.topic_metrics import add_groups, add_topics
from kafkapy.coordinator.group.consumer.group import ConsumerGroupState
from kafkapy.coordinator.group.group import GroupType
from kafkapy.coordinator.group.share.group import ShareGroupState
from kafkapy.coordinator.hosted import ShardState
from kafkapy.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from kafkapy.protocol.registry import ApiKeys
from kafkapy.version import __version__

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy.broker.broker_state import BrokerState
    from kafkapy.broker.context import BrokerContext
    from kafkapy.broker.loop_lag import LoopLag
    from kafkapy.broker.message_conversion import ConversionCounts
    from kafkapy.network.socket_server import SocketServer

NS_PER_MS: Final = 1e6

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
    "requests": "requests",
    "errors": "errors",
    "requestbytes": "request_bytes",
    "responsebytes": "response_bytes",
}
_API_TIMES: Final = {
    "requestqueuetimems": "queue",
    "localtimems": "local",
    "remotetimems": "remote",
    "responsequeuetimems": "response_queue",
    "responsesendtimems": "send",
    "throttletimems": "throttle",
}
"""The parts of Processor.counters' times by Kafka's names."""
_AUTHENTICATION_COUNTERS: Final = {
    "successfulauthentication": "authenticated",
    "failedauthentication": "failed",
    "successfulreauthentication": "reauthenticated",
    "failedreauthentication": "reauthentication_failed",
    "expiredconnectionskilled": "expired",
    "authenticationtimeout": "timed_out",
}


BUCKETS: Final = range(6, 26, 2)
"""The powers of two, in microseconds, that bound the buckets of a histogram: 64 us to 17 s."""
TOTAL_BUCKETS: Final = range(5, 26)
"""The same for the whole time of a request, where quantiles are read most: 32 us to 34 s."""
WINDOW_S: Final = 60.0
"""The time that a share covers, as far as scrapes are that close."""


class Share:
    """A part of a growing whole over the last minute, as Kafka's idle ratios."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float, float]] = deque([(0.0, 0.0, 0.0)])

    def over_the_window(self, now_s: float, part: float, whole: float) -> float:
        """The share, 0 to 1, since the last look that is a window old.

        It is 1 before anything was.
        """
        while len(self._seen) > 1 and self._seen[1][0] <= now_s - WINDOW_S:
            self._seen.popleft()
        _, part_before, whole_before = self._seen[0]
        if whole < whole_before:
            part_before = whole_before = 0.0  # threads were replaced
            self._seen.clear()
        if not self._seen or self._seen[-1][0] < now_s - 1:
            self._seen.append((now_s, part, whole))
        passed = whole - whole_before
        return min(max((part - part_before) / passed, 0.0), 1.0) if passed > 0 else 1.0


def bucket_counts(counts: Sequence[int], without: int, powers: Iterable[int]) -> list[int]:
    """Cumulative counts below 2**power microseconds, and of all.

    `without` is the number of times that are zero.
    """
    so_far = [without]
    for count in counts:
        so_far.append(so_far[-1] + count)
    return [*(so_far[power + 1] for power in powers), so_far[-1]]


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
        """Made on the control loop's thread, whose idle time is shown."""
        self._server = server
        self._scraping = threading.Lock()
        """One scrape at a time: several would only take turns at the GIL."""
        self._control_clock = time.pthread_getcpuclockid(threading.get_ident())
        self._started_s = time.monotonic()
        self._control_idle, self._network_idle, self._worker_idle = Share(), Share(), Share()
        self._shown: dict[tuple[str, str], list[int]] = {}
        self._topic_counts: dict[int, dict[str, int]] = {}
        self._gone: Counter[str] = Counter()

    def collect(self) -> Iterable[Metric]:
        """Every metric of METRICS with its samples, in that order.

        A caller that drops each frees it before the next.
        """
        with self._scraping:
            found = self._collect()
        found.reverse()
        while found:
            yield found.pop()

    def _collect(self) -> list[Metric]:
        config = self._server.context.config
        topics = Filter(
            config.get_str("kafkapy.metrics.topic.include"), config.get_str("kafkapy.metrics.topic.exclude")
        )
        groups = Filter(
            config.get_str("kafkapy.metrics.group.include"), config.get_str("kafkapy.metrics.group.exclude")
        )
        samples = Samples(config.get_int("kafkapy.metrics.max.series"))
        add, families = samples.add, samples.families
        logs = self._server.context.log_manager.logs()
        self._logs(samples, logs.values(), topics)
        add_topics(samples, self._server.context, logs, topics)
        self._replicas(samples, logs.values(), topics)
        self._controller(add)
        self._requests(add, families)
        self._groups(add)
        self._group_coordinator(add)
        add_groups(samples, self._server.context, logs, topics, groups)
        self._transactions(add, families["kafka_server_addpartitionstotxnmanager_verificationtimems"])
        self._share(add)
        self._network(add)
        add_quotas(samples, self._server.context.client_quotas)
        add_clients(add, self._server.context.telemetry)
        add("kafkapy_build_info", 1, __version__, platform.python_version())
        add("kafkapy_metrics_seriesdropped", samples.dropped)
        return list(families.values())

    def describe(self) -> Iterable[Metric]:
        """The names alone, so that registering does not collect."""
        return [family(spec) for spec in METRICS]

    def _logs(self, samples: Samples, logs: Iterable[PartitionLog], shown: Filter) -> None:
        topics: dict[str, dict[str, int]] = {}
        seen: dict[int, dict[str, int]] = {}
        for log in logs:
            counters = seen[log.id] = log.counters()
            if not shown(log.topic):
                samples.step()
                continue
            totals = topics.setdefault(log.topic, {})
            for name, value in counters.items():
                totals[name] = totals.get(name, 0) + value
            partition = str(log.partition)
            for name, value in (
                ("size", log.size),
                ("numlogsegments", len(log.segments())),
                ("logstartoffset", log.log_start_offset),
                ("logendoffset", log.log_end_offset),
            ):
                samples.add_bounded(f"kafka_log_log_{name}", value, log.topic, partition)
        for log_id in self._topic_counts.keys() - seen.keys():
            self._gone.update(self._topic_counts[log_id])
        self._topic_counts = seen
        topics[""] = dict(self._gone)
        for counters in seen.values():
            samples.step()
            for name, value in counters.items():
                topics[""][name] = topics[""].get(name, 0) + value
        add = samples.add
        for topic, totals in topics.items():
            for name, counter in _TOPIC_COUNTERS.items():
                add(f"kafka_server_brokertopicmetrics_{name}", totals.get(counter, 0), topic)
        for (api_title, topic), records in self._server.conversions.records().items():
            if shown(topic):
                add(f"kafka_server_brokertopicmetrics_{api_title.lower()}messageconversions", records, topic)
        name = "kafka_log_logflushstats_logflushrateandtimems"
        total_ns, counts = flush_times()
        self._histogram(samples.families[name], name, "", counts, 0, total_ns, BUCKETS)
        add("kafka_log_logmanager_offlinelogdirectorycount", len(self._server.context.log_manager.offline_dirs))
        for name, figure in self._server.context.log_manager.cleaner.figures().items():
            add(name, figure)

    def _histogram(
        self, into: Any, name: str, label: str, counts: Sequence[int], without: int, total_ns: int, powers: range
    ) -> None:
        """Add a histogram of the data plane.

        Its counters are read one after the other while requests go on, so a count may appear to fall by one, which
        Prometheus would take for a restart: it stays as it was shown.
        """
        found = bucket_counts(counts, without, powers)
        shown = self._shown.get((name, label))
        if shown is not None:
            found = list(map(max, found, shown))
        self._shown[name, label] = found
        bounds = [*(str(2**power / 1000) for power in powers), "+Inf"]
        into.add_metric((label,) if label else (), list(zip(bounds, found, strict=True)), total_ns / NS_PER_MS)

    def _replicas(self, samples: Samples, logs: Iterable[PartitionLog], shown: Filter) -> None:
        add = samples.add
        server = self._server
        replicas = server.context.replica_manager
        hosted = leaders = offline = under_replicated = under_min_isr = at_min_isr = reassigning = 0
        for log in logs:
            samples.step()
            hosted += 1
            offline += bool(log.offline_errno)
        for partition in list(replicas.partitions.values()):
            samples.step()
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
                if lag >= 0 and shown(followed.topic):
                    name = "kafka_server_fetcherlagmetrics_consumerlag"
                    samples.add_bounded(name, lag, followed.topic, str(followed.partition))
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
        share_states = dict.fromkeys(ShareGroupState, 0)
        for (protocol, state), count in coordinator.count_states().items():
            protocols[protocol] += count
            if protocol is GroupType.CONSUMER:
                states[ConsumerGroupState(state)] += count
            elif protocol is GroupType.SHARE:
                share_states[ShareGroupState(state)] += count
        for kind, total in protocols.items():
            add(f"{prefix}_groupcount", total, kind.value)
        for each, total in states.items():
            add(f"{prefix}_consumergroupcount", total, each.value.lower())
        for share_state, total in share_states.items():
            add(f"{prefix}_sharegroupcount", total, share_state.value.lower())
        loaded = list(coordinator.runtime.states().values())
        for shard_state in ShardState:
            add(f"{prefix}_partitioncount", loaded.count(shard_state), shard_state.value.lower())
        counters = coordinator.counters
        add(f"{prefix}_consumergrouprebalance", counters.consumer_rebalances)
        add(f"{prefix}_sharegrouprebalance", counters.share_rebalances)
        add(f"{prefix}_groupcompletedrebalance", counters.completed_rebalances)
        add(f"{prefix}_offsetcommit", counters.offset_commits + coordinator.leased_commits)
        add("kafkapy_groups_leasedcommits", coordinator.leased_commits)
        add(f"{prefix}_offsetexpiration", counters.offset_expirations)
        add(f"{prefix}_offsetdeletion", counters.offset_deletions)

    def _transactions(self, add: Any, verification_times: Any) -> None:
        coordinator = self._server.context.coordinators.transaction
        numbers = coordinator.numbers()
        for state, count in numbers.states.items():
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
        add("kafka_server_transaction_coordinator_metrics_active_transaction_open_time_max", numbers.longest_open_ms)
        add("kafkapy_transactions_twophaseopen", numbers.open_two_phase)
        verification = self._server.context.coordinators.verification
        add("kafka_server_addpartitionstotxnmanager_verificationfailure", verification.failures)
        buckets, so_far = [], 0
        for power, count in enumerate(verification.times.buckets):
            so_far += count
            buckets.append((str(2**power), so_far))  # bucket n holds what took less than 2**n ms
        verification_times.add_metric((), [*buckets[:-1], ("+Inf", so_far)], verification.times.total_ms)

    def _share(self, add: Any) -> None:
        coordinator = self._server.context.coordinators.share
        prefix = "kafka_server_share_coordinator_metrics"
        loaded = list(coordinator.runtime.states().values())
        for shard_state in ShardState:
            add(f"{prefix}_num_partitions", loaded.count(shard_state), shard_state.value.lower())
        loads, writes = coordinator.runtime.load_times, coordinator.write_times
        add(f"{prefix}_partition_load_time_max", loads.max_ms)
        add(f"{prefix}_partition_load_time_avg", loads.total_ms / loads.count if loads.count else 0)
        shares = self._server.socket_server.request_channel.plane.share_table
        leased = {"leased_writes": 0, "leased_ms": 0.0} if shares is None else shares.counters()
        count = writes.count + leased["leased_writes"]
        add(f"{prefix}_write", count)
        add(f"{prefix}_write_latency_max", writes.max_ms)
        add(f"{prefix}_write_latency_avg", (writes.total_ms + leased["leased_ms"]) / count if count else 0)
        for partition, offset in list(coordinator.pruned.items()):
            add(f"{prefix}_last_pruned_offset", offset, SHARE_GROUP_STATE_TOPIC, str(partition))

    def _requests(self, add: Any, families: Mapping[str, Any]) -> None:
        found = self._server.socket_server.counters()
        for key, counters in found["apis"].items():
            try:
                title = ApiKeys(key).title
            except ValueError:
                title = f"Unknown{key}"
            for name, counter in _API_COUNTERS.items():
                add(f"kafka_network_requestmetrics_{name}", counters[counter], title)
            total = counters["total_histogram"]
            name = "kafka_network_requestmetrics_totaltimems"
            self._histogram(families[name], name, title, total, 0, counters["total_ns"], TOTAL_BUCKETS)
            for suffix, part in _API_TIMES.items():
                name = f"kafka_network_requestmetrics_{suffix}"
                spent_ns, counts = found["times"].get(key, {}).get(part, (0, [0] * len(total)))
                # Requests that never waited are not counted where they did not.
                without = max(sum(total) - sum(counts), 0)
                self._histogram(families[name], name, title, counts, without, spent_ns, BUCKETS)
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
        self._idle(add, counters)
        for delayed, key in (("Produce", ApiKeys.PRODUCE), ("Fetch", ApiKeys.FETCH)):
            waiting = sum(processor["delayed"][key] for processor in counters["processors"])
            for name in ("purgatorysize", "numdelayedoperations"):
                add(f"kafka_server_delayedoperationpurgatory_{name}", waiting, delayed)
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
        shares = channel.plane.share_table
        if shares is not None:
            add_shares(add, shares.counters())
        lag = server.loop_lag
        add("kafkapy_controlloop_lagms", lag.last_ms)
        add("kafkapy_controlloop_maxlagms", lag.max_ms)
        add("kafkapy_eventqueue_dropped", channel.plane.event_queue.dropped)

    def _idle(self, add: Any, counters: Mapping[str, Any]) -> None:
        now_s = time.monotonic()
        processors, workers = counters["processors"], counters["workers"]
        idle_ns, running_ns = (sum(each[name] for each in processors) for name in ("idle_ns", "running_ns"))
        network = self._network_idle.over_the_window(now_s, idle_ns, running_ns)
        lived_s = now_s - self._started_s
        worked_s = time.clock_gettime(self._control_clock)
        control = self._control_idle.over_the_window(now_s, lived_s - worked_s, lived_s)
        for suffix in ("percent", "_percent"):
            add(f"kafka_network_socketserver_networkprocessoravgidle{suffix}", network)
            add(f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle{suffix}", control)
        possible_ns = lived_s * 1e9 * workers["threads"]
        free = self._worker_idle.over_the_window(now_s, possible_ns - workers["busy_ns"], possible_ns)
        add("kafkapy_workerpool_avgidlepercent", free)

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
