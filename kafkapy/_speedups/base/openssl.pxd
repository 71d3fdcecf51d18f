"""The functions of OpenSSL 3 (libssl, libcrypto) that the kernels call."""

from libc.stdint cimport uint64_t

cdef extern from "<openssl/ssl.h>" nogil:
    ctypedef struct SSL:
        pass
    ctypedef struct X509_STORE_CTX:
        pass
    ctypedef struct SSL_CTX:
        pass
    ctypedef struct SSL_METHOD:
        pass
    ctypedef struct SSL_SESSION:
        pass
    ctypedef struct SSL_CIPHER:
        pass
    int SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE, SSL_ERROR_ZERO_RETURN, SSL_ERROR_SYSCALL, SSL_ERROR_SSL
    int SSL_VERIFY_NONE, SSL_VERIFY_PEER, SSL_VERIFY_FAIL_IF_NO_PEER_CERT
    int SSL_MODE_ENABLE_PARTIAL_WRITE, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, SSL_MODE_RELEASE_BUFFERS
    int SSL_MODE_NO_AUTO_CHAIN
    int SSL_SESS_CACHE_OFF, SSL_SESS_CACHE_CLIENT, SSL_SESS_CACHE_NO_INTERNAL
    int SSL_CB_WRITE_ALERT, SSL_AD_NO_RENEGOTIATION
    int SSL_SENT_SHUTDOWN
    uint64_t SSL_OP_ALL, SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_COMPRESSION, SSL_OP_CIPHER_SERVER_PREFERENCE
    uint64_t SSL_OP_PRIORITIZE_CHACHA, SSL_OP_IGNORE_UNEXPECTED_EOF, SSL_OP_ENABLE_KTLS
    uint64_t SSL_OP_NO_TLSv1, SSL_OP_NO_TLSv1_1, SSL_OP_NO_TLSv1_2, SSL_OP_NO_TLSv1_3
    int TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION
    int SSL_TLSEXT_ERR_OK

    const SSL_METHOD* TLS_server_method()
    const SSL_METHOD* TLS_client_method()
    SSL_CTX* SSL_CTX_new(const SSL_METHOD*)
    void SSL_CTX_free(SSL_CTX*)
    uint64_t SSL_CTX_set_options(SSL_CTX*, uint64_t)
    long SSL_CTX_set_mode(SSL_CTX*, long)
    int SSL_CTX_set_min_proto_version(SSL_CTX*, int)
    int SSL_CTX_set_max_proto_version(SSL_CTX*, int)
    int SSL_CTX_set_cipher_list(SSL_CTX*, const char*)
    int SSL_CTX_set_ciphersuites(SSL_CTX*, const char*)
    int SSL_CTX_use_certificate(SSL_CTX*, X509*)
    int SSL_CTX_use_PrivateKey(SSL_CTX*, EVP_PKEY*)
    int SSL_CTX_check_private_key(const SSL_CTX*)
    int SSL_CTX_add1_chain_cert(SSL_CTX*, X509*)
    int SSL_CTX_add_client_CA(SSL_CTX*, X509*)
    X509_STORE* SSL_CTX_get_cert_store(SSL_CTX*)
    int SSL_CTX_set_default_verify_paths(SSL_CTX*)
    void SSL_CTX_set_verify(SSL_CTX*, int, int (*callback)(int, X509_STORE_CTX*) noexcept nogil)
    int SSL_CTX_set_session_id_context(SSL_CTX*, const unsigned char*, unsigned int)
    long SSL_CTX_set_session_cache_mode(SSL_CTX*, long)
    void SSL_CTX_sess_set_new_cb(SSL_CTX*, int (*callback)(SSL*, SSL_SESSION*) noexcept nogil)
    int SSL_CTX_set_num_tickets(SSL_CTX*, size_t)
    void SSL_CTX_set_read_ahead(SSL_CTX*, int)
    long SSL_CTX_set_dh_auto(SSL_CTX*, int)
    void SSL_CTX_set_info_callback(SSL_CTX*, void (*callback)(const SSL*, int, int) noexcept nogil)

    SSL* SSL_new(SSL_CTX*)
    void SSL_free(SSL*)
    void SSL_set_bio(SSL*, BIO* read, BIO* write)
    void SSL_set_accept_state(SSL*)
    void SSL_set_connect_state(SSL*)
    void SSL_set_app_data "SSL_set_app_data"(SSL*, void*)
    void* SSL_get_app_data "SSL_get_app_data"(const SSL*)
    int SSL_do_handshake(SSL*)
    int SSL_read_ex(SSL*, void*, size_t, size_t*)
    int SSL_peek_ex(SSL*, void*, size_t, size_t*)
    int SSL_write_ex(SSL*, const void*, size_t, size_t*)
    long SSL_sendfile(SSL*, int fd, long offset, size_t size, int flags)
    int SSL_shutdown(SSL*)
    int SSL_get_shutdown(const SSL*)
    int SSL_pending(const SSL*)
    int SSL_has_pending(const SSL*)
    int SSL_get_error(const SSL*, int)
    BIO* SSL_get_wbio(const SSL*)
    const char* SSL_get_version(const SSL*)
    const SSL_CIPHER* SSL_get_current_cipher(const SSL*)
    const char* SSL_CIPHER_standard_name(const SSL_CIPHER*)
    const char* OPENSSL_cipher_name(const char*)
    X509* SSL_get0_peer_certificate(const SSL*)
    long SSL_get_verify_result(const SSL*)
    int SSL_session_reused(const SSL*)
    int SSL_set_session(SSL*, SSL_SESSION*)
    SSL_SESSION* SSL_get0_session "SSL_get_session"(const SSL*)
    int SSL_SESSION_up_ref(SSL_SESSION*)
    void SSL_SESSION_free(SSL_SESSION*)
    int SSL_SESSION_is_resumable(const SSL_SESSION*)
    unsigned char SSL_SESSION_get_max_fragment_length(const SSL_SESSION*)
    int SSL_set1_host(SSL*, const char*)
    void SSL_set_hostflags(SSL*, unsigned int)
    long SSL_set_tlsext_host_name(SSL*, const char*)
    X509_VERIFY_PARAM* SSL_get0_param(SSL*)

cdef extern from "<openssl/bio.h>" nogil:
    ctypedef struct BIO:
        pass
    ctypedef struct BIO_METHOD:
        pass
    int BIO_CTRL_FLUSH, BIO_TYPE_SOURCE_SINK, BIO_NOCLOSE
    BIO_METHOD* BIO_meth_new(int, const char*)
    int BIO_meth_set_read_ex(BIO_METHOD*, int (*f)(BIO*, char*, size_t, size_t*) noexcept nogil)
    int BIO_meth_set_write_ex(BIO_METHOD*, int (*f)(BIO*, const char*, size_t, size_t*) noexcept nogil)
    int BIO_meth_set_ctrl(BIO_METHOD*, long (*f)(BIO*, int, long, void*) noexcept nogil)
    BIO* BIO_new(const BIO_METHOD*)
    BIO* BIO_new_socket(int fd, int close)
    int BIO_free(BIO*)
    void BIO_set_data(BIO*, void*)
    void* BIO_get_data(BIO*)
    void BIO_set_init(BIO*, int)
    void BIO_set_retry_read(BIO*)
    void BIO_set_retry_write(BIO*)
    void BIO_clear_retry_flags(BIO*)
    bint BIO_get_ktls_send(BIO*)

cdef extern from "<openssl/x509v3.h>" nogil:
    unsigned int X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS

cdef extern from "<openssl/x509_vfy.h>" nogil:
    ctypedef struct X509_CRL:
        pass
    ctypedef struct X509_STORE:
        pass
    ctypedef struct X509_VERIFY_PARAM:
        pass
    long X509_V_OK
    unsigned long X509_V_FLAG_PARTIAL_CHAIN
    unsigned long X509_V_FLAG_CRL_CHECK
    unsigned long X509_V_FLAG_CRL_CHECK_ALL
    int X509_V_ERR_UNABLE_TO_GET_CRL
    int X509_V_ERR_UNABLE_TO_GET_CRL_ISSUER
    int X509_STORE_CTX_get_error(X509_STORE_CTX*)
    int X509_STORE_CTX_get_error_depth(X509_STORE_CTX*)
    void X509_STORE_CTX_set_error(X509_STORE_CTX*, int)
    int X509_STORE_add_cert(X509_STORE*, X509*)
    int X509_STORE_add_crl(X509_STORE*, X509_CRL*)
    int X509_STORE_set_flags(X509_STORE*, unsigned long)
    int X509_VERIFY_PARAM_set1_ip(X509_VERIFY_PARAM*, const unsigned char*, size_t)
    int X509_VERIFY_PARAM_set1_ip_asc(X509_VERIFY_PARAM*, const char*)
    const char* X509_verify_cert_error_string(long)

cdef extern from "<openssl/x509.h>" nogil:
    ctypedef struct X509:
        pass
    X509* d2i_X509(X509**, const unsigned char**, long)
    int i2d_X509(const X509*, unsigned char**)
    void X509_free(X509*)
    X509_CRL* d2i_X509_CRL(X509_CRL**, const unsigned char**, long)
    void X509_CRL_free(X509_CRL*)

cdef extern from "<openssl/core.h>" nogil:
    ctypedef struct OSSL_PARAM:
        pass

cdef extern from "<openssl/evp.h>" nogil:
    ctypedef struct EVP_PKEY:
        pass
    ctypedef struct EVP_MD:
        pass
    ctypedef struct EVP_MD_CTX:
        pass
    ctypedef struct ENGINE:
        pass
    EVP_PKEY* d2i_AutoPrivateKey(EVP_PKEY**, const unsigned char**, long)
    void EVP_PKEY_free(EVP_PKEY*)
    ctypedef struct EVP_MAC:
        pass
    ctypedef struct EVP_MAC_CTX:
        pass
    ctypedef struct OSSL_LIB_CTX:
        pass
    EVP_MD* EVP_MD_fetch(OSSL_LIB_CTX*, const char*, const char*)
    EVP_MAC* EVP_MAC_fetch(OSSL_LIB_CTX*, const char*, const char*)
    void EVP_MAC_free(EVP_MAC*)
    EVP_MAC_CTX* EVP_MAC_CTX_new(EVP_MAC*)
    EVP_MAC_CTX* EVP_MAC_CTX_dup(const EVP_MAC_CTX*)
    void EVP_MAC_CTX_free(EVP_MAC_CTX*)
    int EVP_MAC_init(EVP_MAC_CTX*, const unsigned char*, size_t, const OSSL_PARAM*)
    int EVP_MAC_update(EVP_MAC_CTX*, const unsigned char*, size_t)
    int EVP_MAC_final(EVP_MAC_CTX*, unsigned char*, size_t*, size_t)
    EVP_MD_CTX* EVP_MD_CTX_new()
    void EVP_MD_CTX_free(EVP_MD_CTX*)
    int EVP_DigestInit_ex(EVP_MD_CTX*, const EVP_MD*, ENGINE*)
    int EVP_DigestUpdate(EVP_MD_CTX*, const void*, size_t)
    int EVP_DigestFinalXOF(EVP_MD_CTX*, unsigned char*, size_t)
    int EVP_Digest(const void*, size_t, unsigned char*, unsigned int*, const EVP_MD*, ENGINE*)
    int EVP_EncodeBlock(unsigned char*, const unsigned char*, int)
    int EVP_DecodeBlock(unsigned char*, const unsigned char*, int)

cdef extern from "<openssl/params.h>" nogil:
    OSSL_PARAM OSSL_PARAM_construct_utf8_string(const char*, char*, size_t)
    OSSL_PARAM OSSL_PARAM_construct_end()

cdef extern from "<openssl/rand.h>" nogil:
    int RAND_bytes(unsigned char*, int)

cdef extern from "<openssl/crypto.h>" nogil:
    int CRYPTO_memcmp(const void*, const void*, size_t)
    void OPENSSL_free(void*)

cdef extern from "<openssl/err.h>" nogil:
    void ERR_clear_error()
    unsigned long ERR_peek_error()
    unsigned long ERR_peek_last_error()
    const char* ERR_reason_error_string(unsigned long)
    int ERR_GET_LIB(unsigned long)
    int ERR_GET_REASON(unsigned long)
    int ERR_LIB_SSL

cdef extern from "<openssl/sslerr.h>" nogil:
    int SSL_R_HTTP_REQUEST, SSL_R_HTTPS_PROXY_REQUEST, SSL_R_WRONG_VERSION_NUMBER, SSL_R_CERTIFICATE_VERIFY_FAILED
    int SSL_R_PACKET_LENGTH_TOO_LONG, SSL_R_ENCRYPTED_LENGTH_TOO_LONG, SSL_R_DATA_LENGTH_TOO_LONG
    int SSL_R_EXCESSIVE_MESSAGE_SIZE, SSL_R_UNEXPECTED_EOF_WHILE_READING
