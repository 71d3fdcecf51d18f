"""The versions of the requests that the data plane decodes by itself.

The message classes and the API table import them from here.
"""

cdef enum:
    PRODUCE_OLDEST = 0
    PRODUCE_NEWEST = 13
    PRODUCE_FLEXIBLE = 9            # the first one with flexible body and headers
    FETCH_OLDEST = 0
    FETCH_NEWEST = 18
    FETCH_FLEXIBLE = 12
    SHARE_FETCH_OLDEST = 1
    SHARE_FETCH_NEWEST = 2
    SHARE_FETCH_FLEXIBLE = 0
    SHARE_ACKNOWLEDGE_OLDEST = 1
    SHARE_ACKNOWLEDGE_NEWEST = 2
    SHARE_ACKNOWLEDGE_FLEXIBLE = 0
