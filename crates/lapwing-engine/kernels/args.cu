// The parameters of kernels: one struct each, passed by value. Rust writes the same fields in the same order
// (gpu/lower), pointers and 4-byte numbers at their natural alignment; kernels read nothing else from outside.
//
// Matrices are row-major. A matrix's `stride` is the distance of its rows in elements: a multiple of 8 if it is wider
// than one, so that each row is aligned to 16 bytes; elements between width and stride are never used. Weights of
// products are [n][k], with k padded with zeros to the stride, a multiple of 32.

/// The type of a matrix's elements.
enum Kind { F32 = 0, F16 = 1, I64 = 2, I32 = 3, U8 = 4, S8 = 5 };

struct Mat {
    void *data;  // null: there is no matrix
    int stride;
    int kind;
};

/// The number of rows: `dims[which]` if `dims` is not null, else `fixed`. A grid is sized for the maximum; blocks
/// behind the last row exit at once. `dims` is the batch's header: see HEADER_*.
struct Rows {
    const int *dims;
    int which;
    int fixed;
};

/// The header of a batch, 32-bit words in device memory.
enum Header {
    HEADER_BATCH = 0,    // sequences
    HEADER_TOKENS = 1,   // tokens of all of them
    HEADER_TILES = 2,    // query tiles of attention: the sum of ceil(length / ATTENTION_TILE)
    HEADER_CAPACITY = 3, // the batch capacity c, for which the two lists have room
    HEADER_OFFSETS = 8,  // c + 1 words: where each sequence's tokens begin, then where the last one's end
    // from HEADER_OFFSETS + c + 1 on, c + 1 words: the same for query tiles
};
enum { ATTENTION_TILE = 64 };

/// How a request's last kernel notifies the host: the last of its blocks writes 1 to `flag` (host memory), after all
/// writes of the kernel are visible there. Null in all other kernels. `counter` is 0 before and after.
struct Tail {
    unsigned *flag;
    unsigned *counter;
};

/// plan::Activation, in its order.
enum Activation { ACT_NONE, ACT_RELU, ACT_GELU, ACT_GELU_TANH, ACT_SIGMOID, ACT_TANH, ACT_SILU };
/// plan::Fold, in its order.
enum Fold { FOLD_SUM, FOLD_MAX, FOLD_MIN, FOLD_FIRST, FOLD_MEAN };

/// y = activation(x · wᵀ · x_scale[row] · w_scale[column] + bias) + residual: gemv_*, gemm_*.
struct GemmArgs {
    Rows rows;
    Mat x;                // [rows][k]
    Mat w;                // [n][k]
    const float *bias;    // [n], or null
    const float *w_scale; // [n] if weights are 8-bit, else null
    const float *x_scale; // [rows] if rows are 8-bit, else null
    Mat residual;         // [rows][n], or null
    Mat y;                // [rows][n]
    Tail tail;
    int k;
    int n;
    int activation;
    int split;            // gemv: warps that share a column: 1, 2, 4, 8
};

/// softmax(scale · q · kᵀ + bias of the key + bias of the distance) · v, for each head over each sequence's own tokens:
/// attention_*. Scores below the lowest finite number count as that number.
struct AttentionArgs {
    const int *header;
    Mat q, k, v;   // [tokens][stride]; the heads lie side by side, from the first columns below on
    Mat bias;      // [tokens][1] f32, or null
    const float *by_distance; // rows of 2 · reach + 1, of the key `reach` tokens before the query first; or null
    Mat y;         // [tokens][heads · head_out]
    Tail tail;
    int q_from, k_from, v_from;
    int heads, head, head_out;
    float scale;
    int group;     // heads for each head of k and v
    int reach;     // distances beyond it count as the reach
    int apart;     // elements from a head's row of by_distance to the next head's; 0: all heads have one row
    int zeros;     // 1: a query whose every score is the lowest number gets zeros, not the mean of the values
    int zero;      // padding
};

/// y = x · cos + turned · sin for each head, where `turned` is the head with its halves swapped and the then first one
/// negated: rotate_heads.
struct RotateArgs {
    Rows rows;
    const int *header;  // offsets, if rows of cos and sin are positions in a sequence; null: they are rows of x
    Mat x;              // the heads lie side by side from column x_from on
    Mat cos, sin;       // [positions][head] f32, or [rows][head]
    Mat y;              // [rows][heads · head]
    int *fault;         // like EmbedArgs, for a position that is not in the tables
    Tail tail;
    int x_from;
    int heads, head;    // an even number of columns
    int positions;
    int node;
    int zero;
};

/// The norm of (x + residual) over each row: layer_norm, rms_norm.
struct NormArgs {
    Rows rows;
    Mat x, residual;
    const float *scale, *shift; // [width], or null
    Mat y;
    Tail tail;
    int width;
    float epsilon;
};

/// softmax_rows, reduce_rows (y has width 1), pool_tokens (rows: sequences), cum_sum (rows: sequences).
struct RowsArgs {
    Rows rows;
    const int *header; // for pool_tokens and cum_sum, else null
    Mat x, y;
    Tail tail;
    int width;         // of x
    int fold;
};

/// Σ weight · x / max(Σ weight, at_least) over the tokens of each sequence: mean_pool.
struct MeanPoolArgs {
    Rows rows;         // sequences
    const int *header;
    Mat x;             // [tokens][width]
    Mat weights;       // [tokens][1], of any kind
    Mat y;
    Tail tail;
    int width;
    float at_least;
};

struct Table {
    Mat table;     // [table_rows][width], f32 or f16
    Mat ids;       // [rows][stride], i64, i32 or f32; data null: the id is the token's position in its sequence
    int from;      // the column of `ids`; without ids, an offset that is added to the position
    int table_rows;
};

/// The sum of one row of each table, normalised if `normed`: embed. Negative ids count from the table's end. An id that
/// is not in the table writes {1 + node, table, row, id} to `fault` (the first such id) and reads row 0.
struct EmbedArgs {
    Rows rows;
    const int *header;   // offsets, needed if a table has no ids
    Table tables[4];
    const float *scale, *shift; // of the norm, or null
    Mat y;
    int *fault;          // host memory, 4 words, zero before
    Tail tail;
    int count;           // tables
    int width;
    float epsilon;
    int normed;
    int node;
    int zero;
};

/// One step of a map: code[5 · step] = {opcode, slot written, a, b, c}; a, b, c are slots, the index of an argument or
/// weight row, or a number's bits.
enum Opcode {
    OP_ARG, OP_WEIGHT, OP_SCALAR,                                     // a: index, index, bits
    OP_ABS, OP_CEIL, OP_ERF, OP_EXP, OP_FLOOR, OP_LOG, OP_NEG, OP_POW /* b: the power's bits */, OP_RECIP, OP_RELU, OP_ROUND,
    OP_RSQRT, OP_SIGMOID, OP_SQRT, OP_SQUARE, OP_TANH, OP_GELU, OP_GELU_TANH, OP_SILU, OP_NOT,   // a
    OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MIN, OP_MAX, OP_EQUAL, OP_LESS, OP_LESS_OR_EQUAL, OP_GREATER, OP_GREATER_OR_EQUAL, // a, b
    OP_WHERE,                                                         // a, b, c
    OP_FOLD,                                                          // a; b: which Fold
};

/// An operand of a map: an argument of the plan, or a weight row (stride 0).
struct MapArg {
    Mat mat;
    int wide;      // 0: of width 1, the same for a whole row
    int by_batch;  // 1: one row for each sequence, while the output has one for each token
};

/// A program over each element: map_flat (no fold), map_rows (a block for each row). The last step's slot is the
/// result. Conditions are 1 and 0; MIN and MAX return b if either operand is NaN (plan::program).
struct MapArgs {
    Rows rows;
    const int *header; // offsets, needed if an argument is by_batch
    const int *code;
    MapArg args[8];
    MapArg weights[8];
    Mat y;
    Tail tail;
    int steps;
    int slots;         // of shared memory: slots · 4 · (threads of a block; map_rows: width rounded up to 32)
    int width;         // of y
    int result;        // the slot of the result
};

/// y[:, y_from ..] = activation(x[:, x_from ..]), converting the element type if it differs: copy_columns. Both may be the same
/// columns.
struct CopyArgs {
    Rows rows;
    Mat x, y;
    Tail tail;
    int x_from, y_from;
    int width;
    int activation;
};

/// Quantises each row to 8 bits: y = round(x / scale), scale = max |x| / 127 (1 if all are 0, NaN if one is not
/// finite): quantize_rows. If `fixed` is above 0 it is the scale of all rows. Columns from `width` to y's stride become
/// 0.
struct QuantizeArgs {
    Rows rows;
    Mat x;          // f32 or f16
    Mat y;          // s8
    float *scale;   // [rows]
    Tail tail;
    int width;
    float fixed;
};

/// peak_*, empty.
struct PeakArgs {
    void *data;     // peak_copy: the source
    void *out;      // peak_copy: the target; others: a word for each thread's result, or null
    long long count; // peak_copy: 16-byte pieces; others: repeats of each thread
};

/// peak_read: a buffer that is read repeatedly.
struct PeakReadArgs {
    const void *data;
    unsigned *out;    // a word for each warp of the grid: the sum of the 32-bit words that it read
    long long pieces; // of 16 bytes, from 1 to 2^30
    long long passes;
};
