//! Where the texts of a request are, and which of them form one input. The locations are those of the protocol's table; here they
//! are looked up in a whole document, off the request path.

use serde_json::Value;

use super::super::config::Custom;
use super::super::families::custom;
use super::super::json_pointer::paths_of_pointer;
use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use super::super::tokenizer::TokenizerInput;
use super::super::wire::PathStep;
use lapwing_ledger::Unit;

/// What a request asks the model to read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundTexts<'v> {
    pub(crate) inputs: Vec<TokenizerInput<'v>>,
    /// Tokens that the client sent as ids.
    pub(crate) ids: u64,
}

/// The locations of texts in a protocol.
#[derive(Debug)]
pub(crate) struct Texts {
    places: Vec<(Vec<PathStep>, Tag)>,
    /// Whether each text is a separate input, with the tokenizer's special tokens around it. Otherwise it is a part of a chat,
    /// to which the server's template adds tokens.
    pub(crate) whole: bool,
}

impl Texts {
    /// The locations for a protocol; `None` if its requests contain no texts or are not JSON.
    pub(crate) fn of(spec: &ProtocolSpec) -> Option<Self> {
        let WatchSpec::Json(places) = spec.request else { return None };
        Self::new(places.iter().map(|(path, tag)| (PathStep::parse(path), *tag)).collect(), spec.primary)
    }

    /// The locations for a rule of the configuration.
    pub(crate) fn of_rule(rule: &Custom) -> Option<Self> {
        let paths = custom::text_of(rule).and_then(paths_of_pointer)?;
        Self::new(paths.into_iter().map(|steps| (steps, Tag::Text)).collect(), rule.primary())
    }

    fn new(mut places: Vec<(Vec<PathStep>, Tag)>, primary: Unit) -> Option<Self> {
        if places.iter().any(|(_, tag)| *tag == Tag::Pairs) {
            places.retain(|(_, tag)| *tag == Tag::Pairs); // the others are parts of these
        }
        let reads = |tag: &Tag| matches!(tag, Tag::Inputs | Tag::Input | Tag::Pairs | Tag::Text);
        let has_texts = places.iter().any(|(_, tag)| reads(tag));
        places.retain(|(_, tag)| reads(tag) || matches!(tag, Tag::Rows | Tag::Query));
        let whole = primary == Unit::InputToken || places.iter().any(|(_, tag)| *tag == Tag::Inputs);
        has_texts.then_some(Self { places, whole })
    }

    /// Finds the texts of a document.
    pub(crate) fn find<'v>(&self, document: &'v Value) -> FoundTexts<'v> {
        let (mut found, mut query) = (FoundTexts::default(), None);
        for (steps, tag) in &self.places {
            each(document, steps, &mut |value| match (tag, value) {
                (Tag::Query, Value::String(text)) => query = Some(text.as_str()),
                (Tag::Pairs, value) => found.pairs(value),
                (Tag::Input, Value::Number(_)) => found.ids += 1,
                (Tag::Input, Value::Array(list)) => found.ids += list.iter().filter(|id| id.is_number()).count() as u64,
                (_, Value::String(text)) => found.inputs.push(TokenizerInput::One(text)),
                _ => {}
            });
        }
        if let Some(query) = query {
            for input in &mut found.inputs {
                if let TokenizerInput::One(text) = *input {
                    *input = TokenizerInput::Pair(query, text);
                }
            }
        }
        found
    }
}

impl<'v> FoundTexts<'v> {
    /// Reads one input, a pair, or a list of these, as `/predict` accepts them.
    fn pairs(&mut self, value: &'v Value) {
        if let Some(input) = one_or_pair(value) {
            self.inputs.push(input);
        } else if let Value::Array(list) = value {
            self.inputs.extend(list.iter().filter_map(one_or_pair));
        }
    }
}

fn one_or_pair(value: &Value) -> Option<TokenizerInput<'_>> {
    match value {
        Value::String(text) => Some(TokenizerInput::One(text)),
        Value::Array(list) => match list.as_slice() {
            [Value::String(text)] => Some(TokenizerInput::One(text)),
            [Value::String(first), Value::String(second)] => Some(TokenizerInput::Pair(first, second)),
            _ => None,
        },
        _ => None,
    }
}

/// Calls `found` with each value at `steps`.
fn each<'v>(value: &'v Value, steps: &[PathStep], on: &mut impl FnMut(&'v Value)) {
    let Some((step, rest)) = steps.split_first() else { return on(value) };
    match (step, value) {
        (PathStep::Key(key), Value::Object(map)) => map.get(key).into_iter().for_each(|value| each(value, rest, on)),
        (PathStep::AnyKey, Value::Object(map)) => map.values().for_each(|value| each(value, rest, on)),
        (PathStep::Element, Value::Array(list)) => list.iter().for_each(|value| each(value, rest, on)),
        (PathStep::Index(at), Value::Array(list)) => {
            usize::try_from(*at).ok().and_then(|at| list.get(at)).into_iter().for_each(|value| each(value, rest, on));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::detect::Family;
    use super::super::super::families::spec;
    use super::*;

    fn found(family: Family, body: &Value) -> (Vec<String>, u64, bool) {
        let texts = Texts::of(spec(family)).unwrap();
        let found = texts.find(body);
        let inputs = found.inputs.iter().map(|input| match input {
            TokenizerInput::One(text) => (*text).to_owned(),
            TokenizerInput::Pair(first, second) => format!("{first}+{second}"),
        });
        (inputs.collect(), found.ids, texts.whole)
    }

    #[test]
    fn texts_are_found_where_the_protocol_has_them() {
        use Family as F;
        for (family, body, inputs, ids, whole) in [
            (
                F::OpenAiChat,
                json!({"messages": [{"role": "system", "content": "a"},
                    {"content": [{"type": "text", "text": "b"}, {"type": "image_url", "image_url": {"url": "x"}}]}]}),
                &["a", "b"][..],
                0,
                false,
            ),
            (F::OpenAiCompletions, json!({"prompt": "a", "user": "x"}), &["a"], 0, true),
            (F::OpenAiCompletions, json!({"prompt": ["a", "b"]}), &["a", "b"], 0, true),
            (F::OpenAiCompletions, json!({"prompt": [[1, 2], [3]]}), &[], 3, true),
            (F::OpenAiCompletions, json!({"prompt": [1, 2, "a"]}), &["a"], 2, true),
            (F::OpenAiEmbeddings, json!({"input": ["a", "b"], "model": "m"}), &["a", "b"], 0, true),
            (F::OpenAiResponses, json!({"instructions": "a", "input": "b"}), &["a", "b"], 0, false),
            (F::OllamaChat, json!({"messages": [{"content": "a"}]}), &["a"], 0, false),
            (F::TritonGenerate, json!({"text_input": "a"}), &["a"], 0, false),
            (F::TeiEmbed, json!({"inputs": "a"}), &["a"], 0, true),
            (F::TeiRerank, json!({"query": "q", "texts": ["a", "b"]}), &["q+a", "q+b"], 0, true),
            (F::TeiRerank, json!({"documents": [{"text": "a"}, "b"], "query": "q"}), &["q+b", "q+a"], 0, true),
            (F::TeiSimilarity, json!({"inputs": {"source_sentence": "s", "sentences": ["a"]}}), &["s", "a"], 0, true),
            (F::TeiPredict, json!({"inputs": "a"}), &["a"], 0, true),
            (F::TeiPredict, json!({"inputs": ["a", "b"]}), &["a+b"], 0, true),
            (F::TeiPredict, json!({"inputs": [["a", "b"], ["c"], "d"]}), &["a+b", "c", "d"], 0, true),
            (F::OpenAiChat, json!([]), &[], 0, false),
        ] {
            let expected = inputs.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            assert_eq!(found(family, &body), (expected, ids, whole), "{family:?} {body}");
        }
    }

    #[test]
    fn tensors_are_no_texts() {
        for family in [Family::OipRest, Family::OipGrpc, Family::TfRest, Family::TorchServe, Family::TeiGrpcEmbed] {
            assert!(Texts::of(spec(family)).is_none(), "{family:?}");
        }
    }

    #[test]
    fn a_rule_says_where_its_text_stands() {
        let rule = |yaml: Value| serde_json::from_value::<Custom>(yaml).unwrap();
        let reads = rule(json!({"route": "/say", "input_tokens": {"json": "/parts/*/t"}, "output_tokens": {"fixed": 1}}));
        let texts = Texts::of_rule(&reads).unwrap();
        let body = json!({"parts": [{"t": "a"}, {"t": 7}, {"t": "b"}]});
        assert_eq!((texts.find(&body).inputs, texts.whole), (vec![TokenizerInput::One("a"), TokenizerInput::One("b")], false));
        let answer = rule(json!({"route": "/say", "input_tokens": {"json": "/t", "from": "response"}}));
        assert!(Texts::of_rule(&answer).is_none());
        assert!(Texts::of_rule(&rule(json!({"route": "/say", "rows": {"json": "/t"}}))).is_none());
    }
}
