"""The in-flight window of a share partition (see window.pxd)."""

from cython.operator cimport dereference as deref
from libc.stdint cimport INT16_MAX, int8_t, int16_t, int32_t, int64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.share.layout cimport (
    SHARE_ACQUIRED,
    SHARE_ARCHIVED,
    SHARE_AVAILABLE,
    ShareLimits,
    StateChange,
)


cdef Window* window_new(int32_t state_epoch, int32_t leader_epoch, const ShareLimits* limits,
                        int64_t start_offset) noexcept nogil:
    cdef Window* window = new Window()
    window.limits = limits[0]
    window.state_epoch = state_epoch
    window.leader_epoch = leader_epoch
    window.start = start_offset
    window.next = start_offset
    window.delivery_complete = 0
    window.acquired = 0
    window.pending = 0
    window.writes = 0
    window.reader = 0
    window.reader_wanted = False
    return window


cdef void window_free(Window* window) noexcept nogil:
    cdef size_t i
    for i in range(window.batches.size()):
        del window.batches[i]
    for i in range(window.members.size()):
        if window.members[i].id != NULL:
            del window.members[i].id
    del window


# ---- places ----------------------------------------------------------------------------------------------------------

cdef size_t window_find(Window* window, int64_t offset, size_t hint) noexcept nogil:
    cdef size_t low = 0, high = window.batches.size(), middle
    # Requests name offsets in order: most often the hint or the batch behind it is the place.
    if hint < high:
        if window.batches[hint].last >= offset:
            if hint == 0 or window.batches[hint - 1].last < offset:
                return hint
            high = hint
        else:
            low = hint + 1
            if low < high and window.batches[low].last >= offset:
                return low
    while low < high:
        middle = low + (high - low) // 2
        if window.batches[middle].last < offset:
            low = middle + 1
        else:
            high = middle
    return low


cdef ShareBatch* batch_new(int64_t first, int64_t last, int64_t width) noexcept nogil:
    cdef ShareBatch* batch = new ShareBatch()
    batch.first = first
    batch.last = last
    batch.common.deadline_ms = NEVER_MS
    batch.common.member = NO_MEMBER
    batch.common.delivery_count = 0
    batch.common.state = SHARE_AVAILABLE
    batch.common.pending = NO_TRANSITION
    batch.base = first
    batch.width = width
    batch.available = last - first + 1
    batch.locked = 0
    batch.first_available = first
    batch.due_ms = NEVER_MS
    batch.in_available = False
    batch.in_locks_ms = NEVER_MS
    return batch


cdef ShareBatch* window_append(Window* window, int64_t first, int64_t last, int64_t width) noexcept nogil:
    cdef ShareBatch* batch = batch_new(first, last, width)
    window.batches.push_back(batch)
    window.next = last + 1
    return batch


cdef void window_cut(Window* window, size_t index, int64_t offset) noexcept nogil:
    cdef ShareBatch* batch = window.batches[index]
    cdef ShareBatch* second = batch_new(offset, batch.last, batch.width)
    second.common = batch.common
    second.due_ms = batch.due_ms
    if batch.available == 0:
        second.available = 0
    if batch.locked:
        second.locked = second.last - second.first + 1
    batch.last = offset - 1
    if batch.available:
        batch.available = batch.last - batch.first + 1
    if batch.locked:
        batch.locked = batch.last - batch.first + 1
    window.batches.insert(window.batches.begin() + <int64_t>(index + 1), second)
    window_sync(window, second)


cdef void window_mix(ShareBatch* batch) noexcept nogil:
    if not batch.slots.empty():
        return
    batch.slots.assign(<size_t>(batch.last - batch.first + 1), batch.common)
    batch.base = batch.first
    batch.first_available = batch.first if batch.available else batch.last + 1


cdef void batch_leave_sets(Window* window, ShareBatch* batch) noexcept nogil:
    if batch.in_available:
        window.available.erase(batch.first)
        batch.in_available = False
    if batch.in_locks_ms != NEVER_MS:
        window.locks.erase(LockKey(batch.in_locks_ms, batch.first))
        batch.in_locks_ms = NEVER_MS


cdef void window_sync(Window* window, ShareBatch* batch) noexcept nogil:
    cdef bint has_available = batch.available > 0
    cdef int64_t due_ms = batch.due_ms if batch.locked > 0 else <int64_t>NEVER_MS
    if has_available != batch.in_available:
        if has_available:
            window.available.insert(batch.first)
        else:
            window.available.erase(batch.first)
        batch.in_available = has_available
    if due_ms != batch.in_locks_ms:
        if batch.in_locks_ms != NEVER_MS:
            window.locks.erase(LockKey(batch.in_locks_ms, batch.first))
        if due_ms != NEVER_MS:
            window.locks.insert(LockKey(due_ms, batch.first))
        batch.in_locks_ms = due_ms


cdef void remove_front(Window* window) noexcept nogil:
    cdef ShareBatch* batch = window.batches.front()
    batch_leave_sets(window, batch)
    window.batches.pop_front()
    del batch


cdef bint window_advance(Window* window) noexcept nogil:
    cdef int64_t before = window.start, count
    cdef ShareBatch* batch
    cdef RecordSlot* slot
    while not window.batches.empty():
        batch = window.batches.front()
        count = 0
        if batch.slots.empty():
            if is_final(batch.common.state):
                count = batch.last - batch.first + 1
        else:
            while batch.first + count <= batch.last:
                slot = slot_at(batch, batch.first + count)
                if not is_final(slot.state):
                    break
                count += 1
        window.delivery_complete -= count
        if batch.first + count <= batch.last:
            if count:
                batch_leave_sets(window, batch)
                batch.first += count
                window_sync(window, batch)
            break
        remove_front(window)
    window.start = window.next if window.batches.empty() else window.batches.front().first
    return window.start != before


cdef inline bint will_be_final(const RecordSlot* slot) noexcept nogil:
    return is_final(slot.state if slot.pending == NO_TRANSITION else slot.pending)


cdef int64_t window_start_then(Window* window, int64_t* passed) noexcept nogil:
    cdef ShareBatch* batch
    cdef int64_t count, width
    cdef size_t i
    passed[0] = 0
    for i in range(window.batches.size()):
        batch = window.batches[i]
        width = batch.last - batch.first + 1
        count = 0
        if batch.slots.empty():
            if will_be_final(&batch.common):
                count = width
        else:
            while count < width and will_be_final(slot_at(batch, batch.first + count)):
                count += 1
        passed[0] += count
        if count < width:
            return batch.first + count
    return window.next


cdef void slot_drop(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil:
    if slot.state == SHARE_ACQUIRED:
        count_unowned(window, batch, slot, count)
        if is_final(slot.pending):
            window.delivery_complete -= count
    elif slot.state == SHARE_AVAILABLE:
        batch.available -= count
    elif is_final(slot.state):
        window.delivery_complete -= count


cdef void window_drop_below(Window* window, int64_t offset) noexcept nogil:
    cdef ShareBatch* batch
    cdef int64_t end, at
    while not window.batches.empty() and window.batches.front().first < offset:
        batch = window.batches.front()
        batch_leave_sets(window, batch)
        end = min(batch.last + 1, offset)
        if batch.slots.empty():
            slot_drop(window, batch, &batch.common, end - batch.first)
        else:
            for at in range(batch.first, end):
                slot_drop(window, batch, slot_at(batch, at), 1)
        if end > batch.last:
            remove_front(window)
        else:
            batch.first = end
            window_sync(window, batch)
    window.start = max(window.start, offset)
    window.next = max(window.next, offset)


cdef int64_t window_first_available(Window* window) noexcept nogil:
    cdef ShareBatch* batch
    if window.available.empty():
        return -1
    batch = window.batches[window_find(window, deref(window.available.begin()), 0)]
    if batch.slots.empty():
        return batch.first
    batch.first_available = max(batch.first_available, batch.first)
    while slot_at(batch, batch.first_available).state != SHARE_AVAILABLE:
        batch.first_available += 1
    return batch.first_available


# ---- members ---------------------------------------------------------------------------------------------------------

cdef int32_t member_find(Window* window, const char* id, size_t size) noexcept nogil:
    cdef string key
    key.assign(id, size)
    cdef unordered_map[string, int32_t, SeededHash].iterator found = window.member_places.find(key)
    return <int32_t>NO_MEMBER if found == window.member_places.end() else deref(found).second


cdef int32_t member_take(Window* window, const char* id, size_t size) noexcept nogil:
    cdef int32_t place = member_find(window, id, size)
    cdef ShareMember fresh
    if place != NO_MEMBER:
        return place
    fresh.id = new string()
    fresh.id.assign(id, size)
    fresh.held = 0
    if window.free_places.empty():
        place = <int32_t>window.members.size()
        window.members.push_back(fresh)
    else:
        place = window.free_places.back()
        window.free_places.pop_back()
        window.members[place] = fresh
    window.member_places[fresh.id[0]] = place
    return place


cdef void member_drop_unused(Window* window, int32_t member) noexcept nogil:
    if window.members[member].id == NULL or window.members[member].held > 0:
        return
    window.member_places.erase(window.members[member].id[0])
    del window.members[member].id
    window.members[member].id = NULL
    window.free_places.push_back(member)


# ---- transitions -----------------------------------------------------------------------------------------------------

cdef void count_unowned(Window* window, ShareBatch* batch, const RecordSlot* slot, int64_t count) noexcept nogil:
    window.acquired -= count
    window.members[slot.member].held -= count
    if slot.pending == NO_TRANSITION:
        batch.locked -= count
    else:
        window.pending -= count
    member_drop_unused(window, slot.member)


cdef void slot_lose_owner(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil:
    """Ends the ownership of acquired records; their next state is the caller's."""
    count_unowned(window, batch, slot, count)
    slot.member = NO_MEMBER


cdef void become_available(ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil:
    slot.state = SHARE_AVAILABLE
    batch.available += count
    if not batch.slots.empty():
        batch.first_available = min(batch.first_available, batch.base + (slot - &batch.slots[0]))


cdef void slot_acquire(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count, int32_t member,
                       int64_t deadline_ms) noexcept nogil:
    slot.state = SHARE_ACQUIRED
    slot.member = member
    slot.deadline_ms = deadline_ms
    if slot.delivery_count < INT16_MAX:
        slot.delivery_count += 1
    batch.due_ms = min(batch.due_ms, deadline_ms) if batch.locked else deadline_ms
    batch.available -= count
    batch.locked += count
    window.acquired += count
    window.members[member].held += count


cdef void slot_begin(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count, int8_t state) noexcept nogil:
    slot.pending = state
    window.pending += count
    batch.locked -= count
    if is_final(state):
        window.delivery_complete += count


cdef void slot_commit(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil:
    cdef int8_t state = slot.pending
    slot_lose_owner(window, batch, slot, count)
    slot.pending = NO_TRANSITION
    if state == SHARE_AVAILABLE:
        become_available(batch, slot, count)
    else:
        slot.state = state


cdef void slot_roll_back(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil:
    if is_final(slot.pending):
        window.delivery_complete -= count
    window.pending -= count
    slot.pending = NO_TRANSITION
    batch.due_ms = min(batch.due_ms, slot.deadline_ms) if batch.locked else slot.deadline_ms
    batch.locked += count


cdef void slot_expire(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil:
    slot_lose_owner(window, batch, slot, count)
    if slot.delivery_count < window.limits.delivery_limit:
        become_available(batch, slot, count)
        return
    slot.state = put_aside_state(window)
    if is_final(slot.state):
        window.delivery_complete += count


cdef void slot_archive(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t count) noexcept nogil:
    if slot.state == SHARE_ACQUIRED:
        slot_lose_owner(window, batch, slot, count)
    elif slot.state == SHARE_AVAILABLE:
        batch.available -= count
    slot.state = SHARE_ARCHIVED
    window.delivery_complete += count


# ---- changes ---------------------------------------------------------------------------------------------------------

cdef void note_change(Window* window, int64_t first, int64_t last, int state, int16_t delivery_count,
                      bint pending) noexcept nogil:
    cdef StateChange change
    change.first = first
    change.last = last
    change.state = <int8_t>state
    change.delivery_count = delivery_count
    change.pending = pending
    if not window.changes.empty() and continues(&window.changes.back(), &change):
        window.changes.back().last = last
    else:
        window.changes.push_back(change)
