// Layer norm and RMS norm of rows, with a residual added before: (x + residual - mean) / deviation · scale + shift.
//
// Bound by memory: a row is read once and held in registers (read again if it is wider than 1024 columns, 4096 in the
// wide kernels), four elements per load, with all loads of a row in flight together. One warp handles a row; in the
// wide kernels a block of 256, for widths above 1024. The variance is the mean of squared deviations, which also
// corrects the mean, so that a large mean costs no precision. x, residual and y may be the same memory. Rows whose
// width is not a multiple of four, or with x and residual of different types, take a slower path, one element at a
// time.

namespace norms {

/// Reads a part of a row, PIECES times four elements for each of THREADS threads, from column `from` on; zeros behind
/// the row.
template <class T, int THREADS, int PIECES>
DEVICE void read_row(Four<T> (&v)[PIECES], const Mat &m, int row, int thread, int from, int width) {
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        const int column = from + (i * THREADS + thread) * 4;
        v[i] = Four<T>{};
        if (column < width) v[i] = *four_at<T>(m, row, column);
    }
}
/// Writes a part of a row in the layout of read_row.
template <int THREADS, int PIECES>
DEVICE void write_row(const float (&v)[PIECES][4], const Mat &m, int row, int thread, int from, int width) {
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        const int column = from + (i * THREADS + thread) * 4;
        if (column >= width) continue;
        if (m.kind == F32) *four_at<float>(m, row, column) = {{v[i][0], v[i][1], v[i][2], v[i][3]}};
        else *four_at<unsigned short>(m, row, column) = {{to_half(v[i][0]), to_half(v[i][1]), to_half(v[i][2]), to_half(v[i][3])}};
    }
}
template <int THREADS> DEVICE float group_sum(float v, float *scratch) {
    if (THREADS == 32) return warp_sum(v);
    return block_sum(v, scratch);
}

/// What is subtracted from a row and what it is multiplied by.
struct Moments {
    float mean, rest, by; // (x - mean - rest) · by
    float sum, squares;   // of x - mean, so far, in this thread
};
/// Updates it after the sums of pass 0 (of x: the mean) or 1 (of x - mean: the deviation).
template <bool LAYER, int THREADS> DEVICE void close_pass(Moments &m, int pass, int width, float epsilon, float *scratch) {
    const float share = group_sum<THREADS>(m.sum, scratch) / (float)width;
    if (pass == 0) {
        m.mean = share;
    } else {
        m.rest = LAYER ? share : 0.0f;
        const float variance = group_sum<THREADS>(m.squares, scratch) / (float)width - m.rest * m.rest;
        m.by = 1.0f / sqrtf(fmaxf(variance, 0.0f) + epsilon);
    }
    m.sum = m.squares = 0.0f;
}

/// v = x + residual, both of type T, with four pieces of each in flight together.
template <class T, int THREADS, int PIECES>
DEVICE void read_sum(float (&v)[PIECES][4], const NormArgs &args, int row, int thread, int from) {
#pragma unroll
    for (int group = 0; group < PIECES; group += 4) {
        Four<T> x[4], more[4];
        read_row<T, THREADS>(x, args.x, row, thread, from + group * THREADS * 4, args.width);
        // without a residual nothing is read
        read_row<T, THREADS>(more, args.residual, row, thread, from + group * THREADS * 4, args.residual.data ? args.width : 0);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) v[group + i][j] = number(x[i].v[j]) + number(more[i].v[j]);
    }
}

/// v = (v - mean - rest) · by · scale + shift, with four pieces of each row in flight together.
template <int THREADS, int PIECES>
DEVICE void spread(float (&v)[PIECES][4], const Moments &m, const float *scale, const float *shift, int thread, int from, int width) {
#pragma unroll
    for (int group = 0; group < PIECES; group += 4) {
        Four<float> by[4], more[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int column = from + ((group + i) * THREADS + thread) * 4;
            by[i] = {{1.0f, 1.0f, 1.0f, 1.0f}};
            more[i] = {};
            if (scale && column < width) by[i] = *reinterpret_cast<const Four<float> *>(scale + column);
            if (shift && column < width) more[i] = *reinterpret_cast<const Four<float> *>(shift + column);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) v[group + i][j] = (v[group + i][j] - m.mean - m.rest) * m.by * by[i].v[j] + more[i].v[j];
    }
}

/// Normalises one row with THREADS threads: a pass for the mean, one for the squares, one that writes; if `v` holds the
/// whole row, only the first pass reads.
template <bool LAYER, int THREADS, int PIECES>
DEVICE void norm_held(const NormArgs &args, int row, int thread, float *scratch) {
    const int most = THREADS * PIECES * 4, first = LAYER ? 0 : 1, width = args.width;
    Moments m = {};
    float v[PIECES][4];
#pragma unroll 1
    for (int pass = first; pass < 3; ++pass) {
#pragma unroll 1
        for (int from = 0; from < width; from += most) {
            if (pass == first || width > most) {
                if (args.x.kind == F32) read_sum<float, THREADS>(v, args, row, thread, from);
                else read_sum<unsigned short, THREADS>(v, args, row, thread, from);
            }
            if (pass == 2) {
                spread<THREADS>(v, m, args.scale, args.shift, thread, from, width);
                write_row<THREADS>(v, args.y, row, thread, from, width);
                continue;
            }
#pragma unroll
            for (int i = 0; i < PIECES; ++i) {
                if (from + (i * THREADS + thread) * 4 >= width) continue;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float off = v[i][j] - m.mean;
                    m.sum += off;
                    m.squares += off * off;
                }
            }
        }
        if (pass < 2) close_pass<LAYER, THREADS>(m, pass, width, args.epsilon, scratch);
    }
}

/// The same for any width and types, one element at a time.
template <bool LAYER, int THREADS> DEVICE void norm_any(const NormArgs &args, int row, int thread, float *scratch) {
    Moments m = {};
#pragma unroll 1
    for (int pass = LAYER ? 0 : 1; pass < 3; ++pass) {
#pragma unroll 1
        for (int column = thread; column < args.width; column += THREADS) {
            const float x = load(args.x, row, column) + (args.residual.data ? load(args.residual, row, column) : 0.0f);
            const float off = x - m.mean;
            m.sum += off;
            m.squares += off * off;
            const float scaled = (off - m.rest) * m.by * (args.scale ? args.scale[column] : 1.0f);
            if (pass == 2) store(args.y, row, column, scaled + (args.shift ? args.shift[column] : 0.0f));
        }
        if (pass < 2) close_pass<LAYER, THREADS>(m, pass, args.width, args.epsilon, scratch);
    }
}

template <bool LAYER, int THREADS, int PIECES> DEVICE void norm_row(const NormArgs &args, int row, int thread, float *scratch) {
    const unsigned long long rows =
        reinterpret_cast<unsigned long long>(args.scale) | reinterpret_cast<unsigned long long>(args.shift);
    const bool likes = !args.residual.data || (args.residual.kind == args.x.kind && in_fours(args.residual));
    if (args.width % 4 == 0 && rows % 16 == 0 && likes && in_fours(args.x) && in_fours(args.y))
        norm_held<LAYER, THREADS, PIECES>(args, row, thread, scratch);
    else norm_any<LAYER, THREADS>(args, row, thread, scratch);
}

/// One warp per row.
template <bool LAYER> DEVICE void norm_by_warps(const NormArgs &args) {
    const int row = blockIdx.x * 4 + threadIdx.x / 32;
    if (row < rows_of(args.rows)) norm_row<LAYER, 32, 8>(args, row, threadIdx.x % 32, nullptr);
    finish(args.tail);
}
/// One block per row.
template <bool LAYER> DEVICE void norm_by_blocks(const NormArgs &args, float *scratch) {
    const int row = blockIdx.x;
    if (row < rows_of(args.rows)) norm_row<LAYER, 256, 4>(args, row, threadIdx.x, scratch);
    finish(args.tail);
}

} // namespace norms

KERNEL(layer_norm, NormArgs, 128) { norms::norm_by_warps<true>(args); }

KERNEL(rms_norm, NormArgs, 128) { norms::norm_by_warps<false>(args); }

KERNEL(layer_norm_wide, NormArgs, 256) {
    SHARED(float, scratch);
    norms::norm_by_blocks<true>(args, scratch);
}

KERNEL(rms_norm_wide, NormArgs, 256) {
    SHARED(float, scratch);
    norms::norm_by_blocks<false>(args, scratch);
}
