// Measures what the device can do at most: arithmetic that never waits for memory, memory traffic without arithmetic,
// and an empty kernel. Blocks of 256 threads (empty: 32), a few per multiprocessor: two for the tensor cores, four for
// reads, eight for the rest.
//
// Per thread and repeat (PeakArgs.count): peak_ffma does 512 FLOPs, peak_mma_f16 2048 (16 tiles of 4096 per warp),
// peak_mma_tf32 1024, peak_mma_s8 4096. Each thread writes its sums if `out` is not null; the compiler cannot know that
// it is null. peak_copy writes `count` pieces to `out`.

namespace peaks {

enum { CHAINS = 8 }; // independent accumulators: more than the tensor core's latency needs

/// A value that differs from lane to lane, because equal values would need less power than real data.
DEVICE unsigned scatter(unsigned seed) {
    seed = (seed ^ 61u ^ threadIdx.x * 0x9e3779b9u) * 0x27d4eb2du;
    return seed ^ seed >> 15;
}
/// Two halves, or a float, between 1 and 2, with either sign.
DEVICE unsigned some_halves(unsigned seed) { return (scatter(seed) & 0x83ff83ffu) | 0x3c003c00u; }
DEVICE unsigned some_float(unsigned seed) { return to_tf32(__int_as_float((int)((scatter(seed) & 0x807fffffu) | 0x3f800000u))); }

template <class Number> DEVICE void keep(const PeakArgs &args, Number sum) {
    if (args.out != nullptr) static_cast<Number *>(args.out)[blockIdx.x * 256 + threadIdx.x] = sum;
}

/// 16 tile products per repeat, in eight chains. Each chain has a different start value: an assembler might merge
/// chains that are identical from the start.
template <class Number, class Product>
DEVICE void products(const PeakArgs &args, const unsigned (&a)[2][4], const unsigned (&b)[2], Product product) {
    Number c[CHAINS][4];
#pragma unroll
    for (int i = 0; i < CHAINS; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) c[i][j] = (Number)(4 * i + j);
#pragma unroll 1
    for (long long repeat = 0; repeat < args.count; ++repeat) {
#pragma unroll
        for (int i = 0; i < CHAINS; ++i) product(c[i], a[0], b);
#pragma unroll
        for (int i = 0; i < CHAINS; ++i) product(c[i], a[1], b); // of the other sign: sums stay small
    }
    Number sum = 0;
#pragma unroll
    for (int i = 0; i < CHAINS; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum += c[i][j] - (Number)(4 * i + j);
    keep(args, sum);
}

/// Reads the piece at `at`, and advances by `step` pieces, wrapping around at the end (step < count <= 2^30). __ldcg
/// bypasses the first-level cache, which could hold a multiprocessor's share of the buffer.
DEVICE uint4 read_on(const uint4 *from, unsigned &at, unsigned step, unsigned count) {
    const uint4 v = __ldcg(from + at);
    at += step;
    at = min(at, at - count); // if at < count, the difference wraps around and is larger
    return v;
}

DEVICE void add_words(unsigned &sum, const uint4 &v) { sum += v.x + v.y + v.z + v.w; }

} // namespace peaks

KERNEL(empty, PeakArgs, 32) {}

KERNEL(peak_ffma, PeakArgs, 256) {
    const float by = 0.999f, more = 1e-3f * (float)threadIdx.x;
    float v[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = (float)i;
#pragma unroll 1
    for (long long repeat = 0; repeat < args.count; ++repeat) {
#pragma unroll
        for (int round = 0; round < 16; ++round)
#pragma unroll
            for (int i = 0; i < 16; ++i) v[i] = v[i] * by + more;
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += v[i];
    peaks::keep(args, sum);
}

KERNEL(peak_mma_f16, PeakArgs, 256) {
    unsigned a[2][4];
    const unsigned b[2] = {peaks::some_halves(5), peaks::some_halves(6)};
#pragma unroll
    for (int i = 0; i < 4; ++i) a[1][i] = (a[0][i] = peaks::some_halves(i)) ^ 0x80008000u;
    auto product = [](float (&c)[4], const unsigned (&x)[4], const unsigned (&w)[2]) { mma_f16(c, x, w); };
    peaks::products<float>(args, a, b, product);
}

KERNEL(peak_mma_tf32, PeakArgs, 256) {
    unsigned a[2][4];
    const unsigned b[2] = {peaks::some_float(5), peaks::some_float(6)};
#pragma unroll
    for (int i = 0; i < 4; ++i) a[1][i] = (a[0][i] = peaks::some_float(i)) ^ 0x80000000u;
    auto product = [](float (&c)[4], const unsigned (&x)[4], const unsigned (&w)[2]) { mma_tf32(c, x, w); };
    peaks::products<float>(args, a, b, product);
}

KERNEL(peak_mma_s8, PeakArgs, 256) {
    unsigned a[2][4];
    const unsigned b[2] = {peaks::scatter(5), peaks::scatter(6)};
    // x and -1 - x: sums stay small
#pragma unroll
    for (int i = 0; i < 4; ++i) a[1][i] = ~(a[0][i] = peaks::scatter(i));
    auto product = [](int (&c)[4], const unsigned (&x)[4], const unsigned (&w)[2]) { mma_s8(c, x, w); };
    peaks::products<int>(args, a, b, product);
}

// All blocks together traverse the buffer `passes` times without a stop in between; the grid's thread i reads the
// pieces i, i + all threads and so on. So nothing is read twice before everything was read once, and a running block
// has eight loads per thread in flight whatever the size. No two warps write the same word.
KERNEL(peak_read, PeakReadArgs, BLOCKS(256, 4)) {
    const uint4 *const from = static_cast<const uint4 *>(args.data);
    const unsigned count = (unsigned)args.pieces, all = gridDim.x * 256, me = blockIdx.x * 256 + threadIdx.x;
    const unsigned step = all % count;
    long long left = (args.pieces * args.passes - me + all - 1) / all;
    unsigned at = me % count, sum = 0;
#pragma unroll 1
    for (; left >= 8; left -= 8) {
        uint4 v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = peaks::read_on(from, at, step, count);
#pragma unroll
        for (int i = 0; i < 8; ++i) peaks::add_words(sum, v[i]);
    }
#pragma unroll 1
    for (; left > 0; --left) peaks::add_words(sum, peaks::read_on(from, at, step, count));
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) sum += (unsigned)shuffle_xor_int((int)sum, mask);
    if (threadIdx.x % 32 == 0) args.out[me / 32] = sum;
}

KERNEL(peak_copy, PeakArgs, 256) {
    const Vec4 *const from = static_cast<const Vec4 *>(args.data);
    Vec4 *const to = static_cast<Vec4 *>(args.out);
    const long long all = (long long)gridDim.x * 256;
    long long at = (long long)blockIdx.x * 256 + threadIdx.x;
#pragma unroll 1
    for (; at + 3 * all < args.count; at += 4 * all) {
        Vec4 v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = load_16(from + at + i * all);
#pragma unroll
        for (int i = 0; i < 4; ++i) to[at + i * all] = v[i];
    }
#pragma unroll 1
    for (; at < args.count; at += all) to[at] = load_16(from + at);
}
