// Products on tensor cores: y = activation(x · wᵀ · x_scale[row] · w_scale[column] + bias) + residual, by mma.sync.
//
//   name                         threads  shared bytes   BM   BN  a stage's k  stages  tiles of its 4 warps
//   gemm_{f16,tf32,s8}_128x128       128         65536  128  128     64 bytes       4  64x64, 2 x 2
//   gemm_{f16,tf32,s8}_128x64        128         49152  128   64     64 bytes       4  64x32, 2 x 2
//   gemm_{f16,tf32,s8}_64x64         128         49152   64   64    128 bytes       3  32x32, 2 x 2
//   gemm_{f16,tf32,s8}_32x64         128         49152   32   64    128 bytes       4  16x32, 2 x 2
//
// grid = (ceil(n / BN), ceil(most rows / BM)). x and w have the type in the name; with tf32, both are f32, the numbers of w are
// rounded in advance and those of x here. Rows begin at multiples of 16 bytes (s8: the stride is a multiple of 16), but x may have
// stride 1. y and residual are f32 or f16, independently.
//
// In bytes, the three types are alike: a step of mma takes 32 bytes of each row of x and of w (16 halves, 8 floats, 32 8-bit
// numbers), and the fragments of all three are 16-byte rows as ldmatrix loads them. So one function body serves all.
//
// For a large k, the kernels are bound by the tensor cores, which need about 206 cycles (H100; A100: 256) for a 32-byte step of a
// 128x128 block. Writing these bytes to shared memory and reading their fragments (each byte twice) takes 192 cycles at the same
// time; 8 warps of 64x32 would need 256, so there are 4 warps with large tiles. A small grid is bound by the latency of memory;
// therefore small tiles take 128 bytes of k at a time, which needs fewer barriers.

namespace gemm {


struct Halves {
    typedef float Sum;
    typedef unsigned short Number;
    enum { BYTES = 2 };
    DEVICE void round(unsigned (&)[4]) {}
    DEVICE void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_f16(c, a, b); }
    DEVICE float scaled(float sum, float) { return sum; }
};
struct Tf32 {
    typedef float Sum;
    typedef float Number;
    enum { BYTES = 4 };
    DEVICE void round(unsigned (&a)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = to_tf32(__uint_as_float(a[i]));
    }
    DEVICE void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_tf32(c, a, b); }
    DEVICE float scaled(float sum, float) { return sum; }
};
struct Bytes {
    typedef int Sum;
    typedef signed char Number;
    enum { BYTES = 1 };
    DEVICE void round(unsigned (&)[4]) {}
    DEVICE void multiply(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_s8(c, a, b); }
    DEVICE float scaled(int sum, float scale) { return (float)sum * scale; }
};

struct alignas(8) Pair { float low, high; };
struct alignas(16) Four { float v[4]; };
struct alignas(8) Two { unsigned x, y; };

/// Whether each group of four columns, from a multiple of four on, is aligned in every row.
DEVICE bool in_fours(const Mat &m) { return (reinterpret_cast<unsigned long long>(m.data) & 15) == 0 && m.stride % 4 == 0; }

DEVICE float load_float(const Mat &m, int row, int column) {
    const long long at = (long long)row * m.stride + column;
    return m.kind == F32 ? static_cast<const float *>(m.data)[at] : from_half(static_cast<const unsigned short *>(m.data)[at]);
}
/// Four elements as stored in memory; halves in x and y.
DEVICE Vec4 read_four(const Mat &m, long long at) {
    if (m.kind == F32) return *reinterpret_cast<const Vec4 *>(static_cast<const float *>(m.data) + at);
    const Two two = *reinterpret_cast<const Two *>(static_cast<const unsigned short *>(m.data) + at);
    return Vec4{two.x, two.y, 0, 0};
}
DEVICE void add_four(Four &sum, const Vec4 &raw, int kind) {
    if (kind == F32) {
        sum.v[0] += __uint_as_float(raw.x);
        sum.v[1] += __uint_as_float(raw.y);
        sum.v[2] += __uint_as_float(raw.z);
        sum.v[3] += __uint_as_float(raw.w);
    } else {
        sum.v[0] += from_half((unsigned short)raw.x);
        sum.v[1] += from_half((unsigned short)(raw.x >> 16));
        sum.v[2] += from_half((unsigned short)raw.y);
        sum.v[3] += from_half((unsigned short)(raw.y >> 16));
    }
}
DEVICE void write_four(const Mat &m, long long at, const Four &four) {
    if (m.kind == F32) *reinterpret_cast<Four *>(static_cast<float *>(m.data) + at) = four;
    else *reinterpret_cast<Two *>(static_cast<unsigned short *>(m.data) + at) =
        Two{pack_halves(four.v[0], four.v[1]), pack_halves(four.v[2], four.v[3])};
}

/// Writes a warp's WM x WN sums from its own part of shared memory to y. The 16 bytes `p` of row `r` are at p ^ 2 (r % 4), so that there
/// are no bank conflicts, neither in the layout of fragments nor by rows. A lane always has the same four columns.
template <int WM, int WN> struct Sums {
    enum { ACROSS = WN / 4, DOWN = 32 / ACROSS, TURNS = WM / DOWN, AHEAD = TURNS < 8 ? TURNS : 8 };

    DEVICE unsigned char *place(unsigned char *own, int r, int p) { return own + r * (WN * 4) + ((p ^ ((r & 3) << 1)) * 16); }

    DEVICE void write(const GemmArgs &args, unsigned char *own, int rows, int row, int column) {
        const int lane = threadIdx.x % 32, p = lane % ACROSS, down = lane / ACROSS;
        column += p * 4;
        row += down;
        const int width = args.n - column; // this lane has at most four of these columns
        float by[4], bias[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            by[i] = args.w_scale && i < width ? args.w_scale[column + i] : 1.0f;
            bias[i] = args.bias && i < width ? args.bias[column + i] : 0.0f;
        }
        // First the parts with long code, in a loop that is not unrolled.
        const bool active = args.activation != ACT_NONE;
        if (active) {
#pragma unroll 1
            for (int turn = 0; turn < TURNS; ++turn) {
                Four *const at = reinterpret_cast<Four *>(place(own, turn * DOWN + down, p));
                Four four = *at;
#pragma unroll
                for (int i = 0; i < 4; ++i) four.v[i] = activate(args.activation, four.v[i] * by[i] + bias[i]);
                *at = four;
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) by[i] = 1.0f, bias[i] = 0.0f;
        }
        // Then residual and store, with many rows of the residual in flight together.
        const bool residual = args.residual.data != nullptr;
        if (width >= 4 && in_fours(args.y) && (!residual || in_fours(args.residual))) {
#pragma unroll 1
            for (int first = 0; first < TURNS; first += AHEAD) {
                Vec4 old[AHEAD];
#pragma unroll
                for (int i = 0; i < AHEAD; ++i) {
                    const int at = row + (first + i) * DOWN;
                    old[i] = Vec4{0, 0, 0, 0}; // zero as f32 and as f16
                    if (residual && at < rows) old[i] = read_four(args.residual, (long long)at * args.residual.stride + column);
                }
#pragma unroll
                for (int i = 0; i < AHEAD; ++i) {
                    const int at = row + (first + i) * DOWN;
                    Four four = *reinterpret_cast<const Four *>(place(own, (first + i) * DOWN + down, p));
#pragma unroll
                    for (int j = 0; j < 4; ++j) four.v[j] = four.v[j] * by[j] + bias[j];
                    add_four(four, old[i], args.residual.kind);
                    if (at < rows) write_four(args.y, (long long)at * args.y.stride + column, four);
                }
            }
        } else { // the last columns, or rows that are not aligned
#pragma unroll 1
            for (int turn = 0; turn < TURNS; ++turn) {
                const int at = row + turn * DOWN;
                const Four four = *reinterpret_cast<const Four *>(place(own, turn * DOWN + down, p));
                if (at >= rows) continue;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (j >= width) continue;
                    const float old = residual ? load_float(args.residual, at, column + j) : 0.0f;
                    store(args.y, at, column + j, four.v[j] * by[j] + bias[j] + old);
                }
            }
        }
    }
};

/// The block of rows and of columns of this thread block. With many columns, blocks are ordered in groups of 8 blocks
/// of rows, so that blocks that run together share more of x and w.
DEVICE void place_of_block(int row_blocks, int &row_block, int &column_block) {
    const int columns = gridDim.x;
    row_block = blockIdx.y;
    column_block = blockIdx.x;
    if (columns <= 16 || row_blocks <= 8) return;
    const int number = blockIdx.y * columns + blockIdx.x, first = number / (8 * columns) * 8;
    const int high = row_blocks - first < 8 ? row_blocks - first : 8, within = number - first * columns;
    if (high <= 0) return; // behind the last row: the block keeps its place, and has no work
    if (within >= high * columns) {
        row_block = row_blocks; // the last group has less than 8 rows of blocks, and this block has no work
        return;
    }
    row_block = first + within % high;
    column_block = within / high;
}

/// One block. WM x WN is the tile of a warp, KB the bytes of k of a stage. A stage has rows of KB bytes: first BM of x, then BN of w.
/// The 16 bytes `p` of row r are at p ^ (r % 8), or at p ^ (r / 2 % 4) if KB is 64 and two rows span all banks. So the eight rows
/// that ldmatrix reads together use each bank once, and so do the pieces that eight threads write together.
template <class Kind, int BM, int BN, int WM, int WN, int KB, int STAGES>
DEVICE void product(const GemmArgs &args, unsigned char *const shared) {
    enum {
        ACROSS = BN / WN,                     // warps
        THREADS = 32 * ACROSS * (BM / WM),
        PIECES = KB / 16,
        PASS = THREADS / PIECES,              // rows that all threads together copy at once
        STAGE = (BM + BN) * KB,
        STEPS = KB / 32,
        MT = WM / 16,
        NT = WN / 8,
    };
    static_assert(THREADS == 128 && PASS % 8 == 0 && BM % PASS == 0 && BN % PASS == 0, "tile");
    static_assert(BM * BN * 4 <= STAGE * STAGES && STEPS % 2 == 0 && NT % 2 == 0, "tile");
    typedef typename Kind::Sum Sum;

    const int rows = rows_of(args.rows), row_blocks = (rows + BM - 1) / BM;
    int m0, n0;
    place_of_block(row_blocks, m0, n0);
    if (m0 >= row_blocks) {
        finish(args.tail);
        return;
    }
    m0 *= BM;
    n0 *= BN;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int warp_m = warp / ACROSS * WM, warp_n = warp % ACROSS * WN;

    // This thread copies one piece of rows that are `PASS` apart.
    const int k_bytes = args.k * Kind::BYTES, tiles = (k_bytes + KB - 1) / KB;
    const int piece = thread % PIECES, line = thread / PIECES;
    const int swizzle = KB == 128 ? line & 7 : (line >> 1) & 3;
    unsigned char *const to = shared + line * KB + (piece ^ swizzle) * 16;
    const unsigned char *const x = static_cast<const unsigned char *>(args.x.data);
    const unsigned char *const w = static_cast<const unsigned char *>(args.w.data);
    const long long x_row = (long long)args.x.stride * Kind::BYTES, w_row = (long long)args.w.stride * Kind::BYTES;
    const unsigned char *x_from = x + (m0 + line) * x_row + piece * 16, *w_from = w + (n0 + line) * w_row + piece * 16;
    const bool narrow = args.x.stride == 1; // k is 1, and rows are not aligned
    const int x_lines = narrow ? 0 : rows - m0 - line, w_lines = args.n - n0 - line; // existing rows, from this thread's first on
    int left = k_bytes - piece * 16, write_at = 0;
    auto copy_tile = [&]() {
        const int bytes = left < 16 ? left : 16;
#pragma unroll
        for (int i = 0; i < BM; i += PASS) {
            const bool there = bytes > 0 && i < x_lines;
            cp_async_16(to + write_at + i * KB, there ? x_from + i * x_row : x, there ? bytes : 0);
        }
#pragma unroll
        for (int i = 0; i < BN; i += PASS) {
            const bool there = bytes > 0 && i < w_lines;
            cp_async_16(to + write_at + (BM + i) * KB, there ? w_from + i * w_row : w, there ? bytes : 0);
        }
        x_from += KB;
        w_from += KB;
        left -= KB;
        write_at = write_at == (STAGES - 1) * STAGE ? 0 : write_at + STAGE;
    };

    // The rows of fragments that this lane reads.
    const int a_line = lane % 16, b_line = lane % 8 + lane / 16 * 8;
    const int a_swizzle = KB == 128 ? a_line & 7 : (a_line >> 1) & 3, b_swizzle = KB == 128 ? b_line & 7 : (b_line >> 1) & 3;
    const int a_at = (warp_m + a_line) * KB + ((lane / 16) ^ a_swizzle) * 16;
    const int b_at = (BM + warp_n + b_line) * KB + ((lane / 8 % 2) ^ b_swizzle) * 16;
    unsigned a[2][MT][4], b[2][NT][2];
    int read_at = 0;
    auto read_step = [&](int step, int into) {
        const unsigned char *const a_from = shared + read_at + (a_at ^ (step * 32));
        const unsigned char *const b_from = shared + read_at + (b_at ^ (step * 32));
#pragma unroll
        for (int i = 0; i < MT; ++i) ldmatrix_x4(a[into][i], a_from + i * 16 * KB);
#pragma unroll
        for (int j = 0; j < NT; j += 2) {
            unsigned both[4];
            ldmatrix_x4(both, b_from + j * 8 * KB);
            b[into][j][0] = both[0], b[into][j][1] = both[1];
            b[into][j + 1][0] = both[2], b[into][j + 1][1] = both[3];
        }
    };

    Sum c[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; ++i)
#pragma unroll
        for (int j = 0; j < NT; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) c[i][j][e] = 0;

#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < tiles) copy_tile();
        cp_async_commit();
    }
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    if (narrow) {
        typedef typename Kind::Number Number;
        for (int r = thread; r < BM && m0 + r < rows; r += THREADS) {
            unsigned char *const at = shared + r * KB + (KB == 128 ? r & 7 : (r >> 1) & 3) * 16;
            *reinterpret_cast<Number *>(at) = reinterpret_cast<const Number *>(x)[m0 + r];
        }
        __syncthreads();
    }
    read_step(0, 0);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            // The next step's fragments are loaded while this step's are multiplied.
            if (step == STEPS - 1) {
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                read_at = read_at == (STAGES - 1) * STAGE ? 0 : read_at + STAGE;
            }
            read_step((step + 1) % STEPS, (step + 1) % 2); // unused after the last tile
            if (step == 0) {
                // Into the stage that all threads have finished reading since the last barrier.
                if (tile + STAGES - 1 < tiles) copy_tile();
                cp_async_commit();
            }
#pragma unroll
            for (int i = 0; i < MT; ++i) {
                Kind::round(a[step % 2][i]);
#pragma unroll
                for (int j = 0; j < NT; ++j) Kind::multiply(c[i][j], a[step % 2][i], b[step % 2][j]);
            }
        }
    }
    cp_async_wait<0>();
    __syncthreads();

    // The sums go through shared memory, so that whole rows are read and written.
    typedef Sums<WM, WN> Out;
    unsigned char *const own = shared + warp * (WM * WN * 4);
#pragma unroll
    for (int i = 0; i < MT; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = i * 16 + half * 8 + lane / 4, row = m0 + warp_m + r;
            float scale = 1.0f;
            if (Kind::BYTES == 1 && args.x_scale && row < rows) scale = args.x_scale[row];
#pragma unroll
            for (int j = 0; j < NT; ++j) {
                Pair *const at = reinterpret_cast<Pair *>(Out::place(own, r, j * 2 + lane % 4 / 2) + lane % 2 * 8);
                *at = Pair{Kind::scaled(c[i][j][half * 2], scale), Kind::scaled(c[i][j][half * 2 + 1], scale)};
            }
        }
    __syncwarp();
    Out::write(args, own, rows, m0 + warp_m, n0 + warp_n);
    finish(args.tail);
}

} // namespace gemm

#define PRODUCT(kind, Kind, BM, BN, WM, WN, KB, STAGES, LEAST)         \
    KERNEL(gemm_##kind##_##BM##x##BN, GemmArgs, BLOCKS(128, LEAST)) {  \
        SHARED(unsigned char, shared);                                 \
        gemm::product<Kind, BM, BN, WM, WN, KB, STAGES>(args, shared); \
    }
#define PRODUCTS(kind, Kind)                        \
    PRODUCT(kind, Kind, 128, 128, 64, 64, 64, 4, 2) \
    PRODUCT(kind, Kind, 128, 64, 64, 32, 64, 4, 3)  \
    PRODUCT(kind, Kind, 64, 64, 32, 32, 128, 3, 4)  \
    PRODUCT(kind, Kind, 32, 64, 16, 32, 128, 4, 4)

PRODUCTS(f16, gemm::Halves)
PRODUCTS(tf32, gemm::Tf32)
PRODUCTS(s8, gemm::Bytes)
