/* What the two gemm_wgmma.cu, of ternary_matmul and of ternary_matmul_a16, share: the tiles of a launch, the ring of
 * stages in shared memory and the copies into it, and how outputs of 16 bits are written. The reasons are in
 * docs/kernels/cuda_gemm.md.
 *
 * A stage has PANELS times 128 bytes of each row of activations of a tile, and the weights that they are multiplied by.
 *
 * Macros: COLUMNS (rows of activations of a tile, multiple of 16), TAIL (of the last tiles, 0 where all are alike),
 * BLOCKS (1, 2), PANELS (1, 2, 4), STAGES, SPLIT (blocks that share the K of a tile), THREADS (384). Of the kernel, not of
 * an instance: PANEL_CHUNKS (64 k of a panel: 1, 2), READERS (threads that report that a stage was read). With STAGE_SCALES,
 * 16-bit scales of groups of weights (row16_grouped.py) in a stage, of ROWS rows each: a group has GROUP weights. */
#ifndef TRITMARK_CUDA_TILES_WGMMA_TILES
#define TRITMARK_CUDA_TILES_WGMMA_TILES
#include "../overlap.cuh"
#include "operands.cuh"
#include "wgmma.cuh"

#define WARPGROUP 128
#define ROWS (128 * BLOCKS) /* of weights of a tile, of two warpgroups each half */
#define CHUNKS (PANELS * PANEL_CHUNKS) /* 16 bytes of a row of weights in a stage */
#define STAGE_K (CHUNKS * CHUNK) /* k of a stage */
#define STAGE_DEPTH (PANELS * DEPTH) /* bytes of a row of activations in a stage */
#define WEIGHTS_AT (COLUMNS * STAGE_DEPTH) /* where weights begin in a stage */
#define WEIGHTS_BYTES (16 * CHUNKS * ROWS) /* of a stage */
#define STAGE_BYTES (WEIGHTS_AT + WEIGHTS_BYTES)
#define OUT_BYTES (SPLIT > 1 ? 0 : COLUMNS * BLOCKS * DEPTH) /* a warpgroup's outputs of a tile in 16 bits */
#define BOX (TAIL ? 32 : COLUMNS) /* rows of activations of a box */
#if SPLIT > 1
static_assert(TAIL == 0, "tiles that blocks share are all alike");
static_assert(4 * COLUMNS * ROWS <= STAGES * STAGE_BYTES, "sums take the place of stages");
#endif
static_assert(COLUMNS % BOX == 0 && TAIL % BOX == 0 && TAIL < COLUMNS, "tiles are made of boxes");
static_assert(STAGE_BYTES % 1024 == 0, "boxes are swizzled by their address");

/* Both values as that kind (see narrowed), the first in the lower half. */
template <int KIND> __device__ __forceinline__ unsigned narrowed_pair(float first, float second)
{
#ifdef TRITMARK_SIMULATOR
    return narrowed(first, KIND) | (unsigned)narrowed(second, KIND) << 16;
#else
    unsigned both;
    if (KIND == 3)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#endif
}

/* The place of 16 bytes of outputs in a warpgroup's buffer: eight of 64 rows of weights, number `part`, of row m of
 * activations and block `block` of 64 rows of weights. */
template <int WIDTH> __device__ __forceinline__ unsigned output_at(int block, unsigned m, unsigned part)
{
    return block * WIDTH * DEPTH + swizzled(m, part);
}

/* The address that this lane passes to store_transposed for the first 16 rows of activations of block 0 and its warp's
 * 16 rows of weights. Those from row m of block b are output_at(b, m, 0) further. The four matrices: rows 8 j.. of
 * activations times rows g and g + 8 of weights, then of j + 1. */
template <int WIDTH> __device__ __forceinline__ unsigned char *staged_at(unsigned char *outs)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    return outs + output_at<WIDTH>(0, lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2);
}

/* The place of the 16 bytes of 64 weights of a row of a tile: as copied with 16 * CHUNKS contiguous bytes of each row,
 * swizzled, so that eight rows are eight banks. */
__device__ __forceinline__ unsigned weights_at(unsigned row, unsigned chunk)
{
    return row * (16 * CHUNKS) + ((chunk ^ row * (CHUNKS / 2) / 4 % CHUNKS) << 4);
}

/* The tiles of a launch: the first `wide` have COLUMNS rows of activations, the others TAIL. Of the strips of ROWS rows
 * of weights the last `mixed` have `mixed_wide` wide tiles each and end in others; the strips before them are all
 * wide. */
struct Tiles {
    int per_strip, plain, mixed_wide, mixed_tail, wide, all; /* fewer than 2^31: no memory holds so many outputs */

    __device__ __forceinline__ Tiles(int M, int N, int mixed, int mixed_wide) : mixed_wide(mixed_wide)
    {
        const int strips = (N + ROWS - 1) / ROWS;
        per_strip = (M + COLUMNS - 1) / COLUMNS;
        mixed = TAIL ? mixed : 0;
        mixed_tail = TAIL ? (M - mixed_wide * COLUMNS + TAIL - 1) / (TAIL ? TAIL : 1) : 0;
        plain = strips - mixed;
        wide = plain * per_strip + mixed * mixed_wide;
        all = wide + mixed * mixed_tail;
    }

    /* The first row of activations, and of weights, of that tile. */
    __device__ __forceinline__ int2 at(int tile) const
    {
        if (!TAIL || tile < plain * per_strip)
            return make_int2(tile % per_strip * COLUMNS, tile / per_strip * ROWS);
        if (tile < wide) {
            tile -= plain * per_strip;
            return make_int2(tile % mixed_wide * COLUMNS, (plain + tile / mixed_wide) * ROWS);
        }
        tile -= wide;
        return make_int2(mixed_wide * COLUMNS + tile % mixed_tail * TAIL, (plain + tile / mixed_tail) * ROWS);
    }
};

/* Whether outputs are of 16 bits and copied by the engine. */
__device__ __forceinline__ bool copied_narrow(const void *out, int N, int kind)
{
    return kind > 1 && N % 8 == 0 && ((unsigned long long)out & 15) == 0;
}

/* A stage of the ring, and the parity of its phase. */
struct Turn {
    int stage;
    unsigned parity;

    __device__ __forceinline__ void next()
    {
        if (++stage == STAGES)
            stage = 0, parity ^= 1;
    }
};

/* The state of a block that all its threads share: what is multiplied, its stages of a tile (`steps` from `first`), and
 * its shared memory: stages, 16-bit outputs of each warpgroup that multiplies, barriers, and what lies behind them. */
struct Job {
    int warpgroup, p; /* this thread's, and its number there */
    const TensorMap *map_a, *map_w, *map_out;
    const unsigned char *w;
    void *out;
    int M, N, K, kind, mixed, mixed_wide;
    bool fast; /* whether the engine copies activations, whose rows are aligned to 16 bytes */
    unsigned char *stages, *outs;
    unsigned long long *full, *empty;
    void *behind;
    int rank, first, steps;
#ifdef STAGE_SCALES
    unsigned short *scales; /* [STAGES][STAGE_SCALES][ROWS] */
#endif

    __device__ __forceinline__
    Job(unsigned char *shared, const TensorMap *map_a, const TensorMap *map_w, const TensorMap *map_out, const void *a,
        long long lda, const unsigned char *w, void *out, int M, int N, int K, int kind, int mixed, int mixed_wide)
        : warpgroup(threadIdx.x / WARPGROUP), p(threadIdx.x % WARPGROUP), map_a(map_a), map_w(map_w), map_out(map_out),
          w(w), out(out), M(M), N(N), K(K), kind(kind), mixed(mixed), mixed_wide(mixed_wide), stages(shared)
    {
        outs = stages + STAGES * STAGE_BYTES;
        full = (unsigned long long *)(outs + 2 * OUT_BYTES), empty = full + STAGES, behind = empty + STAGES;
#ifdef STAGE_SCALES
        scales = (unsigned short *)behind, behind = scales + STAGES * STAGE_SCALES * ROWS;
#endif
        const int all_steps = (K + STAGE_K - 1) / STAGE_K;
        rank = SPLIT > 1 ? blockIdx.x % SPLIT : 0;
        first = SPLIT > 1 ? all_steps * rank / SHARES : 0;
        steps = (SPLIT > 1 ? all_steps * (rank + 1) / SHARES : all_steps) - first;
        fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;
    }

    __device__ __forceinline__ Tiles tiles() const { return Tiles(M, N, mixed, mixed_wide); }

#ifdef STAGE_SCALES
    /* The scale of that group of a row: behind the weights, the rows of a group padded to whole 8. */
    __device__ __forceinline__ const unsigned short *scales_at(int group, int row) const
    {
        return (const unsigned short *)(w + N * (long long)((K + CHUNK - 1) / CHUNK * 16)) +
               group * ((N + 7ll) / 8 * 8) + row;
    }
#endif

    /* The setup that needs nothing of the launch before this one. All threads call this. */
    __device__ __forceinline__ void begin() const;

    /* The work of the first warpgroup; of one of its threads if `fast`. turn: {0, 1}. activations(row, byte): 16 bytes
     * of a row of activations, 0 beyond K. syncs: how often a warpgroup that multiplies waits for all its threads after
     * the last product of a tile; for the simulator, whose barriers are the block's. */
    template <class Activations>
    __device__ __forceinline__ void copy_stages(Turn &turn, const Activations &activations, int syncs) const;

    /* Copy the outputs in a warpgroup's buffer, `from`, of a tile from row m0 of activations and n0 of weights, to
     * memory; after a warpgroup_sync. */
    template <int WIDTH>
    __device__ __forceinline__ void copy_outputs(const unsigned char *from, int m0, int n0) const;
};

__device__ __forceinline__ void Job::begin() const
{
#ifndef TRITMARK_SIMULATOR
    if (threadIdx.x == 0) {
        fetch_map(map_a), fetch_map(map_w), fetch_map(map_out);
        /* Two stages of weights: more would delay the copies of the launch that still runs. */
        for (int step = 0, n0 = tiles().at(blockIdx.x / SPLIT).y; step < min(2, steps); step++)
            prefetch_box(map_w, (first + step) * 16 * CHUNKS, n0);
        for (int i = 0; i < STAGES; i++)
            barrier_init(full + i, fast ? 1 : 1 + WARPGROUP), barrier_init(empty + i, READERS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
#endif
}

template <class Activations>
__device__ __forceinline__ void Job::copy_stages(Turn &turn, const Activations &activations, int syncs) const
{
    typedef decltype(activations(0, 0)) Four;
    const Tiles tiles = this->tiles();
    for (int tile = blockIdx.x / SPLIT; tile < tiles.all; tile += gridDim.x / SPLIT) {
        const int2 at = tiles.at(tile);
        const int m0 = at.x, n0 = at.y, width = tile < tiles.wide ? COLUMNS : TAIL;
        for (int step = 0; step < steps; step++) {
            unsigned char *const to_a = stages + turn.stage * STAGE_BYTES, *const to_w = to_a + WEIGHTS_AT;
#ifdef TRITMARK_SIMULATOR
            const bool copies = true;
            const int chunks = (K + CHUNK - 1) / CHUNK;
            for (int i = p; i < ROWS * CHUNKS; i += WARPGROUP) {
                const int row = i / CHUNKS, chunk = i % CHUNKS, from = CHUNKS * (first + step) + chunk;
                *(uint4 *)(to_w + weights_at(row, chunk)) =
                    n0 + row < N && from < chunks ? ((const uint4 *)w)[(n0 + row) * (long long)chunks + from]
                                                  : make_uint4(0, 0, 0, 0);
            }
#ifdef STAGE_SCALES
            for (int i = p; i < STAGE_SCALES * ROWS; i += WARPGROUP) {
                const int group = (first + step) * STAGE_SCALES + i / ROWS, row = i % ROWS;
                scales[i] = group < K / GROUP && n0 + row < N ? *scales_at(group, n0 + row) : 0;
            }
#endif
#else
            const bool copies = !fast;
            barrier_wait(empty + turn.stage, turn.parity);
            if (p == 0) {
                const int of_a = fast ? width * STAGE_DEPTH : 0;
#ifdef STAGE_SCALES
                const int bytes = 2 * min(ROWS, (N + 7) / 8 * 8 - n0), from = (first + step) * STAGE_SCALES;
                const int groups = min(STAGE_SCALES, K / GROUP - from);
                barrier_arrive_expecting(full + turn.stage, of_a + WEIGHTS_BYTES + groups * bytes);
                for (int i = 0; i < groups; i++)
                    copy_bytes(
                        scales + (turn.stage * STAGE_SCALES + i) * ROWS, scales_at(from + i, n0), bytes,
                        full + turn.stage);
#else
                barrier_arrive_expecting(full + turn.stage, of_a + WEIGHTS_BYTES);
#endif
                copy_box(to_w, map_w, (first + step) * 16 * CHUNKS, n0, full + turn.stage);
                if (fast)
#pragma unroll
                    for (int panel = 0; panel < PANELS; panel++)
#pragma unroll
                        for (int row = 0; row < COLUMNS; row += BOX)
                            if (row < width)
                                copy_box(
                                    to_a + (COLUMNS * panel + row) * DEPTH, map_a,
                                    (first + step) * STAGE_DEPTH + DEPTH * panel, m0 + row, full + turn.stage);
                if (step == min(STAGES, steps) - 1)
                    let_the_next_begin();
            }
#endif
            if (copies) {
                for (int i = p; i < width * 8 * PANELS; i += WARPGROUP) {
                    const int part = i % 8, row = i / 8 % width, panel = i / 8 / width;
                    const int byte = (first + step) * STAGE_DEPTH + DEPTH * panel + 16 * part;
                    *(Four *)(to_a + COLUMNS * panel * DEPTH + swizzled(row, part)) =
                        m0 + row < M ? activations(m0 + row, byte) : Four{0, 0, 0, 0};
                }
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
#if SPLIT > 1
        multipliers_sync();
        cluster_sync();
        cluster_sync();
#else
        for (int i = 0; i < syncs; i++)
            warpgroup_sync(0);
#endif
#endif
    }
}

template <int WIDTH>
__device__ __forceinline__ void Job::copy_outputs(const unsigned char *from, int m0, int n0) const
{
    copies_out_see();
    warpgroup_sync(warpgroup);
    const int n = n0 + (warpgroup - 1) * 64 * BLOCKS;
#ifdef TRITMARK_SIMULATOR
    for (int i = p; i < WIDTH * 8 * BLOCKS; i += WARPGROUP) {
        const int part = i % 8, m = i / 8 % WIDTH, block = i / 8 / WIDTH, at = n + 64 * block + 8 * part;
        if (m0 + m < M && at < N)
            *(uint4 *)((unsigned short *)out + (m0 + m) * (long long)N + at) =
                *(const uint4 *)(from + output_at<WIDTH>(block, m, part));
    }
#else
    if (p == 0) {
#pragma unroll
        for (int block = 0; block < BLOCKS; block++)
#pragma unroll
            for (int m = 0; m < WIDTH; m += BOX)
                copy_box_out(map_out, 2 * (n + 64 * block), m0 + m, from + output_at<WIDTH>(block, m, 0));
        copies_out_end();
    }
#endif
}
#endif
