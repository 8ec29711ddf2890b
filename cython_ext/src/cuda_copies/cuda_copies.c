#define _GNU_SOURCE
#include "cuda_copies.h"

#include <pthread.h>
#include <string.h>

#define MOST_LANES 64

typedef struct {
    const tm_copy *copy;
    size_t next; /* byte at which the next piece begins */
    int code;
} shared;

typedef struct {
    shared *with;
    const tm_copy_lane *lane;
} work;

/* Takes the next piece: its begin, and its bytes, 0 for none. */
static size_t taken(shared *with, size_t *at)
{
    const tm_copy *const copy = with->copy;
    if (__atomic_load_n(&with->code, __ATOMIC_RELAXED))
        return 0;
    *at = __atomic_fetch_add(&with->next, copy->piece, __ATOMIC_RELAXED);
    if (*at >= copy->bytes)
        return 0;
    return copy->bytes - *at < copy->piece ? copy->bytes - *at : copy->piece;
}

static int failed(shared *with, int code)
{
    int none = 0;
    if (code)
        __atomic_compare_exchange_n(&with->code, &none, code, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return code;
}

/* While one buffer is being copied, the other is filled. */
static void send(shared *with, const tm_copy_lane *lane)
{
    const tm_copy *const copy = with->copy;
    size_t at = 0, bytes;
    for (size_t number = 0; (bytes = taken(with, &at)); number++) {
        const size_t slot = number % 2;
        if (number >= 2 && failed(with, copy->driver.wait(lane->streams[slot])))
            return;
        memcpy(lane->buffers[slot], copy->host + at, bytes);
        if (failed(with, copy->driver.up(copy->device + at, lane->buffers[slot], bytes, lane->streams[slot])))
            return;
    }
}

/* While one buffer is being copied, the other is emptied. */
static void fetch(shared *with, const tm_copy_lane *lane)
{
    const tm_copy *const copy = with->copy;
    size_t at = 0, before_at = 0, bytes, before = 0;
    for (size_t number = 0; (bytes = taken(with, &at)) || before; number++) {
        const size_t slot = number % 2;
        if (bytes &&
            failed(with, copy->driver.down(lane->buffers[slot], copy->device + at, bytes, lane->streams[slot])))
            return;
        if (before) {
            if (failed(with, copy->driver.wait(lane->streams[1 - slot])))
                return;
            memcpy(copy->host + before_at, lane->buffers[1 - slot], before);
        }
        before_at = at, before = bytes;
    }
}

static void over_one(shared *with, const tm_copy_lane *lane)
{
    const tm_copy *const copy = with->copy;
    (copy->up ? send : fetch)(with, lane);
    for (int slot = 0; slot < 2; slot++)
        failed(with, copy->driver.wait(lane->streams[slot]));
}

static void *in_thread(void *argument)
{
    const work *const mine = argument;
    const tm_copy *const copy = mine->with->copy;
    /* The creating thread may be bound to a core, and this one inherits that. */
    pthread_setaffinity_np(pthread_self(), sizeof copy->cores, &copy->cores);
    if (!failed(mine->with, copy->driver.enter(copy->context)))
        over_one(mine->with, mine->lane);
    return NULL;
}

int tm_copy_run(const tm_copy *copy)
{
    shared with = {copy, 0, 0};
    work works[MOST_LANES];
    pthread_t threads[MOST_LANES];
    size_t count = (copy->bytes + copy->piece - 1) / copy->piece, begun = 1;
    count = count < copy->lane_count ? count : copy->lane_count;
    count = count < MOST_LANES ? count : MOST_LANES;
    for (; begun < count; begun++) {
        works[begun] = (work){&with, copy->lanes + begun};
        if (pthread_create(threads + begun, NULL, in_thread, works + begun))
            break;
    }
    if (count)
        over_one(&with, copy->lanes);
    for (size_t i = 1; i < begun; i++)
        pthread_join(threads[i], NULL);
    return with.code;
}
