"""What ends an acquisition (see transitions.pxd)."""

from cython.operator cimport dereference as deref, predecrement as dec, preincrement as inc
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
from libcpp.map cimport map as ordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport ERROR_INVALID_RECORD_STATE, ERROR_INVALID_REQUEST, ERROR_NONE
from kafkapy._speedups.share.layout cimport (
    ACKNOWLEDGE_ACCEPT,
    ACKNOWLEDGE_GAP,
    ACKNOWLEDGE_REJECT,
    ACKNOWLEDGE_RELEASE,
    ACKNOWLEDGE_RENEW,
    SHARE_ACKNOWLEDGED,
    SHARE_ACQUIRED,
    SHARE_ARCHIVED,
    SHARE_ARCHIVING,
    SHARE_AVAILABLE,
    AcquiredRange,
    Acknowledgement,
    StateChange,
)
from kafkapy._speedups.share.window cimport (
    NEVER_MS,
    NO_TRANSITION,
    RecordSlot,
    ShareBatch,
    Window,
    continues,
    note_change,
    put_aside_state,
    slot_archive,
    slot_at,
    slot_begin,
    slot_commit,
    slot_expire,
    slot_roll_back,
    window_advance,
    window_cut,
    window_find,
    window_mix,
    window_sync,
)


# ---- acknowledgements ------------------------------------------------------------------------------------------------

cdef int16_t check_acknowledgements(const Acknowledgement* batches, size_t count, bint renew) noexcept nogil:
    cdef int8_t newest = ACKNOWLEDGE_RENEW if renew else ACKNOWLEDGE_REJECT
    cdef size_t i
    cdef int64_t k
    for i in range(count):
        if batches[i].last < batches[i].first or (i > 0 and batches[i].first < batches[i - 1].last):
            return ERROR_INVALID_REQUEST
        # Unsigned: a range may have more offsets than an int64 can count.
        if batches[i].type_count != 1 and (batches[i].type_count < 1 or <uint64_t>(batches[i].type_count - 1)
                                           != <uint64_t>batches[i].last - <uint64_t>batches[i].first):
            return ERROR_INVALID_REQUEST
        for k in range(batches[i].type_count):
            if batches[i].types[k] < ACKNOWLEDGE_GAP or batches[i].types[k] > newest:
                return ERROR_INVALID_REQUEST
    return ERROR_NONE


cdef inline bint is_held(const RecordSlot* slot, int32_t member) noexcept nogil:
    return slot.state == SHARE_ACQUIRED and slot.member == member and slot.pending == NO_TRANSITION


cdef bint holds_all(ShareBatch* batch, int32_t member, int64_t first, int64_t last) noexcept nogil:
    cdef int64_t offset
    if batch.slots.empty():
        return is_held(&batch.common, member)
    for offset in range(max(batch.first, first), min(batch.last, last) + 1):
        if not is_held(slot_at(batch, offset), member):
            return False
    return True


cdef int16_t check_range(Window* window, int32_t member, int64_t first, int64_t last, size_t* place) noexcept nogil:
    """Checks a range from the start offset on. `place`: a hint, and the place of its first batch."""
    cdef size_t count = window.batches.size(), index, end
    if count == 0:
        return ERROR_INVALID_RECORD_STATE
    index = window_find(window, first, place[0])
    place[0] = index
    if index == count:
        return ERROR_INVALID_REQUEST
    if window.batches[index].first > last:
        # No record has such an offset.
        return ERROR_INVALID_REQUEST if index > 0 else ERROR_INVALID_RECORD_STATE
    end = window_find(window, last, index)
    if end == count or window.batches[end].first > last:
        return ERROR_INVALID_REQUEST
    while index <= end:
        if not holds_all(window.batches[index], member, first, last):
            return ERROR_INVALID_RECORD_STATE
        index += 1
    return ERROR_NONE


cdef int8_t common_type(const Acknowledgement* acknowledgement, int64_t first, int64_t last) noexcept nogil:
    """The type of all offsets of a part of the range; -1 when they differ."""
    cdef const int8_t* types = acknowledgement.types
    cdef int64_t k, begin = first - acknowledgement.first
    if acknowledgement.type_count == 1:
        return types[0]
    for k in range(begin + 1, last - acknowledgement.first + 1):
        if types[k] != types[begin]:
            return -1
    return types[begin]


cdef int8_t state_after(const Window* window, const RecordSlot* slot, int8_t acknowledge_type) noexcept nogil:
    if acknowledge_type == ACKNOWLEDGE_ACCEPT:
        return SHARE_ACKNOWLEDGED
    if acknowledge_type == ACKNOWLEDGE_GAP:
        return SHARE_ARCHIVED
    if acknowledge_type == ACKNOWLEDGE_RELEASE and slot.delivery_count < window.limits.delivery_limit:
        return SHARE_AVAILABLE
    return put_aside_state(window)


cdef void acknowledge_slot(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t first, int64_t last,
                           int8_t acknowledge_type, int64_t deadline_ms) noexcept nogil:
    cdef int8_t state
    if acknowledge_type == ACKNOWLEDGE_RENEW:
        slot.deadline_ms = deadline_ms
        if batch.slots.empty():
            batch.due_ms = deadline_ms
        else:
            batch.due_ms = min(batch.due_ms, deadline_ms)
        return
    state = state_after(window, slot, acknowledge_type)
    slot_begin(window, batch, slot, last - first + 1, state)
    note_change(window, first, last, state, slot.delivery_count, True)


cdef void acknowledge_batch(Window* window, ShareBatch* batch, const Acknowledgement* acknowledgement,
                            int64_t deadline_ms) noexcept nogil:
    cdef int64_t first = max(batch.first, acknowledgement.first), last = min(batch.last, acknowledgement.last), offset
    cdef int8_t acknowledge_type
    if batch.slots.empty() and first == batch.first and last == batch.last:
        acknowledge_type = common_type(acknowledgement, first, last)
        if acknowledge_type >= 0:
            acknowledge_slot(window, batch, &batch.common, first, last, acknowledge_type, deadline_ms)
            window_sync(window, batch)
            return
    window_mix(batch)
    acknowledge_type = acknowledgement.types[0]
    for offset in range(first, last + 1):
        if acknowledgement.type_count > 1:
            acknowledge_type = acknowledgement.types[offset - acknowledgement.first]
        acknowledge_slot(window, batch, slot_at(batch, offset), offset, offset, acknowledge_type, deadline_ms)
    window_sync(window, batch)


cdef int16_t window_acknowledge(Window* window, int32_t member, const Acknowledgement* batches, size_t count,
                                int64_t now_ms) noexcept nogil:
    cdef int64_t deadline_ms = now_ms + window.limits.lock_ms, first
    cdef size_t i, place = 0
    cdef int16_t error
    for i in range(count):
        if i > 0 and batches[i].first <= batches[i - 1].last:
            return ERROR_INVALID_RECORD_STATE   # the range before has had it, as in Kafka
        if batches[i].last >= window.start:
            error = check_range(window, member, max(batches[i].first, window.start), batches[i].last, &place)
            if error != ERROR_NONE:
                return error
    place = 0
    for i in range(count):
        if batches[i].last < window.start:
            continue
        place = window_find(window, max(batches[i].first, window.start), place)
        first = place
        while place < window.batches.size() and window.batches[place].first <= batches[i].last:
            acknowledge_batch(window, window.batches[place], &batches[i], deadline_ms)
            place += 1
        if place > <size_t>first:
            place -= 1      # the next range may begin in the same batch
    return ERROR_NONE


# ---- sessions and time-outs ------------------------------------------------------------------------------------------

cdef void return_slot(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t first, int64_t last) noexcept nogil:
    """Releases records of a session that ends. The delivery counts, although the member may not have seen them."""
    cdef int8_t state = state_after(window, slot, ACKNOWLEDGE_RELEASE)
    slot_begin(window, batch, slot, last - first + 1, state)
    note_change(window, first, last, state, slot.delivery_count, True)


cdef void window_release_member(Window* window, int32_t member) noexcept nogil:
    cdef size_t i
    cdef int64_t offset
    cdef ShareBatch* batch
    for i in range(window.batches.size()):
        batch = window.batches[i]
        if batch.locked == 0:
            continue
        if batch.slots.empty():
            if is_held(&batch.common, member):
                return_slot(window, batch, &batch.common, batch.first, batch.last)
        else:
            for offset in range(batch.first, batch.last + 1):
                if is_held(slot_at(batch, offset), member):
                    return_slot(window, batch, slot_at(batch, offset), offset, offset)
        window_sync(window, batch)


cdef void expire_slot(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t first, int64_t last) noexcept nogil:
    slot_expire(window, batch, slot, last - first + 1)
    note_change(window, first, last, slot.state, slot.delivery_count, False)


cdef bint expire_mixed(Window* window, ShareBatch* batch, int64_t now_ms) noexcept nogil:
    """Ends locks of a mixed batch and finds the earliest time-out of the others."""
    cdef int64_t offset, due_ms = NEVER_MS
    cdef bint any_ended = False
    cdef RecordSlot* slot
    for offset in range(batch.first, batch.last + 1):
        slot = slot_at(batch, offset)
        if slot.state != SHARE_ACQUIRED or slot.pending != NO_TRANSITION:
            continue
        if slot.deadline_ms <= now_ms:
            expire_slot(window, batch, slot, offset, offset)
            any_ended = True
        elif due_ms == NEVER_MS or slot.deadline_ms < due_ms:
            due_ms = slot.deadline_ms
    batch.due_ms = due_ms
    return any_ended


cdef bint window_expire(Window* window, int64_t now_ms) noexcept nogil:
    cdef ShareBatch* batch
    cdef bint any_ended = False
    while not window.locks.empty() and deref(window.locks.begin()).first <= now_ms:
        batch = window.batches[window_find(window, deref(window.locks.begin()).second, 0)]
        if batch.slots.empty():
            expire_slot(window, batch, &batch.common, batch.first, batch.last)
            any_ended = True
        elif expire_mixed(window, batch, now_ms):
            any_ended = True
        window_sync(window, batch)
    if any_ended:
        window_advance(window)
    return any_ended


# ---- writes ----------------------------------------------------------------------------------------------------------

cdef void finish_slot(Window* window, ShareBatch* batch, RecordSlot* slot, int64_t first, int64_t last, bint stored,
                      int64_t now_ms) noexcept nogil:
    if slot.pending == NO_TRANSITION:
        return
    if stored:
        slot_commit(window, batch, slot, last - first + 1)
        return
    slot_roll_back(window, batch, slot, last - first + 1)
    if slot.deadline_ms <= now_ms:
        expire_slot(window, batch, slot, first, last)


cdef bint window_finish(Window* window, const vector[StateChange]* changes, bint stored, int64_t now_ms) noexcept nogil:
    cdef size_t i, index = 0
    cdef int64_t first, last, offset, available_before
    cdef ShareBatch* batch
    cdef bint became_available = False
    for i in range(changes.size()):
        if not changes[0][i].pending or changes[0][i].last < window.start:
            continue
        first = max(changes[0][i].first, window.start)
        last = changes[0][i].last
        index = window_find(window, first, index)
        while index < window.batches.size() and window.batches[index].first <= last:
            batch = window.batches[index]
            available_before = batch.available
            if batch.slots.empty():
                finish_slot(window, batch, &batch.common, batch.first, batch.last, stored, now_ms)
            else:
                for offset in range(max(batch.first, first), min(batch.last, last) + 1):
                    finish_slot(window, batch, slot_at(batch, offset), offset, offset, stored, now_ms)
            became_available = became_available or batch.available > available_before
            window_sync(window, batch)
            if batch.last >= last:
                break
            index += 1
    return window_advance(window) or became_available


cdef void order_changes(vector[StateChange]* changes) noexcept nogil:
    cdef ordered_map[int64_t, StateChange] placed
    cdef ordered_map[int64_t, StateChange].iterator at
    cdef StateChange change, rest
    cdef size_t i
    cdef bint in_order = True
    for i in range(1, changes.size()):
        if changes[0][i].first <= changes[0][i - 1].last:
            in_order = False
            break
    if in_order:
        return
    for i in range(changes.size()):
        change = changes[0][i]
        at = placed.lower_bound(change.first)
        if at != placed.begin():
            dec(at)
            if deref(at).second.last >= change.first:
                rest = deref(at).second
                deref(at).second.last = change.first - 1
                if rest.last > change.last:
                    rest.first = change.last + 1
                    placed[rest.first] = rest
            inc(at)
        while at != placed.end() and deref(at).first <= change.last:
            rest = deref(at).second
            at = placed.erase(at)
            if rest.last > change.last:
                rest.first = change.last + 1
                placed[rest.first] = rest
                break
        placed[change.first] = change
    changes.clear()
    at = placed.begin()
    while at != placed.end():
        change = deref(at).second
        if not changes.empty() and continues(&changes.back(), &change):
            changes.back().last = change.last
        else:
            changes.push_back(change)
        inc(at)


# ---- dead letters ----------------------------------------------------------------------------------------------------

cdef bint window_dead_lettered(Window* window, int64_t first, int64_t last) noexcept nogil:
    cdef size_t index = window_find(window, first, 0)
    cdef ShareBatch* batch
    cdef int64_t offset
    while index < window.batches.size() and window.batches[index].first <= last:
        batch = window.batches[index]
        if batch.slots.empty() and batch.common.state == SHARE_ARCHIVING:
            if batch.first < first:
                window_cut(window, index, first)
                index += 1
                batch = window.batches[index]
            if batch.last > last:
                window_cut(window, index, last + 1)
            slot_archive(window, batch, &batch.common, batch.last - batch.first + 1)
            note_change(window, batch.first, batch.last, SHARE_ARCHIVED, batch.common.delivery_count, False)
        elif not batch.slots.empty():
            for offset in range(max(batch.first, first), min(batch.last, last) + 1):
                if slot_at(batch, offset).state == SHARE_ARCHIVING:
                    slot_archive(window, batch, slot_at(batch, offset), 1)
                    note_change(window, offset, offset, SHARE_ARCHIVED, slot_at(batch, offset).delivery_count, False)
        index += 1
    return window_advance(window)


cdef void note_archiving(const RecordSlot* slot, int64_t first, int64_t last,
                         vector[AcquiredRange]* out) noexcept nogil:
    cdef AcquiredRange waiting
    if slot.state != SHARE_ARCHIVING:
        return
    if not out.empty() and out.back().last + 1 == first and out.back().delivery_count == slot.delivery_count:
        out.back().last = last
        return
    waiting.first = first
    waiting.last = last
    waiting.delivery_count = slot.delivery_count
    out.push_back(waiting)


cdef void window_archiving(Window* window, vector[AcquiredRange]* out) noexcept nogil:
    cdef size_t i
    cdef int64_t offset
    cdef ShareBatch* batch
    for i in range(window.batches.size()):
        batch = window.batches[i]
        if batch.slots.empty():
            note_archiving(&batch.common, batch.first, batch.last, out)
        else:
            for offset in range(batch.first, batch.last + 1):
                note_archiving(slot_at(batch, offset), offset, offset, out)
