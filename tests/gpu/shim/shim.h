// The host shim: the declarations with which g++ compiles a kernel file to run on the CPU. A kernel's translation unit is
// shim.h + prelude.cu + args.cu + FILE.cu; KERNEL registers each kernel, and shim::launch runs a grid (scheduler.cpp).
//
// Only one launch runs at a time; the fake libcuda and the check program ensure it. So threadIdx and the like can be plain globals,
// which the scheduler sets at every switch.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <vector>

#include "half.h"

#define LAPWING_SHIM 1

namespace shim {

struct Dim { unsigned x, y, z; };

struct Kernel {
    const char *name;
    size_t args;      // bytes of its struct
    unsigned threads; // of a block
    void (*body)(const void *args);
};

struct Register {
    Register(const char *name, size_t args, unsigned threads, void (*body)(const void *));
};

/// The result of a launch; the values are those of CUresult.
enum Outcome { DONE = 0, INVALID = 1, ILLEGAL_ADDRESS = 700, MISALIGNED = 716, LAUNCH_FAILED = 719 };

const std::vector<Kernel> &kernels();
const Kernel *find(const char *name);
/// Runs a whole grid. If it fails, stderr and last_failure() name the kernel, the block, the thread and the cause.
Outcome launch(const Kernel &kernel, unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared, const void *args);
const char *last_failure();

// Called by kernels through the macros and twins below.
unsigned char *block_shared();
[[noreturn]] void fail(Outcome outcome, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sync_threads();
void sync_warp();
int shuffle(int value, int mask, bool is_float);
void load_16(void *to, const void *global);
void cp_async_wait(int newest);

} // namespace shim

extern shim::Dim threadIdx, blockIdx, blockDim, gridDim;

#define KERNEL(name, Args, threads)                                                                                 \
    static void name(const Args &args);                                                                             \
    static const shim::Register lapwing_register_##name(#name, sizeof(Args), threads, [](const void *lapwing_args) { \
        name(*static_cast<const Args *>(lapwing_args));                                                             \
    });                                                                                                             \
    static void name([[maybe_unused]] const Args &args)

#define SHARED(type, name) type *const name = reinterpret_cast<type *>(shim::block_shared())

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))

// The twins of the primitives: prelude.cu documents each, twins.cpp implements it. load_16 is in prelude.cu because it needs Vec4.
void cp_async_16(void *shared, const void *global, int bytes);
void cp_async_commit();
template <int N> static inline void cp_async_wait() { shim::cp_async_wait(N); }
void ldmatrix_x4(unsigned (&r)[4], const void *shared_row);
void ldmatrix_x4_trans(unsigned (&r)[4], const void *shared_row);
void ldmatrix_x2(unsigned (&r)[2], const void *shared_row);
void mma_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
void mma_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
void mma_s8(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
unsigned to_tf32(float v);
float fast_exp2(float v);
void store_release_system(unsigned *p, unsigned v);
unsigned add_acq_rel(unsigned *p, unsigned v);

static inline unsigned pack_halves(float low, float high) { return (unsigned)to_half(high) << 16 | to_half(low); }

static inline float shuffle_xor(float v, int mask) { return shim::bits<float>(shim::shuffle(shim::bits<int>(v), mask, true)); }
static inline int shuffle_xor_int(int v, int mask) { return shim::shuffle(v, mask, false); }

// CUDA's built-in functions.
static inline void __syncthreads() { shim::sync_threads(); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    if (mask != 0xffffffffu) shim::fail(shim::LAUNCH_FAILED, "__syncwarp of a part of the warp");
    shim::sync_warp();
}
static inline float __uint_as_float(unsigned v) { return shim::bits<float>(v); }
static inline float __int_as_float(int v) { return shim::bits<float>(v); }
static inline unsigned __float_as_uint(float v) { return shim::bits<unsigned>(v); }
static inline int __float_as_int(float v) { return shim::bits<int>(v); }
static inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz((unsigned)v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
template <class T> static inline T __ldg(const T *p) { return *p; }
struct alignas(16) uint4 { unsigned x, y, z, w; };
static inline uint4 __ldcg(const uint4 *p) {
    uint4 v;
    shim::load_16(&v, p);
    return v;
}
template <class T> static inline T atomic_shim(T *p, T v) { T old = *p; *p = v; return old; }
static inline int atomicCAS(int *p, int expected, int v) { return atomic_shim(p, *p == expected ? v : *p); }
static inline unsigned atomicCAS(unsigned *p, unsigned expected, unsigned v) { return atomic_shim(p, *p == expected ? v : *p); }

#define LAPWING_MIN_MAX(T)                                     \
    static inline T min(T a, T b) { return b < a ? b : a; }    \
    static inline T max(T a, T b) { return a < b ? b : a; }
LAPWING_MIN_MAX(int)
LAPWING_MIN_MAX(unsigned)
LAPWING_MIN_MAX(long long)
LAPWING_MIN_MAX(unsigned long long)
#undef LAPWING_MIN_MAX
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
