// Faults that the shim must find: kernels with one fault each, compiled like any kernel file (after shim.h, prelude.cu and args.cu),
// and a main that launches them. Each fault that depends on the order of threads must show with a minimum number of 40 seeds.
#include <stdio.h>
#include <stdlib.h>

#include <string>

KERNEL(right, PeakArgs, 64) {
    SHARED(int, words);
    words[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    static_cast<int *>(args.out)[threadIdx.x] = words[(threadIdx.x + 40) % 64];
}
// Reads what another warp writes.
KERNEL(no_barrier, PeakArgs, 64) {
    SHARED(int, words);
    words[threadIdx.x] = (int)threadIdx.x;
    static_cast<int *>(args.out)[threadIdx.x] = words[(threadIdx.x + 40) % 64];
}
// Reads what another lane writes.
KERNEL(no_warp_barrier, PeakArgs, 32) {
    SHARED(int, words);
    words[threadIdx.x] = (int)threadIdx.x;
    static_cast<int *>(args.out)[threadIdx.x] = words[(threadIdx.x + 1) % 32];
}
// Writes again before all threads have read.
KERNEL(no_second_barrier, PeakArgs, 64) {
    SHARED(int, words);
    for (int i = 0; i < 2; ++i) {
        words[threadIdx.x] = (int)threadIdx.x + i;
        __syncthreads();
        static_cast<int *>(args.out)[threadIdx.x + 64 * i] = words[(threadIdx.x + 40) % 64] - i;
    }
}
// Reads the target of a copy before waiting for it.
KERNEL(no_wait, PeakArgs, 32) {
    SHARED(int, words);
    cp_async_16(words + 4 * threadIdx.x, args.data, 16);
    cp_async_commit();
    __syncthreads();
    static_cast<int *>(args.out)[threadIdx.x] = words[threadIdx.x];
    cp_async_wait<0>();
}
// Waits for a copy that was never committed.
KERNEL(no_commit, PeakArgs, 32) {
    SHARED(int, words);
    cp_async_16(words + 4 * threadIdx.x, args.data, 16);
    cp_async_wait<0>();
    __syncthreads();
    static_cast<int *>(args.out)[threadIdx.x] = words[threadIdx.x];
}
KERNEL(some_end, PeakArgs, 64) {
    if (threadIdx.x == 3) return;
    __syncthreads();
}
KERNEL(some_at_barrier, PeakArgs, 64) {
    if (threadIdx.x < 32) __syncthreads();
    else if (threadIdx.x % 2 == 0) shuffle_xor_int(1, 1);
    else __syncthreads();
}
KERNEL(half_a_warp, PeakArgs, 32) {
    if (threadIdx.x < 16) shuffle_xor(1.0f, 1);
}
KERNEL(mixed, PeakArgs, 32) {
    if (threadIdx.x < 16) shuffle_xor(1.0f, 1);
    else __syncwarp();
}
KERNEL(behind_shared, PeakArgs, 32) {
    SHARED(volatile unsigned char, bytes);
    bytes[128 + threadIdx.x] = 1;
}
KERNEL(ldmatrix_behind, PeakArgs, 32) {
    SHARED(unsigned char, bytes);
    unsigned r[4];
    ldmatrix_x4(r, bytes + 16 * threadIdx.x);
}
KERNEL(crooked, PeakArgs, 32) {
    SHARED(unsigned char, bytes);
    cp_async_16(bytes, static_cast<char *>(args.data) + 4, 8);
}

KERNEL(nowhere, PeakArgs, 32) { *reinterpret_cast<volatile int *>(args.count + 64) = 1; }
KERNEL(crooked_vector, PeakArgs, 32) {
    static_cast<volatile unsigned *>(args.out)[0] = reinterpret_cast<Vec4 *>(static_cast<char *>(args.data) + 4 * (threadIdx.x + 1))->w;
    *reinterpret_cast<Vec4 *>(args.out) = *reinterpret_cast<Vec4 *>(static_cast<char *>(args.data) + 4);
}

static int failed = 0;
alignas(16) static int out[256], in[64];

static void expect(const char *name, size_t shared, int outcome, const char *message) {
    const shim::Kernel &kernel = *shim::find(name);
    PeakArgs args = {in, out, 0};
    const int got = shim::launch(kernel, 3, 2, kernel.threads, shared, &args);
    const bool well = got == outcome && strstr(shim::last_failure(), message) != nullptr;
    if (!well) printf("FAILED %s: outcome %d, not %d; message: %s\n", name, got, outcome, shim::last_failure()), ++failed;
}

/// The number of seeds, of 40, with which an element of `out` is wrong; -1 if a launch fails. out[i] should be 5 if `turned` is
/// negative, else (i + turned) mod `modulus`.
static int wrong(const char *name, size_t shared, int count, int turned, int modulus) {
    int seeds = 0;
    for (int seed = 1; seed <= 40; ++seed) {
        setenv("LAPWING_SHIM_SEED", std::to_string(seed).c_str(), 1);
        PeakArgs args = {in, out, 0};
        const shim::Kernel &kernel = *shim::find(name);
        if (shim::launch(kernel, 1, 1, kernel.threads, shared, &args) != shim::DONE) return -1;
        bool well = true;
        for (int i = 0; i < count; ++i) well = well && out[i] == (turned < 0 ? 5 : (i % modulus + turned) % modulus);
        seeds += !well;
    }
    setenv("LAPWING_SHIM_SEED", "1", 1);
    return seeds;
}

static void expect_wrong(const char *name, size_t shared, int count, int turned, int modulus, int least, int most) {
    const int seeds = wrong(name, shared, count, turned, modulus);
    if (seeds < least || seeds > most) printf("FAILED %s: wrong with %d of 40 seeds\n", name, seeds), ++failed;
}

int main() {
    for (int &word : in) word = 5;
    freopen("/dev/null", "w", stderr);
    expect("right", 256, shim::DONE, "");
    expect_wrong("right", 256, 64, 40, 64, 0, 0);
    expect_wrong("no_barrier", 256, 64, 40, 64, 20, 40);
    expect_wrong("no_warp_barrier", 128, 32, 1, 32, 20, 40);
    expect_wrong("no_second_barrier", 256, 128, 40, 64, 10, 40);
    expect_wrong("no_wait", 512, 32, -1, 0, 40, 40);
    expect_wrong("no_commit", 512, 32, -1, 0, 40, 40);
    expect("some_end", 0, shim::LAUNCH_FAILED, "ended");
    expect("some_at_barrier", 0, shim::LAUNCH_FAILED, "shuffle_xor_int");
    expect("half_a_warp", 0, shim::LAUNCH_FAILED, "shuffle_xor");
    expect("mixed", 0, shim::LAUNCH_FAILED, "__syncwarp");
    expect("ldmatrix_behind", 256, shim::ILLEGAL_ADDRESS, "ldmatrix_x4");
    expect("crooked", 256, shim::MISALIGNED, "cp_async_16");
// AddressSanitizer ends the program at these
#if !defined(__SANITIZE_ADDRESS__)
    expect("behind_shared", 128, shim::ILLEGAL_ADDRESS, "behind");
    expect("nowhere", 0, shim::ILLEGAL_ADDRESS, "memory fault");
    expect("crooked_vector", 0, shim::ILLEGAL_ADDRESS, "memory fault");
#endif
    expect("right", 300 << 10, shim::INVALID, "shared");
    PeakArgs args = {in, out, 0};
    if (shim::launch(*shim::find("right"), 1, 1, 128, 256, &args) != shim::INVALID) printf("FAILED block size\n"), ++failed;
    // launches work again after a failed one
    expect("right", 256, shim::DONE, "");
    printf(failed ? "shim: %d failed\n" : "shim: all faults are found\n", failed);
    return failed != 0;
}
