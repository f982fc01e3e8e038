//! The memory layout of a program: inputs after the header, the wanted outputs one after another, and everything else
//! in the arena.

use std::collections::BTreeSet;

use crate::gpu::Capacity;
use crate::gpu::layout::{Kind, StoredValue};
use lapwing_plan::plan::{Arena, Plan, PlanPort, ValueId};

/// Fixed words at the beginning of the header, before its lists.
pub const HEADER_WORDS: usize = 8;
/// The most sequences (or rows of a table) in a batch.
pub const MOST_SEQUENCES: usize = 65_535;
/// Size in bytes of the header of batches up to this size, rounded up to a multiple of 256.
#[must_use]
pub const fn header_bytes(capacity: Capacity) -> usize {
    (4 * (HEADER_WORDS + 2 * (capacity.batch + 1))).next_multiple_of(256)
}

/// The location of an input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSlot {
    /// Bytes from the beginning of the region.
    pub offset: usize,
    /// Elements of a row.
    pub width: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// The type of the elements.
    pub kind: Kind,
}

/// The memory layout of a program.
#[derive(Clone, Debug)]
pub struct MemoryLayout {
    /// The nodes' results.
    pub arena: Arena,
    /// For each output that is computed only because another one depends on it: its offset after the arena.
    pub unwanted: Vec<Option<usize>>,
    /// Total size of these, in bytes.
    pub unwanted_bytes: usize,
    /// The nodes' scratch memory after them, in bytes; nodes use it one at a time.
    pub scratch: usize,
    /// The location of each input.
    pub inputs: Vec<PortSlot>,
    /// Size of the header and all inputs, in bytes.
    pub input_bytes: usize,
    /// The location of each wanted output; an output under a second name has the location of the first.
    pub outputs: Vec<PortSlot>,
    /// Total size of the wanted outputs, in bytes.
    pub output_bytes: usize,
}

impl MemoryLayout {
    /// Lays out the values of the needed nodes.
    #[must_use]
    pub fn new(plan: &Plan, stored: &[StoredValue], capacity: Capacity, needed: &BTreeSet<usize>, wanted: &[bool]) -> Self {
        let bytes = |id: ValueId| {
            let is_made = needed.iter().any(|at| plan.nodes[*at].output == id);
            if is_made { stored[id.0].bytes(capacity.rows(plan.value(id).rows)) } else { 0 }
        };
        let arena = Arena::sized(plan, bytes);
        let (inputs, input_bytes) = line(plan, &plan.inputs, stored, capacity, header_bytes(capacity), |_| true);
        let is_wanted = |id: ValueId| plan.outputs.iter().zip(wanted).any(|(port, wanted)| *wanted && port.value == id);
        let (outputs, output_bytes) = line(plan, &plan.outputs, stored, capacity, 0, is_wanted);
        let mut unwanted_bytes = 0;
        let unwanted = plan.outputs.iter().map(|port| {
            (!is_wanted(port.value)).then(|| {
                unwanted_bytes += bytes(port.value);
                unwanted_bytes - bytes(port.value)
            })
        });
        let unwanted = unwanted.collect();
        Self { arena, unwanted, unwanted_bytes, scratch: 0, inputs, input_bytes, outputs, output_bytes }
    }

    /// The offset of the scratch memory in the arena region.
    #[must_use]
    pub const fn scratch_from(&self) -> usize {
        self.arena.bytes() + self.unwanted_bytes
    }

    /// Size of the arena region in bytes, scratch included.
    #[must_use]
    pub const fn arena_bytes(&self) -> usize {
        self.scratch_from() + self.scratch
    }
}

/// Lays out ports one after another; ports that `is_in` excludes take no space.
fn line(
    plan: &Plan,
    ports: &[PlanPort],
    stored: &[StoredValue],
    capacity: Capacity,
    from: usize,
    is_in: impl Fn(ValueId) -> bool,
) -> (Vec<PortSlot>, usize) {
    let mut end = from;
    let mut slots: Vec<PortSlot> = Vec::with_capacity(ports.len());
    for (at, port) in ports.iter().enumerate() {
        if let Some(first) = ports[..at].iter().position(|other| other.value == port.value) {
            slots.push(slots[first]);
            continue;
        }
        let (value, how) = (plan.value(port.value), stored[port.value.0]);
        slots.push(PortSlot { offset: end, width: value.width, stride: how.stride, kind: how.kind });
        if is_in(port.value) {
            end += how.bytes(capacity.rows(value.rows));
        }
    }
    (slots, end)
}
