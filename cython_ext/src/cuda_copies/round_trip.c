#include "round_trip.h"

#include <string.h>

/* CUpointer_attribute: MEMORY_TYPE, RANGE_START_ADDR, RANGE_SIZE; CU_MEMORYTYPE_HOST. */
#define WANTED {2, 11, 12}
#define HOST 1
/* Each byte of TM_TRIP_NONE_BAD. */
#define NONE_BAD_BYTE 0xff

/* Whether all of an array lies in pinned memory, which the device reaches by itself. */
static int is_pinned(const tm_trip *trip, const tm_trip_array *array)
{
    unsigned kind = 0;
    uint64_t begin = 0, at = (uint64_t)(uintptr_t)array->host;
    size_t bytes = 0;
    int wanted[3] = WANTED;
    void *into[3] = {&kind, &begin, &bytes};
    return !trip->attributes(3, wanted, into, at) && kind == HOST && begin <= at && at + array->bytes <= begin + bytes;
}

static int are_pinned(const tm_trip *trip, const tm_trip_array *arrays, size_t count)
{
    size_t i = 0;
    while (i < count && is_pinned(trip, arrays + i))
        i++;
    return i == count;
}

/* All copies of one direction. Those of pinned memory are only put into the stream. */
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

int tm_trip_run(const tm_trip *trip, tm_trip_done *done)
{
    const tm_copy_driver *const driver = &trip->there->driver;
    void *const stream = trip->there->lanes[0].streams[0];
    *done = (tm_trip_done){TM_TRIP_NONE_BAD, 0, 0};
    int code = enqueued(trip, done, stream);
    int waited = driver->wait(stream);
    code = code ? code : waited;
    if (code)
        return code;
    done->down = 1;
    memcpy(&done->bad, trip->there->lanes[0].buffers[0], sizeof done->bad);
    if (done->bad != TM_TRIP_NONE_BAD)
        return 0;
    const tm_copy *const back = are_pinned(trip, trip->inputs, trip->input_count) ? trip->back : trip->there;
    code = copied(trip, back, trip->outputs, trip->output_count, 0, &done->down);
    waited = driver->wait(stream);
    return code ? code : waited;
}
