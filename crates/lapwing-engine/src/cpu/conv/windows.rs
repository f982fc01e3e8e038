//! Windows over each channel alone: vectors go over the channels, and several windows of a row share what is loaded of the weights.

use super::super::dispatch::dispatch;
use super::super::level::Level;
use super::super::simd::{Kernel, Simd};
use super::geometry::{Corner, View};

/// Windows that are computed together.
const TOGETHER: usize = 4;

/// What is computed of a window's taps, for a vector of channels.
pub(crate) trait Taps {
    /// The value before the first tap, for the `lanes` channels from `channel` on.
    unsafe fn begin<S: Simd>(&self, channel: usize, lanes: usize) -> S::V;
    /// What a tap takes besides the image: loaded once for several windows. `at` is tap · channels + channel.
    unsafe fn tap<S: Simd>(&self, at: usize, lanes: usize) -> S::V;
    /// Adds a tap.
    unsafe fn step<S: Simd>(value: S::V, x: S::V, tap: S::V) -> S::V;
    /// The result of `count` taps inside of the image, of a window of `all`.
    unsafe fn end<S: Simd>(&self, value: S::V, count: usize, all: usize) -> S::V;
}

/// Weights of `[taps, channels]`.
pub(crate) struct Depthwise<'a> {
    pub(crate) weights: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
}

/// The largest.
pub(crate) struct Max;

/// The mean, which may count the padding.
pub(crate) struct Sum {
    pub(crate) with_padding: bool,
}

impl Taps for Depthwise<'_> {
    #[inline(always)]
    unsafe fn begin<S: Simd>(&self, channel: usize, lanes: usize) -> S::V {
        // SAFETY: the bias has all channels.
        unsafe { self.bias.map_or(S::splat(0.0), |bias| load::<S>(bias.as_ptr().add(channel), lanes)) }
    }
    #[inline(always)]
    unsafe fn tap<S: Simd>(&self, at: usize, lanes: usize) -> S::V {
        // SAFETY: the weights have all taps of all channels.
        unsafe { load::<S>(self.weights.as_ptr().add(at), lanes) }
    }
    #[inline(always)]
    unsafe fn step<S: Simd>(value: S::V, x: S::V, tap: S::V) -> S::V {
        // SAFETY: arithmetic only.
        unsafe { S::fma(x, tap, value) }
    }
    #[inline(always)]
    unsafe fn end<S: Simd>(&self, value: S::V, _: usize, _: usize) -> S::V {
        value
    }
}

impl Taps for Max {
    #[inline(always)]
    unsafe fn begin<S: Simd>(&self, _: usize, _: usize) -> S::V {
        // SAFETY: arithmetic only.
        unsafe { S::splat(f32::NEG_INFINITY) }
    }
    #[inline(always)]
    unsafe fn tap<S: Simd>(&self, _: usize, _: usize) -> S::V {
        // SAFETY: arithmetic only.
        unsafe { S::splat(0.0) }
    }
    #[inline(always)]
    unsafe fn step<S: Simd>(value: S::V, x: S::V, _: S::V) -> S::V {
        // SAFETY: arithmetic only.
        unsafe { S::max(value, x) }
    }
    #[inline(always)]
    unsafe fn end<S: Simd>(&self, value: S::V, _: usize, _: usize) -> S::V {
        value
    }
}

impl Taps for Sum {
    #[inline(always)]
    unsafe fn begin<S: Simd>(&self, _: usize, _: usize) -> S::V {
        // SAFETY: arithmetic only.
        unsafe { S::splat(0.0) }
    }
    #[inline(always)]
    unsafe fn tap<S: Simd>(&self, _: usize, _: usize) -> S::V {
        // SAFETY: arithmetic only.
        unsafe { S::splat(0.0) }
    }
    #[inline(always)]
    unsafe fn step<S: Simd>(value: S::V, x: S::V, _: S::V) -> S::V {
        // SAFETY: arithmetic only.
        unsafe { S::add(value, x) }
    }
    #[inline(always)]
    unsafe fn end<S: Simd>(&self, value: S::V, count: usize, all: usize) -> S::V {
        let count = if self.with_padding { all } else { count };
        // SAFETY: arithmetic only.
        unsafe { S::div(value, S::splat(count as f32)) }
    }
}

#[inline(always)]
unsafe fn load<S: Simd>(from: *const f32, lanes: usize) -> S::V {
    // SAFETY: the caller guarantees `lanes` elements.
    unsafe { if lanes == S::LANES { S::load(from) } else { S::load_n(from, lanes) } }
}

/// Computes as many windows as `out` has pixels.
pub(crate) fn over_windows<T: Taps>(level: Level, view: View<'_>, taps: &T, out: &mut [f32]) {
    // SAFETY: `View::new` checked that the windows are those of the image, and the caller that `out` holds whole pixels, and the weights
    // all taps and channels.
    unsafe { dispatch(level, Over { view, taps, out }) };
}

struct Over<'a, T> {
    view: View<'a>,
    taps: &'a T,
    out: &'a mut [f32],
}

/// The taps of a window that lie inside of the image.
#[derive(Clone, Copy)]
struct Inside {
    from: usize,
    to: usize,
}

impl Inside {
    /// Of `kernel` taps, `dilation` apart, the first at `begin`, in an image of `size` pixels.
    #[inline(always)]
    fn of(begin: isize, dilation: usize, kernel: usize, size: usize) -> Self {
        let before = |end: isize| usize::try_from(end - begin).map_or(0, |far| far.div_ceil(dilation)).min(kernel);
        Self { from: before(0), to: before(size as isize) }
    }

    #[inline(always)]
    fn count(self) -> usize {
        self.to.saturating_sub(self.from)
    }
}

impl<T: Taps> Kernel for Over<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let channels = self.view.channels;
        let (kernel, dilation) = (self.view.windows.kernel, self.view.windows.dilations);
        let pixels = self.out.len() / channels;
        let mut done = 0;
        while done < pixels {
            let Corner { image, top, left, column } = self.view.corner(done);
            let rows = Inside::of(top, dilation[0], kernel[0], self.view.size[0]);
            let columns = Inside::of(left, dilation[1], kernel[1], self.view.size[1]);
            // windows of one row whose columns all lie inside
            let stride = self.view.windows.strides[1];
            let last = left + ((TOGETHER - 1) * stride + (kernel[1] - 1) * dilation[1]) as isize;
            let across = self.view.count[1] - column;
            let together = left >= 0 && last < self.view.size[1] as isize && across >= TOGETHER && done + TOGETHER <= pixels;
            let mut channel = 0;
            while channel < channels {
                let lanes = (channels - channel).min(S::LANES);
                // SAFETY: all taps of `rows` and `columns` lie inside of the image, for all windows that are computed together.
                unsafe {
                    let corner =
                        image as isize + (top * self.view.size[1] as isize + left) * channels as isize + channel as isize;
                    let to = self.out.as_mut_ptr().add(done * channels + channel);
                    if together {
                        self.windows::<S, TOGETHER>(corner, [rows, columns], (channel, lanes), to);
                    } else {
                        self.windows::<S, 1>(corner, [rows, columns], (channel, lanes), to);
                    }
                }
                channel += S::LANES;
            }
            done += if together { TOGETHER } else { 1 };
        }
    }
}

impl<T: Taps> Over<'_, T> {
    /// Computes `N` windows of a row for a vector of channels; the first begins at `corner`, in elements.
    #[inline(always)]
    unsafe fn windows<S: Simd, const N: usize>(
        &self,
        corner: isize,
        [rows, columns]: [Inside; 2],
        (channel, lanes): (usize, usize),
        to: *mut f32,
    ) {
        let (view, windows, channels) = (&self.view, self.view.windows, self.view.channels);
        let apart = windows.strides[1] * channels;
        // SAFETY: the caller guarantees that the taps lie in the image, and `to` holds the windows.
        unsafe {
            let mut values = [self.taps.begin::<S>(channel, lanes); N];
            let mut row = rows.from;
            while row < rows.to {
                let line = corner + (row * windows.dilations[0] * view.size[1] * channels) as isize;
                let mut column = columns.from;
                while column < columns.to {
                    let from = view.images.as_ptr().offset(line + (column * windows.dilations[1] * channels) as isize);
                    let tap = self.taps.tap::<S>((row * windows.kernel[1] + column) * channels + channel, lanes);
                    let mut n = 0;
                    while n < N {
                        values[n] = T::step::<S>(values[n], load::<S>(from.add(n * apart), lanes), tap);
                        n += 1;
                    }
                    column += 1;
                }
                row += 1;
            }
            let all = windows.kernel[0] * windows.kernel[1];
            let mut n = 0;
            while n < N {
                let value = self.taps.end::<S>(values[n], rows.count() * columns.count(), all);
                if lanes == S::LANES {
                    S::store(to.add(n * channels), value);
                } else {
                    S::store_n(to.add(n * channels), lanes, value);
                }
                n += 1;
            }
        }
    }
}
