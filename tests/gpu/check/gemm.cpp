// Products (gemv_*, gemm_*) compared with sums in double precision over the same rounded operands.
#include <algorithm>
#include <utility>

#include "check.h"

namespace {

struct Kernel {
    const char *file;
    std::string name;
    int x_kind;       // -1: F32 or F16
    int w_kind;
    int bm, bn;       // the tile; for gemv the most rows and the columns of a warp
    unsigned threads, shared;
    bool gemv;
};

std::vector<Kernel> gemvs() {
    std::vector<Kernel> all;
    for (const auto &[name, kind] : {std::pair<const char *, int>{"f32", F32}, {"f16", F16}, {"s8", S8}})
        for (const int rows : {1, 2, 4, 8})
            all.push_back({"gemv", std::string("gemv_") + name + "_" + std::to_string(rows), -1, kind, rows, rows <= 2 ? 1 : 2, 256, 512, true});
    return all;
}
std::vector<Kernel> in_f32() {
    return {{"gemm_f32", "gemm_f32_128x128", F32, F32, 128, 128, 256, 49152, false},
            {"gemm_f32", "gemm_f32_64x64", F32, F32, 64, 64, 128, 32768, false},
            {"gemm_f32", "gemm_f32_32x64", F32, F32, 32, 64, 128, 24576, false}};
}
std::vector<Kernel> on_tensor_cores() {
    std::vector<Kernel> all;
    for (const auto &[name, kind] : {std::pair<const char *, int>{"f16", F16}, {"tf32", F32}, {"s8", S8}}) {
        const std::string begin = std::string("gemm_") + name + "_";
        all.push_back({"gemm_mma", begin + "128x128", kind, kind, 128, 128, 128, 65536, false});
        all.push_back({"gemm_mma", begin + "128x64", kind, kind, 128, 64, 128, 49152, false});
        all.push_back({"gemm_mma", begin + "64x64", kind, kind, 64, 64, 128, 49152, false});
        all.push_back({"gemm_mma", begin + "32x64", kind, kind, 32, 64, 128, 49152, false});
    }
    return all;
}

/// Like cvt.rna.tf32: rounds to 10 bits behind the point, ties away from zero.
float rounded_to_tf32(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits = (bits + 0x1000) & ~0x1fffu;
    memcpy(&v, &bits, 4);
    return v;
}

struct Case {
    // The grid is made for `room` rows; those behind `rows` are NaN and must not be written.
    int rows, room, n, k;
    int activation = ACT_NONE, split = 1;
    bool bias = false, residual = false, header = false, tail = false, x_scale = false, w_scale = false;
    int y_kind = F32, residual_kind = F32;
    // Elements by which the strides of y and residual exceed the least allowed ones.
    int wider = 0;
};

std::string told(const Kernel &kernel, const Case &c) {
    char text[200];
    snprintf(text, sizeof text, "%s: rows %d of %d, n %d, k %d, activation %d, split %d, bias %d, residual %d of kind %d, y of kind %d, wider by %d",
             kernel.name.c_str(), c.rows, c.room, c.n, c.k, c.activation, c.split, c.bias, c.residual, c.residual_kind, c.y_kind, c.wider);
    return text;
}

/// Random numbers; rows behind `rows` become NaN, except in 8 bits, where there is no NaN.
std::vector<float> some(check::Check &t, int kind, int room, int rows, int width) {
    auto values = kind == S8 ? t.wholes(size_t(room) * size_t(width), -127, 127) : t.uniform(size_t(room) * size_t(width), -1, 1);
    if (kind != S8) std::fill(values.begin() + ptrdiff_t(rows) * width, values.end(), NAN);
    return values;
}

void run(check::Check &t, const Kernel &kernel, const Case &c) {
    const int x_kind = kernel.x_kind >= 0 ? kernel.x_kind : t.whole(0, 1) ? F16 : F32;
    const bool tf32 = kernel.name.find("tf32") != std::string::npos;
    const bool x_scaled = x_kind == S8 || c.x_scale, w_scaled = kernel.w_kind == S8 || c.w_scale;
    // In elements: rows begin at multiples of at least 16 bytes. With k = 1 the stride may also be 1.
    const int aligned = x_kind == S8 ? 16 : 8;
    const int x_stride = c.k == 1 && t.whole(0, 1) ? 1 : (c.k + aligned - 1) / aligned * aligned + aligned * t.whole(0, 2);
    auto x = t.matrix(x_kind, c.room, c.k, some(t, x_kind, c.room, c.rows, c.k), x_stride);
    auto w_values = some(t, kernel.w_kind, c.n, c.n, c.k);
    if (tf32)
        for (float &v : w_values) v = rounded_to_tf32(v);
    auto w = t.weights(kernel.w_kind, c.n, c.k, w_values);
    const float scale = 1.0f / 127;
    const float x_most = x_kind == S8 ? scale : 1, w_most = kernel.w_kind == S8 ? scale : 1;
    auto bias = t.buffer(t.uniform(size_t(c.n), -1, 1)), w_scale = t.buffer(t.uniform(size_t(c.n), 0.5f * w_most, w_most));
    auto x_scale = t.buffer(t.uniform(size_t(c.room), 0.5f * x_most, x_most));
    const int stride = check::Check::stride_of(c.n) == 1 && c.wider == 0 ? 1 : check::Check::stride_of(c.n, 16) + c.wider;
    auto residual = t.matrix(c.residual_kind, c.room, c.n, some(t, c.residual_kind, c.room, c.rows, c.n), stride);
    auto y = t.matrix(c.y_kind, c.room, c.n, stride);
    auto header = t.buffer(t.header({c.rows}));
    auto tail = t.tail();

    GemmArgs args = {};
    args.rows = c.header ? Rows{header.as<int>(), HEADER_TOKENS, -1} : Rows{nullptr, 0, c.rows};
    args.x = x;
    args.w = w;
    if (c.bias) args.bias = bias.as<float>();
    if (w_scaled) args.w_scale = w_scale.as<float>();
    if (x_scaled) args.x_scale = x_scale.as<float>();
    if (c.residual) args.residual = residual;
    args.y = y;
    if (c.tail) args.tail = tail;
    args.k = c.k;
    args.n = c.n;
    args.activation = c.activation;
    args.split = c.split;
    if (kernel.gemv) {
        const int columns = 8 / c.split * kernel.bn;
        t.launch(kernel.file, kernel.name, unsigned((c.n + columns - 1) / columns), 1, kernel.threads, kernel.shared, args);
    } else {
        t.launch(kernel.file, kernel.name, unsigned((c.n + kernel.bn - 1) / kernel.bn), unsigned((c.room + kernel.bm - 1) / kernel.bm), kernel.threads,
                 kernel.shared, args);
    }

    auto xs = x.read();
    const auto ws = w.read(), rs = residual.read();
    const auto biases = t.read<float>(bias), w_scales = t.read<float>(w_scale), x_scales = t.read<float>(x_scale);
    if (tf32)
        for (float &v : xs) v = rounded_to_tf32(v);
    std::vector<float> want(size_t(c.room) * size_t(c.n), NAN);
    for (int row = 0; row < c.rows; ++row)
        for (int column = 0; column < c.n; ++column) {
            double sum = 0;
            const float *const of_x = &xs[size_t(row) * size_t(c.k)], *const of_w = &ws[size_t(column) * size_t(c.k)];
            for (int k = 0; k < c.k; ++k) sum += double(of_x[k]) * double(of_w[k]);
            if (x_scaled) sum *= x_scales[size_t(row)];
            if (w_scaled) sum *= w_scales[size_t(column)];
            if (c.bias) sum += biases[size_t(column)];
            const size_t at = size_t(row) * size_t(c.n) + size_t(column);
            sum = check::activated(c.activation, sum);
            if (c.residual) sum += rs[at];
            want[at] = float(sum);
        }
    // When tensor cores add, they truncate the bits behind the sum's last one (Fasi et al. 2021), while the twin on the host rounds. In a
    // model of tensor cores, a large sum of 1111 products of numbers below 1 is off by up to 2e-4. Sums of bytes are exact on both.
    const bool truncates = kernel.file == std::string("gemm_mma") && x_kind != S8;
    const float at_zero = truncates || c.y_kind == F16 ? 1e-4f : 2e-5f;
    t.close(told(kernel, c), y.read(), want, at_zero, c.y_kind == F16 ? 6e-4f : 1e-5f);
    if (c.tail) t.is_true(tail.is_set(), told(kernel, c) + ": the flag is 1, the counter 0");
}

/// The values of rows, n and k to check with each kernel; some are next to the edge of a tile.
const int ODD[] = {1, 3, 17, 31, 33, 65, 130};

/// A case with random options.
Case drawn(check::Check &t, int rows, int n, int k, int which) {
    Case c = {rows, rows, n, k};
    c.activation = which % 7;
    c.bias = t.whole(0, 1);
    c.residual = t.whole(0, 1);
    c.header = t.whole(0, 1);
    c.tail = t.whole(0, 1);
    c.y_kind = t.whole(0, 1) ? F16 : F32;
    c.residual_kind = t.whole(0, 1) ? F16 : F32;
    c.wider = t.whole(0, 2) * 8;
    c.w_scale = t.whole(0, 3) == 0;
    return c;
}

void products(check::Check &t, const std::vector<Kernel> &kernels) {
    for (const Kernel &kernel : kernels) {
        int which = 0;
        // each size once as rows, as n and as k, and each activation
        for (int i = 0; i < 7; ++i) {
            Case odd = drawn(t, ODD[i], ODD[(i * 3 + 2) % 7], ODD[(i * 5 + 4) % 7], which++);
            odd.x_scale = kernel.x_kind == F32 && kernel.file == std::string("gemm_f32") && i % 3 == 0;
            run(t, kernel, odd);
        }
        // full tiles, and more of them along k than there are stages
        Case full = drawn(t, kernel.bm, kernel.bn, 192, ACT_NONE);
        full.y_kind = full.residual_kind = F16;
        full.bias = full.residual = true;
        run(t, kernel, full);
        // fewer rows than the grid is made for, and then none at all
        Case fewer = drawn(t, kernel.bm + 1, 40, 40, which++);
        fewer.room = 3 * kernel.bm;
        fewer.header = fewer.tail = true;
        run(t, kernel, fewer);
        fewer.rows = 0;
        run(t, kernel, fewer);
        run(t, kernel, drawn(t, 5, 9, 1111, ACT_NONE));
        // x of width 1, with stride 1 or more
        run(t, kernel, drawn(t, kernel.bm - 3, 9, 1, which++));
        run(t, kernel, drawn(t, kernel.bm + 3, 9, 1, which++));
    }
}

} // namespace

CHECK(gemm_f32) { products(t, in_f32()); }
CHECK(gemm_mma) { products(t, on_tensor_cores()); }

CHECK(gemm_grouped_blocks) {
    // With more than 16 columns and 8 rows of blocks, the kernel maps blocks to tiles in another order.
    const Kernel kernel = on_tensor_cores()[3];
    Case c = {32 * 10 - 5, 32 * 11, 64 * 17 - 3, 9};
    c.bias = c.header = c.tail = true;
    run(t, kernel, c);
}

CHECK(gemv) {
    for (const Kernel &kernel : gemvs()) {
        int which = 0;
        for (const int split : {1, 2, 4, 8})
            for (const int k : {1, 31, 130, split * 513 + 7}) {
                const int n = k > 1000 ? 9 : ODD[which % 7];
                Case c = drawn(t, t.whole(1, kernel.bm), n, k, which++);
                c.room = t.whole(c.rows, kernel.bm);
                c.split = split;
                c.x_scale = t.whole(0, 3) == 0;
                run(t, kernel, c);
            }
        Case full = drawn(t, kernel.bm, 24, 2304, ACT_NONE);
        full.tail = true;
        run(t, kernel, full);
        full.rows = 0;
        full.header = true;
        run(t, kernel, full);
    }
}
