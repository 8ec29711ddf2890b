/* Runs kernels of ternary_matmul for whoever writes requests to its standard input: for programs built for another
 * processor, or with instructions that this one lacks in C. Little-endian, as all that it runs on.
 *
 * First it writes a line of the features that it finds, "asimd crc32 ...", and one of the sets in the table with what
 * they need, "scalar: neon:asimd ...". The answer to a request is the rank that the kernel wrote, how many threads took
 * part (both int32), and the output. A request for a format or set that is not in the tables, or a layout that the format
 * does not have, ends it with status 3. Arrays end where a page begins that may not be touched. */
#include "../../../cython_ext/src/cpu/cpu.h"
#include "../../../cython_ext/src/ternary_matmul/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

tm_pool tm_shared_pool = tm_pool_run;

typedef struct request {
    char format[16], set[16];
    int64_t M, N, K, lda, BM, BK, bm;
    int32_t kind, threads;
    float weight_scale;
    int32_t pad;
} request;

typedef struct fenced {
    uint8_t *pages, *at;
    size_t length;
} fenced;

static fenced fence(size_t bytes, int read)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    fenced made = {.length = room + page};
    made.pages = mmap(NULL, made.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made.pages == MAP_FAILED || mprotect(made.pages + room, page, PROT_NONE))
        exit(4);
    made.at = made.pages + room - bytes;
    memset(made.at, 0xa5, bytes);
    if (read && fread(made.at, 1, bytes, stdin) != bytes)
        exit(5);
    return made;
}

static void told(void)
{
    for (size_t i = 0; tm_feature_name(i); i++)
        if (tm_feature_here(i))
            printf("%s ", tm_feature_name(i));
    printf("\n");
    for (const tm_entry *each = tm_ternary_matmul; each->fn; each++)
        printf("%s:%s ", each->isa.name, each->isa.features);
    printf("\n");
    fflush(stdout);
}

int main(void)
{
    request r;
    told();
    while (fread(&r, sizeof r, 1, stdin) == 1) {
        r.format[sizeof r.format - 1] = 0;
        const tm_matmul_format *format = tm_matmul_format_named(r.format);
        if (!format)
            return 3;
        const tm_entry *entry = format->kernels;
        while (entry->fn && strncmp(entry->isa.name, r.set, sizeof r.set))
            entry++;
        if (!entry->fn)
            return 3;
        const size_t M = (size_t)r.M, N = (size_t)r.N, K = (size_t)r.K, lda = (size_t)r.lda;
        const size_t element = r.kind == TM_OUT_BFLOAT16 ? 2 : 4;
        tm_ternary_matmul_args args = {
            .run = {.ran = -1, .threads = r.threads, .bad = -1},
            .lda = lda,
            .M = M,
            .N = N,
            .K = K,
            .weight_scale = r.weight_scale,
            .kind = r.kind,
            .group = format->group,
            .BM = (size_t)r.BM,
            .BK = (size_t)r.BK,
            .bm = (size_t)r.bm,
        };
        const size_t looked_up = format->tables ? format->tables(&args) : 0;
        if (format->tables && !looked_up)
            return 3;
        fenced a = fence((M - 1) * lda + K, 1);
        fenced weights = fence(format->bytes(N, K), 1);
        fenced scales = fence(r.kind == TM_OUT_INT32 ? 0 : M * sizeof(float), 1);
        fenced out = fence(M * N * element, 0);
        fenced room = fence(format->room ? (format->room(M, K) + 63) / 64 * 64 : 0, 0);
        fenced tables = fence((looked_up + 63) / 64 * 64, 0);
        args.a = (const int8_t *)a.at;
        args.weights = weights.at;
        args.act_scale = (const float *)scales.at;
        args.out = out.at;
        args.act_sums = (int32_t *)room.at;
        args.tables = tables.at;
        entry->fn(&args);
        fwrite(&args.run.ran, sizeof args.run.ran, 1, stdout);
        fwrite(&args.run.used, sizeof args.run.used, 1, stdout);
        fwrite(out.at, element, M * N, stdout);
        fflush(stdout);
        const fenced all[] = {a, weights, scales, out, room, tables};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            munmap(all[i].pages, all[i].length);
    }
    return 0;
}
