"""Leading and following from Python: the part of PartitionLog that knows replicas (see replicated_log.pxd)."""

from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport atomic_load, pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.log.describe cimport describe_epochs, describe_followers
from kafkapy._speedups.log.layout cimport Waiter
from kafkapy._speedups.log.leadership cimport FollowerFetch, follow, follower_fetched, lead, set_isr
from kafkapy._speedups.log.private cimport private_of
from kafkapy._speedups.log.replication cimport Replication, ReplicationState, replication_ref, replication_unref
from kafkapy._speedups.log.state cimport (
    end_offset_for_epoch_locked,
    fire,
    log_epochs_version,
    set_high_watermark_locked,
    set_offline_locked,
    take_waiters_locked,
)


cdef int take_others(object replicas, int32_t own_id, vector[int32_t]* out) except -1:
    """Takes each id but this broker's, once."""
    for replica in dict.fromkeys(replicas):
        if replica != own_id:
            out.push_back(replica)
    return 0


cdef class ReplicatedLog(LogFiles):
    """The leader, the ISR and the followers of a log: a base class of PartitionLog, which documents the threads."""

    @property
    def is_leader(self):
        return self.state.leader

    @property
    def in_sync_replicas(self):
        """The size of the committed ISR, this broker included; 0 before it leads."""
        return self.state.in_sync_replicas

    @property
    def leader_id(self):
        return self.state.leader_id

    @property
    def leader_epoch(self):
        return self.state.leader_epoch

    cdef int32_t effective_min_in_sync(self, object config) except? -1:
        """The effective min.insync.replicas: never more than the partition's replicas (Partition.effectiveMinIsr)."""
        cdef int32_t wanted = config.min_insync_replicas
        return min(wanted, self.replica_count) if self.replica_count > 0 else wanted

    def use_replication(self, Replication replication not None):
        """Sets the lag time, clock and live brokers of this broker; before the log leads."""
        cdef ReplicationState* old
        with nogil:
            replication_ref(replication.state)
            pthread_mutex_lock(&self.state.mutex)
            old = private_of(self.state).replication
            private_of(self.state).replication = replication.state
            pthread_mutex_unlock(&self.state.mutex)
            replication_unref(old)

    def become_leader(self, int leader_id, int leader_epoch, object isr=(), object replicas=(), *,
                      int partition_epoch=-1):
        """Makes this broker the leader. `isr`: ids of the committed ISR, with or without this broker's own;
        `replicas`: ids of the assignment; `partition_epoch`: their version, -1 when not known.

        In a new leader epoch the positions of all followers are unknown until they fetch. A replica outside both cannot
        fetch as a follower. The number of assigned replicas bounds min.insync.replicas; without `replicas` the
        configured value holds.
        """
        cdef vector[int32_t] in_sync
        cdef vector[int32_t] assigned
        cdef bint dropped
        cdef int32_t min_in_sync
        self.replica_count = <int32_t>len(replicas)
        min_in_sync = self.effective_min_in_sync(self.config)
        take_others(isr, leader_id, &in_sync)
        take_others(replicas, leader_id, &assigned)
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            self.state.config.min_in_sync_replicas = min_in_sync
            pthread_mutex_unlock(&self.state.mutex)
            dropped = lead(self.state, leader_id, leader_epoch, partition_epoch, &in_sync, &assigned)
        if dropped:
            self.write_leader_epochs()

    def become_follower(self, int leader_id, int leader_epoch, *, int partition_epoch=-1):
        """Makes another broker the leader (-1: none). Waiting requests get NOT_LEADER_OR_FOLLOWER."""
        with nogil:
            follow(self.state, leader_id, leader_epoch, partition_epoch)

    def set_isr(self, int partition_epoch, object isr, object maximal_isr, *, int leader_epoch=-1):
        """Replaces the ISR of a leader: `isr`, the committed one, decides whether acks=all may append and the high
        watermark may move; `maximal_isr`, with a member that the controller has yet to add, how far it moves.

        False, and nothing changes, when the log does not lead in `leader_epoch` (-1: not checked), or knows a newer
        partition epoch. From here on, followers outside the ISR are announced again.
        """
        cdef vector[int32_t] committed
        cdef vector[int32_t] maximal
        cdef bint applied
        take_others(isr, self.state.leader_id, &committed)
        take_others(maximal_isr, self.state.leader_id, &maximal)
        with nogil:
            applied = set_isr(self.state, leader_epoch, partition_epoch, &committed, &maximal)
        return applied

    @property
    def partition_epoch(self):
        """The version of leadership and ISR; -1 when not known."""
        return private_of(self.state).partition_epoch

    @property
    def maximal_in_sync_replicas(self):
        """The size of the maximal ISR, this broker included; 0 before it leads."""
        return private_of(self.state).maximal_in_sync

    @property
    def min_in_sync_replicas(self):
        """min.insync.replicas, at most the number of assigned replicas."""
        return self.state.config.min_in_sync_replicas

    @property
    def epoch_start_offset(self):
        """The log end when this broker began to lead in the present leader epoch; 0 when it does not lead."""
        return private_of(self.state).epoch_start_offset

    def set_high_watermark(self, int64_t offset):
        """Sets the high watermark of a follower, or at start-up, within [log start, log end]. Returns the new one."""
        cdef vector[Waiter] woken
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            set_high_watermark_locked(self.state, offset)
            offset = self.state.high_watermark
            take_waiters_locked(self.state, False, &woken)
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)
        return offset

    @property
    def announce_high_watermark(self):
        """Whether each change of the high watermark posts a HIGH_WATERMARK event."""
        return self.state.announce_high_watermark

    @announce_high_watermark.setter
    def announce_high_watermark(self, bint value):
        # Set under the mutex, so that a caller that reads the high watermark next misses no unannounced change.
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            self.state.announce_high_watermark = value
            pthread_mutex_unlock(&self.state.mutex)

    def follower_position(self, int replica_id, int64_t log_end_offset, *, int64_t log_start_offset=-1,
                          int64_t leader_end_offset=-1, int64_t broker_epoch=-1):
        """Notes a follower's fetch at its log end; ignores a replica outside the assignment. `leader_end_offset`: this
        log's end when it read for the follower, -1: the present one."""
        cdef FollowerFetch fetch
        fetch.replica_id = replica_id
        fetch.log_end_offset = log_end_offset
        fetch.log_start_offset = log_start_offset
        if leader_end_offset < 0:
            leader_end_offset = atomic_load(&self.state.log_end_offset)
        fetch.leader_end_offset = leader_end_offset
        fetch.broker_epoch = broker_epoch
        with nogil:
            follower_fetched(self.state, &fetch)

    def followers(self):
        """The other replicas of the assignment, by id: [(id, log end or -1, log start or -1, ms when it was last caught
        up or -1, broker epoch or -1, in the maximal ISR), ...]. Times are of Replication.now_ms."""
        return describe_followers(self.state)

    @property
    def announce_log_starts(self):
        """Whether each change of a follower's log start posts a FOLLOWER_LOG_START event."""
        return private_of(self.state).announce_log_starts

    @announce_log_starts.setter
    def announce_log_starts(self, bint value):
        # Set under the mutex, so that a caller that reads the followers next misses no unannounced change.
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            private_of(self.state).announce_log_starts = value
            pthread_mutex_unlock(&self.state.mutex)

    @property
    def leader_throttled(self):
        """Whether leader.replication.throttled.replicas names this broker's replica."""
        return private_of(self.state).leader_throttled

    @leader_throttled.setter
    def leader_throttled(self, bint value):
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            private_of(self.state).leader_throttled = value
            pthread_mutex_unlock(&self.state.mutex)

    def leader_epochs(self):
        """[(epoch, start offset), ...], ascending."""
        return describe_epochs(self.state)

    def offset_for_leader_epoch(self, int epoch):
        """(largest known epoch <= epoch, its end offset); (-1, -1) when unknown (OffsetForLeaderEpoch, KIP-101/279)."""
        cdef int32_t found
        cdef int64_t end
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            end_offset_for_epoch_locked(self.state, epoch, &found, &end)
            pthread_mutex_unlock(&self.state.mutex)
        return found, end

    cdef int64_t epochs_version(self) noexcept:
        cdef int64_t version
        with nogil:
            version = log_epochs_version(self.state)
        return version

    def leave_leader_epochs(self):
        """Leaves the checkpoint file of the leader epochs as it is. The next flush writes and syncs it."""
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            private_of(self.state).epochs_version += 1
            pthread_mutex_unlock(&self.state.mutex)

    def write_leader_epochs(self):
        """Writes the leader epochs into their checkpoint file. OSError, then the log is offline."""
        cdef int64_t version = self.epochs_version()
        try:
            self.storage.write_leader_epochs(self.leader_epochs())
            private_of(self.state).epochs_written = version
        except OSError as error:
            self.go_offline(error.errno or EIO)
            raise

    def go_offline(self, int failure):
        """Takes the log offline after a failure of its directory: every operation answers KAFKA_STORAGE_ERROR."""
        cdef vector[Waiter] woken
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            set_offline_locked(self.state, failure, "the log directory is offline")
            take_waiters_locked(self.state, True, &woken)
            pthread_mutex_unlock(&self.state.mutex)
            fire(&woken)
