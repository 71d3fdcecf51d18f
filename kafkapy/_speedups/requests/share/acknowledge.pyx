"""Acknowledgements of records, of one partition at a time (see acknowledge.pxd).

Source: Kafka's KafkaApis.handleAcknowledgements and SharePartitionManager.acknowledge. The order of the checks is
Kafka's: topic id, form of the batches, authorization, partition, leader, share partition. A partition without batches
needs no share partition.
"""

from libc.stdint cimport int16_t, int64_t
from libc.string cimport memchr

from kafkapy._speedups.base.error_codes cimport (
    ERROR_INVALID_RECORD_STATE,
    ERROR_INVALID_REQUEST,
    ERROR_NONE,
    ERROR_TOPIC_AUTHORIZATION_FAILED,
    ERROR_UNKNOWN_TOPIC_ID,
    ERROR_UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_count,
    monotonic_ns,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.requests.share.acquire cimport share_look_up
from kafkapy._speedups.requests.share.entries cimport (
    ENTRY_READY,
    ShareEntry,
    ShareTableState,
    share_changed,
    share_dirty,
    share_table,
    share_ticket_wait_locked,
)
from kafkapy._speedups.requests.share.writes cimport LeasedWrite, share_store, share_take_leased_locked
from kafkapy._speedups.share.layout cimport ACKNOWLEDGE_RELEASE, ACKNOWLEDGE_RENEW, Acknowledgement
from kafkapy._speedups.share.partition cimport share_acknowledge, share_check_acknowledgements

cdef enum:
    RENEW_VERSION = 2
    NS_PER_MS = 1000000
    TYPES = 5


cdef bint has_type(ShareState* state, SharePart* part, int kind) noexcept nogil:
    cdef Acknowledgement* batch
    cdef size_t i
    for i in range(part.first_batch, part.first_batch + part.batch_count):
        batch = &state.batches[i]
        if batch.type_count > 0 and memchr(batch.types, kind, <size_t>batch.type_count) != NULL:
            return True
    return False


cdef void count_types(ShareTableState* table, ShareState* state, SharePart* part) noexcept nogil:
    """Counts acknowledgements by type: one of each batch and type, as Kafka's record-acknowledgement."""
    cdef Acknowledgement* batch
    cdef int64_t counts[TYPES]
    cdef size_t i
    cdef int64_t j
    for j in range(<int>TYPES):
        counts[j] = 0
    for i in range(part.first_batch, part.first_batch + part.batch_count):
        batch = &state.batches[i]
        for j in range(batch.type_count):
            counts[batch.types[j]] += 1
    for j in range(<int>TYPES):
        if counts[j]:
            atomic_count(&table.counters.acknowledged[j], counts[j])


cdef int16_t apply(ShareTableState* table, ShareState* state, SharePart* part, bint renewals, int64_t* ticket,
                   LeasedWrite* leased) noexcept nogil:
    """Under the entry's mutex from the transition to the write or to the ticket's place in the list, so that no end of
    a write is missed."""
    cdef ShareEntry* entry = part.entry
    cdef int16_t error
    # A ShareFetch does not give back what it releases: others come first, as in Kafka, while the coordinator writes.
    cdef bint leases = not (state.fetches and has_type(state, part, ACKNOWLEDGE_RELEASE))
    pthread_mutex_lock(&entry.mutex)
    if entry.status != ENTRY_READY:
        # While it is loading, nothing is acquired.
        error = entry.error if entry.error != ERROR_NONE else <int16_t>ERROR_INVALID_RECORD_STATE
    elif renewals and not entry.settings.renews:
        error = ERROR_INVALID_RECORD_STATE
    else:
        error = share_acknowledge(entry.share, state.member.data(), state.member.size(),
                                  &state.batches[part.first_batch], part.batch_count, monotonic_ns() // NS_PER_MS,
                                  ticket)
        state.lock_ms = <int>entry.settings.limits.lock_ms
    if error == ERROR_NONE and ticket[0] > 0:
        part.ticket.ticket = ticket[0]
        part.ticket.error = ERROR_NONE
        part.ticket.unwritten = &state.unwritten
        part.ticket.wake = state.frame.wake
        part.ticket.owner = state.frame.wake_owner
        part.ticket.token = state.frame.token
        if not (leases and share_take_leased_locked(entry, leased)):
            atomic_add(&state.unwritten, 1)
            share_ticket_wait_locked(entry, &part.ticket)
    pthread_mutex_unlock(&entry.mutex)
    return error


cdef void share_acknowledge_part(DataPlaneState* plane, ShareState* state, SharePart* part,
                                 bint denied) noexcept nogil:
    cdef ShareTableState* table = share_table(plane)
    cdef bint renewals = False
    cdef int64_t ticket = 0
    cdef int16_t error
    cdef LeasedWrite leased
    leased.write = NULL
    part.answered = True
    part.acknowledge_error = ERROR_NONE
    if part.topic.name.empty():
        part.acknowledge_error = ERROR_UNKNOWN_TOPIC_ID
        return
    if part.batch_count:
        error = share_check_acknowledgements(&state.batches[part.first_batch], part.batch_count,
                                             state.frame.api_version >= RENEW_VERSION)
        if error == ERROR_NONE and state.frame.api_version >= RENEW_VERSION:
            renewals = has_type(state, part, ACKNOWLEDGE_RENEW)
            if renewals and not state.renews:
                error = ERROR_INVALID_REQUEST
        if error != ERROR_NONE:
            part.acknowledge_error = error
            return
    if denied:
        part.acknowledge_error = ERROR_TOPIC_AUTHORIZATION_FAILED
        return
    if not share_look_up(plane, state, part, False):
        part.acknowledge_error = part.error
        part.error = ERROR_NONE
        return
    if part.batch_count == 0:
        part.answered = state.fetches   # as in Kafka, a reply to ShareAcknowledge has acknowledged partitions only
        return
    if part.entry == NULL:
        part.acknowledge_error = ERROR_UNKNOWN_TOPIC_OR_PARTITION
        return
    part.acknowledge_error = apply(table, state, part, renewals, &ticket, &leased)
    if part.acknowledge_error != ERROR_NONE:
        part.explained = True
        return
    count_types(table, state, part)
    if ticket > 0:
        if leased.write != NULL:
            share_store(table, part.entry, &leased, &part.ticket)
        else:
            share_dirty(table, part.entry)
        # Offsets below the start may have been archived; released records come back when the write has ended.
        share_changed(table, part.entry)


cdef void share_take_answer(SharePart* part) noexcept nogil:
    if part.ticket.ticket > 0 and not part.ticket.queued and part.acknowledge_error == ERROR_NONE:
        part.acknowledge_error = part.ticket.error
