/* Hopper's asynchronous product (wgmma), the copies into shared memory that feed it, and barriers between the warps that
 * copy and those that multiply. For 9.0a alone; the simulator has a C++ branch of each. WGMMA_PRODUCTS makes the product
 * of weights in registers: wgmma_int8.cuh, and wgmma.cuh of ternary_matmul_a16. */
#ifndef TRITMARK_CUDA_TILES_WGMMA
#define TRITMARK_CUDA_TILES_WGMMA

#define DEPTH 128 /* k of a stage, and bytes of a row of activations in it */

#ifdef SPLIT /* blocks that share the K of a tile, and are a cluster */
#if SPLIT > 1 && !defined(TRITMARK_SIMULATOR)
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#define SHARES SPLIT
#else
#define CLUSTER
#define SHARES 1 /* blocks that work on a tile: in the simulator, which has no clusters, the first does everything */
#endif
#endif

/* The place of 16 bytes, number `part` of 8, of a row of a tile of activations: swizzled as wgmma reads them (128 bytes
 * a row; the number is XORed with the row's lowest three bits). */
__device__ __forceinline__ unsigned swizzled(unsigned row, unsigned part)
{
    return row * DEPTH + ((part ^ (row & 7)) << 4);
}

/* The driver's descriptor of an array for copy_box (CUtensorMap). */
struct __align__(64) TensorMap {
    unsigned long long opaque[16];
};

#ifdef TRITMARK_SIMULATOR
/* A barrier of all threads of the block: it stands for the barriers of a filled and of a used stage. */
__device__ inline void exchange_stage() { __syncthreads(); }

__device__ __forceinline__ void copy16(void *to, const void *from, int bytes)
{
    uint4 four = make_uint4(0, 0, 0, 0);
    if (bytes == 16)
        four = *(const uint4 *)from;
    else
        for (int i = 0; i < bytes; i++)
            ((unsigned char *)&four)[i] = ((const unsigned char *)from)[i];
    *(uint4 *)to = four;
}
__device__ __forceinline__ void multiply_begin() {}
__device__ __forceinline__ void multiply_end() {}
template <int LEFT> __device__ __forceinline__ void multiply_wait() {}

/* The simulator has only barriers of whole blocks: the warpgroup that copies waits with those that multiply. */
__device__ inline void warpgroup_sync(int) { __syncthreads(); }
__device__ inline void multipliers_sync() { __syncthreads(); }
/* It has no clusters: the first of the blocks that share a tile does everything. */
__device__ inline void cluster_sync() { __syncthreads(); }
template <class Four> __device__ __forceinline__ Four of_block(const Four *mine, unsigned) { return *mine; }
__device__ __forceinline__ void copies_out_read() {}
__device__ __forceinline__ void copies_out_see() {}
__device__ inline void store_transposed(void *to, const unsigned (&pair)[4])
{
    const int lane = threadIdx.x % 32, column = lane % 8;
    for (int i = 0; i < 4; i++)
        for (int row = 0; row < 8; row++) {
            /* Of that column of this lane's matrix; all lanes ask all others, a matrix at a time. */
            const unsigned both = __shfl_sync(0xffffffffu, pair[i], 4 * row + column / 2);
            if (i == lane / 8)
                ((unsigned short *)to)[row] = (unsigned short)(both >> 16 * (column % 2));
        }
}

/* acc (64 x 2 HALF) = or += A (64 rows) B (2 HALF columns), 32 bytes of k, as the fragments of mma.cuh: a warp has 16
 * rows of A and acc. B: columns in `tile`, k of them from byte `k` on. dot(a, b, sum): sum and the product of four bytes
 * of each. */
template <class Number, int HALF, class Dot>
__device__ __forceinline__ void multiply_of(
    Number (&acc)[HALF], const unsigned (&a)[4], const unsigned char *tile, int k, int add, const Dot &dot)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    unsigned rows[2][8]; /* rows g and g + 8 */
    for (int i = 0; i < 4; i++) {
        rows[0][i] = __shfl_sync(0xffffffffu, a[0], 4 * g + i), rows[1][i] = __shfl_sync(0xffffffffu, a[1], 4 * g + i);
        rows[0][4 + i] = __shfl_sync(0xffffffffu, a[2], 4 * g + i);
        rows[1][4 + i] = __shfl_sync(0xffffffffu, a[3], 4 * g + i);
    }
    for (int j = 0; j < HALF / 4; j++)
        for (int e = 0; e < 2; e++) {
            const unsigned column = 8 * j + 2 * t + e;
            unsigned of[8];
            for (int half = 0; half < 2; half++)
                *(uint4 *)(of + 4 * half) = *(const uint4 *)(tile + swizzled(column, k / 16 + half));
            for (int h = 0; h < 2; h++) {
                Number &sum = acc[4 * j + 2 * h + e];
                sum = add ? sum : 0;
                for (int i = 0; i < 8; i++)
                    sum = dot(rows[h][i], of[i], sum);
            }
        }
}
/* multiply_of by `dot` under the name and for the types of the product; the other arguments are the instruction's. */
#define WGMMA_PRODUCTS(number, dot, letter, types, more) \
    template <int HALF> \
    __device__ __forceinline__ void multiply( \
        number(&acc)[HALF], const unsigned (&a)[4], const unsigned char *tile, int k, int add) \
    { \
        multiply_of(acc, a, tile, k, add, dot); \
    }
#else
__device__ __forceinline__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(unsigned long long *barrier, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(unsigned long long *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/* Arrive, and make the phase wait for that many bytes of copy_box. */
__device__ __forceinline__ void barrier_arrive_expecting(unsigned long long *barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
/* Copy a box of the map, from byte k of row m, into shared memory; 0 outside of the map. */
__device__ __forceinline__ void copy_box(void *to, const TensorMap *map, int k, int m, unsigned long long *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(map), "r"(k), "r"(m), "r"(shared_address(barrier))
                 : "memory");
}
/* Copy that many bytes, a multiple of 16, between addresses that are, too, into shared memory. */
__device__ __forceinline__ void copy_bytes(void *to, const void *from, int bytes, unsigned long long *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}
/* Prefetch the box into L2; see prefetch. */
__device__ __forceinline__ void prefetch_box(const TensorMap *map, int k, int m)
{
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(k), "r"(m)
                 : "memory");
}
/* Prefetch the map, before copy_box needs it. */
__device__ __forceinline__ void fetch_map(const TensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* Wait until the phase of that parity is over. */
__device__ __forceinline__ void barrier_wait(unsigned long long *barrier, unsigned parity)
{
    asm volatile("{\n.reg .pred p;\n"
                 "again:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}\n" ::"r"(
                     shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* Copy 16 bytes into shared memory: the first `bytes`, and 0 for the rest. */
__device__ __forceinline__ void copy16(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(bytes)
                 : "memory");
}
/* Arrive at the barrier when this thread's copies so far are complete. */
__device__ __forceinline__ void barrier_arrive_copied(unsigned long long *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/* Make shared memory that this thread sees visible to wgmma. */
__device__ __forceinline__ void multiply_sees() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Copy a box of shared memory to the map's matrix, from byte k of row m; nothing outside of it. */
__device__ __forceinline__ void copy_box_out(const TensorMap *map, int k, int m, const void *from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(k),
                 "r"(m), "r"(shared_address(from))
                 : "memory");
}
/* Close the group of these copies. */
__device__ __forceinline__ void copies_out_end() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/* Wait until this thread's copies have read their source. */
__device__ __forceinline__ void copies_out_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
/* Make this thread's writes to shared memory visible to copy_box_out after the next barrier. */
__device__ __forceinline__ void copies_out_see() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* A barrier of the 128 threads of a warpgroup. */
__device__ __forceinline__ void warpgroup_sync(int warpgroup)
{
    asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory");
}
/* A barrier of the warpgroups 1 and 2. */
__device__ __forceinline__ void multipliers_sync() { asm volatile("bar.sync 1, 256;" ::: "memory"); }
/* A barrier of all threads of the cluster's blocks that have not ended. */
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* The address in the shared memory of the cluster's block of that rank that corresponds to `mine`. */
__device__ __forceinline__ int4 of_block(const int4 *mine, unsigned rank)
{
    int4 found;
    asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.s32 {%0, %1, %2, %3}, [there];\n}"
                 : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                 : "r"(shared_address(mine)), "r"(rank)
                 : "memory");
    return found;
}
__device__ __forceinline__ float4 of_block(const float4 *mine, unsigned rank)
{
    float4 found;
    asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
                 : "=f"(found.x), "=f"(found.y), "=f"(found.z), "=f"(found.w)
                 : "r"(shared_address(mine)), "r"(rank)
                 : "memory");
    return found;
}
/* Store four 8 x 8 matrices of 16-bit elements as their columns. A lane has two neighbouring elements of a row of each;
 * lane i gives the address of 16 bytes: column i % 8 of matrix i / 8. */
__device__ __forceinline__ void store_transposed(void *to, const unsigned (&pair)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to)),
                 "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3])
                 : "memory");
}

__device__ __forceinline__ void multiply_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void multiply_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void multiply_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* The descriptor of B: address / 16, 1024 bytes between groups of 8 columns, swizzled in 128 bytes. */
__device__ __forceinline__ unsigned long long described(const unsigned char *tile, int k)
{
    return (unsigned long long)((shared_address(tile) + k) >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

/* The sums of a product with that many columns: as operands of an asm statement (`letter`: their type), and their
 * names in it. */
#define WGMMA_SUMS_8(letter, i) \
    "+" letter(c[i]), "+" letter(c[i + 1]), "+" letter(c[i + 2]), "+" letter(c[i + 3]), "+" letter(c[i + 4]), \
        "+" letter(c[i + 5]), "+" letter(c[i + 6]), "+" letter(c[i + 7])
#define WGMMA_SUMS_16(letter) WGMMA_SUMS_8(letter, 0)
#define WGMMA_SUMS_32(letter) WGMMA_SUMS_16(letter), WGMMA_SUMS_8(letter, 8)
#define WGMMA_SUMS_48(letter) WGMMA_SUMS_32(letter), WGMMA_SUMS_8(letter, 16)
#define WGMMA_SUMS_64(letter) WGMMA_SUMS_48(letter), WGMMA_SUMS_8(letter, 24)
#define WGMMA_SUMS_80(letter) WGMMA_SUMS_64(letter), WGMMA_SUMS_8(letter, 32)
#define WGMMA_SUMS_96(letter) WGMMA_SUMS_80(letter), WGMMA_SUMS_8(letter, 40)
#define WGMMA_SUMS_112(letter) WGMMA_SUMS_96(letter), WGMMA_SUMS_8(letter, 48)
#define WGMMA_SUMS_128(letter) WGMMA_SUMS_112(letter), WGMMA_SUMS_8(letter, 56)
#define WGMMA_SUMS_160(letter) WGMMA_SUMS_128(letter), WGMMA_SUMS_8(letter, 64), WGMMA_SUMS_8(letter, 72)
#define WGMMA_SUMS_192(letter) WGMMA_SUMS_160(letter), WGMMA_SUMS_8(letter, 80), WGMMA_SUMS_8(letter, 88)
#define WGMMA_SUMS_256(letter) \
    WGMMA_SUMS_192(letter), WGMMA_SUMS_8(letter, 96), WGMMA_SUMS_8(letter, 104), WGMMA_SUMS_8(letter, 112), \
        WGMMA_SUMS_8(letter, 120)
#define WGMMA_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_NAMES_32 WGMMA_NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_48 WGMMA_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_NAMES_64 WGMMA_NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_80 WGMMA_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_NAMES_96 WGMMA_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_NAMES_112 WGMMA_NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_NAMES_128 WGMMA_NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_160 \
    WGMMA_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_NAMES_192 \
    WGMMA_NAMES_160 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_NAMES_256 \
    WGMMA_NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
                    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* The simulator's function for n columns. a0 to adds: the numbers of the operands behind the sums. Complete after
 * multiply_wait. */
#define WGMMA_PRODUCT(number, letter, types, more, n, a0, a1, a2, a3, descriptor, adds) \
    __device__ __forceinline__ void multiply( \
        number(&c)[n / 2], const unsigned (&a)[4], const unsigned char *tile, int k, int add) \
    { \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #adds ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n types \
                     " {" WGMMA_NAMES_##n "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #descriptor ", p" more \
                                          ";\n}\n" \
                     : WGMMA_SUMS_##n(letter) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(described(tile, k)), "r"(add)); \
    }
/* The same for each number of columns that is used. number, letter: of the sums. types: k and the types, as the
 * instruction's name ends. more: its last operands. */
#define WGMMA_PRODUCTS(number, dot, letter, types, more) \
    WGMMA_PRODUCT(number, letter, types, more, 16, 8, 9, 10, 11, 12, 13) \
    WGMMA_PRODUCT(number, letter, types, more, 32, 16, 17, 18, 19, 20, 21) \
    WGMMA_PRODUCT(number, letter, types, more, 48, 24, 25, 26, 27, 28, 29) \
    WGMMA_PRODUCT(number, letter, types, more, 64, 32, 33, 34, 35, 36, 37) \
    WGMMA_PRODUCT(number, letter, types, more, 80, 40, 41, 42, 43, 44, 45) \
    WGMMA_PRODUCT(number, letter, types, more, 96, 48, 49, 50, 51, 52, 53) \
    WGMMA_PRODUCT(number, letter, types, more, 112, 56, 57, 58, 59, 60, 61) \
    WGMMA_PRODUCT(number, letter, types, more, 128, 64, 65, 66, 67, 68, 69) \
    WGMMA_PRODUCT(number, letter, types, more, 160, 80, 81, 82, 83, 84, 85) \
    WGMMA_PRODUCT(number, letter, types, more, 192, 96, 97, 98, 99, 100, 101)
#endif

/* Adds the sums of a tile whose K the COUNT blocks of a cluster share, in the order of their ranks: store(row of
 * activations, row of weights, sum) for each, by one thread of one of the blocks. acc: a thread's sums of this block,
 * as multiply leaves them. The two warpgroups that multiply, which both call this, have 64 * HIGH rows of weights each.
 * sums: in shared memory, where stages were, a Four (int4, float4) for each four of them. */
template <int COUNT, class Four, int HIGH, int HALF, class Number, class Store>
__device__ __forceinline__ void add_shares(
    Four *sums, const Number (&acc)[HIGH][HALF], bool any, int rank, const Store &store)
{
    const int both = 256, thread = threadIdx.x - 128, fours = HALF / 4 * HIGH * both;
    multipliers_sync(); /* the threads that have read all stages */
#pragma unroll
    for (int j = 0; j < HALF / 4; j++)
#pragma unroll
        for (int block = 0; block < HIGH; block++) {
            const Number *const of = acc[block] + 4 * j;
            Four four = {0, 0, 0, 0}; /* more blocks than stages: none for this one */
            if (any)
                four.x = of[0], four.y = of[1], four.z = of[2], four.w = of[3];
            sums[(j * HIGH + block) * both + thread] = four;
        }
    cluster_sync();
    for (int i = fours * rank / COUNT + thread; i < fours * (rank + 1) / COUNT; i += both) {
        Four sum = {0, 0, 0, 0};
#pragma unroll
        for (unsigned each = 0; each < COUNT; each++) {
            const Four share = of_block(sums + i, each);
            sum.x += share.x, sum.y += share.y, sum.z += share.z, sum.w += share.w;
        }
        const int owner = i % both, lane = owner % 32, m = i / both / HIGH * 8 + lane % 4 * 2;
        const int n = (owner / 128 * HIGH + i / both % HIGH) * 64 + owner % 128 / 32 * 16 + lane / 4;
        store(m, n, sum.x), store(m + 1, n, sum.y), store(m, n + 8, sum.z), store(m + 1, n + 8, sum.w);
    }
    cluster_sync(); /* no block ends while its sums are read */
}
#endif
