// Products in true fp32 (FFMA): y = activation(x · wᵀ · x_scale[row] · w_scale[column] + bias) + residual; x and w are f32.
//
//   name              threads  shared bytes   BM   BN  a stage's k  stages  a thread's tile
//   gemm_f32_128x128      256         49152  128  128           16       3  8x8
//   gemm_f32_64x64        128         32768   64   64           16       4  4x8
//   gemm_f32_32x64        128         24576   32   64           16       4  2x8
//
// grid = (ceil(n / BN), ceil(most rows / BM)). y and residual are f32 or f16, independently.
//
// Both operands are contiguous in k, in shared memory too: a thread reads four k of a row at once. That takes as many reads as with
// transposed tiles, but no transposing. A warp has 4 x 8 threads. Lanes are arranged for reads of 16 bytes, which take two passes
// instead of four if neighbours (lane ^ 1 for x, lane ^ 2 for w) read the same place. A thread has 8 adjacent columns. The kernel
// for 128x128 is bound by FFMA (32 passes of shared memory beside 64 cycles of FFMA for each four k); the others, which are for
// few rows, are bound by FFMA and shared memory equally.

namespace gemm {

struct alignas(16) Four { float v[4]; };

/// Whether each group of eight columns, from a multiple of eight on, is aligned in every row.
DEVICE bool in_eights(const Mat &m) { return (reinterpret_cast<unsigned long long>(m.data) & 15) == 0 && m.stride % 8 == 0; }

DEVICE float load_float(const Mat &m, int row, int column) {
    const long long at = (long long)row * m.stride + column;
    return m.kind == F32 ? static_cast<const float *>(m.data)[at] : from_half(static_cast<const unsigned short *>(m.data)[at]);
}
DEVICE void add_eight(float (&sum)[8], const Mat &m, long long at) {
    if (m.kind == F32) {
        const Four *const from = reinterpret_cast<const Four *>(static_cast<const float *>(m.data) + at);
        const Four low = from[0], high = from[1];
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += low.v[i], sum[4 + i] += high.v[i];
    } else {
        const Vec4 raw = *reinterpret_cast<const Vec4 *>(static_cast<const unsigned short *>(m.data) + at);
        const unsigned pairs[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum[2 * i] += from_half((unsigned short)pairs[i]);
            sum[2 * i + 1] += from_half((unsigned short)(pairs[i] >> 16));
        }
    }
}
DEVICE void write_eight(const Mat &m, long long at, const float (&v)[8]) {
    if (m.kind == F32) {
        Four *const to = reinterpret_cast<Four *>(static_cast<float *>(m.data) + at);
        to[0] = Four{{v[0], v[1], v[2], v[3]}};
        to[1] = Four{{v[4], v[5], v[6], v[7]}};
    } else {
        *reinterpret_cast<Vec4 *>(static_cast<unsigned short *>(m.data) + at) =
            Vec4{pack_halves(v[0], v[1]), pack_halves(v[2], v[3]), pack_halves(v[4], v[5]), pack_halves(v[6], v[7])};
    }
}

/// One block: WARPS_M x WARPS_N warps of 4 · TM rows and 64 columns. A stage holds BM rows of x, then BN of w, of 64 bytes each, so
/// that two rows span all banks. In x, the 16 bytes `p` of row r are at p ^ (r / 2 % 4): rows r and r + 1 use different banks. In w,
/// row r is at the index r with bits 0 and 3 exchanged, and its 16 bytes `p` at p ^ (r / 16 % 4): eight rows at a distance of eight
/// use each bank once.
template <int TM, int WARPS_M, int WARPS_N, int STAGES> DEVICE void product(const GemmArgs &args, unsigned char *const shared) {
    enum {
        BM = 4 * TM * WARPS_M,
        BN = 64 * WARPS_N,
        THREADS = 32 * WARPS_M * WARPS_N,
        KB = 64,
        PASS = THREADS / 4, // rows that all threads together copy at once
        STAGE = (BM + BN) * KB,
    };
    static_assert(PASS % 16 == 0 && BM % PASS == 0 && BN % PASS == 0, "tile");
    const int rows = rows_of(args.rows), m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    if (m0 >= rows) {
        finish(args.tail);
        return;
    }
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int lane_n = (lane & 1) | (lane >> 1 & 6), lane_m = (lane >> 1 & 1) | (lane >> 3 & 2);
    const int warp_m = warp / WARPS_N * (4 * TM), warp_n = warp % WARPS_N * 64;

    // This thread copies one piece of 16 bytes of rows that are `PASS` apart; rows of w in their permuted order.
    const int k_bytes = args.k * 4, tiles = (k_bytes + KB - 1) / KB;
    const int piece = thread % 4, line = thread / 4, w_line = (line & ~9) | (line & 1) << 3 | (line >> 3 & 1);
    unsigned char *const to = shared + line * KB;
    const unsigned char *const x = static_cast<const unsigned char *>(args.x.data);
    const unsigned char *const w = static_cast<const unsigned char *>(args.w.data);
    const int x_row = args.x.stride * 4, w_row = args.w.stride * 4; // bytes
    const unsigned char *x_from = x + (long long)(m0 + line) * x_row + piece * 16;
    const unsigned char *w_from = w + (long long)(n0 + w_line) * w_row + piece * 16;
    const bool narrow = args.x.stride == 1; // k is 1, and rows are not aligned
    const int x_lines = narrow ? 0 : rows - m0 - line, w_lines = args.n - n0 - w_line; // existing rows, from this thread's first on
    int left = k_bytes - piece * 16;
    auto copy_tile = [&](int write_at) {
        const int bytes = left < 16 ? left : 16;
#pragma unroll
        for (int i = 0; i < BM; i += PASS) {
            const bool there = bytes > 0 && i < x_lines;
            unsigned char *const at = to + write_at + i * KB + (piece ^ (line >> 1 & 3)) * 16;
            cp_async_16(at, there ? x_from + (long long)i * x_row : x, there ? bytes : 0);
        }
#pragma unroll
        for (int i = 0; i < BN; i += PASS) {
            const bool there = bytes > 0 && i < w_lines;
            unsigned char *const at = to + write_at + (BM + i) * KB + (piece ^ ((line + i) >> 4 & 3)) * 16;
            cp_async_16(at, there ? w_from + (long long)i * w_row : w, there ? bytes : 0);
        }
        x_from += KB;
        w_from += KB;
        left -= KB;
    };

    // It reads rows warp_m + lane_m + 4 i of x and warp_n + 8 lane_n + j of w, where j are bits 0..2 and bit 0 is stored as bit 3.
    const unsigned char *const x_at = shared + (warp_m + lane_m) * KB;
    const unsigned char *const w_at = shared + (BM + warp_n + ((lane_n & 6) << 3) + (lane_n & 1)) * KB;
    const int w_swizzle = lane_n >> 1;
    float c[TM][8];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) c[i][j] = 0.0f;

#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < tiles) copy_tile(s * STAGE);
        cp_async_commit();
    }
    if (narrow) {
        cp_async_wait<0>(); // the copies wrote zeros
        __syncthreads();
        for (int r = thread; r < BM && m0 + r < rows; r += THREADS)
            *reinterpret_cast<float *>(shared + r * KB + (r >> 1 & 3) * 16) = reinterpret_cast<const float *>(x)[m0 + r];
    }
    int read_at = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        cp_async_wait<STAGES - 2>();
        __syncthreads(); // this tile has arrived, and all threads have read the previous stage
        if (tile + STAGES - 1 < tiles) copy_tile(read_at == 0 ? (STAGES - 1) * STAGE : read_at - STAGE);
        cp_async_commit();
#pragma unroll 1
        for (int p = 0; p < 4; ++p) {
            Four a[TM];
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                const int swizzle = (lane_m >> 1) ^ (i % 2 * 2); // of row lane_m + 4 i, as warp_m is a multiple of 8
                a[i] = *reinterpret_cast<const Four *>(x_at + read_at + i * 4 * KB + (p ^ swizzle) * 16);
            }
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const int down = (j & 6) | (j & 1) << 3;
                const Four b = *reinterpret_cast<const Four *>(w_at + read_at + down * KB + (p ^ w_swizzle) * 16);
#pragma unroll
                for (int k = 0; k < 4; ++k)
#pragma unroll
                    for (int i = 0; i < TM; ++i) c[i][j] += a[i].v[k] * b.v[k];
            }
        }
        read_at = read_at == (STAGES - 1) * STAGE ? 0 : read_at + STAGE;
    }
    cp_async_wait<0>();

    const int column = n0 + warp_n + lane_n * 8, width = args.n - column; // this thread has at most eight of these columns
    float by[8], bias[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        by[j] = args.w_scale && j < width ? args.w_scale[column + j] : 1.0f;
        bias[j] = args.bias && j < width ? args.bias[column + j] : 0.0f;
    }
    const bool residual = args.residual.data != nullptr;
    const bool whole = width >= 8 && in_eights(args.y) && (!residual || in_eights(args.residual));
    // Not unrolled, because the activation has much code; instead, the rows of sums move up.
#pragma unroll 1
    for (int i = 0; i < TM; ++i) {
        const int row = m0 + warp_m + lane_m + 4 * i;
        if (row < rows) {
            const float scale = args.x_scale ? args.x_scale[row] : 1.0f;
            float v[8];
#pragma unroll
            for (int j = 0; j < 8; ++j) v[j] = activate(args.activation, c[0][j] * scale * by[j] + bias[j]);
            if (whole) {
                if (residual) add_eight(v, args.residual, (long long)row * args.residual.stride + column);
                write_eight(args.y, (long long)row * args.y.stride + column, v);
            } else {
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    if (j < width) store(args.y, row, column + j, residual ? v[j] + load_float(args.residual, row, column + j) : v[j]);
            }
        }
#pragma unroll
        for (int above = 0; above + 1 < TM; ++above)
#pragma unroll
            for (int j = 0; j < 8; ++j) c[above][j] = c[above + 1][j];
    }
    finish(args.tail);
}

} // namespace gemm

// When ptxas compiles for compute capability 10 or later, it pairs products, for which 128 registers are too few in the largest
// kernel. The shipped PTX is compiled for 8.0, with 2 blocks, and can be assembled for 10.0 without spills (compile.py shipped).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define LARGE 1
#else
#define LARGE 2
#endif

KERNEL(gemm_f32_128x128, GemmArgs, BLOCKS(256, LARGE)) {
    SHARED(unsigned char, shared);
    gemm::product<8, 4, 2, 3>(args, shared);
}
KERNEL(gemm_f32_64x64, GemmArgs, BLOCKS(128, 4)) {
    SHARED(unsigned char, shared);
    gemm::product<4, 4, 1, 4>(args, shared);
}
KERNEL(gemm_f32_32x64, GemmArgs, BLOCKS(128, 5)) {
    SHARED(unsigned char, shared);
    gemm::product<2, 4, 1, 4>(args, shared);
}
