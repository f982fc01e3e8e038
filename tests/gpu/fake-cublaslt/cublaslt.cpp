// The fake libcublasLt: computes products on the CPU, as host functions in the fake libcuda's streams. Only for tests.
//
// It is as strict as the real library may be: it checks sizes of attributes, kinds, shapes, strides, alignments and the workspace, and
// accepts an algorithm only for the shape for which it was proposed. It proposes these algorithms, in this order:
//   21 works, takes 2 ms     22 fails when it is used     23 works, takes 0.2 ms, splits k in 2 and needs 1 MiB of workspace
//   24 has a state that says that it does not work
// and none for products with k = 13. Environment variable: LAPWING_FAKE_LT_VERSION, default 120905.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <vector>

#include "../shim/half.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum Status { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, COMPUTE_32F = 68, COMPUTE_TF32 = 77, RELU = 2, BIAS = 4 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS = 8 };
enum { PREF_WORKSPACE = 1, PREF_REDUCTION = 3, PREF_ALIGN_A = 5, PREF_ALIGN_D = 8 };

struct Operation { int compute, scale, transposed_a = 0, transposed_b = 0; unsigned epilogue = 1; uint64_t bias = 0; };
struct Layout { int kind; uint64_t height, width; int64_t stride; };
struct Preference { uint64_t workspace = 0; unsigned reductions = ~0u, alignment[4] = {256, 256, 256, 256}; };
struct Algorithm { uint64_t data[8]; }; // id, shape, workspace, split of k
struct Proposal { Algorithm algorithm; size_t workspace; int state; float waves; int reserved[4]; };

int handle_of_library;

Status no(const char *why) { return fprintf(stderr, "fake libcublasLt: %s\n", why), INVALID_VALUE; }

// `a` is w, stored row by row, that is, transposed; `b` is x.
Status fits(const Operation &o, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
    const int kind = a.kind;
    if (kind != R_32F && kind != R_16F) return no("a kind that is neither fp32 nor fp16");
    if (b.kind != kind || c.kind != kind || d.kind != kind) return no("kinds differ");
    if (o.scale != R_32F || (o.compute != COMPUTE_32F && !(o.compute == COMPUTE_TF32 && kind == R_32F))) return no("the precision");
    if (o.transposed_a != 1 || o.transposed_b != 0) return no("only Aᵀ · B is done here");
    if (a.height != b.height || a.width != d.height || b.width != d.width || c.height != d.height || c.width != d.width) return no("the shapes");
    for (const Layout *one : {&a, &b, &c, &d})
        if (one->stride < int64_t(one->height)) return no("a stride below its height");
    if (o.epilogue != 1 && o.epilogue != RELU && o.epilogue != BIAS && o.epilogue != (RELU | BIAS)) return no("the epilogue");
    if ((o.epilogue & BIAS) != 0 && o.bias % 16 != 0) return no("the bias is not aligned");
    return OK;
}
uint64_t shape(const Operation &o, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
    uint64_t hash = 14695981039346656037ull;
    for (const uint64_t one : {uint64_t(o.compute), uint64_t(o.epilogue), a.height, a.width, b.width, uint64_t(a.stride), uint64_t(b.stride),
                               uint64_t(c.stride), uint64_t(d.stride), uint64_t(a.kind)})
        hash = (hash ^ one) * 1099511628211ull;
    return hash;
}

// The nearest number with 10 bits of fraction.
float to_tf32_value(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x1000u) & ~0x1fffu;
    memcpy(&x, &bits, 4);
    return x;
}

struct Product {
    Operation operation;
    Layout a, b, c, d;
    const void *pa, *pb, *pc;
    void *pd;
    float alpha, beta;
    unsigned microseconds;
};
float get(const void *at, int kind, uint64_t index) {
    return kind == R_32F ? static_cast<const float *>(at)[index] : from_half(static_cast<const uint16_t *>(at)[index]);
}
void run(void *data) {
    // never freed: a graph may run it again
    const Product &p = *static_cast<Product *>(data);
    usleep(p.microseconds);
    const bool tf32 = p.operation.compute == COMPUTE_TF32;
    for (uint64_t row = 0; row < p.d.width; ++row)
        for (uint64_t column = 0; column < p.d.height; ++column) {
            float sum = 0;
            for (uint64_t k = 0; k < p.a.height; ++k) {
                const float w = get(p.pa, p.a.kind, column * p.a.stride + k), x = get(p.pb, p.b.kind, row * p.b.stride + k);
                sum += tf32 ? to_tf32_value(w) * to_tf32_value(x) : w * x;
            }
            float y = p.alpha * sum;
            if (p.beta != 0) y += p.beta * get(p.pc, p.c.kind, row * p.c.stride + column);
            if (p.operation.epilogue & BIAS) y += get(reinterpret_cast<const void *>(p.operation.bias), p.d.kind, column);
            if ((p.operation.epilogue & RELU) && y < 0) y = 0;
            if (p.d.kind == R_32F) static_cast<float *>(p.pd)[row * p.d.stride + column] = y;
            else static_cast<uint16_t *>(p.pd)[row * p.d.stride + column] = to_half(y);
        }
}

template <class T> Status put(T &field, const void *value, size_t bytes) {
    if (bytes != sizeof(T)) return no("the size of an attribute");
    memcpy(&field, value, bytes);
    return OK;
}

} // namespace

API size_t cublasLtGetVersion() {
    const char *text = getenv("LAPWING_FAKE_LT_VERSION");
    return text != nullptr && *text != 0 ? strtoull(text, nullptr, 10) : 120905;
}
API int cublasLtCreate(void **handle) { return *handle = &handle_of_library, OK; }
API int cublasLtDestroy(void *handle) { return handle == &handle_of_library ? OK : NOT_INITIALIZED; }
API int cublasLtMatmulDescCreate(void **made, int compute, int scale) { return *made = new Operation{compute, scale}, OK; }
API int cublasLtMatmulDescDestroy(void *one) { return delete static_cast<Operation *>(one), OK; }
API int cublasLtMatmulDescSetAttribute(void *one, int attribute, const void *value, size_t bytes) {
    Operation &o = *static_cast<Operation *>(one);
    switch (attribute) {
    case DESC_TRANSA: return put(o.transposed_a, value, bytes);
    case DESC_TRANSB: return put(o.transposed_b, value, bytes);
    case DESC_EPILOGUE: return put(o.epilogue, value, bytes);
    case DESC_BIAS: return put(o.bias, value, bytes);
    default: return no("an attribute of a product");
    }
}
API int cublasLtMatrixLayoutCreate(void **made, int kind, uint64_t height, uint64_t width, int64_t stride) {
    return *made = new Layout{kind, height, width, stride}, OK;
}
API int cublasLtMatrixLayoutDestroy(void *one) { return delete static_cast<Layout *>(one), OK; }
API int cublasLtMatmulPreferenceCreate(void **made) { return *made = new Preference, OK; }
API int cublasLtMatmulPreferenceDestroy(void *one) { return delete static_cast<Preference *>(one), OK; }
API int cublasLtMatmulPreferenceSetAttribute(void *one, int attribute, const void *value, size_t bytes) {
    Preference &p = *static_cast<Preference *>(one);
    if (attribute == PREF_WORKSPACE) return put(p.workspace, value, bytes);
    if (attribute == PREF_REDUCTION) return put(p.reductions, value, bytes);
    if (attribute >= PREF_ALIGN_A && attribute <= PREF_ALIGN_D) return put(p.alignment[attribute - PREF_ALIGN_A], value, bytes);
    return no("an attribute of a preference");
}

API int cublasLtMatmulAlgoGetHeuristic(void *, void *operation, void *a, void *b, void *c, void *d, void *preference, int asked,
                                       Proposal *to, int *count) {
    const Operation &o = *static_cast<Operation *>(operation);
    const Layout &la = *static_cast<Layout *>(a), &lb = *static_cast<Layout *>(b), &lc = *static_cast<Layout *>(c), &ld = *static_cast<Layout *>(d);
    const Preference &p = *static_cast<Preference *>(preference);
    *count = 0;
    if (const Status status = fits(o, la, lb, lc, ld)) return status;
    for (const unsigned alignment : p.alignment)
        if (alignment != 16) return no("the promised alignment is not 16 bytes");
    if (la.height == 13) return NOT_SUPPORTED;
    const uint64_t of = shape(o, la, lb, lc, ld);
    const std::vector<Proposal> all = {{{{21, of, 0, 1}}, 0, OK, 1.0f, {}}, {{{22, of, 0, 1}}, 0, OK, 1.0f, {}},
                                       {{{23, of, 1 << 20, 2}}, 1 << 20, OK, 1.0f, {}}, {{{24, of, 0, 1}}, 0, NOT_SUPPORTED, 1.0f, {}}};
    for (const Proposal &one : all) {
        if (*count == asked || one.workspace > p.workspace) continue;
        if (one.algorithm.data[3] > 1 && (p.reductions & ~2u) != 0) return no("parts of k would be summed in 16 bits");
        to[(*count)++] = one;
    }
    return OK;
}
API int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm *of, int attribute, void *value, size_t bytes, size_t *written) {
    const std::map<int, uint32_t> answers = {{0, uint32_t(of->data[0])}, {1, 20}, {2, uint32_t(of->data[3])}, {6, 8}};
    if (bytes != 4 || answers.count(attribute) == 0) return INVALID_VALUE;
    memcpy(value, &answers.at(attribute), 4);
    *written = 4;
    return OK;
}

API int cublasLtMatmul(void *handle, void *operation, const float *alpha, const void *pa, void *a, const void *pb, void *b, const float *beta,
                       const void *pc, void *c, void *pd, void *d, const Algorithm *algorithm, void *workspace, size_t bytes, void *stream) {
    if (handle != &handle_of_library) return NOT_INITIALIZED;
    const Operation &o = *static_cast<Operation *>(operation);
    const Layout &la = *static_cast<Layout *>(a), &lb = *static_cast<Layout *>(b), &lc = *static_cast<Layout *>(c), &ld = *static_cast<Layout *>(d);
    if (const Status status = fits(o, la, lb, lc, ld)) return status;
    if (algorithm->data[1] != shape(o, la, lb, lc, ld)) return no("the kernel was proposed for another shape");
    if (algorithm->data[2] > bytes || workspace == nullptr) return no("too little workspace");
    if ((o.epilogue & BIAS) != 0 && o.bias == 0) return no("there is no bias");
    for (const void *one : {pa, pb, pc, static_cast<const void *>(pd)})
        if (one == nullptr || reinterpret_cast<uintptr_t>(one) % 16 != 0) return no("an address");
    if (algorithm->data[0] == 22) return EXECUTION_FAILED;
    // the libcuda that this process has already loaded
    void *const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) return NOT_INITIALIZED;
    using Launch = int (*)(void *, void (*)(void *), void *);
    const auto launch = reinterpret_cast<Launch>(dlsym(driver, "cuLaunchHostFunc"));
    if (launch == nullptr) return NOT_INITIALIZED;
    auto *product = new Product{o, la, lb, lc, ld, pa, pb, pc, pd, *alpha, *beta, algorithm->data[0] == 21 ? 2000u : 200u};
    return launch(stream, run, product) == 0 ? OK : EXECUTION_FAILED;
}
