/* Record batches to the two buffers of Arrow columns: the least that any reader of keys and values has to do.
 *
 *   arrow [--rounds N (15)] [--rows N (16384)] RECORDS_FILE
 *
 * RECORDS_FILE holds whole batches of message format 2, uncompressed or lz4, as the records of a Fetch response. A batch's CRC-32C is
 * checked, its records are decompressed, each record is walked, and its key and value are copied behind those before, with an int32 end
 * each. After --rows records the columns begin at their start again, as those of a reader that hands out tables and takes their memory back.
 * No record is checked: a reader of hostile bytes does more. Stages, each over all batches, in CPU nanoseconds a record, the least of the rounds:
 *
 *   crc      CRC-32C in three streams (PCLMULQDQ joins them)
 *   open     lz4; 0 without
 *   walk     lengths of records, keys and values
 *   columns  walk and copies
 *   passes   crc and open of all batches, then columns of all: what a client does whose I/O thread checks and whose caller copies
 *   fused    the same batch by batch, while it lies in the cache
 *
 * Prints one JSON object: records, bytes, and the stages.
 */
#define _GNU_SOURCE
#include "wire.h"
#include <getopt.h>
#include <lz4frame.h>
#include <wmmintrin.h>

enum { BATCH_RECORDS_AT = 61, BATCH_COUNT_AT = 57, CODEC_LZ4 = 3, SLACK = 64, OPENED_MOST = 64 << 20 };

typedef struct { const uint8_t *at; size_t size; const uint8_t *records; size_t records_size; int count; } batch;
typedef struct { uint8_t *data; int32_t *ends; size_t size, rows; } column;

static batch *batches;
static size_t batch_count, record_count, column_room;
static uint8_t *opened;
static column key, value;
static size_t rows_at_once = 16384;
static volatile uint64_t sink;

/* x to the power n, modulo the polynomial. */
__attribute__((target("pclmul"))) static uint32_t power(uint64_t n) {
    uint64_t stack = ~(uint64_t)1, low;
    for (; n > 191; n = (n >> 1) - 16) stack = (stack << 1) + (n & 1);
    stack = ~stack;
    uint32_t out = 0x80000000u >> (n & 31);
    for (n >>= 5; n; n--) out = _mm_crc32_u32(out, 0);
    while ((void)(low = stack & 1), stack >>= 1) {
        __m128i x = _mm_cvtsi32_si128((int)out);
        out = (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(x, x, 0)) << low);
    }
    return out;
}

__attribute__((target("pclmul"))) static __m128i shifted(uint64_t crc, uint32_t by) {
    return _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc), _mm_cvtsi32_si128((int)by), 0);
}

static inline uint64_t load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

__attribute__((target("pclmul"))) static uint32_t crc32c_streams(const uint8_t *p, size_t n) {
    static size_t known;
    static uint32_t twice, once;
    uint64_t a = 0xFFFFFFFF, b = 0, c = 0;
    if (n >= 512) {
        size_t each = (n - 8) / 24 * 8;
        const uint8_t *end = p + each;
        if (each != known) { twice = power((each * 2 + 8) * 8 - 33); once = power((each + 8) * 8 - 33); known = each; }
        for (; p < end; p += 8) {
            a = _mm_crc32_u64(a, load64(p));
            b = _mm_crc32_u64(b, load64(p + each));
            c = _mm_crc32_u64(c, load64(p + 2 * each));
        }
        p += 2 * each;
        a = _mm_crc32_u64(c, load64(p) ^ (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(shifted(a, twice), shifted(b, once))));
        p += 8;
        n -= 3 * each + 8;
    }
    for (; n >= 8; p += 8, n -= 8) a = _mm_crc32_u64(a, load64(p));
    for (; n; p++, n--) a = _mm_crc32_u8((uint32_t)a, *p);
    return (uint32_t)a ^ 0xFFFFFFFF;
}

static void check(const batch *b) {
    if (crc32c_streams(b->at + BATCH_ATTRIBUTES_AT, b->size - BATCH_ATTRIBUTES_AT) != get32(b->at + BATCH_CRC_AT)) fail("wrong CRC", b->at - batches->at);
}

/* Decompresses behind `at`; returns the end. */
static uint8_t *open_batch(batch *b, uint8_t *at) {
    static LZ4F_dctx *context;
    size_t in = b->size - BATCH_RECORDS_AT, out = (size_t)(opened + OPENED_MOST - at);
    if ((get16(b->at + BATCH_ATTRIBUTES_AT) & 7) != CODEC_LZ4) return at;
    if (context == NULL && LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION))) fail("no memory", 0);
    if (LZ4F_decompress(context, at, &out, b->at + BATCH_RECORDS_AT, &in, NULL) != 0) fail("no whole lz4 frame", (long long)out);
    b->records = at;
    b->records_size = out;
    return at + out;
}

static inline int64_t varint(const uint8_t **p) {
    uint64_t v = *(*p)++;
    if (v >= 0x80) {
        v &= 0x7F;
        for (int shift = 7;; shift += 7) {
            uint8_t b = *(*p)++;
            v |= (uint64_t)(b & 0x7F) << shift;
            if (b < 0x80) break;
        }
    }
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* There is room behind both, so that short bytes are copied in whole vectors. */
static inline void copy(uint8_t *to, const uint8_t *from, size_t n) {
    if (n > 128) { memcpy(to, from, n); return; }
    for (size_t i = 0; i < n; i += 32) memcpy(to + i, from + i, 32);
}

static inline void add(column *c, const uint8_t *from, int64_t n) {
    if (n > 0) { copy(c->data + c->size, from, (size_t)n); c->size += (size_t)n; }
    c->ends[++c->rows] = (int32_t)c->size;
}

/* Reads a record's length, attributes, timestamp and offset; p is at its key then. */
static const uint8_t *record_end(const uint8_t **p) {
    int64_t length = varint(p);
    const uint8_t *end = *p + length;
    (*p)++;
    varint(p);
    varint(p);
    return end;
}

static void columns_of(const batch *b) {
    const uint8_t *p = b->records;
    column k = key, v = value;
    if (k.size + v.size + b->records_size > column_room) k.size = k.rows = v.size = v.rows = 0;
    for (int i = 0; i < b->count; i++) {
        const uint8_t *end = record_end(&p);
        int64_t n = varint(&p);
        add(&k, p, n);
        p += n > 0 ? n : 0;
        n = varint(&p);
        add(&v, p, n);
        p = end;
        if (v.rows == rows_at_once) k.size = k.rows = v.size = v.rows = 0;
    }
    if (p != b->records + b->records_size) fail("records do not add up", (long long)(p - b->records));
    key = k;
    value = v;
}

static void walk(const batch *b) {
    const uint8_t *p = b->records;
    uint64_t sum = 0;
    for (int i = 0; i < b->count; i++) {
        const uint8_t *end = record_end(&p);
        int64_t n = varint(&p);
        p += n > 0 ? n : 0;
        sum += (uint64_t)(n + varint(&p));
        p = end;
    }
    sink = sum;
}

typedef enum { CRC, OPEN, WALK, COLUMNS, PASSES, ALL_FUSED, STAGES } stage;
static const char *names[STAGES] = {"crc", "open", "walk", "columns", "passes", "fused"};

static void run(stage what) {
    uint8_t *at = opened;
    for (size_t i = 0; i < batch_count; i++) {
        if (what == CRC || what == PASSES || what == ALL_FUSED) check(&batches[i]);
        if (what == OPEN || what == PASSES || what == ALL_FUSED) at = open_batch(&batches[i], at);
        if (what == ALL_FUSED) { columns_of(&batches[i]); at = opened; }
        if (what == WALK) walk(&batches[i]);
        if (what == COLUMNS) columns_of(&batches[i]);
    }
    for (size_t i = 0; what == PASSES && i < batch_count; i++) columns_of(&batches[i]);
}

static double cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *room(size_t size) {
    uint8_t *out = malloc(size);
    if (out == NULL) fail("no memory", (long long)size);
    memset(out, 0, size);
    return out;
}

int main(int argc, char **argv) {
    int rounds = 15;
    static const struct option known[] = {{"rounds", 1, 0, 'r'}, {"rows", 1, 0, 'n'}, {0}};
    program = "arrow";
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'r': rounds = atoi(optarg); break;
        case 'n': rows_at_once = (size_t)atoll(optarg); break;
        default: fail("unknown option", option);
        }
    }
    if (optind + 1 != argc || rounds < 1 || rows_at_once < 1) fail("usage: see the head of arrow.c", argc);
    FILE *file = fopen(argv[optind], "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) fail("cannot open the file", errno);
    size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = room(size + SLACK);
    if (fread(data, 1, size, file) != size) fail("cannot read the file", errno);
    fclose(file);
    opened = room(OPENED_MOST + SLACK);
    batches = calloc(size / BATCH_RECORDS_AT + 1, sizeof *batches);
    uint8_t *at = opened;
    size_t most = 0;
    for (size_t p = 0; p < size;) {
        batch *b = &batches[batch_count++];
        if (size - p < BATCH_RECORDS_AT) fail("a part of a batch", (long long)p);
        b->at = data + p;
        b->size = BATCH_LOG_OVERHEAD + (size_t)get32(b->at + BATCH_LENGTH_AT);
        if (b->size < BATCH_RECORDS_AT || b->size > size - p) fail("a part of a batch", (long long)p);
        b->records = b->at + BATCH_RECORDS_AT;
        b->records_size = b->size - BATCH_RECORDS_AT;
        b->count = (int)get32(b->at + BATCH_COUNT_AT);
        record_count += (size_t)b->count;
        at = open_batch(b, at);
        most += b->records_size;
        p += b->size;
    }
    column_room = most;
    column *both[] = {&key, &value};
    for (int i = 0; i < 2; i++) {
        both[i]->data = room(most + SLACK);
        both[i]->ends = room((rows_at_once + 1) * sizeof(int32_t));
    }
    double best[STAGES];
    for (int r = 0; r < rounds; r++) {
        for (int s = 0; s < STAGES; s++) {
            at = opened;
            for (size_t i = 0; i < batch_count; i++) at = open_batch(&batches[i], at);
            double took = -cpu_ns();
            run((stage)s);
            took = (took + cpu_ns()) / (double)record_count;
            if (r == 0 || took < best[s]) best[s] = took;
        }
    }
    printf("{\"records\": %zu, \"bytes\": %zu", record_count, size);
    for (int s = 0; s < STAGES; s++) printf(", \"%s\": %.2f", names[s], best[s]);
    printf("}\n");
    return 0;
}
