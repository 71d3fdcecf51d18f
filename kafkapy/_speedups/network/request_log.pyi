import struct

LAYOUT: struct.Struct
