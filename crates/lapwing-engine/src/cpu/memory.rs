//! The memory of one run: the batch's inputs, the arena block that holds the plan's values, and the outputs.

use std::marker::PhantomData;
use std::ops::Range;

use smallvec::SmallVec;

use lapwing_plan::exec::Input;
use lapwing_plan::plan::{Arena, BatchSize, Plan, ValueId};

/// Where the executor stores a value of the plan, the same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueLocation {
    /// In the arena block, at the offset that the arena assigned.
    Block,
    /// It is the input with this index.
    Input(usize),
    /// It is the output with this index; the first such index if several outputs name it.
    Output(usize),
}

/// The location of every value.
pub(crate) fn locations(plan: &Plan) -> Vec<ValueLocation> {
    let mut locations = vec![ValueLocation::Block; plan.values.len()];
    for (at, port) in plan.outputs.iter().enumerate().rev() {
        locations[port.value.0] = ValueLocation::Output(at);
    }
    for (at, port) in plan.inputs.iter().enumerate() {
        locations[port.value.0] = ValueLocation::Input(at);
    }
    locations
}

/// The values of one run.
pub(crate) struct Memory<'a> {
    plan: &'a Plan,
    locations: &'a [ValueLocation],
    arena: &'a Arena,
    size: BatchSize,
    inputs: &'a [Input<'a>],
    block: (*mut f32, usize),
    outputs: SmallVec<[(*mut f32, usize); 4]>,
    borrowed: PhantomData<&'a mut [f32]>,
}

// SAFETY: equivalent to borrowed slices; callers of `read` and `write` guarantee that accesses do not overlap
unsafe impl Sync for Memory<'_> {}
// SAFETY: as above
unsafe impl Send for Memory<'_> {}

impl<'a> Memory<'a> {
    /// Values lie in `block` at the offsets of `arena`; `block` has the length that the arena requires. `outputs` are
    /// resized to the batch.
    pub(crate) fn new(
        plan: &'a Plan,
        locations: &'a [ValueLocation],
        arena: &'a Arena,
        size: BatchSize,
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
        Self { plan, locations, arena, size, inputs, block, outputs, borrowed: PhantomData }
    }

    /// Where a computed value begins, and how many elements it has.
    fn own(&self, id: ValueId) -> (*mut f32, usize) {
        let value = self.plan.value(id);
        let count = self.size.rows(value.rows) * value.width;
        match (self.locations[id.0], self.arena.place(id)) {
            (ValueLocation::Output(at), _) => self.outputs[at],
            (ValueLocation::Block, Some(place)) => {
                let (begin, length) = self.block;
                assert!(place.offset % 4 == 0 && place.offset / 4 + count <= length, "a value lies outside of the block");
                (begin.wrapping_add(place.offset / 4), count)
            }
            _ => (std::ptr::NonNull::dangling().as_ptr(), 0),
        }
    }

    /// A float32 value; empty if the value has another type.
    ///
    /// # Safety
    ///
    /// The value is not written while the slice lives.
    pub(crate) unsafe fn read(&self, id: ValueId) -> &[f32] {
        if let ValueLocation::Input(at) = self.locations[id.0] {
            return if let Input::F32(data) = self.inputs[at] { data } else { &[] };
        }
        let (begin, count) = self.own(id);
        // SAFETY: the range lies in a slice that this borrows; the caller guarantees that no code writes it
        unsafe { std::slice::from_raw_parts(begin, count) }
    }

    /// A value of any type.
    ///
    /// # Safety
    ///
    /// The value is not written while the slice lives.
    pub(crate) unsafe fn any(&self, id: ValueId) -> Input<'_> {
        match self.locations[id.0] {
            ValueLocation::Input(at) => self.inputs[at],
            // SAFETY: guaranteed by the caller
            _ => Input::F32(unsafe { self.read(id) }),
        }
    }

    /// Some rows of a value that is being computed.
    ///
    /// # Safety
    ///
    /// No other code reads or writes these rows, or values that share their memory, while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "values do not overlap; the caller guarantees exclusive access to these rows")]
    pub(crate) unsafe fn write(&self, id: ValueId, rows: Range<usize>) -> &mut [f32] {
        let (begin, count) = self.own(id);
        let width = self.plan.value(id).width;
        let (from, to) = (rows.start * width, rows.end * width);
        assert!(from <= to && to <= count, "rows lie outside of the value");
        // SAFETY: the rows lie in the value, as checked above, and the value lies in a slice that this borrows; the
        // caller guarantees exclusive access
        unsafe { std::slice::from_raw_parts_mut(begin.wrapping_add(from), to - from) }
    }
}
