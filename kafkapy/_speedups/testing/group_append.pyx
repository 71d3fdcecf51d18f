"""A group of appends from Python, as network threads make it for Produce requests of version 9 with acks=1."""

from libc.stdint cimport uint8_t
from libc.string cimport memset
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport wall_clock_ms
from kafkapy._speedups.log.group_append cimport GroupMember, log_append_group
from kafkapy._speedups.log.partition_log cimport PartitionLog


def append_group(PartitionLog log not None, batches):
    """(whether it was decided, Kafka error code, base offset) of each batch, given as bytes."""
    cdef vector[GroupMember] members
    cdef GroupMember member
    cdef size_t i
    own = [bytearray(batch) for batch in batches]
    for batch in own:
        memset(&member, 0, sizeof(member))
        member.data = <uint8_t*>batch
        member.size = len(batch)
        member.options.required_acks = 1
        member.options.api_version = 9
        member.options.current_leader_epoch = -1
        member.options.now_ms = wall_clock_ms()
        member.options.verify = True
        members.push_back(member)
    with nogil:
        log_append_group(log.state, members.data(), members.size())
    return [(members[i].decided, members[i].result.error, members[i].result.base_offset)
            for i in range(members.size())]
