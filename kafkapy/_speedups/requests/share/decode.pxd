"""Decodes the bodies of ShareFetch and ShareAcknowledge."""

from kafkapy._speedups.requests.share.state cimport SharePart, ShareState

# Fills the state from state.frame. False when the bytes are not exactly one such request of that version; the caller
# frees the state in any case.
cdef bint share_decode(ShareState* state) noexcept nogil
# Sets a partition to its state before any work; takes no reference.
cdef void share_part_init(SharePart* part) noexcept nogil
