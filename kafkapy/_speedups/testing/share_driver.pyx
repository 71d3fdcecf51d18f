"""Members of a share partition in C (see share_driver.pxd)."""

from libc.stdint cimport INT32_MAX, int8_t, int64_t, uint64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport monotonic_ns
from kafkapy._speedups.share.layout cimport (
    ACKNOWLEDGE_ACCEPT,
    ACKNOWLEDGE_REJECT,
    ACQUIRE_BATCH_OPTIMIZED,
    SHARE_FETCH,
    AcquiredRange,
    Acknowledgement,
    AcquireRequest,
    LogBatch,
    ShareWrite,
)
from kafkapy._speedups.share.partition cimport (
    SharePartitionState,
    share_acknowledge,
    share_acquire,
    share_begin_fetch,
    share_end_fetch,
    share_finish_write,
    share_take_write,
)
from kafkapy._speedups.testing.share_partition cimport SharePartition

cdef struct Times:              # ns, and what they were spent on
    int64_t acquire
    int64_t acknowledge
    int64_t write
    int64_t records
    int64_t ranges
    int64_t requests


cdef void read_log(vector[LogBatch]* read, int64_t offset, int64_t width, int64_t count) noexcept nogil:
    """Log batches of one width, from the one that has the offset on."""
    cdef LogBatch batch
    cdef int64_t i, first = offset - offset % width
    read.clear()
    for i in range(count):
        batch.first = first + i * width
        batch.last = batch.first + width - 1
        batch.skipped = False
        read.push_back(batch)


cdef void acknowledge_ranges(const vector[AcquiredRange]* acquired, const vector[int8_t]* types, bint per_offset,
                             vector[Acknowledgement]* out) noexcept nogil:
    cdef Acknowledgement acknowledgement
    cdef size_t i
    out.clear()
    for i in range(acquired.size()):
        acknowledgement.first = acquired[0][i].first
        acknowledgement.last = acquired[0][i].last
        acknowledgement.types = &types[0][0]
        acknowledgement.type_count = acknowledgement.last - acknowledgement.first + 1 if per_offset else 1
        out.push_back(acknowledgement)


cdef bint one_request(SharePartitionState* share, const string* member, uint64_t number, int64_t width, int64_t count,
                      const vector[int8_t]* types, bint per_offset, Times* times) noexcept nogil:
    """One fetch and its acknowledgement. False while another member reads, or for a full window."""
    cdef vector[LogBatch] read
    cdef vector[AcquiredRange] acquired
    cdef vector[Acknowledgement] acknowledgements
    cdef AcquireRequest request
    cdef int64_t offset = 0, ticket = 0, at
    cdef size_t i
    if share_begin_fetch(share, number, &offset) != SHARE_FETCH:
        return False
    read_log(&read, offset, width, count)
    request.member = member.data()
    request.member_size = member.size()
    request.mode = ACQUIRE_BATCH_OPTIMIZED
    request.max_records = INT32_MAX
    request.batch_size = 1          # a range for each log batch
    request.fetch_offset = offset
    request.now_ms = monotonic_ns() // 1000000
    at = monotonic_ns()
    share_acquire(share, &request, read.data(), read.size(), &acquired)
    times.acquire += monotonic_ns() - at
    share_end_fetch(share, number)
    for i in range(acquired.size()):
        times.records += acquired[i].last - acquired[i].first + 1
    times.ranges += <int64_t>acquired.size()
    times.requests += 1
    acknowledge_ranges(&acquired, types, per_offset, &acknowledgements)
    at = monotonic_ns()
    share_acknowledge(share, member.data(), member.size(), acknowledgements.data(), acknowledgements.size(),
                      request.now_ms, &ticket)
    times.acknowledge += monotonic_ns() - at
    return True


def drive(SharePartition share not None, list members, *, int64_t rounds, int64_t width, int64_t count,
          int64_t number=1, bint per_offset=False, bint mixed=False):
    """Let members fetch `count` log batches of `width` records in turns and acknowledge all of them.

    After each round one write ends. `per_offset`: one type for each offset; `mixed`: accept and reject in turns.
    Returns the times of the three steps in ns, and the number of records, acquired ranges and requests. Several threads
    may drive one share partition, each with another first `number` of its members."""
    cdef vector[string] names = members
    cdef vector[int8_t] types
    cdef Times times
    cdef ShareWrite write
    cdef int64_t i, at
    cdef size_t k
    times.acquire = times.acknowledge = times.write = times.records = times.ranges = times.requests = 0
    for i in range(width):
        types.push_back(<int8_t>(ACKNOWLEDGE_REJECT if mixed and i % 2 else ACKNOWLEDGE_ACCEPT))
    with nogil:
        for i in range(rounds):
            for k in range(names.size()):
                one_request(share.state, &names[k], <uint64_t>(number + <int64_t>k), width, count, &types,
                            per_offset or mixed, &times)
            at = monotonic_ns()
            if share_take_write(share.state, &write):
                share_finish_write(share.state, &write, True, at // 1000000)
            times.write += monotonic_ns() - at
    return times
