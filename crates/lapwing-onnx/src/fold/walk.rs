//! The places of elements that are read in another order than they lie in.

/// Goes over the elements of a shape in row-major order, each axis with a stride of its own in what is read.
pub(crate) struct Walk {
    shape: Vec<usize>,
    strides: Vec<isize>,
    at: Vec<usize>,
    place: isize,
    left: usize,
}

impl Walk {
    /// From `start`, with these strides.
    pub(crate) fn new(shape: &[usize], strides: Vec<isize>, start: isize) -> Self {
        let left = shape.iter().product();
        Self { shape: shape.to_vec(), strides, at: vec![0; shape.len()], place: start, left }
    }

    /// Over `out`, to which what has the shape `from` is broadcast.
    pub(crate) fn broadcast(from: &[usize], out: &[usize]) -> Self {
        let own = strides(from);
        let added = out.len().saturating_sub(from.len());
        let stride = |at: usize| match at.checked_sub(added) {
            Some(at) if from[at] != 1 => own[at],
            _ => 0,
        };
        Self::new(out, (0..out.len()).map(stride).collect(), 0)
    }
}

/// The strides of a shape in row-major order.
pub(crate) fn strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at] as isize;
    }
    strides
}

impl Iterator for Walk {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let place = usize::try_from(self.place).ok();
        for axis in (0..self.shape.len()).rev() {
            self.at[axis] += 1;
            self.place += self.strides[axis];
            if self.at[axis] < self.shape[axis] {
                break;
            }
            self.place -= self.strides[axis] * self.shape[axis] as isize;
            self.at[axis] = 0;
        }
        place
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
