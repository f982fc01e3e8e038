//! Attention of one head of one sequence: the inner loops, on raw pointers whose bounds `attention` has checked.
//!
//! Scores are stored transposed, one vector of queries for each key. The softmax then needs no horizontal sums, and a
//! key's bias is one broadcast. A block is up to two vectors of queries by [`KEYS`] keys. Longer sequences take several
//! key blocks with a running maximum (online softmax), so memory does not grow with sequence length.

use super::distance::DistanceRow;
use crate::cpu::math::exp;
use crate::cpu::simd::Simd;

/// Queries in a block: two vectors of the widest level.
pub(crate) const QUERIES: usize = 32;
/// Keys in a block; 128 x 32 scores are 16 KB, half of a first-level cache.
pub(crate) const KEYS: usize = 128;
/// Scratch length in values: transposed queries, scores, two statistics per query, and padding for alignment.
pub(crate) fn scratch_len(head_size: usize) -> usize {
    QUERIES * (head_size.next_multiple_of(8) + KEYS + 2) + 16
}

/// One head of one sequence; strides are in values. `bias` may be null.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    /// The queries are those of the last keys.
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) head_size: usize,
    pub(crate) value_size: usize,
    pub(crate) scale: f32,
    pub(crate) is_zero_if_masked: bool,
    pub(crate) q: *const f32,
    pub(crate) q_stride: usize,
    pub(crate) k: *const f32,
    pub(crate) k_stride: usize,
    pub(crate) v: *const f32,
    pub(crate) v_stride: usize,
    pub(crate) bias: *const f32,
    pub(crate) by_distance: DistanceRow,
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
}

/// The scratch, divided into its buffers.
#[derive(Clone, Copy)]
struct Parts {
    /// [head_size, lanes] queries, transposed.
    queries: *mut f32,
    /// [keys of the block, lanes] scores, then their exponentials.
    scores: *mut f32,
    /// The factor by which the partial sums so far must be multiplied, for each query.
    rescale: *mut f32,
    /// One over the sum of the exponentials, or 1 while key blocks remain.
    finish: *mut f32,
}

/// A block of keys inside the sequence.
#[derive(Clone, Copy)]
struct Block {
    /// First query of the block.
    query: usize,
    first: usize,
    keys: usize,
    is_last: bool,
}

impl Head {
    /// Computes the output rows of all queries.
    ///
    /// # Safety
    /// Pointers of queries and results are valid for `queries` rows of their width, which are `keys` at most, all others for `keys` rows, and `scratch` for [`scratch_len`] values less 16.
    #[inline(always)]
    pub(crate) unsafe fn run<S: Simd>(self, scratch: *mut f32) {
        // SAFETY: the buffers lie in the scratch one after the other; the caller guarantees the rest.
        unsafe {
            let scores = scratch.add(QUERIES * self.head_size.next_multiple_of(8));
            let rescale = scores.add(QUERIES * KEYS);
            let parts = Parts { queries: scratch, scores, rescale, finish: rescale.add(QUERIES) };
            let mut first = 0;
            while first < self.queries {
                let left = self.queries - first;
                if left <= S::LANES {
                    self.queries::<S, 1>(first, left, parts);
                    first += left;
                } else {
                    let queries = left.min(2 * S::LANES);
                    self.queries::<S, 2>(first, queries, parts);
                    first += queries;
                }
            }
        }
    }

    /// Computes `queries` queries, at most `W` vectors of them.
    #[inline(always)]
    unsafe fn queries<S: Simd, const W: usize>(self, first: usize, queries: usize, parts: Parts) {
        // SAFETY: guaranteed by the caller; blocks lie inside the sequence.
        unsafe {
            self.transpose::<S, W>(first, queries, parts.queries);
            let mut most = [S::splat(f32::MIN); W];
            let mut sum = [S::splat(0.0); W];
            let mut done = 0;
            while done < self.keys {
                let keys = (self.keys - done).min(KEYS);
                let block = Block { query: first, first: done, keys, is_last: done + keys == self.keys };
                let before = most;
                self.scores::<S, W>(block, parts, &mut most);
                // the first block has no partial sums to rescale
                for w in 0..if done > 0 { W } else { 0 } {
                    let rescale = exp::<S>(S::sub(before[w], most[w]));
                    sum[w] = S::mul(sum[w], rescale);
                    S::store(parts.rescale.add(w * S::LANES), rescale);
                }
                exponentials::<S, W>(parts.scores, keys, most, &mut sum);
                for (w, sum) in sum.iter().enumerate() {
                    let one = S::splat(1.0);
                    let mut finish = if block.is_last { S::div(one, *sum) } else { one };
                    if self.is_zero_if_masked {
                        finish = S::select_lt(S::splat(f32::MIN), most[w], finish, S::splat(0.0));
                    }
                    S::store(parts.finish.add(w * S::LANES), finish);
                }
                self.values::<S, W>(first, queries, block, parts);
                done += keys;
            }
        }
    }

    /// `to[c][lane] = q[first + lane][c]`. Lanes past the last query repeat it, so that every lane holds defined
    /// values.
    #[inline(always)]
    unsafe fn transpose<S: Simd, const W: usize>(self, first: usize, queries: usize, to: *mut f32) {
        let stride = W * S::LANES;
        let mut lane = 0;
        while lane < stride {
            // SAFETY: rows are clamped to the last query, columns to the head; `to` has room for stride x head_size.
            unsafe {
                let row = |r: usize| self.q.add((first + (lane + r).min(queries - 1)) * self.q_stride);
                let rows = [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)];
                let whole = self.head_size / 8 * 8;
                let mut c = 0;
                while c < whole {
                    S::transpose8(rows.map(|r| r.wrapping_add(c)), to.add(c * stride + lane), stride);
                    c += 8;
                }
                for c in whole..self.head_size {
                    for (r, row) in rows.iter().enumerate() {
                        *to.add(c * stride + lane + r) = *row.add(c);
                    }
                }
            }
            lane += 8;
        }
    }

    /// Computes the scores of a block of keys and updates the maximum of each query.
    #[inline(always)]
    unsafe fn scores<S: Simd, const W: usize>(self, block: Block, parts: Parts, most: &mut [S::V; W]) {
        let mut key = 0;
        // SAFETY: `key + R <= block.keys` in each call.
        unsafe {
            while key + 8 <= block.keys {
                if S::ROWS == 8 {
                    self.score_rows::<S, W, 8>(block, key, parts, most);
                } else {
                    self.score_rows::<S, W, 4>(block, key, parts, most);
                    self.score_rows::<S, W, 4>(block, key + 4, parts, most);
                }
                key += 8;
            }
            if key + 4 <= block.keys {
                self.score_rows::<S, W, 4>(block, key, parts, most);
                key += 4;
            }
            if key + 2 <= block.keys {
                self.score_rows::<S, W, 2>(block, key, parts, most);
                key += 2;
            }
            if key < block.keys {
                self.score_rows::<S, W, 1>(block, key, parts, most);
            }
        }
    }

    /// Computes the scores of `R` keys of a block from its row `row` on.
    #[inline(always)]
    unsafe fn score_rows<S: Simd, const W: usize, const R: usize>(
        self,
        block: Block,
        row: usize,
        parts: Parts,
        most: &mut [S::V; W],
    ) {
        // SAFETY: keys `key..key + R` lie in the sequence, the row in the block.
        unsafe {
            let key = block.first + row;
            let k = self.k.add(key * self.k_stride);
            let mut acc = [[S::splat(0.0); W]; R];
            for c in 0..self.head_size {
                let mut q = [S::splat(0.0); W];
                for (w, q) in q.iter_mut().enumerate() {
                    *q = S::load(parts.queries.add((c * W + w) * S::LANES));
                }
                for (r, acc) in acc.iter_mut().enumerate() {
                    let x = S::splat(*k.add(r * self.k_stride + c));
                    for (acc, q) in acc.iter_mut().zip(q) {
                        *acc = S::fma(x, q, *acc);
                    }
                }
            }
            let scale = S::splat(self.scale);
            for (r, acc) in acc.iter().enumerate() {
                let bias = S::splat(if self.bias.is_null() { 0.0 } else { *self.bias.add(key + r) });
                for w in 0..W {
                    let mut bias = bias;
                    if !self.by_distance.is_none() {
                        let query = self.keys - self.queries + block.query + w * S::LANES;
                        bias = S::add(bias, S::load(self.by_distance.of(query, key + r)));
                    }
                    // clamp -inf to a finite number: -inf - -inf below would be NaN
                    let score = S::max(S::splat(f32::MIN), S::fma(acc[w], scale, bias));
                    most[w] = S::max(most[w], score);
                    S::store(parts.scores.add(((row + r) * W + w) * S::LANES), score);
                }
            }
        }
    }

    /// Adds the block's contribution to the output, by groups of queries and one or two vectors of columns.
    #[inline(always)]
    unsafe fn values<S: Simd, const W: usize>(self, first: usize, queries: usize, block: Block, parts: Parts) {
        let mut query = 0;
        while query < queries {
            let mut column = 0;
            while column < self.value_size {
                let left = self.value_size - column;
                let at = Tile { query, rows: (queries - query).min(S::ROWS), first, column, columns: left, block };
                // SAFETY: the tile lies inside the queries and columns; a group of ROWS lanes never crosses a vector,
                // because ROWS divides LANES.
                unsafe {
                    if left >= 2 * S::LANES {
                        self.value_group::<S, W, 2>(at, parts);
                        column += 2 * S::LANES;
                    } else {
                        self.value_group::<S, W, 1>(at, parts);
                        column += S::LANES;
                    }
                }
            }
            query += S::ROWS;
        }
    }

    #[inline(always)]
    unsafe fn value_group<S: Simd, const W: usize, const C: usize>(self, at: Tile, parts: Parts) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match S::ROWS {
                8 => self.value_rows::<S, W, C, 8>(at, parts),
                4 => self.value_rows::<S, W, C, 4>(at, parts),
                _ => self.value_rows::<S, W, C, 2>(at, parts),
            }
        }
    }

    /// Accumulates `R` queries by `C` vectors of columns; only the first `at.rows` rows are stored.
    #[inline(always)]
    unsafe fn value_rows<S: Simd, const W: usize, const C: usize, const R: usize>(self, at: Tile, parts: Parts) {
        // SAFETY: guaranteed by the caller; partial vectors are read and written by `columns` values only.
        unsafe {
            let whole = at.columns >= C * S::LANES;
            let out = self.out.add((at.first + at.query) * self.out_stride + at.column);
            let mut acc = [[S::splat(0.0); C]; R];
            if at.block.first > 0 {
                for (r, acc) in acc.iter_mut().enumerate().take(at.rows) {
                    let rescale = S::splat(*parts.rescale.add(at.query + r));
                    for (c, acc) in acc.iter_mut().enumerate() {
                        let from = out.add(r * self.out_stride + c * S::LANES).cast_const();
                        *acc = S::mul(rescale, if whole { S::load(from) } else { S::load_n(from, at.columns) });
                    }
                }
            }
            let v = self.v.add(at.block.first * self.v_stride + at.column);
            let p = parts.scores.add(at.query).cast_const();
            if whole {
                for key in 0..at.block.keys {
                    let mut value = [S::splat(0.0); C];
                    for (c, value) in value.iter_mut().enumerate() {
                        *value = S::load(v.add(key * self.v_stride + c * S::LANES));
                    }
                    step::<S, C, R>(p.add(key * W * S::LANES), value, &mut acc);
                }
            } else {
                for key in 0..at.block.keys {
                    let value = [S::load_n(v.add(key * self.v_stride), at.columns); C];
                    step::<S, C, R>(p.add(key * W * S::LANES), value, &mut acc);
                }
            }
            for (r, acc) in acc.iter().enumerate().take(at.rows) {
                let finish = S::splat(*parts.finish.add(at.query + r));
                for (c, acc) in acc.iter().enumerate() {
                    let to = out.add(r * self.out_stride + c * S::LANES);
                    if whole {
                        S::store(to, S::mul(*acc, finish));
                    } else {
                        S::store_n(to, at.columns, S::mul(*acc, finish));
                    }
                }
            }
        }
    }
}

/// A group of queries by a group of columns of the output.
#[derive(Clone, Copy)]
struct Tile {
    /// First query in the block of queries, and how many rows are valid.
    query: usize,
    rows: usize,
    /// First query of the block in the sequence.
    first: usize,
    /// First column of the head, and how many there are from it on.
    column: usize,
    columns: usize,
    block: Block,
}

/// `acc[r] += p[r] * value`.
#[inline(always)]
unsafe fn step<S: Simd, const C: usize, const R: usize>(p: *const f32, value: [S::V; C], acc: &mut [[S::V; C]; R]) {
    for (r, acc) in acc.iter_mut().enumerate() {
        // SAFETY: the caller guarantees that R values can be read at `p`.
        unsafe {
            let x = S::splat(*p.add(r));
            for (acc, value) in acc.iter_mut().zip(value) {
                *acc = S::fma(x, value, *acc);
            }
        }
    }
}

/// `scores = e^(scores - most)`, and their sums.
#[inline(always)]
unsafe fn exponentials<S: Simd, const W: usize>(scores: *mut f32, keys: usize, most: [S::V; W], sum: &mut [S::V; W]) {
    for key in 0..keys {
        for w in 0..W {
            // SAFETY: the block has `keys` rows of W vectors.
            unsafe {
                let at = scores.add((key * W + w) * S::LANES);
                let e = exp::<S>(S::sub(S::load(at), most[w]));
                sum[w] = S::add(sum[w], e);
                S::store(at, e);
            }
        }
    }
}
