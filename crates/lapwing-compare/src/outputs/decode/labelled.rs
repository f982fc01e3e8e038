//! Numbers of an answer that stand by their labels: `{"cat": 0.9, "dog": 0.1}`, or as a list in any order,
//! `[{"label": "cat", "score": 0.9}, …]`, one of either for each row. They become rows with an element for each label.

use super::document::DocumentValue;
use super::element::{ElementType, float_bytes};
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
    let (mut values, mut scored): (Vec<f64>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut has_rows = false;
    let mut shape = walk(root, path, |value, at| {
        let refused = || NestedFault::Labels(at.clone());
        let number = |value: DocumentValue<'_>| value.number().map(super::Number::as_f64).ok_or_else(refused);
        let members = value.members().ok_or_else(refused)?.count();
        match (value.get_text("label"), value.get("score")) {
            (Some(label), Some(score)) if !has_rows => {
                scored.push(labels.iter().position(|own| own == label).ok_or_else(refused)?);
                values.push(number(score)?);
            }
            _ if members == labels.len() && scored.is_empty() => {
                has_rows = true;
                labels.iter().try_for_each(|label| Ok(values.push(number(value.get(label).ok_or_else(refused)?)?)))?;
            }
            _ => return Err(refused()),
        }
        Ok(())
    })?;
    if has_rows {
        shape.push(labels.len());
    } else {
        let ordered = in_order(&values, &scored, labels.len()).filter(|_| shape.last() == Some(&labels.len()));
        values = ordered.ok_or_else(|| NestedFault::Labels(ListPlace::default()))?;
    }
    let stored = if element == ElementType::Fp64 { element } else { ElementType::Fp32 };
    Ok(NestedTensor { shape, stored, data: float_bytes(stored, values) })
}

/// The values of each row in the order of the labels at whose indices they are; `None` if a row does not have each label once.
fn in_order(values: &[f64], labels: &[usize], width: usize) -> Option<Vec<f64>> {
    let mut ordered = Vec::with_capacity(values.len());
    for (row, at) in values.chunks(width).zip(labels.chunks(width)) {
        let value_of = |label| row.get(at.iter().position(|own| *own == label)?).copied();
        let of_row: Option<Vec<f64>> = (0..width).map(value_of).collect();
        ordered.extend(of_row?);
    }
    Some(ordered)
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
