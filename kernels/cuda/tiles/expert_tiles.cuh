/* The tiles of a gemm_wgmma.cu for the weights of several experts (experts.cuh), and the copies of their stages.
 *
 * A block finds its tiles before the first: tile number i of block b is i * gridDim.x + b, in the order of the shares and
 * then of the strips of ROWS rows of weights. Weights of experts do not lie at multiples of a row, so the first
 * warpgroup copies them with cp.async, whose completion counts as an arrival of each thread at the barrier of the stage;
 * activations come from the bulk tensor copy engine as in wgmma_tiles.cuh. Rows of a tile behind its share are those of
 * the next expert: multiplied, but not stored. Include wgmma_tiles.cuh first; TAIL 0, SPLIT 1. */
#ifndef TRITMARK_CUDA_TILES_EXPERT_TILES
#define TRITMARK_CUDA_TILES_EXPERT_TILES
#include "experts.cuh"

#define LISTED 64 /* most tiles of a block */
#define TOGETHER (WARPGROUP / CHUNKS) /* rows of weights that the first warpgroup copies at a time */
static_assert(TOGETHER % 8 == 0, "their places are swizzled alike");

/* A tile: its first row of activations, the end of its share's rows, its first row of weights, and their expert; -1 for
 * a tile that does not exist. */
struct ExpertTile {
    int m0, end, n0, expert;
};

/* Job of wgmma_tiles.cuh for the tiles of a list. */
struct ExpertJob : Job {
    const ExpertTile *list;
    int count;
    long long expert_apart; /* bytes between the weights of experts */

    __device__ __forceinline__ ExpertJob(
        unsigned char *shared, const TensorMap *map_a, const TensorMap *map_out, const void *a, long long lda,
        const unsigned char *w, void *out, int M, int N, int K, int kind, long long expert_apart)
        : Job(shared, map_a, nullptr, map_out, a, lda, w, out, M, N, K, kind, 0, 0), expert_apart(expert_apart)
    {
    }

    /* The setup: the barriers, and the list of tiles. All threads call this. */
    __device__ __forceinline__ void begin(
        ExpertTile (&tiles)[LISTED], const int *offsets, int E, int shares, unsigned long long *bad);

    /* As in Job. */
    template <class Activations>
    __device__ __forceinline__ void copy_stages(Turn &turn, const Activations &activations, int syncs) const;

    /* As in Job, of the rows before `end`. */
    template <int WIDTH>
    __device__ __forceinline__ void copy_outputs(const unsigned char *from, int m0, int n0, int end) const;
};

__device__ __forceinline__ void ExpertJob::begin(
    ExpertTile (&tiles)[LISTED], const int *offsets, int E, int shares, unsigned long long *bad)
{
#ifndef TRITMARK_SIMULATOR
    if (threadIdx.x == 0) {
        fetch_map(map_a), fetch_map(map_out);
        for (int i = 0; i < STAGES; i++)
            barrier_init(full + i, fast ? 1 + WARPGROUP : 1 + 2 * WARPGROUP), barrier_init(empty + i, READERS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
#endif
    for (int e = 32 * threadIdx.x; e <= E; e += 32 * THREADS)
        prefetch(offsets + e);
    wait_for_the_one_before();
    const int strips = (N + ROWS - 1) / ROWS;
    for (int i = threadIdx.x / 32; i < LISTED; i += THREADS / 32) {
        const long long tile = (long long)i * gridDim.x + blockIdx.x;
        Share share = {0, 0, 0};
        if (tile < (long long)shares * strips)
            share = share_at<COLUMNS>(offsets, E, M, (int)(tile / strips));
        if (threadIdx.x % 32 == 0)
            tiles[i] = {
                share.first, share.first + share.rows, (int)(tile % strips) * ROWS, share.rows ? share.expert : -1};
    }
    if (blockIdx.x == gridDim.x - 1)
        check_offsets(offsets, E, M, bad);
    __syncthreads();
    list = tiles;
    count = __syncthreads_count(threadIdx.x < LISTED && tiles[threadIdx.x % LISTED].expert >= 0);
}

template <class Activations>
__device__ __forceinline__ void ExpertJob::copy_stages(Turn &turn, const Activations &activations, int syncs) const
{
    typedef decltype(activations(0, 0)) Four;
    /* A thread copies one chunk of every TOGETHER-th row. */
    const int chunks = (K + CHUNK - 1) / CHUNK, row = p / CHUNKS, chunk = p % CHUNKS;
    for (int tile = 0; tile < count; tile++) {
        const int m0 = list[tile].m0, n0 = list[tile].n0;
        const unsigned char *const of_expert = w + list[tile].expert * expert_apart;
        const uint4 *from = (const uint4 *)of_expert + (n0 + row) * (long long)chunks + chunk;
        const int rows = N - n0 - row; /* of weights that exist, from this thread's first on */
        for (int step = 0; step < steps; step++) {
            unsigned char *const to_a = stages + turn.stage * STAGE_BYTES, *const to_w = to_a + WEIGHTS_AT;
#ifndef TRITMARK_SIMULATOR
            barrier_wait(empty + turn.stage, turn.parity);
#endif
            const bool within = CHUNKS * step + chunk < chunks;
#pragma unroll
            for (int i = 0; i < ROWS / TOGETHER; i++) /* nothing is read for 0 bytes */
                copy16(
                    to_w + weights_at(row, chunk) + i * TOGETHER * 16 * CHUNKS, from + i * TOGETHER * (long long)chunks,
                    within && i * TOGETHER < rows ? 16 : 0);
            from += CHUNKS;
#ifdef STAGE_SCALES
            /* 8 rows at a time: the scales of a group are padded to whole 8 rows. */
            const unsigned short *const of_groups = (const unsigned short *)(of_expert + N * (long long)chunks * 16);
            for (int i = p; i < STAGE_SCALES * ROWS / 8; i += WARPGROUP) {
                const int group = step * STAGE_SCALES + i / (ROWS / 8), row = i % (ROWS / 8) * 8;
                const bool there = group < K / GROUP && n0 + row < N;
                copy16(
                    scales + turn.stage * STAGE_SCALES * ROWS + 8 * i,
                    of_groups + (there ? group * ((N + 7ll) / 8 * 8) + n0 + row : 0), there ? 16 : 0);
            }
#endif
#ifdef TRITMARK_SIMULATOR
            const bool copies = true;
#else
            const bool copies = !fast;
            barrier_arrive_copied(full + turn.stage);
            if (p == 0) {
                barrier_arrive_expecting(full + turn.stage, fast ? COLUMNS * STAGE_DEPTH : 0);
                if (fast)
#pragma unroll
                    for (int panel = 0; panel < PANELS; panel++)
                        copy_box(
                            to_a + COLUMNS * panel * DEPTH, map_a, step * STAGE_DEPTH + DEPTH * panel, m0,
                            full + turn.stage);
                if (step == min(STAGES, steps) - 1)
                    let_the_next_begin();
            }
#endif
            if (copies)
                for (int i = p; i < COLUMNS * 8 * PANELS; i += WARPGROUP) {
                    const int part = i % 8, row = i / 8 % COLUMNS, panel = i / 8 / COLUMNS;
                    *(Four *)(to_a + COLUMNS * panel * DEPTH + swizzled(row, part)) =
                        m0 + row < M ? activations(m0 + row, step * STAGE_DEPTH + DEPTH * panel + 16 * part)
                                     : Four{0, 0, 0, 0};
                }
#ifdef TRITMARK_SIMULATOR
            exchange_stage();
            exchange_stage();
#else
            if (!fast)
                barrier_arrive(full + turn.stage);
            turn.next();
#endif
        }
#ifdef TRITMARK_SIMULATOR
        for (int i = 0; i < syncs; i++)
            warpgroup_sync(0);
#endif
    }
#ifndef TRITMARK_SIMULATOR
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

template <int WIDTH>
__device__ __forceinline__ void ExpertJob::copy_outputs(const unsigned char *from, int m0, int n0, int end) const
{
#ifndef TRITMARK_SIMULATOR
    if (m0 + WIDTH <= end) {
        Job::copy_outputs<WIDTH>(from, m0, n0);
        return;
    }
#endif
    warpgroup_sync(warpgroup);
    for (int i = p; i < WIDTH * 8 * BLOCKS; i += WARPGROUP) {
        const int part = i % 8, m = i / 8 % WIDTH, block = i / 8 / WIDTH;
        const int at = n0 + (warpgroup - 1) * 64 * BLOCKS + 64 * block + 8 * part;
        if (m0 + m < end && at < N)
            *(uint4 *)((unsigned short *)out + (m0 + m) * (long long)N + at) =
                *(const uint4 *)(from + output_at<WIDTH>(block, m, part));
    }
}
#endif
