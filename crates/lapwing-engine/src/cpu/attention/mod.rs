//! Multi-head attention over a ragged batch: each sequence's tokens attend to the keys of the same sequence only.
//!
//! Sizes are in values, not bytes. Nothing is allocated: the caller passes scratch of [`Attention::scratch_len`]
//! values, which does not grow with a sequence's length. The arithmetic of one (sequence, head) pair is in `head`.

mod distance;
mod head;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::ops::Range;

pub use self::distance::DistanceBias;
use self::distance::DistanceRow;
use self::head::{Head, scratch_len};
use super::dispatch::dispatch;
use super::level::Level;
use super::shape::{ShapeError, at_least, exactly, inside, ragged};
use super::simd::{Kernel, Simd};

/// Columns of a row-major buffer, as a merged Q/K/V projection lays them out: row r is `data[r * stride + offset ..]`.
#[derive(Debug, Clone, Copy)]
pub struct HeadColumns<'a> {
    /// The buffer.
    pub data: &'a [f32],
    /// First column.
    pub offset: usize,
    /// Values from one row to the next.
    pub stride: usize,
}

/// The output columns of a row-major buffer. Several threads may share the buffer as long as their (sequence, head)
/// pairs differ.
#[derive(Debug)]
pub struct HeadColumnsMut<'a> {
    data: *mut f32,
    len: usize,
    offset: usize,
    stride: usize,
    of: PhantomData<&'a mut [f32]>,
}

// SAFETY: equivalent to a `&mut [f32]`, which is `Send`.
unsafe impl Send for HeadColumnsMut<'_> {}
// SAFETY: a shared reference only allows asking for a second handle, which is `unsafe`.
unsafe impl Sync for HeadColumnsMut<'_> {}

impl<'a> HeadColumnsMut<'a> {
    /// The columns from `offset` on of rows that are `stride` values apart in `data`.
    pub fn new(data: &'a mut [f32], offset: usize, stride: usize) -> Self {
        HeadColumnsMut { data: data.as_mut_ptr(), len: data.len(), offset, stride, of: PhantomData }
    }

    /// Returns a second handle on the same columns, for another thread.
    ///
    /// # Safety
    /// Two handles are never passed at the same time to calls whose ranges share a (sequence, head) pair, and the
    /// buffer is not read before all such calls have returned.
    pub unsafe fn share(&self) -> HeadColumnsMut<'a> {
        HeadColumnsMut { ..*self }
    }
}

/// The dimensions of one attention node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadShape {
    /// Number of heads. Head h has columns `h * head_size ..` of q, and `h * value_size ..` of the output.
    pub heads: usize,
    /// Heads of k and v, a divisor of `heads`: each serves `heads / key_heads` consecutive heads, whose columns are those of h above.
    pub key_heads: usize,
    /// Width of a head of q and k.
    pub head_size: usize,
    /// Width of a head of v and of the output.
    pub value_size: usize,
    /// The factor applied to each q·k.
    pub scale: f32,
    /// Whether a query with every key masked out, of scores below the lowest finite number, gets zeros and not the mean.
    pub is_zero_if_masked: bool,
}

/// The validated input of one attention node: `out = softmax(scale * q kᵀ + biases) v` for each sequence and head.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    shape: HeadShape,
    offsets: &'a [usize],
    context: Option<&'a [usize]>,
    q: HeadColumns<'a>,
    k: HeadColumns<'a>,
    v: HeadColumns<'a>,
    bias: Option<&'a [f32]>,
    by_distance: Option<&'a DistanceBias>,
}

/// Checks that the columns fit their stride, and the rows the buffer.
fn fits(what: &'static str, offset: usize, stride: usize, len: usize, width: usize, rows: usize) -> Result<(), ShapeError> {
    if offset.checked_add(width).is_none_or(|end| end > stride) {
        return Err(ShapeError::Columns { what, need: offset.saturating_add(width), got: stride });
    }
    match rows {
        0 => Ok(()),
        _ => at_least(what, (rows - 1).saturating_mul(stride).saturating_add(offset + width), len),
    }
}

impl<'a> Attention<'a> {
    /// Validates the input once. `offsets[s]..offsets[s + 1]` are the rows of sequence s. `bias` has one value for each
    /// token, which is added to every score of that token as a key (the mask: 0 or a large negative number); `by_distance` is added to the
    /// score of each query and key. With a `context`, keys, values and `bias` are those of the tokens `context[s]..context[s + 1]`, of which
    /// the last are the queries' own, and k and v lie by head: of each sequence `[key heads, tokens, columns of a head]`.
    ///
    /// # Errors
    /// Names the argument whose length, columns or offsets do not fit.
    pub fn new(
        shape: HeadShape,
        offsets: &'a [usize],
        context: Option<&'a [usize]>,
        [q, k, v]: [HeadColumns<'a>; 3],
        bias: Option<&'a [f32]>,
        by_distance: Option<&'a DistanceBias>,
    ) -> Result<Self, ShapeError> {
        let (_, tokens) = ragged(offsets)?;
        let (_, all) = ragged(context.unwrap_or(offsets))?;
        if let Some(context) = context {
            exactly("context", offsets.len(), context.len())?;
            let lacks = |(own, all): (&[usize], &[usize])| own[1] - own[0] > all[1] - all[0];
            if let Some(at) = offsets.windows(2).zip(context.windows(2)).position(lacks) {
                return Err(ShapeError::Offsets { index: at + 1 });
            }
            for (what, columns, size) in [("k", k, shape.head_size), ("v", v, shape.value_size)] {
                exactly(what, all.saturating_mul(shape.key_heads.saturating_mul(size)), columns.data.len())?;
            }
        }
        exactly("heads beyond groups of those of the keys", 0, shape.heads.checked_rem(shape.key_heads).unwrap_or(usize::MAX))?;
        let width = |heads: usize, size: usize| heads.saturating_mul(size);
        fits("q", q.offset, q.stride, q.data.len(), width(shape.heads, shape.head_size), tokens)?;
        fits("k", k.offset, k.stride, k.data.len(), width(shape.key_heads, shape.head_size), all)?;
        fits("v", v.offset, v.stride, v.data.len(), width(shape.key_heads, shape.value_size), all)?;
        if let Some(bias) = bias {
            at_least("key bias", all, bias.len())?;
        }
        if let Some(rows) = by_distance.map(DistanceBias::count).filter(|rows| *rows != 1) {
            exactly("rows of the bias by distance", shape.heads, rows)?;
        }
        Ok(Attention { shape, offsets, context, q, k, v, bias, by_distance })
    }

    /// The scratch length, in values, that one call of [`Attention::run`] needs; the same for sequences of any length.
    #[must_use]
    pub fn scratch_len(head_size: usize) -> usize {
        scratch_len(head_size)
    }

    /// Computes the given heads of the given sequences; the other columns and rows of `out` keep their values. Bias
    /// values of -inf count as the lowest finite number, so a query whose keys are all masked gets the mean of the
    /// values, or zeros, never NaN.
    ///
    /// # Errors
    /// Names the range, scratch or output that does not fit; nothing was written then.
    pub fn run(
        &self,
        level: Level,
        sequences: Range<usize>,
        heads: Range<usize>,
        scratch: &mut [f32],
        out: &mut HeadColumnsMut<'_>,
    ) -> Result<(), ShapeError> {
        inside("sequences", &sequences, self.offsets.len() - 1)?;
        inside("heads", &heads, self.shape.heads)?;
        at_least("scratch", Self::scratch_len(self.shape.head_size), scratch.len())?;
        let rows = self.offsets[sequences.end];
        fits("out", out.offset, out.stride, out.len, self.shape.heads * self.shape.value_size, rows)?;
        // SAFETY: `new` and the checks above cover every row and column that the kernel accesses.
        unsafe { dispatch(level, AttentionKernel { of: self, sequences, heads, scratch, out }) };
        Ok(())
    }
}

struct AttentionKernel<'r, 'a, 'o> {
    of: &'r Attention<'a>,
    sequences: Range<usize>,
    heads: Range<usize>,
    scratch: &'r mut [f32],
    out: &'r mut HeadColumnsMut<'o>,
}

impl Kernel for AttentionKernel<'_, '_, '_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Attention { shape, offsets, context, q, k, v, bias, by_distance } = *self.of;
        // align to whole cache lines: otherwise half of all loads would straddle two
        let skip = self.scratch.as_ptr().align_offset(64).min(15);
        for s in self.sequences {
            let (first, queries) = (offsets[s], offsets[s + 1] - offsets[s]);
            let all = context.unwrap_or(offsets);
            let (first_key, keys) = (all[s], all[s + 1] - all[s]);
            // where a head of the keys or values begins, and how far its rows are apart
            let of_head = |columns: HeadColumns<'_>, head: usize, size: usize| match context {
                Some(_) => (first_key * shape.key_heads * size + head * keys * size, size),
                None => (first_key * columns.stride + columns.offset + head * size, columns.stride),
            };
            for h in self.heads.clone() {
                if queries == 0 {
                    continue;
                }
                let key_head = h / (shape.heads / shape.key_heads);
                let (k_first, k_stride) = of_head(k, key_head, shape.head_size);
                let (v_first, v_stride) = of_head(v, key_head, shape.value_size);
                // SAFETY: `Attention::new` and `run` checked that these rows and columns lie in their buffers, and the scratch's length.
                unsafe {
                    let head = Head {
                        queries,
                        keys,
                        head_size: shape.head_size,
                        value_size: shape.value_size,
                        scale: shape.scale,
                        is_zero_if_masked: shape.is_zero_if_masked,
                        q: q.data.as_ptr().add(first * q.stride + q.offset + h * shape.head_size),
                        q_stride: q.stride,
                        k: k.data.as_ptr().add(k_first),
                        k_stride,
                        v: v.data.as_ptr().add(v_first),
                        v_stride,
                        bias: bias.map_or(std::ptr::null(), |b| b.as_ptr().add(first_key)),
                        by_distance: by_distance.map_or(DistanceRow::NONE, |table| table.row(h)),
                        out: self.out.data.add(first * self.out.stride + self.out.offset + h * shape.value_size),
                        out_stride: self.out.stride,
                    };
                    head.run::<S>(self.scratch.as_mut_ptr().add(skip));
                }
            }
        }
    }
}
