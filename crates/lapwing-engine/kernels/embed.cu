// Embeddings: for each token the sum of one row of each table, selected by an id or by the token's position in its
// sequence, then an optional layer norm.
//
// Bound by memory (rows of tables are read at random, each whole): a warp handles a token and holds up to 1024 columns
// in registers, four elements per load, with all loads of a table's row in flight together. Wider rows are processed in
// parts, and read again for each pass of the norm. The norm is that of norm.cu.

namespace embedding {

/// v += a part of a row, eight times four elements per lane, from `column` on, of which `left` belong to the row.
template <class T> DEVICE void add_row(float (&v)[8][4], const Mat &m, int row, int column, int left) {
    const Four<T> *const x = four_at<T>(m, row, column);
    Four<T> raw[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        raw[i] = {};
        if (i * 128 < left) raw[i] = x[i * 32];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) v[i][j] += number(raw[i].v[j]);
}
/// Writes the elements that add_row reads.
DEVICE void write_row(const float (&v)[8][4], const Mat &m, int row, int column, int left) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (i * 128 >= left) continue;
        if (m.kind == F32) four_at<float>(m, row, column)[i * 32] = {{v[i][0], v[i][1], v[i][2], v[i][3]}};
        else four_at<unsigned short>(m, row, column)[i * 32] = {{to_half(v[i][0]), to_half(v[i][1]), to_half(v[i][2]), to_half(v[i][3])}};
    }
}

/// The requested row of a lookup, before the check that the table has it.
DEVICE long long asked(const EmbedArgs &args, const Table &table, int row) {
    if (!table.ids.data) {
        const int first = args.header[HEADER_OFFSETS + sequence_of(args.header, row)];
        return (long long)table.from + (row - first);
    }
    const long long at = (long long)row * table.ids.stride + table.from;
    if (table.ids.kind == I64) return static_cast<const long long *>(table.ids.data)[at];
    if (table.ids.kind == I32) return static_cast<const int *>(table.ids.data)[at];
    const float x = load(table.ids, row, table.from); // a whole number that was computed
    if (x >= 2147483648.0f) return 2147483647;
    if (x <= -2147483648.0f) return -2147483647 - 1;
    return x == x ? (long long)x : 0;
}
/// The table's row; 0 if the row does not exist, which the first thread to detect it reports to the host.
DEVICE int pick(const EmbedArgs &args, int which, int row, int lane) {
    if (which >= args.count) return 0;
    const Table &table = args.tables[which];
    const long long id = asked(args, table, row), from_start = id < 0 ? id + table.table_rows : id;
    if (from_start >= 0 && from_start < table.table_rows) return (int)from_start;
    if (lane == which) report_row(args.fault, args.node, which, row, id);
    return 0;
}

/// The rows of the tables.
struct Picks {
    int row[4];
    /// Each lane of four looks up one table, so that the ids are loaded in parallel, and gets the others' from its
    /// neighbours.
    __forceinline__ Picks(const EmbedArgs &args, int token, int lane) {
        const int own = lane % 4, by_0 = pick(args, own, token, lane);
        const int by_1 = shuffle_xor_int(by_0, 1), by_2 = shuffle_xor_int(by_0, 2), by_3 = shuffle_xor_int(by_0, 3);
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            const int apart = own ^ t;
            row[t] = apart == 0 ? by_0 : apart == 1 ? by_1 : apart == 2 ? by_2 : by_3;
        }
    }
    /// Without an array that is indexed at run time, which would be in local memory.
    __forceinline__ int of(int table) const { return table == 0 ? row[0] : table == 1 ? row[1] : table == 2 ? row[2] : row[3]; }
};

/// The mean and 1 / deviation of the norm; `rest` corrects the mean.
struct Moments {
    float mean, rest, by, sum, squares;
    __forceinline__ void take(float x) {
        const float off = x - mean;
        sum += off;
        squares += off * off;
    }
    __forceinline__ void close(int pass, int width, float epsilon) {
        const float share = warp_sum(sum) / (float)width, square = warp_sum(squares) / (float)width;
        if (pass == 0) {
            mean = share;
        } else {
            rest = share;
            by = 1.0f / sqrtf(fmaxf(square - share * share, 0.0f) + epsilon);
        }
        sum = squares = 0.0f;
    }
};

/// v = (v - mean - rest) · by · scale + shift, with four pieces of each row in flight together.
DEVICE void spread(float (&v)[8][4], const Moments &m, const EmbedArgs &args, int column, int left) {
#pragma unroll
    for (int group = 0; group < 8; group += 4) {
        Four<float> by[4], more[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = (group + i) * 128;
            by[i] = {{1.0f, 1.0f, 1.0f, 1.0f}};
            more[i] = {};
            if (args.scale && at < left) by[i] = *reinterpret_cast<const Four<float> *>(args.scale + column + at);
            if (args.shift && at < left) more[i] = *reinterpret_cast<const Four<float> *>(args.shift + column + at);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) v[group + i][j] = (v[group + i][j] - m.mean - m.rest) * m.by * by[i].v[j] + more[i].v[j];
    }
}

DEVICE void row_held(const EmbedArgs &args, const Picks &picks, int row, int lane) {
    const int width = args.width, first = args.normed ? 0 : 2;
    Moments m = {0.0f, 0.0f, 1.0f, 0.0f, 0.0f};
    float v[8][4];
#pragma unroll 1
    for (int pass = first; pass < 3; ++pass) {
#pragma unroll 1
        for (int from = 0; from < width; from += 1024) {
            const int column = from + lane * 4, left = width - column;
            if (pass == first || width > 1024) {
#pragma unroll
                for (int i = 0; i < 8; ++i) v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0.0f;
#pragma unroll 1
                for (int t = 0; t < args.count; ++t) {
                    const Mat &table = args.tables[t].table;
                    if (table.kind == F32) add_row<float>(v, table, picks.of(t), column, left);
                    else add_row<unsigned short>(v, table, picks.of(t), column, left);
                }
            }
            if (pass == 2) {
                if (args.normed) spread(v, m, args, column, left);
                write_row(v, args.y, row, column, left);
                continue;
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                if (i * 128 >= left) continue;
#pragma unroll
                for (int j = 0; j < 4; ++j) m.take(v[i][j]);
            }
        }
        if (pass < 2) m.close(pass, width, args.epsilon);
    }
}

/// The same for any width, one element at a time.
DEVICE void row_any(const EmbedArgs &args, const Picks &picks, int row, int lane) {
    Moments m = {0.0f, 0.0f, 1.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int pass = args.normed ? 0 : 2; pass < 3; ++pass) {
#pragma unroll 1
        for (int column = lane; column < args.width; column += 32) {
            float x = 0.0f;
#pragma unroll 1
            for (int t = 0; t < args.count; ++t) x += load(args.tables[t].table, picks.of(t), column);
            m.take(x);
            if (pass < 2) continue;
            if (args.normed) {
                x = (x - m.mean - m.rest) * m.by * (args.scale ? args.scale[column] : 1.0f);
                x += args.shift ? args.shift[column] : 0.0f;
            }
            store(args.y, row, column, x);
        }
        if (pass < 2) m.close(pass, args.width, args.epsilon);
    }
}

} // namespace embedding

// A warp for each row.
KERNEL(embed, EmbedArgs, 128) {
    const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row < rows_of(args.rows)) {
        const embedding::Picks picks(args, row, lane);
        const unsigned long long rows =
            reinterpret_cast<unsigned long long>(args.scale) | reinterpret_cast<unsigned long long>(args.shift);
        bool fours = args.width % 4 == 0 && rows % 16 == 0 && in_fours(args.y);
        for (int t = 0; t < args.count; ++t) fours = fours && in_fours(args.tables[t].table);
        if (fours) embedding::row_held(args, picks, row, lane);
        else embedding::row_any(args, picks, row, lane);
    }
    finish(args.tail);
}
