"""Cleaned segments replace their originals in a log that is being read and appended to.

A swap has three parts. Python renames `<base>.log.cleaned` and its companions to `.swap`; `swap_begin` puts the new
segment into the log and holds back rolls, truncation and deletion; Python renames the old files away and the new ones
to their final names; `swap_end` lets rolls and the rest go on. Readers never wait: the old segments are opened and
mapped before, so their readers read the old bytes by their own descriptors, and the new segment's file is open under
any name.
"""

from libc.stdint cimport int64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.producer_state cimport CompletedTransaction
from kafkapy._speedups.log.segment cimport SegmentState

# Opens and maps the files that a reader of the segment may need. 0 or an errno.
cdef int swap_pin(SegmentState* segment) noexcept nogil
# Closes the segment's file, unless others than the log and the caller may use it. The next use opens it again.
cdef void let_close(LogState* log, SegmentState* segment) noexcept nogil
# Replaces segments (consecutive ones) by `fresh`, which the log references from then on, and the index entries of
# aborted transactions in their offsets by `aborted`. False without a change when one of them has left the
# log, or the log is closed, deleted or offline.
cdef bint swap_begin(LogState* log, const vector[SegmentState*]* replaced, SegmentState* fresh,
                     const vector[CompletedTransaction]* aborted) noexcept nogil
cdef void swap_end(LogState* log) noexcept nogil
# Whether these are still the log's segments, with the same sizes.
cdef bint still_current(LogState* log, const vector[SegmentState*]* segments,
                        const vector[int64_t]* sizes) noexcept nogil
# A new segment with `.cleaned` index files; final_name gives them their final names.
cdef SegmentState* cleaned_segment(int64_t base_offset, int fd, const string& path, const string& stem,
                                   int64_t index_bytes, int64_t created_ms) noexcept nogil
cdef void final_name(SegmentState* segment, const string& stem) noexcept nogil
