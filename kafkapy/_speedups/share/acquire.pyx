"""Acquisition of records (see acquire.pxd)."""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.share.layout cimport (
    ACQUIRE_RECORD_LIMIT,
    SHARE_ARCHIVED,
    SHARE_AVAILABLE,
    WIDEST_BATCH,
    AcquiredRange,
    AcquireRequest,
    LogBatch,
)
from kafkapy._speedups.share.window cimport (
    LEAST_THROTTLED,
    RecordSlot,
    ShareBatch,
    Window,
    member_drop_unused,
    member_take,
    note_change,
    slot_acquire,
    slot_archive,
    slot_at,
    window_advance,
    window_append,
    window_cut,
    window_find,
    window_mix,
    window_sync,
)

cdef enum:
    LARGEST_SHIFT = 62
    UNLIMITED = -1

cdef struct Acquisition:
    int32_t member
    int64_t deadline_ms
    int64_t first               # the offsets that were read
    int64_t last
    int64_t left                # of max_records
    int64_t taken
    bint record_limit
    bint alone                  # what was acquired comes alone


cdef void push_range(vector[AcquiredRange]* out, int64_t first, int64_t last, int16_t delivery_count) noexcept nogil:
    cdef AcquiredRange acquired
    acquired.first = first
    acquired.last = last
    acquired.delivery_count = delivery_count
    out.push_back(acquired)


cdef inline int32_t throttle_limit(const Window* window) noexcept nogil:
    return max(<int32_t>LEAST_THROTTLED, (window.limits.delivery_limit + 1) // 2)


cdef bint is_last_delivery(const Window* window, int32_t delivered) noexcept nogil:
    return window.limits.delivery_limit > 2 and delivered == window.limits.delivery_limit - 1


cdef int64_t throttled_size(const Window* window, const ShareBatch* batch, int32_t delivered) noexcept nogil:
    """The number of records of a suspicious batch that come together."""
    if is_last_delivery(window, delivered):
        return 1
    return max(<int64_t>1, batch.width >> min(delivered - throttle_limit(window) + 1, <int32_t>LARGEST_SHIFT))


cdef void take(Acquisition* acquisition, int64_t count) noexcept nogil:
    acquisition.taken += count
    acquisition.left -= count


cdef size_t acquire_uniform(Window* window, Acquisition* acquisition, size_t index,
                            vector[AcquiredRange]* out) noexcept nogil:
    """Acquires an available batch as far as it was read; returns its index, which a cut moves."""
    cdef ShareBatch* batch = window.batches[index]
    cdef int32_t delivered = batch.common.delivery_count
    cdef int64_t first = max(batch.first, acquisition.first)
    cdef int64_t count = min(batch.last, acquisition.last) - first + 1
    if delivered >= throttle_limit(window):
        acquisition.alone = True
        if acquisition.taken:
            return index
        count = min(count, throttled_size(window, batch, delivered))
    if acquisition.record_limit:
        count = min(count, acquisition.left)
    if first > batch.first:
        window_cut(window, index, first)
        window_sync(window, batch)
        index += 1
        batch = window.batches[index]
    if first + count <= batch.last:
        window_cut(window, index, first + count)
    slot_acquire(window, batch, &batch.common, count, acquisition.member, acquisition.deadline_ms)
    window_sync(window, batch)
    push_range(out, batch.first, batch.last, batch.common.delivery_count)
    take(acquisition, count)
    return index


cdef int32_t most_delivered(ShareBatch* batch, int64_t first, int64_t last) noexcept nogil:
    """The highest delivery count of available records."""
    cdef int32_t most = 0
    cdef int64_t offset
    for offset in range(first, last + 1):
        if slot_at(batch, offset).state == SHARE_AVAILABLE:
            most = max(most, <int32_t>slot_at(batch, offset).delivery_count)
    return most


cdef void acquire_mixed(Window* window, Acquisition* acquisition, ShareBatch* batch,
                        vector[AcquiredRange]* out) noexcept nogil:
    cdef int64_t first = max(max(batch.first, acquisition.first), batch.first_available)
    cdef int64_t last = min(batch.last, acquisition.last)
    cdef int64_t offset, taken = 0, limit = UNLIMITED
    cdef int32_t delivered
    cdef bint throttled = most_delivered(batch, first, last) >= throttle_limit(window), new_range = True
    cdef RecordSlot* slot
    if throttled and acquisition.taken:
        acquisition.alone = True
        return
    for offset in range(first, last + 1):
        slot = slot_at(batch, offset)
        if slot.state != SHARE_AVAILABLE:
            new_range = True
            continue
        delivered = slot.delivery_count
        if is_last_delivery(window, delivered) and taken:
            break
        if delivered >= throttle_limit(window) and limit == UNLIMITED:
            limit = throttled_size(window, batch, delivered)
        slot_acquire(window, batch, slot, 1, acquisition.member, acquisition.deadline_ms)
        if new_range or out.back().delivery_count != slot.delivery_count:
            push_range(out, offset, offset, slot.delivery_count)
            new_range = False
        else:
            out.back().last = offset
        taken += 1
        if (is_last_delivery(window, delivered) or taken == limit
                or (acquisition.record_limit and taken == acquisition.left)):
            break
    window_sync(window, batch)
    take(acquisition, taken)
    if throttled and taken:
        acquisition.alone = True


cdef void append_acquired(Window* window, Acquisition* acquisition, int64_t first, int64_t last, int64_t width,
                          vector[AcquiredRange]* out) noexcept nogil:
    cdef ShareBatch* batch = window_append(window, first, last, width)
    slot_acquire(window, batch, &batch.common, last - first + 1, acquisition.member, acquisition.deadline_ms)
    window_sync(window, batch)
    push_range(out, first, last, batch.common.delivery_count)
    take(acquisition, last - first + 1)


cdef int64_t end_of_log_batch(const LogBatch* batches, size_t count, int64_t offset) noexcept nogil:
    """The last offset of the log batch that holds an offset; the offset itself when none does."""
    cdef size_t low = 0, high = count, middle
    while low < high:
        middle = low + (high - low) // 2
        if batches[middle].last < offset:
            low = middle + 1
        else:
            high = middle
    return batches[low].last if low < count and batches[low].first <= offset else offset


cdef void acquire_new(Window* window, Acquisition* acquisition, const AcquireRequest* request, const LogBatch* batches,
                      size_t count, vector[AcquiredRange]* out) noexcept nogil:
    cdef int64_t first = max(window.next, acquisition.first), last = acquisition.last, limit, at
    cdef int64_t batch_size = max(request.batch_size, <int32_t>1)
    cdef size_t i
    limit = min(acquisition.left, window.limits.max_in_flight - (window.next - window.start))
    if limit <= 0 or last < first:
        return
    if last - first >= limit:
        last = end_of_log_batch(batches, count, first + limit - 1)
        if last - first > limit + WIDEST_BATCH - 1:
            last = first + limit + WIDEST_BATCH - 1
    if acquisition.record_limit:
        at = min(last, first + limit - 1)
        append_acquired(window, acquisition, first, at, last - first + 1, out)
        if at < last:
            window_sync(window, window_append(window, at + 1, last, last - first + 1))
        return
    if last - first >= batch_size:
        for i in range(count):
            at = batches[i].first
            if at > last:
                break
            if at - first >= batch_size:
                append_acquired(window, acquisition, first, at - 1, at - first, out)
                first = at
    append_acquired(window, acquisition, first, last, last - first + 1, out)


cdef void archive_missing(Window* window, int64_t first, int64_t last) noexcept nogil:
    """Archives available records that the log no longer has."""
    cdef size_t index
    cdef ShareBatch* batch
    cdef int64_t offset
    first = max(first, window.start)
    if first > last or window.available.empty():
        return
    index = window_find(window, first, 0)
    while index < window.batches.size() and window.batches[index].first <= last:
        batch = window.batches[index]
        if batch.available and batch.slots.empty():
            if batch.first < first:
                window_cut(window, index, first)
                window_sync(window, batch)
                index += 1
                batch = window.batches[index]
            if batch.last > last:
                window_cut(window, index, last + 1)
            slot_archive(window, batch, &batch.common, batch.last - batch.first + 1)
            note_change(window, batch.first, batch.last, SHARE_ARCHIVED, batch.common.delivery_count, False)
        elif batch.available:
            for offset in range(max(batch.first, first), min(batch.last, last) + 1):
                if slot_at(batch, offset).state == SHARE_AVAILABLE:
                    slot_archive(window, batch, slot_at(batch, offset), 1)
                    note_change(window, offset, offset, SHARE_ARCHIVED, slot_at(batch, offset).delivery_count, False)
        window_sync(window, batch)
        index += 1


cdef void archive_acquired(Window* window, int64_t first, int64_t last) noexcept nogil:
    """Archives records that this request has acquired."""
    cdef size_t index = window_find(window, first, 0)
    cdef ShareBatch* batch
    cdef int64_t offset
    while index < window.batches.size() and window.batches[index].first <= last:
        batch = window.batches[index]
        if batch.slots.empty() and (batch.first < first or batch.last > last):
            window_mix(batch)
        if batch.slots.empty():
            slot_archive(window, batch, &batch.common, batch.last - batch.first + 1)
            note_change(window, batch.first, batch.last, SHARE_ARCHIVED, batch.common.delivery_count, False)
        else:
            for offset in range(max(batch.first, first), min(batch.last, last) + 1):
                slot_archive(window, batch, slot_at(batch, offset), 1)
                note_change(window, offset, offset, SHARE_ARCHIVED, slot_at(batch, offset).delivery_count, False)
        window_sync(window, batch)
        index += 1


cdef int64_t skip_batches(Window* window, const LogBatch* batches, size_t count, size_t begin,
                          vector[AcquiredRange]* out) noexcept nogil:
    """Archives what was acquired of skipped log batches; returns the number of records. `begin`: the first range of
    this request in `out`."""
    cdef vector[AcquiredRange] kept
    cdef AcquiredRange acquired
    cdef size_t i, at = 0
    cdef int64_t archived = 0, first, last
    for i in range(begin, out.size()):
        acquired = out[0][i]
        while at < count and batches[at].first <= acquired.last:
            first = max(acquired.first, batches[at].first)
            last = min(acquired.last, batches[at].last)
            if batches[at].skipped and first <= last:
                if acquired.first < first:
                    push_range(&kept, acquired.first, first - 1, acquired.delivery_count)
                archive_acquired(window, first, last)
                archived += last - first + 1
                acquired.first = last + 1
            if batches[at].last > acquired.last:
                break
            at += 1
        if acquired.first <= acquired.last:
            kept.push_back(acquired)
    out.resize(begin)
    for i in range(kept.size()):
        out.push_back(kept[i])
    return archived


cdef int64_t window_acquire(Window* window, const AcquireRequest* request, const LogBatch* batches, size_t count,
                            vector[AcquiredRange]* out) noexcept nogil:
    cdef Acquisition acquisition
    cdef size_t index, i, begin = out.size()
    cdef ShareBatch* batch
    cdef bint skips = False
    if count == 0 or request.max_records <= 0 or batches[0].first < 0 or batches[count - 1].last == INT64_MAX:
        return 0
    for i in range(count):
        if batches[i].last < batches[i].first or (i > 0 and batches[i].first <= batches[i - 1].last):
            return 0
        skips = skips or batches[i].skipped
    archive_missing(window, request.fetch_offset, batches[0].first - 1)
    acquisition.first = max(batches[0].first, window.start)
    acquisition.last = batches[count - 1].last
    acquisition.left = request.max_records
    acquisition.taken = 0
    acquisition.record_limit = request.mode == ACQUIRE_RECORD_LIMIT
    acquisition.alone = False
    acquisition.deadline_ms = request.now_ms + window.limits.lock_ms
    acquisition.member = member_take(window, request.member, request.member_size)
    index = window_find(window, acquisition.first, 0)
    while acquisition.left > 0 and not acquisition.alone and index < window.batches.size():
        batch = window.batches[index]
        if batch.first > acquisition.last:
            break
        if batch.available and batch.slots.empty():
            index = acquire_uniform(window, &acquisition, index, out)
        elif batch.available:
            acquire_mixed(window, &acquisition, batch, out)
        index += 1
    if acquisition.left > 0 and not acquisition.alone:
        acquire_new(window, &acquisition, request, batches, count, out)
    if skips and acquisition.taken:
        acquisition.taken -= skip_batches(window, batches, count, begin, out)
    member_drop_unused(window, acquisition.member)
    window_advance(window)
    return acquisition.taken
