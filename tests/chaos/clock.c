/* A library that shifts the time of day of a process, which loads it with LD_PRELOAD.
 *
 * The environment variable DUNLIN_CHAOS_CLOCK names a file. Its first eight bytes are the shift in seconds, as a signed
 * integer in this machine's byte order. The file's content may change at any time. Monotonic clocks are not shifted,
 * because they cannot be set on a real machine either. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *off_s;

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("DUNLIN_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *off_s, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) off_s = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && off_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += __atomic_load_n(off_s, __ATOMIC_RELAXED);
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec at;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &at)) return -1;
    now->tv_sec = at.tv_sec;
    now->tv_usec = at.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec at;
    if (clock_gettime(CLOCK_REALTIME, &at)) return -1;
    if (now) *now = at.tv_sec;
    return at.tv_sec;
}
