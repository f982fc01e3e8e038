//! The memory of one run: what a batch brings, the block in which the plan's values lie, and the outputs.

use crate::engine::plan::{Arena, Plan, Size, ValueId};

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

/// Where every value of one run lies.
pub(super) struct Memory<'a> {
    slots: Vec<Slot<'a>>,
}

#[derive(Clone, Copy)]
enum Slot<'a> {
    None,
    Input(Input<'a>),
    /// Begins there, with so many elements.
    Own(*mut f32, usize),
}

impl<'a> Memory<'a> {
    /// Lays values out as `arena` says, in `block`; outputs in `outputs`, which are made as long as they must be.
    pub(super) fn new(
        plan: &Plan,
        arena: &Arena,
        size: Size,
        inputs: &[Input<'a>],
        block: &'a mut [f32],
        outputs: &'a mut [Vec<f32>],
    ) -> Self {
        let elements = |id: ValueId| size.rows(plan.value(id).rows) * plan.value(id).width;
        let mut slots = vec![Slot::None; plan.values.len()];
        for (port, input) in plan.inputs.iter().zip(inputs) {
            slots[port.value.0] = Slot::Input(*input);
        }
        let begin = block.as_mut_ptr();
        for (id, slot) in slots.iter_mut().enumerate() {
            let Some(place) = arena.place(ValueId(id)) else { continue };
            let count = elements(ValueId(id));
            assert!(place.offset % 4 == 0 && place.offset / 4 + count <= block.len(), "a value lies outside of the block");
            // SAFETY: the place begins inside of the block, as was just checked
            *slot = Slot::Own(unsafe { begin.add(place.offset / 4) }, count);
        }
        for (port, output) in plan.outputs.iter().zip(outputs) {
            output.resize(elements(port.value), 0.0);
            slots[port.value.0] = Slot::Own(output.as_mut_ptr(), output.len());
        }
        Self { slots }
    }

    /// A value of float32; empty where it is none.
    ///
    /// # Safety
    ///
    /// Nothing writes the value while the slice lives.
    pub(super) unsafe fn read(&self, id: ValueId) -> &[f32] {
        match self.slots[id.0] {
            Slot::Input(Input::F32(data)) => data,
            // SAFETY: the place lies in a block that this borrows; the caller sees to it that nobody writes there
            Slot::Own(begin, count) => unsafe { std::slice::from_raw_parts(begin, count) },
            _ => &[],
        }
    }

    /// A value of any type.
    ///
    /// # Safety
    ///
    /// Nothing writes the value while the slice lives.
    pub(super) unsafe fn any(&self, id: ValueId) -> Input<'_> {
        match self.slots[id.0] {
            Slot::Input(input) => input,
            // SAFETY: as the caller promises
            _ => Input::F32(unsafe { self.read(id) }),
        }
    }

    /// A value that is being made.
    ///
    /// # Safety
    ///
    /// Nothing else reads or writes the value, or one that shares its place, while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "values lie apart from one another; the caller promises that this one is its own")]
    pub(super) unsafe fn write(&self, id: ValueId) -> &mut [f32] {
        match self.slots[id.0] {
            // SAFETY: the place lies in a block that this borrows alone; the caller sees to it that nobody else is there
            Slot::Own(begin, count) => unsafe { std::slice::from_raw_parts_mut(begin, count) },
            _ => &mut [],
        }
    }
}
