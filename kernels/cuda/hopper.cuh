/* What kernels for Hopper's asynchronous tensor cores (wgmma, 9.0a alone) share: copies into shared memory, barriers
 * between the warps that copy and those that multiply, and waiting for products. The simulator has a C++ branch of each,
 * but for barriers: there a block takes one stage at a time (exchange_stage). */
#ifndef TRITMARK_CUDA_HOPPER
#define TRITMARK_CUDA_HOPPER

#define WARPGROUP 128 /* threads */
#define ROW_BYTES 128 /* of a row of a tile in shared memory */

/* Where 16 bytes, number `part` of 8, of a row of a tile lie: swizzled as wgmma reads them (128 bytes a
 * row; the number is exchanged with the row's lowest three bits). */
__device__ __forceinline__ unsigned swizzled(unsigned row, unsigned part)
{
    return row * ROW_BYTES + ((part ^ (row & 7)) << 4);
}

#ifdef TRITMARK_SIMULATOR
/* All threads of the block: stands for a stage that was filled, and then for one that was used. */
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
/* Until the phase of that parity is over. */
__device__ __forceinline__ void barrier_wait(unsigned long long *barrier, unsigned parity)
{
    asm volatile("{\n.reg .pred p;\n"
                 "again:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}\n" ::"r"(
                     shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* 16 bytes into shared memory, of which the first `bytes` come from there and the rest are 0. */
__device__ __forceinline__ void copy16(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(bytes)
                 : "memory");
}
/* Arrive at the barrier when this thread's copies so far are there. */
__device__ __forceinline__ void barrier_arrive_copied(unsigned long long *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/* What this thread knows to be in shared memory, wgmma sees too. */
__device__ __forceinline__ void multiply_sees() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void multiply_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void multiply_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void multiply_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

#endif
#endif
