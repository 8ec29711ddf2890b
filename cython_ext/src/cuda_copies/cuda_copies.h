/* Copies of an array between the host's memory and a GPU's over lanes: a lane is a thread, two pinned buffers, and a
 * stream for each buffer. */
#ifndef TM_CUDA_COPIES_H
#define TM_CUDA_COPIES_H
#include <sched.h>
#include <stddef.h>
#include <stdint.h>

/* Functions of the driver; each returns a CUresult, 0 for success. */
typedef struct {
    int (*enter)(void *context); /* cuCtxSetCurrent */
    int (*up)(uint64_t to, const void *from, size_t bytes, void *stream); /* cuMemcpyHtoDAsync */
    int (*down)(void *to, uint64_t from, size_t bytes, void *stream); /* cuMemcpyDtoHAsync */
    int (*wait)(void *stream); /* cuStreamSynchronize */
} tm_copy_driver;

typedef struct {
    void *streams[2];
    char *buffers[2];
} tm_copy_lane;

typedef struct {
    tm_copy_driver driver;
    void *context; /* that of the streams */
    cpu_set_t cores; /* where the threads may run */
    const tm_copy_lane *lanes;
    size_t lane_count;
    int up; /* to the device, or from it */
    char *host;
    uint64_t device;
    size_t bytes;
    size_t piece; /* most bytes that a lane takes at a time; a buffer holds them */
} tm_copy;

/* Copies all of it; no copy is pending on return. Returns the first CUresult that is not 0, or 0. Uses as many threads
 * as there are lanes and pieces, the caller included; fewer if the system refuses more. */
int tm_copy_run(const tm_copy *copy);
#endif
