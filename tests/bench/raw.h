/*
 * What the raw load generators share: a clock, bytes in network order, one connection over the loopback, and the slices
 * of a run, by which its rate over time is told. Each generator is one file that includes this.
 */

#ifndef RAW_H
#define RAW_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 200 };

static inline void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static inline double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* -- bytes ---------------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *data;
    size_t size, room;
} Bytes;

static inline void put(Bytes *to, const void *data, size_t size) {
    if (to->size + size > to->room) {
        to->room = 2 * (to->size + size);
        to->data = realloc(to->data, to->room);
        if (to->data == NULL) fail("out of memory");
    }
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static inline void store(uint8_t *at, uint64_t value, int size) {
    for (int i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

static inline uint64_t load(const uint8_t *at, int size) {
    uint64_t value = 0;
    for (int i = 0; i < size; i++) value = value << 8 | at[i];
    return value;
}

static inline void put_number(Bytes *to, int64_t value, int size) {
    uint8_t bytes[8];
    store(bytes, (uint64_t)value, size);
    put(to, bytes, (size_t)size);
}

/* -- the connection ------------------------------------------------------------------------------------------- */

static inline int connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int sock = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (sock < 0 || connect(sock, (struct sockaddr *)&address, sizeof address) != 0)
        fail("cannot connect to port %d: %s", port, strerror(errno));
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return sock;
}

/* So that what was given to the kernel was, but for little, given to the broker. */
static inline void limit_unsent(int sock) {
    int size = 256 * 1024;
    setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

static inline void send_all(int sock, const uint8_t *data, size_t size) {
    while (size) {
        ssize_t sent = send(sock, data, size, MSG_NOSIGNAL);
        if (sent <= 0) fail("the broker took no more: %s", strerror(errno));
        data += sent;
        size -= (size_t)sent;
    }
}

static inline void receive_all(int sock, uint8_t *to, size_t size) {
    while (size) {
        ssize_t count = recv(sock, to, size, 0);
        if (count <= 0) fail("the broker closed the connection");
        to += count;
        size -= (size_t)count;
    }
}

/* -- slices --------------------------------------------------------------------------------------------------- */

enum { MOST_SLICES = 1000 };

/* When each equal part of a run was through. */
typedef struct {
    double started_s, at_s[MOST_SLICES];
    int64_t messages[MOST_SLICES], step, next;
    int count;
} Slices;

static inline Slices begin_slices(int64_t messages, int count) {
    if (count < 0 || count > MOST_SLICES) fail("%d slices: there may be 0 to %d", count, MOST_SLICES);
    Slices slices = {.started_s = now_s(), .step = count && messages > count ? messages / count : 1};
    slices.next = count ? slices.step : INT64_MAX;
    return slices;
}

/* `messages` are through by now. */
static inline void mark(Slices *slices, int64_t messages) {
    if (messages < slices->next || slices->count == MOST_SLICES) return;
    slices->messages[slices->count] = messages;
    slices->at_s[slices->count++] = now_s() - slices->started_s;
    slices->next = (messages / slices->step + 1) * slices->step;
}

/* The run is over: its last slice ends now, whatever was marked for it before. */
static inline void end_slices(Slices *slices, int64_t messages) {
    if (slices->next == INT64_MAX) return;
    if (slices->count && slices->messages[slices->count - 1] == messages) slices->count--;
    slices->next = messages;
    mark(slices, messages);
}

/* The end of the JSON object of a run: its processor time, and each slice as messages and seconds from the start. */
static inline void print_end(const Slices *slices) {
    printf(", \"cpu_s\": %.6f", (double)clock() / CLOCKS_PER_SEC);
    for (int i = 0; i < slices->count; i++)
        printf("%s[%lld, %.6f]", i ? ", " : ", \"slices\": [", (long long)slices->messages[i], slices->at_s[i]);
    printf("%s}\n", slices->count ? "]" : "");
}

#endif
