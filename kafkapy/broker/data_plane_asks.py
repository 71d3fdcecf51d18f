"""The data plane's questions to Python in the middle of a produce or fetch.

May this connection do that, are these records fit, how do they look to an old client, are these partitions in the
producer's transaction, which principal does this certificate stand for.

The request is parked in the data plane meanwhile and goes on when it has been answered; there is no second
implementation of either here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy._speedups.network.network_request import (
    ASK_AUTHORIZE,
    ASK_CONVERT,
    ASK_PRINCIPAL,
    ASK_QUOTAS,
    ASK_SELECT,
    ASK_VERIFY,
)
from kafkapy.broker.context import CLUSTER_NAME, DECISIONS, BrokerContext, NetworkContext, decide
from kafkapy.broker.message_conversion import PRODUCE, ConversionCounts, MessageConversion
from kafkapy.broker.resizable_pool import ResizablePool
from kafkapy.config.topic import LogConfig
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.coordinator.transaction.verification import Operation, produce_error
from kafkapy.errors import ErrorCode, code_of
from kafkapy.replica.selectors import ConsumerView, ReplicaView
from kafkapy.slices import turn
from kafkapy.types import AclOperation, CompressionType, ResourceType, TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.network.network_request import NetworkRequest
    from kafkapy.coordinator.result import Later
    from kafkapy.coordinator.transaction.verification import Refusals
    from kafkapy.records.validator import RecordRules
    from kafkapy.replica.selectors import ReplicaSelector

logger = logging.getLogger("kafka.server.KafkaApis")

CLUSTER_MARK: Final = 0
TRANSACTIONAL_ID_MARK: Final = 1
GROUP_MARK: Final = 2


class DataPlaneAsks:
    """Answers parked requests. Owned by KafkaServer.

    `answer` is called on the control loop. A pool of num.io.threads worker threads, which the first such request
    starts, looks into records. `conversions` is told what was converted.
    """

    def __init__(
        self,
        broker: BrokerContext,
        log_config: Callable[[TopicPartition], LogConfig],
        threads: int,
        conversions: ConversionCounts,
        answer_principal: Callable[[NetworkRequest], None],
        answer_quotas: Callable[[NetworkRequest], None],
        replica_selector: ReplicaSelector,
    ) -> None:
        self._broker = broker
        self._log_config = log_config
        self._conversions = conversions
        self._answer_principal = answer_principal
        self._answer_quotas = answer_quotas
        self._selector = replica_selector
        self._workers = ResizablePool(threads, "kafka-request-handler")
        self._conversion = MessageConversion(log_config, conversions)
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, request: NetworkRequest) -> None:
        """Answer now, or have a worker do it. Never raises."""
        if request.ask_kind == ASK_AUTHORIZE:
            self._authorize(request)
        elif request.ask_kind == ASK_CONVERT:
            self._conversion.answer(request)
        elif request.ask_kind == ASK_VERIFY:
            self._verify(request)
        elif request.ask_kind == ASK_SELECT:
            self._select(request)
        elif request.ask_kind == ASK_PRINCIPAL:
            self._answer_principal(request)
        elif request.ask_kind == ASK_QUOTAS:
            self._answer_quotas(request)
        else:
            self._workers.submit(self._validate, request)

    @property
    def threads(self) -> int:
        """The number of worker threads (num.io.threads)."""
        return self._workers.size

    def resize(self, threads: int) -> None:
        """Have this many worker threads from now on."""
        self._workers.resize(threads)

    async def stop(self) -> None:
        """End decisions under way, and the workers; what the workers do is finished first."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def close(self) -> None:
        """End the workers. It blocks."""
        self._workers.shutdown(wait=True)
        self._conversion.close()

    # --- authorization ------------------------------------------------------------------------------------------

    def _authorize(self, request: NetworkRequest) -> None:
        count = request.question_count
        if count <= DECISIONS:
            self._decide(request, 0, count)
            return
        task = asyncio.get_running_loop().create_task(self._authorize_in_slices(request, count))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _authorize_in_slices(self, request: NetworkRequest, count: int) -> None:
        """The same for a request that names many topics."""
        try:
            for start in range(0, count, DECISIONS):
                if start:
                    await turn()
                self._decide(request, start, start + DECISIONS)
        except asyncio.CancelledError:
            request.close("the broker is stopping")
            raise

    def _decide(self, request: NetworkRequest, start: int, stop: int) -> None:
        questions = request.questions_between(start, stop)
        try:
            answers = decide(
                self._broker.authorizer, NetworkContext(request), [_question(each) for each in questions], True
            )
        except Exception:
            # What cannot be decided is denied; a client must not hang on a broken authorizer, nor pass it.
            logger.exception("The authorizer failed for %s; the broker denies the request", request.principal)
            answers = [False] * len(questions)
        request.answer_authorization(answers)

    # --- transactions -------------------------------------------------------------------------------------------

    def _verify(self, request: NetworkRequest) -> None:
        """Ask the transaction coordinator about all the produce's first batches at once."""
        operation = Operation.of_produce(request.api_version)
        indexes: dict[TopicPartition, int] = {}
        producer = ProducerIdAndEpoch(-1, -1)
        for question in request.questions:
            topic, partition, *stamp = request.batch_to_verify(int(question))
            indexes[TopicPartition(topic, partition)] = int(question)
            producer = ProducerIdAndEpoch(*stamp)

        def answered(done: Later[Refusals]) -> None:
            refused = done.result()
            for partition, index in indexes.items():
                if partition in refused:
                    request.refuse_records(index, *produce_error(refused[partition], operation))
                else:
                    request.confirm_transaction(index)
            request.resume()

        verification = self._broker.coordinators.verification
        transactional_id = request.transactional_id or ""
        try:
            answer = verification.ask(transactional_id, producer, indexes.keys(), operation, patient=True)
        except Exception:
            # Those that came together with it go on.
            logger.exception(
                "The transaction coordinator failed for %s; the broker closes the connection", transactional_id
            )
            request.close()
        else:
            answer.then(answered)

    # --- replicas for consumers ---------------------------------------------------------------------------------

    def _select(self, request: NetworkRequest) -> None:
        consumer = ConsumerView(
            request.client_id or "",
            "",
            request.principal,
            request.peer_host,
            request.listener_name,
        )
        brokers = self._broker.metadata_cache.snapshot.brokers
        own_id = self._broker.node_id

        def view(broker_id: int, log_end: int, since_ms: int) -> ReplicaView:
            known = brokers.get(broker_id)
            return ReplicaView(broker_id, None if known is None else known.rack, log_end, since_ms)

        for question in request.questions:
            index = int(question)
            topic, partition, _, rack, log_end, followers = request.replica_selection(index)
            leader = view(own_id, log_end, 0)
            # A consumer cannot go to a replica without an address on its listener.
            reachable = [
                view(*each)
                for each in followers
                if self._broker.metadata_cache.endpoint(each[0], request.listener_name) is not None
            ]
            chosen = None
            try:
                chosen = self._selector.select(
                    TopicPartition(topic, partition), consumer._replace(rack=rack), [leader, *reachable], leader
                )
            except Exception:
                # A plugin is foreign code: the consumer reads from the leader then.
                logger.exception("The replica selector failed for %s-%d; the leader serves the fetch", topic, partition)
            if chosen is not None and any(each.broker_id == chosen for each in reachable):
                request.select_replica(index, chosen)
        request.resume()

    # --- records ------------------------------------------------------------------------------------------------

    def _validate(self, request: NetworkRequest) -> None:
        """On a worker thread."""
        for question in request.questions:
            index = int(question)
            try:
                self._validate_part(request, index)
            except Exception as error:  # whatever is wrong with it, the other parts of the produce go on
                code = code_of(error)
                if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                    logger.exception("The validation of records failed; the broker refuses them")
                request.refuse_records(index, code, str(error))
        request.resume()

    def _validate_part(self, request: NetworkRequest, index: int) -> None:
        from kafkapy.records.validator import validate_records

        _, topic, partition, records = request.records_to_validate(index)
        config = self._log_config(TopicPartition(topic or "", partition))
        started = time.monotonic_ns()
        outcome = validate_records(records, record_rules(config), now_ms=time.time_ns() // 1_000_000)
        spent = time.monotonic_ns() - started
        self._conversions.add(PRODUCE, topic or "", outcome.converted, spent, outcome.temporary_bytes)
        if outcome.error is ErrorCode.NONE and outcome.records is not None:
            request.replace_records(index, outcome.records)
        else:
            at_fault = [position for position, _ in outcome.record_errors]
            request.refuse_records(index, outcome.error, outcome.message, at_fault)


def record_rules(config: LogConfig) -> RecordRules:
    """A topic's rules for its records, from its configuration."""
    from kafkapy.records.validator import RecordRules

    codec = level = None
    if config.compression_type != "producer":
        name = config.compression_type
        codec = CompressionType.NONE if name == "uncompressed" else CompressionType[name.upper()]
        levels = {
            CompressionType.GZIP: config.compression_gzip_level,
            CompressionType.LZ4: config.compression_lz4_level,
            CompressionType.ZSTD: config.compression_zstd_level,
        }
        level = levels.get(codec)
        if codec is CompressionType.GZIP and level == -1:
            level = None
    return RecordRules(
        needs_keys=config.compact,
        codec=codec,
        level=level,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=config.timestamp_before_max_ms,
        timestamp_after_max_ms=config.timestamp_after_max_ms,
        max_message_bytes=config.max_message_bytes,
    )


def _question(raw: bytes) -> tuple[AclOperation, ResourceType, str]:
    """One byte operation, then a topic or a mark and what it stands for (AuthorizationCache in data_plane.pxd)."""
    operation, resource = AclOperation(raw[0]), raw[1:]
    if resource[:1] == bytes([CLUSTER_MARK]):
        return operation, ResourceType.CLUSTER, CLUSTER_NAME
    if resource[:1] == bytes([TRANSACTIONAL_ID_MARK]):
        return operation, ResourceType.TRANSACTIONAL_ID, resource[1:].decode("utf-8", "replace")
    if resource[:1] == bytes([GROUP_MARK]):
        return operation, ResourceType.GROUP, resource[1:].decode("utf-8", "replace")
    return operation, ResourceType.TOPIC, resource.decode("utf-8", "replace")
