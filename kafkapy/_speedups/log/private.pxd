"""The private half of a log's state: for the kernels of this room only."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_cond_t, pthread_mutex_t
from kafkapy._speedups.log.layout cimport LogState, Waiter
from kafkapy._speedups.log.producer_state cimport CompletedTransaction
from kafkapy._speedups.log.recovery cimport LogHistory
from kafkapy._speedups.log.replication cimport ReplicationState
from kafkapy._speedups.log.workers cimport LogWorkersState, log_work

cdef struct RecentBatch:        # the place of a recent append, so that reads at the tail need no index
    int64_t base_offset
    int64_t last_offset
    int64_t position
    int64_t size
    int64_t segment_base

cdef struct LimitPlace:         # the place of the first batch that reaches a high watermark or last stable offset:
                                # bytes below may be sent
    int64_t offset              # -1: not known
    int64_t segment_base
    int64_t position

cdef enum:
    NEVER_MS = -1

cdef struct Follower:           # a replica of the assignment on another broker; times of replication_now_ms
    int64_t log_end_offset      # -1 until its first fetch
    int64_t log_start_offset    # -1 until its first fetch
    int64_t leader_end_offset   # the end of this log at its last fetch
    int64_t fetched_ms          # its last fetch, or NEVER_MS
    int64_t caught_up_ms        # when it last had all records; NEVER_MS: not under this leader
    int64_t broker_epoch        # of its last fetch, -1 when it sends none
    bint in_isr                 # in the committed ISR
    bint in_sync                # in the maximal ISR: committed, or the leader has asked the controller to add it
    bint announced              # EVENT_FOLLOWER_CAUGHT_UP was posted since the last change of the ISR

cdef cppclass ProducerSnapshot: # made at a roll, for a worker to write
    int64_t offset
    string data

cdef struct AbortedWrite:        # an entry for a .txnindex file
    int64_t segment_base
    CompletedTransaction entry

cdef cppclass LogPrivate:
    LogHistory history          # producer state, leader epochs, aborted transactions
    string directory            # of the segment files; empty when the backend has none
    bint loading                # the thread that made the log reads its files
    size_t watched_at           # place in the table of open_files.pyx
    bint rolling                # a roll renames its file outside the mutex: appends park, others wait
    bint reopens                # while rolling: files open again under their old paths, also after the renames
                                # (records/moved_directories.pxd); the move has a second reference to each segment
    bint writing                # an append has its turn: it writes outside the mutex and changes the state afterwards
    bint turn_is_slow           # a thread waited too long for that turn: later appends park at once
    int64_t turns               # number of turns
    int64_t turn_waiters        # threads that wait for turn_over
    int64_t settlers            # of these in lock_settled: appends let them go first
    pthread_cond_t turn_over
    int64_t turn_began_ns       # 0: not measured
    int64_t fair_until          # number of turns, until which they are handed over (turns.pxd)
    int64_t turn_numbers        # places given to parked appends
    int64_t turn_queue          # entries of `waiters` of the kind WAIT_TURN
    Waiter next_turn            # the append that was called and has not come yet; owner NULL: none
    int64_t next_turn_until_ns  # then others pass it
    int64_t slow                # atomic; threads that hang in a read of this log (base/blocking.pxd)
    int64_t slow_appends        # atomic; likewise in a write
    bint segment_wanted         # the workers, or Python by SEGMENT_WANTED, have the request
    bint native_segments        # background.pyx makes segments, not the storage
    int64_t segments_made
    LogWorkersState* segment_workers    # referenced; NULL: the control plane makes segments
    LogWorkersState* flush_workers
    log_work make_segment       # the workers' function, of background.pyx
    log_work flush
    bint closed
    vector[RecentBatch] recent  # ring
    size_t recent_next
    LimitPlace limits[2]        # of the last requested high watermark and last stable offset
    int64_t layout              # counts changes of batch places and forgotten aborted transactions, after which a
                                # reader must look again
    vector[int64_t] aborted_lowest  # lowest first offset in each ABORTED_BLOCK of history.aborted; made when a read
                                    # needs it
    size_t aborted_summed       # entries of history.aborted that it covers
    unordered_map[int32_t, Follower] followers
    ReplicationState* replication   # referenced; NULL: defaults
    int32_t partition_epoch     # version of the leadership and ISR; -1 when not known
    int32_t maximal_in_sync     # size of the maximal ISR
    int64_t epoch_start_offset  # the log end when this broker began to lead in the present epoch
    bint announce_log_starts    # post EVENT_FOLLOWER_LOG_START
    bint leader_throttled       # leader.replication.throttled.replicas names this broker's replica
    vector[ProducerSnapshot] snapshots
    int64_t epochs_version      # counts changes of the leader epochs
    int64_t epochs_written      # its value when the epochs' file was last written
    int64_t epochs_empty        # its value when only a last epoch without a record was missing in the file
    int64_t unflushed_messages  # since the last flush
    uint64_t random             # for roll jitter
    int64_t truncations         # a flush that a truncation overtook must not move the recovery point
    pthread_mutex_t sealing     # held while closed segments are cut to size and synced, so that no truncation opens one
                                # again meanwhile
    pthread_mutex_t aborted_file    # held while .txnindex is written; taken before the log's mutex
    vector[AbortedWrite] unwritten  # aborted transactions not in .txnindex yet
    int64_t flush_due           # records below must be on disk before they are acknowledged or visible
                                # (flush.messages)
    int64_t flushed             # records below are on disk; the recovery point may be lower, because it covers files
                                # that Python writes
    bint flush_wanted           # the workers, or Python by FLUSH_WANTED, have the request


cdef inline LogPrivate* private_of(const LogState* log) noexcept nogil:
    return <LogPrivate*>log.own
