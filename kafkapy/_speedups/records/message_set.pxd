"""Records between message format v2 and the formats v0 and v1 (see message_set.pyx)."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

cdef struct Message:
    int64_t offset
    int32_t size                # bytes of the whole message, offset and length included
    uint32_t crc
    int8_t magic
    int8_t attributes
    int64_t timestamp           # -1 in v0
    int32_t key_size            # -1: null
    const uint8_t* key          # borrowed, as value
    int32_t value_size
    const uint8_t* value

cdef enum MessageStatus:
    MESSAGE_OK = 0
    MESSAGE_INCOMPLETE = 1      # fewer bytes than the length field, or than that field takes
    MESSAGE_BAD_LENGTH = 2      # shorter than the shortest message of its format
    MESSAGE_BAD_MAGIC = 3       # another format than `magic`
    MESSAGE_BAD_CRC = 4
    MESSAGE_BAD_STRUCTURE = 5   # key and value do not add up to the message

# CRC-32 of zlib (IEEE 802.3), the checksum of the formats before v2.
cdef uint32_t crc32(const uint8_t* data, int64_t size) noexcept nogil
# Parses the message at data, within `available` bytes. `out` has a meaning with MESSAGE_OK only.
cdef MessageStatus message_parse(const uint8_t* data, int64_t available, int8_t magic, Message* out) noexcept nogil
