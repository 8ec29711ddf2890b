/* Loaded before the C library (LD_PRELOAD) in commands of `tritmark soak`: a system clock that jumps, and a full disk.
 * Neither needs privileges, and the judged code has no branch for it.
 *
 *     TRITMARK_SOAK_CLOCK=SEED:START_NS:SLOT_NS:SECONDS   from START_NS of the monotonic clock on, the system clock is
 *         off by up to SECONDS, anew in each slot, and the same in all processes
 *     TRITMARK_SOAK_DISK=CALLS:MARKER:FOLDER   after so many calls of a process that use space below FOLDER, they fail
 *         with ENOSPC; the first failure appends a byte to MARKER
 *
 * `tritmark_soak_jump` moves the system clock of the calling process only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile long own_jump;

void tritmark_soak_jump(long seconds) { own_jump = seconds; }

static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static long jump(void)
{
    static int read_already, given;
    static uint64_t seed, start, slot, most;
    struct timespec now;
    if (!read_already) {
        const char *text = getenv("TRITMARK_SOAK_CLOCK");
        unsigned long long a, b, c, d;
        given = text && sscanf(text, "%llu:%llu:%llu:%llu", &a, &b, &c, &d) == 4 && c && d;
        if (given) {
            seed = a;
            start = b;
            slot = c;
            most = d;
        }
        read_already = 1;
    }
    if (!given)
        return own_jump;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (ns < start)
        return own_jump;
    return own_jump + (long)(mixed(seed ^ mixed((ns - start) / slot)) % (2 * most + 1)) - (long)most;
}

int clock_gettime(clockid_t clock, struct timespec *into)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE && clock != CLOCK_TAI) {
        /* the C library's own, which does not enter the kernel */
        static int (*next)(clockid_t, struct timespec *);
        if (!next)
            next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
        return next(clock, into);
    }
    int status = (int)syscall(SYS_clock_gettime, clock, into);
    if (!status)
        into->tv_sec += jump();
    return status;
}

int gettimeofday(struct timeval *restrict into, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    into->tv_sec = now.tv_sec;
    into->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *into, int base)
{
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, into) ? base : 0;
}

/* The disk. */

static int below(const char *path)
{
    static int read_already;
    static const char *folder;
    if (!read_already) {
        const char *text = getenv("TRITMARK_SOAK_DISK"), *first = text ? strchr(text, ':') : NULL;
        const char *second = first ? strchr(first + 1, ':') : NULL;
        folder = second ? second + 1 : NULL;
        read_already = 1;
    }
    return folder && *folder && !strncmp(path, folder, strlen(folder));
}

static int refused(void)
{
    static int calls;
    static volatile int full;
    const char *text = getenv("TRITMARK_SOAK_DISK");
    if (!text || (!full && __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) <= atoi(text)))
        return 0;
    if (!full) {
        const char *first = strchr(text, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        char marker[PATH_MAX];
        full = 1;
        if (second && second - first - 1 < PATH_MAX) {
            memcpy(marker, first + 1, (size_t)(second - first - 1));
            marker[second - first - 1] = 0;
            long to = syscall(SYS_openat, AT_FDCWD, marker, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
            if (to >= 0) {
                (void)!syscall(SYS_write, to, "x", 1L);
                syscall(SYS_close, to);
            }
        }
    }
    errno = ENOSPC;
    return 1;
}

static int refused_at(int folder, const char *path)
{
    char whole[PATH_MAX];
    (void)folder; /* Python's paths are absolute or relative to the current folder */
    if (*path == '/')
        return below(path) && refused();
    if (!getcwd(whole, sizeof whole) || strlen(whole) + strlen(path) + 2 > sizeof whole)
        return 0;
    strcat(whole, "/");
    strcat(whole, path);
    return below(whole) && refused();
}

static int refused_of(int descriptor)
{
    char link[64], path[PATH_MAX];
    if (!getenv("TRITMARK_SOAK_DISK"))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return below(path) && refused();
}

static int opened(int folder, const char *path, int flags, mode_t mode)
{
    int known = errno;
    if ((flags & O_CREAT) && syscall(SYS_faccessat, folder, path, F_OK) && refused_at(folder, path))
        return -1;
    errno = known;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
        va_list rest; \
        va_start(rest, last); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...)
{
    MODE(flags, flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE(flags, flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    MODE(flags, flags)
    return opened(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...)
{
    MODE(flags, flags)
    return opened(folder, path, flags, mode);
}

int mkdir(const char *path, mode_t mode)
{
    return refused_at(AT_FDCWD, path) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

ssize_t write(int descriptor, const void *from, size_t size)
{
    return size && refused_of(descriptor) ? -1 : syscall(SYS_write, descriptor, from, size);
}
