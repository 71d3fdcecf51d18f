"""The private half of a log's state: for the kernels of this room only."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_cond_t, pthread_mutex_t
from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.producer_state cimport CompletedTransaction
from kafkapy._speedups.log.recovery cimport LogHistory
from kafkapy._speedups.log.workers cimport LogWorkersState, log_work

cdef struct RecentBatch:        # where a batch that was appended lately stands, so that reads at the tail need no index
    int64_t base_offset
    int64_t last_offset
    int64_t position
    int64_t size
    int64_t segment_base

cdef struct LimitPlace:         # where the first batch stands that reaches to a high watermark or last stable offset:
                                # what is below may be sent
    int64_t offset              # -1: none is known
    int64_t segment_base
    int64_t position

cdef struct Follower:
    int64_t log_end_offset      # -1 until its first fetch
    int64_t caught_up_ms        # wall clock, when it last reached the log end
    bint in_sync

cdef cppclass ProducerSnapshot: # taken at a roll, to be written by a worker
    int64_t offset
    string data

cdef struct AbortedWrite:        # an entry for a .txnindex file
    int64_t segment_base
    CompletedTransaction entry

cdef cppclass LogPrivate:
    LogHistory history          # producer state, leader epochs, aborted transactions
    string directory            # of the segment files; empty when the backend has none
    bint loading                # files are being looked at, by who made the log
    size_t watched_at           # place in the table of open_files.pyx
    bint rolling                # a roll renames its file outside the mutex: appends park, others wait
    bint writing                # an append has its turn: it writes outside the mutex, whose state it changes afterwards
    bint turn_is_slow           # somebody has waited for that turn for too long: who comes now parks at once
    int64_t turns               # counts them
    int64_t turn_waiters        # threads that wait for turn_over
    int64_t settlers            # of these in lock_settled: appends let them go first
    pthread_cond_t turn_over
    int64_t slow                # atomic; threads that hang in a read of this log (base/blocking.pxd)
    bint segment_wanted         # asked for, of the workers or by SEGMENT_WANTED, and not answered yet
    bint native_segments        # segments are made here (background.pyx), not by the storage
    int64_t segments_made
    LogWorkersState* segment_workers    # referenced; NULL: the control plane is asked
    LogWorkersState* flush_workers
    log_work make_segment       # what the workers do, of background.pyx
    log_work flush
    bint closed
    vector[RecentBatch] recent  # ring
    size_t recent_next
    LimitPlace limits[2]        # of the high watermark and the last stable offset that were asked for last
    int64_t layout              # counts changes of where batches stand, and aborted transactions forgotten: who has
                                # looked before must look again
    vector[int64_t] aborted_lowest  # lowest first offset in each ABORTED_BLOCK of history.aborted; made when a read
                                    # needs it
    size_t aborted_summed       # how many of those it covers
    unordered_map[int32_t, Follower] followers
    vector[ProducerSnapshot] snapshots
    int64_t epochs_version      # counts changes of the leader epochs
    int64_t unflushed_messages  # since the last flush
    uint64_t random             # for roll jitter
    int64_t truncations         # a flush that a truncation overtook must not move the recovery point
    pthread_mutex_t sealing     # held while closed segments are cut to size and synced, so that no truncation opens one
                                # again meanwhile
    pthread_mutex_t aborted_file    # held while .txnindex is written; taken before the log's mutex
    vector[AbortedWrite] unwritten  # aborted transactions not in .txnindex yet
    int64_t flush_due           # what is below has to be on disk before it is acknowledged or visible: flush.messages
                                # was reached there
    int64_t flushed             # what is below is on disk; the recovery point may be lower, because files that Python
                                # writes belong to it
    bint flush_wanted           # asked for, of the workers or by FLUSH_WANTED, and not answered yet


cdef inline LogPrivate* private_of(const LogState* log) noexcept nogil:
    return <LogPrivate*>log.own
