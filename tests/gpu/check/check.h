// The interface with which checks are written. Each CHECK gets `t` (check::Check), which provides a random generator, device memory,
// launches and comparisons. The same checks run on a GPU and on the fake libcuda. A complete example:
//
//     #include "check.h"
//
//     CHECK(relu_doubles) {
//         const int rows = 5, width = 13;
//         auto values = t.uniform(rows * width, -1, 1);            // std::vector<float>, the same for the same --seed
//         auto x = t.matrix(F16, rows, width, values);             // on the device, in half precision; stride 16, padded with NaN
//         auto y = t.matrix(F32, rows, width);                     // all NaN
//         SomeArgs args = {};                                      // of args.cu
//         args.rows = {nullptr, 0, rows};
//         args.x = x;                                              // a Mat
//         args.y = y;
//         auto tail = t.tail();                                    // optional: a flag and a counter
//         args.tail = tail;
//         t.launch("file", "kernel", grid_x, grid_y, 128, 0, args); // a kernel of FILE.ptx; waits for its end
//         auto rounded = x.read();                                 // the device's values as floats, rows · width
//         std::vector<float> want(rounded.size());
//         for (size_t i = 0; i < want.size(); ++i) want[i] = 2 * std::max(rounded[i], 0.0f);
//         t.close("y", y.read(), want, 1e-5f, 1e-5f);              // |got - want| <= atol + rtol · |want|
//         t.is_true(tail.is_set(), "the flag is 1, the counter 0");
//     }
//
// read() throws, and so fails the check, if the padding between width and stride or the memory around a buffer was written to.
// Arrays that are no matrices: auto bias = t.buffer(values) of any std::vector, bias.as<float>(), t.read<float>(bias).
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "args.cu"
#include "driver.h"
#include "half.h"

namespace check {

/// A matrix on the device, passed to kernels as a Mat of args.cu.
class Matrix {
  public:
    Matrix(Device &device, int kind, int rows, int width, int stride)
        : buffer_(device, size_t(rows) * size_t(stride) * size_of(kind)), rows_(rows), width_(width), stride_(stride), kind_(kind) {}
    operator Mat() const { return Mat{buffer_.as<void>(), stride_, kind_}; }
    int rows() const { return rows_; }
    int width() const { return width_; }
    int stride() const { return stride_; }
    const Buffer &buffer() const { return buffer_; }

    /// Writes rows · width numbers. The padding becomes NaN (0xff bytes), or zeros.
    void write(const std::vector<float> &values, bool zero_padding = false) {
        if (values.size() != size_t(rows_) * size_t(width_)) throw std::runtime_error("the number of values does not match the matrix");
        std::vector<unsigned char> bytes(buffer_.bytes(), zero_padding ? 0 : 0xff);
        for (int r = 0; r < rows_; ++r)
            for (int c = 0; c < width_; ++c) put(&bytes[at(r, c)], values[size_t(r) * size_t(width_) + size_t(c)]);
        padding_ = zero_padding ? 0 : 0xff;
        buffer_.write(bytes.data(), bytes.size());
    }
    /// Returns its rows · width numbers. Throws if the padding has changed or, with `padding_is_zero`, is not 0.
    std::vector<float> read(bool padding_is_zero = false) const {
        const std::vector<unsigned char> bytes = buffer_.read();
        const unsigned char padding = padding_is_zero ? 0 : padding_;
        std::vector<float> values;
        for (int r = 0; r < rows_; ++r)
            for (int c = 0; c < stride_; ++c) {
                if (c < width_) {
                    values.push_back(get(&bytes[at(r, c)]));
                    continue;
                }
                for (size_t i = 0; i < size_of(kind_); ++i)
                    if (bytes[at(r, c) + i] != padding)
                        throw std::runtime_error("the padding was written: row " + std::to_string(r) + ", column " + std::to_string(c));
            }
        return values;
    }

  private:
    static size_t size_of(int kind) {
        switch (kind) {
        case F32: case I32: return 4;
        case F16: return 2;
        case I64: return 8;
        default: return 1;
        }
    }
    size_t at(int r, int c) const { return (size_t(r) * size_t(stride_) + size_t(c)) * size_of(kind_); }
    template <class T> static void copy(void *to, T v) { memcpy(to, &v, sizeof v); }
    void put(unsigned char *to, float v) const {
        switch (kind_) {
        case F32: return copy(to, v);
        case F16: return copy(to, to_half(v));
        case I64: return copy(to, (long long)v);
        case I32: return copy(to, int(v));
        case U8: return copy(to, (unsigned char)v);
        default: return copy(to, (signed char)v);
        }
    }
    template <class T> static T take(const void *from) {
        T v;
        memcpy(&v, from, sizeof v);
        return v;
    }
    float get(const unsigned char *from) const {
        switch (kind_) {
        case F32: return take<float>(from);
        case F16: return from_half(take<unsigned short>(from));
        case I64: return float(take<long long>(from));
        case I32: return float(take<int>(from));
        case U8: return float(*from);
        default: return float(take<signed char>(from));
        }
    }
    Buffer buffer_;
    int rows_, width_, stride_, kind_;
    unsigned char padding_ = 0xff;
};

/// The two words that a Tail points to; both begin as 0.
class TailWords {
  public:
    explicit TailWords(Device &device) : device_(&device), words_(device, 256) { device.fill(words_.at(), 0, 256); }
    operator Tail() const { return Tail{words_.as<unsigned>(), words_.as<unsigned>() + 32}; }
    /// Returns whether the flag is 1 and the counter 0, and resets the flag to 0.
    bool is_set() {
        const std::vector<unsigned char> bytes = words_.read();
        unsigned flag, counter;
        memcpy(&flag, &bytes[0], 4);
        memcpy(&counter, &bytes[128], 4);
        device_->fill(words_.at(), 0, 4);
        return flag == 1 && counter == 0;
    }

  private:
    Device *device_;
    Buffer words_;
};

class Check {
  public:
    Check(Device &device, unsigned long long seed, const char *name) : device(device), rng(seed * 1000003 + std::hash<std::string>()(name)) {}

    Device &device;
    std::mt19937_64 rng;

    /// A random integer from `low` to `high`, inclusive.
    int whole(int low, int high) { return low + int(rng() % (unsigned long long)(high - low + 1)); }
    std::vector<float> uniform(size_t count, float low, float high) {
        std::vector<float> values(count);
        for (float &v : values) v = low + (high - low) * float(double(rng() >> 11) * 0x1p-53);
        return values;
    }
    std::vector<float> wholes(size_t count, int low, int high) {
        std::vector<float> values(count);
        for (float &v : values) v = float(whole(low, high));
        return values;
    }

    /// The least stride that args.cu allows: rows begin at multiples of `aligned` elements (32 for the weights of products). A width of 1
    /// has stride 1.
    static int stride_of(int width, int aligned = 8) { return width == 1 && aligned <= 8 ? 1 : (width + aligned - 1) / aligned * aligned; }
    /// A matrix full of NaN (0xff bytes). A `stride` of 0 means the least that is allowed.
    Matrix matrix(int kind, int rows, int width, int stride = 0) { return Matrix(device, kind, rows, width, stride ? stride : stride_of(width)); }
    Matrix matrix(int kind, int rows, int width, const std::vector<float> &values, int stride = 0) {
        Matrix m = matrix(kind, rows, width, stride);
        m.write(values);
        return m;
    }
    /// The weights of a product: the stride is a multiple of 32, and the padding is 0.
    Matrix weights(int kind, int n, int k, const std::vector<float> &values) {
        Matrix m(device, kind, n, k, stride_of(k, 32));
        m.write(values, true);
        return m;
    }
    template <class T> Buffer buffer(const std::vector<T> &values) {
        Buffer b(device, values.size() * sizeof(T));
        b.write(values.data(), values.size() * sizeof(T));
        return b;
    }
    /// Memory of 0xff bytes.
    Buffer buffer(size_t bytes) { return Buffer(device, bytes); }
    template <class T> std::vector<T> read(const Buffer &b) {
        const std::vector<unsigned char> bytes = b.read();
        std::vector<T> values(bytes.size() / sizeof(T));
        memcpy(static_cast<void *>(values.data()), bytes.data(), values.size() * sizeof(T));
        return values;
    }
    TailWords tail() { return TailWords(device); }
    /// The header of a batch of sequences of these lengths, with room for `capacity` sequences (0: exactly these).
    std::vector<int> header(const std::vector<int> &lengths, int capacity = 0) {
        const int batch = int(lengths.size());
        if (capacity < batch) capacity = batch;
        std::vector<int> words(size_t(HEADER_OFFSETS + 2 * (capacity + 1)), 0x7fffffff);
        int tokens = 0, tiles = 0;
        for (int s = 0; s <= batch; ++s) {
            words[size_t(HEADER_OFFSETS + s)] = tokens;
            words[size_t(HEADER_OFFSETS + capacity + 1 + s)] = tiles;
            if (s < batch) {
                tokens += lengths[size_t(s)];
                tiles += (lengths[size_t(s)] + ATTENTION_TILE - 1) / ATTENTION_TILE;
            }
        }
        words[HEADER_BATCH] = batch;
        words[HEADER_TOKENS] = tokens;
        words[HEADER_TILES] = tiles;
        words[HEADER_CAPACITY] = capacity;
        return words;
    }

    template <class Args>
    void launch(const std::string &file, const std::string &kernel, unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared,
                const Args &args) {
        device.launch(file, kernel, grid_x, grid_y, threads, shared, &args);
    }

    /// Checks that each |got - want| <= atol + rtol · |want|; two NaN agree, and so do equal infinities. A failure names the worst element.
    bool close(const std::string &what, const std::vector<float> &got, const std::vector<float> &want, float atol, float rtol) {
        if (got.size() != want.size())
            return is_true(false, what + ": " + std::to_string(got.size()) + " numbers, not " + std::to_string(want.size()));
        double worst = 0;
        size_t at = 0, wrong = 0;
        for (size_t i = 0; i < got.size(); ++i) {
            if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
            const double allowed = double(atol) + double(rtol) * std::fabs(double(want[i]));
            double off = std::fabs(double(got[i]) - double(want[i])) / (allowed > 0 ? allowed : 1e-300);
            if (!(off == off) || !std::isfinite(want[i])) off = INFINITY;
            if (off > 1) ++wrong;
            if (off > worst) {
                worst = off;
                at = i;
            }
        }
        if (worst > worst_) worst_ = worst;
        if (wrong == 0) return true;
        char text[256];
        snprintf(text, sizeof text, ": %zu of %zu are off; the worst is [%zu]: %.9g, not %.9g (%.3g times the allowed deviation)", wrong,
                 got.size(), at, double(got[at]), double(want[at]), worst);
        return is_true(false, what + text);
    }
    /// Checks that all elements are the same, bit by bit.
    template <class T> bool equal(const std::string &what, const std::vector<T> &got, const std::vector<T> &want) {
        if (got.size() != want.size()) return is_true(false, what + ": the number of elements differs");
        for (size_t i = 0; i < got.size(); ++i)
            if (memcmp(&got[i], &want[i], sizeof(T)) != 0)
                return is_true(false, what + ": [" + std::to_string(i) + "]: " + std::to_string(got[i]) + ", not " + std::to_string(want[i]));
        return true;
    }
    bool is_true(bool holds, const std::string &what) {
        if (!holds && ++failures_ <= 5) fprintf(stderr, "  %s\n", what.c_str());
        return holds;
    }
    int failures() const { return failures_; }
    /// The largest deviation in all calls of close() so far, as a fraction of the allowed one.
    double worst() const { return worst_; }

  private:
    int failures_ = 0;
    double worst_ = 0;
};

/// enum Activation of args.cu in double precision.
inline double activated(int activation, double x) {
    switch (activation) {
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_GELU: return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5)));
    case ACT_GELU_TANH: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_SIGMOID: return 1 / (1 + std::exp(-x));
    case ACT_TANH: return std::tanh(x);
    case ACT_SILU: return x / (1 + std::exp(-x));
    default: return x;
    }
}

struct Registered {
    const char *name;
    void (*run)(Check &);
};
std::vector<Registered> &all();
struct Registration {
    Registration(const char *name, void (*run)(Check &)) { all().push_back({name, run}); }
};

} // namespace check

#define CHECK(name)                                                          \
    static void check_##name(check::Check &t);                               \
    static const check::Registration registration_##name(#name, check_##name); \
    static void check_##name([[maybe_unused]] check::Check &t)
