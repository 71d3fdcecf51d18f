"""The first stage of a Produce request (see lookup.pxd)."""

from libc.stdint cimport int8_t, uint8_t
from libc.string cimport memcmp
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport (
    ERROR_INVALID_PRODUCER_ID_MAPPING,
    ERROR_INVALID_RECORD,
    ERROR_INVALID_REQUIRED_ACKS,
    ERROR_INVALID_TOPIC_EXCEPTION,
    ERROR_NOT_LEADER_OR_FOLLOWER,
    ERROR_TOPIC_AUTHORIZATION_FAILED,
    ERROR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ERROR_UNKNOWN_TOPIC_ID,
    ERROR_UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkapy._speedups.base.wire cimport load_int16, load_int64
from kafkapy._speedups.log.append_checks cimport BATCHES_SINCE_VERSION
from kafkapy._speedups.records.record_batch cimport (
    ATTRIBUTES_AT,
    BATCH_HEADER_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_FLAG,
)
from kafkapy._speedups.requests.authorization cimport (
    DECISION_ALLOWED,
    DECISION_DENIED,
    RESOURCE_TOPIC,
    RESOURCE_TRANSACTIONAL_ID,
    Decision,
    authorization_check,
)
from kafkapy._speedups.requests.data_plane cimport ASK_AUTHORIZE, OPERATION_WRITE, OUTCOME_ASK, Frame
from kafkapy._speedups.requests.partition_table cimport (
    LOOKUP_NOT_HOSTED,
    LOOKUP_OK,
    LeaderHint,
    LookupStatus,
    partition_by_name,
    partition_leader,
    topic_name_of,
)
from kafkapy._speedups.requests.produce.state cimport (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    PARTITION_PENDING,
    ProducePartition,
    ProduceState,
    ProduceTopic,
    fail_partition,
)

cdef const char* ADMIN_CLIENT_ID = b"__admin_client"


cdef bint produce_is_transactional(const ProducePartition* partition) noexcept nogil:
    return (partition.records_size >= BATCH_HEADER_SIZE and <int8_t>partition.records[MAGIC_AT] == MAGIC_V2
            and load_int16(partition.records + ATTRIBUTES_AT) & TRANSACTIONAL_FLAG)


cdef bint has_transactional_records(ProduceState* state) noexcept nogil:
    cdef size_t i
    for i in range(state.partitions.size()):
        if produce_is_transactional(&state.partitions[i]):
            return True
    return False


cdef void allow_one_producer(ProduceState* state) noexcept nogil:
    """Holds a transactional id to one producer. The coordinator gets one question for the whole request, so all batches
    must have the same producer."""
    cdef const ProducePartition* partition
    cdef const uint8_t* first = NULL
    cdef bint several = False
    cdef size_t i
    for i in range(state.partitions.size()):
        partition = &state.partitions[i]
        if not produce_is_transactional(partition) or load_int64(partition.records + PRODUCER_ID_AT) < 0:
            continue
        if first == NULL:
            first = partition.records
        elif memcmp(first + PRODUCER_ID_AT, partition.records + PRODUCER_ID_AT, PRODUCER_EPOCH_AT + 2 - PRODUCER_ID_AT):
            several = True
            break
    if not several:
        return
    for i in range(state.partitions.size()):
        if state.partitions[i].stage == PARTITION_PENDING:
            fail_partition(&state.partitions[i], ERROR_INVALID_PRODUCER_ID_MAPPING)
            state.partitions[i].result.message = b"the transactional records are of more than one producer"


cdef bint is_internal_topic(const string& name) noexcept nogil:
    return (name.compare(b"__consumer_offsets") == 0 or name.compare(b"__transaction_state") == 0
            or name.compare(b"__share_group_state") == 0)


cdef bint from_admin_client(Frame* frame) noexcept nogil:
    return frame.client_id_size == 14 and memcmp(frame.client_id, ADMIN_CLIENT_ID, 14) == 0


cdef void look_up(DataPlaneState* plane, ProduceState* state, ProduceTopic* topic,
                  ProducePartition* partition) noexcept nogil:
    cdef LookupStatus status = partition_by_name(
        plane.partitions, <const uint8_t*>topic.resolved.data(), topic.resolved.size(), partition.index, &partition.log)
    cdef LeaderHint hint
    if status == LOOKUP_OK or status == LOOKUP_NOT_HOSTED:
        if partition.records_size < 0 or (partition.records_size == 0
                                          and state.frame.api_version >= BATCHES_SINCE_VERSION):
            fail_partition(partition, ERROR_INVALID_RECORD)
            partition.result.message = b"a partition of a Produce request must have exactly one record batch"
        elif state.acks != ACKS_ALL and state.acks != ACKS_LEADER and state.acks != ACKS_NONE:
            fail_partition(partition, ERROR_INVALID_REQUIRED_ACKS)
        elif is_internal_topic(topic.resolved) and not from_admin_client(&state.frame):
            fail_partition(partition, ERROR_INVALID_TOPIC_EXCEPTION)
        elif status == LOOKUP_NOT_HOSTED:
            fail_partition(partition, ERROR_NOT_LEADER_OR_FOLLOWER)
            hint = partition_leader(plane.partitions, <const uint8_t*>topic.resolved.data(), topic.resolved.size(),
                                    partition.index)
            partition.result.leader_id = hint.leader_id
            partition.result.leader_epoch = hint.leader_epoch
    else:
        fail_partition(partition, ERROR_UNKNOWN_TOPIC_OR_PARTITION)


cdef bint produce_authorize(DataPlaneState* plane, ProduceState* state, Outcome* outcome) noexcept nogil:
    cdef Decision decision
    cdef ProduceTopic* topic
    cdef ProducePartition* partition
    cdef bint transactional = has_transactional_records(state)
    cdef bint transaction_denied = False
    cdef vector[int] decisions
    cdef size_t i
    cdef size_t j
    state.asked.clear()
    state.ask.kind = ASK_AUTHORIZE
    state.ask.questions.clear()
    if transactional:
        if state.transactional_id_size < 0:
            transaction_denied = True
        else:
            decision = authorization_check(plane, state.frame.authorization, OPERATION_WRITE, RESOURCE_TRANSACTIONAL_ID,
                                           state.transactional_id,
                                           state.transactional_id_size, &state.asked, &state.ask.questions)
            transaction_denied = decision == DECISION_DENIED
    if transaction_denied:
        for j in range(state.partitions.size()):
            fail_partition(&state.partitions[j], ERROR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return True
    for i in range(state.topics.size()):
        topic = &state.topics[i]
        if topic.topic_id != NULL:
            if topic.resolved.empty() and not topic_name_of(plane.partitions, topic.topic_id, &topic.resolved):
                decisions.push_back(DECISION_ALLOWED)       # an unknown id does not reveal a topic
                continue
        elif topic.resolved.empty() and topic.name_size > 0:
            topic.resolved.assign(<const char*>topic.name, topic.name_size)
        decisions.push_back(authorization_check(plane, state.frame.authorization, OPERATION_WRITE, RESOURCE_TOPIC,
                                                topic.resolved.data(),
                                                topic.resolved.size(), &state.asked, &state.ask.questions))
    if state.ask.questions.size():
        outcome.kind = OUTCOME_ASK
        outcome.ask = &state.ask
        outcome.parked = state
        return False
    for i in range(state.topics.size()):
        topic = &state.topics[i]
        for j in range(topic.first, topic.first + topic.count):
            partition = &state.partitions[j]
            if partition.superseded:
                continue
            if topic.topic_id != NULL and topic.resolved.empty():
                fail_partition(partition, ERROR_UNKNOWN_TOPIC_ID)
            elif decisions[i] == DECISION_DENIED:
                fail_partition(partition, ERROR_TOPIC_AUTHORIZATION_FAILED)
            else:
                look_up(plane, state, topic, partition)
    if transactional:
        allow_one_producer(state)
    return True
