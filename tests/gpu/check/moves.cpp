// Checks of copying columns between matrices of all kinds, of rotating heads, of quantising rows to 8 bits, and of the kernels that
// measure the device.
#include <algorithm>

#include <limits>

#include "check.h"

CHECK(columns_copied) {
    for (int from_kind = F32; from_kind <= U8; ++from_kind)
        for (int to_kind = F32; to_kind <= F16; ++to_kind)
            for (int again = 0; again < 14; ++again) {
                const int widths[] = {1, 3, 4, 8, 36, 129, 384};
                const int width = widths[again / 2], rows = t.whole(1, 12), room = rows + t.whole(0, 4);
                // whether both offsets are multiples of 4
                const int step = again % 2 ? 4 : 1;
                CopyArgs args = {};
                args.x_from = t.whole(0, 3) * step;
                args.y_from = t.whole(0, 3) * step;
                args.width = width;
                const int x_width = args.x_from + width + t.whole(0, 2), y_width = args.y_from + width + t.whole(0, 5);
                const size_t count = size_t(room * x_width);
                auto x = t.matrix(from_kind, room, x_width, from_kind <= F16 ? t.uniform(count, -9, 9) : t.wholes(count, 0, 200));
                auto y = t.matrix(to_kind, room, y_width);
                auto header = t.buffer(t.header({rows}, 2));
                auto tail = t.tail();
                args.rows = {header.as<int>(), HEADER_TOKENS, 0};
                args.x = x;
                args.y = y;
                args.tail = tail;
                const auto values = x.read();
                std::vector<float> want(size_t(room * y_width), NAN);
                for (int r = 0; r < rows; ++r)
                    for (int c = 0; c < width; ++c) {
                        const float v = values[size_t(r * x_width + args.x_from + c)];
                        want[size_t(r * y_width + args.y_from + c)] = to_kind == F16 ? from_half(to_half(v)) : v;
                    }
                const unsigned blocks = std::min(unsigned(room * ((width + 3) / 4) + 255) / 256, 2u); // at most 2, so that blocks loop
                t.launch("moves", "copy_columns", blocks, 1, 256, 0, args);
                t.close("columns of kind " + std::to_string(from_kind), y.read(), want, 0, 0);
                t.is_true(tail.is_set(), "the tail of copy_columns");
            }
}

CHECK(columns_activated_in_place) {
    for (int kind : {F32, F16})
        for (int activation = ACT_NONE; activation <= ACT_SILU; ++activation)
            for (int width : {1, 3, 8, 129, 384}) {
                const int rows = t.whole(1, 9), room = rows + t.whole(0, 4);
                auto x = t.matrix(kind, room, width, t.uniform(size_t(room * width), -6, 6));
                auto tail = t.tail();
                CopyArgs args = {};
                args.rows = {nullptr, 0, rows};
                args.x = x;
                args.y = x;
                args.tail = tail;
                args.width = width;
                args.activation = activation;
                auto want = x.read();
                for (size_t i = 0; i < size_t(rows * width); ++i) want[i] = float(check::activated(activation, double(want[i])));
                t.launch("moves", "copy_columns", unsigned(t.whole(1, 2)), 1, 256, 0, args);
                const float tolerance = activation == ACT_NONE ? 0.0f : kind == F16 ? 1e-3f : 1e-6f;
                t.close("activation " + std::to_string(activation), x.read(), want, tolerance, tolerance);
                t.is_true(tail.is_set(), "the tail of copy_columns");
            }
}

CHECK(heads_rotated) {
    for (int head : {2, 6, 8, 10, 16, 64})
        for (int again = 0; again < 12; ++again) {
            // by position, by position with one that is not in the tables, and by token
            const bool by_token = again % 3 == 2, wrong = again % 3 == 1;
            const int heads = t.whole(1, 4), width = heads * head, kind = again % 2 ? F16 : F32, to_kind = again / 2 % 2 ? F16 : F32;
            const std::vector<int> lengths = {3, 1, 0, 9, 2};
            const int tokens = 15, room = tokens + t.whole(0, 4), positions = wrong ? 8 : 9 + t.whole(0, 3);
            RotateArgs args = {};
            args.x_from = again % 4 ? t.whole(0, 3) : 8;
            const int x_width = args.x_from + width + t.whole(0, 2), angles = by_token ? room : positions;
            auto x = t.matrix(kind, room, x_width, t.uniform(size_t(room * x_width), -2, 2));
            auto cos = t.matrix(F32, angles, head, t.uniform(size_t(angles * head), -1, 1));
            auto sin = t.matrix(F32, angles, head, t.uniform(size_t(angles * head), -1, 1));
            auto y = t.matrix(to_kind, room, width);
            auto header = t.buffer(t.header(lengths, 7));
            auto fault = t.buffer(std::vector<int>(4, 0));
            auto tail = t.tail();
            args.rows = {header.as<int>(), HEADER_TOKENS, 0};
            args.header = by_token ? nullptr : header.as<int>();
            args.x = x;
            args.cos = cos;
            args.sin = sin;
            args.y = y;
            args.fault = fault.as<int>();
            args.tail = tail;
            args.heads = heads;
            args.head = head;
            args.positions = positions;
            args.node = 4;
            const auto values = x.read(), cosines = cos.read(), sines = sin.read();
            std::vector<float> want(size_t(room * width), NAN);
            for (int s = 0, row = 0; s < int(lengths.size()); ++s)
                for (int position = 0; position < lengths[size_t(s)]; ++position, ++row)
                    for (int c = 0; c < width; ++c) {
                        const int in = c % head, half = head / 2, at = (by_token ? row : position < positions ? position : 0) * head + in;
                        const double own = double(values[size_t(row * x_width + args.x_from + c)]);
                        const double other = double(values[size_t(row * x_width + args.x_from + c + (in < half ? half : -half))]);
                        const double turned = in < half ? -other : other;
                        want[size_t(row * width + c)] = float(own * double(cosines[size_t(at)]) + turned * double(sines[size_t(at)]));
                    }
            t.launch("moves", "rotate_heads", unsigned(t.whole(1, 2)), 1, 256, 0, args);
            const float tolerance = to_kind == F16 ? 2e-3f : 1e-6f;
            t.close("rotated heads of " + std::to_string(head), y.read(), want, tolerance, tolerance);
            t.equal("the fault", t.read<int>(fault), wrong ? std::vector<int>{5, 0, 12, 8} : std::vector<int>(4, 0));
            t.is_true(tail.is_set(), "the tail of rotate_heads");
        }
}

CHECK(rows_in_8_bits) {
    for (int width : {1, 3, 4, 30, 32, 36, 384, 1025, 1536})
        for (int again = 0; again < 6; ++again) {
            const int rows = t.whole(1, 9), room = rows + t.whole(0, 5), kind = again % 2 ? F16 : F32;
            const int stride = (width + 31) / 32 * 32;
            auto values = t.uniform(size_t(room * width), -3, 3);
            for (int c = 0; c < width && rows > 1; ++c) values[size_t(width + c)] = 0; // a row of zeros has scale 1
            auto x = t.matrix(kind, room, width, values);
            auto y = t.matrix(S8, room, width, stride);
            auto scale = t.buffer(std::vector<float>(size_t(room), NAN));
            auto tail = t.tail();
            QuantizeArgs args = {};
            args.rows = {nullptr, 0, rows};
            args.x = x;
            args.y = y;
            args.scale = scale.as<float>();
            args.tail = tail;
            args.width = width;
            // with this scale, some numbers exceed 127 steps
            args.fixed = again >= 4 ? 0.011f : 0.0f;
            t.launch("moves", "quantize_rows", unsigned(room + 3) / 4, 1, 128, 0, args);
            const auto read = x.read(), scales = t.read<float>(scale);
            const auto bytes = t.read<signed char>(y.buffer());
            for (int r = 0; r < room; ++r) {
                double most = 0;
                for (int c = 0; c < width; ++c) most = std::max(most, double(fabsf(read[size_t(r * width + c)])));
                const double want = args.fixed > 0 ? double(args.fixed) : most > 0 ? most / 127 : 1;
                const float got = scales[size_t(r)];
                t.is_true(r < rows ? fabs(got - want) <= 1e-6 * want : std::isnan(got), "the scale of row " + std::to_string(r));
                for (int c = 0; c < stride; ++c) {
                    const double in = c < width ? std::clamp(read[size_t(r * width + c)] / want, -127.0, 127.0) : 0.0;
                    const int out = bytes[size_t(r * stride + c)];
                    t.is_true(r < rows ? fabs(out - in) <= 0.5001 && (c < width || out == 0) : out == -1,
                              "row " + std::to_string(r) + ", column " + std::to_string(c) + " of width " + std::to_string(width) + ": " +
                                  std::to_string(out));
                }
            }
            t.is_true(tail.is_set(), "the tail of quantize_rows");
        }
}

CHECK(ties_in_8_bits) {
    const std::vector<float> values = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 127.0f, -127.0f, 126.5f, 3.49f, -3.51f};
    for (int count : {8, 11}) {
        auto x = t.matrix(F32, 1, count, std::vector<float>(values.begin(), values.begin() + count));
        auto y = t.matrix(S8, 1, count, 32);
        auto scale = t.buffer(4);
        QuantizeArgs args = {};
        args.rows = {nullptr, 0, 1};
        args.x = x;
        args.y = y;
        args.scale = scale.as<float>();
        args.width = count;
        t.launch("moves", "quantize_rows", 1, 1, 128, 0, args);
        const std::vector<float> want = {0, 2, 2, 0, -2, -2, 127, -127, 126, 3, -4};
        t.equal("ties", y.read(true), std::vector<float>(want.begin(), want.begin() + count));
    }
}

// The scale of a row with an element that is not finite is NaN, so that every result computed from the row is NaN. The rows beside it
// keep their scales.
CHECK(rows_that_are_no_numbers) {
    const float infinity = std::numeric_limits<float>::infinity(), none = std::numeric_limits<float>::quiet_NaN();
    for (int width : {8, 13, 200})
        for (float odd : {none, infinity, -infinity}) {
            std::vector<float> values(3 * width, 2.0f);
            values[width + width - 1] = odd;
            auto x = t.matrix(F32, 3, width, values);
            auto y = t.matrix(S8, 3, width, (width + 31) / 32 * 32);
            auto scale = t.matrix(F32, 3, 1, 1);
            QuantizeArgs args = {};
            args.rows = {nullptr, 0, 3};
            args.x = x;
            args.y = y;
            args.scale = static_cast<float *>(static_cast<Mat>(scale).data);
            args.width = width;
            t.launch("moves", "quantize_rows", 1, 1, 128, 0, args);
            const auto got = scale.read();
            t.equal<float>("scales of numbers", {got[0], got[2]}, {2.0f / 127.0f, 2.0f / 127.0f});
            t.equal<float>("scale of none", {got[1] == got[1] ? 1.0f : 0.0f}, {0.0f});
        }
}

CHECK(peaks_of_memory) {
    for (int count : {1, 255, 256, 1500, 3900, 2 * 256 * 8, 5000}) {
        std::vector<unsigned> words(size_t(count) * 4);
        for (unsigned &word : words) word = unsigned(t.rng());
        auto from = t.buffer(words);
        auto to = t.buffer(words.size() * 4);
        PeakArgs args = {from.as<void>(), to.as<void>(), count};
        t.launch("peaks", "peak_copy", 2, 1, 256, 0, args);
        t.equal("the copy", t.read<unsigned>(to), words);
        // The sum of each warp shows that every pass reads every piece, and that the right warp does: the numbers are random, so a piece
        // that is left out, read twice or read by another warp changes the sums.
        for (int blocks : {1, 3})
            for (int passes : {0, 1, 2, 7, 20}) {
                const size_t threads = size_t(blocks) * 256;
                auto sums = t.buffer(std::vector<unsigned>(threads / 32, 0xffffffffu));
                t.launch("peaks", "peak_read", unsigned(blocks), 1, 256, 0, PeakReadArgs{from.as<void>(), sums.as<unsigned>(), count, passes});
                std::vector<unsigned> want(threads / 32, 0);
                for (size_t piece = 0; piece < size_t(count) * size_t(passes); ++piece)
                    for (size_t word = 0; word < 4; ++word) want[piece % threads / 32] += words[piece % size_t(count) * 4 + word];
                t.equal(std::to_string(passes) + " passes of " + std::to_string(blocks) + " blocks over " + std::to_string(count) + " pieces",
                        t.read<unsigned>(sums), want);
            }
    }
}

// The same function as in peaks.cu, with the same bits.
static unsigned scattered(unsigned seed, unsigned thread) {
    seed = (seed ^ 61u ^ thread * 0x9e3779b9u) * 0x27d4eb2du;
    return seed ^ seed >> 15;
}

CHECK(peaks_of_arithmetic) {
    const int blocks = 2, threads = blocks * 256;
    for (int count : {0, 1, 3}) {
        auto reached = [&](const char *kernel) {
            auto out = t.buffer(std::vector<unsigned>(size_t(threads), 0xffffffffu));
            t.launch("peaks", kernel, unsigned(blocks), 1, 256, 0, PeakArgs{nullptr, out.as<void>(), count});
            return out;
        };
        std::vector<float> sums(threads);
        for (int thread = 0; thread < threads; ++thread)
            for (int chain = 0; chain < 16; ++chain) {
                double v = chain;
                for (int step = 0; step < 16 * count; ++step) v = v * double(0.999f) + 1e-3 * (thread % 256);
                sums[size_t(thread)] += float(v);
            }
        const std::string after = " after " + std::to_string(count);
        t.close("multiply-adds" + after, t.read<float>(reached("peak_ffma")), sums, 1e-3f, 1e-5f);
        // The kernel adds products and subtracts them again. Only rounding errors remain, which show that it computed anything.
        for (const char *kernel : {"peak_mma_f16", "peak_mma_tf32"}) {
            const std::vector<float> got = t.read<float>(reached(kernel)), want(size_t(threads), 0.0f);
            t.close(kernel + after, got, want, 1e-2f, 0);
            t.is_true((got == want) == (count == 0), kernel + after + ": rounding");
        }
        // x · b + (-1 - x) · b is minus the sum of b's column, exactly
        std::vector<int> wholes(threads);
        for (int thread = 0; thread < threads; ++thread) {
            int columns = 0;
            for (int column : {thread % 4 * 2, thread % 4 * 2 + 1})
                for (int lane = 4 * column; lane < 4 * column + 4; ++lane)
                    for (unsigned seed : {5u, 6u})
                        for (int byte = 0; byte < 4; ++byte)
                            columns += (signed char)(scattered(seed, unsigned(thread % 256 / 32 * 32 + lane)) >> 8 * byte);
            wholes[size_t(thread)] = -8 * 2 * count * columns;
        }
        t.equal("products in 8 bits" + after, t.read<int>(reached("peak_mma_s8")), wholes);
    }
    // without an output, the kernels write nothing
    const PeakArgs nowhere = {nullptr, nullptr, 2};
    for (const char *kernel : {"peak_ffma", "peak_mma_f16", "peak_mma_tf32", "peak_mma_s8"}) t.launch("peaks", kernel, 2, 1, 256, 0, nowhere);
    t.launch("peaks", "empty", 3, 1, 32, 0, nowhere);
}
