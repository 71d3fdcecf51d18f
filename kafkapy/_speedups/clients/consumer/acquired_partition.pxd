"""The acquired records of one partition in a ShareFetch response (see acquired_partition.pyx)."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.wire cimport Cursor
from kafkapy._speedups.clients.consumer.consumer_record cimport ConsumerRecord
from kafkapy._speedups.clients.consumer.fetched_partition cimport FetchedPartition
from kafkapy._speedups.clients.consumer.record_iterator cimport RecordColumns

# The states of an acquired offset. The first five are acknowledgements to send, with their numbers on the wire.
cdef enum OffsetState:
    STATE_GAP = 0
    STATE_ACCEPT = 1
    STATE_RELEASE = 2
    STATE_REJECT = 3
    STATE_RENEW = 4
    STATE_WAITING = 5                   # not read yet
    STATE_HELD = 6                      # with the user
    STATE_RENEWING = 7                  # its renewal was sent
    STATE_DONE = 8                      # its acknowledgement was sent, or its lock has ended

cdef struct AcquiredRange:
    int64_t first_offset
    int64_t last_offset                 # inclusive
    int64_t states_at                   # place of the first offset's state
    int16_t delivery_count


cdef class AcquiredPartition(FetchedPartition):
    cdef public int node_id
    cdef public object topic_partition
    cdef public double locked_until
    cdef public bint explicit
    cdef public bint committable
    cdef readonly int acknowledge_error_code
    cdef readonly str error_message
    cdef readonly str acknowledge_error_message
    cdef readonly int64_t waiting
    cdef readonly int64_t held
    cdef readonly int64_t unsent
    cdef readonly int64_t renewing
    cdef vector[AcquiredRange] ranges
    cdef vector[int8_t] states
    cdef size_t range_at                # range of the next record
    cdef int64_t undecided              # its first offset in STATE_WAITING
    cdef size_t held_from               # no state before it is STATE_HELD
    cdef size_t unsent_from             # no state before it is to be sent
    cdef object failure                 # error of the next read
    # A second walk over the records, for columns: which offsets have one.
    cdef size_t walked                  # the batch
    cdef bint walking                   # whether the cursor is in it
    cdef Cursor walk
    cdef int32_t walk_left

    cdef void acquire(self, vector[AcquiredRange]* ranges) except *
    cdef int64_t range_of(self, int64_t offset) noexcept
    cdef int64_t place_of(self, int64_t offset) noexcept
    cdef bint enter_range(self) noexcept
    cdef void decide(self, int64_t end, int8_t state) noexcept
    cdef void give_up_batch(self) noexcept
    cdef bint drop_expired(self) noexcept
    cdef void hold(self, int64_t place) noexcept
    cdef void hold_between(self, int64_t start, int64_t end) noexcept
    cdef ConsumerRecord read_acquired(self)
    cpdef object user_polls(self)
    cpdef object accept_held(self)
    cdef size_t first_open(self) noexcept


cdef class AcquiredColumns(RecordColumns):
    cdef RecordColumns inner
    cdef readonly list counts
