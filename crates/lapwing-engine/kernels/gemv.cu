// Products for few rows: y = activation(x · wᵀ · x_scale[row] · w_scale[column] + bias) + residual for 1, 2, 4 or 8 rows.
//
//   name                     threads  shared bytes  rows at most  columns of a warp (C)
//   gemv_{f32,f16,s8}_{1,2}      256           512          1, 2                     1
//   gemv_{f32,f16,s8}_{4,8}      256           512          4, 8                     2
//
// grid = (ceil(n / (8 / split · C)), 1). `split` (1, 2, 4, 8) of the block's 8 warps share columns and take turns along k; their sums
// are added in a fixed order. The type of w is in the name; x, y and residual are f32 or f16, independently. With 8-bit weights, x is
// not quantised. A lane has 4 / C pieces of 16 bytes of each column in flight. So with the smallest split for which a lane has no
// more pieces than that (k · bytes <= 16 · 32 · split · 4 / C), it waits for memory once. If the grid has more than two blocks per
// multiprocessor, some of them wait.
//
// Bound by memory: w is read once, in 16-byte pieces that bypass L1, with several pieces per lane in flight; x comes from L1. With 4
// or 8 rows, x is read as often as w's pieces, so two columns share each read of x. With one row and a small w, the kernel is bound
// by the latency of one read, so little may follow it: bias, scale and residual are read before.

namespace gemv {

DEVICE float low_half(unsigned pair) { return from_half((unsigned short)pair); }
DEVICE float high_half(unsigned pair) { return from_half((unsigned short)(pair >> 16)); }

// How 16 bytes of w are decoded: they hold PARTS parts of four numbers; take() returns the first part and moves the others up.
struct Floats {
    enum { PARTS = 1, BYTES = 4 };
    DEVICE void take(float (&v)[4], Vec4 &raw) {
        v[0] = __uint_as_float(raw.x), v[1] = __uint_as_float(raw.y), v[2] = __uint_as_float(raw.z), v[3] = __uint_as_float(raw.w);
    }
    DEVICE float one(const void *row, int k) { return static_cast<const float *>(row)[k]; }
};
struct Halves {
    enum { PARTS = 2, BYTES = 2 };
    DEVICE void take(float (&v)[4], Vec4 &raw) {
        v[0] = low_half(raw.x), v[1] = high_half(raw.x), v[2] = low_half(raw.y), v[3] = high_half(raw.y);
        raw.x = raw.z, raw.y = raw.w;
    }
    DEVICE float one(const void *row, int k) { return from_half(static_cast<const unsigned short *>(row)[k]); }
};
struct Bytes {
    enum { PARTS = 4, BYTES = 1 };
    DEVICE void take(float (&v)[4], Vec4 &raw) {
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = (float)(int)(signed char)(unsigned char)(raw.x >> (8 * i));
        raw.x = raw.y, raw.y = raw.z, raw.z = raw.w;
    }
    DEVICE float one(const void *row, int k) { return (float)static_cast<const signed char *>(row)[k]; }
};

/// Four elements of x, as stored in memory, and as floats.
struct alignas(8) Two { unsigned x, y; };
struct FromFloats {
    typedef Vec4 Raw;
    enum { BYTES = 4 };
    DEVICE float one(const void *row, int k) { return static_cast<const float *>(row)[k]; }
    DEVICE void numbers(float (&v)[4], const Raw &raw) {
        v[0] = __uint_as_float(raw.x), v[1] = __uint_as_float(raw.y), v[2] = __uint_as_float(raw.z), v[3] = __uint_as_float(raw.w);
    }
};
struct FromHalves {
    typedef Two Raw;
    enum { BYTES = 2 };
    DEVICE float one(const void *row, int k) { return from_half(static_cast<const unsigned short *>(row)[k]); }
    DEVICE void numbers(float (&v)[4], const Raw &raw) {
        v[0] = low_half(raw.x), v[1] = high_half(raw.x), v[2] = low_half(raw.y), v[3] = high_half(raw.y);
    }
};

/// This lane's part of the sums of C columns from `column` on and M rows: pieces of 16 bytes of k, 32 · split apart.
/// Columns and rows that do not exist repeat the last ones; their sums are not used.
template <class W, class X, int M, int C>
DEVICE void sums(const GemmArgs &args, float (&sum)[C * M], int rows, int column, int part, int lane) {
    enum {
        AHEAD = 4 / C,                             // pieces of each column in flight
        EACH = W::PARTS * 4,                       // numbers of a piece
        AT_ONCE = M * W::PARTS <= 4 ? W::PARTS : 1 // parts that are unrolled
    };
    const int pieces = args.k / EACH, step = 32 * args.split;
    const unsigned char *w[C], *const x = static_cast<const unsigned char *>(args.x.data);
    int x_at[M];
#pragma unroll
    for (int c = 0; c < C; ++c) {
        const int at = column + c < args.n ? column + c : args.n - 1;
        w[c] = static_cast<const unsigned char *>(args.w.data) + (long long)at * args.w.stride * W::BYTES;
    }
#pragma unroll
    for (int m = 0; m < M; ++m) x_at[m] = (m < rows ? m : rows - 1) * args.x.stride * X::BYTES;
#pragma unroll 1
    for (int first = part * 32 + lane; first < pieces; first += AHEAD * step) {
        Vec4 raw[C][AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a)
#pragma unroll
            for (int c = 0; c < C; ++c) {
                raw[c][a] = Vec4{0, 0, 0, 0};
                if (first + a * step < pieces) raw[c][a] = load_16(w[c] + (first + a * step) * 16);
            }
#pragma unroll AT_ONCE
        for (int p = 0; p < W::PARTS; ++p) {
            float by[C][AHEAD][4];
#pragma unroll
            for (int c = 0; c < C; ++c)
#pragma unroll
                for (int a = 0; a < AHEAD; ++a) W::take(by[c][a], raw[c][a]);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                typename X::Raw given[AHEAD];
#pragma unroll
                for (int a = 0; a < AHEAD; ++a) {
                    given[a] = typename X::Raw{};
                    if (first + a * step < pieces)
                        given[a] = *reinterpret_cast<const typename X::Raw *>(x + (x_at[m] + ((first + a * step) * EACH + p * 4) * X::BYTES));
                }
#pragma unroll
                for (int a = 0; a < AHEAD; ++a) {
                    float from[4];
                    X::numbers(from, given[a]);
#pragma unroll
                    for (int c = 0; c < C; ++c)
#pragma unroll
                        for (int i = 0; i < 4; ++i) sum[c * M + m] += from[i] * by[c][a][i];
                }
            }
        }
    }
    // The remainder of k, less than a piece.
    const int k = pieces * EACH + lane;
    if (part != 0 || k >= args.k) return;
#pragma unroll
    for (int m = 0; m < M; ++m) {
        const float from = X::one(x + x_at[m], k);
#pragma unroll
        for (int c = 0; c < C; ++c) sum[c * M + m] += from * W::one(w[c], k);
    }
}

/// Sums V values per lane over the warp: lane i gets the sum of value i / (32 / V). Each step keeps half of a lane's
/// values.
template <int V, int LEFT> DEVICE void scatter_sum(float (&v)[V], int lane) {
    const int mask = 16 * LEFT / V;
    if constexpr (LEFT > 1) {
        const bool upper = (lane & mask) != 0;
#pragma unroll
        for (int i = 0; i < LEFT / 2; ++i) {
            const float kept = upper ? v[i + LEFT / 2] : v[i], sent = upper ? v[i] : v[i + LEFT / 2];
            v[i] = kept + shuffle_xor(sent, mask);
        }
        scatter_sum<V, LEFT / 2>(v, lane);
    } else {
#pragma unroll
        for (int rest = mask; rest > 0; rest >>= 1) v[0] += shuffle_xor(v[0], rest);
    }
}

template <class W, int M, int C> DEVICE void product(const GemmArgs &args, float *const scratch) {
    enum { WARPS = 8, V = C * M };
    const int have = rows_of(args.rows), rows = have < M ? have : M;
    if (rows <= 0) {
        finish(args.tail);
        return;
    }
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, split = args.split;
    const int groups = WARPS / split, columns = groups * C, first = blockIdx.x * columns;

    // This thread's own element of y, if it has one: its operands from global memory.
    const int row = thread / columns, own = thread % columns, column = first + own;
    const bool mine = row < rows && column < args.n;
    float scale = 1.0f, bias = 0.0f, residual = 0.0f;
    if (mine) {
        if (args.w_scale) scale = args.w_scale[column];
        if (args.x_scale) scale *= args.x_scale[row];
        if (args.bias) bias = args.bias[column];
        if (args.residual.data) residual = load(args.residual, row, column);
    }

    float sum[V];
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] = 0.0f;
    const int group = warp / split, from = first + group * C;
    if (from < args.n) {
        if (args.x.kind == F32) sums<W, FromFloats, M, C>(args, sum, rows, from, warp % split, lane);
        else sums<W, FromHalves, M, C>(args, sum, rows, from, warp % split, lane);
    }
    scatter_sum<V, V>(sum, lane);
    if (lane % (32 / V) == 0) scratch[warp * V + lane / (32 / V)] = sum[0];
    __syncthreads();
    if (mine) {
        float all = 0.0f;
        for (int part = 0; part < split; ++part) all += scratch[(own / C * split + part) * V + own % C * M + row];
        store(args.y, row, column, activate(args.activation, all * scale + bias) + residual);
    }
    finish(args.tail);
}

} // namespace gemv

// Two blocks per multiprocessor: without this bound ptxas aims for one, at the price of spills.
#define PRODUCT(kind, Kind, M, C)                     \
    KERNEL(gemv_##kind##_##M, GemmArgs, BLOCKS(256, 2)) { \
        SHARED(float, scratch);                       \
        gemv::product<Kind, M, C>(args, scratch);     \
    }
#define PRODUCTS(kind, Kind)  \
    PRODUCT(kind, Kind, 1, 1) \
    PRODUCT(kind, Kind, 2, 1) \
    PRODUCT(kind, Kind, 4, 2) \
    PRODUCT(kind, Kind, 8, 2)

PRODUCTS(f32, gemv::Floats)
PRODUCTS(f16, gemv::Halves)
PRODUCTS(s8, gemv::Bytes)
