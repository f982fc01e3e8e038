// Attention on tensor cores: attention_f16_32, attention_f16_64, attention_f16_128.
//
// A block handles 64 queries of one head of one sequence, 16 for each of its four warps, and traverses the keys with a running
// maximum, like FlashAttention-2: scores and their exponentials stay in registers, where the accumulators of the first product
// are the left fragments of the second. Tiles of 64 keys and values are copied by cp.async, up to two ahead, with one barrier
// for each tile. Scores are computed 32 keys at a time, to need few registers. On short sequences (MiniLM: 128 tokens, heads of
// 32) it is bound by the reads of q, k, v from L2 and by the exponentials, about 2 us each on an H200, and by the latency of a
// few dependent reads. Therefore all of its 768 blocks should be resident at once: six on each of 132 multiprocessors, with 25 KB
// and, on sm_90, 80 registers each. One more register that lives across the loop would leave room for only five. Hence
// attention_f16_32 takes no biases by distance; the others take heads of any size with them.
//
// `head` and `head_out` are multiples of 8, at most the number in the name; missing columns are filled with zeros. q, k, v are
// f16, their first columns multiples of 8; y is f16 or f32. 128 threads; grid: (most tiles, heads). Shared memory, bytes:
// stages · (2 · 64 · number · 2 + 64 · 4), so 25344 (three stages), 49920 (three), 66048 (two); with biases by distance 1536 more.

/// The location of 8 halves within a tile. The 16-byte pieces of a row are permuted (swizzled) by the row's number, so
/// that the same piece of eight rows, which ldmatrix reads at once, lies in different banks.
template <int HEAD> DEVICE int piece_at(int row, int piece) {
    return row * HEAD + ((piece ^ (HEAD == 32 ? row >> 1 & 3 : row & 7)) << 3);
}

struct alignas(8) Pair {
    float x, y;
};

template <int HEAD, int STAGES> DEVICE void attend(const AttentionArgs &args, unsigned char *shared) {
    enum { PIECES = HEAD / 8, STEPS = HEAD / 16, TILE = 64 * HEAD, KEYS = 64, SPAN = 32, SPREAD = 128, HAS_DISTANCES = HEAD > 32 };
    const float log2e = 1.4426950408889634f, lowest = -3.402823466e38f;
    if ((int)blockIdx.x >= args.header[HEADER_TILES]) return;
    const Place place = place_of(args.header, blockIdx.x);
    const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, head = blockIdx.y;
    unsigned short *const stages = reinterpret_cast<unsigned short *>(shared); // each has keys, then values
    float *const biases = reinterpret_cast<float *>(stages + STAGES * 2 * TILE);
    float *const distances = biases + STAGES * KEYS; // for each stage biases of the 127 distances from its queries to its keys

    // A thread loads the same piece of several rows of each tile, 128 / PIECES rows apart, which have the same swizzle.
    const int piece = thread % PIECES, row = thread / PIECES, to = piece_at<HEAD>(row, piece);
    const bool k_there = piece * 8 < args.head, v_there = piece * 8 < args.head_out;
    const int key_head = head / args.group;
    const int k_column = key_head * args.head + (k_there ? piece * 8 : 0), v_column = key_head * args.head_out + (v_there ? piece * 8 : 0);
    const unsigned short *const k = static_cast<const unsigned short *>(args.k.data) + (long long)place.begin * args.k.stride + args.k_from + k_column;
    const unsigned short *const v = static_cast<const unsigned short *>(args.v.data) + (long long)place.begin * args.v.stride + args.v_from + v_column;
    auto fill = [&](int tile, int stage) {
        unsigned short *const keys = stages + (stage * 2 * TILE + to);
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const int key = tile * KEYS + row + i * (128 / PIECES);
            const bool there = key < place.length;
            const long long at = there ? key : 0;
            cp_async_16(keys + i * 1024, k + at * args.k.stride, there && k_there ? 16 : 0);
            cp_async_16(keys + i * 1024 + TILE, v + at * args.v.stride, there && v_there ? 16 : 0);
        }
    };
    // The biases of a tile's key and of a distance, loaded before the tile is requested and stored when there is time: using
    // them at once would wait for memory. Keys that do not exist get minus infinity, and nothing else masks them.
    auto bias_of = [&](int tile) {
        const int key = tile * KEYS + thread;
        const bool there = thread < KEYS && key < place.length;
        Pair bias = {there ? 0.0f : from_half(0xfc00), 0.0f};
        if (there && args.bias.data != nullptr)
            bias.x = finite_bias(static_cast<const float *>(args.bias.data)[(long long)(place.begin + key) * args.bias.stride]);
        if (HAS_DISTANCES && args.by_distance != nullptr) bias.y = distance_bias(args, head, key - place.first - (KEYS - 1));
        return bias;
    };
    // In base 2. A finite bias stays finite: if all biases of a row are the lowest number, none of its keys may be
    // skipped.
    auto keep = [&](Pair bias, int stage) {
        if (thread < KEYS) biases[stage * KEYS + thread] = bias.x < lowest ? bias.x : fmaxf(bias.x * log2e, lowest);
        if (HAS_DISTANCES && args.by_distance != nullptr) distances[stage * SPREAD + thread] = bias.y * log2e;
    };

    // The queries use the stage that is filled last, until they are in registers.
    unsigned short *const queries = stages + (STAGES - 1) * 2 * TILE;
    const int q_column = args.q_from + head * args.head + (k_there ? piece * 8 : 0);
    const unsigned short *const from = static_cast<const unsigned short *>(args.q.data) + (long long)place.begin * args.q.stride + q_column;
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int at = place.first + row + i * (128 / PIECES);
        const bool there = at < place.length;
        cp_async_16(queries + to + i * 1024, from + (there ? at : 0ll) * args.q.stride, there && k_there ? 16 : 0);
    }
    const int tiles = (place.length + KEYS - 1) / KEYS;
    Pair bias_ahead[STAGES - 1];
#pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) bias_ahead[tile] = bias_of(tile);
#pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        if (tile < tiles) fill(tile, tile);
        cp_async_commit();
    }
#pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) keep(bias_ahead[tile], tile);
    cp_async_wait<STAGES - 2>();
    __syncthreads();

    // Fragments: a lane has rows `lane / 4` and 8 below it, columns from `lane % 4 * 2` on; for ldmatrix it addresses
    // row lane % 16 of 16 x 16 elements, their left or their right half.
    unsigned q[STEPS][4];
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
        ldmatrix_x4(q[step], queries + warp * 16 * HEAD + piece_at<HEAD>(lane & 15, step * 2 + (lane >> 4)));
    const int query = place.first + warp * 16 + (lane >> 2), column = (lane & 3) * 2;
    const float scale = args.scale * log2e;
    float out[PIECES][4], most_a = lowest, most_b = lowest, sum_a = 0, sum_b = 0;
#pragma unroll
    for (int i = 0; i < PIECES; ++i) out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;

    int stage = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        cp_async_wait<STAGES - 2>();
        __syncthreads(); // this tile has arrived, and all threads have read the previous one
        if (tile + STAGES - 1 < tiles) {
            const int next = stage == 0 ? STAGES - 1 : stage - 1;
            const Pair bias = bias_of(tile + STAGES - 1);
            fill(tile + STAGES - 1, next);
            keep(bias, next);
        }
        cp_async_commit();

#pragma unroll 1
        for (int span = 0; span < KEYS; span += SPAN) {
            const unsigned short *const keys = stages + (stage * 2 * TILE + span * HEAD), *const values = keys + TILE;
            const float *const bias = biases + (stage * KEYS + span + column);
            float score[SPAN / 8][4];
#pragma unroll
            for (int i = 0; i < SPAN / 8; ++i) score[i][0] = score[i][1] = score[i][2] = score[i][3] = 0;
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                const unsigned short *const at = keys + piece_at<HEAD>(lane & 15, step * 2 + (lane >> 4));
#pragma unroll
                for (int pair = 0; pair < SPAN / 16; ++pair) {
                    unsigned b[4];
                    ldmatrix_x4(b, at + pair * 16 * HEAD);
                    mma_f16(score[pair * 2], q[step], {b[0], b[2]});
                    mma_f16(score[pair * 2 + 1], q[step], {b[1], b[3]});
                }
            }

#pragma unroll
            for (int i = 0; i < SPAN / 8; ++i) {
                const Pair add = *reinterpret_cast<const Pair *>(bias + i * 8);
                score[i][0] = score[i][0] * scale + add.x;
                score[i][1] = score[i][1] * scale + add.y;
                score[i][2] = score[i][2] * scale + add.x;
                score[i][3] = score[i][3] * scale + add.y;
            }
            if (HAS_DISTANCES && args.by_distance != nullptr) {
                const float *const of_score = distances + (stage * SPREAD + span + column + KEYS - 1 - (query & (KEYS - 1)));
#pragma unroll
                for (int i = 0; i < SPAN / 8; ++i)
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        score[i][j] = with_distance(score[i][j], of_score[i * 8 + (j & 1) - (j >> 1) * 8]);
            }
            float top_a = most_a, top_b = most_b;
#pragma unroll
            for (int i = 0; i < SPAN / 8; ++i) {
                top_a = fmaxf(top_a, fmaxf(score[i][0], score[i][1]));
                top_b = fmaxf(top_b, fmaxf(score[i][2], score[i][3]));
            }
#pragma unroll
            for (int mask = 1; mask <= 2; mask *= 2) {
                top_a = fmaxf(top_a, shuffle_xor(top_a, mask));
                top_b = fmaxf(top_b, shuffle_xor(top_b, mask));
            }
            const float less_a = fast_exp2(most_a - top_a), less_b = fast_exp2(most_b - top_b);
            most_a = top_a;
            most_b = top_b;
            sum_a *= less_a;
            sum_b *= less_b;
#pragma unroll
            for (int i = 0; i < PIECES; ++i) {
                out[i][0] *= less_a;
                out[i][1] *= less_a;
                out[i][2] *= less_b;
                out[i][3] *= less_b;
            }

#pragma unroll
            for (int step = 0; step < SPAN / 16; ++step) {
                unsigned weight[4];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float(&s)[4] = score[step * 2 + half];
                    s[0] = fast_exp2(s[0] - top_a);
                    s[1] = fast_exp2(s[1] - top_a);
                    s[2] = fast_exp2(s[2] - top_b);
                    s[3] = fast_exp2(s[3] - top_b);
                    sum_a += s[0] + s[1];
                    sum_b += s[2] + s[3];
                    weight[half * 2] = pack_halves(s[0], s[1]);
                    weight[half * 2 + 1] = pack_halves(s[2], s[3]);
                }
#pragma unroll
                for (int pair = 0; pair < STEPS; ++pair) {
                    unsigned b[4];
                    ldmatrix_x4_trans(b, values + piece_at<HEAD>(lane & 15, pair * 2 + (lane >> 4)) + step * 16 * HEAD);
                    mma_f16(out[pair * 2], weight, {b[0], b[1]});
                    mma_f16(out[pair * 2 + 1], weight, {b[2], b[3]});
                }
            }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }

#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
        sum_a += shuffle_xor(sum_a, mask);
        sum_b += shuffle_xor(sum_b, mask);
    }
    const float by_a = args.zeros && most_a <= lowest ? 0.0f : 1.0f / sum_a, by_b = args.zeros && most_b <= lowest ? 0.0f : 1.0f / sum_b;
    const long long y_row = place.begin + query;
    if (args.y.kind == F32) {
        float *const y = static_cast<float *>(args.y.data) + y_row * args.y.stride + head * args.head_out + column;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            if (i * 8 >= args.head_out) continue;
            if (query < place.length) *reinterpret_cast<Pair *>(y + i * 8) = {out[i][0] * by_a, out[i][1] * by_a};
            if (query + 8 < place.length) *reinterpret_cast<Pair *>(y + 8ll * args.y.stride + i * 8) = {out[i][2] * by_b, out[i][3] * by_b};
        }
        return;
    }
    // Halves are written through shared memory, each warp using its own rows of a stage that is no longer read, so that
    // writes are 16 bytes.
    unsigned short *const rows = stages + (stage * 2 * TILE + warp * 16 * HEAD);
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        const int local = lane >> 2;
        *reinterpret_cast<unsigned *>(rows + piece_at<HEAD>(local, i) + column) = pack_halves(out[i][0] * by_a, out[i][1] * by_a);
        *reinterpret_cast<unsigned *>(rows + piece_at<HEAD>(local + 8, i) + column) = pack_halves(out[i][2] * by_b, out[i][3] * by_b);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int local = (i * 32 + lane) / PIECES, part = (i * 32 + lane) % PIECES, at = place.first + warp * 16 + local;
        if (at >= place.length || part * 8 >= args.head_out) continue;
        unsigned short *const y = static_cast<unsigned short *>(args.y.data) + (long long)(place.begin + at) * args.y.stride;
        *reinterpret_cast<Vec4 *>(y + head * args.head_out + part * 8) = *reinterpret_cast<const Vec4 *>(rows + piece_at<HEAD>(local, part));
    }
}

KERNEL(attention_f16_32, AttentionArgs, 128) {
    SHARED(unsigned char, shared);
    attend<32, 3>(args, shared);
    finish(args.tail);
}

KERNEL(attention_f16_64, AttentionArgs, 128) {
    SHARED(unsigned char, shared);
    attend<64, 3>(args, shared);
    finish(args.tail);
}

KERNEL(attention_f16_128, AttentionArgs, BLOCKS(128, 2)) {
    SHARED(unsigned char, shared);
    attend<128, 2>(args, shared);
    finish(args.tail);
}
