//! The inputs and outputs that a model declares, and how the lists of a document fit their shape.

use super::element::ElementType;

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPort {
    /// Its name in the model.
    pub name: String,
    pub(crate) element: ElementType,
    /// Lengths of its axes; `None` where a request chooses.
    shape: Vec<Option<usize>>,
}

impl TensorPort {
    /// A port of this datatype, by the name that the Open Inference Protocol has for it; `None` if it has none.
    #[must_use]
    pub fn new(name: String, datatype: &str, shape: Vec<Option<usize>>) -> Option<Self> {
        Some(Self { name, element: ElementType::parse(datatype)?, shape })
    }

    /// A port of this type.
    pub(crate) const fn of(name: String, element: ElementType, shape: Vec<Option<usize>>) -> Self {
        Self { name, element, shape }
    }

    /// The lengths of its axes; `None` where a request chooses.
    #[must_use]
    pub fn axes(&self) -> &[Option<usize>] {
        &self.shape
    }

    /// The protocol's name of its datatype.
    #[must_use]
    pub fn datatype(&self) -> &'static str {
        self.element.name()
    }

    /// The bytes of an element as it is sent; `None` for texts, each of which stands after its length in four bytes.
    #[must_use]
    pub const fn element_bytes(&self) -> Option<usize> {
        self.element.bytes()
    }

    /// The lengths of the axes of a tensor with this many elements along its own, in the model's order. Axes of length 1 may be missing
    /// or too many: they are put where the model's shape has them, else before the others, as in a batch of one. `None` if the tensor
    /// does not fit.
    #[must_use]
    pub fn fit(&self, shape: &[usize]) -> Option<Vec<usize>> {
        let is_fit = |(want, got): (&Option<usize>, &usize)| want.is_none_or(|want| want == *got);
        if shape.len() == self.shape.len() {
            return self.shape.iter().zip(shape).all(is_fit).then(|| shape.to_vec());
        }
        let mut given = shape.iter().copied().filter(|length| *length != 1);
        let needed = self.shape.iter().filter(|length| **length != Some(1)).count();
        let mut missing = needed.checked_sub(given.clone().count())?;
        let axis = |wanted: &Option<usize>| match wanted {
            Some(1) => Some(1),
            None if missing > 0 => {
                missing -= 1;
                Some(1)
            }
            wanted => given.next().filter(|length| wanted.is_none_or(|wanted| wanted == *length)),
        };
        let fitted: Vec<usize> = self.shape.iter().map(axis).collect::<Option<_>>()?;
        (missing == 0 && given.next().is_none()).then_some(fitted)
    }

    /// Its shape as the protocol writes it: `[-1, 64]`.
    #[must_use]
    pub fn shown_shape(&self) -> String {
        let length = |length: &Option<usize>| length.map_or("-1".to_owned(), |length| length.to_string());
        format!("[{}]", self.shape.iter().map(length).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_of_length_one_may_be_left_out() {
        let fit =
            |port: &[Option<usize>], shape: &[usize]| TensorPort::new("x".into(), "FP32", port.to_vec()).unwrap().fit(shape);
        let rows = [None, Some(3)];
        for (port, given, expected) in [
            (&rows[..], &[5, 3][..], Some(&[5, 3][..])),
            (&rows, &[3], Some(&[1, 3])),
            (&rows, &[1, 5, 3], Some(&[5, 3])),
            (&rows, &[5, 3, 1], Some(&[5, 3])),
            (&rows, &[5, 4], None),
            (&rows, &[5], None),
            (&rows, &[2, 5, 3], None),
            (&rows, &[], None),
            (&[None, Some(1)], &[5], Some(&[5, 1])),
            (&[None, Some(1)], &[], Some(&[1, 1])),
            (&[None, None], &[5], Some(&[1, 5])),
            (&[None], &[5, 1], Some(&[5])),
            (&[], &[], Some(&[])),
            (&[], &[1, 1], Some(&[])),
            (&[], &[2], None),
        ] {
            assert_eq!(fit(port, given).as_deref(), expected, "{port:?} {given:?}");
        }
    }
}
