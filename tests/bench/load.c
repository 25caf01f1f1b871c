/*
 * A raw load generator for brokers that speak Kafka's protocol: one connection, constant record batches of 200-byte
 * messages, made and checksummed once, so that the broker is the slower part.
 *
 *   load PORT TOPIC produce ACKS MESSAGES IN_FLIGHT SECONDS MAX_BYTES SLICES
 *   load PORT TOPIC fetch MESSAGES MAX_BYTES SECONDS
 *   load PORT TOPIC consume MESSAGES MAX_BYTES SLICES
 *
 * produce: Produce version 9, MESSAGES in the one batch of each request, to partition 0 of an empty topic, until SECONDS
 * have passed or MAX_BYTES are sent. ACKS 0 or 1. With acks=1 at most IN_FLIGHT requests are unanswered; with 1 the time
 * of each is taken. With acks=0 a last request with acks=1 waits until all are stored. With SLICES the bytes of messages
 * alone are counted, the times are told at which each of so many equal parts was sent, and the kernel holds no more than
 * some 512 KiB that are not sent yet.
 * fetch: Fetch version 12, up to MAX_BYTES in each answer, one in flight, from the start to the end of a topic that
 * `produce` wrote with as many MESSAGES, again and again; but for the start of an answer the kernel discards what comes.
 * consume: the same once, as a consumer would: all bytes are read, and each message is compared with what was produced.
 *
 * Prints one JSON object. Every answer is checked: its correlation id, its error code, and the offset, so that a request
 * that was not stored, or stored twice, ends the run with status 1. Loopback only.
 */

#include "raw.h"

enum { BATCH_HEADER_BYTES = 61, BLOCK_BYTES = 256 * 1024, CORRELATION_AT = 8 };

/* -- bytes ---------------------------------------------------------------------------------------------------- */

static void put_uvarint(Bytes *to, uint64_t value) {
    do {
        uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(to, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_varint(Bytes *to, int64_t value) { put_uvarint(to, (uint64_t)((value << 1) ^ (value >> 63))); }

static void put_text(Bytes *to, const char *text) {
    put_uvarint(to, strlen(text) + 1);
    put(to, text, strlen(text));
}

static uint32_t crc32c(const uint8_t *data, size_t size) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* -- messages ------------------------------------------------------------------------------------------------- */

static Bytes make_batch(int messages) {
    Bytes batch = {0};
    int64_t timestamp_ms = wall_ms();
    put_number(&batch, 0, 8); /* base offset */
    put_number(&batch, 0, 4); /* length, below */
    put_number(&batch, 0, 4); /* leader epoch */
    put_number(&batch, 2, 1); /* magic */
    put_number(&batch, 0, 4); /* checksum, below */
    put_number(&batch, 0, 2); /* attributes */
    put_number(&batch, messages - 1, 4);
    put_number(&batch, timestamp_ms, 8);
    put_number(&batch, timestamp_ms, 8);
    put_number(&batch, -1, 8); /* producer id */
    put_number(&batch, -1, 2);
    put_number(&batch, -1, 4);
    put_number(&batch, messages, 4);
    for (int i = 0; i < messages; i++) {
        Bytes record = {0};
        uint8_t value[MESSAGE_BYTES];
        for (int j = 0; j < MESSAGE_BYTES; j++) value[j] = (uint8_t)('a' + (i + j) % 26);
        put_number(&record, 0, 1); /* attributes */
        put_varint(&record, 0);    /* timestamp delta */
        put_varint(&record, i);    /* offset delta */
        put_varint(&record, -1);   /* no key */
        put_varint(&record, MESSAGE_BYTES);
        put(&record, value, MESSAGE_BYTES);
        put_varint(&record, 0); /* no headers */
        put_varint(&batch, (int64_t)record.size);
        put(&batch, record.data, record.size);
        free(record.data);
    }
    store(batch.data + 8, batch.size - 12, 4);
    store(batch.data + 17, crc32c(batch.data + 21, batch.size - 21), 4);
    return batch;
}

/* Behind the stamps of the broker and the time, all is as it was sent. */
static void check_batch(const uint8_t *data, const Bytes *batch, int64_t offset) {
    if ((int64_t)load(data, 8) != offset)
        fail("records at %lld were served for offset %lld", (long long)load(data, 8), (long long)offset);
    if (memcmp(data + BATCH_HEADER_BYTES, batch->data + BATCH_HEADER_BYTES, batch->size - BATCH_HEADER_BYTES))
        fail("the records at offset %lld are not those that were produced", (long long)offset);
}

static Bytes begin_request(int api_key, int version) {
    Bytes frame = {0};
    put_number(&frame, 0, 4); /* size, below */
    put_number(&frame, api_key, 2);
    put_number(&frame, version, 2);
    put_number(&frame, 0, 4); /* correlation id */
    put_number(&frame, 4, 2);
    put(&frame, "load", 4);
    put_uvarint(&frame, 0);
    return frame;
}

static void end_request(Bytes *frame) { store(frame->data, frame->size - 4, 4); }

static Bytes make_produce(const char *topic, int acks, const Bytes *batch) {
    Bytes frame = begin_request(0, 9);
    put_uvarint(&frame, 0); /* no transactional id */
    put_number(&frame, acks, 2);
    put_number(&frame, 30000, 4);
    put_uvarint(&frame, 2);
    put_text(&frame, topic);
    put_uvarint(&frame, 2);
    put_number(&frame, 0, 4); /* partition */
    put_uvarint(&frame, batch->size + 1);
    put(&frame, batch->data, batch->size);
    put(&frame, "\0\0\0", 3); /* tags of partition, topic and request */
    end_request(&frame);
    return frame;
}

static Bytes make_fetch(const char *topic, int max_bytes, size_t *offset_at) {
    Bytes frame = begin_request(1, 12);
    put_number(&frame, -1, 4);  /* replica */
    put_number(&frame, 500, 4); /* longest wait */
    put_number(&frame, 1, 4);   /* least bytes */
    put_number(&frame, max_bytes, 4);
    put_number(&frame, 0, 1);  /* isolation */
    put_number(&frame, 0, 4);  /* session */
    put_number(&frame, -1, 4); /* and its epoch: none */
    put_uvarint(&frame, 2);
    put_text(&frame, topic);
    put_uvarint(&frame, 2);
    put_number(&frame, 0, 4);  /* partition */
    put_number(&frame, -1, 4); /* leader epoch */
    *offset_at = frame.size;
    put_number(&frame, 0, 8);
    put_number(&frame, -1, 4); /* last fetched epoch */
    put_number(&frame, -1, 8); /* log start offset */
    put_number(&frame, max_bytes, 4);
    put(&frame, "\0\0", 2); /* tags of partition and topic */
    put_uvarint(&frame, 1); /* no forgotten topics */
    put_uvarint(&frame, 1); /* no rack */
    put_uvarint(&frame, 0);
    end_request(&frame);
    return frame;
}

/* -- answers -------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t topic_size;
    int64_t answered; /* requests */
    int messages;
    uint8_t data[1 << 16];
    size_t filled;
} Answers;

/* Checks one answer to Produce version 9, which is for a single partition. */
static void check_produced(Answers *answers, const uint8_t *frame, size_t size) {
    size_t error_at = 4 + 4 + 1 + 1 + 1 + answers->topic_size + 1 + 4;
    if (size < error_at + 10) fail("an answer of %zu bytes", size);
    if (load(frame + 4, 4) != (uint32_t)answers->answered) fail("an answer out of order");
    int16_t error = (int16_t)load(frame + error_at, 2);
    if (error) fail("request %lld failed with error code %d", (long long)answers->answered, error);
    int64_t base_offset = (int64_t)load(frame + error_at + 2, 8);
    if (base_offset != answers->answered * answers->messages)
        fail("request %lld was stored at offset %lld", (long long)answers->answered, (long long)base_offset);
    answers->answered++;
}

/* Takes what has arrived; returns whether there was anything. */
static int take_answers(Answers *answers, int sock, int flags) {
    ssize_t count = recv(sock, answers->data + answers->filled, sizeof answers->data - answers->filled, flags);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    if (count <= 0) fail("the broker closed the connection");
    answers->filled += (size_t)count;
    size_t at = 0;
    while (answers->filled - at >= 4) {
        size_t size = 4 + load(answers->data + at, 4);
        if (size > sizeof answers->data) fail("an answer of %zu bytes", size);
        if (answers->filled - at < size) break;
        check_produced(answers, answers->data + at, size);
        at += size;
    }
    memmove(answers->data, answers->data + at, answers->filled - at);
    answers->filled -= at;
    return 1;
}

/* -- loads ---------------------------------------------------------------------------------------------------- */

typedef struct {
    Bytes block;
    size_t frame_size;
    int frames;
} Block;

static Block make_block(const Bytes *frame, int frames) {
    Block block = {.frame_size = frame->size, .frames = frames};
    for (int i = 0; i < frames; i++) put(&block.block, frame->data, frame->size);
    return block;
}

static void number(Block *block, int64_t first) {
    for (int i = 0; i < block->frames; i++)
        store(block->block.data + (size_t)i * block->frame_size + CORRELATION_AT, (uint64_t)(first + i), 4);
}

static int64_t produce_unanswered(int sock, Block *block, Bytes *last, Answers *answers, double seconds, int64_t limit,
                                  Slices *slices) {
    double end_s = now_s() + seconds;
    int64_t sent = 0;
    while (now_s() < end_s && sent < limit) {
        number(block, sent);
        send_all(sock, block->block.data, block->block.size);
        sent += block->frames;
        mark(slices, sent * answers->messages);
    }
    /* The kernel has taken the last bytes before the broker has: its answer to one more request comes behind them. */
    store(last->data + CORRELATION_AT, (uint64_t)sent, 4);
    send_all(sock, last->data, last->size);
    answers->answered = sent;
    while (answers->answered == sent) take_answers(answers, sock, 0);
    return sent + 1;
}

static int64_t produce_pipelined(int sock, Block *block, Answers *answers, int in_flight, double seconds, int64_t limit,
                                 Slices *slices) {
    double end_s = now_s() + seconds;
    int64_t sent = 0;
    size_t left = 0; /* of the block that is being sent */
    fcntl(sock, F_SETFL, O_NONBLOCK);
    for (;;) {
        if (!left && now_s() < end_s && sent < limit && sent + block->frames - answers->answered <= in_flight) {
            number(block, sent);
            left = block->block.size;
            sent += block->frames;
        }
        int progressed = 0;
        if (left) {
            ssize_t count = send(sock, block->block.data + block->block.size - left, left, MSG_NOSIGNAL);
            if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK) fail("the broker took no more: %s", strerror(errno));
            if (count > 0) left -= (size_t)count, progressed = 1;
        }
        if (take_answers(answers, sock, 0)) progressed = 1;
        mark(slices, answers->answered * answers->messages);
        if (!left && answers->answered == sent && (now_s() >= end_s || sent >= limit)) return sent;
        if (!progressed) {
            struct pollfd wanted = {.fd = sock, .events = (short)(POLLIN | (left ? POLLOUT : 0))};
            poll(&wanted, 1, 1000);
        }
    }
}

static int by_size(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static int64_t produce_one_by_one(int sock, Block *block, Answers *answers, double seconds, double *p50_us, double *p99_us) {
    double end_s = now_s() + seconds, at_s = now_s();
    Bytes times = {0};
    while (at_s < end_s) {
        int64_t before = answers->answered;
        number(block, before);
        at_s = now_s();
        send_all(sock, block->block.data, block->block.size);
        while (answers->answered == before) take_answers(answers, sock, 0);
        double took_us = (now_s() - at_s) * 1e6;
        put(&times, &took_us, sizeof took_us);
    }
    double *found = (double *)times.data;
    size_t count = times.size / sizeof *found;
    qsort(found, count, sizeof *found, by_size);
    *p50_us = found[count / 2];
    *p99_us = found[count * 99 / 100];
    return answers->answered;
}

static void produce(int sock, const char *topic, char **arguments) {
    int acks = atoi(arguments[0]), messages = atoi(arguments[1]), in_flight = atoi(arguments[2]);
    double seconds = atof(arguments[3]), max_bytes = atof(arguments[4]);
    int slice_count = atoi(arguments[5]);
    Bytes batch = make_batch(messages);
    Bytes frame = make_produce(topic, acks, &batch), last = make_produce(topic, 1, &batch);
    static Answers answers;
    answers.topic_size = strlen(topic);
    answers.messages = messages;
    int frames = (int)(BLOCK_BYTES / frame.size) + 1;
    if (acks && frames > (in_flight + 1) / 2) frames = (in_flight + 1) / 2;
    Block block = make_block(&frame, frames);
    double counted = slice_count ? (double)MESSAGE_BYTES * messages : (double)frame.size;
    int64_t limit = (int64_t)(max_bytes / counted), sent;
    double p50_us = 0, p99_us = 0, started_s = now_s();
    if (slice_count) limit_unsent(sock);
    Slices slices = begin_slices(limit * messages, slice_count);
    if (!acks)
        sent = produce_unanswered(sock, &block, &last, &answers, seconds, limit, &slices);
    else if (in_flight > 1)
        sent = produce_pipelined(sock, &block, &answers, in_flight, seconds, limit, &slices);
    else
        sent = produce_one_by_one(sock, &block, &answers, seconds, &p50_us, &p99_us);
    double took_s = now_s() - started_s;
    end_slices(&slices, sent * messages);
    printf("{\"requests\": %lld, \"messages\": %lld, \"bytes\": %lld, \"seconds\": %.6f", (long long)sent,
           (long long)sent * messages, (long long)sent * (long long)frame.size, took_s);
    if (acks && in_flight == 1) printf(", \"p50_us\": %.1f, \"p99_us\": %.1f", p50_us, p99_us);
    print_end(&slices);
}

static uint64_t take_uvarint(const uint8_t *data, size_t *at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = data[(*at)++];
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
}

/* What a Fetch answer begins with, up to its records; a topic's name has fewer than 127 bytes. */
static size_t start_size_of(const char *topic) {
    return 4 + 4 + 1 + 4 + 2 + 4 + 1 + 1 + strlen(topic) + 1 + 4 + 2 + 24 + 1 + 4 + 5;
}

static void ask(int sock, Bytes *frame, size_t offset_at, int64_t requests, int64_t offset) {
    store(frame->data + CORRELATION_AT, (uint64_t)requests, 4);
    store(frame->data + offset_at, (uint64_t)offset, 8);
    send_all(sock, frame->data, frame->size);
}

/* Checks what an answer begins with, and its first batch; returns where the records begin, and sets their size. */
static size_t check_fetched(const uint8_t *data, const char *topic, const Bytes *batch, int64_t requests, int64_t offset,
                            int64_t *end_offset, int64_t *size) {
    if (load(data + 4, 4) != (uint32_t)requests) fail("an answer out of order");
    size_t at = 4 + 4 + 1 + 4;
    if (load(data + at, 2)) fail("the fetch failed with error code %d", (int)load(data + at, 2));
    at += 2 + 4 + 1 + 1 + strlen(topic) + 1 + 4;
    if (load(data + at, 2)) fail("the fetch at %lld failed with error code %d", (long long)offset, (int)load(data + at, 2));
    *end_offset = (int64_t)load(data + at + 2, 8);
    at += 2 + 24;
    uint64_t aborted = take_uvarint(data, &at);
    if (aborted > 1) fail("aborted transactions in a topic that has none");
    at += 4;
    *size = (int64_t)take_uvarint(data, &at) - 1;
    if (*size < (int64_t)batch->size)
        fail("%lld bytes of records were served for offset %lld", (long long)*size, (long long)offset);
    check_batch(data + at, batch, offset);
    return at;
}

static void fetch(int sock, const char *topic, char **arguments) {
    int messages = atoi(arguments[0]), max_bytes = atoi(arguments[1]);
    double seconds = atof(arguments[2]);
    Bytes batch = make_batch(messages);
    size_t offset_at, start_size = start_size_of(topic);
    Bytes frame = make_fetch(topic, max_bytes, &offset_at);
    uint8_t *data = malloc(BLOCK_BYTES);
    int64_t offset = 0, end_offset, size, requests = 0, bytes = 0;
    double started_s = now_s(), end_s = started_s + seconds;
    Slices none = begin_slices(0, 0);
    while (now_s() < end_s) {
        ask(sock, &frame, offset_at, requests, offset);
        receive_all(sock, data, 4);
        size_t left = load(data, 4), first = left < start_size + batch.size ? left : start_size + batch.size;
        receive_all(sock, data + 4, first);
        left -= first;
        check_fetched(data, topic, &batch, requests, offset, &end_offset, &size);
        while (left) {
            /* Discarded by the kernel: to copy it would make the client the slower part. */
            ssize_t count = recv(sock, NULL, left, MSG_TRUNC);
            if (count <= 0) fail("the broker closed the connection");
            left -= (size_t)count;
        }
        requests++;
        bytes += size;
        offset += size / (int64_t)batch.size * messages;
        if (offset >= end_offset) offset = 0;
    }
    double took_s = now_s() - started_s;
    printf("{\"requests\": %lld, \"bytes\": %lld, \"seconds\": %.6f", (long long)requests, (long long)bytes, took_s);
    print_end(&none);
}

static void consume(int sock, const char *topic, char **arguments) {
    int messages = atoi(arguments[0]), max_bytes = atoi(arguments[1]), slice_count = atoi(arguments[2]);
    Bytes batch = make_batch(messages);
    size_t offset_at, room = start_size_of(topic) + (size_t)max_bytes + batch.size + BLOCK_BYTES;
    Bytes frame = make_fetch(topic, max_bytes, &offset_at);
    uint8_t *data = malloc(room);
    int64_t offset = 0, end_offset = 1, size, requests = 0, bytes = 0;
    double started_s = now_s();
    Slices slices = {0};
    while (offset < end_offset) {
        ask(sock, &frame, offset_at, requests, offset);
        receive_all(sock, data, 4);
        if (load(data, 4) > room - 4) fail("an answer of %lld bytes", (long long)load(data, 4));
        receive_all(sock, data + 4, load(data, 4));
        size_t at = check_fetched(data, topic, &batch, requests, offset, &end_offset, &size);
        if (!requests) slices = begin_slices(end_offset, slice_count), slices.started_s = started_s;
        for (int64_t left = size; left >= (int64_t)batch.size; left -= (int64_t)batch.size, at += batch.size) {
            check_batch(data + at, &batch, offset);
            offset += messages;
        }
        requests++;
        bytes += size;
        mark(&slices, offset);
    }
    double took_s = now_s() - started_s;
    end_slices(&slices, offset);
    printf("{\"requests\": %lld, \"messages\": %lld, \"bytes\": %lld, \"seconds\": %.6f", (long long)requests,
           (long long)offset, (long long)bytes, took_s);
    print_end(&slices);
}

int main(int count, char **arguments) {
    if (count == 10 && !strcmp(arguments[3], "produce"))
        produce(connect_to(atoi(arguments[1])), arguments[2], arguments + 4);
    else if (count == 7 && !strcmp(arguments[3], "fetch"))
        fetch(connect_to(atoi(arguments[1])), arguments[2], arguments + 4);
    else if (count == 7 && !strcmp(arguments[3], "consume"))
        consume(connect_to(atoi(arguments[1])), arguments[2], arguments + 4);
    else
        fail("usage: load PORT TOPIC produce ACKS MESSAGES IN_FLIGHT SECONDS MAX_BYTES SLICES | load PORT TOPIC fetch "
             "MESSAGES MAX_BYTES SECONDS | load PORT TOPIC consume MESSAGES MAX_BYTES SLICES");
    return 0;
}
