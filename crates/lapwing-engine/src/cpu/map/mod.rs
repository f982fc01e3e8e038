//! Runs elementwise programs (`program`) over blocks of rows that are small enough for temporaries to stay in the
//! first-level cache. Nothing is allocated: temporaries lie in scratch of [`CpuProgram::scratch_len`] values.

mod ops;
#[cfg(test)]
mod tests;

use std::ops::Range;

use self::ops::{Run, Splat, binary, choose, copy, unary};
use super::dispatch::dispatch;
use super::level::Level;
use super::program::{ArgShape, CpuInstruction, CpuProgram, MAX_INSTRUCTIONS, Variation};
use super::reduce::fold_row;
use super::shape::{ShapeError, at_least, exactly, inside, ragged};
use super::simd::{Kernel, Simd};
use lapwing_plan::plan::{self, Binary, Fold, Unary};

/// Values in a block: 8 KB for each temporary.
const BLOCK: usize = 2048;

// a fold needs a whole row in one block
const _: () = assert!(plan::Program::WIDEST_FOLD <= BLOCK);

/// The values of one argument, for all rows of the batch (or all sequences). Integers are converted to the nearest f32;
/// true is 1 and false is 0.
#[derive(Debug, Clone, Copy)]
pub enum ArgData<'a> {
    /// Used without conversion.
    F32(&'a [f32]),
    /// Masks and ids; exact below 2^24.
    I64(&'a [i64]),
    /// Masks and ids; exact below 2^24.
    I32(&'a [i32]),
    /// Masks.
    Bool(&'a [bool]),
}

impl ArgData<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            ArgData::F32(x) => x.len(),
            ArgData::I64(x) => x.len(),
            ArgData::I32(x) => x.len(),
            ArgData::Bool(x) => x.len(),
        }
    }

    /// Copies values `from..from + to.len()` to `to` as f32.
    #[inline(always)]
    pub(crate) fn read(&self, from: usize, to: &mut [f32]) {
        let part = from..from + to.len();
        match self {
            ArgData::F32(x) => to.copy_from_slice(&x[part]),
            ArgData::I64(x) => to.iter_mut().zip(&x[part]).for_each(|(to, &x)| *to = x as f32),
            ArgData::I32(x) => to.iter_mut().zip(&x[part]).for_each(|(to, &x)| *to = x as f32),
            ArgData::Bool(x) => to.iter_mut().zip(&x[part]).for_each(|(to, &x)| *to = f32::from(u8::from(x))),
        }
    }
}

impl CpuProgram {
    /// The scratch length, in values, that one call of [`CpuProgram::run`] needs, for any number of rows.
    #[must_use]
    pub fn scratch_len(&self) -> usize {
        self.slot_count * BLOCK + 16
    }

    /// Runs the program for a range of rows. Arguments hold the whole batch; each of `outs` holds the range's rows
    /// only, as wide as [`CpuProgram::output_widths`] says. `offsets` map rows to sequences and may be empty if no
    /// argument is per sequence.
    ///
    /// # Errors
    /// Names the argument whose length does not fit; nothing was written then.
    pub fn run(
        &self,
        level: Level,
        args: &[ArgData<'_>],
        offsets: &[usize],
        rows: Range<usize>,
        scratch: &mut [f32],
        outs: &mut [&mut [f32]],
    ) -> Result<(), ShapeError> {
        exactly("arguments", self.args.len(), args.len())?;
        exactly("outputs", self.outputs.len(), outs.len())?;
        at_least("scratch", self.scratch_len(), scratch.len())?;
        at_least("range of rows", rows.start, rows.end)?;
        for (shape, data) in self.args.iter().zip(args) {
            let need = if shape.per_sequence {
                let (sequences, tokens) = ragged(offsets)?;
                inside("rows", &rows, tokens)?;
                sequences
            } else {
                rows.end
            };
            at_least("argument", need.saturating_mul(shape.width), data.len())?;
        }
        for (width, out) in self.output_widths().zip(outs.iter()) {
            exactly("output", rows.len().saturating_mul(width), out.len())?;
        }
        // SAFETY: a `CpuProgram` reads only values that exist, and the checks above cover every row of every slice.
        unsafe { dispatch(level, Map { program: self, args, offsets, rows, scratch, outs }) };
        Ok(())
    }
}

struct Map<'a, 'o> {
    program: &'a CpuProgram,
    args: &'a [ArgData<'a>],
    offsets: &'a [usize],
    rows: Range<usize>,
    scratch: &'a mut [f32],
    outs: &'a mut [&'o mut [f32]],
}

/// The part that is computed at a time: either all columns of some rows, or some columns of a single row, so that it is
/// always contiguous.
#[derive(Clone, Copy)]
struct Part {
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
}

/// A value within this part, contiguous; its length depends on how the value varies.
#[derive(Clone, Copy)]
struct View {
    from: *const f32,
    varies: Variation,
}

const NOWHERE: View = View { from: std::ptr::null(), varies: Variation { by_row: false, by_column: false } };

impl Kernel for Map<'_, '_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let width = self.program.width;
        let columns = width.min(BLOCK);
        let rows = BLOCK / columns;
        let mut row = self.rows.start;
        while row < self.rows.end {
            let rows = rows.min(self.rows.end - row);
            let mut column = 0;
            while column < width {
                let part = Part { row, rows, column, columns: columns.min(width - column) };
                // SAFETY: the part lies in the rows that `CpuProgram::run` checked.
                unsafe { self.part::<S>(part) };
                column += columns;
            }
            row += rows;
        }
    }
}

impl Map<'_, '_> {
    #[inline(always)]
    unsafe fn part<S: Simd>(&mut self, part: Part) {
        let program = self.program;
        let skip = self.scratch.as_ptr().align_offset(64).min(15);
        let mut views = [NOWHERE; MAX_INSTRUCTIONS];
        // SAFETY: slots lie in the scratch, outputs have the range's rows, and views are of values computed before.
        unsafe {
            for (i, instruction) in program.instructions.iter().enumerate() {
                let varies = program.varies[i];
                let to = match program.direct[i] {
                    Some(out) => self.out(out, varies, part),
                    None => self.scratch.as_mut_ptr().add(skip + program.slots[i] * BLOCK),
                };
                let from = match instruction {
                    CpuInstruction::Arg(arg) => self.arg(program.args[*arg], &self.args[*arg], part, to),
                    CpuInstruction::Row(row) if row.len() > 1 => row.as_ptr().add(part.column),
                    CpuInstruction::Row(row) => row.as_ptr(),
                    CpuInstruction::Scalar(x) => std::ptr::from_ref(x),
                    CpuInstruction::Unary(op, a) => {
                        let op = *op;
                        each_run::<S, 1>([views[*a]], varies, part, to, Step::Unary(op))
                    }
                    CpuInstruction::Binary(op, a, b) => {
                        each_run::<S, 2>([views[*a], views[*b]], varies, part, to, Step::Binary(*op))
                    }
                    CpuInstruction::Fold(fold, a) => fold_rows::<S>(*fold, views[*a], program.width, part, to),
                    CpuInstruction::Where(of) => each_run::<S, 3>(of.map(|v| views[v]), varies, part, to, Step::Where),
                };
                views[i] = View { from, varies };
            }
            for (out, &value) in program.outputs.iter().enumerate() {
                if program.direct[value] != Some(out) {
                    let varies = Variation { by_row: true, by_column: program.varies[value].by_column };
                    each_run::<S, 1>([views[value]], varies, part, self.out(out, varies, part), Step::Copy);
                }
            }
        }
    }

    /// Where this part of an output begins.
    #[inline(always)]
    unsafe fn out(&mut self, out: usize, varies: Variation, part: Part) -> *mut f32 {
        let row = part.row - self.rows.start;
        let at = if varies.by_column { row * self.program.width + part.column } else { row };
        // SAFETY: the output has all rows of the range.
        unsafe { self.outs[out].as_mut_ptr().add(at) }
    }

    /// Returns an argument's values: in place if possible, else copied to `slot`.
    #[inline(always)]
    unsafe fn arg(&self, shape: ArgShape, data: &ArgData<'_>, part: Part, slot: *mut f32) -> *const f32 {
        let columns = if shape.width > 1 { part.columns } else { 1 };
        let at = |row: usize| if shape.width > 1 { row * shape.width + part.column } else { row };
        if let (false, ArgData::F32(x)) = (shape.per_sequence, data) {
            // SAFETY: the argument has all rows of the range.
            return unsafe { x.as_ptr().add(at(part.row)) };
        }
        // SAFETY: rows x columns is at most BLOCK, and no other live value uses this slot.
        let to = unsafe { std::slice::from_raw_parts_mut(slot, part.rows * columns) };
        if shape.per_sequence {
            let mut sequence = self.offsets.partition_point(|&o| o <= part.row).saturating_sub(1);
            for (row, to) in (part.row..).zip(to.chunks_exact_mut(columns)) {
                while self.offsets[sequence + 1] <= row {
                    sequence += 1;
                }
                data.read(at(sequence), to);
            }
        } else {
            data.read(at(part.row), to);
        }
        slot
    }
}

#[derive(Clone, Copy)]
enum Step {
    Copy,
    Unary(Unary),
    Binary(Binary),
    Where,
}

/// Folds each row of the part to one value; the part has all columns. Returns where the results are.
#[inline(always)]
unsafe fn fold_rows<S: Simd>(fold: Fold, of: View, width: usize, part: Part, to: *mut f32) -> *const f32 {
    let rows = if of.varies.by_row { part.rows } else { 1 };
    for row in 0..rows {
        // SAFETY: a view covers this part, and `to` has room for a value of each row.
        unsafe {
            let value = if of.varies.by_column {
                fold_row::<S>(fold, std::slice::from_raw_parts(of.from.add(row * width), width))
            } else if fold == Fold::Sum {
                *of.from.add(row) * width as f32
            } else {
                *of.from.add(row)
            };
            *to.add(row) = value;
        }
    }
    to
}

/// Runs a step for the part: as one run where the operands allow it, else row by row. Returns where the result is.
#[inline(always)]
unsafe fn each_run<S: Simd, const A: usize>(
    args: [View; A],
    varies: Variation,
    part: Part,
    to: *mut f32,
    step: Step,
) -> *const f32 {
    let n = if varies.by_column { part.columns } else { 1 };
    let rows = if varies.by_row { part.rows } else { 1 };
    let splat = |x: f32| -> Splat { [x; 16] };
    // SAFETY: a view covers this part, and `to` has room for rows x n values.
    unsafe {
        let mut splats = [splat(0.0); A];
        let mut runs = [Run { from: std::ptr::null(), step: 0 }; A];
        let nowhere = |v: &View| !v.varies.by_row && !v.varies.by_column;
        if rows == 1 || n == 1 || args.iter().all(|v| v.varies == varies || nowhere(v)) {
            for (i, v) in args.iter().enumerate() {
                // in a part of one row, a value that varies by row only is a single value
                let single = (!v.varies.by_column || n == 1) && (!v.varies.by_row || rows == 1);
                if single {
                    splats[i] = splat(*v.from);
                    runs[i] = Run { from: splats[i].as_ptr(), step: 0 };
                } else {
                    runs[i] = Run { from: v.from, step: 1 };
                }
            }
            once::<S, A>(runs, to, rows * n, step);
            return to;
        }
        for row in 0..rows {
            for (i, v) in args.iter().enumerate() {
                let at = if v.varies.by_row { row } else { 0 };
                if v.varies.by_column {
                    runs[i] = Run { from: v.from.add(at * n), step: 1 };
                } else {
                    splats[i] = splat(*v.from.add(at));
                    runs[i] = Run { from: splats[i].as_ptr(), step: 0 };
                }
            }
            once::<S, A>(runs, to.add(row * n), n, step);
        }
        to
    }
}

/// Runs a step for one run of values.
#[inline(always)]
unsafe fn once<S: Simd, const A: usize>(runs: [Run; A], to: *mut f32, n: usize, step: Step) {
    // SAFETY: guaranteed by the caller; a step always has the number of operands that it takes.
    unsafe {
        match step {
            Step::Copy => copy::<S>(runs[0], to, n),
            Step::Unary(op) => unary::<S>(op, runs[0], to, n),
            Step::Binary(op) if A == 2 => binary::<S>(op, [runs[0], runs[A - 1]], to, n),
            Step::Where if A == 3 => choose::<S>([runs[0], runs[A / 2], runs[A - 1]], to, n),
            Step::Binary(_) | Step::Where => {}
        }
    }
}
