// Softmax and folds of rows, folds and means over the tokens of each sequence, and cumulative sums over them.
//
// Bound by memory and, for one short sequence, by its latency: hence four elements per load, several loads in flight,
// and the tokens of a sequence split over the 16 warps of a block, whose partial results are combined in a fixed order.
// Maximum and minimum ignore NaNs. A sequence without tokens gives zeros.

namespace rows {

enum { WARPS = 16, COLUMNS = 128 }; // per block, in kernels that fold tokens

DEVICE float number(float x) { return x; }
DEVICE float number(unsigned short half) { return from_half(half); }
DEVICE float number(long long x) { return (float)x; }
DEVICE float number(int x) { return (float)x; }
DEVICE float number(unsigned char x) { return (float)x; }
DEVICE float infinity() { return __int_as_float(0x7f800000); }

/// Four elements of a row, loaded at once; those behind its end are zeros.
template <class T> struct alignas(4 * sizeof(T)) Four {
    static constexpr int AHEAD = 4;      // loads in flight
    static constexpr bool WHOLE = true; // the width is a multiple of four
    T v[4];
    __forceinline__ void read(const Mat &m, int row, int column, int width) {
        *this = Four{};
        if (column < width) *this = *place(m, row, column);
    }
    __forceinline__ float at(int j) const { return number(v[j]); }
    static __forceinline__ Four *place(const Mat &m, int row, int column) {
        return reinterpret_cast<Four *>(static_cast<T *>(m.data) + (long long)row * m.stride + column);
    }
};
/// The same for rows that Four cannot load: any type and width.
struct Singles {
    static constexpr int AHEAD = 1;
    static constexpr bool WHOLE = false;
    float v[4];
    __forceinline__ void read(const Mat &m, int row, int column, int width) {
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = column + j < width ? load(m, row, column + j) : 0.0f;
    }
    __forceinline__ float at(int j) const { return v[j]; }
};
DEVICE bool in_fours(const Mat &m, int width) {
    return width % 4 == 0 && m.kind <= F16 && m.stride % 4 == 0 && reinterpret_cast<unsigned long long>(m.data) % 16 == 0;
}

template <class T> DEVICE void read_row(float (&v)[8][4], const Mat &m, int row, int lane, int from, int width) {
    Four<T> raw[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) raw[i].read(m, row, from + (i * 32 + lane) * 4, width);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) v[i][j] = raw[i].at(j);
}
/// Softmax of one row by a warp, which holds up to 1024 columns and reads wider rows again. x and y may be the same
/// memory.
DEVICE void softmax_held(const RowsArgs &args, int row, int lane) {
    const int width = args.width;
    float v[8][4], most = -infinity(), sum = 0.0f;
#pragma unroll 1
    for (int pass = 0; pass < 3; ++pass) {
        const float share = 1.0f / sum; // for pass 2
#pragma unroll 1
        for (int from = 0; from < width; from += 1024) {
            const bool reads = pass == 0 || width > 1024;
            if (reads && args.x.kind == F32) read_row<float>(v, args.x, row, lane, from, width);
            if (reads && args.x.kind == F16) read_row<unsigned short>(v, args.x, row, lane, from, width);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int column = from + (i * 32 + lane) * 4;
                if (column >= width) continue;
                if (pass == 0) {
                    most = fmaxf(most, fmaxf(fmaxf(v[i][0], v[i][1]), fmaxf(v[i][2], v[i][3])));
                    continue;
                }
                // exponentials of rows in registers are computed in pass 1, of other rows in both passes
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (pass == 1 || reads) v[i][j] = expf(v[i][j] == most ? 0.0f : v[i][j] - most); // inf - inf would be NaN
                if (pass == 1) {
                    sum += (v[i][0] + v[i][1]) + (v[i][2] + v[i][3]);
                    continue;
                }
#pragma unroll
                for (int j = 0; j < 4; ++j) v[i][j] *= share;
                if (args.y.kind == F32) *Four<float>::place(args.y, row, column) = {{v[i][0], v[i][1], v[i][2], v[i][3]}};
                else
                    *Four<unsigned short>::place(args.y, row, column) = {
                        {to_half(v[i][0]), to_half(v[i][1]), to_half(v[i][2]), to_half(v[i][3])}};
            }
        }
        if (pass == 0) most = warp_max(most);
        if (pass == 1) sum = warp_sum(sum);
    }
}
DEVICE void softmax_any(const RowsArgs &args, int row, int lane) {
    float most = -infinity(), sum = 0.0f;
    for (int column = lane; column < args.width; column += 32) most = fmaxf(most, load(args.x, row, column));
    most = warp_max(most);
#pragma unroll 1
    for (int pass = 1; pass < 3; ++pass) {
        const float share = pass == 2 ? 1.0f / warp_sum(sum) : 0.0f;
        for (int column = lane; column < args.width; column += 32) {
            const float x = load(args.x, row, column);
            const float power = x == most ? 1.0f : expf(x - most);
            sum += power;
            if (pass == 2) store(args.y, row, column, power * share);
        }
    }
}

/// A fold as a sum or a maximum: a minimum is the negated maximum of the negated values.
struct Folding {
    bool most;
    float sign;
    __forceinline__ explicit Folding(int fold) : most(fold == FOLD_MAX || fold == FOLD_MIN), sign(fold == FOLD_MIN ? -1.0f : 1.0f) {}
    __forceinline__ float start() const { return most ? -infinity() : 0.0f; }
    __forceinline__ float join(float a, float b) const { return most ? fmaxf(a, b) : a + b; }
    __forceinline__ float end(float v, int fold, int count) const { return fold == FOLD_MEAN ? v / (float)count : v * sign; }
};

/// A lane's part of the fold of a row.
template <class Reader> DEVICE float fold_row(const RowsArgs &args, const Folding &folding, int row, int lane) {
    float v = folding.start();
#pragma unroll Reader::AHEAD
    for (int column = lane * 4; column < args.width; column += 128) {
        Reader raw;
        raw.read(args.x, row, column, args.width);
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (Reader::WHOLE || column + j < args.width) v = folding.join(v, raw.at(j) * folding.sign);
    }
    return v;
}

/// A lane's four columns folded over tokens from..to, every 16th of them.
template <class Reader>
DEVICE void fold_tokens(float (&v)[4], const RowsArgs &args, const Folding &folding, int from, int to, int column) {
    if (column >= args.width) return;
#pragma unroll Reader::AHEAD
    for (int token = from; token < to; token += WARPS) {
        Reader raw;
        raw.read(args.x, token, column, args.width);
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = folding.join(v[j], raw.at(j) * folding.sign);
    }
}
/// The same, a weighted sum over tokens; `sum` is the sum of the weights. `x` begins with token `first`.
template <class Reader>
DEVICE void add_weighted(float (&v)[4], float &sum, const MeanPoolArgs &args, const float *weights, int first, int warp, int count,
                         int column) {
#pragma unroll Reader::AHEAD
    for (int token = warp; token < count; token += WARPS) {
        Reader raw;
        raw.read(args.x, first + token, column, args.width);
        const float weight = weights[token];
        sum += weight;
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] += weight * raw.at(j);
    }
}

/// The cumulative sums of one column over tokens begin..end; only the last one if `store_them` is false.
template <class T> DEVICE float run(const RowsArgs &args, int begin, int end, int column, float sum, bool store_them) {
    const T *const x = static_cast<const T *>(args.x.data) + column;
#pragma unroll 1
    for (int token = begin; token < end; token += 8) {
        T raw[8];
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (token + i < end) raw[i] = x[(long long)(token + i) * args.x.stride];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (token + i >= end) continue;
            sum += number(raw[i]);
            if (store_them) store(args.y, token + i, column, sum);
        }
    }
    return sum;
}
DEVICE float run_of_kind(const RowsArgs &args, int begin, int end, int column, float sum, bool store_them) {
    switch (args.x.kind) {
    case F32: return run<float>(args, begin, end, column, sum, store_them);
    case F16: return run<unsigned short>(args, begin, end, column, sum, store_them);
    case I64: return run<long long>(args, begin, end, column, sum, store_them);
    case I32: return run<int>(args, begin, end, column, sum, store_them);
    default: return run<unsigned char>(args, begin, end, column, sum, store_them);
    }
}

} // namespace rows

// One warp per row.
KERNEL(softmax_rows, RowsArgs, 128) {
    const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row < rows_of(args.rows)) {
        if (!rows::in_fours(args.x, args.width) || !rows::in_fours(args.y, args.width)) rows::softmax_any(args, row, lane);
        else rows::softmax_held(args, row, lane);
    }
    finish(args.tail);
}

// One warp per row.
KERNEL(reduce_rows, RowsArgs, 128) {
    const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row < rows_of(args.rows)) {
        const rows::Folding folding(args.fold);
        float v;
        if (args.fold == FOLD_FIRST) v = load(args.x, row, 0);
        else if (!rows::in_fours(args.x, args.width)) v = rows::fold_row<rows::Singles>(args, folding, row, lane);
        else if (args.x.kind == F32) v = rows::fold_row<rows::Four<float>>(args, folding, row, lane);
        else v = rows::fold_row<rows::Four<unsigned short>>(args, folding, row, lane);
        if (args.fold != FOLD_FIRST) v = folding.end(folding.most ? warp_max(v) : warp_sum(v), args.fold, args.width);
        if (lane == 0) store(args.y, row, 0, v);
    }
    finish(args.tail);
}

// One block per sequence (y of the grid) and 128 columns (x). Shared: 16 · 128 floats.
KERNEL(pool_tokens, RowsArgs, 512) {
    SHARED(float, parts);
    const int sequence = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (sequence < rows_of(args.rows)) {
        const rows::Folding folding(args.fold);
        const int from = args.header[HEADER_OFFSETS + sequence], last = args.header[HEADER_OFFSETS + sequence + 1];
        const int to = args.fold == FOLD_FIRST ? min(from + 1, last) : last;
        const int column = blockIdx.x * rows::COLUMNS + lane * 4;
        float v[4] = {folding.start(), folding.start(), folding.start(), folding.start()};
        if (!rows::in_fours(args.x, args.width)) rows::fold_tokens<rows::Singles>(v, args, folding, from + warp, to, column);
        else if (args.x.kind == F32) rows::fold_tokens<rows::Four<float>>(v, args, folding, from + warp, to, column);
        else rows::fold_tokens<rows::Four<unsigned short>>(v, args, folding, from + warp, to, column);
        reinterpret_cast<rows::Four<float> *>(parts)[threadIdx.x] = {{v[0], v[1], v[2], v[3]}};
        __syncthreads();
        const int own = blockIdx.x * rows::COLUMNS + threadIdx.x;
        if (threadIdx.x < rows::COLUMNS && own < args.width) {
            float total = parts[threadIdx.x];
            for (int i = 1; i < rows::WARPS; ++i) total = folding.join(total, parts[i * rows::COLUMNS + threadIdx.x]);
            store(args.y, sequence, own, to > from ? folding.end(total, args.fold, to - from) : 0.0f);
        }
    }
    finish(args.tail);
}

// One block per sequence (y of the grid) and 128 columns (x). Shared: 16 · 128 + 512 + 16 floats.
KERNEL(mean_pool, MeanPoolArgs, 512) {
    SHARED(float, parts);
    float *const weights = parts + rows::WARPS * rows::COLUMNS, *const sums = weights + 512;
    const int sequence = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (sequence < rows_of(args.rows)) {
        const int from = args.header[HEADER_OFFSETS + sequence], to = args.header[HEADER_OFFSETS + sequence + 1];
        const int column = blockIdx.x * rows::COLUMNS + lane * 4;
        float v[4] = {0.0f, 0.0f, 0.0f, 0.0f}, sum = 0.0f;
#pragma unroll 1
        for (int first = from; first < to; first += 512) {
            const int count = min(512, to - first);
            __syncthreads(); // all threads have used the previous weights
            if ((int)threadIdx.x < count) weights[threadIdx.x] = load(args.weights, first + threadIdx.x, 0);
            __syncthreads();
            if (!rows::in_fours(args.x, args.width))
                rows::add_weighted<rows::Singles>(v, sum, args, weights, first, warp, count, column);
            else if (args.x.kind == F32)
                rows::add_weighted<rows::Four<float>>(v, sum, args, weights, first, warp, count, column);
            else rows::add_weighted<rows::Four<unsigned short>>(v, sum, args, weights, first, warp, count, column);
        }
        reinterpret_cast<rows::Four<float> *>(parts)[threadIdx.x] = {{v[0], v[1], v[2], v[3]}};
        if (lane == 0) sums[warp] = sum;
        __syncthreads();
        const int own = blockIdx.x * rows::COLUMNS + threadIdx.x;
        if (threadIdx.x < rows::COLUMNS && own < args.width) {
            float total = parts[threadIdx.x], weight = sums[0];
            for (int i = 1; i < rows::WARPS; ++i) {
                total += parts[i * rows::COLUMNS + threadIdx.x];
                weight += sums[i];
            }
            store(args.y, sequence, own, total / fmaxf(weight, args.at_least));
        }
    }
    finish(args.tail);
}

// One block per sequence (y of the grid) and 32 columns (x): threads divide a column's tokens, sum their parts, and
// traverse them again starting from the sum of the preceding parts. Shared: 512 floats. x and y may be the same memory.
KERNEL(cum_sum, RowsArgs, 512) {
    SHARED(float, sums);
    const int sequence = blockIdx.y;
    if (sequence < rows_of(args.rows)) {
        const int from = args.header[HEADER_OFFSETS + sequence], to = args.header[HEADER_OFFSETS + sequence + 1];
        int columns = 1;
        while (columns < args.width && columns < 32) columns *= 2;
        const int chunks = min(512 / columns, 64), length = (to - from + chunks - 1) / chunks;
        const int lane = threadIdx.x % columns, chunk = threadIdx.x / columns, column = blockIdx.x * 32 + lane;
        const bool has = chunk < chunks && column < args.width;
        const int begin = from + chunk * length, end = min(begin + length, to);
#pragma unroll 1
        for (int pass = 0; pass < 2; ++pass) {
            float sum = 0.0f;
            for (int i = 0; pass == 1 && has && i < chunk; ++i) sum += sums[i * columns + lane];
            if (has) sum = rows::run_of_kind(args, begin, end, column, sum, pass == 1);
            if (pass == 0 && has) sums[threadIdx.x] = sum;
            __syncthreads();
        }
    }
    finish(args.tail);
}
