// attention_f32 and attention_f16_{32,64,128} compared with a plain softmax in double precision: ragged batches, sizes that are no
// multiples of a tile, q, k and v in one matrix and in three, heads that share keys, and biases by key and by distance up to those that
// mask every key.
#include <algorithm>
#include <limits>

#include "check.h"

namespace {

enum Bias {
    NO_BIAS,
    SOME,               // between -2 and 2
    LAST_MASKED,        // -10000 on the last third of the keys
    ALL_10000,          // -10000 on all keys
    ALL_LOWEST,         // the lowest float on all keys: a plain mean, because rounding loses the scores
    PARTLY_LOWEST,      // the lowest float on the last third of the keys
    PARTLY_INFINITE,    // minus infinity on the first half and the last key of each sequence of more than two keys
    INFINITE_OR_LOWEST, // like PARTLY_INFINITE, with the lowest float on the other keys: a plain mean of all
    ALL_INFINITE,       // minus infinity on all keys
};

/// Biases by distance; a row for each head, or one for all.
enum Distances {
    NO_DISTANCES,
    OF_HEADS,        // between -2 and 2, up to 40 tokens before and behind; a row for each head
    FAR,             // the same with a reach beyond all sequences
    CAUSAL,          // minus infinity behind the query
    CAUSAL_LOWEST,   // the lowest float behind the query
    WINDOW,          // minus infinity beyond 3 tokens on both sides
    ELSEWHERE,       // minus infinity up to 3 tokens on both sides: no key is left for most queries of short sequences
};

struct Case {
    std::vector<int> lengths;
    int heads, head, head_out;
    int kind, y_kind;
    bool merged;
    Bias bias;
    int capacity = 0;                 // of the header
    int more_tiles = 0;               // added to the grid
    int gap = 0;                      // columns of NaN before each of q, k, v
    Distances distances = NO_DISTANCES;
    int key_heads = 0;                // 0: as many as heads
    bool zeros = false;               // of a query without a key
};

Case with(Case c, Distances distances, int key_heads = 0, bool zeros = false) {
    c.distances = distances;
    c.key_heads = key_heads;
    c.zeros = zeros;
    return c;
}

const float LOWEST = -std::numeric_limits<float>::max(), INFINITE = -std::numeric_limits<float>::infinity();

std::vector<float> biases(check::Check &t, const Case &c) {
    std::vector<float> all;
    for (int length : c.lengths)
        for (int key = 0; key < length; ++key) {
            const bool last = length > 2 && key >= length - length / 3;
            switch (c.bias) {
            case LAST_MASKED: all.push_back(last ? -10000.0f : 0.0f); break;
            case ALL_10000: all.push_back(-10000.0f); break;
            case ALL_LOWEST: all.push_back(LOWEST); break;
            case ALL_INFINITE: all.push_back(INFINITE); break;
            case PARTLY_LOWEST: all.push_back(last ? LOWEST : 0.0f); break;
            case INFINITE_OR_LOWEST:
            case PARTLY_INFINITE:
                all.push_back(length > 2 && (key < length / 2 || key == length - 1) ? INFINITE : c.bias == PARTLY_INFINITE ? 0.25f : LOWEST);
                break;
            default: all.push_back(t.uniform(1, -2, 2)[0]);
            }
        }
    return all;
}

/// A table of biases by distance.
struct Table {
    int reach = 0, apart = 0; // as in AttentionArgs
    std::vector<float> values;
    double of(int head, int distance) const {
        return values.empty() ? 0.0 : double(values[size_t(head * apart + reach + std::clamp(distance, -reach, reach))]);
    }
};

Table table(check::Check &t, const Case &c) {
    Table made;
    if (c.distances == NO_DISTANCES) return made;
    const bool of_heads = c.distances == OF_HEADS || c.distances == FAR;
    made.reach = c.distances == OF_HEADS ? 40 : c.distances == FAR ? 400 : c.distances <= CAUSAL_LOWEST ? 1 : 4;
    const int width = 2 * made.reach + 1;
    made.apart = of_heads ? width : 0;
    made.values = t.uniform(size_t(width * (of_heads ? c.heads : 1)), -2, 2);
    for (int d = -made.reach; d <= made.reach && !of_heads; ++d) {
        const bool is_near = std::abs(d) <= 3;
        const bool masked = c.distances <= CAUSAL_LOWEST ? d > 0 : is_near == (c.distances == ELSEWHERE);
        made.values[size_t(d + made.reach)] = !masked ? 0.0f : c.distances == CAUSAL_LOWEST ? LOWEST : INFINITE;
    }
    return made;
}

/// q, k or v: the kernel's argument and its values.
struct Input {
    Mat mat;
    int from, stride;
    std::vector<float> values; // [tokens][stride]
    const float *row(int token) const { return &values[size_t(token) * size_t(stride) + size_t(from)]; }
};

std::vector<float> plain(const Case &c, const Input &q, const Input &k, const Input &v, const std::vector<float> &bias, const Table &distances,
                         float scale, int rows) {
    const int width = c.heads * c.head_out;
    std::vector<float> want(size_t(rows) * size_t(width), NAN);
    int begin = 0;
    for (int length : c.lengths) {
        for (int h = 0; h < c.heads; ++h)
            for (int i = begin; i < begin + length; ++i) {
                std::vector<double> weight(size_t(length), 0.0), sum(size_t(c.head_out), 0.0);
                const int own = h / (c.heads / (c.key_heads ? c.key_heads : c.heads));
                double most = double(LOWEST), total = 0;
                for (int j = 0; j < length; ++j) {
                    double score = 0;
                    for (int d = 0; d < c.head; ++d) score += double(q.row(i)[h * c.head + d]) * double(k.row(begin + j)[own * c.head + d]);
                    score = score * double(scale) + (bias.empty() ? 0.0 : double(bias[size_t(begin + j)])) + distances.of(h, begin + j - i);
                    weight[size_t(j)] = std::max(score, double(LOWEST));
                    most = std::max(most, weight[size_t(j)]);
                }
                for (int j = 0; j < length; ++j) {
                    const double w = std::exp(weight[size_t(j)] - most);
                    total += w;
                    for (int d = 0; d < c.head_out; ++d) sum[size_t(d)] += w * double(v.row(begin + j)[own * c.head_out + d]);
                }
                const bool is_zero = c.zeros && most <= double(LOWEST);
                for (int d = 0; d < c.head_out; ++d) want[size_t(i * width + h * c.head_out + d)] = is_zero ? 0.0f : float(sum[size_t(d)] / total);
            }
        begin += length;
    }
    return want;
}

/// Runs one case, by attention_f32 or by attention_f16_`number`.
void attention(check::Check &t, const Case &c, int number = 0) {
    int tokens = 0, tiles = 0;
    for (int length : c.lengths) {
        tokens += length;
        tiles += (length + ATTENTION_TILE - 1) / ATTENTION_TILE;
    }
    // the last 3 rows belong to no sequence and are NaN
    const int rows = tokens + 3;
    const int key_heads = c.key_heads ? c.key_heads : c.heads;
    const std::vector<int> widths = {c.heads * c.head, key_heads * c.head, key_heads * c.head_out};
    // Matrices of NaN in which only the columns of q, k and v are filled; if `merged`, one matrix has all three.
    std::vector<check::Matrix> matrices;
    std::vector<Input> inputs(3);
    int all = 0;
    for (int width : widths) all += c.gap + width;
    std::vector<float> values;
    for (int i = 0, from = 0; i < 3; ++i) {
        const int width = c.merged ? all : c.gap + widths[size_t(i)];
        if (!c.merged || i == 0) values.assign(size_t(rows) * size_t(width), NAN);
        if (!c.merged) from = 0;
        from += c.gap;
        for (int r = 0; r < tokens; ++r) {
            const auto some = t.uniform(size_t(widths[size_t(i)]), -1.5f, 1.5f);
            std::copy(some.begin(), some.end(), values.begin() + ptrdiff_t(r) * width + from);
        }
        inputs[size_t(i)].from = from;
        inputs[size_t(i)].stride = width;
        from += widths[size_t(i)];
        if (!c.merged || i == 2) matrices.push_back(t.matrix(c.kind, rows, width, values));
    }
    for (size_t i = 0; i < 3; ++i) {
        const check::Matrix &m = matrices[c.merged ? 0 : i];
        inputs[i].mat = m;
        inputs[i].values = m.read();
    }
    std::vector<float> bias = c.bias == NO_BIAS ? std::vector<float>() : biases(t, c);
    auto bias_matrix = t.matrix(F32, c.bias == NO_BIAS ? 1 : tokens, 1);
    if (c.bias != NO_BIAS) bias_matrix.write(bias);
    const Table distances = table(t, c);
    auto by_distance = t.buffer(distances.values);
    auto header = t.buffer(t.header(c.lengths, c.capacity));
    auto y = t.matrix(c.y_kind, rows, c.heads * c.head_out, check::Check::stride_of(c.heads * c.head_out) + 8);
    auto tail = t.tail();

    AttentionArgs args = {};
    args.header = header.as<int>();
    args.q = inputs[0].mat;
    args.k = inputs[1].mat;
    args.v = inputs[2].mat;
    if (c.bias != NO_BIAS) args.bias = bias_matrix;
    args.y = y;
    args.tail = tail;
    args.q_from = inputs[0].from;
    args.k_from = inputs[1].from;
    args.v_from = inputs[2].from;
    args.heads = c.heads;
    args.head = c.head;
    args.head_out = c.head_out;
    args.scale = 1.3f / std::sqrt(float(c.head));
    args.group = c.heads / key_heads;
    if (c.distances != NO_DISTANCES) args.by_distance = by_distance.as<float>();
    args.reach = distances.reach;
    args.apart = distances.apart;
    args.zeros = c.zeros;
    const unsigned grid = unsigned(tiles + c.more_tiles), heads = unsigned(c.heads);
    std::string name = "attention_f32";
    if (number == 0) {
        t.launch("attention", name, grid, heads, 256, size_t(35840 + 256 * ((c.head_out + 31) / 32 * 32)), args);
    } else {
        name = "attention_f16_" + std::to_string(number);
        const int stages = number == 128 ? 2 : 3;
        t.launch("attention_mma", name, grid, heads, 128, size_t(stages * (256 * number + 256) + (c.distances != NO_DISTANCES ? 1536 : 0)), args);
    }
    std::string what = name + " " + std::to_string(c.heads) + "x" + std::to_string(c.head) + "/" + std::to_string(c.head_out) + " bias " +
                       std::to_string(c.bias) + " distances " + std::to_string(c.distances) + " of";
    for (int length : c.lengths) what += " " + std::to_string(length);
    // Single precision rounds scores near -10000 to multiples of 2^-10.
    const bool halves = c.kind == F16 && number != 0;
    float tolerance = halves || c.y_kind == F16 ? 5e-3f : 1e-5f;
    if (c.bias == ALL_10000) tolerance = std::max(tolerance, 2e-3f);
    t.close(what, y.read(), plain(c, inputs[0], inputs[1], inputs[2], bias, distances, args.scale, rows), tolerance, tolerance);
    t.is_true(tail.is_set(), what + ": the flag is 1, the counter 0");
}

const std::vector<int> RAGGED = {1, 130, 2, 63, 17, 65, 64};

} // namespace

CHECK(attention_f32_lengths) {
    for (int length : {1, 2, 17, 63, 64, 65, 130}) attention(t, {{length}, 2, 12, 12, F32, F32, false, NO_BIAS});
    attention(t, {RAGGED, 3, 33, 33, F32, F32, true, SOME, 40, 3});
    attention(t, {std::vector<int>(33, 3), 1, 4, 4, F32, F32, true, NO_BIAS, 64, 5}); // more than 32 sequences
    attention(t, {{3, 0, 0, 70, 0}, 1, 8, 8, F32, F32, true, NO_BIAS, 5, 2});         // some without a token
}

CHECK(attention_f32_sizes) {
    attention(t, {{65, 9}, 1, 1, 1, F32, F32, false, NO_BIAS});
    attention(t, {{65, 9}, 4, 5, 7, F32, F32, true, SOME, 3, 1, 3});
    attention(t, {{130}, 2, 33, 5, F32, F32, false, NO_BIAS, 0, 0, 1});
    attention(t, {{17, 70}, 3, 12, 33, F32, F32, true, LAST_MASKED});
    attention(t, {{65}, 2, 64, 64, F32, F32, true, NO_BIAS, 0, 0, 5});
    attention(t, {{66}, 1, 256, 256, F32, F32, true, SOME});
    attention(t, {{66}, 1, 31, 255, F32, F32, true, SOME});
}

CHECK(attention_f32_biases) {
    for (Bias bias : {SOME, LAST_MASKED, ALL_10000, ALL_LOWEST, PARTLY_LOWEST, INFINITE_OR_LOWEST, PARTLY_INFINITE, ALL_INFINITE})
        attention(t, {RAGGED, 1, 12, 12, F32, F32, true, bias, 9, 1});
    attention(t, with({RAGGED, 1, 12, 12, F32, F32, true, ALL_INFINITE}, NO_DISTANCES, 0, true));
}

CHECK(attention_f32_distances) {
    for (Distances distances : {OF_HEADS, FAR, CAUSAL, CAUSAL_LOWEST, WINDOW, ELSEWHERE})
        for (Bias bias : {NO_BIAS, SOME, PARTLY_INFINITE, PARTLY_LOWEST, ALL_INFINITE})
            attention(t, with({RAGGED, 2, 12, 12, F32, F32, true, bias, 9, 1}, distances, 0, bias == ALL_INFINITE || distances == ELSEWHERE));
    attention(t, with({{200, 5}, 2, 64, 33, F16, F16, true, SOME}, OF_HEADS));
    attention(t, with({{66}, 2, 256, 256, F32, F32, true, SOME}, WINDOW));
}

CHECK(attention_f32_shared_keys) {
    for (int key_heads : {1, 2, 3}) {
        attention(t, with({RAGGED, 6, 12, 33, F32, F32, true, SOME, 9, 1, 3}, NO_DISTANCES, key_heads));
        attention(t, with({{17, 70}, 6, 33, 12, F16, F32, false, NO_BIAS}, CAUSAL, key_heads));
    }
}

CHECK(attention_f32_kinds) {
    attention(t, {{65, 17}, 2, 33, 33, F16, F16, true, SOME, 0, 0, 1});
    attention(t, {{65, 17}, 2, 33, 12, F16, F32, false, SOME});
    attention(t, {{65, 17}, 2, 12, 33, F32, F16, true, SOME});
}

CHECK(attention_mma_lengths) {
    for (int length : {1, 2, 17, 63, 64, 65, 130}) attention(t, {{length}, 2, 32, 32, F16, F16, true, NO_BIAS}, 32);
    for (int number : {32, 64, 128}) attention(t, {RAGGED, 2, number, number, F16, F16, true, SOME, 40, 3}, number);
    attention(t, {{300, 5}, 1, 32, 32, F16, F16, true, SOME}, 32); // more tiles than stages
    attention(t, {{260, 5}, 1, 64, 64, F16, F32, true, SOME}, 64);
    attention(t, {std::vector<int>(70, 1), 1, 8, 8, F16, F16, true, SOME}, 32);
    attention(t, {std::vector<int>(33, 3), 1, 8, 8, F16, F16, true, NO_BIAS, 64, 5}, 32);
    attention(t, {{3, 0, 0, 70, 0}, 1, 8, 8, F16, F16, true, NO_BIAS, 5, 2}, 32);
}

CHECK(attention_mma_sizes) {
    attention(t, {{70, 9}, 3, 8, 8, F16, F16, true, SOME, 3, 1, 8}, 32);
    attention(t, {{70, 9}, 4, 24, 16, F16, F16, false, SOME, 0, 0, 8}, 32);
    attention(t, {{70, 9}, 2, 16, 32, F16, F32, true, NO_BIAS}, 32);
    attention(t, {{70, 9}, 3, 40, 64, F16, F16, true, SOME}, 64);
    attention(t, {{70, 9}, 2, 64, 56, F16, F32, false, SOME}, 64);
    attention(t, {{70, 9}, 2, 48, 8, F16, F16, true, NO_BIAS}, 64);
    attention(t, {{70, 9}, 2, 72, 80, F16, F16, false, SOME, 0, 0, 16}, 128);
    attention(t, {{130}, 2, 96, 128, F16, F32, true, SOME}, 128);
    attention(t, {{65}, 1, 128, 104, F16, F16, true, NO_BIAS}, 128);
}

CHECK(attention_mma_biases) {
    for (Bias bias : {LAST_MASKED, ALL_10000, ALL_LOWEST, PARTLY_LOWEST, INFINITE_OR_LOWEST, PARTLY_INFINITE, ALL_INFINITE})
        attention(t, {RAGGED, 1, 32, 32, F16, bias == ALL_LOWEST ? F32 : F16, true, bias, 9, 1}, 32);
    attention(t, {{130, 3}, 1, 64, 64, F16, F16, true, PARTLY_INFINITE}, 64);
    attention(t, {{130, 3}, 1, 128, 128, F16, F16, true, ALL_LOWEST}, 128);
    attention(t, with({RAGGED, 1, 32, 32, F16, F16, true, ALL_INFINITE}, NO_DISTANCES, 0, true), 32);
}

CHECK(attention_mma_distances) {
    for (Distances distances : {OF_HEADS, FAR, CAUSAL, CAUSAL_LOWEST, WINDOW, ELSEWHERE})
        for (Bias bias : {NO_BIAS, SOME, PARTLY_INFINITE, PARTLY_LOWEST, ALL_INFINITE})
            attention(t, with({RAGGED, 2, 64, 64, F16, F16, true, bias, 9, 1}, distances, 0, bias == ALL_INFINITE || distances == ELSEWHERE), 64);
    for (int number : {64, 128})
        for (Distances distances : {FAR, CAUSAL, WINDOW})
            attention(t, with({{330, 5}, 2, number, number - 8, F16, F32, true, SOME}, distances), number); // more tiles than stages
    attention(t, with({{70, 9}, 3, 16, 24, F16, F16, false, SOME}, OF_HEADS), 64);
}

CHECK(attention_mma_shared_keys) {
    for (int key_heads : {1, 2, 3}) {
        attention(t, with({{70, 9}, 6, 24, 16, F16, F16, true, SOME, 3, 1, 8}, NO_DISTANCES, key_heads), 32);
        attention(t, with({{130, 17}, 6, 64, 64, F16, F16, true, NO_BIAS}, CAUSAL, key_heads), 64);
        attention(t, with({{65}, 6, 96, 128, F16, F32, false, NO_BIAS}, CAUSAL_LOWEST, key_heads), 128);
    }
}
