//! What a kernel is given: the fields of its structure in kernels/args.cu, in that order. Memory is named by region and offset
//! until a program is bound to a device's memory.

use super::layout::Kind;

/// A piece of memory that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// The model's numbers.
    Weights,
    /// What nodes make, and what they need for themselves.
    Arena,
    /// The batch's header, then its inputs.
    Inputs,
    /// The batch's outputs.
    Outputs,
    /// The words by which the host is told: see [`Control`].
    Control,
    /// The word in which blocks that are done are counted.
    Counter,
}

/// Words of [`Region::Control`].
#[derive(Debug)]
pub struct Control;

impl Control {
    /// 1 when the last kernel is done.
    pub const FLAG: usize = 0;
    /// Four words of an id that a table does not have: 1 + node, table, row, id.
    pub const FAULT: usize = 16;
    /// So many words there are.
    pub const WORDS: usize = 32;
}

/// A place in a region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Which memory.
    pub region: Region,
    /// From its beginning.
    pub offset: usize,
}

impl Address {
    /// A place.
    #[must_use]
    pub const fn new(region: Region, offset: usize) -> Self {
        Self { region, offset }
    }
}

/// A matrix in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mat {
    /// Where it begins.
    pub at: Address,
    /// Elements from row to row.
    pub stride: usize,
    /// What they are.
    pub kind: Kind,
}

/// One field of a structure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field {
    /// 8 bytes; `None` is null.
    Pointer(Option<Address>),
    /// 4 bytes.
    I32(i32),
    /// 4 bytes.
    F32(f32),
    /// Two pointers: those of the last kernel, or null.
    Tail,
}

/// A structure's fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Args {
    fields: Vec<Field>,
}

/// Where regions begin on a device; addresses as the device sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bases {
    /// Of [`Region::Weights`].
    pub weights: u64,
    /// Of [`Region::Arena`].
    pub arena: u64,
    /// Of [`Region::Inputs`].
    pub inputs: u64,
    /// Of [`Region::Outputs`].
    pub outputs: u64,
    /// Of [`Region::Control`].
    pub control: u64,
    /// Of [`Region::Counter`].
    pub counter: u64,
}

impl Bases {
    /// The address of a place.
    #[must_use]
    pub const fn at(&self, address: Address) -> u64 {
        let base = match address.region {
            Region::Weights => self.weights,
            Region::Arena => self.arena,
            Region::Inputs => self.inputs,
            Region::Outputs => self.outputs,
            Region::Control => self.control,
            Region::Counter => self.counter,
        };
        base + address.offset as u64
    }
}

impl Args {
    /// The fields.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// A pointer.
    #[must_use]
    pub fn pointer(mut self, address: Option<Address>) -> Self {
        self.fields.push(Field::Pointer(address));
        self
    }

    /// A matrix, or none.
    #[must_use]
    pub fn mat(self, mat: Option<Mat>) -> Self {
        let (stride, kind) = mat.map_or((0, 0), |mat| (mat.stride, mat.kind as i32));
        self.pointer(mat.map(|mat| mat.at)).int(stride).whole(kind)
    }

    /// How many rows there are: `which` word of the header, or a number.
    #[must_use]
    pub fn rows(self, header: Option<Address>, which: usize, fixed: usize) -> Self {
        self.pointer(header).int(which).int(fixed)
    }

    /// A number; one beyond 2³¹ is none that a kernel can count to, and was refused before.
    #[must_use]
    pub fn int(self, number: usize) -> Self {
        self.whole(i32::try_from(number).unwrap_or(i32::MAX))
    }

    /// A number that may be below zero.
    #[must_use]
    pub fn whole(mut self, number: i32) -> Self {
        self.fields.push(Field::I32(number));
        self
    }

    /// A number that is none of these.
    #[must_use]
    pub fn float(mut self, number: f32) -> Self {
        self.fields.push(Field::F32(number));
        self
    }

    /// The pointers of the last kernel.
    #[must_use]
    pub fn tail(mut self) -> Self {
        self.fields.push(Field::Tail);
        self
    }

    /// The structure's bytes; `is_last` where this is the kernel that tells the host.
    #[must_use]
    pub fn bytes(&self, bases: &Bases, is_last: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 * self.fields.len());
        for field in &self.fields {
            match *field {
                Field::Pointer(address) => wide(&mut bytes, address.map_or(0, |address| bases.at(address))),
                Field::I32(number) => bytes.extend(number.to_le_bytes()),
                Field::F32(number) => bytes.extend(number.to_le_bytes()),
                Field::Tail => {
                    let flag = Address::new(Region::Control, 4 * Control::FLAG);
                    let counter = Address::new(Region::Counter, 0);
                    for address in [flag, counter] {
                        wide(&mut bytes, if is_last { bases.at(address) } else { 0 });
                    }
                }
            }
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }
}

/// Eight bytes, at a multiple of eight.
fn wide(bytes: &mut Vec<u8>, word: u64) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(word.to_le_bytes());
}
