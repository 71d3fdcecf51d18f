"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), the broker's side: credentials of users, messages, exchanges.

    client first: n,[a=<authzid>],n=<user>,r=<nonce>[,tokenauth=true]
    server first: r=<nonce of both>,s=<salt>,i=<iterations>
    client final: c=<channel>,r=<nonce of both>,p=<proof>
    server final: v=<signature>

An unknown user gets a salt too, always the same one, and fails only with the proof, as a wrong password does. Sources:
org.apache.kafka.common.security.scram.internals.ScramSaslServer, ScramMessages and ScramFormatter.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.posix cimport pthread_mutex_t

cdef enum:
    SCRAM_SHA_256 = 0
    SCRAM_SHA_512 = 1
    SCRAM_MECHANISMS = 2
    SCRAM_MESSAGE = 16_384          # bytes of a message: the first one is kept until the login ends
    SCRAM_LEAST_ITERATIONS = 4096   # a credential with fewer logs nobody in

cdef cppclass ScramCredential:
    string salt
    string stored_key
    string server_key
    int32_t iterations
    string principal                # "User:name"
    int64_t owner                   # Python's hash of it

cdef struct ScramShape:
    size_t salt_bytes
    bint base36                     # the salt has digits and small letters
    int32_t iterations

cdef cppclass ScramTableState:
    """The credentials of one mechanism. Python writes, any thread reads."""
    int mechanism
    string secret                   # makes the salts of unknown users
    pthread_mutex_t mutex           # guards what follows
    unordered_map[string, ScramCredential] users
    ScramShape shape                # of the credentials of unknown users

cdef cppclass ScramFirst:
    """A client's first message."""
    string user
    string authzid                  # "": none
    string nonce
    string bare
    bint by_token                   # the user is the id of a delegation token

cdef cppclass ScramExchange:
    """One login after the broker's first message."""
    int mechanism
    ScramCredential credential
    bint known                      # False: no proof fits
    string client_first
    string server_first
    string nonce

cdef cppclass LoginByScram:
    """A login on a connection of the broker."""
    ScramTableState* table
    bint challenged                 # the broker's first message is sent
    ScramExchange exchange          # from then on

cdef inline const char* scram_name(int mechanism) noexcept nogil:
    return b"SCRAM-SHA-256" if mechanism == SCRAM_SHA_256 else b"SCRAM-SHA-512"


# Reads a client's first message. False when it is none.
cdef bint scram_read_first(const uint8_t* data, int64_t size, ScramFirst* first) noexcept nogil
# Begins the exchange with the credential of the message's user, or with that of an unknown user.
cdef bint scram_begin(ScramTableState* table, const ScramFirst* first, ScramExchange* exchange) noexcept nogil
# Checks the client's final message, and makes the broker's. NULL, or the reason why nobody is logged in.
cdef const char* scram_finish(const ScramExchange* exchange, const uint8_t* data, int64_t size,
                              string* server_final) noexcept nogil

cdef class ScramTable:
    cdef readonly str mechanism
    cdef ScramTableState* state
