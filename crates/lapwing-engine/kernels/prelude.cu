// The beginning of every kernel source. The source of a kernel file is prelude.cu + args.cu + FILE.cu; NVRTC compiles
// it without any header (__CUDACC__), and g++ compiles the same text for the host shim of the tests (LAPWING_SHIM,
// tests/gpu/shim).
//
// All inline PTX of the project is here, in 19 primitives; the shim has a twin of each. Everything after them is plain
// C++ for both. Because args.cu comes later, functions over its structs are templates, and its constants are repeated
// here (primitives.cu asserts that they agree).

#ifdef LAPWING_SHIM
// shim.h was included before: KERNEL, SHARED, the primitives' twins, threadIdx and the like.
#define DEVICE static inline __attribute__((unused))
struct alignas(16) Vec4 { unsigned x, y, z, w; };
static inline Vec4 load_16(const void *global) {
    Vec4 v;
    shim::load_16(&v, global);
    return v;
}
#else

#define DEVICE static __device__ __forceinline__

/// A kernel with one parameter struct, and blocks of exactly `threads` threads: KERNEL(name, SomeArgs, 128) { ...
/// args.y ... }
#define KERNEL(name, Args, threads) \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args args)

/// The block's dynamic shared memory, aligned to 128 bytes, as `type *name`. Its initial contents are undefined.
#define SHARED(type, name)                                            \
    extern __shared__ __align__(128) unsigned char lapwing_shared[]; \
    type *const name = reinterpret_cast<type *>(lapwing_shared)

struct alignas(16) Vec4 { unsigned x, y, z, w; };

DEVICE unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// 1. Copies `bytes` (0 to 16) from global to shared memory and fills the rest of the 16 bytes with zeros; both 16-byte aligned.
DEVICE void cp_async_16(void *shared, const void *global, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes)
                 : "memory");
}
// 2. Closes the group of this thread's copies since the last commit.
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// 3. Waits until at most the N latest groups of this thread are in flight. For other threads' copies a barrier must
//    follow.
template <int N> DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// 4-6. Load 8x8 matrices of 16-bit numbers. Lane i passes the address of row i % 8 of matrix i / 8 (16 bytes, aligned). Register m
// then holds row lane / 4 of matrix m, columns c = 2 (lane % 4) and c + 1, with column c in the low half; transposed: column
// lane / 4, rows c and c + 1. x2 uses the addresses of lanes 0..15; those of the other lanes must be valid too.
DEVICE void ldmatrix_x4(unsigned (&r)[4], const void *shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(shared_row)) : "memory");
}
DEVICE void ldmatrix_x4_trans(unsigned (&r)[4], const void *shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(shared_row)) : "memory");
}
DEVICE void ldmatrix_x2(unsigned (&r)[2], const void *shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(shared_row)) : "memory");
}

// 7-9. c += a · b for a tile of 16 rows and 8 columns; with g = lane / 4 and t = lane % 4:
//   c[0], c[1]: row g, columns 2t, 2t + 1; c[2], c[3]: row g + 8 (in all three).
//   f16 (k = 16), two to a register: a[0]: row g, k 2t, 2t + 1; a[1]: row g + 8; a[2]: row g, k + 8; a[3]: row g + 8, k + 8;
//                 b[0]: column g, k 2t, 2t + 1; b[1]: k + 8.
//   tf32 (k = 8): a[0]: row g, k t; a[1]: row g + 8; a[2]: row g, k t + 4; a[3]: row g + 8, k t + 4; b[0]: column g, k t; b[1]: k t + 4.
//   s8 (k = 32), four to a register: a[0]: row g, k 4t..4t + 3; a[1]: row g + 8; a[2]: row g, k + 16; a[3]: row g + 8, k + 16;
//                 b[0]: column g, k 4t..4t + 3; b[1]: k + 16.
DEVICE void mma_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void mma_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void mma_s8(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 10-13. Conversions, to the nearest (halves: ties to even, too large becomes infinite; tf32: ties away from zero).
DEVICE unsigned short to_half(float v) {
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
}
DEVICE float from_half(unsigned short h) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h));
    return v;
}
DEVICE unsigned pack_halves(float low, float high) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE unsigned to_tf32(float v) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
    return bits;
}

// 14. Loads 16 bytes that are read once and that no thread writes while the kernel runs.
DEVICE Vec4 load_16(const void *global) {
    Vec4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(global));
    return v;
}

// 15. 2^v, with a relative error of about 2^-22; below 2^-126 the result is 0.
DEVICE float fast_exp2(float v) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(v));
    return power;
}

// 16, 17. All that this thread wrote or observed before is visible to every thread that observes the word: 16 on the host and
// the device, 17 only on the device.
DEVICE void store_release_system(unsigned *p, unsigned v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE unsigned add_acq_rel(unsigned *p, unsigned v) {
    unsigned old;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}

// 18, 19. The value of lane (lane ^ mask); all 32 lanes take part.
DEVICE float shuffle_xor(float v, int mask) {
    float other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(v), "r"(mask));
    return other;
}
DEVICE int shuffle_xor_int(int v, int mask) {
    int other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(other) : "r"(v), "r"(mask));
    return other;
}
#endif

// Plain C++ for both compilers from here on.

/// The threads of KERNEL, and the least number of resident blocks per multiprocessor: for kernels where ptxas by
/// default chooses a number at the price of spills.
#ifdef LAPWING_SHIM
#define BLOCKS(threads, least) threads
#else
#define BLOCKS(threads, least) threads, least
#endif

enum { PRELUDE_F32 = 0, PRELUDE_F16 = 1, PRELUDE_I64 = 2, PRELUDE_I32 = 3 };
enum { PRELUDE_BATCH = 0, PRELUDE_CAPACITY = 3, PRELUDE_OFFSETS = 8, PRELUDE_TILE = 64 };

/// The sum over the warp, in every lane.
DEVICE float warp_sum(float v) {
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) v += shuffle_xor(v, mask);
    return v;
}
/// The maximum over the warp (NaNs are ignored), in every lane.
DEVICE float warp_max(float v) {
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) v = fmaxf(v, shuffle_xor(v, mask));
    return v;
}
/// The sum over the block, in every thread; all threads must call it. `scratch` is blockDim.x / 32 floats of shared
/// memory, which may be reused at once.
DEVICE float block_sum(float v, float *scratch) {
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    float total = scratch[0];
    for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) total += scratch[warp];
    __syncthreads();
    return total;
}
/// The maximum, like block_sum.
DEVICE float block_max(float v, float *scratch) {
    v = warp_max(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    float most = scratch[0];
    for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) most = fmaxf(most, scratch[warp]);
    __syncthreads();
    return most;
}

/// An element of a Mat as a float, by its type: F32, F16, I64, I32, else U8.
template <class Matrix> DEVICE float load(const Matrix &m, int row, int column) {
    const long long at = (long long)row * m.stride + column;
    switch (m.kind) {
    case PRELUDE_F32: return static_cast<const float *>(m.data)[at];
    case PRELUDE_F16: return from_half(static_cast<const unsigned short *>(m.data)[at]);
    case PRELUDE_I64: return (float)static_cast<const long long *>(m.data)[at];
    case PRELUDE_I32: return (float)static_cast<const int *>(m.data)[at];
    default: return (float)static_cast<const unsigned char *>(m.data)[at];
    }
}
/// Writes an element of a Mat of F32 or F16.
template <class Matrix> DEVICE void store(const Matrix &m, int row, int column, float v) {
    const long long at = (long long)row * m.stride + column;
    if (m.kind == PRELUDE_F16) static_cast<unsigned short *>(m.data)[at] = to_half(v);
    else static_cast<float *>(m.data)[at] = v;
}

/// Four consecutive elements.
template <class T> struct alignas(4 * sizeof(T)) Four { T v[4]; };

DEVICE float number(float x) { return x; }
DEVICE float number(unsigned short half) { return from_half(half); }

/// Whether rows of `m` may be accessed four elements at a time from column `from` on; their width must be a multiple of
/// four too.
template <class Matrix> DEVICE bool in_fours(const Matrix &m, int from = 0) {
    return m.kind <= PRELUDE_F16 && (m.stride | from) % 4 == 0 && reinterpret_cast<unsigned long long>(m.data) % 16 == 0;
}
template <class T, class Matrix> DEVICE Four<T> *four_at(const Matrix &m, int row, int column) {
    return reinterpret_cast<Four<T> *>(static_cast<T *>(m.data) + (long long)row * m.stride + column);
}

/// enum Activation of args.cu.
DEVICE float activate(int activation, float x) {
    switch (activation) {
    case 1: return fmaxf(x, 0.0f);                                            // ACT_RELU
    case 2: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));        // ACT_GELU
    case 3: {                                                                 // ACT_GELU_TANH
        const float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
        return 0.5f * x * (1.0f + tanhf(inner));
    }
    case 4: return 1.0f / (1.0f + expf(-x));                                  // ACT_SIGMOID
    case 5: return tanhf(x);                                                  // ACT_TANH
    case 6: return x / (1.0f + expf(-x));                                     // ACT_SILU
    default: return x;                                                        // ACT_NONE
    }
}

/// The actual number of rows.
template <class Rows_> DEVICE int rows_of(const Rows_ &rows) { return rows.dims ? rows.dims[rows.which] : rows.fixed; }

/// The sequence that a token of a batch belongs to: the first one that ends after it.
DEVICE int sequence_of(const int *header, int token) {
    const int *const ends = header + PRELUDE_OFFSETS + 1;
    int low = 0, high = header[PRELUDE_BATCH] - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (ends[middle] > token) high = middle;
        else low = middle + 1;
    }
    return low;
}

/// The work of a block of attention: its sequence's first token and length, and the block's first query.
struct Place {
    int begin, length, first;
};

/// Finds the sequence that has this query tile, 32 samples at a time: a batch of up to 32 takes one read.
DEVICE Place place_of(const int *header, int tile) {
    const int *offsets = header + PRELUDE_OFFSETS, *tiles = offsets + header[PRELUDE_CAPACITY] + 1;
    const int lane = threadIdx.x & 31;
    int low = 0, count = header[PRELUDE_BATCH];
    while (count > 1) {
        const int step = (count + 31) >> 5;
        int reached = lane * step < count && tiles[low + lane * step] <= tile;
        for (int mask = 16; mask > 0; mask >>= 1) reached += shuffle_xor_int(reached, mask);
        const int skipped = (reached - 1) * step;
        low += skipped;
        count = count - skipped < step ? count - skipped : step;
    }
    const int begin = offsets[low];
    return Place{begin, offsets[low + 1] - begin, (tile - tiles[low]) * PRELUDE_TILE};
}

/// The bias of a key that exists, and the sum of a score and its bias by distance: at least the lowest finite number. The score
/// of a key that does not exist is below and stays there.
DEVICE float finite_bias(float bias) {
    const float lowest = -3.402823466e38f;
    return bias < lowest ? lowest : bias;
}
DEVICE float with_distance(float score, float bias) {
    return score < -3.402823466e38f ? score : finite_bias(score + bias);
}
/// The bias of the distance from a query to a key.
template <class Args> DEVICE float distance_bias(const Args &args, int head, int distance) {
    return args.by_distance[(long long)head * args.apart + args.reach + min(max(distance, -args.reach), args.reach)];
}

/// Reports once that a node asks for a row that no table has, as EmbedArgs describes.
DEVICE void report_row(int *fault, int node, int table, int row, long long id) {
    if (atomicCAS(fault, 0, 1 + node) != 0) return;
    fault[1] = table;
    fault[2] = row;
    fault[3] = (int)(id > 2147483647 ? 2147483647 : id < -2147483647 ? -2147483647 : id);
}

/// The end of every kernel, called by all threads of every block, including blocks without work: the grid's last block
/// notifies the host, if a Tail requests it. The barrier and the counter's release and acquire order the writes of all
/// blocks before the last block's release of the flag, which therefore publishes them too: causality order is
/// transitive over scopes.
template <class Tail_> DEVICE void finish(const Tail_ &tail) {
    if (tail.flag == nullptr) return;
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (add_acq_rel(tail.counter, 1u) + 1u == gridDim.x * gridDim.y) {
        *tail.counter = 0;
        store_release_system(tail.flag, 1u);
    }
}
