// Norms, softmax, folds of rows and of tokens, running sums and embeddings compared with their definitions in double precision.
#include <algorithm>
#include <functional>

#include "check.h"

namespace {

const float NONE = NAN;

/// Widths that are no multiples of four, that exactly fill a warp's registers, and that exceed them.
const int WIDTHS[] = {1, 2, 3, 4, 7, 36, 130, 384, 1000, 1024, 1028, 2049, 2052};

int any_kind(check::Check &t) { return t.whole(0, 1) ? F16 : F32; }

/// A random matrix of `room` rows; those behind `rows` are NaN.
check::Matrix given(check::Check &t, int kind, int room, int rows, int width, float low, float high) {
    auto values = t.uniform(size_t(room) * size_t(width), low, high);
    std::fill(values.begin() + ptrdiff_t(rows) * width, values.end(), NONE);
    return t.matrix(kind, room, width, values);
}
/// The matrix's numbers in double precision.
std::vector<double> numbers(const check::Matrix &m) {
    const auto values = m.read();
    return std::vector<double>(values.begin(), values.end());
}
/// Compares the numbers with `want`; the rows behind those of `want` must still be NaN.
void same(check::Check &t, const std::string &what, const check::Matrix &y, const std::vector<double> &want) {
    std::vector<float> whole(size_t(y.rows()) * size_t(y.width()), NONE);
    for (size_t i = 0; i < want.size(); ++i) whole[i] = float(want[i]);
    t.close(what, y.read(), whole, 1e-5f, Mat(y).kind == F16 ? 6e-4f : 1e-5f);
}
std::vector<double> folded_over(int fold, const std::vector<double> &of, size_t from, size_t apart, size_t count) {
    if (count == 0) return {0.0};
    double sum = 0, most = -INFINITY, least = INFINITY;
    for (size_t i = 0; i < count; ++i) {
        const double x = of[from + i * apart];
        sum += x;
        if (x > most) most = x;
        if (x < least) least = x;
    }
    switch (fold) {
    case FOLD_SUM: return {sum};
    case FOLD_MAX: return {most};
    case FOLD_MIN: return {least};
    case FOLD_FIRST: return {of[from]};
    default: return {sum / double(count)};
    }
}
void norm(std::vector<double> &all, size_t from, int width, bool layer, double epsilon, const std::vector<float> &scale,
          const std::vector<float> &shift) {
    double mean = 0, squares = 0;
    for (int c = 0; c < width && layer; ++c) mean += all[from + size_t(c)] / width;
    for (int c = 0; c < width; ++c) squares += pow(all[from + size_t(c)] - mean, 2) / width;
    for (int c = 0; c < width; ++c) {
        double &x = all[from + size_t(c)];
        x = (x - mean) / sqrt(squares + epsilon) * (scale.empty() ? 1.0 : scale[size_t(c)]) + (shift.empty() ? 0.0 : shift[size_t(c)]);
    }
}

void check_norm(check::Check &t, const char *kernel, bool layer, bool wide, int width, bool in_place) {
    const int rows = t.whole(1, wide ? 3 : 9), room = rows + t.whole(0, 5);
    const int kind = any_kind(t);
    const bool adds = t.whole(0, 1), likes = t.whole(0, 3);
    const float off = layer && !adds && kind == F32 && t.whole(0, 1) ? 1000.0f : 0.0f; // a large mean must not cost precision
    auto x = given(t, kind, room, rows, width, off - 3, off + 3);
    auto residual = given(t, likes ? kind : F16 - kind, room, rows, width, -2, 2);
    auto y = t.matrix(any_kind(t), room, width);
    const auto scale = t.uniform(t.whole(0, 3) ? size_t(width) : 0, 0.5f, 1.5f);
    const auto shift = t.uniform(t.whole(0, 3) ? size_t(width) : 0, -1, 1);
    auto scale_there = t.buffer(scale), shift_there = t.buffer(shift);
    auto header = t.buffer(t.header({rows}, 4));
    auto tail = t.tail();
    NormArgs args = {};
    args.rows = {header.as<int>(), HEADER_TOKENS, 0};
    args.x = x;
    if (adds) args.residual = residual;
    if (!scale.empty()) args.scale = scale_there.as<float>();
    if (!shift.empty()) args.shift = shift_there.as<float>();
    args.y = in_place ? x : y;
    args.tail = tail;
    args.width = width;
    args.epsilon = 1e-5f;
    auto want = numbers(x);
    const auto more = numbers(residual);
    want.resize(size_t(rows) * size_t(width));
    for (size_t i = 0; i < want.size() && adds; ++i) want[i] += more[i];
    for (int r = 0; r < rows; ++r) norm(want, size_t(r) * size_t(width), width, layer, 1e-5, scale, shift);
    t.launch("norm", kernel, unsigned(wide ? room : (room + 3) / 4), 1, wide ? 256 : 128, wide ? 32 : 0, args);
    same(t, std::string(kernel) + " of width " + std::to_string(width), in_place ? x : y, want);
    t.is_true(tail.is_set(), "the tail of a norm");
}

/// A batch of ragged sequences, with room for more. Some sequences are empty, if that is allowed.
struct Batch {
    std::vector<int> lengths, offsets = {0};
    int room, tokens, token_room;
    check::Buffer header;
    Batch(check::Check &t, bool with_empty, int longest, int most = 5) : Batch(t, draw(t, with_empty, longest, most)) {}
    Batch(check::Check &t, std::vector<int> given)
        : lengths(given), room(int(lengths.size()) + t.whole(0, 3)), header(t.buffer(t.header(lengths, room))) {
        for (int length : lengths) offsets.push_back(offsets.back() + length);
        tokens = offsets.back();
        token_room = tokens + t.whole(1, 9);
    }
    static std::vector<int> draw(check::Check &t, bool with_empty, int longest, int most) {
        std::vector<int> lengths(size_t(t.whole(1, most)));
        for (int &length : lengths) length = t.whole(with_empty ? 0 : 1, longest);
        return lengths;
    }
    int count() const { return int(lengths.size()); }
    Rows sequences() const { return {header.as<int>(), HEADER_BATCH, 0}; }
    Rows rows() const { return {header.as<int>(), HEADER_TOKENS, 0}; }
};

} // namespace

CHECK(norm_of_rows) {
    for (int width : WIDTHS)
        for (int layer = 0; layer < 2; ++layer)
            for (int again = 0; again < 4; ++again) check_norm(t, layer ? "layer_norm" : "rms_norm", layer, false, width, again == 3);
}

CHECK(norm_of_wide_rows) {
    for (int width : {1, 5, 36, 1024, 1028, 2049, 4096, 5004, 8200})
        for (int layer = 0; layer < 2; ++layer)
            for (int again = 0; again < 2; ++again) check_norm(t, layer ? "layer_norm_wide" : "rms_norm_wide", layer, true, width, again == 1);
}

CHECK(softmax_of_rows) {
    for (int width : WIDTHS)
        for (int again = 0; again < 3; ++again) {
            const int rows = t.whole(1, 9), room = rows + t.whole(0, 5);
            const float off = again == 1 ? 200.0f : 0.0f; // exp of these is infinite
            auto x = given(t, any_kind(t), room, rows, width, off - 8, off + 8);
            auto values = x.read();
            for (int c = 0; c < width; ++c) {
                values[size_t(c)] = again == 2 ? -INFINITY : values[size_t(c)]; // a row of minus infinity: equal shares
                if (rows > 1 && c % 3 == 1) values[size_t(width + c)] = -INFINITY;
            }
            x.write(values);
            auto y = t.matrix(any_kind(t), room, width);
            auto tail = t.tail();
            RowsArgs args = {};
            args.rows = {nullptr, 0, rows};
            args.x = x;
            args.y = again == 0 ? x : y;
            args.tail = tail;
            args.width = width;
            auto want = numbers(x);
            want.resize(size_t(rows) * size_t(width));
            for (int r = 0; r < rows; ++r) {
                double *const row = &want[size_t(r) * size_t(width)], most = *std::max_element(row, row + width);
                double sum = 0;
                for (int c = 0; c < width; ++c) sum += row[c] = row[c] == most ? 1 : exp(row[c] - most);
                for (int c = 0; c < width; ++c) row[c] /= sum;
            }
            t.launch("rows", "softmax_rows", unsigned(room + 3) / 4, 1, 128, 0, args);
            same(t, "softmax of width " + std::to_string(width), again == 0 ? x : y, want);
            t.is_true(tail.is_set(), "the tail of softmax_rows");
        }
}

CHECK(fold_of_rows) {
    for (int width : WIDTHS)
        for (int fold = FOLD_SUM; fold <= FOLD_MEAN; ++fold) {
            const int rows = t.whole(1, 9), room = rows + t.whole(0, 5);
            auto x = given(t, any_kind(t), room, rows, width, -3, -1);
            auto y = t.matrix(any_kind(t), room, 1);
            auto header = t.buffer(t.header({rows, 3}, 4));
            RowsArgs args = {};
            args.rows = {header.as<int>(), HEADER_OFFSETS + 1, 0};
            args.x = x;
            args.y = y;
            args.width = width;
            args.fold = fold;
            const auto from = numbers(x);
            std::vector<double> want;
            for (int r = 0; r < rows; ++r) want.push_back(folded_over(fold, from, size_t(r) * size_t(width), 1, size_t(width))[0]);
            t.launch("rows", "reduce_rows", unsigned(room + 3) / 4, 1, 128, 0, args);
            // sums that are rounded to halves have the tolerance of halves
            same(t, "fold " + std::to_string(fold) + " of width " + std::to_string(width), y, want);
        }
}

CHECK(fold_of_tokens) {
    for (int width : {1, 3, 4, 33, 128, 132, 384, 385})
        for (int fold = FOLD_SUM; fold <= FOLD_MEAN; ++fold) {
            const Batch batch(t, true, width > 130 ? 40 : 150, 4);
            auto x = given(t, any_kind(t), batch.token_room, batch.tokens, width, -3, -1);
            auto y = t.matrix(any_kind(t), batch.room, width);
            auto tail = t.tail();
            RowsArgs args = {};
            args.rows = batch.sequences();
            args.header = batch.header.as<int>();
            args.x = x;
            args.y = y;
            args.tail = tail;
            args.width = width;
            args.fold = fold;
            const auto from = numbers(x);
            std::vector<double> want;
            for (int s = 0; s < batch.count(); ++s)
                for (int c = 0; c < width; ++c)
                    want.push_back(folded_over(fold, from, size_t(batch.offsets[size_t(s)] * width + c), size_t(width),
                                               size_t(batch.lengths[size_t(s)]))[0]);
            t.launch("rows", "pool_tokens", unsigned(width + 127) / 128, unsigned(batch.room), 512, 16 * 128 * 4, args);
            same(t, "fold " + std::to_string(fold) + " of tokens of width " + std::to_string(width), y, want);
            t.is_true(tail.is_set(), "the tail of pool_tokens");
        }
}

CHECK(mean_of_tokens) {
    for (int width : {1, 3, 4, 132, 384, 385})
        for (int kind = F32; kind <= U8; ++kind) {
            const Batch batch(t, true, kind == I64 && width < 10 ? 1200 : 70, 4);
            auto x = given(t, any_kind(t), batch.token_room, batch.tokens, width, -2, 3);
            const size_t room = size_t(batch.token_room);
            auto weights = t.matrix(kind, batch.token_room, 1, kind <= F16 ? t.uniform(room, 0, 1) : t.wholes(room, 0, 1), width % 2 ? 1 : 3);
            auto y = t.matrix(any_kind(t), batch.room, width);
            MeanPoolArgs args = {};
            args.rows = batch.sequences();
            args.header = batch.header.as<int>();
            args.x = x;
            args.weights = weights;
            args.y = y;
            args.width = width;
            args.at_least = t.whole(0, 1) ? 1e-9f : 8.0f;
            const auto from = numbers(x), by = numbers(weights);
            std::vector<double> want;
            for (int s = 0; s < batch.count(); ++s)
                for (int c = 0; c < width; ++c) {
                    double sum = 0, weight = 0;
                    for (int token = batch.offsets[size_t(s)]; token < batch.offsets[size_t(s) + 1]; ++token) {
                        sum += by[size_t(token)] * from[size_t(token * width + c)];
                        weight += by[size_t(token)];
                    }
                    want.push_back(sum / std::max(weight, double(args.at_least)));
                }
            t.launch("rows", "mean_pool", unsigned(width + 127) / 128, unsigned(batch.room), 512, (16 * 128 + 512 + 16) * 4, args);
            same(t, "mean of width " + std::to_string(width) + ", weights of kind " + std::to_string(kind), y, want);
        }
}

CHECK(running_sums) {
    for (int width : {1, 2, 3, 4, 9, 20, 33, 70})
        for (int kind = F32; kind <= U8; ++kind) {
            const Batch batch(t, true, width < 4 ? 700 : 90, 4);
            auto values = kind <= F16 ? t.uniform(size_t(batch.token_room * width), -1, 1) : t.wholes(size_t(batch.token_room * width), 0, 3);
            auto x = t.matrix(kind, batch.token_room, width, values);
            auto y = t.matrix(any_kind(t), batch.token_room, width);
            const bool in_place = kind == F32 && width % 2;
            RowsArgs args = {};
            args.rows = batch.sequences();
            args.header = batch.header.as<int>();
            args.x = x;
            args.y = in_place ? x : y;
            args.width = width;
            auto want = numbers(x);
            const auto before = want;
            want.resize(size_t(batch.tokens * width));
            for (int s = 0; s < batch.count(); ++s)
                for (int token = batch.offsets[size_t(s)] + 1; token < batch.offsets[size_t(s) + 1]; ++token)
                    for (int c = 0; c < width; ++c) want[size_t(token * width + c)] += want[size_t((token - 1) * width + c)];
            if (in_place)
                for (size_t i = want.size(); i < before.size(); ++i) want.push_back(before[i]); // unchanged
            t.launch("rows", "cum_sum", unsigned(width + 31) / 32, unsigned(batch.room), 512, 512 * 4, args);
            same(t, "running sums of width " + std::to_string(width) + ", kind " + std::to_string(kind), in_place ? x : y, want);
        }
}

CHECK(embeddings) {
    for (int width : {1, 3, 4, 36, 384, 385, 1024, 1028, 2052})
        for (int again = 0; again < 6; ++again) {
            const Batch batch(t, true, 9);
            const bool wrong = again == 5 && batch.tokens > 0;
            EmbedArgs args = {};
            args.rows = batch.rows();
            args.header = batch.header.as<int>();
            args.count = t.whole(1, 4);
            args.width = width;
            args.epsilon = 1e-12f;
            args.normed = t.whole(0, 1);
            args.node = 6;
            std::vector<check::Matrix> held;
            std::vector<double> want(size_t(batch.tokens * width));
            const int bad_table = t.whole(0, args.count - 1), bad_row = t.whole(0, std::max(batch.tokens - 1, 0));
            const int bad_id = t.whole(0, 1) ? 1000000 : -1000;
            for (int i = 0; i < args.count; ++i) {
                Table &table = args.tables[i];
                table.table_rows = t.whole(20, 40);
                held.push_back(given(t, any_kind(t), table.table_rows, table.table_rows, width, -1, 1));
                table.table = held.back();
                const auto rows = numbers(held.back());
                const bool by_place = !(wrong && i == bad_table) && t.whole(0, 2) == 0;
                std::vector<float> ids;
                const int id_width = t.whole(1, 3);
                table.from = by_place ? t.whole(0, 5) : t.whole(0, id_width - 1);
                if (!by_place) {
                    const int kinds[] = {I64, I32, F32};
                    ids = t.wholes(size_t(batch.token_room * id_width), -table.table_rows, table.table_rows - 1);
                    if (wrong && i == bad_table) ids[size_t(bad_row * id_width + table.from)] = float(bad_id);
                    held.push_back(t.matrix(kinds[t.whole(0, 2)], batch.token_room, id_width, ids));
                    table.ids = held.back();
                }
                for (int s = 0; s < batch.count(); ++s)
                    for (int token = batch.offsets[size_t(s)]; token < batch.offsets[size_t(s) + 1]; ++token) {
                        int id = by_place ? token - batch.offsets[size_t(s)] + table.from : int(ids[size_t(token * id_width + table.from)]);
                        if (id == bad_id) id = 0;
                        if (id < 0) id += table.table_rows;
                        for (int c = 0; c < width; ++c) want[size_t(token * width + c)] += rows[size_t(id * width + c)];
                    }
            }
            const auto scale = t.uniform(t.whole(0, 1) ? size_t(width) : 0, 0.5f, 1.5f);
            const auto shift = t.uniform(t.whole(0, 1) ? size_t(width) : 0, -1, 1);
            auto scale_there = t.buffer(scale), shift_there = t.buffer(shift);
            if (!scale.empty()) args.scale = scale_there.as<float>();
            if (!shift.empty()) args.shift = shift_there.as<float>();
            if (args.normed && width == 1) args.epsilon = 1e-3f; // one number less its mean is 0
            for (int row = 0; row < batch.tokens && args.normed; ++row)
                norm(want, size_t(row * width), width, true, args.epsilon, scale, shift);
            auto y = t.matrix(any_kind(t), batch.token_room, width);
            auto fault = t.buffer(std::vector<int>(4, 0));
            auto tail = t.tail();
            args.y = y;
            args.fault = fault.as<int>();
            args.tail = tail;
            t.launch("embed", "embed", unsigned(batch.token_room + 3) / 4, 1, 128, 0, args);
            same(t, "embeddings of width " + std::to_string(width), y, want);
            t.equal("the fault", t.read<int>(fault), wrong ? std::vector<int>{7, bad_table, bad_row, bad_id} : std::vector<int>(4, 0));
            t.is_true(tail.is_set(), "the tail of embed");
        }
}
