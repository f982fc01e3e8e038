//! The patches of images as the rows of a matrix: copied from the images block by block, while the product runs.

use std::ops::Range;

use smallvec::SmallVec;

use super::super::dispatch::dispatch;
use super::super::gemm::{PACKED_STRIDE, PackRows};
use super::super::level::Level;
use super::super::simd::{Kernel, Simd};
use super::geometry::View;

/// Each window as a row: tap after tap, each with the `channels` from `from` on.
pub(crate) struct Patches<'a> {
    pub(crate) view: View<'a>,
    pub(crate) from: usize,
    pub(crate) channels: usize,
    pub(crate) level: Level,
}

/// A part of each patch that lies in one row of its image.
#[derive(Clone, Copy)]
struct Run {
    /// Rows below the window's first.
    down: usize,
    /// Elements behind the window's first pixel in that row.
    along: usize,
    len: usize,
}

impl Patches<'_> {
    /// The runs of a part of each patch. Taps that lie side by side in the image are one: those of a row, if each has all channels.
    fn runs(&self, depth: &Range<usize>) -> SmallVec<[Run; 16]> {
        let windows = self.view.windows;
        let is_row = windows.dilations[1] == 1 && self.channels == self.view.channels;
        let (longest, across) = if is_row { (windows.kernel[1] * self.channels, 1) } else { (self.channels, windows.kernel[1]) };
        let mut runs = SmallVec::new();
        let mut done = depth.start;
        while done < depth.end {
            let (at, within) = (done / longest, done % longest);
            let len = (longest - within).min(depth.end - done);
            let along = at % across * windows.dilations[1] * self.view.channels + self.from + within;
            runs.push(Run { down: at / across * windows.dilations[0], along, len });
            done += len;
        }
        runs
    }
}

impl PackRows for Patches<'_> {
    fn pack(&self, rows: Range<usize>, depth: Range<usize>, scratch: &mut [f32]) {
        let runs = self.runs(&depth);
        assert!(scratch.len() >= rows.len() * PACKED_STRIDE && depth.len() <= PACKED_STRIDE, "the scratch holds the block");
        // SAFETY: the scratch holds a stride for each row, and a row the runs; `View::new` checked the windows.
        unsafe { dispatch(self.level, Pack { view: &self.view, runs: &runs, rows, scratch }) };
    }
}

struct Pack<'a> {
    view: &'a View<'a>,
    runs: &'a [Run],
    rows: Range<usize>,
    scratch: &'a mut [f32],
}

impl Kernel for Pack<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Pack { view, runs, rows, scratch } = self;
        let line = (view.size[1] * view.channels) as isize;
        let mut to = scratch.as_mut_ptr();
        let mut corner = view.corner(rows.start);
        for row in rows {
            let mut at = to;
            let begin = corner.left * view.channels as isize;
            for run in runs {
                let (y, from) = (corner.top + run.down as isize, begin + run.along as isize);
                let len = run.len as isize;
                // SAFETY: what is read lies in one row of the image; what is written, in one row of the scratch.
                unsafe {
                    if y < 0 || y >= view.size[0] as isize {
                        zero::<S>(at, run.len);
                    } else {
                        let image = view.images.as_ptr().add(corner.image).offset(y * line);
                        if from >= 0 && from + len <= line {
                            copy::<S>(image.offset(from), at, run.len);
                        } else {
                            let before = (-from).clamp(0, len);
                            let inside = (line - from.max(0)).clamp(0, len - before);
                            zero::<S>(at, before as usize);
                            if inside > 0 {
                                copy::<S>(image.offset(from + before), at.offset(before), inside as usize);
                            }
                            zero::<S>(at.offset(before + inside), (len - before - inside) as usize);
                        }
                    }
                    at = at.add(run.len);
                }
            }
            to = to.wrapping_add(PACKED_STRIDE);
            corner.column += 1;
            if corner.column < view.count[1] {
                corner.left += view.windows.strides[1] as isize;
            } else {
                corner = view.corner(row + 1);
            }
        }
    }
}

/// Copies `len` elements.
#[inline(always)]
unsafe fn copy<S: Simd>(from: *const f32, to: *mut f32, len: usize) {
    // SAFETY: guaranteed by the caller; the last vector is masked.
    unsafe {
        let mut at = 0;
        while at + S::LANES <= len {
            S::store(to.add(at), S::load(from.add(at)));
            at += S::LANES;
        }
        if at < len {
            S::store_n(to.add(at), len - at, S::load_n(from.add(at), len - at));
        }
    }
}

/// Writes `len` zeros.
#[inline(always)]
unsafe fn zero<S: Simd>(to: *mut f32, len: usize) {
    // SAFETY: guaranteed by the caller; the last vector is masked.
    unsafe {
        let mut at = 0;
        while at + S::LANES <= len {
            S::store(to.add(at), S::splat(0.0));
            at += S::LANES;
        }
        if at < len {
            S::store_n(to.add(at), len - at, S::splat(0.0));
        }
    }
}
