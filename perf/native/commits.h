/* The offsets of groups: a hash table of groups, and a record batch with the commits of one turn, as in __consumer_offsets. */
#ifndef KAFKAPY_PERF_COMMITS_H
#define KAFKAPY_PERF_COMMITS_H
#include "append.h"
#include "fields.h"

enum { GROUP_BUCKETS = 1 << 16, KEY_VERSION = 1, VALUE_VERSION = 3, VARINT_ROOM = 5, RECORD_ROOM = 64 };

typedef struct offset_entry {
    struct offset_entry *next;
    int64_t offset, committed_ms;
    int32_t partition, leader_epoch;
    uint8_t *metadata;
    int16_t metadata_size, topic_size;
    uint8_t topic[];
} offset_entry;

typedef struct group_entry {
    struct group_entry *next;
    offset_entry *offsets;
    int16_t size;
    uint8_t name[];
} group_entry;

typedef struct { int16_t size; const uint8_t *bytes; } text;      /* size -1: null */

static group_entry *group_buckets[GROUP_BUCKETS];
static struct {
    uint8_t *bytes;
    size_t size, room;
    int32_t records;
    int64_t now_ms;
} commit_batch;
static int64_t commit_base_offset;

static inline text take_text(cursor *r) {
    text found = {.size = take16(r)};
    if (found.size > 0) found.bytes = take(r, found.size);
    return found;
}

static inline text take_name(cursor *r) {
    text found = take_text(r);
    if (found.size < 0) fail("a group or a topic without a name", found.size);
    return found;
}

static inline uint8_t *put16(uint8_t *w, int16_t v) { w[0] = (uint8_t)((uint16_t)v >> 8); w[1] = (uint8_t)v; return w + 2; }
static inline uint8_t *put_text(uint8_t *w, text t) {
    w = put16(w, t.size);
    if (t.size > 0) { memcpy(w, t.bytes, (size_t)t.size); w += t.size; }
    return w;
}
static inline uint8_t *put_zigzag(uint8_t *w, int32_t v) {
    uint32_t u = (uint32_t)v << 1 ^ (uint32_t)(v >> 31);
    for (; u >= 0x80; u >>= 7) *w++ = (uint8_t)(u | 0x80);
    *w++ = (uint8_t)u;
    return w;
}
static inline size_t zigzag_size(int32_t v) { uint8_t room[VARINT_ROOM]; return (size_t)(put_zigzag(room, v) - room); }

/* The group of a name; with `create`, a new one if there is none. */
static inline group_entry *find_group(text name, int create) {
    group_entry **bucket = &group_buckets[crc32c(name.bytes, (size_t)name.size) % GROUP_BUCKETS], *g = *bucket;
    while (g && (g->size != name.size || memcmp(g->name, name.bytes, (size_t)name.size) != 0)) g = g->next;
    if (g == NULL && create) {
        g = calloc(1, sizeof *g + (size_t)name.size);
        if (g == NULL) fail("no memory", name.size);
        memcpy(g->name, name.bytes, (size_t)name.size);
        g->size = name.size;
        g->next = *bucket;
        *bucket = g;
    }
    return g;
}

static inline offset_entry *find_offset(group_entry *g, text topic, int32_t partition, int create) {
    offset_entry *o = g ? g->offsets : NULL;
    while (o && (o->partition != partition || o->topic_size != topic.size || memcmp(o->topic, topic.bytes, (size_t)topic.size) != 0)) o = o->next;
    if (o == NULL && create) {
        o = calloc(1, sizeof *o + (size_t)topic.size);
        if (o == NULL) fail("no memory", topic.size);
        memcpy(o->topic, topic.bytes, (size_t)topic.size);
        o->topic_size = topic.size;
        o->partition = partition;
        o->next = g->offsets;
        g->offsets = o;
    }
    return o;
}

static inline void remember_offset(offset_entry *o, int64_t offset, int32_t leader_epoch, text metadata) {
    if (metadata.size > o->metadata_size && (o->metadata = realloc(o->metadata, (size_t)metadata.size)) == NULL) fail("no memory", metadata.size);
    if (metadata.size > 0) memcpy(o->metadata, metadata.bytes, (size_t)metadata.size);
    o->metadata_size = metadata.size;
    o->offset = offset;
    o->leader_epoch = leader_epoch;
    o->committed_ms = commit_batch.now_ms;
}

/* OffsetCommitKey version 1 and OffsetCommitValue version 3 as one more record of the turn's batch. */
static inline void add_commit(text group, text topic, int32_t partition, int64_t offset, int32_t leader_epoch, text metadata) {
    if (commit_batch.records == 0) {
        commit_batch.size = BATCH_HEADER;
        commit_batch.now_ms = clock_ns(CLOCK_REALTIME) / 1000000;
    }
    if (metadata.size < 0) metadata.size = 0;
    int32_t key = 2 + 2 + group.size + 2 + topic.size + 4, value = 2 + 8 + 4 + 2 + metadata.size + 8;
    while (commit_batch.size + (size_t)(key + value) + RECORD_ROOM > commit_batch.room) {
        commit_batch.room = commit_batch.room * 2 + 4096;
        if ((commit_batch.bytes = realloc(commit_batch.bytes, commit_batch.room)) == NULL) fail("no memory", (long long)commit_batch.room);
    }
    int32_t delta = commit_batch.records++;
    uint8_t *w = commit_batch.bytes + commit_batch.size;
    w = put_zigzag(w, 3 + key + value + (int32_t)(zigzag_size(delta) + zigzag_size(key) + zigzag_size(value)));
    *w++ = 0;                                                       /* attributes */
    *w++ = 0;                                                       /* timestamp delta */
    w = put_zigzag(w, delta);
    w = put_zigzag(w, key);
    w = put_text(put_text(put16(w, KEY_VERSION), group), topic);
    put32(w, (uint32_t)partition); w += 4;
    w = put_zigzag(w, value);
    w = put16(w, VALUE_VERSION);
    put64(w, (uint64_t)offset); put32(w + 8, (uint32_t)leader_epoch); w += 12;
    w = put_text(w, metadata);
    put64(w, (uint64_t)commit_batch.now_ms); w += 8;
    *w++ = 0;                                                       /* headers */
    commit_batch.size = (size_t)(w - commit_batch.bytes);
}

/* The commits since the last call, as one batch at the end of the file. */
static inline void append_commits(growing_file *file) {
    if (commit_batch.records == 0) return;
    uint8_t *b = commit_batch.bytes;
    memset(b, 0, BATCH_HEADER);
    put64(b, (uint64_t)commit_base_offset);
    put32(b + BATCH_LENGTH_AT, (uint32_t)(commit_batch.size - BATCH_LOG_OVERHEAD));
    b[BATCH_MAGIC_AT] = 2;
    put32(b + BATCH_LAST_DELTA_AT, (uint32_t)commit_batch.records - 1);
    put64(b + 27, (uint64_t)commit_batch.now_ms);                   /* first and largest timestamp */
    put64(b + 35, (uint64_t)commit_batch.now_ms);
    memset(b + 43, 0xFF, 8 + 2 + 4);                                /* no producer id, epoch and sequence */
    put32(b + 57, (uint32_t)commit_batch.records);
    put32(b + BATCH_CRC_AT, crc32c(b + BATCH_ATTRIBUTES_AT, commit_batch.size - BATCH_ATTRIBUTES_AT));
    append(file, b, commit_batch.size);
    commit_base_offset += commit_batch.records;
    commit_batch.records = 0;
}

static inline uint8_t *room_for(uint8_t *w, const uint8_t *end, size_t n) {
    if (n > (size_t)(end - w)) fail("no room in the reply", (long long)n);
    return w;
}

/* An answer's throttle time and how many topics it has, as the request says. */
static inline int32_t answer_topics(cursor *r, uint8_t **w, const uint8_t *end) {
    int32_t topics = take32(r);
    room_for(*w, end, 8);
    put32(*w, 0); put32(*w + 4, (uint32_t)topics); *w += 8;
    return topics;
}

/* A topic of an answer, and how many partitions it has. */
static inline int32_t answer_partitions(cursor *r, uint8_t **w, const uint8_t *end, text topic) {
    int32_t partitions = take32(r);
    *w = put_text(room_for(*w, end, 2 + (size_t)topic.size + 4), topic);
    put32(*w, (uint32_t)partitions); *w += 4;
    return partitions;
}

/* OffsetCommit version 7 behind the request's header: puts the records into the batch, and the body of the reply at w. Gives its end. */
static inline uint8_t *commit_offsets(cursor r, uint8_t *w, const uint8_t *end) {
    text group = take_name(&r);
    take32(&r);                                                     /* generation */
    take_text(&r);                                                  /* member id */
    take_text(&r);                                                  /* instance id */
    group_entry *g = find_group(group, 1);
    int32_t topics = answer_topics(&r, &w, end);
    for (; topics > 0; topics--) {
        text topic = take_name(&r);
        int32_t partitions = answer_partitions(&r, &w, end, topic);
        for (; partitions > 0; partitions--) {
            int32_t partition = take32(&r);
            int64_t offset = take64(&r);
            int32_t leader_epoch = take32(&r);
            text metadata = take_text(&r);
            add_commit(group, topic, partition, offset, leader_epoch, metadata);
            remember_offset(find_offset(g, topic, partition, 1), offset, leader_epoch, metadata);
            put32(room_for(w, end, 6), (uint32_t)partition);
            w = put16(w + 4, 0);
        }
    }
    return w;
}

/* OffsetFetch version 5, in the same way, from the table. */
static inline uint8_t *fetch_offsets(cursor r, uint8_t *w, const uint8_t *end) {
    group_entry *g = find_group(take_name(&r), 0);
    int32_t topics = answer_topics(&r, &w, end);
    for (; topics > 0; topics--) {
        text topic = take_name(&r);
        int32_t partitions = answer_partitions(&r, &w, end, topic);
        for (; partitions > 0; partitions--) {
            int32_t partition = take32(&r);
            const offset_entry *o = find_offset(g, topic, partition, 0);
            text metadata = {.size = o && o->metadata_size > 0 ? o->metadata_size : 0, .bytes = o ? o->metadata : NULL};
            room_for(w, end, 4 + 8 + 4 + 2 + (size_t)metadata.size + 2);
            put32(w, (uint32_t)partition); w += 4;
            put64(w, o ? (uint64_t)o->offset : (uint64_t)-1); w += 8;
            put32(w, o ? (uint32_t)o->leader_epoch : (uint32_t)-1); w += 4;
            w = put16(put_text(w, metadata), 0);
        }
    }
    return put16(room_for(w, end, 2), 0);
}
#endif
