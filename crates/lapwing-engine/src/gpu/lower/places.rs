//! Where a program's values lie: inputs behind the header, outputs that are wanted one behind another, and all else in the arena.

use std::collections::BTreeSet;

use super::header_bytes;
use crate::gpu::Capacity;
use crate::gpu::layout::{Kind, Stored};
use crate::plan::{Arena, Plan, Port, ValueId};

/// An input's or output's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// From the region's beginning, in bytes.
    pub offset: usize,
    /// Elements of a row.
    pub width: usize,
    /// Elements from row to row.
    pub stride: usize,
    /// What they are.
    pub kind: Kind,
}

/// The places of a program.
#[derive(Clone, Debug)]
pub struct Places {
    /// Of what nodes make.
    pub arena: Arena,
    /// Of each output that nobody wants, but that is made for another one: its place behind the arena.
    pub unwanted: Vec<Option<usize>>,
    /// Bytes of these.
    pub unwanted_bytes: usize,
    /// Bytes behind them that nodes need for themselves, one at a time.
    pub scratch: usize,
    /// Of each input.
    pub inputs: Vec<Slot>,
    /// Bytes of the header and all inputs.
    pub input_bytes: usize,
    /// Of each output that is wanted; one that has two names has its first one's.
    pub outputs: Vec<Slot>,
    /// Bytes of all that are wanted.
    pub output_bytes: usize,
}

impl Places {
    /// Lays out the values of the nodes that are needed.
    #[must_use]
    pub fn new(plan: &Plan, stored: &[Stored], capacity: Capacity, needed: &BTreeSet<usize>, wanted: &[bool]) -> Self {
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

    /// Where in the arena nodes have what they need for themselves.
    #[must_use]
    pub const fn scratch_from(&self) -> usize {
        self.arena.bytes() + self.unwanted_bytes
    }

    /// Bytes of the arena with what nodes need for themselves.
    #[must_use]
    pub const fn arena_bytes(&self) -> usize {
        self.scratch_from() + self.scratch
    }
}

/// Ports one behind another; those that are not in have no room.
fn line(
    plan: &Plan,
    ports: &[Port],
    stored: &[Stored],
    capacity: Capacity,
    from: usize,
    is_in: impl Fn(ValueId) -> bool,
) -> (Vec<Slot>, usize) {
    let mut end = from;
    let mut slots: Vec<Slot> = Vec::with_capacity(ports.len());
    for (at, port) in ports.iter().enumerate() {
        if let Some(first) = ports[..at].iter().position(|other| other.value == port.value) {
            slots.push(slots[first]);
            continue;
        }
        let (value, how) = (plan.value(port.value), stored[port.value.0]);
        slots.push(Slot { offset: end, width: value.width, stride: how.stride, kind: how.kind });
        if is_in(port.value) {
            end += how.bytes(capacity.rows(value.rows));
        }
    }
    (slots, end)
}
