//! Kernel arguments: the fields of a kernel's parameter struct in kernels/args.cu, in the same order. Memory is named
//! by region and offset until a program is bound to a device's memory.

use super::layout::Kind;

/// A memory region that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// The model's weights.
    Weights,
    /// The nodes' results, and their scratch.
    Arena,
    /// The batch's header, then its inputs.
    Inputs,
    /// The batch's outputs.
    Outputs,
    /// Words in host memory through which the device reports to the host: see [`Control`].
    Control,
    /// The counter of finished thread blocks.
    Counter,
}

/// The layout of [`Region::Control`], in words.
#[derive(Debug)]
pub struct Control;

impl Control {
    /// Set to 1 when the last kernel is done.
    pub const FLAG: usize = 0;
    /// Four words that describe an id outside of its table: 1 + node, table, row, id.
    pub const FAULT: usize = 16;
    /// Total number of words.
    pub const WORDS: usize = 32;
}

/// A location in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The region.
    pub region: Region,
    /// Bytes from its beginning.
    pub offset: usize,
}

impl Address {
    /// A location.
    #[must_use]
    pub const fn new(region: Region, offset: usize) -> Self {
        Self { region, offset }
    }
}

/// A matrix in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixRef {
    /// Its first element.
    pub at: Address,
    /// Elements from one row to the next.
    pub stride: usize,
    /// The type of its elements.
    pub kind: Kind,
}

/// One field of a parameter struct.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgField {
    /// 8 bytes; `None` is null.
    Pointer(Option<Address>),
    /// 4 bytes.
    I32(i32),
    /// 4 bytes.
    F32(f32),
    /// Two pointers (control words and block counter): set for the last kernel, else null.
    Tail,
}

/// The fields of a parameter struct.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelArgs {
    fields: Vec<ArgField>,
}

/// The base addresses of the regions, as the device sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BaseAddresses {
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

impl BaseAddresses {
    /// The device address of a location.
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

impl KernelArgs {
    /// The fields.
    #[must_use]
    pub fn fields(&self) -> &[ArgField] {
        &self.fields
    }

    /// Adds a pointer.
    #[must_use]
    pub fn pointer(mut self, address: Option<Address>) -> Self {
        self.fields.push(ArgField::Pointer(address));
        self
    }

    /// Adds a matrix (pointer, stride and type), or a null matrix.
    #[must_use]
    pub fn mat(self, mat: Option<MatrixRef>) -> Self {
        let (stride, kind) = mat.map_or((0, 0), |mat| (mat.stride, mat.kind as i32));
        self.pointer(mat.map(|mat| mat.at)).int(stride).whole(kind)
    }

    /// Adds the number of rows: read from word `which` of the header, or `fixed`.
    #[must_use]
    pub fn rows(self, header: Option<Address>, which: usize, fixed: usize) -> Self {
        self.pointer(header).int(which).int(fixed)
    }

    /// Adds an integer. Values of 2³¹ and above never occur: such plans were rejected before.
    #[must_use]
    pub fn int(self, number: usize) -> Self {
        self.whole(i32::try_from(number).unwrap_or(i32::MAX))
    }

    /// Adds a signed integer.
    #[must_use]
    pub fn whole(mut self, number: i32) -> Self {
        self.fields.push(ArgField::I32(number));
        self
    }

    /// Adds a float.
    #[must_use]
    pub fn float(mut self, number: f32) -> Self {
        self.fields.push(ArgField::F32(number));
        self
    }

    /// Adds the pointers of the last kernel.
    #[must_use]
    pub fn tail(mut self) -> Self {
        self.fields.push(ArgField::Tail);
        self
    }

    /// Serialises the struct; `is_last` for the kernel that notifies the host.
    #[must_use]
    pub fn bytes(&self, bases: &BaseAddresses, is_last: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 * self.fields.len());
        for field in &self.fields {
            match *field {
                ArgField::Pointer(address) => wide(&mut bytes, address.map_or(0, |address| bases.at(address))),
                ArgField::I32(number) => bytes.extend(number.to_le_bytes()),
                ArgField::F32(number) => bytes.extend(number.to_le_bytes()),
                ArgField::Tail => {
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

/// Appends eight bytes, aligned to eight.
fn wide(bytes: &mut Vec<u8>, word: u64) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(word.to_le_bytes());
}
