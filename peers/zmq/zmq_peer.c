/* Measures libzmq: one measurement per run, one JSON line on standard output.
 *
 *   zmq_peer throughput pub|router  inproc|tcp BYTES COUNT free|apart
 *   zmq_peer latency    pair|router inproc|tcp BYTES COUNT free|apart
 *
 * With `inproc`, the two sides are threads with a common context. With `tcp`, they are processes with separate
 * contexts, connected over 127.0.0.1. `pub` uses XPUB with the option NODROP: a slow subscriber slows the publisher
 * down, and no message is lost. All high-water marks are 1000, libzmq's default. The program uses zmq_send and
 * zmq_recv, which copy messages.
 *
 * The receiver checks the sequence number and the content of every message, as crates/bench/src/payload.rs does: the
 * first and the last word are the sequence number, and the sum of all words must be right.
 *
 * `apart` pins the two sides to different cores. With `free`, the kernel may run both sides on one core. A round trip
 * then wakes no other core, and takes a seventh of the time. The time of a throughput measurement is from just before
 * the first send until the last message has been checked.
 *
 * After an error, the program prints one line on standard error and exits with code 2. No wait is longer than
 * TIMEOUT_MS. */

#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define HWM 1000
#define TIMEOUT_MS 60000
#define FILLER UINT64_C(0x5bd1e9959e3779b9)
#define WORD 8

enum pattern { PATTERN_PUB, PATTERN_ROUTER, PATTERN_PAIR };

struct setup {
    enum pattern pattern;
    int tcp;
    int apart;
    size_t bytes;
    uint64_t count;
    void *context; /* with inproc, both sides share the context; with tcp, each process creates its own */
    int to_other;  /* the binding side writes its endpoint here, and later the start time */
    int from_other;
};

static void fail(const char *what) {
    fprintf(stderr, "zmq_peer: %s: %s\n", what, zmq_strerror(zmq_errno()));
    exit(2);
}

static void check(int result, const char *what) {
    if (result < 0) fail(what);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Functions that create and check payloads. */

static uint8_t *payload_new(size_t bytes) {
    uint64_t *words = malloc(bytes);
    if (!words) fail("memory");
    for (size_t i = 0; i < bytes / WORD; i++) words[i] = FILLER;
    return (uint8_t *)words;
}

static void payload_set_seq(uint8_t *payload, size_t bytes, uint64_t seq) {
    memcpy(payload, &seq, WORD);
    memcpy(payload + bytes - WORD, &seq, WORD);
}

static void payload_check(const uint8_t *payload, size_t bytes, uint64_t seq) {
    const uint64_t *words = (const uint64_t *)payload;
    size_t count = bytes / WORD;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += words[i];
    uint64_t expected = FILLER * (uint64_t)(count - 2) + 2 * seq;
    if (words[0] != seq || words[count - 1] != seq || sum != expected) {
        fprintf(stderr, "zmq_peer: message %" PRIu64 " came as %" PRIu64 "\n", seq, words[0]);
        exit(2);
    }
}

/* Functions for sockets. The binding side has the routing id A, the connecting side B. A ROUTER socket needs the
 * receiver's id to send. */

static void set(void *socket, int option, int value) {
    check(zmq_setsockopt(socket, option, &value, sizeof value), "setting a socket option");
}

static void *socket_new(const struct setup *setup, int type, const char *own, const char *peer) {
    void *socket = zmq_socket(setup->context, type);
    if (!socket) fail("making a socket");
    set(socket, ZMQ_SNDHWM, HWM);
    set(socket, ZMQ_RCVHWM, HWM);
    set(socket, ZMQ_SNDTIMEO, TIMEOUT_MS);
    set(socket, ZMQ_RCVTIMEO, TIMEOUT_MS);
    if (type == ZMQ_XPUB) set(socket, ZMQ_XPUB_NODROP, 1);
    if (type == ZMQ_ROUTER) {
        set(socket, ZMQ_ROUTER_MANDATORY, 1);
        check(zmq_setsockopt(socket, ZMQ_ROUTING_ID, own, strlen(own)), "naming a router");
        if (peer) check(zmq_setsockopt(socket, ZMQ_CONNECT_ROUTING_ID, peer, strlen(peer)), "naming the peer");
    }
    return socket;
}

static void *socket_bind(const struct setup *setup) {
    static const int types[] = {ZMQ_XPUB, ZMQ_ROUTER, ZMQ_PAIR};
    char endpoint[64] = {0};
    size_t length = sizeof endpoint;
    void *socket = socket_new(setup, types[setup->pattern], "A", NULL);
    check(zmq_bind(socket, setup->tcp ? "tcp://127.0.0.1:*" : "inproc://peer"), "binding");
    check(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &length), "asking for the endpoint");
    if (write(setup->to_other, endpoint, sizeof endpoint) != sizeof endpoint) fail("telling the endpoint");
    return socket;
}

static void *socket_connect(const struct setup *setup) {
    static const int types[] = {ZMQ_SUB, ZMQ_ROUTER, ZMQ_PAIR};
    char endpoint[64];
    if (read(setup->from_other, endpoint, sizeof endpoint) != sizeof endpoint) fail("hearing the endpoint");
    void *socket = socket_new(setup, types[setup->pattern], "B", "A");
    if (setup->pattern == PATTERN_PUB) check(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0), "subscribing");
    check(zmq_connect(socket, endpoint), "connecting");
    return socket;
}

static void message_send(const struct setup *setup, void *socket, const char *peer, const void *data, size_t bytes) {
    if (setup->pattern == PATTERN_ROUTER) check(zmq_send(socket, peer, 1, ZMQ_SNDMORE), "sending a name");
    check(zmq_send(socket, data, bytes, 0), "sending");
}

static size_t message_receive(const struct setup *setup, void *socket, void *data, size_t bytes) {
    char peer[8];
    if (setup->pattern == PATTERN_ROUTER) check(zmq_recv(socket, peer, sizeof peer, 0), "receiving a name");
    int received = zmq_recv(socket, data, bytes, 0);
    check(received, "receiving");
    return (size_t)received;
}

static void message_receive_exactly(const struct setup *setup, void *socket, void *data) {
    if (message_receive(setup, socket, data, setup->bytes) != setup->bytes) fail("a message of another size");
}

/* Waits on the binding side for the connecting side's first message: its subscription or its greeting. */
static void await_other(const struct setup *setup, void *socket) {
    char greeting[16];
    message_receive(setup, socket, greeting, sizeof greeting);
}

static void greet(const struct setup *setup, void *socket) {
    if (setup->pattern != PATTERN_PUB) message_send(setup, socket, "A", "hello", 5);
}

/* Throughput: side A sends all messages, and side B receives them. */

static void send_all(struct setup *setup) {
    void *socket = socket_bind(setup);
    uint8_t *payload = payload_new(setup->bytes);
    await_other(setup, socket);
    uint64_t start_ns = now_ns();
    if (write(setup->to_other, &start_ns, sizeof start_ns) != sizeof start_ns) fail("telling the start");
    for (uint64_t seq = 0; seq < setup->count; seq++) {
        payload_set_seq(payload, setup->bytes, seq);
        message_send(setup, socket, "B", payload, setup->bytes);
    }
    zmq_close(socket);
    free(payload);
}

static void receive_all(struct setup *setup) {
    void *socket = socket_connect(setup);
    uint8_t *payload = payload_new(setup->bytes);
    uint64_t start_ns;
    greet(setup, socket);
    for (uint64_t seq = 0; seq < setup->count; seq++) {
        message_receive_exactly(setup, socket, payload);
        payload_check(payload, setup->bytes, seq);
    }
    uint64_t end_ns = now_ns();
    if (read(setup->from_other, &start_ns, sizeof start_ns) != sizeof start_ns) fail("hearing the start");
    printf("{\"start_ns\":%" PRIu64 ",\"end_ns\":%" PRIu64 ",\"messages\":%" PRIu64 "}\n", start_ns, end_ns, setup->count);
    zmq_close(socket);
    free(payload);
}

/* Latency: side B sends a message, and side A sends it back. An additional tenth of the messages, sent first, is not
 * measured. */

static void echo_all(struct setup *setup) {
    void *socket = socket_bind(setup);
    uint8_t *payload = payload_new(setup->bytes);
    await_other(setup, socket);
    for (uint64_t seq = 0; seq < setup->count + setup->count / 10; seq++) {
        message_receive_exactly(setup, socket, payload);
        message_send(setup, socket, "B", payload, setup->bytes);
    }
    zmq_close(socket);
    free(payload);
}

static int compare_u64(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static void print_latencies(uint64_t *latencies, uint64_t count) {
    double sum = 0;
    qsort(latencies, count, sizeof *latencies, compare_u64);
    for (uint64_t i = 0; i < count; i++) sum += (double)latencies[i];
    printf("{\"avg_ns\":%.1f,\"p50_ns\":%" PRIu64 ",\"p95_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64 "}\n", sum / (double)count,
           latencies[(count - 1) * 50 / 100], latencies[(count - 1) * 95 / 100], latencies[(count - 1) * 99 / 100]);
}

static void request_all(struct setup *setup) {
    void *socket = socket_connect(setup);
    uint8_t *payload = payload_new(setup->bytes), *reply = payload_new(setup->bytes);
    uint64_t unmeasured = setup->count / 10, *latencies = calloc(setup->count, sizeof *latencies);
    if (!latencies) fail("memory");
    greet(setup, socket);
    for (uint64_t seq = 0; seq < setup->count + unmeasured; seq++) {
        payload_set_seq(payload, setup->bytes, seq);
        uint64_t start_ns = now_ns();
        message_send(setup, socket, "A", payload, setup->bytes);
        message_receive_exactly(setup, socket, reply);
        uint64_t end_ns = now_ns();
        payload_check(reply, setup->bytes, seq);
        if (seq >= unmeasured) latencies[seq - unmeasured] = end_ns - start_ns;
    }
    print_latencies(latencies, setup->count);
    zmq_close(socket);
    free(latencies);
    free(payload);
    free(reply);
}

/* Starts the two sides, as threads or as processes. */

typedef void (*side)(struct setup *);

static side binding_side;

static void pin(const struct setup *setup, int core) {
    cpu_set_t cores;
    if (!setup->apart) return;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    check(sched_setaffinity(0, sizeof cores, &cores), "pinning to a core");
}

static void *binding_thread(void *setup) {
    pin(setup, 1);
    binding_side(setup);
    return NULL;
}

static void run_in_threads(struct setup *setup, side connecting) {
    pthread_t thread;
    setup->context = zmq_ctx_new();
    if (pthread_create(&thread, NULL, binding_thread, setup)) fail("starting a thread");
    pin(setup, 0);
    connecting(setup);
    pthread_join(thread, NULL);
    zmq_ctx_term(setup->context);
}

static void run_in_processes(struct setup *setup, side connecting) {
    pid_t other = fork();
    check(other, "forking");
    pin(setup, other == 0 ? 1 : 0);
    setup->context = zmq_ctx_new();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        binding_side(setup);
        zmq_ctx_term(setup->context); /* waits until all messages are sent */
        exit(0);
    }
    close(setup->to_other); /* so that a read from the pipe ends when the other process ends */
    connecting(setup);
    int status;
    waitpid(other, &status, 0);
    zmq_ctx_term(setup->context);
    if (status != 0) exit(2);
}

static void usage(void) {
    fprintf(stderr, "zmq_peer throughput|latency pub|router|pair inproc|tcp BYTES COUNT free|apart\n");
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 7) usage();
    int latency = strcmp(argv[1], "latency") == 0;
    struct setup setup = {
        .tcp = strcmp(argv[3], "tcp") == 0,
        .apart = strcmp(argv[6], "apart") == 0,
        .bytes = strtoull(argv[4], NULL, 10),
        .count = strtoull(argv[5], NULL, 10),
    };
    if (strcmp(argv[2], "pub") == 0) setup.pattern = PATTERN_PUB;
    else if (strcmp(argv[2], "router") == 0) setup.pattern = PATTERN_ROUTER;
    else if (strcmp(argv[2], "pair") == 0) setup.pattern = PATTERN_PAIR;
    else usage();
    if (setup.bytes < 2 * WORD || setup.bytes % WORD || !setup.count || (latency && setup.pattern == PATTERN_PUB)) usage();
    int pipe_fds[2];
    check(pipe(pipe_fds), "making a pipe");
    setup.from_other = pipe_fds[0];
    setup.to_other = pipe_fds[1];
    binding_side = latency ? echo_all : send_all;
    side connecting = latency ? request_all : receive_all;
    if (setup.tcp) run_in_processes(&setup, connecting);
    else run_in_threads(&setup, connecting);
    return 0;
}
