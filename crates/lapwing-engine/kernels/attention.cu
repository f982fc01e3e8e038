// Attention in FFMA: attention_f32, for any head sizes from 1 to 256 and any first columns; f32 or f16 in and out.
//
// A block handles 64 queries of one head of one sequence and traverses its keys 64 at a time, with a running maximum and sum.
// Shared memory holds 32 columns of q and k at a time, and then 32 columns of v in place of k. A thread holds 4 x 4 scores, and
// 4 x 2 sums for 32 columns of values. The output so far is in shared memory, where each number belongs to one thread. Bound
// by FFMA and, about equally, by the reads from shared memory for it (8 wavefronts for 32 FFMA of a warp).
//
// Exponentials have base e, and operations have the order of ONNX, so that a row whose keys all have a bias of -1e9 has the same
// result. Biases by distance are read through the first-level cache: a warp's 32 have 17 neighbouring places. 256 threads; grid: (most tiles, heads); shared memory, bytes: 35840 + 256 · (head_out rounded up to 32), at most 101376.
// The second term is needed only for sequences of more than 64 tokens.

enum {
    KEYS = 64,         // of a tile
    COLUMNS = 32,      // in shared memory at a time
    PART_STRIDE = 36,  // of q and k in shared memory: four rows that are read at once lie in different banks
    WEIGHT_STRIDE = 68,
    THREADS = 256
};

struct alignas(16) Quad {
    float x, y, z, w;
};
struct alignas(8) Pair {
    float x, y;
};

/// Copies 64 rows from `row` on, 32 columns from `column` on, into shared memory. Only `rows` and `columns` of them exist;
/// the others become 0. Four elements are loaded before the first is stored, and a missing one is loaded from the first
/// existing place and discarded. So a thread waits for memory twice instead of eight times.
DEVICE void fetch(float *to, int stride, const Mat &m, int row, int rows, int column, int columns) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5; // rows warp + 8 i
    const bool is_half = m.kind == F16, there = lane < columns;
    const long long from = (long long)row * m.stride + column + (there ? lane : 0);
#pragma unroll 1
    for (int first = warp; first < KEYS; first += KEYS / 2) {
        int place[4];
        unsigned got[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) place[i] = first + i * 8 < rows ? (first + i * 8) * m.stride : 0;
        if (is_half) {
            const unsigned short *const data = static_cast<const unsigned short *>(m.data) + from;
#pragma unroll
            for (int i = 0; i < 4; ++i) got[i] = data[place[i]];
#pragma unroll
            for (int i = 0; i < 4; ++i) got[i] = __float_as_uint(from_half((unsigned short)got[i]));
        } else {
            const unsigned *const data = static_cast<const unsigned *>(m.data) + from;
#pragma unroll
            for (int i = 0; i < 4; ++i) got[i] = data[place[i]];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
            to[(first + i * 8) * stride + lane] = there && first + i * 8 < rows ? __uint_as_float(got[i]) : 0.0f;
    }
}

DEVICE Quad four(const float *at) { return *reinterpret_cast<const Quad *>(at); }

DEVICE void attend(const AttentionArgs &args, float *shared) {
    if ((int)blockIdx.x >= args.header[HEADER_TILES]) return;
    const Place place = place_of(args.header, blockIdx.x);
    const float lowest = -3.402823466e38f;
    const int thread = threadIdx.x, head = blockIdx.y, key_head = head / args.group;
    const int row = thread >> 4, column = thread & 15; // rows row + 16 i; keys column + 16 j; 16 lanes share rows
    float *const q = shared, *const k = q + 64 * PART_STRIDE, *const v = k; // [64][36], [64][36]; [64][32] in place of k
    float *const weights = k + 64 * PART_STRIDE, *const out = weights + 64 * WEIGHT_STRIDE; // [64][68], [64][round]
    float *const biases = k + COLUMNS;                                      // one for each key, in the padding behind k's rows
    const int out_stride = (args.head_out + 31) / 32 * 32;
    const int queries = place.length - place.first;

    float most[4], sum[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) most[i] = lowest, sum[i] = 0;
    for (int first = 0; first < place.length; first += KEYS) {
        const int keys = place.length - first; // may exceed those of the tile
        float score[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) score[i][0] = score[i][1] = score[i][2] = score[i][3] = 0;
        for (int from = 0; from < args.head; from += COLUMNS) {
            const int columns = args.head - from;
            __syncthreads(); // all threads have read the previous contents
            if (first == 0 || args.head > COLUMNS)
                fetch(q, PART_STRIDE, args.q, place.begin + place.first, queries, args.q_from + head * args.head + from, columns);
            fetch(k, PART_STRIDE, args.k, place.begin + first, keys, args.k_from + key_head * args.head + from, columns);
            if (from == 0 && thread < KEYS) {
                float bias = 0;
                if (thread >= keys) bias = from_half(0xfc00); // minus infinity: no such key
                else if (args.bias.data != nullptr)
                    bias = finite_bias(static_cast<const float *>(args.bias.data)[(long long)(place.begin + first + thread) * args.bias.stride]);
                biases[thread * PART_STRIDE] = bias;
            }
            __syncthreads();
            const int steps = columns < COLUMNS ? columns : COLUMNS;
#pragma unroll 1
            for (int c = 0; c < steps; c += 4) {
                Quad a[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) a[i] = four(q + (row + 16 * i) * PART_STRIDE + c);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const Quad b = four(k + (column + 16 * j) * PART_STRIDE + c);
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        score[i][j] += a[i].x * b.x;
                        score[i][j] += a[i].y * b.y;
                        score[i][j] += a[i].z * b.z;
                        score[i][j] += a[i].w * b.w;
                    }
                }
            }
        }

#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) score[i][j] = score[i][j] * args.scale + biases[(column + 16 * j) * PART_STRIDE];
        if (args.by_distance != nullptr) {
            const int distance = first + column - (place.first + row);
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) score[i][j] = with_distance(score[i][j], distance_bias(args, head, distance + 16 * (j - i)));
        }

        // The online softmax. 16 lanes of one warp hold a row's 64 scores.
        float less[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float top = most[i];
#pragma unroll
            for (int j = 0; j < 4; ++j) top = fmaxf(top, score[i][j]);
#pragma unroll
            for (int mask = 1; mask <= 8; mask *= 2) top = fmaxf(top, shuffle_xor(top, mask));
            less[i] = expf(most[i] - top);
            most[i] = top;
            float total = 0;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float weight = expf(score[i][j] - top);
                total += weight;
                weights[(row + 16 * i) * WEIGHT_STRIDE + column + 16 * j] = weight;
            }
#pragma unroll
            for (int mask = 1; mask <= 8; mask *= 2) total += shuffle_xor(total, mask);
            sum[i] = sum[i] * less[i] + total;
        }

        const bool is_last = keys <= KEYS;
        for (int from = 0; from < args.head_out; from += COLUMNS) {
            __syncthreads(); // all threads have their scores, or have read the previous columns
            fetch(v, COLUMNS, args.v, place.begin + first, keys, args.v_from + key_head * args.head_out + from, args.head_out - from);
            __syncthreads();
            float part[4][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) part[i][0] = part[i][1] = 0;
            const int there = keys < KEYS ? keys : KEYS; // behind these, weights and values are 0
#pragma unroll 1
            for (int key = 0; key < there; key += 4) {
                Quad a[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) a[i] = four(weights + (row + 16 * i) * WEIGHT_STRIDE + key);
                Pair b[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) b[j] = *reinterpret_cast<const Pair *>(v + (key + j) * COLUMNS + column * 2);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    part[i][0] += a[i].x * b[0].x;
                    part[i][1] += a[i].x * b[0].y;
                    part[i][0] += a[i].y * b[1].x;
                    part[i][1] += a[i].y * b[1].y;
                    part[i][0] += a[i].z * b[2].x;
                    part[i][1] += a[i].z * b[2].y;
                    part[i][0] += a[i].w * b[3].x;
                    part[i][1] += a[i].w * b[3].y;
                }
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                Pair *const so_far = reinterpret_cast<Pair *>(out + (row + 16 * i) * out_stride + from + column * 2);
                Pair now = {part[i][0], part[i][1]};
                if (first > 0) now = {so_far->x * less[i] + now.x, so_far->y * less[i] + now.y};
                if (!is_last) {
                    *so_far = now;
                } else if (row + 16 * i < queries) {
                    const int y_row = place.begin + place.first + row + 16 * i, at = from + column * 2;
                    if (args.zeros && most[i] <= lowest) now = {0.0f, 0.0f};
                    if (at < args.head_out) store(args.y, y_row, head * args.head_out + at, now.x / sum[i]);
                    if (at + 1 < args.head_out) store(args.y, y_row, head * args.head_out + at + 1, now.y / sum[i]);
                }
            }
        }
    }
}

// Three blocks per multiprocessor, hence 80 registers; without this bound the compiler aims for four blocks and spills.
KERNEL(attention_f32, AttentionArgs, BLOCKS(THREADS, 3)) {
    SHARED(float, shared);
    attend(args, shared);
    finish(args.tail);
}
