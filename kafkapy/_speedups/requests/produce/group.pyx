"""Gathered Produce requests (see group.pxd)."""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.base.error_codes cimport ERROR_NONE
from kafkapy._speedups.base.posix cimport wall_clock_ms
from kafkapy._speedups.log.group_append cimport GroupMember, log_append_group
from kafkapy._speedups.requests.data_plane cimport GROUP_MEMBERS, OUTCOME_RESUME, outcome_clear
from kafkapy._speedups.requests.produce.handle cimport (
    produce_appended,
    produce_end_appends,
    produce_options,
    produce_refused,
)
from kafkapy._speedups.requests.produce.state cimport ProducePartition, ProduceState


cdef void produce_settle(DataPlaneState* plane, void** parked, size_t count, Outcome* outcomes) noexcept nogil:
    cdef GroupMember members[GROUP_MEMBERS]
    cdef ProduceState* state
    cdef ProducePartition* partition
    cdef int64_t now_ms = wall_clock_ms()
    cdef size_t i
    for i in range(count):
        state = <ProduceState*>parked[i]
        members[i].data = <uint8_t*>state.partitions[0].records
        members[i].size = state.partitions[0].records_size
        produce_options(plane, state, now_ms, &members[i].options)
    log_append_group((<ProduceState*>parked[0]).partitions[0].log, members, count)
    for i in range(count):
        state = <ProduceState*>parked[i]
        partition = &state.partitions[0]
        outcome_clear(&outcomes[i])
        if not members[i].decided:
            partition.checked = members[i].checked
            outcomes[i].kind = OUTCOME_RESUME
            outcomes[i].parked = state
            continue
        if members[i].result.error == ERROR_NONE:
            produce_appended(state, partition, &members[i].result)
        else:
            produce_refused(partition, &members[i].result)
        produce_end_appends(plane, state, &outcomes[i])
