/*
 * A raw load generator for RabbitMQ: one connection that speaks AMQP 0-9-1, constant frames of 200-byte messages, made
 * once, so that the broker is the slower part.
 *
 *   amqp_load PORT QUEUE produce MESSAGES SECONDS SLICES
 *   amqp_load PORT QUEUE consume MESSAGES PREFETCH SLICES
 *   amqp_load PORT QUEUE delete
 *
 * produce: declares a durable queue and publishes persistent messages to it without confirms, until MESSAGES are sent
 * or SECONDS have passed; then it asks until the queue holds as many.
 * consume: takes MESSAGES from the queue and compares each with what was produced. PREFETCH 0 is automatic
 * acknowledgement; else at most so many are unacknowledged, and half of them are acknowledged at a time.
 *
 * Prints one JSON object. Whatever is not as it should be ends the run with status 1. Loopback only.
 */

#include "../raw.h"

enum { METHOD = 1, HEADER = 2, BODY = 3, FRAME_END = 0xce };
enum { FRAME_ROOM = 256 * 1024, BLOCK_BYTES = 256 * 1024, MOST_WAIT_S = 60 };

/* Class and method as one number. */
enum {
    CONNECTION_START = 10 << 16 | 10,
    CONNECTION_START_OK = 10 << 16 | 11,
    CONNECTION_TUNE = 10 << 16 | 30,
    CONNECTION_TUNE_OK = 10 << 16 | 31,
    CONNECTION_OPEN = 10 << 16 | 40,
    CONNECTION_OPEN_OK = 10 << 16 | 41,
    CHANNEL_OPEN = 20 << 16 | 10,
    CHANNEL_OPEN_OK = 20 << 16 | 11,
    QUEUE_DECLARE = 50 << 16 | 10,
    QUEUE_DECLARE_OK = 50 << 16 | 11,
    QUEUE_DELETE = 50 << 16 | 40,
    QUEUE_DELETE_OK = 50 << 16 | 41,
    BASIC_QOS = 60 << 16 | 10,
    BASIC_QOS_OK = 60 << 16 | 11,
    BASIC_CONSUME = 60 << 16 | 20,
    BASIC_CONSUME_OK = 60 << 16 | 21,
    BASIC_PUBLISH = 60 << 16 | 40,
    BASIC_DELIVER = 60 << 16 | 60,
    BASIC_ACK = 60 << 16 | 80,
};

/* -- frames --------------------------------------------------------------------------------------------------- */

static void put_short_text(Bytes *to, const char *text) {
    put_number(to, (int64_t)strlen(text), 1);
    put(to, text, strlen(text));
}

/* Begins a frame behind what is there already; returns where. */
static size_t begin_frame(Bytes *to, int type, int channel) {
    size_t at = to->size;
    put_number(to, type, 1);
    put_number(to, channel, 2);
    put_number(to, 0, 4); /* size, below */
    return at;
}

static void end_frame(Bytes *to, size_t at) {
    store(to->data + at + 3, to->size - at - 7, 4);
    put_number(to, FRAME_END, 1);
}

static size_t begin_method(Bytes *to, int channel, int method) {
    size_t at = begin_frame(to, METHOD, channel);
    put_number(to, method, 4);
    return at;
}

static void make_body(uint8_t *body) {
    for (int i = 0; i < MESSAGE_BYTES; i++) body[i] = (uint8_t)('a' + i % 26);
}

/* A message's three frames. */
static Bytes make_publish(const char *queue) {
    Bytes frames = {0};
    size_t at = begin_method(&frames, 1, BASIC_PUBLISH);
    put_number(&frames, 0, 2);
    put_short_text(&frames, ""); /* the exchange by which a routing key is a queue's name */
    put_short_text(&frames, queue);
    put_number(&frames, 0, 1); /* neither mandatory nor immediate */
    end_frame(&frames, at);
    at = begin_frame(&frames, HEADER, 1);
    put_number(&frames, 60, 2);
    put_number(&frames, 0, 2);
    put_number(&frames, MESSAGE_BYTES, 8);
    put_number(&frames, 0x1000, 2); /* one property: the delivery mode */
    put_number(&frames, 2, 1);      /* persistent */
    end_frame(&frames, at);
    at = begin_frame(&frames, BODY, 1);
    uint8_t body[MESSAGE_BYTES];
    make_body(body);
    put(&frames, body, sizeof body);
    end_frame(&frames, at);
    return frames;
}

/* -- the connection ------------------------------------------------------------------------------------------- */

typedef struct {
    int sock;
    uint8_t data[FRAME_ROOM];
    size_t at, filled;
} Connection;

typedef struct {
    int type, method; /* of a frame of METHOD */
    const uint8_t *payload;
    size_t size;
} Frame;

/* The next frame; its payload is there until the next call. */
static Frame take_frame(Connection *from) {
    for (;;) {
        size_t there = from->filled - from->at;
        uint8_t *start = from->data + from->at;
        if (there >= 8) {
            size_t size = load(start + 3, 4);
            if (size + 8 > sizeof from->data) fail("a frame of %zu bytes", size);
            if (there >= size + 8) {
                if (start[size + 7] != FRAME_END) fail("a frame without its end");
                from->at += size + 8;
                Frame frame = {.type = start[0], .payload = start + 7, .size = size};
                if (frame.type == METHOD) frame.method = (int)load(frame.payload, 4);
                return frame;
            }
        }
        memmove(from->data, start, there);
        from->at = 0;
        from->filled = there;
        ssize_t count = recv(from->sock, from->data + there, sizeof from->data - there, 0);
        if (count <= 0) fail("the broker closed the connection");
        from->filled += (size_t)count;
    }
}

static Frame expect(Connection *from, int method) {
    Frame frame = take_frame(from);
    if (frame.type != METHOD || frame.method != method)
        fail("a frame of type %d, method %d.%d: %.*s", frame.type, frame.method >> 16, frame.method & 0xffff,
             frame.type == METHOD && frame.size > 7 ? (int)frame.payload[6] : 0, frame.payload + 7);
    return frame;
}

static Frame call(Connection *with, Bytes *request, int answer) {
    send_all(with->sock, request->data, request->size);
    request->size = 0;
    return expect(with, answer);
}

static void open_connection(Connection *made, int port) {
    Bytes request = {0};
    made->sock = connect_to(port);
    put(&request, "AMQP\0\0\x09\x01", 8);
    call(made, &request, CONNECTION_START);
    size_t at = begin_method(&request, 0, CONNECTION_START_OK);
    put_number(&request, 0, 4); /* no properties */
    put_short_text(&request, "PLAIN");
    put_number(&request, 12, 4);
    put(&request, "\0guest\0guest", 12);
    put_short_text(&request, "en_US");
    end_frame(&request, at);
    Frame tune = call(made, &request, CONNECTION_TUNE);
    at = begin_method(&request, 0, CONNECTION_TUNE_OK);
    put(&request, tune.payload + 4, 6); /* its own limits */
    put_number(&request, 0, 2);         /* no heartbeats */
    end_frame(&request, at);
    at = begin_method(&request, 0, CONNECTION_OPEN);
    put_short_text(&request, "/");
    put_short_text(&request, "");
    put_number(&request, 0, 1);
    end_frame(&request, at);
    call(made, &request, CONNECTION_OPEN_OK);
    at = begin_method(&request, 1, CHANNEL_OPEN);
    put_short_text(&request, "");
    end_frame(&request, at);
    call(made, &request, CHANNEL_OPEN_OK);
}

/* Declares a durable queue, or asks for it; returns how many messages it holds. */
static int64_t declare(Connection *with, const char *queue, int passive) {
    Bytes request = {0};
    size_t at = begin_method(&request, 1, QUEUE_DECLARE);
    put_number(&request, 0, 2);
    put_short_text(&request, queue);
    put_number(&request, passive ? 1 | 2 : 2, 1);
    put_number(&request, 0, 4); /* no arguments */
    end_frame(&request, at);
    Frame answer = call(with, &request, QUEUE_DECLARE_OK);
    return (int64_t)load(answer.payload + 4 + 1 + answer.payload[4], 4);
}

/* -- loads ---------------------------------------------------------------------------------------------------- */

static void print_run(const Slices *slices, int64_t messages, double took_s) {
    printf("{\"messages\": %lld, \"seconds\": %.6f", (long long)messages, took_s);
    print_end(slices);
}

static void produce(Connection *to, const char *queue, char **arguments) {
    int64_t messages = atoll(arguments[0]), sent = 0;
    double seconds = atof(arguments[1]);
    if (declare(to, queue, 0)) fail("the queue is not empty");
    Bytes frames = make_publish(queue), block = {0};
    int in_block = (int)(BLOCK_BYTES / frames.size);
    for (int i = 0; i < in_block; i++) put(&block, frames.data, frames.size);
    limit_unsent(to->sock);
    Slices slices = begin_slices(messages, atoi(arguments[2]));
    double started_s = now_s(), end_s = started_s + seconds;
    while (sent < messages && now_s() < end_s) {
        int64_t count = messages - sent < in_block ? messages - sent : in_block;
        send_all(to->sock, block.data, (size_t)count * frames.size);
        sent += count;
        mark(&slices, sent);
    }
    double deadline_s = now_s() + MOST_WAIT_S;
    for (int64_t held; (held = declare(to, queue, 1)) != sent;)
        if (now_s() > deadline_s) fail("the queue holds %lld messages of %lld", (long long)held, (long long)sent);
    end_slices(&slices, sent);
    print_run(&slices, sent, now_s() - started_s);
}

static void acknowledge(Connection *with, uint64_t tag) {
    Bytes request = {0};
    size_t at = begin_method(&request, 1, BASIC_ACK);
    put_number(&request, (int64_t)tag, 8);
    put_number(&request, 1, 1); /* all up to this one */
    end_frame(&request, at);
    send_all(with->sock, request.data, request.size);
    free(request.data);
}

static void consume(Connection *from, const char *queue, char **arguments) {
    int64_t messages = atoll(arguments[0]);
    int prefetch = atoi(arguments[1]);
    uint8_t body[MESSAGE_BYTES];
    make_body(body);
    Bytes request = {0};
    size_t at = begin_method(&request, 1, BASIC_QOS);
    put_number(&request, 0, 4);
    put_number(&request, prefetch, 2);
    put_number(&request, 0, 1);
    end_frame(&request, at);
    call(from, &request, BASIC_QOS_OK);
    at = begin_method(&request, 1, BASIC_CONSUME);
    put_number(&request, 0, 2);
    put_short_text(&request, queue);
    put_short_text(&request, "load");
    put_number(&request, prefetch ? 0 : 2, 1);
    put_number(&request, 0, 4); /* no arguments */
    end_frame(&request, at);
    Slices slices = begin_slices(messages, atoi(arguments[2]));
    double started_s = now_s();
    call(from, &request, BASIC_CONSUME_OK);
    for (int64_t taken = 1; taken <= messages; taken++) {
        Frame deliver = expect(from, BASIC_DELIVER);
        uint64_t tag = load(deliver.payload + 4 + 1 + deliver.payload[4], 8);
        if (tag != (uint64_t)taken) fail("message %lld was delivered as %lld", (long long)taken, (long long)tag);
        Frame header = take_frame(from);
        if (header.type != HEADER || load(header.payload + 4, 8) != MESSAGE_BYTES)
            fail("message %lld has another size", (long long)taken);
        Frame content = take_frame(from);
        if (content.type != BODY || content.size != MESSAGE_BYTES || memcmp(content.payload, body, MESSAGE_BYTES))
            fail("message %lld is not as it was produced", (long long)taken);
        if (prefetch && (taken == messages || taken % ((prefetch + 1) / 2) == 0)) acknowledge(from, tag);
        mark(&slices, taken);
    }
    end_slices(&slices, messages);
    print_run(&slices, messages, now_s() - started_s);
}

static void delete(Connection *with, const char *queue) {
    Bytes request = {0};
    size_t at = begin_method(&request, 1, QUEUE_DELETE);
    put_number(&request, 0, 2);
    put_short_text(&request, queue);
    put_number(&request, 0, 1);
    end_frame(&request, at);
    call(with, &request, QUEUE_DELETE_OK);
    printf("{}\n");
}

int main(int count, char **arguments) {
    static Connection connection;
    const char *queue = count > 2 ? arguments[2] : "", *verb = count > 3 ? arguments[3] : "";
    if (count == 7 && !strcmp(verb, "produce"))
        open_connection(&connection, atoi(arguments[1])), produce(&connection, queue, arguments + 4);
    else if (count == 7 && !strcmp(verb, "consume"))
        open_connection(&connection, atoi(arguments[1])), consume(&connection, queue, arguments + 4);
    else if (count == 4 && !strcmp(verb, "delete"))
        open_connection(&connection, atoi(arguments[1])), delete(&connection, queue);
    else
        fail("usage: amqp_load PORT QUEUE produce MESSAGES SECONDS SLICES | amqp_load PORT QUEUE consume MESSAGES "
             "PREFETCH SLICES | amqp_load PORT QUEUE delete");
    return 0;
}
