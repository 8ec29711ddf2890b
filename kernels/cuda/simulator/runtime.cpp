// Runtime of the CUDA simulator: runs the threads of a block as fibers and checks every memory access.
//
// Kernels are compiled with -fsanitize=thread and linked with this file in place of libtsan. g++ then calls
// __tsan_read4(address) and similar hooks before each access that is not to a plain local variable. The hooks use:
//
//   state   one byte for each byte of device and shared memory: outside, freed, never written, written. A read is a
//           fault only if none of its bytes was ever written, because compilers read unused bytes of a word (padding
//           between members, tails)
//   stamps  the last accesses to a word (thread, time), see Stamp
//
// The time is an epoch, which rises at every barrier and at every new block, and within an epoch a clock of each lane,
// raised by __syncwarp. seen[a][b] is the last clock of lane b that a knows (a vector clock). An access is ordered
// before the current thread's if its epoch is over, or if the current thread has seen a later clock of that lane.
//
// Shared memory has exact stamps for each byte: the last writer, the last atomic operation, the last reader, and the
// last reader of another warp. Words that are only accessed as a whole have one set of stamps. Device memory has the
// last writer of each word. Races between blocks are not checked, because a grid has orders (fences with atomics) that
// this does not track.

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
#define PC __builtin_return_address(0)
#define RARE __attribute__((noinline, cold))

namespace {

constexpr unsigned WARP = 32, MOST_THREADS = 1024;
constexpr uintptr_t STACK_BYTES = 256 << 10, STATIC_BYTES = 4 << 20, WINDOW_BYTES = 8 << 20;

enum State : uint8_t { OUTSIDE, FREED, UNWRITTEN, WRITTEN };
enum Kind : unsigned { READ = 0, WRITE = 1, ATOMIC = 3 };  // bit 0: it writes
enum Op : unsigned {
    SYNCWARP,
    SHUFFLE,
    BALLOT,
    ANY,
    ALL,
    ADD,
    MIN,
    MAX,
    MINS,
    MAXS,
    AND,
    OR,
    XOR,
    MATCH_ANY,
    MATCH_ALL,
    CALL,
    ACTIVE
};
const char* const OP_NAMES[] = {"__syncwarp",        "__shfl_sync",       "__ballot_sync",     "__any_sync",
                                "__all_sync",        "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
                                "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync",
                                "__reduce_xor_sync", "__match_any_sync",  "__match_all_sync",  "a wmma operation",
                                "__activemask"};
enum Barrier : unsigned { BARRIER, BARRIER_COUNT, BARRIER_AND, BARRIER_OR };
const char* const BARRIER_NAMES[] = {"__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or"};

struct Dim {
    uint32_t x, y, z;
};

struct Fault {
    char text[512];
    uint64_t address, size;  // of the access; 0 without one
    uint64_t pc;             // within the module
    Dim block, thread;
};

struct Range {
    uint64_t offset, bytes;  // within the module's shared section
};

struct Launch {
    void (*entry)(void**);
    void** arguments;
    Dim grid, block;
    uint64_t dynamic_bytes, seed, seconds;
    uint64_t module_begin, module_end, shared_begin, shared_end;
    const Range* ranges;
    uint64_t range_count;
};

struct Record {  // one access; `address` in shared memory is an offset
    uint64_t pc, address;
    uint32_t block;
    uint16_t thread;
    uint8_t size, kind;
};
constexpr unsigned OF_SHARED = 4;  // beside a Kind

// A stamp: epoch << 32 | thread << 22 | clock << 3 | flags. A clock at its maximum counts as ordered.
using Stamp = uint64_t;
constexpr uint32_t MOST_CLOCK = (1 << 19) - 1;
constexpr Stamp SEVERAL = 1;  // other lanes of the warp made the same access at that time
constexpr Stamp APART = 2;    // another warp made it too in this epoch
constexpr unsigned thread_of(Stamp s) { return s >> 22 & (MOST_THREADS - 1); }
constexpr uint32_t clock_of(Stamp s) { return s >> 3 & MOST_CLOCK; }

struct Cell {
    Stamp writer, atomic, reader, other_reader;
};

struct Word : Cell {
    uint64_t split;  // the epoch in which bytes of it were accessed one by one
};

struct Thread {
    int fiber;
    bool exited;
    unsigned op, mask, argument;
    uint64_t value, result;
    void (*call)(void**);
    void* pc;
    Dim index;
};

// --- device memory ------------------------------------------------------------------------------------------------
uintptr_t arena, arena_bytes;
uint8_t* arena_state;
uint64_t* arena_writers;  // for each word epoch << 32 | thread << 22 | clock << 5 | atomic << 4 | bytes (a bit each)

// --- shared memory: [0, STATIC_BYTES) the module's static variables, then a window with the dynamic memory in its
// middle
uintptr_t window;  // of WINDOW_BYTES - STATIC_BYTES
uint8_t* shared_state;
Word* shared_words;
Cell* shared_bytes;

// --- the launch ---------------------------------------------------------------------------------------------------
Launch launch;
Fault fault_found;
bool faulted;
Dim block_index;
uint32_t block_number, epoch;
unsigned thread_count;
Thread threads[MOST_THREADS];
uint32_t seen[MOST_THREADS][WARP];
bool warp_clocked[MOST_THREADS / WARP];
uint32_t alive[MOST_THREADS / WARP], waiting[MOST_THREADS / WARP], wanting_active[MOST_THREADS / WARP];
Thread* now;
unsigned number;  // of `now` within its block
unsigned exited, arrived, barrier_kind, barrier_line, barrier_first, barrier_sum, barrier_result;
uint64_t patience;  // accesses until the next check of the time
timespec deadline;
std::vector<Record> records;
bool tracing, tracing_shared;  // the latter in the first block that runs: its accesses are many, and blocks are alike
size_t most_records;

// --- fibers -------------------------------------------------------------------------------------------------------
uintptr_t stacks;
void* fiber_sp[MOST_THREADS];
int free_fibers[MOST_THREADS], free_count, fibers_made, fiber_running;
void* main_sp;
uint16_t queue[2 * MOST_THREADS];
unsigned head, tail;

extern "C" void tritmark_switch(void** save, void* to) __attribute__((visibility("hidden")));
#if defined(__x86_64__)
asm(R"(
.text
.type tritmark_switch, @function
tritmark_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size tritmark_switch, . - tritmark_switch
)");
// words in a new fiber's frame, and the index of its start address
constexpr int SAVED = 8, RETURN = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.type tritmark_switch, %function
tritmark_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size tritmark_switch, . - tritmark_switch
)");
constexpr int SAVED = 20, RETURN = 11;
#else
#error "the simulator's fibers support only x86-64 and aarch64"
#endif

// Record a fault; only the first one counts.
__attribute__((format(printf, 4, 5))) void report(void* pc, uintptr_t address, size_t size, const char* format, ...) {
    if (faulted) return;
    faulted = true;
    va_list list;
    va_start(list, format);
    vsnprintf(fault_found.text, sizeof fault_found.text, format, list);
    va_end(list);
    fault_found.address = address;
    fault_found.size = size;
    fault_found.pc = reinterpret_cast<uintptr_t>(pc) - launch.module_begin;
    fault_found.block = block_index;
    fault_found.thread = now->index;
}

// A fault ends the launch: every fiber is abandoned.
template <class... Values>
[[noreturn]] RARE void fault(void* pc, uintptr_t address, size_t size, const char* format, Values... values) {
    report(pc, address, size, format, values...);
    void* left;
    tritmark_switch(&left, main_sp);
    __builtin_unreachable();
}

struct Name {
    char text[40];
};

Name name(unsigned thread) {
    Name made;
    const Dim& i = threads[thread].index;
    snprintf(made.text, sizeof made.text, "(%u, %u, %u)", i.x, i.y, i.z);
    return made;
}

void fiber_main();

int take_fiber() {
    if (free_count) return free_fibers[--free_count];
    // a guard page, so that an overflow is detected
    mprotect(reinterpret_cast<void*>(stacks + fibers_made * STACK_BYTES), 4096, PROT_NONE);
    // Stacks begin at different offsets in a page; otherwise they would compete for a few cache lines.
    auto top = reinterpret_cast<void**>(stacks + (fibers_made + 1) * STACK_BYTES - fibers_made * 320 % 32768 / 64 * 64);
    top -= SAVED;
    top[RETURN] = reinterpret_cast<void*>(&fiber_main);
    fiber_sp[fibers_made] = top;
    return fibers_made++;
}

void push(unsigned thread) { queue[tail++ % (2 * MOST_THREADS)] = thread; }

void become(unsigned thread) {
    number = thread;
    now = &threads[thread];
}

// Switch to the next thread of the queue, or to the main loop if it is empty.
void next(void** save) {
    void* to = main_sp;
    if (head != tail) {
        const unsigned thread = queue[head % (2 * MOST_THREADS)];
        if (threads[thread].fiber >= 0) {
            head++;
            become(thread);
            fiber_running = now->fiber;
        } else {
            fiber_running = take_fiber();
        }
        to = fiber_sp[fiber_running];
    }
    tritmark_switch(save, to);
}

void wait() { next(&fiber_sp[now->fiber]); }

// --- warps --------------------------------------------------------------------------------------------------------

// Whether the operation has no result if a lane of its mask has exited. Votes and __syncwarp are defined for all lanes
// that have not exited.
bool exchanges(unsigned op) { return op == SHUFFLE || op >= ADD; }

void join_clocks(unsigned first, uint32_t lanes) {
    uint32_t joined[WARP] = {};
    for (unsigned lane = 0; lane < WARP; lane++)
        if (lanes >> lane & 1)
            for (unsigned i = 0; i < WARP; i++)
                joined[i] = joined[i] > seen[first + lane][i] ? joined[i] : seen[first + lane][i];
    for (unsigned lane = 0; lane < WARP; lane++)
        if (lanes >> lane & 1 && joined[lane] < MOST_CLOCK) joined[lane]++;
    for (unsigned lane = 0; lane < WARP; lane++)
        if (lanes >> lane & 1) memcpy(seen[first + lane], joined, sizeof joined);
    warp_clocked[first / WARP] = true;
}

// Compute the result of each lane from the values of all.
void compute(unsigned op, Thread* lane, uint32_t lanes) {
    const unsigned leader = __builtin_ctz(lanes);
    uint32_t ballot = 0, same = 0, all = static_cast<uint32_t>(lane[leader].value);
    for (unsigned i = 0; i < WARP; i++) {
        if (!(lanes >> i & 1)) continue;
        ballot |= (lane[i].value != 0) * (1u << i);
        same |= (lane[i].value == lane[leader].value) * (1u << i);
        if (i == leader) continue;
        const auto value = static_cast<uint32_t>(lane[i].value);
        switch (op) {
        case ADD: all += value; break;
        case MIN: all = value < all ? value : all; break;
        case MAX: all = value > all ? value : all; break;
        case MINS: all = static_cast<int32_t>(value) < static_cast<int32_t>(all) ? value : all; break;
        case MAXS: all = static_cast<int32_t>(value) > static_cast<int32_t>(all) ? value : all; break;
        case AND: all &= value; break;
        case OR: all |= value; break;
        case XOR: all ^= value; break;
        default: break;
        }
    }
    for (unsigned i = 0; i < WARP; i++) {
        if (!(lanes >> i & 1)) continue;
        uint64_t& result = lane[i].result;
        const unsigned from = lane[i].argument;
        switch (op) {
        case SHUFFLE:
            // The value of a lane outside the mask is undefined, so return an unlikely one.
            result = lanes >> from & 1 ? lane[from].value : 0xBADBADBADBADBADBu;
            break;
        case BALLOT: result = ballot; break;
        case ANY: result = ballot != 0; break;
        case ALL: result = ballot == lanes; break;
        case MATCH_ANY:
            result = 0;
            for (unsigned j = 0; j < WARP; j++)
                result |= (lanes >> j & 1 && lane[j].value == lane[i].value) * (uint64_t{1} << j);
            break;
        case MATCH_ALL: result = same == lanes ? lanes : 0; break;
        default: result = all;
        }
    }
}

// If all lanes of the mask that have not exited are there: compute, and let the others continue.
bool complete(unsigned warp, uint32_t mask, unsigned op) {
    const uint32_t lanes = mask & alive[warp];
    if ((waiting[warp] & lanes) != lanes) return false;
    Thread* const lane = threads + warp * WARP;
    for (uint32_t left = lanes; left; left &= left - 1)
        if (const Thread& other = lane[__builtin_ctz(left)]; other.op != op || other.mask != mask) return false;
    if (op == SYNCWARP) {
        join_clocks(warp * WARP, lanes);
    } else if (op == CALL) {
        void* frames[WARP];
        for (unsigned i = 0; i < WARP; i++) frames[i] = reinterpret_cast<void*>(lane[i].value);
        lane[__builtin_ctz(lanes)].call(frames);
    } else {
        compute(op, lane, lanes);
    }
    waiting[warp] &= ~lanes;
    for (unsigned i = 0; i < WARP; i++)
        if (lanes >> i & 1 && &lane[i] != now) push(warp * WARP + i);
    return true;
}

uint64_t warp_op(unsigned op, uint32_t mask, uint64_t value, unsigned argument, void (*call)(void**), void* pc) {
    const unsigned warp = number / WARP, self = number % WARP;
    if (!(mask >> self & 1))
        fault(pc, 0, 0, "the mask %#x of %s does not name the calling lane (%u)", mask, OP_NAMES[op], self);
    if (exchanges(op) && mask & ~alive[warp]) {
        const unsigned gone = __builtin_ctz(mask & ~alive[warp]);
        fault(pc, 0, 0, "the mask %#x of %s names lane %u, which has exited or does not exist", mask, OP_NAMES[op],
              gone);
    }
    // Two lanes that wait for each other in different operations wait forever. Lanes that wait in this operation were
    // compared before.
    for (uint32_t left = mask & waiting[warp]; left; left &= left - 1) {
        const unsigned lane = __builtin_ctz(left);
        const Thread& other = threads[warp * WARP + lane];
        if (other.op == op && other.mask == mask) break;
        if (other.mask >> self & 1)
            fault(pc, 0, 0, "divergent warp: %s with mask %#x; lane %u waits in %s with mask %#x", OP_NAMES[op], mask,
                  lane, OP_NAMES[other.op], other.mask);
    }
    now->op = op;
    now->mask = mask;
    now->value = value;
    now->argument = argument;
    now->call = call;
    now->pc = pc;
    waiting[warp] |= 1u << self;
    if (!complete(warp, mask, op)) wait();
    return now->result;
}

// No thread can continue. Lanes in __activemask get the lanes at the same place as their result; otherwise it is a
// deadlock.
bool resolve_active() {
    bool any = false;
    for (unsigned i = 0; i < thread_count; i++) {
        uint32_t& wanting = wanting_active[i / WARP];
        if (!(wanting >> i % WARP & 1)) continue;
        Thread* const lane = threads + i / WARP * WARP;
        uint32_t together = 0;
        for (unsigned j = 0; j < WARP; j++) together |= (wanting >> j & 1 && lane[j].pc == threads[i].pc) * (1u << j);
        for (uint32_t left = together; left; left &= left - 1) {
            lane[__builtin_ctz(left)].result = together;
            push(i / WARP * WARP + __builtin_ctz(left));
        }
        wanting &= ~together;
        any = true;
    }
    return any;
}

// --- blocks -------------------------------------------------------------------------------------------------------

void new_epoch() {
    if (++epoch == 0) {  // once in 2^32: forget all stamps
        madvise(arena_writers, arena_bytes * 2, MADV_DONTNEED);
        madvise(shared_words, WINDOW_BYTES / 4 * sizeof(Word), MADV_DONTNEED);
        madvise(shared_bytes, WINDOW_BYTES * sizeof(Cell), MADV_DONTNEED);
        epoch = 1;
    }
    for (unsigned warp = 0; warp * WARP < thread_count; warp++) {
        if (warp_clocked[warp]) memset(seen[warp * WARP], 0, sizeof seen[0] * WARP);
        warp_clocked[warp] = false;
    }
}

unsigned barrier(unsigned kind, unsigned predicate, unsigned line, void* pc) {
    if (exited)
        fault(pc, 0, 0, "divergent barrier: %u threads of the block have exited and the others reach %s", exited,
              BARRIER_NAMES[kind]);
    if (!arrived) {
        barrier_kind = kind;
        barrier_line = line;
        barrier_first = number;
        barrier_sum = 0;
    } else if (barrier_kind != kind || barrier_line != line) {
        fault(pc, 0, 0, "divergent barrier: the thread is at %s in line %u, thread %s waits at %s in line %u",
              BARRIER_NAMES[kind], line, name(barrier_first).text, BARRIER_NAMES[barrier_kind], barrier_line);
    }
    barrier_sum += predicate != 0;
    if (++arrived < thread_count) {
        now->pc = pc;
        wait();
        return barrier_result;
    }
    barrier_result = kind == BARRIER_COUNT ? barrier_sum
                     : kind == BARRIER_AND ? barrier_sum == thread_count
                                           : barrier_sum != 0;
    arrived = 0;
    new_epoch();
    for (unsigned i = thread_count; i-- > 0;)
        if (i != number) push(i);
    return barrier_result;
}

void leave() {
    const unsigned warp = number / WARP;
    now->exited = true;
    now->fiber = -1;
    exited++;
    alive[warp] &= ~(1u << number % WARP);
    if (arrived)
        fault(threads[barrier_first].pc, 0, 0,
              "divergent barrier: the thread has exited while thread %s waits at %s in line %u",
              name(barrier_first).text, BARRIER_NAMES[barrier_kind], barrier_line);
    for (uint32_t left = waiting[warp]; left; left &= left - 1) {
        const Thread& other = threads[warp * WARP + __builtin_ctz(left)];
        if (!(waiting[warp] & 1u << __builtin_ctz(left)) || !(other.mask >> number % WARP & 1)) continue;
        if (exchanges(other.op))
            fault(other.pc, 0, 0, "the mask %#x of %s, in which thread %s waits, names this thread, which has exited",
                  other.mask, OP_NAMES[other.op], name(warp * WARP + __builtin_ctz(left)).text);
        complete(warp, other.mask, other.op);
    }
}

void fiber_main() {
    for (;;) {
        const int self = fiber_running;
        while (head != tail && threads[queue[head % (2 * MOST_THREADS)]].fiber < 0) {
            become(queue[head++ % (2 * MOST_THREADS)]);
            now->fiber = self;
            launch.entry(launch.arguments);
            leave();
        }
        free_fibers[free_count++] = self;
        next(&fiber_sp[self]);
    }
}

uint64_t random_state;
uint32_t random_below(uint32_t bound) {  // xorshift64*
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (random_state * 0x2545F4914F6CDD1Du >> 32) * bound >> 32;
}

void deadlock() {
    for (unsigned i = 0; i < thread_count; i++) {
        if (threads[i].exited || !(waiting[i / WARP] >> i % WARP & 1)) continue;
        become(i);
        const uint32_t missing = now->mask & alive[i / WARP] & ~waiting[i / WARP];
        const unsigned lane = missing ? __builtin_ctz(missing) : 0;
        report(now->pc, 0, 0, "deadlock: the thread waits in %s with mask %#x for lane %u, which waits elsewhere%s",
               OP_NAMES[now->op], now->mask, lane, arrived ? " (threads of the block are at a barrier)" : "");
        return;
    }
    become(barrier_first);
    report(now->pc, 0, 0, "deadlock: the thread waits at %s", BARRIER_NAMES[barrier_kind]);
}

bool run_block() {
    new_epoch();
    exited = arrived = head = tail = 0;
    for (unsigned warp = 0; warp * WARP < thread_count; warp++) {
        const unsigned lanes = thread_count - warp * WARP;
        alive[warp] = lanes < WARP ? (1u << lanes) - 1 : ~0u;
        waiting[warp] = wanting_active[warp] = 0;
    }
    for (unsigned i = 0; i < thread_count; i++) {
        threads[i].fiber = -1;
        threads[i].exited = false;
        const unsigned j = random_below(i + 1);
        queue[i] = queue[j];
        queue[j] = i;
    }
    tail = thread_count;
    for (uint64_t i = 0; i < launch.range_count; i++)
        memset(shared_state + launch.ranges[i].offset, UNWRITTEN, launch.ranges[i].bytes);
    memset(shared_state + (WINDOW_BYTES + STATIC_BYTES) / 2, UNWRITTEN, launch.dynamic_bytes);
    do {
        next(&main_sp);
        if (faulted) return false;
    } while (resolve_active());
    if (exited < thread_count) deadlock();
    return !faulted;
}

// --- accesses -----------------------------------------------------------------------------------------------------

const char* verb(unsigned kind) { return kind == READ ? "read" : kind == WRITE ? "write" : "atomic operation"; }

// Whether another thread left that stamp and no synchronization orders it before the current thread.
inline bool unordered(Stamp s) {
    if (s >> 32 != epoch) return false;
    if (s & APART) return true;
    const unsigned thread = thread_of(s);
    const uint32_t clock = clock_of(s);
    if (thread == number) return s & SEVERAL && clock == seen[number][number % WARP] && clock != MOST_CLOCK;
    return thread / WARP != number / WARP || (seen[number][thread % WARP] <= clock && clock != MOST_CLOCK);
}

RARE void race(void* pc, uintptr_t address, unsigned bytes, unsigned kind, Stamp s, const char* earlier,
               const char* memory) {
    fault(pc, address, bytes, "race on %s memory: %s of %u bytes that %s %s without a %s between", memory, verb(kind),
          bytes, thread_of(s) == number ? "another thread" : name(thread_of(s)).text, earlier,
          thread_of(s) / WARP == number / WARP && !(s & APART) ? "__syncwarp or barrier" : "barrier");
}

inline void judge(const Cell& cell, uintptr_t address, unsigned bytes, unsigned kind, void* pc) {
    if (unordered(cell.writer)) race(pc, address, bytes, kind, cell.writer, "has written", "shared");
    if (kind != ATOMIC && unordered(cell.atomic)) race(pc, address, bytes, kind, cell.atomic, "has written", "shared");
    if (kind == READ) return;
    if (unordered(cell.reader)) race(pc, address, bytes, kind, cell.reader, "has read", "shared");
    if (unordered(cell.other_reader)) race(pc, address, bytes, kind, cell.other_reader, "has read", "shared");
}

inline void stamp(Cell& cell, unsigned kind, Stamp mine) {
    if (kind == WRITE) {
        cell.writer = mine;
        return;
    }
    Stamp& last = kind == READ ? cell.reader : cell.atomic;
    const bool this_epoch = last >> 32 == epoch, same_warp = thread_of(last) / WARP == number / WARP;
    if (same_warp && unordered(last)) mine |= SEVERAL;
    if (kind == READ && this_epoch && !same_warp) cell.other_reader = last;
    if (kind == ATOMIC && this_epoch && (!same_warp || last & APART)) mine |= APART;
    last = mine;
}

inline void trace(uintptr_t address, unsigned bytes, unsigned kind, void* pc) {
    if (records.size() < most_records)
        records.push_back({reinterpret_cast<uintptr_t>(pc) - launch.module_begin, address, block_number,
                           static_cast<uint16_t>(number), static_cast<uint8_t>(bytes), static_cast<uint8_t>(kind)});
}

void shared_access(uintptr_t at, uintptr_t address, unsigned bytes, unsigned kind, void* pc) {
    const Stamp mine = uint64_t{epoch} << 32 | number << 22 | seen[number][number % WARP] << 3;
    for (unsigned done = 0; done < bytes; done += 4) {
        Word& word = shared_words[(at + done) / 4];
        judge(word, address, bytes, kind, pc);
        if (bytes >= 4) {
            if (word.split == epoch)
                for (unsigned i = 0; i < 4; i++) judge(shared_bytes[at + done + i], address, bytes, kind, pc);
            stamp(word, kind, mine);
        } else {
            word.split = epoch;
            for (unsigned i = 0; i < bytes; i++) {
                judge(shared_bytes[at + i], address, bytes, kind, pc);
                stamp(shared_bytes[at + i], kind, mine);
            }
        }
    }
    if (tracing_shared) trace(at, bytes, kind | OF_SHARED, pc);
}

void global_access(uintptr_t at, uintptr_t address, unsigned bytes, unsigned kind, void* pc) {
    const uint64_t mine =
        uint64_t{epoch} << 32 | number << 22 | (seen[number][number % WARP] & 0x1FFFF) << 5 | (kind == ATOMIC) << 4;
    const uint64_t touched = bytes < 4 ? ((1u << bytes) - 1) << (at & 3) : 15;
    for (unsigned done = 0; done < bytes; done += 4) {
        uint64_t& last = arena_writers[(at + done) / 4];
        if (last >> 32 == epoch && last & touched) {
            const Stamp s = (last >> 22) << 22 | (last >> 5 & 0x1FFFF) << 3;
            if (unordered(s) && !(last & 16 && kind != WRITE))
                race(pc, address, bytes, kind, s, "has written", "device");
        }
        if (kind != READ) last = mine | touched | ((last ^ mine) >> 4 ? 0 : last & 15);
    }
    if (tracing) trace(address, bytes, kind, pc);
}

RARE void refuse(const uint8_t* state, uintptr_t address, unsigned bytes, unsigned kind, void* pc, const char* memory) {
    for (unsigned i = 0; i < bytes; i++)
        if (state[i] == FREED)
            fault(pc, address, bytes, "%s of %u bytes of %s memory that was freed", verb(kind), bytes, memory);
    fault(pc, address, bytes, "out-of-bounds %s of %u bytes of %s memory", verb(kind), bytes, memory);
}

// Check bounds and content: within memory, and for a read at least one byte that was ever written.
template <class Bits>
inline void examine(uint8_t* state, uintptr_t address, unsigned bytes, unsigned kind, void* pc, const char* memory) {
    constexpr Bits ONES = static_cast<Bits>(~Bits{0}) / 255;
    Bits bits;
    memcpy(&bits, state, sizeof bits);
    if (bits == ONES * WRITTEN) return;
    if ((bits & ONES * 2) != ONES * 2) refuse(state, address, bytes, kind, pc, memory);
    if (kind == READ || kind == ATOMIC) {
        if (bits == ONES * UNWRITTEN)
            fault(pc, address, bytes, "%s of %u bytes of %s memory that was never written", verb(kind), bytes, memory);
        if (kind == READ) return;
    }
    memset(state, WRITTEN, bytes);
}

inline void examine(uint8_t* state, uintptr_t address, unsigned bytes, unsigned kind, void* pc, const char* memory) {
    switch (bytes) {
    case 1: return examine<uint8_t>(state, address, bytes, kind, pc, memory);
    case 2: return examine<uint16_t>(state, address, bytes, kind, pc, memory);
    case 4: return examine<uint32_t>(state, address, bytes, kind, pc, memory);
    case 8: return examine<uint64_t>(state, address, bytes, kind, pc, memory);
    default: return examine<unsigned __int128>(state, address, bytes, kind, pc, memory);
    }
}

RARE void look_at_time(void* pc) {
    patience = 1 << 20;
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    if (time.tv_sec > deadline.tv_sec)
        fault(pc, 0, 0, "the kernel has not ended after %u seconds", static_cast<unsigned>(launch.seconds));
}

// Check one access of 1, 2, 4, 8 or 16 bytes before it happens.
inline void access(const void* pointer, unsigned bytes, unsigned kind, void* pc) {
    if (!now) return;  // the module is being loaded
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    if (address - stacks < STACK_BYTES * MOST_THREADS) return;
    if (!--patience) look_at_time(pc);
    const bool in_arena = address - arena < arena_bytes, in_window = address - window < WINDOW_BYTES - STATIC_BYTES;
    const bool in_static = address - launch.shared_begin < launch.shared_end - launch.shared_begin;
    if (!in_arena && !in_window && !in_static) {
        // a constant
        if (address - launch.module_begin < launch.module_end - launch.module_begin && kind == READ) return;
        fault(pc, address, bytes, "out-of-bounds %s of %u bytes, outside all device memory", verb(kind), bytes);
    }
    if (address & (bytes - 1))
        fault(pc, address, bytes, "misaligned %s of %u bytes of %s memory", verb(kind), bytes,
              in_arena ? "device" : "shared");
    if (in_arena) {
        examine(arena_state + (address - arena), address, bytes, kind, pc, "device");
        global_access(address - arena, address, bytes, kind, pc);
    } else {
        const uintptr_t at = in_window ? address - window + STATIC_BYTES : address - launch.shared_begin;
        examine(shared_state + at, address, bytes, kind, pc, "shared");
        shared_access(at, address, bytes, kind, pc);
    }
}

// An access without guaranteed alignment, or of another size: in parts.
void access_range(const void* pointer, size_t bytes, unsigned kind, void* pc) {
    auto address = reinterpret_cast<uintptr_t>(pointer);
    while (bytes) {
        unsigned piece = 16;
        while (piece > bytes || address & (piece - 1)) piece /= 2;
        access(reinterpret_cast<void*>(address), piece, kind, pc);
        address += piece;
        bytes -= piece;
    }
}

void* reserve(size_t bytes) {
    void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return made == MAP_FAILED ? nullptr : made;
}

}  // namespace

// --- hooks for g++ ------------------------------------------------------------------------------------------------
#define HOOKS(bytes)                                                                     \
    API void __tsan_read##bytes(void* p) { access(p, bytes, READ, PC); }                 \
    API void __tsan_write##bytes(void* p) { access(p, bytes, WRITE, PC); }               \
    API void __tsan_unaligned_read##bytes(void* p) { access_range(p, bytes, READ, PC); } \
    API void __tsan_unaligned_write##bytes(void* p) { access_range(p, bytes, WRITE, PC); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
API void __tsan_read_range(void* p, size_t bytes) { access_range(p, bytes, READ, PC); }
API void __tsan_write_range(void* p, size_t bytes) { access_range(p, bytes, WRITE, PC); }
API void __tsan_init() {}

// --- functions for the headers under include/ ---------------------------------------------------------------------
API Dim tritmark_thread_index() { return now->index; }
API Dim tritmark_block_index() { return block_index; }
API Dim tritmark_block_dim() { return launch.block; }
API Dim tritmark_grid_dim() { return launch.grid; }
API void* tritmark_dynamic_shared() { return reinterpret_cast<void*>(window + (WINDOW_BYTES - STATIC_BYTES) / 2); }
API unsigned tritmark_barrier(unsigned kind, unsigned predicate, unsigned line) {
    return barrier(kind, predicate, line, PC);
}
API uint64_t tritmark_warp(unsigned op, unsigned mask, uint64_t value, unsigned argument) {
    return warp_op(op, mask, value, argument, nullptr, PC);
}
API void tritmark_together(void (*call)(void**), void* frame, void* pc) {
    warp_op(CALL, ~0u, reinterpret_cast<uintptr_t>(frame), 0, call, pc ? pc : PC);
}
API void tritmark_access(const void* p, unsigned bytes, unsigned kind, void* pc) {
    if (bytes > 16 || bytes & (bytes - 1)) access_range(p, bytes, kind, pc);
    else access(p, bytes, kind, pc);
}
API unsigned tritmark_activemask() {
    wanting_active[number / WARP] |= 1u << number % WARP;
    now->pc = PC;
    wait();
    return now->result;
}
API void tritmark_refuse(const char* what, const void* address, void* pc) {
    fault(pc, reinterpret_cast<uintptr_t>(address), 0, "%s", what);
}

// --- functions for Python -----------------------------------------------------------------------------------------

// Reserve `bytes` of device memory and its shadow state. Returns its address, or 0 if the system refuses.
API uint64_t tritmark_begin(uint64_t bytes) {
    arena_bytes = bytes;
    arena = reinterpret_cast<uintptr_t>(reserve(bytes));
    arena_state = static_cast<uint8_t*>(reserve(bytes + 16));
    arena_writers = static_cast<uint64_t*>(reserve(bytes * 2));
    window = reinterpret_cast<uintptr_t>(reserve(WINDOW_BYTES - STATIC_BYTES));
    shared_state = static_cast<uint8_t*>(reserve(WINDOW_BYTES + 16));
    shared_words = static_cast<Word*>(reserve(WINDOW_BYTES / 4 * sizeof(Word)));
    shared_bytes = static_cast<Cell*>(reserve(WINDOW_BYTES * sizeof(Cell)));
    stacks = reinterpret_cast<uintptr_t>(reserve(STACK_BYTES * MOST_THREADS));
    return arena_state && arena_writers && window && shared_state && shared_words && shared_bytes && stacks ? arena : 0;
}

API void tritmark_allocate(uint64_t pointer, uint64_t bytes, int poison) {
    memset(reinterpret_cast<void*>(pointer), poison, bytes);
    memset(arena_state + (pointer - arena), UNWRITTEN, bytes);
}

API void tritmark_written(uint64_t pointer, uint64_t bytes) { memset(arena_state + (pointer - arena), WRITTEN, bytes); }

API void tritmark_free(uint64_t pointer, uint64_t bytes) {
    memset(arena_state + (pointer - arena), FREED, bytes);
    const uintptr_t page = 4096, first = (pointer + page - 1) / page * page, last = (pointer + bytes) / page * page;
    if (first < last) {
        madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
        madvise(reinterpret_cast<uint8_t*>(arena_writers) + (first - arena) * 2, (last - first) * 2, MADV_DONTNEED);
    }
}

// Bit 0: record accesses to device memory. Bit 1: those to shared memory, of one block.
API void tritmark_trace(int on, uint64_t most) {
    tracing = on & 1;
    tracing_shared = on & 2;
    most_records = most;
    records.clear();
}

API const Record* tritmark_records(uint64_t* count) {
    *count = records.size();
    return records.data();
}

// Begin and end of the module that contains an address.
API void tritmark_module(const void* address, uint64_t* begin, uint64_t* end) {
    Dl_info info;
    dladdr(address, &info);
    *begin = *end = reinterpret_cast<uintptr_t>(info.dli_fbase);
    const auto head = static_cast<const Elf64_Ehdr*>(info.dli_fbase);
    const auto parts = reinterpret_cast<const Elf64_Phdr*>(*begin + head->e_phoff);
    for (unsigned i = 0; i < head->e_phnum; i++) {
        const uint64_t last = *begin + parts[i].p_vaddr + parts[i].p_memsz;
        if (parts[i].p_type == PT_LOAD && last > *end) *end = last;
    }
}

// Run a grid. Returns 0, or 1 with the fault.
API int tritmark_launch(const Launch* wanted, Fault* found) {
    launch = *wanted;
    faulted = false;
    tail = head = 0;
    patience = 1 << 20;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += launch.seconds;
    const Dim block = launch.block, grid = launch.grid;
    thread_count = block.x * block.y * block.z;
    for (unsigned i = 0; i < thread_count; i++)
        threads[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    become(0);
    memset(shared_state, OUTSIDE, launch.shared_end - launch.shared_begin);
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    random_state = launch.seed * 0x9E3779B97F4A7C15u + 0xD1B54A32D192ED03u;
    if (!random_state) random_state = 1;
    uint64_t step = random_below(blocks < 0xFFFFFFFF ? static_cast<uint32_t>(blocks) : 0xFFFFFFFF) | 1;
    const auto shares_factor = [](uint64_t a, uint64_t b) {
        while (b) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        return a > 1;
    };
    while (shares_factor(step, blocks)) step += 2;
    uint64_t at = random_below(blocks < 0xFFFFFFFF ? static_cast<uint32_t>(blocks) : 0xFFFFFFFF);
    bool fine = true;
    for (uint64_t i = 0; fine && i < blocks; i++, at = (at + step) % blocks) {
        block_number = static_cast<uint32_t>(at);
        const uint64_t row = at / grid.x;
        block_index = {static_cast<uint32_t>(at % grid.x), static_cast<uint32_t>(row % grid.y),
                       static_cast<uint32_t>(row / grid.y)};
        fine = run_block();
        tracing_shared = false;
    }
    memset(shared_state + (WINDOW_BYTES + STATIC_BYTES) / 2, OUTSIDE, launch.dynamic_bytes);
    if (!fine) free_count = fibers_made = 0;  // they are abandoned
    now = nullptr;
    if (!fine) *found = fault_found;
    return !fine;
}
