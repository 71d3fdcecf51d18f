"""SCRAM of a broker (see scram.pxd)."""

from cython.operator cimport dereference
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp
from libcpp.unordered_map cimport unordered_map

from kafkapy._speedups.base.openssl cimport (
    CRYPTO_memcmp,
    EVP_MAC,
    EVP_MAC_CTX,
    EVP_MD,
    EVP_MD_CTX,
    OSSL_PARAM,
    EVP_DecodeBlock,
    EVP_Digest,
    EVP_DigestFinalXOF,
    EVP_DigestInit_ex,
    EVP_DigestUpdate,
    EVP_EncodeBlock,
    EVP_MAC_CTX_dup,
    EVP_MAC_CTX_free,
    EVP_MAC_CTX_new,
    EVP_MAC_fetch,
    EVP_MAC_final,
    EVP_MAC_free,
    EVP_MAC_init,
    EVP_MAC_update,
    EVP_MD_CTX_free,
    EVP_MD_CTX_new,
    EVP_MD_fetch,
    OSSL_PARAM_construct_end,
    OSSL_PARAM_construct_utf8_string,
    RAND_bytes,
)
from kafkapy._speedups.base.posix cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.wire cimport Cursor, cursor_init, remaining, take

cdef enum:
    NONCE_BYTES = 18
    MOST_KEY = 64                   # bytes of SHA-512
    MOST_TEXT = 96                  # of such a key in base64, with its NUL

MIN_ITERATIONS = <int>SCRAM_LEAST_ITERATIONS

_NAMES = {"SCRAM-SHA-256": SCRAM_SHA_256, "SCRAM-SHA-512": SCRAM_SHA_512}
cdef const char* BASE36 = b"0123456789abcdefghijklmnopqrstuvwxyz"


# OpenSSL looks algorithms up by their names whenever they are not fetched before. Any thread reads these.
cdef const EVP_MD* HASHES[SCRAM_MECHANISMS]
cdef const EVP_MD* SHAKE_256
cdef const EVP_MAC_CTX* HMACS[SCRAM_MECHANISMS]       # with any key, to be copied


cdef int fetch() except -1:
    cdef OSSL_PARAM parameters[2]
    cdef EVP_MAC_CTX* context
    cdef EVP_MAC* hmac = EVP_MAC_fetch(NULL, b"HMAC", NULL)
    cdef const char* hash_name
    cdef int mechanism
    global SHAKE_256
    SHAKE_256 = EVP_MD_fetch(NULL, b"SHAKE256", NULL)
    for mechanism in range(SCRAM_MECHANISMS):
        hash_name = b"SHA256" if mechanism == SCRAM_SHA_256 else b"SHA512"
        HASHES[mechanism] = EVP_MD_fetch(NULL, hash_name, NULL)
        context = EVP_MAC_CTX_new(hmac) if hmac != NULL else NULL
        parameters[0] = OSSL_PARAM_construct_utf8_string(b"digest", <char*>hash_name, 0)
        parameters[1] = OSSL_PARAM_construct_end()
        if (SHAKE_256 == NULL or HASHES[mechanism] == NULL or context == NULL
                or EVP_MAC_init(context, <const uint8_t*>b"any", 3, parameters) != 1):
            raise RuntimeError("OpenSSL has no HMAC with SHA-256 and SHA-512, or no SHAKE-256")
        HMACS[mechanism] = context
    EVP_MAC_free(hmac)
    return 0

fetch()


cdef inline unsigned int size_of(int mechanism) noexcept nogil:
    return 32 if mechanism == SCRAM_SHA_256 else 64


cdef bint sign(EVP_MAC_CTX* hmac, const string& key, const string& text, uint8_t* signature) noexcept nogil:
    """The HMAC of a text: as many bytes as its hash has, at most MOST_KEY."""
    cdef size_t size = 0
    return (hmac != NULL and EVP_MAC_init(hmac, <const uint8_t*>key.data(), key.size(), NULL) == 1
            and EVP_MAC_update(hmac, <const uint8_t*>text.data(), text.size()) == 1
            and EVP_MAC_final(hmac, signature, &size, MOST_KEY) == 1)


# ---- messages --------------------------------------------------------------------------------------------------------

cdef bint passes(Cursor* c, const char* text, Py_ssize_t size) noexcept nogil:
    """Passes these bytes if they come next."""
    if remaining(c) < size or memcmp(c.p, text, size):
        return False
    take(c, size)
    return True


cdef int64_t next_part(Cursor* c, const uint8_t** at) noexcept nogil:
    """The bytes up to the next comma or the end; their number."""
    cdef int64_t size = remaining(c)
    cdef const uint8_t* comma = <const uint8_t*>memchr(c.p, c',', size) if size else NULL
    if comma != NULL:
        size = comma - c.p
    at[0] = take(c, size)
    return size


cdef inline bint is_attribute(const uint8_t* at, int64_t size, uint8_t name) noexcept nogil:
    """Whether the bytes are an attribute of that name with a value."""
    return size > 2 and at[0] == name and at[1] == c'='


cdef bint read_name(const uint8_t* at, int64_t size, string* name) noexcept nogil:
    cdef int64_t i = 0
    name.clear()
    while i < size:
        if at[i] == 0 or at[i] > 0x7F:
            return False
        if at[i] != c'=':
            name.push_back(<char>at[i])
            i += 1
            continue
        if size - i < 3:
            return False
        if at[i + 1] == c'2' and at[i + 2] == c'C':
            name.push_back(c',')
        elif at[i + 1] == c'3' and at[i + 2] == c'D':
            name.push_back(c'=')
        else:
            return False
        i += 3
    return size > 0


cdef bint is_value(const uint8_t* at, int64_t size) noexcept nogil:
    cdef int64_t i
    for i in range(size):
        if at[i] == 0 or at[i] > 0x7F:
            return False
    return size > 0


cdef bint is_printable(const uint8_t* at, int64_t size) noexcept nogil:
    cdef int64_t i
    for i in range(size):
        if at[i] < 0x21 or at[i] > 0x7E:
            return False
    return size > 0


cdef bint is_base64(const uint8_t* at, int64_t size) noexcept nogil:
    cdef int64_t i
    cdef int64_t padding = 0
    cdef uint8_t char
    if size % 4:
        return False
    while padding < 2 and padding < size and at[size - 1 - padding] == c'=':
        padding += 1
    for i in range(size - padding):
        char = at[i]
        if not (c'a' <= char <= c'z' or c'A' <= char <= c'Z' or c'0' <= char <= c'9' or char == c'/' or char == c'+'):
            return False
    return True


cdef int64_t extension_name(const uint8_t* at, int64_t size) noexcept nogil:
    """The length of an extension's name, which letters make; -1: the bytes are no extension."""
    cdef int64_t i = 0
    while i < size and (c'a' <= at[i] <= c'z' or c'A' <= at[i] <= c'Z'):
        i += 1
    if i == 0 or i == size or at[i] != c'=' or not is_value(at + i + 1, size - i - 1):
        return -1
    return i


cdef bint says_true(const uint8_t* at, int64_t size) noexcept nogil:
    return (size == 4 and at[0] | 0x20 == c't' and at[1] | 0x20 == c'r' and at[2] | 0x20 == c'u'
            and at[3] | 0x20 == c'e')


cdef bint scram_read_first(const uint8_t* data, int64_t size, ScramFirst* first) noexcept nogil:
    cdef Cursor c
    cdef const uint8_t* at
    cdef int64_t n
    cdef int64_t name
    cursor_init(&c, data, size)
    first.authzid.clear()
    first.by_token = False
    if size > SCRAM_MESSAGE or not passes(&c, b"n,", 2):
        return False
    n = next_part(&c, &at)
    if n and not (is_attribute(at, n, c'a') and read_name(at + 2, n - 2, &first.authzid)):
        return False
    if not passes(&c, b",", 1):
        return False
    first.bare.assign(<const char*>c.p, remaining(&c))
    n = next_part(&c, &at)
    if is_attribute(at, n, c'm'):
        if not is_value(at + 2, n - 2) or not passes(&c, b",", 1):
            return False
        n = next_part(&c, &at)
    if not is_attribute(at, n, c'n') or not read_name(at + 2, n - 2, &first.user) or not passes(&c, b",", 1):
        return False
    n = next_part(&c, &at)
    if not is_attribute(at, n, c'r') or not is_printable(at + 2, n - 2):
        return False
    first.nonce.assign(<const char*>at + 2, n - 2)
    while remaining(&c):
        if not passes(&c, b",", 1):
            return False
        n = next_part(&c, &at)
        name = extension_name(at, n)
        if name < 0:
            return False
        if name == 9 and memcmp(at, b"tokenauth", 9) == 0:
            first.by_token = says_true(at + 10, n - 10)
    return True


cdef bint read_final(const uint8_t* data, int64_t size, string* unproven, string* nonce, string* proof) noexcept nogil:
    """The parts of a client's final message: all before the proof, the nonce, and the proof in base64."""
    cdef Cursor c
    cdef const uint8_t* at
    cdef int64_t n
    cdef int64_t before = size - 1
    if size > SCRAM_MESSAGE:
        return False
    while before >= 0 and data[before] != c',':
        before -= 1
    if before < 0 or size - before < 3 or data[before + 1] != c'p' or data[before + 2] != c'=':
        return False
    if not is_base64(data + before + 3, size - before - 3):
        return False
    proof.assign(<const char*>data + before + 3, size - before - 3)
    unproven.assign(<const char*>data, before)
    cursor_init(&c, data, before)
    if not passes(&c, b"c=", 2):
        return False
    n = next_part(&c, &at)
    if not is_base64(at, n) or not passes(&c, b",", 1):
        return False
    n = next_part(&c, &at)
    if not is_attribute(at, n, c'r') or not is_printable(at + 2, n - 2):
        return False
    nonce.assign(<const char*>at + 2, n - 2)
    while remaining(&c):
        if not passes(&c, b",", 1):
            return False
        n = next_part(&c, &at)
        if extension_name(at, n) < 0:
            return False
    return True


# ---- exchanges -------------------------------------------------------------------------------------------------------

cdef bint make_unknown(const ScramTableState* t, const ScramShape* shape, const string& user,
                       ScramCredential* made) noexcept nogil:
    """A credential that no password fits: it looks like others, and its salt is always the user's."""
    cdef string text
    cdef uint8_t seed[MOST_KEY]
    cdef EVP_MD_CTX* context
    cdef EVP_MAC_CTX* hmac
    cdef bint done
    cdef size_t i
    text.assign(scram_name(t.mechanism))
    text.push_back(c',')
    text.append(user)
    made.salt.resize(shape.salt_bytes)
    made.iterations = shape.iterations
    made.stored_key.resize(size_of(t.mechanism))
    context = EVP_MD_CTX_new()
    if context == NULL:
        return False
    hmac = EVP_MAC_CTX_dup(HMACS[SCRAM_SHA_256])
    done = (sign(hmac, t.secret, text, seed)
            and EVP_DigestInit_ex(context, SHAKE_256, NULL) == 1
            and EVP_DigestUpdate(context, seed, 32) == 1
            and EVP_DigestFinalXOF(context, <uint8_t*>made.salt.data(), made.salt.size()) == 1
            and RAND_bytes(<uint8_t*>made.stored_key.data(), <int>made.stored_key.size()) == 1)
    EVP_MAC_CTX_free(hmac)
    EVP_MD_CTX_free(context)
    if shape.base36:
        for i in range(made.salt.size()):
            made.salt[i] = BASE36[<uint8_t>made.salt[i] % 36]
    made.server_key = made.stored_key
    return done


cdef bint challenge(ScramExchange* exchange, const ScramFirst* first, const char* own_nonce) noexcept nogil:
    """Makes the broker's first message. `own_nonce` NULL: a random one."""
    cdef uint8_t random[NONCE_BYTES]
    cdef char text[MOST_TEXT]
    cdef string salt
    if own_nonce == NULL:
        if RAND_bytes(random, NONCE_BYTES) != 1:
            return False
        EVP_EncodeBlock(<uint8_t*>text, random, NONCE_BYTES)
        own_nonce = text
    exchange.client_first = first.bare
    exchange.nonce = first.nonce
    exchange.nonce.append(own_nonce)
    salt.resize((exchange.credential.salt.size() + 2) // 3 * 4 + 1)
    EVP_EncodeBlock(<uint8_t*>salt.data(), <const uint8_t*>exchange.credential.salt.data(),
                    <int>exchange.credential.salt.size())
    exchange.server_first.assign(b"r=")
    exchange.server_first.append(exchange.nonce)
    exchange.server_first.append(b",s=")
    exchange.server_first.append(salt.data())
    snprintf(text, sizeof(text), b",i=%d", <int>exchange.credential.iterations)
    exchange.server_first.append(<const char*>text)
    return True


cdef bint scram_begin(ScramTableState* t, const ScramFirst* first, ScramExchange* exchange) noexcept nogil:
    cdef unordered_map[string, ScramCredential].iterator it
    cdef ScramCredential unknown
    cdef ScramShape shape
    cdef bint done
    exchange.mechanism = t.mechanism
    pthread_mutex_lock(&t.mutex)
    shape = t.shape
    it = t.users.find(first.user)
    exchange.known = it != t.users.end() and dereference(it).second.iterations >= SCRAM_LEAST_ITERATIONS
    if exchange.known:
        exchange.credential = dereference(it).second
    pthread_mutex_unlock(&t.mutex)
    # Made in any case: an unknown user takes no longer than others.
    done = make_unknown(t, &shape, first.user, &unknown)
    if not exchange.known:
        exchange.credential = unknown
    return done and challenge(exchange, first, NULL)


cdef bint is_proved(const ScramExchange* exchange, EVP_MAC_CTX* hmac, const string& signed_text, const string& proof,
                    uint8_t* signature) noexcept nogil:
    """Whether the proof is one of the password. Signs the text for the client."""
    cdef uint8_t key[MOST_TEXT]
    cdef uint8_t stored[MOST_KEY]
    cdef unsigned int keys = size_of(exchange.mechanism)
    cdef unsigned int i
    # The length of the proof says whether the padding leaves a key of the hash's size.
    if (proof.size() != (keys + 2) // 3 * 4 or proof[proof.size() - 1] != c'='
            or (proof[proof.size() - 2] == c'=') != (keys % 3 == 1)):
        return False
    if (EVP_DecodeBlock(key, <const uint8_t*>proof.data(), <int>proof.size()) < 0
            or not sign(hmac, exchange.credential.stored_key, signed_text, signature)):
        return False
    for i in range(keys):
        key[i] ^= signature[i]
    if EVP_Digest(key, keys, stored, NULL, HASHES[exchange.mechanism], NULL) != 1:
        return False
    if (exchange.credential.stored_key.size() != keys
            or CRYPTO_memcmp(stored, exchange.credential.stored_key.data(), keys) or not exchange.known):
        return False
    return sign(hmac, exchange.credential.server_key, signed_text, signature)


cdef const char* scram_finish(const ScramExchange* exchange, const uint8_t* data, int64_t size,
                              string* server_final) noexcept nogil:
    cdef string unproven
    cdef string nonce
    cdef string proof
    cdef string signed_text
    cdef uint8_t signature[MOST_KEY]
    cdef char text[MOST_TEXT]
    cdef EVP_MAC_CTX* hmac
    cdef bint proved
    if not read_final(data, size, &unproven, &nonce, &proof):
        return b"Invalid SCRAM client final message format"
    if nonce != exchange.nonce:
        return b"Invalid client nonce in the final client message."
    signed_text = exchange.client_first
    signed_text.push_back(c',')
    signed_text.append(exchange.server_first)
    signed_text.push_back(c',')
    signed_text.append(unproven)
    hmac = EVP_MAC_CTX_dup(HMACS[exchange.mechanism])
    proved = is_proved(exchange, hmac, signed_text, proof, signature)
    EVP_MAC_CTX_free(hmac)
    if not proved:
        return b"Invalid client credentials"
    EVP_EncodeBlock(<uint8_t*>text, signature, <int>size_of(exchange.mechanism))
    server_final.assign(b"v=")
    server_final.append(<const char*>text)
    return NULL


# ---- for Python ------------------------------------------------------------------------------------------------------

cdef int number_of(str mechanism) except -1:
    number = _NAMES.get(mechanism)
    if number is None:
        raise ValueError(f"{mechanism!r} is no SCRAM mechanism")
    return number


cdef int take_credential(ScramCredential* into, credential) except -1:
    cdef bytes salt
    cdef bytes stored_key
    cdef bytes server_key
    salt, stored_key, server_key, into.iterations = credential
    into.salt = salt
    into.stored_key = stored_key
    into.server_key = server_key
    return 0


cdef tuple as_tuple(const ScramCredential* credential):
    return (<bytes>credential.salt, <bytes>credential.stored_key, <bytes>credential.server_key, credential.iterations)


cdef class ScramTable:
    """The credentials of one mechanism, a tuple each: salt, stored key, server key, iterations. Any thread."""

    def __cinit__(self, str mechanism not None, bytes secret not None):
        """mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512", ValueError for another. secret: makes the salts of unknown
        users, which have no bytes before `set_shape`."""
        cdef int number = number_of(mechanism)
        self.mechanism = mechanism
        self.state = new ScramTableState()
        self.state.mechanism = number
        self.state.secret = secret
        self.state.shape.salt_bytes = 0
        self.state.shape.base36 = False
        self.state.shape.iterations = SCRAM_LEAST_ITERATIONS
        pthread_mutex_init(&self.state.mutex, NULL)

    def __dealloc__(self):
        if self.state != NULL:
            pthread_mutex_destroy(&self.state.mutex)
            del self.state

    def set_user(self, str user not None, credential, str principal not None, int64_t owner):
        """Takes a user's credential. owner: Python's hash of the principal ("User:name")."""
        cdef ScramCredential made
        cdef string name = user.encode("utf-8", "surrogatepass")
        take_credential(&made, credential)
        made.principal = principal.encode("utf-8", "surrogatepass")
        made.owner = owner
        pthread_mutex_lock(&self.state.mutex)
        self.state.users[name] = made
        pthread_mutex_unlock(&self.state.mutex)

    def remove_user(self, str user not None):
        """Forgets a user's credential, if there is one."""
        cdef string name = user.encode("utf-8", "surrogatepass")
        pthread_mutex_lock(&self.state.mutex)
        self.state.users.erase(name)
        pthread_mutex_unlock(&self.state.mutex)

    def set_shape(self, size_t salt_bytes, bint base36, int32_t iterations):
        """What the credentials of unknown users look like. base36: salts of digits and small letters."""
        cdef ScramShape shape
        shape.salt_bytes = salt_bytes
        shape.base36 = base36
        shape.iterations = iterations
        pthread_mutex_lock(&self.state.mutex)
        self.state.shape = shape
        pthread_mutex_unlock(&self.state.mutex)

    def credential(self, str user not None):
        """A user's credential, None without one."""
        cdef ScramCredential found
        cdef unordered_map[string, ScramCredential].iterator it
        cdef string name = user.encode("utf-8", "surrogatepass")
        cdef bint known
        pthread_mutex_lock(&self.state.mutex)
        it = self.state.users.find(name)
        known = it != self.state.users.end()
        if known:
            found = dereference(it).second
        pthread_mutex_unlock(&self.state.mutex)
        return as_tuple(&found) if known else None

    def unknown(self, str user not None):
        """A credential that no password fits. It has the salt that this unknown user always gets."""
        cdef ScramCredential made
        cdef string name = user.encode("utf-8", "surrogatepass")
        cdef ScramShape shape
        pthread_mutex_lock(&self.state.mutex)
        shape = self.state.shape
        pthread_mutex_unlock(&self.state.mutex)
        if not make_unknown(self.state, &shape, name, &made):
            raise MemoryError
        return as_tuple(&made)


cdef class ScramLogin:
    """One login from the client's first message on, which names user, authzid ("": none), and whether the user is the
    id of a delegation token."""

    cdef ScramFirst first
    cdef ScramExchange exchange

    def __init__(self, str mechanism not None, bytes client_first not None):
        """ValueError when the bytes are no first message."""
        self.exchange.mechanism = number_of(mechanism)
        if not scram_read_first(client_first, len(client_first), &self.first):
            raise ValueError("Invalid SCRAM client first message format")

    @property
    def user(self):
        return (<bytes>self.first.user).decode()

    @property
    def authzid(self):
        return (<bytes>self.first.authzid).decode()

    @property
    def by_token(self):
        return bool(self.first.by_token)

    def begin(self, credential, bint known, bytes nonce=None):
        """The broker's first message. known: whether a proof may fit the credential. nonce: the broker's part, None for
        a random one."""
        cdef const char* own_nonce = NULL
        take_credential(&self.exchange.credential, credential)
        self.exchange.known = known
        if nonce is not None:
            own_nonce = nonce
        if not challenge(&self.exchange, &self.first, own_nonce):
            raise MemoryError
        return <bytes>self.exchange.server_first

    def finish(self, bytes client_final not None):
        """The broker's final message. ValueError with the reason why the client is not logged in."""
        cdef string server_final
        cdef const char* reason = scram_finish(&self.exchange, client_final, len(client_final), &server_final)
        if reason != NULL:
            raise ValueError((<bytes>reason).decode())
        return <bytes>server_final
