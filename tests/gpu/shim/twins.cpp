// The twins of the primitives of prelude.cu: their behaviour as the PTX manual defines it, in plain C++. prelude.cu documents the
// layouts of fragments.
#include <vector>

#include "scheduler.h"
#include "shim.h"

namespace shim {
namespace {

// A thread's copies to shared memory arrive when it waits for them and not before; until then their target holds NaN. So a read
// that comes too early is noticed, and so is a target that is reused too early.
struct Copy {
    void *to;
    const void *from;
    int bytes;
    unsigned group;
};
struct Copies {
    std::vector<Copy> under_way; // in the order of their start
    size_t first = 0;            // index of the first that has not arrived
    unsigned groups = 0;         // committed groups
};
Copies copies[1024];

struct LdMatrix {
    unsigned *r;
    const void *row;
};
struct Mma {
    void *c;
    const unsigned *a, *b;
};
struct Shuffle {
    int value, mask, other;
};

template <int MATRICES, bool TRANS> void ldmatrix(void *const *operands) {
    uint16_t rows[8][8];
    for (int m = 0; m < MATRICES; ++m) {
        for (int i = 0; i < 8; ++i) memcpy(rows[i], static_cast<const LdMatrix *>(operands[8 * m + i])->row, 16);
        for (int lane = 0; lane < 32; ++lane) {
            const int g = lane / 4, t = 2 * (lane % 4);
            const unsigned low = TRANS ? rows[t][g] : rows[g][t], high = TRANS ? rows[t + 1][g] : rows[g][t + 1];
            static_cast<LdMatrix *>(operands[lane])->r[m] = high << 16 | low;
        }
    }
}

// Multiplies one tile, given all of a and b: c[row][column] += sum over k. The 8 columns of a row are computed as two vectors.
template <int K, class T> void product(void *const *operands, const T (&a)[16][K], const T (&b)[K][8]) {
    typedef T Four __attribute__((vector_size(16)));
    Four left[K], right[K];
    for (int k = 0; k < K; ++k) {
        memcpy(&left[k], &b[k][0], 16);
        memcpy(&right[k], &b[k][4], 16);
    }
    for (int row = 0; row < 16; ++row) {
        Four low = {}, high = {};
        for (int k = 0; k < K; ++k) {
            const Four by = {a[row][k], a[row][k], a[row][k], a[row][k]};
            low += by * left[k];
            high += by * right[k];
        }
        T sum[8];
        memcpy(sum, &low, 16);
        memcpy(sum + 4, &high, 16);
        for (int t = 0; t < 4; ++t) {
            T *c = static_cast<T *>(static_cast<const Mma *>(operands[4 * (row % 8) + t])->c) + row / 8 * 2;
            c[0] += sum[2 * t];
            c[1] += sum[2 * t + 1];
        }
    }
}

void mma_f16_all(void *const *operands) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const Mma &mine = *static_cast<const Mma *>(operands[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 2; ++j) a[g + i % 2 * 8][2 * t + j + i / 2 * 8] = from_half((unsigned short)(mine.a[i] >> 16 * j));
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j) b[2 * t + j + i * 8][g] = from_half((unsigned short)(mine.b[i] >> 16 * j));
    }
    product<16>(operands, a, b);
}

void mma_tf32_all(void *const *operands) {
    float a[16][8], b[8][8];
    for (int lane = 0; lane < 32; ++lane) {
        const Mma &mine = *static_cast<const Mma *>(operands[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; ++i) a[g + i % 2 * 8][t + i / 2 * 4] = bits<float>(mine.a[i] & 0xffffe000u);
        for (int i = 0; i < 2; ++i) b[t + i * 4][g] = bits<float>(mine.b[i] & 0xffffe000u);
    }
    product<8>(operands, a, b);
}

void mma_s8_all(void *const *operands) {
    int a[16][32], b[32][8];
    for (int lane = 0; lane < 32; ++lane) {
        const Mma &mine = *static_cast<const Mma *>(operands[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j) a[g + i % 2 * 8][4 * t + j + i / 2 * 16] = (signed char)(mine.a[i] >> 8 * j);
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 4; ++j) b[4 * t + j + i * 16][g] = (signed char)(mine.b[i] >> 8 * j);
    }
    product<32>(operands, a, b);
}

void shuffle_all(void *const *operands) {
    for (int lane = 0; lane < 32; ++lane) {
        Shuffle &mine = *static_cast<Shuffle *>(operands[lane]);
        mine.other = static_cast<const Shuffle *>(operands[lane ^ (mine.mask & 31)])->value;
    }
}

void load_matrix(Meeting meeting, unsigned *r, const void *row, bool addressed, const char *what, void (*all)(void *const *)) {
    if (addressed) check_shared(row, 16, 16, what);
    LdMatrix mine{r, row};
    meet(meeting, &mine, all);
}

} // namespace

void reset_copies(unsigned threads) {
    for (unsigned t = 0; t < threads; ++t) {
        copies[t].under_way.clear();
        copies[t].first = 0;
        copies[t].groups = 0;
    }
}

void cp_async_wait(int newest) {
    Copies &mine = copies[current_thread()];
    while (mine.first < mine.under_way.size()) {
        const Copy &copy = mine.under_way[mine.first];
        if (copy.group + (unsigned)newest >= mine.groups) break; // not committed, or in one of the `newest` groups
        memset(copy.to, 0, 16);
        if (copy.bytes > 0) memcpy(copy.to, copy.from, (size_t)copy.bytes);
        ++mine.first;
    }
    if (mine.first == mine.under_way.size()) {
        mine.under_way.clear();
        mine.first = 0;
    }
}

void load_16(void *to, const void *global) {
    check_aligned(global, 16, "load_16");
    memcpy(to, global, 16);
}

int shuffle(int value, int mask, bool is_float) {
    Shuffle mine{value, mask, 0};
    meet(is_float ? Meeting::SHUFFLE : Meeting::SHUFFLE_INT, &mine, shuffle_all);
    return mine.other;
}

} // namespace shim

using namespace shim;

void cp_async_16(void *shared, const void *global, int bytes) {
    check_shared(shared, 16, 16, "cp_async_16 to shared memory");
    check_aligned(global, 16, "cp_async_16 from global memory");
    if (bytes < 0 || bytes > 16) fail(LAUNCH_FAILED, "cp_async_16 of %d bytes", bytes);
    memset(shared, 0xff, 16);
    Copies &mine = copies[current_thread()];
    mine.under_way.push_back({shared, global, bytes, mine.groups});
}
void cp_async_commit() { ++copies[current_thread()].groups; }

void ldmatrix_x4(unsigned (&r)[4], const void *row) {
    load_matrix(Meeting::LDMATRIX_X4, r, row, true, "ldmatrix_x4", ldmatrix<4, false>);
}
void ldmatrix_x4_trans(unsigned (&r)[4], const void *row) {
    load_matrix(Meeting::LDMATRIX_X4_TRANS, r, row, true, "ldmatrix_x4_trans", ldmatrix<4, true>);
}
void ldmatrix_x2(unsigned (&r)[2], const void *row) {
    load_matrix(Meeting::LDMATRIX_X2, r, row, current_thread() % 32 < 16, "ldmatrix_x2", ldmatrix<2, false>);
}

void mma_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    Mma mine{c, a, b};
    meet(Meeting::MMA_F16, &mine, mma_f16_all);
}
void mma_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    Mma mine{c, a, b};
    meet(Meeting::MMA_TF32, &mine, mma_tf32_all);
}
void mma_s8(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    Mma mine{c, a, b};
    meet(Meeting::MMA_S8, &mine, mma_s8_all);
}

unsigned to_tf32(float v) {
    const unsigned x = bits<unsigned>(v);
    if ((x & 0x7fffffffu) > 0x7f800000u) return 0x7fffffffu;
    return (x + 0x1000u) & 0xffffe000u;
}

float fast_exp2(float v) {
    if (v < -126.0f) return 0.0f;
    return exp2f(v);
}

// Blocks run one after the other, so plain reads and writes are enough between them. A different host thread polls the flag, so this
// store is a real release.
void store_release_system(unsigned *p, unsigned v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
unsigned add_acq_rel(unsigned *p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
