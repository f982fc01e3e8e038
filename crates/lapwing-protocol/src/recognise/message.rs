//! Matches one protobuf message with a signature.

use std::sync::Arc;

use super::super::wire::{ProtoFields, ProtoReader, ProtoShape, ProtoValue};
use super::signature::ProtoSignature;
use super::verdict::Recognised;

/// A compiled signature. A field's tag is its place among those required, then among those with an effect.
#[derive(Clone, Debug)]
pub(crate) struct ProtoForm {
    fields: Arc<ProtoFields<usize>>,
    signature: ProtoSignature,
}

impl ProtoForm {
    /// Compiles a signature.
    pub(crate) fn new(signature: ProtoSignature) -> Self {
        let required = signature.required.iter().enumerate().map(|(tag, (path, shape))| (*path, tag, *shape));
        let first = signature.required.len();
        let effects = signature.effects.iter().enumerate().map(|(at, (path, _))| (*path, first + at, ProtoShape::Text));
        Self { fields: Arc::new(ProtoFields::new(required.chain(effects))), signature }
    }

    /// What a whole message is.
    pub(crate) fn judge(&self, message: &[u8]) -> Recognised {
        let ProtoSignature { required, effects } = self.signature;
        let mut found = vec![false; required.len()];
        let mut effect = None;
        let mut reader = ProtoReader::new(self.fields.clone());
        reader.feed(message, &mut |tag, value| {
            if let Some(found) = found.get_mut(tag) {
                *found = true;
            } else if let (Some((_, keys)), ProtoValue::Text { head, .. }) = (effects.get(tag - required.len()), value) {
                effect = effect.or_else(|| keys.iter().copied().find(|key| key.as_bytes() == head));
            }
        });
        if !reader.end() || found.contains(&false) {
            return Recognised::No;
        }
        effect.map_or(Recognised::Yes, Recognised::Effect)
    }
}
