/* CPUID traps (arch_prctl, "CPUID faulting" of the processor or the hypervisor), and a handler of SIGSEGV answers it
 * without the masked bits. This covers every CPUID in the process: inline, in __get_cpuid, in libgcc's
 * __cpu_indicator_init behind __builtin_cpu_supports and target_clones, in resolvers of indirect functions, in
 * libraries that are opened later. If it does not trap, code whose CPUID was replaced by another instruction traps with
 * SIGILL. */
#define _GNU_SOURCE
#include "masking.h"
#include "bits.h"

#include <errno.h>

const char *tm_step_name(size_t index)
{
#define NAME(step) #step,
    static const char *const names[] = {TM_STEPS(NAME)};
    return index < sizeof names / sizeof *names ? names[index] : NULL;
}

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012 }; /* ARCH_SET_CPUID of asm/prctl.h */

#define STEP(step) STEP_##step,
enum { TM_STEPS(STEP) STEPS };

static const struct row {
    int step;
    uint32_t leaf, subleaf;
    int reg, bit;
    const char *name;
} rows[] = {
#define ROW(step, leaf, subleaf, reg, bit, name) {STEP_##step, leaf, subleaf, reg, bit, name},
    TM_BITS(ROW)};
enum { ROWS = sizeof rows / sizeof *rows };

static const uint32_t signatures[STEPS] = {
#define SIGNATURE(step, value) [STEP_##step] = value,
    TM_SIGNATURES(SIGNATURE)};

static int held = 0; /* the step to which the process is limited */
static int intel = 0; /* whether the processor is Intel's */
static int traps = 1; /* whether CPUID traps */
static struct sigaction before[2]; /* of SIGSEGV, and of SIGILL */

/* The processor's answer; CPUID must not trap. */
static void ask(uint32_t leaf, uint32_t subleaf, uint32_t out[4])
{
    __cpuid_count(leaf, subleaf, out[TM_EAX], out[TM_EBX], out[TM_ECX], out[TM_EDX]);
}

static void take_away(uint32_t leaf, uint32_t subleaf, uint32_t out[4])
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].step < held && rows[i].leaf == leaf && (rows[i].subleaf == subleaf || leaf == 1 || leaf >> 31))
            out[rows[i].reg] &= ~(1u << rows[i].bit);
    /* AMX's tiles and products, and AVX10's version, have leaves of their own. */
    if ((held > STEP_amx && (leaf == 0x1d || leaf == 0x1e)) || (held > STEP_avx512 && leaf == 0x24))
        memset(out, 0, 4 * sizeof *out);
}

tm_bit tm_bit_at(size_t index)
{
    uint32_t out[4] = {0};
    if (index >= ROWS)
        return (tm_bit){0, NULL, 0};
    const struct row *row = &rows[index];
    if (__get_cpuid_max(row->leaf & 0x80000000u, NULL) >= row->leaf)
        ask(row->leaf, row->subleaf, out);
    return (tm_bit){(size_t)row->step, row->name, (int)(out[row->reg] >> row->bit & 1)};
}

int tm_masking_missing(void) { return syscall(SYS_arch_prctl, SET_CPUID, 1) ? errno : 0; }

/* Bytes of the instruction there, including ignored prefixes; 0 for another instruction. */
static int length_of(const uint8_t *code, uint8_t first, uint8_t second)
{
    int n = 0;
    while (n < 13 && (code[n] == 0x66 || code[n] == 0x67 || code[n] == 0xf2 || code[n] == 0xf3 || code[n] >> 4 == 4))
        n++;
    return code[n] == first && code[n + 1] == second ? n + 2 : 0;
}

static void answer(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    int length = 0;
    if (number == SIGILL)
        length = length_of(code, TM_STAND_IN, TM_STAND_IN_2);
    else if (info->si_code == SI_KERNEL)
        length = length_of(code, 0x0f, 0xa2);
    if (!length) { /* a fault of the code's own: repeat it with the previous handler */
        sigaction(number, &before[number == SIGILL], NULL);
        return;
    }
    uint32_t leaf = (uint32_t)registers[REG_RAX], subleaf = (uint32_t)registers[REG_RCX], out[4];
    if (traps)
        syscall(SYS_arch_prctl, SET_CPUID, 1);
    ask(leaf, subleaf, out);
    if (traps)
        syscall(SYS_arch_prctl, SET_CPUID, 0);
    take_away(leaf, subleaf, out);
    if (leaf == 1 && intel)
        out[TM_EAX] = signatures[held];
    registers[REG_RAX] = out[TM_EAX], registers[REG_RBX] = out[TM_EBX];
    registers[REG_RCX] = out[TM_ECX], registers[REG_RDX] = out[TM_EDX];
    registers[REG_RIP] += length;
}

/* The C library queried the processor when the process began, so its functions are replaced in place. */

typedef struct leaf {
    uint32_t cpuid[4], active[4];
} leaf;

enum { LEAVES = 16, AUXILIARY = 64 };
static leaf leaves[LEAVES];
static uint32_t known;
static unsigned long auxiliary[2 * AUXILIARY];

static const leaf *leaf_of(uint32_t index)
{
    static const leaf none;
    return index < known ? &leaves[index] : &none;
}

static unsigned long auxiliary_of(unsigned long type)
{
    for (int i = 0; i < AUXILIARY && auxiliary[2 * i]; i++)
        if (auxiliary[2 * i] == type)
            return auxiliary[2 * i + 1];
    errno = ENOENT;
    return 0;
}

static int replace(void *function, void *by)
{
    uint8_t jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; /* movabs rax, by; jmp rax */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)function & ~(page - 1);
    size_t nbytes = (uintptr_t)function + sizeof jump - begin;
    memcpy(jump + 2, &by, sizeof by);
    if (mprotect((void *)begin, nbytes, PROT_READ | PROT_WRITE | PROT_EXEC))
        return errno;
    memcpy(function, jump, sizeof jump);
    return mprotect((void *)begin, nbytes, PROT_READ | PROT_EXEC) ? errno : 0;
}

/* glibc's leaves (sys/platform/x86.h), by their positions there. */
static int replace_leaves(void)
{
    static const uint32_t of[][2] = {{1, 0},          {7, 0},          {0x80000001, 0}, {13, 1},
                                     {0x80000007, 0}, {0x80000008, 0}, {7, 1}};
    const leaf *(*function)(uint32_t) = NULL;
    *(void **)&function = dlsym(RTLD_DEFAULT, "__x86_get_cpuid_feature_leaf");
    if (!function)
        return 0;
    for (known = 0; known < sizeof of / sizeof *of; known++) {
        const leaf *found = function(known);
        if (!found)
            break;
        leaves[known] = *found;
        take_away(of[known][0], of[known][1], leaves[known].cpuid);
        take_away(of[known][0], of[known][1], leaves[known].active);
    }
    return replace(*(void **)&function, (void *)leaf_of);
}

/* Linux's report of the processor: the first word is CPUID's of leaf 1, from which no step removes a bit. In the second
 * a bit permits access to the bases of FS and GS, which came between AVX and AVX2. */
static int replace_auxiliary(void)
{
    static const unsigned long types[] = {
        AT_HWCAP,       AT_HWCAP2, AT_PLATFORM, AT_BASE_PLATFORM, AT_PAGESZ, AT_CLKTCK,       AT_PHDR,
        AT_PHENT,       AT_PHNUM,  AT_BASE,     AT_FLAGS,         AT_ENTRY,  AT_UID,          AT_EUID,
        AT_GID,         AT_EGID,   AT_SECURE,   AT_RANDOM,        AT_EXECFN, AT_SYSINFO_EHDR,
#ifdef AT_MINSIGSTKSZ
        AT_MINSIGSTKSZ,
#endif
    };
    size_t at = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        errno = 0;
        unsigned long value = getauxval(types[i]);
        if (errno)
            continue;
        if (types[i] == AT_HWCAP2 && held > STEP_avx2)
            value = 0;
        auxiliary[at++] = types[i];
        auxiliary[at++] = value;
    }
    return replace((void *)getauxval, (void *)auxiliary_of);
}

int tm_masking_begin(size_t step, int trapping)
{
    struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (step >= STEPS || held)
        return EINVAL;
    uint32_t vendor[4];
    ask(0, 0, vendor);
    intel = vendor[TM_EBX] == signature_INTEL_ebx && vendor[TM_EDX] == signature_INTEL_edx && step > 0;
    held = (int)step;
    int status = replace_leaves();
    if (!status)
        status = replace_auxiliary();
    if (status)
        return status;
    ours.sa_sigaction = answer;
    sigemptyset(&ours.sa_mask);
    traps = trapping;
    if (!traps)
        return sigaction(SIGILL, &ours, &before[1]) ? errno : 0;
    return sigaction(SIGSEGV, &ours, &before[0]) || syscall(SYS_arch_prctl, SET_CPUID, 0) ? errno : 0;
}

#else

tm_bit tm_bit_at(size_t index) { return (void)index, (tm_bit){0, NULL, 0}; }
int tm_masking_missing(void) { return ENOSYS; }
int tm_masking_begin(size_t step, int trapping) { return (void)step, (void)trapping, ENOSYS; }

#endif
