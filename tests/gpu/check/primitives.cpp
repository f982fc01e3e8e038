// The primitives: the results of the device (a GPU, or the fake), of the twins that are linked into this program, and of a plain
// formula must agree. On a GPU, this compares the twins with hardware.
#include "check.h"
#include "../shim/shim.h"

namespace {

using Words = std::vector<unsigned>;

struct alignas(16) Piece { unsigned words[4]; };

/// The results of a kernel on the device and by the shim in this program.
struct Both {
    Words device, twin;
};
Both both(check::Check &t, const std::string &name, const Words &in, size_t out_words, unsigned grid_x, unsigned grid_y, unsigned threads,
          size_t shared, long long count = 0, const Words &out_before = {}) {
    Words before = out_before;
    before.resize(out_words, 0xffffffffu);
    Both result;
    {
        auto data = t.buffer(in);
        auto out = t.buffer(before);
        PeakArgs args = {data.as<void>(), out.as<void>(), count};
        t.launch("primitives", name, grid_x, grid_y, threads, shared, args);
        result.device = t.read<unsigned>(out);
    }
    // Aligned like device memory.
    std::vector<Piece> data((in.size() + 3) / 4), out((out_words + 3) / 4);
    memcpy(static_cast<void *>(data.data()), in.data(), in.size() * 4);
    memcpy(static_cast<void *>(out.data()), before.data(), before.size() * 4);
    PeakArgs args = {data.data(), out.data(), count};
    const shim::Kernel *kernel = shim::find(name.c_str());
    t.is_true(kernel != nullptr && shim::launch(*kernel, grid_x, grid_y, threads, shared, &args) == shim::DONE, name + ": the twin runs");
    result.twin.resize(out_words);
    memcpy(result.twin.data(), static_cast<const void *>(out.data()), out_words * 4);
    return result;
}

Words random_words(check::Check &t, size_t count) {
    Words words(count);
    for (unsigned &word : words) word = unsigned(t.rng());
    return words;
}
float number(unsigned bits) { return shim::bits<float>(bits); }
unsigned bits_of(float v) { return shim::bits<unsigned>(v); }
std::vector<float> numbers(const Words &words) {
    std::vector<float> values;
    for (unsigned word : words) values.push_back(number(word));
    return values;
}

/// The value of a half, directly by its definition.
double half_value(unsigned h) {
    const int exponent = int(h >> 10 & 31), mantissa = int(h & 1023);
    const double sign = h & 0x8000 ? -1 : 1;
    if (exponent == 31) return mantissa ? double(NAN) : sign * double(INFINITY);
    return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024 + mantissa, exponent - 25);
}
/// The nearest half, ties to even.
unsigned nearest_half(float v) {
    if (std::isnan(v)) return 0x7fff;
    const unsigned sign = std::signbit(v) ? 0x8000 : 0;
    // The bits of positive halves are in the order of their values; 0x7c00 (infinity) counts as 2^16 here.
    unsigned low = 0, high = 0x7c00;
    const double value = std::fabs(double(v));
    const auto at = [](unsigned h) { return h == 0x7c00 ? 65536.0 : half_value(h); };
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        (at(middle) <= value ? low : high) = middle;
    }
    if (value >= at(high)) return sign | high;
    const double below = value - at(low), above = at(high) - value;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

/// Numbers for checks of conversions: of all magnitudes, at edges, infinite and NaN.
Words hard_numbers(check::Check &t) {
    Words words = random_words(t, 3000);
    for (float v : t.uniform(3000, -130, 130)) words.push_back(bits_of(v));
    for (int e = -30; e <= 17; ++e)
        for (float v : t.uniform(20, 1, 2)) words.push_back(bits_of(std::ldexp(v, e)));
    // halves, the midpoints between two of them, and the floats next to the midpoints
    for (unsigned h = 0; h < 0x7c00; h += 37) {
        const float middle = float((half_value(h) + half_value(h + 1)) / 2);
        for (float v : {float(half_value(h)), middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
            words.push_back(bits_of(v));
            words.push_back(bits_of(-v));
        }
    }
    for (float v : {0.0f, -0.0f, 65504.0f, 65519.996f, 65520.0f, 65536.0f, INFINITY, -INFINITY, NAN, 1e-45f, -126.0f, -127.0f, 128.0f, 127.99999f})
        words.push_back(bits_of(v));
    for (unsigned word : {0x3f801000u, 0x3f800fffu, 0x3f801001u, 0x3f803000u, 0xbf801000u, 0x7f7fffffu}) words.push_back(word); // midpoints of tf32
    return words;
}

/// How the elements of a tile lie in the registers of its fragments.
struct Layout {
    int k;            // of the tile
    int per_register; // elements in a register
    double (*element)(unsigned word, int which);
};
void tiles(check::Check &t, const std::string &kernel, const Layout &layout, const Words &in, int count, bool whole, float rtol) {
    const Both got = both(t, kernel, in, size_t(count) * 128, unsigned(count), 1, 32, 0);
    std::vector<float> want, sizes;
    Words exact;
    const int per = layout.per_register, half = layout.k / 2;
    for (int tile = 0; tile < count; ++tile)
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 4; ++i) {
                const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
                const auto word = [&](int from, int which) { return in[size_t((tile * 32 + from) * 10 + which)]; };
                double sum = whole ? double(int(word(lane, 6 + i))) : double(number(word(lane, 6 + i)));
                double size = std::fabs(sum);
                for (int k = 0; k < layout.k; ++k) {
                    const int t4 = k % half / per, which = k % per;
                    const double a = layout.element(word(row % 8 * 4 + t4, row / 8 + 2 * (k / half)), which);
                    const double b = layout.element(word(column * 4 + t4, 4 + k / half), which);
                    sum += a * b;
                    size += std::fabs(a * b);
                }
                want.push_back(float(sum));
                sizes.push_back(float(size));
                exact.push_back(unsigned(int(std::llround(whole ? sum : 0))));
            }
    if (whole) {
        t.equal(kernel + " of the device", got.device, exact);
        t.equal(kernel + " of the twin", got.twin, exact);
        return;
    }
    // The error is relative to the sum of absolute values: compare (got - want) / size with 0.
    std::vector<float> device, twin;
    for (size_t i = 0; i < want.size(); ++i) {
        device.push_back((number(got.device[i]) - want[i]) / sizes[i]);
        twin.push_back((number(got.twin[i]) - want[i]) / sizes[i]);
    }
    const std::vector<float> zero(want.size(), 0.0f);
    t.close(kernel + " of the device", device, zero, rtol, 0);
    t.close(kernel + " of the twin", twin, zero, rtol, 0);
}

} // namespace

CHECK(primitive_cp_async) {
    const Words in = random_words(t, 3 * 128 * 4);
    const Both got = both(t, "primitive_cp_async", in, in.size(), 1, 1, 128, 3 * 128 * 16);
    std::vector<unsigned char> bytes(in.size() * 4, 0);
    for (int group = 0; group < 3; ++group)
        for (int thread = 0; thread < 128; ++thread) {
            const int from = (thread + 1) % 128; // the thread whose copy this one reads
            memcpy(&bytes[size_t(group * 128 + thread) * 16], reinterpret_cast<const unsigned char *>(in.data()) + (group * 128 + from) * 16,
                   size_t((from + group) % 17));
        }
    Words want(in.size());
    memcpy(want.data(), bytes.data(), bytes.size());
    t.equal("the device", got.device, want);
    t.equal("the twin", got.twin, want);
}

CHECK(primitive_ldmatrix) {
    const Words in = random_words(t, 32 * 4);
    const Both got = both(t, "primitive_ldmatrix", in, 320, 1, 1, 32, 512);
    // lane 8 m + i points to row i of matrix m
    const auto half = [&](int matrix, int row, int column) {
        const unsigned word = in[size_t((matrix * 8 + row) * 5 % 32 * 4 + column / 2)];
        return column % 2 ? word >> 16 : word & 0xffff;
    };
    Words want;
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 10; ++i) {
            const int m = i < 8 ? i % 4 : i - 8, g = lane / 4, c = 2 * (lane % 4);
            want.push_back(i / 4 == 1 ? half(m, c, g) | half(m, c + 1, g) << 16 : half(m, g, c) | half(m, g, c + 1) << 16);
        }
    t.equal("the device", got.device, want);
    t.equal("the twin", got.twin, want);
}

CHECK(primitive_mma_f16) {
    const int count = 20;
    Words in(size_t(count) * 320);
    for (size_t i = 0; i < in.size(); ++i) {
        const auto v = t.uniform(2, -2, 2);
        in[i] = i % 10 < 6 ? unsigned(to_half(v[0])) | unsigned(to_half(v[1])) << 16 : bits_of(10 * v[0]);
    }
    tiles(t, "primitive_mma_f16", {16, 2, [](unsigned word, int which) { return half_value(word >> 16 * which & 0xffff); }}, in, count, false, 1e-6f);
}

CHECK(primitive_mma_tf32) {
    const int count = 20;
    Words in(size_t(count) * 320);
    for (unsigned &word : in) word = bits_of(t.uniform(1, -2, 2)[0]); // mma ignores the lower 13 bits
    tiles(t, "primitive_mma_tf32", {8, 1, [](unsigned word, int) { return double(number(word & 0xffffe000u)); }}, in, count, false, 1e-6f);
}

CHECK(primitive_mma_s8) {
    const int count = 20;
    Words in = random_words(t, size_t(count) * 320);
    for (size_t i = 0; i < in.size(); ++i)
        if (i % 10 >= 6) in[i] = unsigned(int(in[i]) / 4);
    tiles(t, "primitive_mma_s8", {32, 4, [](unsigned word, int which) { return double((signed char)(word >> 8 * which)); }}, in, count, true, 0);
}

CHECK(primitive_convert) {
    const Words in = hard_numbers(t);
    const unsigned count = unsigned(in.size());
    const Both got = both(t, "primitive_convert", in, in.size() * 5, (count + 127) / 128, 1, 128, 0, count);
    for (const Words *words : {&got.device, &got.twin}) {
        const std::string who = words == &got.device ? "the device: " : "the twin: ";
        Words halves, want_halves, pairs, want_pairs, tf32, want_tf32;
        std::vector<float> floats, want_floats, powers, want_powers;
        for (size_t i = 0; i < in.size(); ++i) {
            const unsigned *out = &(*words)[i * 5];
            const float v = number(in[i]);
            halves.push_back(out[0]);
            want_halves.push_back(nearest_half(v));
            floats.push_back(number(out[1]));
            want_floats.push_back(float(half_value(in[i] & 0xffff)));
            pairs.push_back(out[3]);
            want_pairs.push_back(nearest_half(v) | nearest_half(-2 * v) << 16);
            // The nearest number with 10 bits behind the point, ties away from zero.
            double nearest = std::isfinite(v) && v != 0 ? std::copysign(std::floor(std::ldexp(std::fabs(double(v)), 10 - std::max(std::ilogb(v), -126)) + 0.5), v) : 0;
            if (nearest != 0) nearest = std::ldexp(nearest, std::max(std::ilogb(v), -126) - 10);
            if (std::fabs(v) < 0x1p-126f) t.is_true(std::fabs(number(out[2])) <= 0x1p-126f, who + "a subnormal number in tf32");
            else if (!std::isnan(v)) {
                tf32.push_back(out[2] & 0xffffe000u);
                want_tf32.push_back(bits_of(std::isinf(v) ? v : nearest == 0 ? std::copysign(0.0f, v) : float(nearest)) & 0xffffe000u);
            } else t.is_true(std::isnan(number(out[2] & 0xffffe000u)), who + "NaN in tf32");
            if (std::isnan(v)) t.is_true(std::isnan(number(out[4])), who + "2^NaN");
            else {
                powers.push_back(number(out[4]));
                want_powers.push_back(v < -126 ? 0.0f : float(std::exp2(double(v))));
            }
        }
        t.equal(who + "to_half", halves, want_halves);
        t.close(who + "from_half", floats, want_floats, 0, 0);
        t.equal(who + "pack_halves", pairs, want_pairs);
        t.equal(who + "to_tf32", tf32, want_tf32);
        t.close(who + "fast_exp2", powers, want_powers, 1.5e-38f, 5e-7f);
    }
}

CHECK(primitive_load_16) {
    const Words in = random_words(t, 512);
    const Both got = both(t, "primitive_load_16", in, 512, 1, 1, 128, 0);
    Words want(512);
    for (size_t i = 0; i < 512; ++i) want[(127 - i / 4) * 4 + i % 4] = in[i];
    t.equal("the device", got.device, want);
    t.equal("the twin", got.twin, want);
}

CHECK(primitive_release) {
    const unsigned blocks = 6 * 7;
    const Both got = both(t, "primitive_release", {0}, 2 + 2 * blocks, 6, 7, 32, 0, 0, {0, 0});
    Words want = {7, blocks};
    for (int i = 0; i < 2; ++i)
        for (unsigned block = 0; block < blocks; ++block) want.push_back(block + 100);
    t.equal("the device", got.device, want);
    t.equal("the twin", got.twin, want);
}

CHECK(primitive_shuffle) {
    const Words in = [&] {
        Words words;
        for (float v : t.uniform(32, -5, 5)) words.push_back(bits_of(v));
        return words;
    }();
    const Both got = both(t, "primitive_shuffle", in, 2048, 1, 1, 32, 0);
    Words want;
    for (unsigned i = 0; i < 2048; ++i) want.push_back(in[i % 32 ^ i / 64]);
    t.equal("the device", got.device, want);
    t.equal("the twin", got.twin, want);
}

CHECK(primitive_reduce) {
    const std::vector<float> values = t.uniform(256, -1, 1);
    Words in;
    for (float v : values) in.push_back(bits_of(v));
    const Both got = both(t, "primitive_reduce", in, 1024, 1, 1, 256, 8 * 4);
    std::vector<float> want;
    double block_sum = 0;
    float block_max = -INFINITY;
    for (float v : values) block_sum += v, block_max = std::max(block_max, v);
    for (size_t i = 0; i < 256; ++i) {
        double sum = 0;
        float most = -INFINITY;
        for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) sum += values[j], most = std::max(most, values[j]);
        for (float v : {float(sum), most, float(block_sum), block_max}) want.push_back(v);
    }
    t.close("the device", numbers(got.device), want, 1e-5f, 0);
    t.close("the twin", numbers(got.twin), want, 1e-5f, 0);
    t.equal("the order of the sum", got.device, got.twin); // the same order of additions gives the same bits
}

CHECK(primitive_activate) {
    std::vector<float> values = t.uniform(400, -8, 8);
    for (float v : {0.0f, -100.0f, 100.0f, 1e-6f}) values.push_back(v);
    Words in;
    for (float v : values) in.push_back(bits_of(v));
    const Both got = both(t, "primitive_activate", in, in.size() * 7, unsigned(in.size() + 127) / 128, 1, 128, 0, (long long)in.size());
    std::vector<float> want;
    for (float v : values) {
        const double x = v, sigmoid = 1 / (1 + std::exp(-x)), inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
        for (double y : {x, std::max(x, 0.0), 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))), 0.5 * x * (1 + std::tanh(inner)), sigmoid, std::tanh(x), x * sigmoid})
            want.push_back(float(y));
    }
    t.close("the device", numbers(got.device), want, 2e-6f, 2e-6f);
    t.close("the twin", numbers(got.twin), want, 2e-6f, 2e-6f);
}

CHECK(primitive_elements) {
    for (int from : {F32, F16, I64, I32, U8})
        for (int to : {F32, F16}) {
            const int rows = t.whole(1, 5), width = t.whole(1, 200), most = rows + t.whole(0, 2);
            const std::vector<float> values = t.wholes(size_t(most * width), 0, 255);
            auto x = t.matrix(from, most, width, values);
            auto y = t.matrix(to, most, width);
            auto tail = t.tail();
            auto dims = t.buffer(std::vector<int>{-1, rows});
            CopyArgs args = {};
            args.rows = {dims.as<int>(), 1, most};
            args.x = x;
            args.y = y;
            args.tail = tail;
            args.width = width;
            for (int again = 0; again < 2; ++again) {
                t.launch("primitives", "primitive_elements", unsigned(width + 127) / 128, unsigned(most), 128, 0, args);
                t.is_true(tail.is_set(), "the flag is 1, the counter 0");
            }
            std::vector<float> want(values.size(), NAN);
            for (size_t i = 0; i < size_t(rows * width); ++i) want[i] = 2 * values[i];
            t.close("y", y.read(), want, 0, 0);
        }
}

CHECK(primitive_sequence) {
    const std::vector<int> lengths = {3, 1, 0, 64, 0, 0, 7, 1};
    const std::vector<int> header = t.header(lengths, 11);
    Words in(header.begin(), header.end());
    const Both got = both(t, "primitive_sequence", in, 76, 1, 1, 128, 0);
    Words want;
    for (size_t s = 0; s < lengths.size(); ++s) want.insert(want.end(), size_t(lengths[s]), unsigned(s));
    t.equal("the device", got.device, want);
    t.equal("the twin", got.twin, want);
}
