// A kernel for each primitive of prelude.cu and for its helpers, used only by tests/gpu/check/primitives.cpp, which
// compares a GPU's primitives with the host's twins and both with plain formulas. `data` is the input, `out` the
// output.

static_assert(int(PRELUDE_F32) == F32 && int(PRELUDE_F16) == F16 && int(PRELUDE_I64) == I64 && int(PRELUDE_I32) == I32, "prelude.cu's kinds");
static_assert(int(PRELUDE_BATCH) == HEADER_BATCH && int(PRELUDE_OFFSETS) == HEADER_OFFSETS && int(PRELUDE_CAPACITY) == HEADER_CAPACITY &&
                  int(PRELUDE_TILE) == ATTENTION_TILE, "prelude.cu's header");
static_assert(ACT_RELU == 1 && ACT_GELU == 2 && ACT_GELU_TANH == 3 && ACT_SIGMOID == 4 && ACT_TANH == 5 && ACT_SILU == 6,
              "prelude.cu's activations");

/// 1-3: three groups of copies; thread t copies (t + group) % 17 bytes of each piece of 16. Each group is read after its own wait.
KERNEL(primitive_cp_async, PeakArgs, 128) {
    SHARED(Vec4, pieces);
    const Vec4 *in = static_cast<const Vec4 *>(args.data);
    Vec4 *out = static_cast<Vec4 *>(args.out);
    const int t = threadIdx.x;
    for (int group = 0; group < 3; ++group) {
        cp_async_16(pieces + group * 128 + t, in + group * 128 + t, (t + group) % 17);
        cp_async_commit();
    }
    cp_async_wait<2>();
    __syncthreads();
    out[t] = pieces[(t + 1) % 128];
    cp_async_wait<1>();
    __syncthreads();
    out[128 + t] = pieces[128 + (t + 1) % 128];
    cp_async_wait<0>();
    __syncthreads();
    out[256 + t] = pieces[256 + (t + 1) % 128];
}

/// 4-6: 32 rows of 8 halves; lane i passes the address of row 5 i % 32. Output of each lane: x4, transposed x4, x2.
KERNEL(primitive_ldmatrix, PeakArgs, 32) {
    SHARED(Vec4, rows);
    const int lane = threadIdx.x;
    rows[lane] = static_cast<const Vec4 *>(args.data)[lane];
    __syncthreads();
    unsigned x4[4], trans[4], x2[2];
    ldmatrix_x4(x4, rows + lane * 5 % 32);
    ldmatrix_x4_trans(trans, rows + lane * 5 % 32);
    ldmatrix_x2(x2, rows + lane * 5 % 32);
    unsigned *out = static_cast<unsigned *>(args.out) + lane * 10;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        out[i] = x4[i];
        out[4 + i] = trans[i];
    }
    out[8] = x2[0];
    out[9] = x2[1];
}

/// 7-9: the input is each lane's registers a[4], b[2], c[4], with one tile for each block. Output: c.
DEVICE void take_fragments(const PeakArgs &args, unsigned (&a)[4], unsigned (&b)[2], unsigned (&c)[4]) {
    const unsigned *in = static_cast<const unsigned *>(args.data) + (blockIdx.x * 32 + threadIdx.x) * 10;
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = in[i];
    b[0] = in[4];
    b[1] = in[5];
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] = in[6 + i];
}
KERNEL(primitive_mma_f16, PeakArgs, 32) {
    unsigned a[4], b[2], c[4];
    take_fragments(args, a, b, c);
    float sum[4] = {__uint_as_float(c[0]), __uint_as_float(c[1]), __uint_as_float(c[2]), __uint_as_float(c[3])};
    mma_f16(sum, a, b);
#pragma unroll
    for (int i = 0; i < 4; ++i) static_cast<float *>(args.out)[(blockIdx.x * 32 + threadIdx.x) * 4 + i] = sum[i];
}
KERNEL(primitive_mma_tf32, PeakArgs, 32) {
    unsigned a[4], b[2], c[4];
    take_fragments(args, a, b, c);
    float sum[4] = {__uint_as_float(c[0]), __uint_as_float(c[1]), __uint_as_float(c[2]), __uint_as_float(c[3])};
    mma_tf32(sum, a, b);
#pragma unroll
    for (int i = 0; i < 4; ++i) static_cast<float *>(args.out)[(blockIdx.x * 32 + threadIdx.x) * 4 + i] = sum[i];
}
KERNEL(primitive_mma_s8, PeakArgs, 32) {
    unsigned a[4], b[2], c[4];
    take_fragments(args, a, b, c);
    int sum[4] = {(int)c[0], (int)c[1], (int)c[2], (int)c[3]};
    mma_s8(sum, a, b);
#pragma unroll
    for (int i = 0; i < 4; ++i) static_cast<int *>(args.out)[(blockIdx.x * 32 + threadIdx.x) * 4 + i] = sum[i];
}

/// 10-13, 15: for each of `count` numbers v: to_half, from_half of v's low 16 bits, tf32, the pair of halves {v, -2 v}, 2^v.
KERNEL(primitive_convert, PeakArgs, 128) {
    const long long i = (long long)blockIdx.x * 128 + threadIdx.x;
    if (i >= args.count) return;
    const float v = static_cast<const float *>(args.data)[i];
    unsigned *out = static_cast<unsigned *>(args.out) + i * 5;
    out[0] = to_half(v);
    out[1] = __float_as_uint(from_half((unsigned short)(__float_as_uint(v) & 0xffffu)));
    out[2] = to_tf32(v);
    out[3] = pack_halves(v, -2.0f * v);
    out[4] = __float_as_uint(fast_exp2(v));
}

/// 14: pieces of 16 bytes, written in reverse order.
KERNEL(primitive_load_16, PeakArgs, 128) {
    static_cast<Vec4 *>(args.out)[127 - threadIdx.x] = load_16(static_cast<const Vec4 *>(args.data) + threadIdx.x);
}

/// 16, 17: each block writes 100 + its number to its own word and then increments the counter. The last block to do so copies all
/// words as it sees them, and then writes the flag. Output: the flag, the counter, a word of each block, their copies.
KERNEL(primitive_release, PeakArgs, 32) {
    unsigned *out = static_cast<unsigned *>(args.out);
    const unsigned blocks = gridDim.x * gridDim.y;
    if (threadIdx.x != 0) return;
    const unsigned place = blockIdx.y * gridDim.x + blockIdx.x;
    out[2 + place] = place + 100;
    if (add_acq_rel(out + 1, 1u) == blocks - 1) {
        for (unsigned i = 0; i < blocks; ++i) out[2 + blocks + i] = static_cast<volatile unsigned *>(out)[2 + i];
        store_release_system(out, 7u);
    }
}

/// 18, 19: shuffles a float and an int of each lane, with each mask.
KERNEL(primitive_shuffle, PeakArgs, 32) {
    const int *in = static_cast<const int *>(args.data);
    int *out = static_cast<int *>(args.out);
    for (int mask = 0; mask < 32; ++mask) {
        out[mask * 64 + threadIdx.x] = __float_as_int(shuffle_xor(__int_as_float(in[threadIdx.x]), mask));
        out[mask * 64 + 32 + threadIdx.x] = shuffle_xor_int(in[threadIdx.x], mask);
    }
}

/// Sums and maxima of one number per thread. Output of each thread: {warp_sum, warp_max, block_sum, block_max}.
KERNEL(primitive_reduce, PeakArgs, 256) {
    SHARED(float, scratch);
    const float v = static_cast<const float *>(args.data)[threadIdx.x];
    float *out = static_cast<float *>(args.out) + threadIdx.x * 4;
    out[0] = warp_sum(v);
    out[1] = warp_max(v);
    out[2] = block_sum(v, scratch);
    out[3] = block_max(v, scratch);
}

/// All activations of `count` numbers: out[7 i + activation].
KERNEL(primitive_activate, PeakArgs, 128) {
    const long long i = (long long)blockIdx.x * 128 + threadIdx.x;
    if (i >= args.count) return;
    for (int activation = ACT_NONE; activation <= ACT_SILU; ++activation)
        static_cast<float *>(args.out)[i * 7 + activation] = activate(activation, static_cast<const float *>(args.data)[i]);
}

/// load, store, rows_of and finish: y = 2 x, with any element types.
KERNEL(primitive_elements, CopyArgs, 128) {
    const int row = blockIdx.y, column = blockIdx.x * 128 + threadIdx.x;
    if (row < rows_of(args.rows) && column < args.width) store(args.y, row, column, 2.0f * load(args.x, row, column));
    finish(args.tail);
}

/// sequence_of: `data` is a header, out[token] the token's sequence.
KERNEL(primitive_sequence, PeakArgs, 128) {
    const int *header = static_cast<const int *>(args.data);
    const int token = blockIdx.x * 128 + threadIdx.x;
    if (token < header[HEADER_TOKENS]) static_cast<int *>(args.out)[token] = sequence_of(header, token);
}
