"""The partitions of this broker: topic name and topic id to LogState.

The control plane writes the table, Processors read it under a read lock.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_rwlock_t
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.log.layout cimport LogState

cdef struct LeaderHint:
    int32_t leader_id               # -1: not known
    int32_t leader_epoch

cdef cppclass TopicEntry:
    int64_t references              # atomic: fetch sessions and parked requests keep entries beyond a delete
    string name
    uint8_t topic_id[16]
    vector[LogState*] partitions    # by partition number; NULL where not hosted
    vector[LeaderHint] leaders      # by partition number; leaders of partitions hosted elsewhere
    int32_t partition_count         # known to the cluster, hosted or not
    bint deleted

ctypedef TopicEntry* TopicPointer

cdef cppclass PartitionTableState:
    pthread_rwlock_t lock
    unordered_map[string, TopicPointer, SeededHash] by_name
    unordered_map[string, TopicPointer, SeededHash] by_id    # key: 16 raw bytes

cdef enum LookupStatus:
    LOOKUP_OK = 0
    LOOKUP_UNKNOWN_TOPIC = 1        # name: UNKNOWN_TOPIC_OR_PARTITION; id: UNKNOWN_TOPIC_ID
    LOOKUP_UNKNOWN_PARTITION = 2    # UNKNOWN_TOPIC_OR_PARTITION
    LOOKUP_NOT_HOSTED = 3           # NOT_LEADER_OR_FOLLOWER

# On LOOKUP_OK `log` holds a reference for the caller (log_unref).
cdef LookupStatus partition_by_name(PartitionTableState* t, const uint8_t* name, Py_ssize_t size, int32_t partition,
                                    LogState** log) noexcept nogil
cdef LookupStatus partition_by_id(PartitionTableState* t, const uint8_t* topic_id, int32_t partition,
                                  LogState** log) noexcept nogil
# The topic's name for an id ("" when unknown), for authorization of requests by id.
cdef bint topic_name_of(PartitionTableState* t, const uint8_t* topic_id, string* name) noexcept nogil
cdef bint topic_id_of(PartitionTableState* t, const uint8_t* name, Py_ssize_t size, uint8_t* topic_id) noexcept nogil
# The leader of a partition hosted elsewhere, from the control plane; {-1, -1} when not known.
cdef LeaderHint partition_leader(PartitionTableState* t, const uint8_t* name, Py_ssize_t size,
                                 int32_t partition) noexcept nogil

cdef class PartitionTable:
    cdef PartitionTableState* state
    cdef dict logs                  # (topic, partition) -> PartitionLog: the Python owners
    cdef void unlink(self, TopicEntry* entry) noexcept nogil
    cdef int forget_logs(self, str topic) except -1
