"""Directories of logs that are being renamed: a file there opens under its old path, for a log that has few files open.

A move of a log renames its directory while readers go on. Without an entry here, each segment would have to be open
before the rename. An entry costs one descriptor.
"""

from libcpp.string cimport string

# Remembers a directory before its rename. 0 or an errno.
cdef int directory_moves(const string& directory) noexcept nogil
# Forgets it, when no open by the old path is to come.
cdef void directory_moved(const string& directory) noexcept nogil
# Opens a file whose path has just led nowhere: its descriptor, or a negated errno.
cdef int open_in_moved(const char* path, int flags, int mode) noexcept nogil
