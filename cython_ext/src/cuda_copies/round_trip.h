/* Arrays to a GPU, launches there, and results back, in one call. A Python thread would wait for its lock between
 * these, behind the threads of other tensors and devices. */
#ifndef TM_CUDA_ROUND_TRIP_H
#define TM_CUDA_ROUND_TRIP_H
#include "cuda_copies.h"

typedef struct {
    char *host;
    uint64_t device;
    size_t bytes;
} tm_trip_array;

typedef struct {
    void *function; /* CUfunction */
    unsigned grid[3], block[3], shared;
    const void *arguments; /* as the function takes them */
    size_t argument_bytes;
} tm_trip_launch;

typedef struct {
    /* cuLaunchKernel */
    int (*launch)(
        void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
        unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);
    /* cuPointerGetAttributes */
    int (*attributes)(unsigned count, int *wanted, void **into, uint64_t address);
    int (*fill)(uint64_t to, unsigned char byte, size_t bytes, void *stream); /* cuMemsetD8Async */
    /* For arrays in ordinary memory; `back` for outputs if all inputs are pinned. The launches are in the first stream
     * of `there`. */
    const tm_copy *there, *back;
    const tm_trip_array *inputs, *outputs;
    size_t input_count, output_count;
    const tm_trip_launch *launches;
    size_t launch_count;
    uint64_t bad; /* where the launches write the index of an element that they refuse; initialized by the caller */
} tm_trip;

#define TM_TRIP_NONE_BAD UINT64_MAX

typedef struct {
    uint64_t bad; /* its value; unless TM_TRIP_NONE_BAD, the outputs are unchanged */
    size_t up, down; /* copies */
    size_t down_bytes;
} tm_trip_done;

/* Does all of it; nothing is pending on return. Returns the first CUresult that is not 0, or 0. The context has to be
 * current. */
int tm_trip_run(const tm_trip *trip, tm_trip_done *done);
#endif
