// Copies columns to another matrix, converting the element type, or activates them in place; rotates heads by angles, and quantises rows to 8 bits.
//
// Bound by memory: four elements per load where both sides allow it, neighbouring threads at neighbouring addresses.

namespace moves {

template <class T> DEVICE T *place(const Mat &m, int row, int column) {
    return static_cast<T *>(m.data) + (long long)row * m.stride + column;
}
template <class T> DEVICE void read_four(float (&v)[4], const Mat &m, int row, int column) {
    const Four<T> raw = *reinterpret_cast<const Four<T> *>(place<T>(m, row, column));
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = number(raw.v[j]);
}

/// Four elements from `column` on, of which `left` are wanted; `fours` says that they can be read at once.
DEVICE void take_four(float (&v)[4], const Mat &m, int row, int column, int left, bool fours) {
    // the padding of a row whose end is not a multiple of four has room for them
    if (fours && m.kind == F32) read_four<float>(v, m, row, column);
    else if (fours) read_four<unsigned short>(v, m, row, column);
    else
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = j < left ? load(m, row, column + j) : 0.0f;
}
/// Writes what take_four reads.
DEVICE void put_four(const float (&v)[4], const Mat &m, int row, int column, int left, bool fours) {
    if (fours && left > 3 && m.kind == F32) *reinterpret_cast<Four<float> *>(place<float>(m, row, column)) = {{v[0], v[1], v[2], v[3]}};
    else if (fours && left > 3)
        *reinterpret_cast<Four<unsigned short> *>(place<unsigned short>(m, row, column)) = {
            {to_half(v[0]), to_half(v[1]), to_half(v[2]), to_half(v[3])}};
    else
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (j < left) store(m, row, column + j, v[j]);
}

/// The row of cosines and sines of a row of x; 0 if there is none, which is reported.
DEVICE int angle_of(const RotateArgs &args, int row) {
    if (args.header == nullptr) return row;
    const int position = row - args.header[HEADER_OFFSETS + sequence_of(args.header, row)];
    if (position < args.positions) return position;
    report_row(args.fault, args.node, 0, row, position);
    return 0;
}

/// A float as a signed byte: to the nearest, ties to even, at most ±127.
DEVICE int to_byte(float x) { return (int)fminf(fmaxf(rintf(x), -127.0f), 127.0f); }

/// The magnitude; infinite for NaN, so that the maximum of a row reveals it.
DEVICE float magnitude(float x) { return fabsf(x) <= 3.402823466e38f ? fabsf(x) : __int_as_float(0x7f800000); }

/// A lane's maximum magnitude over its part of a row.
template <class T> DEVICE float greatest(const Mat &x, int row, int lane, int width) {
    float most = 0.0f;
#pragma unroll 4
    for (int column = lane * 4; column < width; column += 128) {
        float v[4];
        read_four<T>(v, x, row, column);
#pragma unroll
        for (int j = 0; j < 4; ++j) most = fmaxf(most, column + j < width ? magnitude(v[j]) : 0.0f);
    }
    return most;
}
template <class T> DEVICE void to_bytes(const Mat &x, const Mat &y, int row, int lane, int width, float by) {
#pragma unroll 1
    for (int from = lane * 4; from < y.stride; from += 512) {
        Four<T> raw[4]; // all loads first: a store in between would keep them waiting
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            raw[i] = {};
            if (from + i * 128 < width) raw[i] = *reinterpret_cast<const Four<T> *>(place<T>(x, row, from + i * 128));
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int column = from + i * 128;
            unsigned bytes = 0;
#pragma unroll
            for (int j = 0; j < 4; ++j)
                if (column + j < width) bytes |= ((unsigned)to_byte(number(raw[i].v[j]) * by) & 0xffu) << 8 * j;
            if (column < y.stride) *reinterpret_cast<unsigned *>(place<unsigned char>(y, row, column)) = bytes;
        }
    }
}

} // namespace moves

// One thread for four elements of a row (or fewer at its end), in a grid-stride loop.
KERNEL(copy_columns, CopyArgs, 256) {
    const unsigned pieces = ((unsigned)args.width + 3) / 4, count = (unsigned)rows_of(args.rows) * pieces, all = gridDim.x * blockDim.x;
    const bool reads = in_fours(args.x, args.x_from), writes = in_fours(args.y, args.y_from);
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += all) {
        const int row = (int)(at / pieces), column = (int)(at % pieces) * 4;
        float v[4];
        moves::take_four(v, args.x, row, args.x_from + column, args.width - column, reads);
        if (args.activation != ACT_NONE)
#pragma unroll
            for (int j = 0; j < 4; ++j) v[j] = activate(args.activation, v[j]);
        moves::put_four(v, args.y, row, args.y_from + column, args.width - column, writes);
        if (count - at <= all) break; // at + all might not fit
    }
    finish(args.tail);
}

// One thread for four columns of a head (or fewer at the end of its half) and the four that they are rotated with, in a
// grid-stride loop.
KERNEL(rotate_heads, RotateArgs, 256) {
    const int half = args.head / 2, pieces = (half + 3) / 4, all_pieces = args.heads * pieces;
    const unsigned count = (unsigned)rows_of(args.rows) * (unsigned)all_pieces, all = gridDim.x * blockDim.x;
    const bool fours = half % 4 == 0 && in_fours(args.x, args.x_from) && in_fours(args.cos) && in_fours(args.sin) && in_fours(args.y);
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += all) {
        const int row = (int)(at / (unsigned)all_pieces), piece = (int)(at % (unsigned)all_pieces);
        const int head = piece / pieces * args.head, column = piece % pieces * 4, left = half - column;
        const int angle = moves::angle_of(args, row);
        float x[2][4], cos[2][4], sin[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            moves::take_four(x[i], args.x, row, args.x_from + head + i * half + column, left, fours);
            moves::take_four(cos[i], args.cos, angle, i * half + column, left, fours);
            moves::take_four(sin[i], args.sin, angle, i * half + column, left, fours);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float first = x[0][j] * cos[0][j] - x[1][j] * sin[0][j];
            x[1][j] = x[1][j] * cos[1][j] + x[0][j] * sin[1][j];
            x[0][j] = first;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) moves::put_four(x[i], args.y, row, head + i * half + column, left, fours);
        if (count - at <= all) break; // at + all might not fit
    }
    finish(args.tail);
}

// One warp per row, which reads it for the maximum magnitude, and once more from the cache.
KERNEL(quantize_rows, QuantizeArgs, 128) {
    const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, width = args.width;
    if (row < rows_of(args.rows)) {
        const bool fours = in_fours(args.x, 0) && args.y.stride % 4 == 0;
        float scale = args.fixed;
        if (!(scale > 0.0f)) {
            float most = 0.0f;
            if (fours && args.x.kind == F32) most = moves::greatest<float>(args.x, row, lane, width);
            else if (fours) most = moves::greatest<unsigned short>(args.x, row, lane, width);
            else
                for (int column = lane; column < width; column += 32) most = fmaxf(most, moves::magnitude(load(args.x, row, column)));
            most = warp_max(most);
            // also correct for values so small that dividing by their scale would not be finite; a row with an element
            // that is not finite becomes NaN, as on the CPU: infinity minus itself
            scale = most < 1e-30f ? 1.0f : most / 127.0f + (most - most);
        }
        const float by = 1.0f / scale;
        if (fours && args.x.kind == F32) moves::to_bytes<float>(args.x, args.y, row, lane, width, by);
        else if (fours) moves::to_bytes<unsigned short>(args.x, args.y, row, lane, width, by);
        else
            for (int column = lane; column < args.y.stride; column += 32)
                *moves::place<signed char>(args.y, row, column) =
                    (signed char)(column < width ? moves::to_byte(load(args.x, row, column) * by) : 0);
        if (lane == 0 && args.scale) args.scale[row] = scale;
    }
    finish(args.tail);
}
