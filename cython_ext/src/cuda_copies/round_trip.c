#include "round_trip.h"

#include <string.h>

/* CUpointer_attribute: MEMORY_TYPE, RANGE_START_ADDR, RANGE_SIZE; CU_MEMORYTYPE_HOST. */
#define WANTED {2, 11, 12}
#define HOST 1
/* Each byte of TM_TRIP_NONE_BAD. */
#define NONE_BAD_BYTE 0xff

/* Whether all of an array lies in pinned memory, which the device accesses directly. */
static int is_pinned(const tm_trip *trip, const tm_trip_array *array)
{
    unsigned kind = 0;
    uint64_t begin = 0, at = (uint64_t)(uintptr_t)array->host;
    size_t bytes = 0;
    int wanted[3] = WANTED;
    void *into[3] = {&kind, &begin, &bytes};
    return !trip->attributes(3, wanted, into, at) && kind == HOST && begin <= at && at + array->bytes <= begin + bytes;
}

/* How many of them do. */
static size_t pinned_count(const tm_trip *trip, const tm_trip_array *arrays, size_t count)
{
    size_t pinned = 0;
    for (size_t i = 0; i < count; i++)
        pinned += is_pinned(trip, arrays + i);
    return pinned;
}

/* All copies of one direction. Those of pinned memory are only enqueued. */
static int copied(
    const tm_trip *trip, const tm_copy *lanes, const tm_trip_array *arrays, size_t count, int up, size_t *copies)
{
    tm_copy over = *lanes;
    void *const stream = trip->there->lanes[0].streams[0];
    for (size_t i = 0; i < count; i++) {
        const tm_trip_array *const array = arrays + i;
        int code;
        if (!array->bytes)
            continue;
        if (is_pinned(trip, array)) {
            code = up ? over.driver.up(array->device, array->host, array->bytes, stream)
                      : over.driver.down(array->host, array->device, array->bytes, stream);
            *copies += 1;
        } else {
            over.up = up, over.host = array->host, over.device = array->device, over.bytes = array->bytes;
            code = tm_copy_run(&over);
            *copies += (array->bytes + over.piece - 1) / over.piece;
        }
        if (code)
            return code;
    }
    return 0;
}

static int launched(const tm_trip *trip, void *stream)
{
    for (size_t i = 0; i < trip->launch_count; i++) {
        const tm_trip_launch *const one = trip->launches + i;
        size_t bytes = one->argument_bytes;
        /* CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END */
        void *extra[] = {(void *)1, (void *)one->arguments, (void *)2, &bytes, (void *)0};
        const int code = trip->launch(
            one->function, one->grid[0], one->grid[1], one->grid[2], one->block[0], one->block[1], one->block[2],
            one->shared, stream, NULL, extra);
        if (code)
            return code;
    }
    return 0;
}

static int enqueued(const tm_trip *trip, tm_trip_done *done, void *stream)
{
    int code = copied(trip, trip->there, trip->inputs, trip->input_count, 1, &done->up);
    if (!code)
        code = trip->fill(trip->bad, NONE_BAD_BYTE, sizeof done->bad, stream);
    if (!code)
        code = launched(trip, stream);
    if (!code)
        code = trip->there->driver.down(trip->there->lanes[0].buffers[0], trip->bad, sizeof done->bad, stream);
    return code;
}

/* Results that are copied to ordinary memory, piece by piece, through the two buffers of a lane alternately. */
typedef struct {
    size_t index, at; /* the output and the byte at which the next piece begins */
    tm_trip_array pieces[2]; /* one for each buffer; no bytes if none is left */
} results;

static tm_trip_array taken(const tm_trip *trip, results *left)
{
    for (; left->index < trip->output_count; left->index++, left->at = 0) {
        const tm_trip_array *const whole = trip->outputs + left->index;
        const size_t at = left->at, rest = whole->bytes - at, piece = trip->back->piece;
        if (rest) {
            left->at += rest < piece ? rest : piece;
            return (tm_trip_array){whole->host + at, whole->device + at, left->at - at};
        }
    }
    return (tm_trip_array){NULL, 0, 0};
}

/* Starts the copy of the next piece into a buffer. */
static int begun(const tm_trip *trip, results *left, size_t slot, void *stream, tm_trip_done *done)
{
    const tm_trip_array piece = left->pieces[slot] = taken(trip, left);
    if (!piece.bytes)
        return 0;
    done->down += 1, done->down_bytes += piece.bytes;
    return trip->back->driver.down(trip->back->lanes[0].buffers[slot], piece.device, piece.bytes, stream);
}

/* Copies all results; the first piece of each buffer has been started. */
static int fetched(const tm_trip *trip, results *left, tm_trip_done *done)
{
    const tm_copy_lane *const lane = trip->back->lanes;
    const tm_copy_driver *const driver = &trip->back->driver;
    int code = 0;
    for (size_t slot = 0; !code && left->pieces[slot].bytes; slot = 1 - slot) {
        const tm_trip_array piece = left->pieces[slot];
        code = driver->wait(lane->streams[slot]);
        if (!code) {
            memcpy(piece.host, lane->buffers[slot], piece.bytes);
            code = begun(trip, left, slot, lane->streams[slot], done);
        }
    }
    for (size_t slot = 0; code && slot < 2; slot++)
        driver->wait(lane->streams[slot]);
    return code;
}

int tm_trip_run(const tm_trip *trip, tm_trip_done *done)
{
    const tm_copy_driver *const driver = &trip->there->driver;
    void *const stream = trip->there->lanes[0].streams[0];
    results left = {0};
    *done = (tm_trip_done){.bad = TM_TRIP_NONE_BAD};
    int code = enqueued(trip, done, stream);
    const int pinned = pinned_count(trip, trip->inputs, trip->input_count) == trip->input_count;
    /* Copies behind the kernels in their stream do not wait for other streams. They go only into buffers, because an
     * element may have been refused. */
    const int early = pinned && !pinned_count(trip, trip->outputs, trip->output_count);
    for (size_t slot = 0; early && !code && slot < 2; slot++)
        code = begun(trip, &left, slot, stream, done);
    int waited = driver->wait(stream);
    code = code ? code : waited;
    if (code)
        return code;
    done->down += 1, done->down_bytes += sizeof done->bad;
    memcpy(&done->bad, trip->there->lanes[0].buffers[0], sizeof done->bad);
    if (done->bad != TM_TRIP_NONE_BAD)
        return 0;
    if (early)
        return fetched(trip, &left, done);
    code = copied(trip, pinned ? trip->back : trip->there, trip->outputs, trip->output_count, 0, &done->down);
    waited = driver->wait(stream);
    for (size_t i = 0; i < trip->output_count; i++)
        done->down_bytes += trip->outputs[i].bytes;
    return code ? code : waited;
}
