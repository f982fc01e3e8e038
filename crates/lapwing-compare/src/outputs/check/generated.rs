//! Generated text against generated text, by choice and part.

use super::super::comparison::FieldComparison;
use super::super::decode::GeneratedTexts;
use super::super::rules::Rules;
use super::text::{EditBudget, compare_field};

/// Compares what two models wrote. The choices share a field for each part, because which choice it is says nothing.
pub(crate) fn compare_generated(
    primary: &GeneratedTexts,
    candidate: &GeneratedTexts,
    rules: &Rules,
    budget: &mut EditBudget,
) -> Vec<FieldComparison> {
    let mut fields: Vec<FieldComparison> = Vec::new();
    let keys = primary.0.keys().chain(candidate.0.keys().filter(|key| !primary.0.contains_key(key)));
    for (choice, part) in keys {
        let [p, c] = [primary, candidate].map(|side| side.0.get(&(*choice, *part)).map_or(&b""[..], |text| text.as_bytes()));
        let Some(found) = compare_field(part.name(), p, c, rules, budget) else { continue };
        match fields.iter_mut().find(|field| field.field == found.field) {
            Some(field) => {
                field.kinds = field.kinds.union(found.kinds);
                let is_worse = found.text.zip(field.text).is_none_or(|(new, old)| new.similarity < old.similarity);
                if is_worse {
                    (field.text, field.detail) = (found.text, found.detail.or_else(|| field.detail.take()));
                }
            }
            None => fields.push(found),
        }
    }
    fields
}
