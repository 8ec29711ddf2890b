/* Planted faults: with `broken` each kernel has the fault in its name, without it is correct. 64 threads; `data` has
 * n = 64 elements. */

/* The other half of the warp does not wait for reads and writes: the classic reduction without __syncwarp. */
extern "C" __global__ void planted_race_in_warp(int *data, int n, int broken)
{
    __shared__ int part[64];
    const int i = threadIdx.x;
    part[i] = data[i];
    __syncwarp();
    for (int by = 16; by; by /= 2) {
        const int other = part[(i & 32) | ((i + by) & 31)];
        if (!broken)
            __syncwarp();
        part[i] += other;
        __syncwarp();
    }
    data[i] = part[i];
}

extern "C" __global__ void planted_race_across_warps(int *data, int n, int broken)
{
    __shared__ int all[64];
    const int i = threadIdx.x;
    all[i] = 0;
    __syncthreads();
    all[i] = data[i];
    if (!broken)
        __syncthreads();
    data[i] = all[63 - i];
}

/* A __syncwarp does not order the other warp. */
extern "C" __global__ void planted_race_behind_syncwarp(int *data, int n, int broken)
{
    __shared__ int all[64];
    const int i = threadIdx.x;
    all[i] = data[i];
    __syncthreads();
    const int other = all[(i + 1) % 64];
    if (broken)
        __syncwarp();
    else
        __syncthreads();
    all[i] = other;
    __syncthreads();
    data[i] = all[i];
}

extern "C" __global__ void planted_race_of_writers(int *data, int n, int broken)
{
    __shared__ int last;
    if (broken || threadIdx.x == 7)
        last = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = last;
}

extern "C" __global__ void planted_race_of_bytes(int *data, int n, int broken)
{
    __shared__ signed char bytes[256];
    const int i = threadIdx.x;
    ((int *)bytes)[i] = 0;
    __syncthreads();
    for (int k = 0; k < 4; k++)
        bytes[k * 64 + i] = (signed char)data[i]; /* four threads, one word: no race */
    if (!broken)
        __syncthreads();
    data[i] = ((const int *)bytes)[i];
}

extern "C" __global__ void planted_race_with_atomic(int *data, int n, int broken)
{
    __shared__ int count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    atomicAdd(&count, data[threadIdx.x]);
    if (!broken)
        __syncthreads();
    data[threadIdx.x] = count;
}

extern "C" __global__ void planted_race_on_device_memory(int *data, int n, int broken)
{
    const int i = threadIdx.x;
    data[i] = 2 * data[i];
    if (!broken)
        __syncthreads();
    const int other = data[63 - i];
    __syncthreads();
    data[i] = other;
}

extern "C" __global__ void planted_outside_read(int *data, int n, int broken)
{
    const int i = threadIdx.x;
    const int next = i + 1 < n + broken ? data[i + 1] : 0;
    __syncthreads();
    data[i] = next;
}

extern "C" __global__ void planted_outside_write(int *data, int n, int broken)
{
    for (int i = threadIdx.x; i < n + broken; i += blockDim.x)
        data[i] = i;
}

extern "C" __global__ void planted_outside_before(int *data, int n, int broken) { data[(int)threadIdx.x - broken] = 1; }

extern "C" __global__ void planted_outside_nowhere(int *data, int n, int broken)
{
    int *const into = broken && threadIdx.x == 9 ? (int *)64 : data + threadIdx.x;
    *into = 1;
}

extern "C" __global__ void planted_outside_shared(int *data, int n, int broken)
{
    __shared__ int first[16];
    __shared__ int second[16];
    const int i = threadIdx.x % 16;
    if (threadIdx.x < 16) {
        first[i + broken] = i;
        second[i] = i;
    }
    __syncthreads();
    data[threadIdx.x] = first[i] + second[i];
}

/* Launched with 256 bytes. */
extern "C" __global__ void planted_outside_dynamic(int *data, int n, int broken)
{
    extern __shared__ __align__(16) unsigned char memory[];
    int *const all = (int *)memory;
    all[threadIdx.x + broken] = 1;
    __syncthreads();
    data[threadIdx.x] = all[(threadIdx.x + 1) % 64];
}

extern "C" __global__ void planted_unwritten_shared(int *data, int n, int broken)
{
    __shared__ int all[64];
    if (threadIdx.x < 64 - broken)
        all[threadIdx.x] = 1;
    __syncthreads();
    data[threadIdx.x] = all[63 - threadIdx.x];
}

extern "C" __global__ void planted_barrier_in_branch(int *data, int n, int broken)
{
    if (!broken || threadIdx.x < 32)
        __syncthreads();
    else
        data[threadIdx.x] = 1;
    data[threadIdx.x] = 2;
}

extern "C" __global__ void planted_barrier_at_two_places(int *data, int n, int broken)
{
    if (!broken || threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    data[threadIdx.x] = 2;
}

extern "C" __global__ void planted_barrier_after_exit(int *data, int n, int broken)
{
    if ((int)threadIdx.x >= n - broken)
        return;
    __syncthreads();
    data[threadIdx.x] = 2;
}

extern "C" __global__ void planted_misaligned(int *data, int n, int broken)
{
    if (threadIdx.x < 8) {
        const int4 four = *(const int4 *)(data + 4 * threadIdx.x + broken);
        data[40 + threadIdx.x] = four.x + four.y + four.z + four.w;
    }
}

extern "C" __global__ void planted_misaligned_ldg(int *data, int n, int broken)
{
    if (threadIdx.x < 8) {
        const int2 two = __ldg((const int2 *)(data + 4 * threadIdx.x + broken));
        data[40 + threadIdx.x] = two.x + two.y;
    }
}

extern "C" __global__ void planted_misaligned_shared(int *data, int n, int broken)
{
    __shared__ __align__(16) int all[64];
    all[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 8) {
        const int4 four = *(const int4 *)(all + 4 * threadIdx.x + broken);
        data[threadIdx.x] = four.x + four.y + four.z + four.w;
    }
}

extern "C" __global__ void planted_mask_of_exited(int *data, int n, int broken)
{
    if (broken && threadIdx.x == 40)
        return;
    data[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
}

extern "C" __global__ void planted_mask_without_caller(int *data, int n, int broken)
{
    data[threadIdx.x] = __shfl_sync(broken ? 0x7fffffffu : 0xffffffffu, (int)threadIdx.x, 0);
}

extern "C" __global__ void planted_mask_differs(int *data, int n, int broken)
{
    const unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
    data[threadIdx.x] = __any_sync(broken && threadIdx.x % 32 == 3 ? 0xffffffffu : half, threadIdx.x == 5);
}

extern "C" __global__ void planted_deadlock(int *data, int n, int broken)
{
    if (broken && threadIdx.x == 0)
        __syncthreads();
    __syncwarp();
    if (!broken || threadIdx.x != 0)
        __syncthreads();
    data[threadIdx.x] = 1;
}

extern "C" __global__ void planted_trap(int *data, int n, int broken)
{
    if (broken && threadIdx.x == 3)
        __trap();
    data[threadIdx.x] = 1;
}

extern "C" __global__ void planted_endless(int *data, int n, int broken)
{
    volatile int *const flag = data;
    while (broken && *flag == 0)
        ;
}

/* For each of n steps: the access of each of 64 threads (kind, bytes, first byte of 16), and which threads
 * synchronize. Its faults are in `data`. */
extern "C" __global__ void planted_program(int *data, int n, int broken)
{
    __shared__ __align__(16) unsigned char bytes[16];
    if (threadIdx.x < 16)
        bytes[threadIdx.x] = 0;
    __syncthreads();
    long long sum = 0;
    for (int i = 0; i < n; i++, data += 65 * 3) {
        const int kind = data[3 * threadIdx.x], size = data[3 * threadIdx.x + 1];
        unsigned char *const at = bytes + data[3 * threadIdx.x + 2];
        if (kind == 1)
            sum += size == 1 ? *at : size == 2 ? *(short *)at : size == 4 ? *(int *)at : *(long long *)at;
        else if (kind == 2 && size == 1)
            *at = 1;
        else if (kind == 2 && size == 2)
            *(short *)at = 1;
        else if (kind == 2 && size == 4)
            *(int *)at = 1;
        else if (kind == 2)
            *(long long *)at = 1;
        else if (kind == 3)
            atomicAdd((int *)at, 1);
        switch (data[3 * 64]) {
        case 1: __syncwarp(); break;
        case 2: __syncthreads(); break;
        case 3: __syncwarp(threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u); break;
        }
    }
    if (sum == 1000000)
        data[3 * threadIdx.x] = 1;
}
