"""AcquiredPartition: one partition of a ShareFetch response, its acquired records, and their acknowledgements.

The broker sends whole batches, and the ranges of offsets that this member has acquired in them. Only acquired records
are read. Each acquired offset has a state:

    WAITING --read--> HELD --acknowledge()--> ACCEPT, RELEASE, REJECT, RENEW --collect()--> DONE
       |                ^                                                 +------------> RENEWING
       |                +-------------------- renewed() --------------------------------------+
       +--no record has the offset--> GAP --collect()--> DONE
       +--its batch cannot be read--> RELEASE or REJECT
       +--its lock has ended--> DONE

A batch whose records are damaged is rejected, as in Kafka's client; a batch that this client cannot open is released.
Its error is raised, and reading goes on behind the batch.

`explicit`: the user acknowledges every record; otherwise the next read of a record accepts the ones before it.
`committable`: the acknowledgements may be sent; acknowledge() clears it until the user polls or commits. Two threads
work on the object as on FetchBuffer's (record_iterator.pyx): the GIL protects it.
"""

from libc.stdint cimport INT64_MAX, int8_t, int64_t

from kafkapy._speedups.base.posix cimport monotonic_ns
from kafkapy._speedups.base.wire cimport Cursor, cursor_init
from kafkapy._speedups.clients.consumer.consumer_record cimport ConsumerRecord
from kafkapy._speedups.clients.consumer.fetched_batch cimport (
    FETCHED_BAD_CRC,
    FETCHED_BAD_LENGTH,
    FETCHED_BAD_MAGIC,
    FETCHED_BAD_RECORDS,
    FETCHED_INCOMPLETE,
    FETCHED_READY,
    FetchedBatch,
)
from kafkapy._speedups.clients.consumer.fetched_partition cimport FetchedPartition
from kafkapy._speedups.clients.consumer.record_iterator cimport RecordColumns
from kafkapy._speedups.records.record_batch cimport BATCH_OK, CONTROL_FLAG, RecordView, record_read

from kafkapy.errors import IllegalStateError

cdef enum:
    FEW = 10                            # equal neighbours that share a batch of acknowledgements with others

UNACKNOWLEDGED = "All records must be acknowledged in explicit acknowledgement mode."


cdef class AcquiredPartition(FetchedPartition):
    """The acquired records of one partition. `topic_partition`, `node_id` (the acquiring broker) and `locked_until`
    (monotonic seconds, after which no record is read) are the fetcher's. `waiting`, `held`, `unsent` and `renewing`
    count offsets by their state.
    """

    def __cinit__(self):
        self.node_id = -1
        self.locked_until = 1e300
        self.committable = True

    cdef void acquire(self, vector[AcquiredRange]* ranges) except *:
        """Takes over the ranges, which are sorted and apart."""
        cdef int64_t count = 0
        cdef size_t i
        self.ranges.swap(ranges[0])
        for i in range(self.ranges.size()):
            self.ranges[i].states_at = count
            count += self.ranges[i].last_offset - self.ranges[i].first_offset + 1
        self.states.assign(count, <int8_t>STATE_WAITING)
        self.waiting = count
        self.undecided = self.first_offset

    @property
    def acquired(self):
        """[(first offset, last offset, delivery count)] as the broker has sent them."""
        cdef size_t i
        return [(self.ranges[i].first_offset, self.ranges[i].last_offset, self.ranges[i].delivery_count)
                for i in range(self.ranges.size())]

    @property
    def first_offset(self):
        """The first acquired offset, -1 without one."""
        return self.ranges[0].first_offset if self.ranges.size() else -1

    @property
    def settled(self):
        """Whether nothing is left to read, to acknowledge, or to send."""
        return not (self.waiting or self.held or self.unsent or self.renewing)

    # ---- states ------------------------------------------------------------------------------------------------------

    cdef int64_t range_of(self, int64_t offset) noexcept:
        """The range that has an offset, or -1."""
        cdef int64_t low = 0
        cdef int64_t high = <int64_t>self.ranges.size() - 1
        cdef int64_t middle
        while low <= high:
            middle = (low + high) // 2
            if offset < self.ranges[middle].first_offset:
                high = middle - 1
            elif offset > self.ranges[middle].last_offset:
                low = middle + 1
            else:
                return middle
        return -1

    cdef int64_t place_of(self, int64_t offset) noexcept:
        """The place of an offset's state, -1 for an offset that was not acquired."""
        cdef int64_t i = self.range_of(offset)
        return -1 if i < 0 else self.ranges[i].states_at + offset - self.ranges[i].first_offset

    cdef bint enter_range(self) noexcept:
        """Goes on to the range of the next undecided offset; False behind the last range."""
        while self.range_at < self.ranges.size() and self.undecided > self.ranges[self.range_at].last_offset:
            self.range_at += 1
            if self.range_at < self.ranges.size() and self.undecided < self.ranges[self.range_at].first_offset:
                self.undecided = self.ranges[self.range_at].first_offset
        return self.range_at < self.ranges.size()

    cdef void decide(self, int64_t end, int8_t state) noexcept:
        """Gives the undecided offsets below `end` this state."""
        cdef AcquiredRange* span
        cdef int64_t place
        while self.enter_range() and self.undecided < end:
            span = &self.ranges[self.range_at]
            place = span.states_at + self.undecided - span.first_offset
            self.states[place] = state
            self.waiting -= 1
            if state != STATE_DONE:
                self.unsent += 1
            self.undecided += 1

    cdef void give_up_batch(self) noexcept:
        """Acknowledges the acquired records of the batch that cannot be read, and leaves it."""
        cdef FetchedBatch* batch
        if self.current >= self.data.batches.size():
            return
        batch = &self.data.batches[self.current]
        if batch.state in (FETCHED_BAD_LENGTH, FETCHED_BAD_MAGIC, FETCHED_INCOMPLETE):
            # The end of the batch is unknown, and nothing behind it can be read.
            self.decide(INT64_MAX, STATE_RELEASE)
            self.current = self.data.batches.size()
            self.entered = False
        else:
            self.decide(batch.base_offset, STATE_GAP)
            self.decide(batch.next_offset,
                        STATE_REJECT if batch.state in (FETCHED_BAD_CRC, FETCHED_BAD_RECORDS) else STATE_RELEASE)
            self.leave_batch()
        self.settle()

    cdef bint drop_expired(self) noexcept:
        """Drops unread records whose lock has ended: the broker has released them. Whether it has."""
        if self.waiting == 0 or <double>monotonic_ns() / 1e9 < self.locked_until:
            return False
        self.decide(INT64_MAX, STATE_DONE)
        self.exhausted = True
        self.entered = False
        return True

    cdef void hold(self, int64_t place) noexcept:
        self.states[place] = STATE_HELD
        self.held += 1
        if <size_t>place < self.held_from:
            self.held_from = place

    cdef void hold_between(self, int64_t start, int64_t end) noexcept:
        """Marks the offsets from `start` to `end` as held where a record has them, as gaps where none has. Each call
        goes on where the one before has stopped."""
        cdef FetchedBatch* batch
        cdef RecordView record
        cdef Cursor before
        cdef int64_t offset, place
        self.decide(end, STATE_GAP)
        while self.walked < self.data.batches.size():
            batch = &self.data.batches[self.walked]
            if not self.walking:
                if batch.base_offset >= end:
                    return
                if batch.next_offset <= start or batch.attributes & CONTROL_FLAG:
                    self.walked += 1
                    continue
                # A damaged batch was read up to the damage, when it was the last one that was entered.
                if batch.state != FETCHED_READY and not (batch.state == FETCHED_BAD_RECORDS and batch == self.batch):
                    self.walked += 1
                    continue
                cursor_init(&self.walk, batch.records, batch.size)
                self.walk_left = batch.record_count
                self.walking = True
            while self.walk_left > 0:
                before = self.walk
                if record_read(&self.walk, &record) != BATCH_OK:
                    break
                offset = batch.base_offset + record.offset_delta
                if offset >= end:
                    self.walk = before
                    return
                self.walk_left -= 1
                if offset < start:
                    continue
                place = self.place_of(offset)
                if place >= 0 and self.states[place] == STATE_GAP:
                    self.unsent -= 1
                    self.hold(place)
            self.walking = False
            self.walked += 1

    # ---- records -----------------------------------------------------------------------------------------------------

    cdef ConsumerRecord read_acquired(self):
        """The next acquired record, or None at the end."""
        cdef ConsumerRecord record
        cdef AcquiredRange* span
        while self.enter_range():
            if self.next_offset < self.undecided:
                self.next_offset = self.undecided
            try:
                record = <ConsumerRecord>FetchedPartition.next(self)
            except Exception:
                self.give_up_batch()
                raise
            if record is None:
                self.decide(INT64_MAX, STATE_GAP)
                return None
            # Meanwhile another thread may have released the unread records.
            self.decide(record.offset, STATE_GAP)
            if not self.enter_range():
                return None
            span = &self.ranges[self.range_at]
            if record.offset != self.undecided:
                continue                # not acquired
            self.undecided += 1
            self.waiting -= 1
            self.hold(span.states_at + record.offset - span.first_offset)
            record.deliveries = span.delivery_count
            return record
        return None

    cpdef object user_polls(self):
        """The user is done with the records before: they are accepted, or must be acknowledged. IllegalStateError."""
        if self.held:
            if self.explicit:
                raise IllegalStateError(UNACKNOWLEDGED)
            self.accept_held()
        self.committable = True

    cpdef object next(self):
        """The next record, or None at the end, after `user_polls`. Errors as FetchedPartition.next, once."""
        if self.held or not self.committable:
            self.user_polls()
        if self.failure is not None:
            failure = self.failure
            self.failure = None
            raise failure
        if self.drop_expired():
            return None
        return self.read_acquired()

    cpdef list take(self, Py_ssize_t max_records):
        """Takes up to max_records; fewer only at the end, or before an error, which the next call raises. Every call
        raises it again, until `error_seen`."""
        cdef list records = []
        cdef ConsumerRecord record
        if self.failure is not None:
            raise self.failure
        if self.drop_expired():
            return records
        while len(records) < max_records:
            try:
                record = self.read_acquired()
            except Exception as error:
                self.failure = error
                if records:
                    break
                raise
            if record is None:
                break
            records.append(record)
        return records

    def error_seen(self):
        """The user has the error of the last read."""
        self.failure = None

    # ---- acknowledgements --------------------------------------------------------------------------------------------

    def acknowledge(self, int64_t offset, int kind):
        """Acknowledges one record; a later call changes the kind until the acknowledgement is collected. Whether the
        user has the record."""
        cdef int64_t place = self.place_of(offset)
        cdef int8_t state
        if place < 0:
            return False
        state = self.states[place]
        if state == STATE_HELD:
            self.held -= 1
            self.unsent += 1
        elif state < STATE_ACCEPT or state > STATE_RENEW:
            return False
        self.states[place] = <int8_t>kind
        self.committable = False
        return True

    cpdef object accept_held(self):
        """Accepts all records with the user."""
        cdef size_t place = self.held_from
        while self.held > 0 and place < self.states.size():
            if self.states[place] == STATE_HELD:
                self.states[place] = STATE_ACCEPT
                self.held -= 1
                self.unsent += 1
            place += 1
        self.held_from = place

    def release_waiting(self):
        """Releases the unread records, for other members."""
        self.decide(INT64_MAX, STATE_RELEASE)
        self.exhausted = True
        self.entered = False

    cdef size_t first_open(self) noexcept:
        """The place of the first offset that is not done."""
        cdef size_t place = self.unsent_from
        while place < self.states.size() and self.states[place] == STATE_DONE:
            place += 1
        return place

    def collect(self):
        """Takes the acknowledgements to send: [(first offset, last offset, types)], with one type for all offsets or a
        type for each of them."""
        cdef list out = []
        cdef bytearray types = bytearray()
        cdef int64_t first = -1
        cdef int64_t expected = -1
        cdef int64_t offset, i
        cdef size_t place = self.unsent_from
        cdef size_t low = 0
        cdef size_t high = self.ranges.size()
        cdef int8_t state
        while high - low > 1:
            if self.ranges[(low + high) // 2].states_at <= <int64_t>place:
                low = (low + high) // 2
            else:
                high = (low + high) // 2
        i = low
        while self.unsent > 0 and place < self.states.size():
            offset = self.ranges[i].first_offset + <int64_t>place - self.ranges[i].states_at
            if offset > self.ranges[i].last_offset:
                i += 1
                continue
            state = self.states[place]
            if state <= STATE_RENEW:
                if offset != expected and types:
                    add_runs(out, first, types)
                    types = bytearray()
                if not types:
                    first = offset
                expected = offset + 1
                types.append(state)
                self.unsent -= 1
                if state == STATE_RENEW:
                    self.states[place] = STATE_RENEWING
                    self.renewing += 1
                else:
                    self.states[place] = STATE_DONE
            place += 1
        if types:
            add_runs(out, first, types)
        self.unsent_from = self.first_open()
        return out

    def renewed(self, list batches not None, bint successful):
        """Ends the renewals among collected acknowledgements: the user has their records again, or has lost them.
        Returns the offsets."""
        cdef list out = []
        cdef int64_t first, last, offset, place
        cdef bytes types
        for first, last, types in batches:
            if STATE_RENEW not in types:
                continue
            for offset in range(first, last + 1):
                place = self.place_of(offset)
                if place < 0 or self.states[place] != STATE_RENEWING:
                    continue
                self.renewing -= 1
                out.append(offset)
                if successful:
                    self.hold(place)
                else:
                    self.states[place] = STATE_DONE
        return out


cdef int add_runs(list out, int64_t first, bytearray types) except -1:
    """Appends the acknowledgements of neighbouring offsets: a long run of one type gets its own batch."""
    cdef bytes all_types = bytes(types)
    cdef const unsigned char* at = all_types
    cdef Py_ssize_t size = len(all_types)
    cdef Py_ssize_t begin = 0               # of the batch
    cdef Py_ssize_t run = 0                 # of the last run in it
    cdef Py_ssize_t end
    while run < size:
        end = run + 1
        while end < size and at[end] == at[run]:
            end += 1
        if end - run > FEW:
            add_batch(out, first, all_types, begin, run)
            add_batch(out, first, all_types, run, end)
            begin = end
        run = end
    add_batch(out, first, all_types, begin, size)
    return 0


cdef int add_batch(list out, int64_t first, bytes types, Py_ssize_t begin, Py_ssize_t end) except -1:
    """Appends one batch, unless it is empty; equal types are one."""
    cdef bytes part
    if begin < end:
        part = types[begin:end]
        if part.count(part[:1]) == end - begin:
            part = part[:1]
        out.append((first + begin, first + end - 1, part))
    return 0


cdef class AcquiredColumns(RecordColumns):
    """Acquired records as columns: `inner` gets the rows, `counts` the (rows, delivery count) pairs in their order."""

    def __init__(self, RecordColumns inner not None):
        self.inner = inner
        self.bytes = inner.bytes
        self.counts = []

    cpdef int64_t append(self, FetchedPartition partition, int64_t max_records, bint release_gil=False,
                         int64_t end_offset=INT64_MAX, int64_t max_bytes=INT64_MAX) except -1:
        """Takes up to max_records of an AcquiredPartition, and returns how many. Takes fewer only at the end, once
        `bytes` has reached max_bytes, or before an error; errors as AcquiredPartition.take."""
        cdef AcquiredPartition chunk = <AcquiredPartition?>partition
        cdef AcquiredRange* span
        cdef int64_t taken = 0
        cdef int64_t rows, start, end
        if chunk.failure is not None:
            raise chunk.failure
        if chunk.drop_expired():
            return 0
        while taken < max_records and self.inner.bytes < max_bytes and chunk.enter_range():
            span = &chunk.ranges[chunk.range_at]
            start = chunk.undecided
            end = span.last_offset + 1
            if chunk.next_offset < start:
                chunk.next_offset = start
            try:
                rows = self.inner.append(chunk, max_records - taken, False, end, max_bytes)
            except Exception as error:
                chunk.give_up_batch()
                chunk.failure = error
                if taken:
                    break
                raise
            self.bytes = self.inner.bytes
            if rows:
                self.counts.append((rows, span.delivery_count))
                taken += rows
            if chunk.exhausted and not chunk.entered:
                chunk.hold_between(start, end)          # no batch is left: nothing has the other offsets
            elif chunk.next_offset > start:
                chunk.hold_between(start, min(end, chunk.next_offset))
            elif not rows:
                break
        return taken
