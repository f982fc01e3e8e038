// Runs a grid: one block after the other, with the threads of a block as fibers, in a pseudo-random order seeded by
// LAPWING_SHIM_SEED (default 1). A thread runs until it waits for others: at a barrier, or at an operation of the whole warp. The
// next thread is then drawn at random. How long a warp may stay ahead of the others is drawn for each block, so that a missing
// barrier shows with some of the seeds. Each block gets new shared memory of exactly the requested size, filled with NaN.
#include "scheduler.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <mutex>
#include <thread>

#include "fiber.h"
#include "shim.h"

shim::Dim threadIdx, blockIdx, blockDim, gridDim;

namespace shim {
namespace {

constexpr unsigned MOST_THREADS = 1024, LANES = 32;
constexpr size_t MOST_SHARED = 227 << 10, CANARY = 128;
const char *const MEETINGS[] = {"__syncwarp", "shuffle_xor",  "shuffle_xor_int", "ldmatrix_x4", "ldmatrix_x4_trans",
                                "ldmatrix_x2", "mma_f16", "mma_tf32", "mma_s8"};

struct Warp {
    uint32_t runnable, ended; // masks of lanes
    unsigned arrived;         // lanes at the meeting
    Meeting meeting;
    // Where the search for the next lane begins, modulo 32. Below 32 the search goes upwards, else downwards.
    unsigned turn;
    void *operands[LANES];
};

struct State {
    Fiber host, fibers[MOST_THREADS];
    unsigned created = 0; // fibers that have a stack
    Warp warps[MOST_THREADS / LANES];
    const Kernel *kernel = nullptr; // null: no grid runs
    const void *args = nullptr;
    unsigned threads = 0, current = 0, at_barrier = 0, ended = 0;
    uint32_t ready = 0;   // warps with a lane that can run
    // After a meeting, the same warp continues in `patience` of 16 cases.
    unsigned patience = 0;
    Fiber *previous = nullptr;
    unsigned char *shared = nullptr;
    size_t shared_size = 0;
    Outcome outcome = DONE;
    char message[512] = "";
    uint64_t seed = 0, random = 1, launches = 0;
};
State state;
std::mutex mutex;

uint64_t draw() {
    uint64_t &x = state.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x * 0x2545f4914f6cdd1dull >> 20;
}

void go(unsigned thread) {
    Fiber &from = state.fibers[state.current];
    const bool ends = state.warps[state.current / LANES].ended >> state.current % LANES & 1;
    state.current = thread;
    threadIdx.x = thread;
    state.previous = &from;
    fiber_switch(from, state.fibers[thread], ends);
}

// No thread can run, but not all have ended: reports which threads wait where.
[[noreturn]] void stuck() {
    for (unsigned w = 0; w < state.threads / LANES; ++w) {
        const Warp &warp = state.warps[w];
        if (warp.arrived > 0)
            fail(LAUNCH_FAILED, "%u lanes of warp %u wait at %s for the others; %u threads wait at __syncthreads, %u have ended",
                 warp.arrived, w, MEETINGS[int(warp.meeting)], state.at_barrier, state.ended);
    }
    fail(LAUNCH_FAILED, "%u threads wait at __syncthreads, %u have ended", state.at_barrier, state.ended);
}

// The next thread: one of this warp if any of its lanes can run and `any` is false, else one of a random warp.
unsigned next(bool any) {
    unsigned w = state.current / LANES;
    if (any || state.warps[w].runnable == 0) {
        if (state.ready == 0) stuck();
        const unsigned turn = unsigned(draw()) % LANES;
        const uint32_t turned = turn == 0 ? state.ready : state.ready >> turn | state.ready << (LANES - turn);
        w = (unsigned(__builtin_ctz(turned)) + turn) % LANES;
    }
    const Warp &warp = state.warps[w];
    const unsigned turn = warp.turn % LANES;
    const uint32_t turned = turn == 0 ? warp.runnable : warp.runnable >> turn | warp.runnable << (LANES - turn);
    const unsigned lane = warp.turn < LANES ? unsigned(__builtin_ctz(turned)) : 31u - unsigned(__builtin_clz(turned));
    return w * LANES + (lane + turn) % LANES;
}

void stop_lane(Warp &warp) {
    warp.runnable &= ~(1u << state.current % LANES);
    if (warp.runnable == 0) state.ready &= ~(1u << state.current / LANES);
}

void thread_main() {
    fiber_entered(*state.previous);
    state.kernel->body(state.args);
    Warp &warp = state.warps[state.current / LANES];
    if (warp.arrived > 0)
        fail(LAUNCH_FAILED, "it ended while %u lanes of its warp wait at %s", warp.arrived, MEETINGS[int(warp.meeting)]);
    if (state.at_barrier > 0) fail(LAUNCH_FAILED, "it ended while %u threads wait at __syncthreads", state.at_barrier);
    warp.ended |= 1u << state.current % LANES;
    stop_lane(warp);
    if (++state.ended == state.threads) fiber_switch(state.fibers[state.current], state.host, true);
    go(next(false));
    abort(); // an ended thread goes on
}

void run_block() {
    const size_t room = state.shared_size + (state.shared_size > 0 ? CANARY : 0);
#if defined(__SANITIZE_ADDRESS__)
    const size_t bytes = state.shared_size;
    (void)room;
#else
    const size_t bytes = room;
#endif
    void *memory = nullptr;
    if (bytes > 0 && posix_memalign(&memory, 128, bytes) != 0) abort();
    if (bytes > 0) memset(memory, 0xff, bytes);
    state.shared = static_cast<unsigned char *>(memory);
    static const unsigned PATIENCE[] = {0, 8, 15, 16};
    state.patience = PATIENCE[draw() % 4];
    state.at_barrier = state.ended = 0;
    state.ready = 0;
    for (unsigned w = 0; w < state.threads / LANES; ++w) {
        Warp &warp = state.warps[w];
        warp.runnable = 0xffffffffu;
        warp.ended = warp.arrived = 0;
        warp.turn = unsigned(draw()) % 64;
        state.ready |= 1u << w;
    }
    for (unsigned t = 0; t < state.threads; ++t) fiber_reset(state.fibers[t], thread_main, t);
    reset_copies(state.threads);
    state.current = 0;
    state.current = next(true);
    threadIdx = {state.current, 0, 0};
    state.previous = &state.host;
    fiber_switch(state.host, state.fibers[state.current], false);
    if (state.outcome == DONE)
        for (size_t i = state.shared_size; i < bytes; ++i)
            if (state.shared[i] != 0xff) {
                snprintf(state.message, sizeof state.message, "shim: kernel %s, block (%u, %u): it wrote behind its %zu bytes of shared memory",
                         state.kernel->name, blockIdx.x, blockIdx.y, state.shared_size);
                fprintf(stderr, "%s\n", state.message);
                state.outcome = ILLEGAL_ADDRESS;
                break;
            }
    free(memory);
}

std::vector<Kernel> &registry() {
    static std::vector<Kernel> all;
    return all;
}

Outcome invalid(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(state.message, sizeof state.message, format, list);
    va_end(list);
    fprintf(stderr, "%s\n", state.message);
    return INVALID;
}

} // namespace

Register::Register(const char *name, size_t args, unsigned threads, void (*body)(const void *)) {
    registry().push_back({name, args, threads, body});
}
const std::vector<Kernel> &kernels() { return registry(); }
const Kernel *find(const char *name) {
    for (const Kernel &kernel : registry())
        if (strcmp(kernel.name, name) == 0) return &kernel;
    return nullptr;
}
const char *last_failure() { return state.message; }

void fail(Outcome outcome, const char *format, ...) {
    char what[400];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (state.kernel == nullptr) {
        fprintf(stderr, "shim: outside of a kernel: %s\n", what);
        abort();
    }
    snprintf(state.message, sizeof state.message, "shim: kernel %s, block (%u, %u), thread %u: %s (LAPWING_SHIM_SEED=%llu, launch %llu)",
             state.kernel->name, blockIdx.x, blockIdx.y, state.current, what, (unsigned long long)state.seed,
             (unsigned long long)state.launches);
    fprintf(stderr, "%s\n", state.message);
    state.outcome = outcome;
    fiber_switch(state.fibers[state.current], state.host, true);
    abort();
}

namespace {

// While a grid runs, a memory fault in the thread that runs it is the kernel's: the launch fails, as on a device. Not used with
// AddressSanitizer, whose own report says more.
std::thread::id launching;
struct sigaction others[2];
const int SIGNALS[2] = {SIGSEGV, SIGBUS};

void memory_fault(int number, siginfo_t *, void *) {
    if (std::this_thread::get_id() != launching || state.kernel == nullptr) {
        // restores the previous handler; the access is repeated, and that handler gets the signal
        sigaction(number, &others[number == SIGBUS], nullptr);
        return;
    }
    fail(ILLEGAL_ADDRESS, "a memory fault: nothing is there, or a 16-byte access is not aligned");
}

struct WatchFaults {
#if !defined(__SANITIZE_ADDRESS__)
    WatchFaults() {
        launching = std::this_thread::get_id();
        struct sigaction action = {};
        action.sa_sigaction = memory_fault;
        action.sa_flags = SA_SIGINFO | SA_NODEFER; // the handler does not return
        for (int i = 0; i < 2; ++i) sigaction(SIGNALS[i], &action, &others[i]);
    }
    ~WatchFaults() {
        for (int i = 0; i < 2; ++i) sigaction(SIGNALS[i], &others[i], nullptr);
    }
#else
    WatchFaults() { (void)others, (void)SIGNALS, (void)memory_fault; }
    ~WatchFaults() {}
#endif
};

} // namespace

Outcome launch(const Kernel &kernel, unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared, const void *args) {
    std::lock_guard<std::mutex> lock(mutex);
    if (threads != kernel.threads)
        return invalid("shim: kernel %s is launched with blocks of %u threads, not %u", kernel.name, threads, kernel.threads);
    if (threads == 0 || threads > MOST_THREADS || threads % LANES != 0)
        return invalid("shim: kernel %s has blocks of %u threads: not whole warps", kernel.name, threads);
    if (grid_x == 0 || grid_y == 0 || grid_x > 0x7fffffffu || grid_y > 65535)
        return invalid("shim: kernel %s is launched with a grid of %u x %u", kernel.name, grid_x, grid_y);
    if (shared > MOST_SHARED) return invalid("shim: kernel %s is launched with %zu bytes of shared memory", kernel.name, shared);
    const char *seed = getenv("LAPWING_SHIM_SEED");
    state.seed = seed ? strtoull(seed, nullptr, 10) : 1;
    state.random = (state.seed + 1) * 0x9e3779b97f4a7c15ull + ++state.launches * 0xbf58476d1ce4e5b9ull;
    if (state.random == 0) state.random = 1;
    for (int i = 0; i < 4; ++i) draw();
    for (; state.created < threads; ++state.created) fiber_create(state.fibers[state.created], state.created);
    state.host.bottom = nullptr;
    state.kernel = &kernel;
    state.args = args;
    state.threads = threads;
    state.shared_size = shared;
    state.outcome = DONE;
    state.message[0] = 0;
    gridDim = {grid_x, grid_y, 1};
    blockDim = {threads, 1, 1};
    // The blocks' order: steps of a length that shares no factor with their number, from anywhere.
    const uint64_t blocks = uint64_t(grid_x) * grid_y;
    uint64_t step = draw() % blocks + 1;
    const auto common = [](uint64_t a, uint64_t b) {
        while (b != 0) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        return a;
    };
    while (common(step, blocks) != 1) step = step % blocks + 1;
    uint64_t block = draw() % blocks;
    const WatchFaults watch;
    for (uint64_t i = 0; i < blocks && state.outcome == DONE; ++i, block = (block + step) % blocks) {
        blockIdx = {unsigned(block % grid_x), unsigned(block / grid_x), 0};
        run_block();
    }
    state.kernel = nullptr;
    return state.outcome;
}

unsigned char *block_shared() { return state.shared; }
unsigned current_thread() { return state.current; }

void sync_threads() {
    Warp &warp = state.warps[state.current / LANES];
    if (state.ended > 0) fail(LAUNCH_FAILED, "it waits at __syncthreads while %u threads have ended", state.ended);
    if (++state.at_barrier < state.threads) {
        stop_lane(warp);
        go(next(false));
        return;
    }
    state.at_barrier = 0;
    for (unsigned w = 0; w < state.threads / LANES; ++w) {
        state.warps[w].runnable = 0xffffffffu;
        state.warps[w].turn = unsigned(draw()) % 64;
        state.ready |= 1u << w;
    }
    const unsigned thread = next(true);
    if (thread != state.current) go(thread);
}

void meet(Meeting meeting, void *operands, void (*compute)(void *const *)) {
    if (state.kernel == nullptr) fail(LAUNCH_FAILED, "%s", MEETINGS[int(meeting)]);
    Warp &warp = state.warps[state.current / LANES];
    if (warp.ended != 0)
        fail(LAUNCH_FAILED, "it is at %s while lanes of its warp have ended (mask %08x)", MEETINGS[int(meeting)], warp.ended);
    if (warp.arrived == 0) warp.meeting = meeting;
    else if (warp.meeting != meeting)
        fail(LAUNCH_FAILED, "it is at %s while other lanes of its warp wait at %s", MEETINGS[int(meeting)], MEETINGS[int(warp.meeting)]);
    warp.operands[state.current % LANES] = operands;
    if (++warp.arrived < LANES) {
        stop_lane(warp);
        go(next(false));
        return;
    }
    if (compute != nullptr) compute(warp.operands);
    warp.arrived = 0;
    warp.runnable = 0xffffffffu;
    state.ready |= 1u << state.current / LANES;
    const uint64_t drawn = draw();
    warp.turn = unsigned(drawn) % 64;
    if ((drawn >> 8) % 16 >= state.patience) {
        const unsigned thread = next(true);
        if (thread != state.current) go(thread);
    }
}

void sync_warp() { meet(Meeting::SYNC_WARP, nullptr, nullptr); }

void check_aligned(const void *at, size_t aligned, const char *what) {
    if (reinterpret_cast<uintptr_t>(at) % aligned != 0)
        fail(MISALIGNED, "%s: address %p is no multiple of %zu", what, at, aligned);
}

void check_shared(const void *at, size_t bytes, size_t aligned, const char *what) {
    const uintptr_t from = reinterpret_cast<uintptr_t>(at), shared = reinterpret_cast<uintptr_t>(state.shared);
    if (from < shared || from + bytes > shared + state.shared_size)
        fail(ILLEGAL_ADDRESS, "%s: byte %td is outside of the block's %zu bytes of shared memory", what, ptrdiff_t(from - shared), state.shared_size);
    check_aligned(at, aligned, what);
}

} // namespace shim
