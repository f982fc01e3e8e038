// Elementwise programs compared with the same programs in double precision: each opcode over its domain and at its edges, each fold,
// operands of every kind and shape, and random programs.
#include <algorithm>

#include "check.h"

namespace {

double unary(int opcode, double x, float power) {
    switch (opcode) {
    case OP_ABS: return fabs(x);
    case OP_CEIL: return ceil(x);
    case OP_ERF: return erf(x);
    case OP_EXP: return exp(std::min(x, 88.7228317));
    case OP_FLOOR: return floor(x);
    case OP_LOG: return log(x);
    case OP_NEG: return -x;
    case OP_POW: return pow(x, power);
    case OP_RECIP: return 1 / x;
    case OP_RELU: return x < 0 ? 0 : x;
    case OP_ROUND: return nearbyint(x);
    case OP_RSQRT: return 1 / sqrt(x);
    case OP_SIGMOID: return 1 / (1 + exp(-x));
    case OP_SQRT: return sqrt(x);
    case OP_SQUARE: return x * x;
    case OP_TANH: return tanh(x);
    case OP_GELU: return x / 2 * (1 + erf(x / sqrt(2.0)));
    case OP_GELU_TANH: return x / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case OP_SILU: return x / (1 + exp(-x));
    default: return x == 0; // OP_NOT
    }
}
double binary(int opcode, double a, double b) {
    switch (opcode) {
    case OP_ADD: return a + b;
    case OP_SUB: return a - b;
    case OP_MUL: return a * b;
    case OP_DIV: return a / b;
    case OP_MIN: return a < b ? a : b;
    case OP_MAX: return a > b ? a : b;
    case OP_EQUAL: return a == b;
    case OP_LESS: return a < b;
    case OP_LESS_OR_EQUAL: return a <= b;
    case OP_GREATER: return a > b;
    default: return a >= b;
    }
}
double fold(int how, const double *row, int width) {
    double sum = 0;
    for (int c = 0; c < width; ++c) sum += row[c];
    switch (how) {
    case FOLD_SUM: return sum;
    case FOLD_MAX: return *std::max_element(row, row + width);
    case FOLD_MIN: return *std::min_element(row, row + width);
    case FOLD_FIRST: return row[0];
    default: return sum / width;
    }
}
int bits(float v) {
    int as;
    memcpy(&as, &v, sizeof as);
    return as;
}

/// A program over a batch of ragged sequences, whose matrices have room for more rows.
class Map {
  public:
    Map(check::Check &t, int width, std::vector<int> lengths)
        : t(t), width(width), lengths(lengths), header(t.buffer(t.header(lengths, int(lengths.size()) + 2))) {
        for (int s = 0; s < int(lengths.size()); ++s) sequences.insert(sequences.end(), size_t(lengths[size_t(s)]), s);
        tokens = int(sequences.size());
        room = tokens + t.whole(0, 4);
    }
    /// Loads an argument and returns its slot. It has a row for each token or, if `by_batch`, for each sequence, of `width` values if
    /// `wide`, else of 1.
    int argument(const std::vector<float> &values, int kind, bool wide, bool by_batch) {
        const int rows = by_batch ? int(lengths.size()) : tokens, columns = wide ? width : 1;
        held.push_back(t.matrix(kind, rows, columns, values));
        MapArg &at = args.args[arguments];
        at = {held.back(), wide, by_batch};
        const auto read = held.back().read();
        return step({OP_ARG, 0, arguments++, 0, 0}, [=](int r, int c) {
            return double(read[size_t((by_batch ? sequences[size_t(r)] : r) * columns + (wide ? c : 0))]);
        });
    }
    int weight(const std::vector<float> &values) {
        rows.push_back(t.buffer(values));
        const bool wide = values.size() > 1;
        args.weights[weights] = {{rows.back().as<void>(), 0, F32}, wide, 0};
        return step({OP_WEIGHT, 0, weights++, 0, 0}, [=](int, int c) { return double(values[wide ? size_t(c) : 0]); });
    }
    int scalar(float v) {
        return step({OP_SCALAR, 0, bits(v), 0, 0}, [=](int, int) { return double(v); });
    }
    /// The result goes into a new slot, or into `slot`, whose value must not be needed any more.
    int one(int opcode, int a, float power = 0, int slot = -1) {
        return step({opcode, 0, a, opcode == OP_POW ? bits(power) : 0, 0}, [=](int r, int c) { return unary(opcode, at(a, r, c), power); }, slot);
    }
    int two(int opcode, int a, int b) {
        return step({opcode, 0, a, b, 0}, [=](int r, int c) { return binary(opcode, at(a, r, c), at(b, r, c)); });
    }
    int where(int a, int b, int c) {
        return step({OP_WHERE, 0, a, b, c}, [=](int r, int column) { return at(at(a, r, column) == 0 ? c : b, r, column); });
    }
    /// The result goes into a new slot or, if `in_place`, into the operand's, which must not be needed any more.
    int folded(int how, int a, bool in_place = false) {
        const auto of = values[size_t(a)];
        folds = true;
        return step({OP_FOLD, 0, a, how, 0}, [=](int r, int) { return fold(how, &of[size_t(r * width)], width); }, in_place ? a : -1);
    }
    /// Runs the program by both kernels, or only by map_rows if it has a fold.
    void run(const std::string &what, int kind = F32, float tolerance = 1e-5f) {
        for (int by_rows = folds; by_rows < 2; ++by_rows) {
            auto y = t.matrix(kind, room, width);
            auto there = t.buffer(code);
            auto tail = t.tail();
            args.rows = {header.as<int>(), HEADER_TOKENS, 0};
            args.header = header.as<int>();
            args.code = there.as<int>();
            args.y = y;
            args.tail = tail;
            args.steps = int(code.size()) / 5;
            args.slots = int(values.size());
            args.width = width;
            args.result = code[code.size() - 4];
            std::vector<float> want(size_t(room * width), NAN);
            for (size_t i = 0; i < size_t(tokens * width); ++i) want[i] = float(values[size_t(args.result)][i]);
            const unsigned blocks = by_rows ? unsigned(room) : std::min(unsigned(room * width + 255) / 256, 2u); // at most 2, so that blocks loop
            const size_t columns = by_rows ? size_t(width + 31) / 32 * 32 : 256;
            t.launch("map", by_rows ? "map_rows" : "map_flat", blocks, 1, 256, size_t(args.slots) * columns * 4, args);
            t.close(what + (by_rows ? " by rows" : ""), y.read(), want, tolerance, kind == F16 ? 6e-4f : tolerance);
            t.is_true(tail.is_set(), "the tail of a map");
        }
    }
    double at(int slot, int row, int column) const { return values[size_t(slot)][size_t(row * width + column)]; }

    check::Check &t;
    int width, tokens, room;

  private:
    template <class Of> int step(std::vector<int> words, Of of, int slot = -1) {
        std::vector<double> made;
        for (int r = 0; r < tokens; ++r)
            for (int c = 0; c < width; ++c) made.push_back(of(r, c));
        if (slot < 0) {
            slot = int(values.size());
            values.emplace_back();
        }
        values[size_t(slot)] = made;
        words[1] = slot;
        code.insert(code.end(), words.begin(), words.end());
        return slot;
    }
    std::vector<int> lengths, sequences, code;
    check::Buffer header;
    std::vector<check::Matrix> held;
    std::vector<check::Buffer> rows;
    std::vector<std::vector<double>> values; // of each slot, tokens · width
    MapArgs args = {};
    int arguments = 0, weights = 0;
    bool folds = false;
};

/// 80 numbers, for two rows of 40, which begin with `edges`.
std::vector<float> around(check::Check &t, float low, float high, std::vector<float> edges) {
    auto values = t.uniform(80, low, high);
    std::copy(edges.begin(), edges.end(), values.begin());
    return values;
}

} // namespace

CHECK(map_of_one) {
    const std::vector<float> large = {0.0f, -0.0f, 1e4f, -1e4f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN, 1e-30f};
    const std::vector<float> halves = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 8388609.0f, -8388609.0f, NAN, -0.0f, 1e30f};
    const std::vector<float> finite = {0.0f, -0.0f, 1e4f, -1e4f, 3e38f, -3e38f, 88.9f, -104.5f, NAN, 20.0f};
    for (int opcode : {OP_ABS, OP_CEIL, OP_ERF, OP_EXP, OP_FLOOR, OP_LOG, OP_NEG, OP_RECIP, OP_RELU, OP_ROUND, OP_RSQRT, OP_SIGMOID, OP_SQRT,
                       OP_SQUARE, OP_TANH, OP_GELU, OP_GELU_TANH, OP_SILU, OP_NOT}) {
        const bool rounds = opcode == OP_CEIL || opcode == OP_FLOOR || opcode == OP_ROUND;
        const bool positive = opcode == OP_LOG || opcode == OP_SQRT || opcode == OP_RSQRT;
        // These multiply by a fraction of the number, or doubles have a larger range than floats there: no infinite edges.
        const bool bounded = opcode == OP_GELU || opcode == OP_GELU_TANH || opcode == OP_SILU || opcode == OP_EXP;
        auto edges = rounds ? halves : bounded ? finite : large;
        if (opcode == OP_SQUARE) edges = {0.0f, -0.0f, 1e4f, -1e4f, 1e19f, INFINITY, NAN};
        if (opcode == OP_RECIP) edges = {0.0f, 1e4f, -1e4f, INFINITY, -INFINITY, NAN, 1e-30f};
        if (positive) edges = {0.0f, 1.0f, 1e-30f, 3e38f, INFINITY, -1.0f, NAN};
        Map map(t, 40, {2});
        const float low = positive ? 0.01f : opcode == OP_EXP ? -9.0f : -5.0f;
        map.one(opcode, map.argument(around(t, low, opcode == OP_EXP ? 4.0f : 5.0f, edges), F32, true, false));
        map.run("opcode " + std::to_string(opcode));
    }
    for (float power : {2.0f, 3.0f, 0.5f, -0.5f, -1.0f, 4.0f, 2.5f, 0.0f, -2.0f}) {
        Map map(t, 40, {2});
        const float low = power == floorf(power) && power > 0 ? -3.0f : 0.1f;
        map.one(OP_POW, map.argument(around(t, low, 3, {1.0f, NAN}), F32, true, false), power);
        map.run("the power " + std::to_string(power));
    }
}

CHECK(map_of_two_and_three) {
    const std::vector<float> left = {NAN, 1.0f, NAN, INFINITY, -INFINITY, 0.0f, 3.0f}, right = {1.0f, NAN, NAN, 1.0f, 1.0f, 1.0f, 3.0f};
    for (int opcode = OP_ADD; opcode <= OP_GREATER_OR_EQUAL; ++opcode) {
        const bool compares = opcode >= OP_MIN;
        Map map(t, 40, {2});
        auto a = compares ? t.wholes(80, -2, 2) : t.uniform(80, -3, 3), b = compares ? t.wholes(80, -2, 2) : t.uniform(80, 0.5f, 3);
        std::copy(left.begin(), left.end(), a.begin());
        std::copy(right.begin(), right.end(), b.begin());
        const int first = map.argument(a, F32, true, false), second = map.argument(b, F32, true, false);
        map.two(opcode, first, second);
        map.run("opcode " + std::to_string(opcode));
    }
    Map map(t, 40, {2});
    const int a = map.argument(around(t, -1, 1, {0.0f, -0.0f, NAN, 1.0f}), F32, true, false);
    const int b = map.argument(t.uniform(80, -1, 1), F32, true, false), c = map.argument(t.uniform(80, -1, 1), F32, true, false);
    map.where(a, b, c);
    map.run("where");
}

CHECK(map_of_folds) {
    for (int width : {1, 3, 32, 33, 256, 257, 600, 2048})
        for (int how = FOLD_SUM; how <= FOLD_MEAN; ++how) {
            Map map(t, width, {1, 2});
            const int x = map.argument(t.uniform(size_t(map.tokens * width), 1, 2), F32, true, false);
            const int square = map.one(OP_SQUARE, x);
            // the slot of the square is reused, by the fold itself or by the next step
            const int folded = map.folded(how, square, t.whole(0, 1));
            const int less = folded == square ? map.one(OP_NEG, x) : map.one(OP_NEG, x, 0, square);
            // a fold of a value that is the same in the whole row
            const int whole = map.folded(how, folded);
            map.two(OP_SUB, map.two(OP_DIV, less, folded), map.two(OP_DIV, folded, whole));
            map.run("fold " + std::to_string(how) + " of width " + std::to_string(width));
        }
}

CHECK(map_of_every_operand) {
    for (int width : {1, 3, 33, 300})
        for (int kind = F32; kind <= U8; ++kind)
            for (int shape = 0; shape < 4; ++shape) {
                const bool wide = shape & 1, by_batch = shape & 2;
                Map map(t, width, {3, 1, 0, 2});
                const size_t count = size_t((by_batch ? 4 : map.tokens) * (wide ? width : 1));
                const int x = map.argument(kind <= F16 ? t.uniform(count, -2, 2) : t.wholes(count, kind == U8 ? 0 : -50, 50), kind, wide, by_batch);
                const int more = map.weight(t.uniform(size_t(width), -1, 1)), by = map.weight({0.25f});
                map.two(OP_ADD, map.two(OP_MUL, x, by), map.two(OP_ADD, more, map.scalar(0.5f)));
                map.run("an operand of kind " + std::to_string(kind) + " and shape " + std::to_string(shape), t.whole(0, 1) ? F16 : F32);
            }
}

CHECK(map_of_random_programs) {
    const int ones[] = {OP_ABS, OP_NEG, OP_RELU, OP_SIGMOID, OP_TANH, OP_GELU, OP_SILU, OP_ERF};
    const int twos[] = {OP_ADD, OP_SUB, OP_MUL, OP_MIN, OP_MAX};
    for (int again = 0; again < 60; ++again) {
        Map map(t, again % 5 == 0 ? 1 : t.whole(2, 400), {t.whole(1, 4), t.whole(1, 3)});
        const size_t rows = size_t(map.tokens), width = size_t(map.width);
        std::vector<int> slots = {map.argument(t.wholes(rows * width, -2, 2), again % 2 ? F32 : I32, true, false),
                                  map.argument(t.uniform(rows * width, -2, 2), F16, true, false),
                                  map.argument(t.uniform(rows, -2, 2), F32, false, false),
                                  map.argument(t.wholes(2, 0, 1), I64, false, true), map.weight(t.uniform(width, -1, 1))};
        const int condition = map.two(OP_LESS, slots[0], slots[3]);
        for (int step = t.whole(3, 14); step > 0; --step) {
            auto any = [&] { return slots[size_t(t.whole(0, int(slots.size()) - 1))]; };
            const int what = t.whole(0, again % 3 ? 8 : 9);
            // Each step uses the last result, so that every step affects the program's result; tanh bounds its magnitude.
            if (what < 4) slots.push_back(map.one(ones[t.whole(0, 7)], slots.back()));
            else if (what < 8) slots.push_back(map.one(OP_TANH, map.two(twos[t.whole(0, 4)], slots.back(), any())));
            else if (what == 8) slots.push_back(map.where(condition, slots.back(), any()));
            else slots.push_back(map.folded(t.whole(FOLD_MAX, FOLD_MEAN), slots.back()));
        }
        map.run("program " + std::to_string(again), F32, 1e-5f);
    }
}
