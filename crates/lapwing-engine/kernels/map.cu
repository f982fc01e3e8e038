// Elementwise programs: each step computes one value from earlier values (enum Opcode).
//
// Bound by the decoding of steps rather than by memory, which is why frequent long programs have kernels of their own;
// this one runs the masks, gates and scales in between. The values of an element are in slots of shared memory, because
// registers cannot be indexed at run time; neighbouring threads have neighbouring words, so that there are no bank
// conflicts. All threads run the same program, which is read through the first-level cache.

namespace maps {

DEVICE float truth(bool holds) { return holds ? 1.0f : 0.0f; }

/// Finite above 88.7 too; NaN propagates.
DEVICE float power_of_e(float x) { return expf(x > 88.72283f ? 88.72283f : x); }

/// The exponents that exporters write for squares and roots are exact; all others are rare.
DEVICE float to_the_power(float x, float power) {
    if (power == 2.0f) return x * x;
    if (power == 3.0f) return x * x * x;
    if (power == 0.5f) return sqrtf(x);
    if (power == -0.5f) return 1.0f / sqrtf(x);
    if (power == -1.0f) return 1.0f / x;
    return powf(x, power);
}

/// One step over values; `bits` is its word b.
DEVICE float apply(int opcode, float a, float b, float c, int bits) {
    switch (opcode) {
    case OP_ABS: return fabsf(a);
    case OP_CEIL: return ceilf(a);
    case OP_ERF: return erff(a);
    case OP_EXP: return power_of_e(a);
    case OP_FLOOR: return floorf(a);
    case OP_LOG: return logf(a);
    case OP_NEG: return -a;
    case OP_POW: return to_the_power(a, __int_as_float(bits));
    case OP_RECIP: return 1.0f / a;
    case OP_RELU: return a < 0.0f ? 0.0f : a;
    case OP_ROUND: return rintf(a);
    case OP_RSQRT: return 1.0f / sqrtf(a);
    case OP_SQRT: return sqrtf(a);
    case OP_SQUARE: return a * a;
    case OP_SIGMOID: return activate(ACT_SIGMOID, a);
    case OP_TANH: return activate(ACT_TANH, a);
    case OP_GELU: return activate(ACT_GELU, a);
    case OP_GELU_TANH: return activate(ACT_GELU_TANH, a);
    case OP_SILU: return activate(ACT_SILU, a);
    case OP_NOT: return truth(a == 0.0f);
    case OP_ADD: return a + b;
    case OP_SUB: return a - b;
    case OP_MUL: return a * b;
    case OP_DIV: return a / b;
    case OP_MIN: return a < b ? a : b;
    case OP_MAX: return a > b ? a : b;
    case OP_EQUAL: return truth(a == b);
    case OP_LESS: return truth(a < b);
    case OP_LESS_OR_EQUAL: return truth(a <= b);
    case OP_GREATER: return truth(a > b);
    case OP_GREATER_OR_EQUAL: return truth(a >= b);
    default: return a != 0.0f ? b : c; // OP_WHERE; NaN counts as true
    }
}

/// One step for one element, except folds. `slots` is the element's word of slot 0; `apart` is the distance between
/// slots.
DEVICE void step(const MapArgs &args, const int *code, float *slots, int apart, int row, int column) {
    const int opcode = code[0], a = code[2];
    float v;
    if (opcode == OP_SCALAR) {
        v = __int_as_float(a);
    } else if (opcode == OP_ARG || opcode == OP_WEIGHT) {
        const MapArg &from = opcode == OP_ARG ? args.args[a] : args.weights[a];
        const int of = from.by_batch ? sequence_of(args.header, row) : row; // weights have stride 0
        v = load(from.mat, of, from.wide ? column : 0);
    } else {
        const float second = opcode >= OP_ADD ? slots[code[3] * apart] : 0.0f, third = opcode == OP_WHERE ? slots[code[4] * apart] : 0.0f;
        v = apply(opcode, slots[a * apart], second, third, code[3]);
    }
    slots[code[1] * apart] = v;
}

/// Folds a slot over a row, for every thread. `scratch` is the slot of the result, which may be the same.
DEVICE float fold(int how, const float *slot, int width, float *scratch) {
    if (how == FOLD_FIRST) {
        __syncthreads();
        const float first = slot[0];
        __syncthreads();
        return first;
    }
    const float sign = how == FOLD_MIN ? -1.0f : 1.0f;
    const bool most = how == FOLD_MAX || how == FOLD_MIN;
    float v = most ? __int_as_float((int)0xff800000u) : 0.0f;
    for (int column = threadIdx.x; column < width; column += blockDim.x) v = most ? fmaxf(v, slot[column] * sign) : v + slot[column];
    // the barrier inside comes before scratch is written
    v = most ? block_max(v, scratch) * sign : block_sum(v, scratch);
    return how == FOLD_MEAN ? v / (float)width : v;
}

} // namespace maps

// One thread per element, in a grid-stride loop; no folds; less than 2^32 elements. Shared: slots · 256 floats.
KERNEL(map_flat, MapArgs, 256) {
    SHARED(float, slots);
    const unsigned count = (unsigned)rows_of(args.rows) * (unsigned)args.width, all = gridDim.x * blockDim.x;
    float *const own = slots + threadIdx.x;
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += all) {
        const int row = (int)(at / (unsigned)args.width), column = (int)(at % (unsigned)args.width);
#pragma unroll 1
        for (int i = 0; i < args.steps; ++i) maps::step(args, args.code + 5 * i, own, 256, row, column);
        store(args.y, row, column, own[args.result * 256]);
        if (count - at <= all) break; // at + all might not fit
    }
    finish(args.tail);
}

// One block per row. Shared: slots · (width rounded up to 32) floats.
KERNEL(map_rows, MapArgs, 256) {
    SHARED(float, slots);
    const int row = blockIdx.x, width = args.width, apart = (width + 31) / 32 * 32;
    if (row < rows_of(args.rows)) {
#pragma unroll 1
        for (int i = 0; i < args.steps; ++i) {
            const int *const code = args.code + 5 * i;
            if (code[0] == OP_FOLD) {
                float *const to = slots + code[1] * apart;
                const float v = maps::fold(code[3], slots + code[2] * apart, width, to);
                for (int column = threadIdx.x; column < width; column += 256) to[column] = v;
            } else {
                // each thread has its own columns in all slots: only a fold reads those of others
                for (int column = threadIdx.x; column < width; column += 256) maps::step(args, code, slots + column, apart, row, column);
            }
        }
        for (int column = threadIdx.x; column < width; column += 256) store(args.y, row, column, slots[args.result * apart + column]);
    }
    finish(args.tail);
}
