//! Numbers of an answer that stand by their labels: `{"cat": 0.9, "dog": 0.1}`, or as a list in any order,
//! `[{"label": "cat", "score": 0.9}, …]`, one of either for each row. They become rows with an element for each label.

use rustc_hash::FxHashMap;

use super::document::DocumentValue;
use super::element::{ElementType, Number, float_bytes};
use super::nested::{ListPlace, NestedFault, NestedTensor, walk};
use crate::outputs::paths::ValuePath;

/// The numbers at `path` by these labels, in the order of the labels. `element` is a float's type.
///
/// # Errors
///
/// [`NestedFault`]: a label is missing, unknown or there twice.
pub(crate) fn read_labelled(
    root: DocumentValue<'_>,
    path: &ValuePath,
    labels: &[String],
    element: ElementType,
) -> Result<NestedTensor, NestedFault> {
    let places: FxHashMap<&str, usize> = labels.iter().enumerate().map(|(place, label)| (label.as_str(), place)).collect();
    let (mut values, mut row, mut has_objects) = (Vec::new(), Row::new(labels.len()), false);
    let mut shape = walk(root, path, |value, at| {
        let refused = || NestedFault::Labels(at.clone());
        let number = |value: DocumentValue<'_>| value.number().map(Number::as_f64);
        match (value.get_text("label"), value.get("score")) {
            (Some(label), Some(score)) if !has_objects => {
                row.put(places.get(label).copied(), number(score)).ok_or_else(refused)?
            }
            _ if row.taken == 0 => {
                has_objects = true;
                for (label, value) in value.members().ok_or_else(refused)? {
                    row.put(places.get(label).copied(), number(value)).ok_or_else(refused)?;
                }
                if row.taken < labels.len() {
                    return Err(refused());
                }
            }
            _ => return Err(refused()),
        }
        if row.taken == labels.len() {
            values.extend(row.elements.iter_mut().filter_map(Option::take));
            row.taken = 0;
        }
        Ok(())
    })?;
    if has_objects {
        shape.push(labels.len());
    } else if row.taken > 0 || shape.last() != Some(&labels.len()) {
        return Err(NestedFault::Labels(ListPlace::default()));
    }
    let stored = if element == ElementType::Fp64 { element } else { ElementType::Fp32 };
    Ok(NestedTensor { shape, stored, data: float_bytes(stored, values) })
}

/// A row that is not full yet.
struct Row {
    elements: Vec<Option<f64>>,
    taken: usize,
}

impl Row {
    fn new(width: usize) -> Self {
        Self { elements: vec![None; width], taken: 0 }
    }

    /// Takes an element; `None` if there is no such place, or number, or it is taken.
    fn put(&mut self, place: Option<usize>, number: Option<f64>) -> Option<()> {
        let element = self.elements.get_mut(place?)?;
        let is_free = element.replace(number?).is_none();
        self.taken += usize::from(is_free);
        is_free.then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Document;
    use super::*;

    fn read(document: &str, path: &str) -> Result<(Vec<usize>, Vec<f64>), String> {
        let document = Document::parse(document.as_bytes()).unwrap();
        let labels = ["cat".to_owned(), "dog".to_owned()];
        let path = ValuePath::parse(path).unwrap();
        let read = read_labelled(document.root(), &path, &labels, ElementType::Fp64).map_err(|fault| fault.to_string())?;
        Ok((read.shape, (0..read.data.len() / 8).map(|at| ElementType::Fp64.read(&read.data, at).as_f64()).collect()))
    }

    #[test]
    fn numbers_stand_by_their_labels() {
        for (document, path, shape) in [
            (r#"{"p": {"cat": 0.25, "dog": 0.75}}"#, "$.p", &[2][..]),
            (r#"[{"p": {"dog": 0.75, "cat": 0.25}}]"#, "$[].p", &[1, 2]),
            (r#"[{"label": "dog", "score": 0.75}, {"score": 0.25, "label": "cat"}]"#, "$", &[2]),
            (r#"[[{"label": "dog", "score": 0.75}, {"label": "cat", "score": 0.25}]]"#, "$", &[1, 2]),
        ] {
            assert_eq!(read(document, path), Ok((shape.to_vec(), vec![0.25, 0.75])), "{document}");
        }
        for (document, expected) in [
            (r#"{"cat": 0.25}"#, "does not have each label once, with a number"),
            (r#"{"cat": 0.25, "cow": 0.75}"#, "does not have"),
            (r#"{"cat": 0.25, "dog": 0.5, "cow": 0.25}"#, "does not have"),
            (r#"[{"label": "dog", "score": 0.75}]"#, "does not have"),
            (r#"[{"label": "dog", "score": 0.75}, {"label": "dog", "score": 0.25}]"#, "does not have"),
            (
                r#"[{"label": "dog", "score": 0.75}, {"label": "cow", "score": 0.25}]"#,
                "does not have each label once, with a number at [1]",
            ),
            (r#"[{"label": "dog", "score": 0.75}, {"cat": 0.25, "dog": 0.75}]"#, "does not have"),
            (r#"{"cat": "secret", "dog": 0.75}"#, "does not have"),
            (r#"[[{"label": "dog", "score": 0.75}], [{"label": "cat", "score": 0.25}]]"#, "does not have"),
            ("[1, 2]", "does not have"),
            ("[]", "does not have"),
        ] {
            let said = read(document, "$").unwrap_err();
            assert!(said.starts_with(expected) && !said.contains("secret"), "{document}: {said}");
        }
    }
}
