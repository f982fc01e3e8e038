//! The memory of one run: what a batch brings, the block in which the plan's values lie, and the outputs.

use std::marker::PhantomData;
use std::ops::Range;

use smallvec::SmallVec;

use crate::plan::{Arena, Plan, Size, ValueId};

/// What a batch brings for one input.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Float32.
    F32(&'a [f32]),
    /// Whole numbers of 64 bits.
    I64(&'a [i64]),
    /// Whole numbers of 32 bits.
    I32(&'a [i32]),
    /// True or false.
    Bool(&'a [bool]),
}

impl Input<'_> {
    /// How many elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::I64(data) => data.len(),
            Self::I32(data) => data.len(),
            Self::Bool(data) => data.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where a value of a plan lies in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// In the block, at its place in the arena.
    Block,
    /// It is the input at this place.
    Input(usize),
    /// It is the output at this place, the first one if it is several.
    Output(usize),
}

/// The home of every value.
pub(super) fn homes(plan: &Plan) -> Vec<Home> {
    let mut homes = vec![Home::Block; plan.values.len()];
    for (at, port) in plan.outputs.iter().enumerate().rev() {
        homes[port.value.0] = Home::Output(at);
    }
    for (at, port) in plan.inputs.iter().enumerate() {
        homes[port.value.0] = Home::Input(at);
    }
    homes
}

/// The values of one run.
pub(super) struct Memory<'a> {
    plan: &'a Plan,
    homes: &'a [Home],
    arena: &'a Arena,
    size: Size,
    inputs: &'a [Input<'a>],
    block: (*mut f32, usize),
    outputs: SmallVec<[(*mut f32, usize); 4]>,
    borrowed: PhantomData<&'a mut [f32]>,
}

// SAFETY: it is borrowed slices in other clothes; who reads or writes through it promises to keep apart
unsafe impl Sync for Memory<'_> {}
// SAFETY: the same
unsafe impl Send for Memory<'_> {}

impl<'a> Memory<'a> {
    /// Values lie as `arena` says in `block`, which is as long as it asks for; outputs in `outputs`, which are made as long as
    /// they must be.
    pub(super) fn new(
        plan: &'a Plan,
        homes: &'a [Home],
        arena: &'a Arena,
        size: Size,
        inputs: &'a [Input<'a>],
        block: &'a mut [f32],
        outputs: &'a mut [Vec<f32>],
    ) -> Self {
        let sized = plan.outputs.iter().zip(outputs).map(|(port, output)| {
            let value = plan.value(port.value);
            output.resize(size.rows(value.rows) * value.width, 0.0);
            (output.as_mut_ptr(), output.len())
        });
        let outputs = sized.collect();
        let block = (block.as_mut_ptr(), block.len());
        Self { plan, homes, arena, size, inputs, block, outputs, borrowed: PhantomData }
    }

    /// Where a value that the plan makes begins, and how many elements it has.
    fn own(&self, id: ValueId) -> (*mut f32, usize) {
        let value = self.plan.value(id);
        let count = self.size.rows(value.rows) * value.width;
        match (self.homes[id.0], self.arena.place(id)) {
            (Home::Output(at), _) => self.outputs[at],
            (Home::Block, Some(place)) => {
                let (begin, length) = self.block;
                assert!(place.offset % 4 == 0 && place.offset / 4 + count <= length, "a value lies outside of the block");
                (begin.wrapping_add(place.offset / 4), count)
            }
            _ => (std::ptr::NonNull::dangling().as_ptr(), 0),
        }
    }

    /// A value of float32; empty where it is none.
    ///
    /// # Safety
    ///
    /// Nothing writes the value while the slice lives.
    pub(super) unsafe fn read(&self, id: ValueId) -> &[f32] {
        if let Home::Input(at) = self.homes[id.0] {
            return if let Input::F32(data) = self.inputs[at] { data } else { &[] };
        }
        let (begin, count) = self.own(id);
        // SAFETY: the place lies in a slice that this borrows; the caller sees to it that nobody writes there
        unsafe { std::slice::from_raw_parts(begin, count) }
    }

    /// A value of any type.
    ///
    /// # Safety
    ///
    /// Nothing writes the value while the slice lives.
    pub(super) unsafe fn any(&self, id: ValueId) -> Input<'_> {
        match self.homes[id.0] {
            Home::Input(at) => self.inputs[at],
            // SAFETY: as the caller promises
            _ => Input::F32(unsafe { self.read(id) }),
        }
    }

    /// Some rows of a value that is being made.
    ///
    /// # Safety
    ///
    /// Nothing else reads or writes these rows, or what shares their place, while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "values lie apart from one another; the caller promises that these rows are its own")]
    pub(super) unsafe fn write(&self, id: ValueId, rows: Range<usize>) -> &mut [f32] {
        let (begin, count) = self.own(id);
        let width = self.plan.value(id).width;
        let (from, to) = (rows.start * width, rows.end * width);
        assert!(from <= to && to <= count, "rows lie outside of the value");
        // SAFETY: the rows lie in the value, as was just checked, and that in a slice that this borrows alone; the caller sees
        // to it that nobody else is there
        unsafe { std::slice::from_raw_parts_mut(begin.wrapping_add(from), to - from) }
    }
}
