//! A mapping compiled for one model: a request's body in, a call of the Open Inference Protocol out; and the mappings of one target, by
//! route.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use serde_json::json;

use super::call::{InputTensor, MappedCall, MappingFault, ModelPorts};
use super::config::MappingRule;
use super::texts::TextMapping;
use lapwing_compare::outputs::{Document, MappedTensor, OutputMapping, TensorPort, ValuePath, whole_body};
use lapwing_settings::Size;

/// How requests of a route become calls of a model, and where their answers have the model's outputs.
#[derive(Debug)]
pub struct RequestMapping {
    inputs: Vec<MappedTensor>,
    texts: Option<TextMapping>,
    outputs: OutputMapping,
    /// The most bytes of a request, and of the tensors that it becomes.
    limit: usize,
}

impl RequestMapping {
    /// Compiles a checked rule for a model.
    ///
    /// # Errors
    ///
    /// Why the rule does not fit the model, or the tokenizer cannot be read.
    pub(crate) fn new(rule: &MappingRule, ports: &ModelPorts, limit: usize) -> Result<Self, String> {
        let names = |ports: &[TensorPort]| ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
        let mut inputs = tensors(&rule.inputs, &ports.inputs)
            .map_err(|name| format!("inputs.{name}: is no input of the model; its inputs are {}", names(&ports.inputs)))?;
        if let Some(half) = inputs.iter().find(|input| matches!(input.port.datatype(), "FP16" | "BF16")) {
            let (name, datatype) = (&half.port.name, half.port.datatype());
            return Err(format!("inputs.{name}: the model takes {datatype}, to which JSON numbers are not mapped"));
        }
        // in the model's order
        inputs.sort_by_key(|input| ports.inputs.iter().position(|port| port.name == input.port.name));
        let texts = TextMapping::new(rule, ports)?;
        let of_texts = |name: &str| texts.as_ref().is_some_and(|texts| texts.ports().any(|port| port.name == name));
        for port in &ports.inputs {
            match (rule.inputs.contains_key(&port.name), of_texts(&port.name)) {
                (false, false) => return Err(format!("inputs: {} is an input of the model, and is not mapped", port.name)),
                (true, true) => return Err(format!("inputs.{}: is what text becomes", port.name)),
                _ => {}
            }
        }
        let outputs = tensors(&rule.outputs, &ports.outputs)
            .map_err(|name| format!("outputs.{name}: is no output of the model; its outputs are {}", names(&ports.outputs)))?;
        Ok(Self { inputs, texts, outputs: OutputMapping::new(outputs), limit })
    }

    /// Where answers of the route have the model's outputs.
    #[must_use]
    pub const fn outputs(&self) -> &OutputMapping {
        &self.outputs
    }

    /// The call of a request with these headers and body. It takes time linear in the body, and for texts that of the tokenizer.
    ///
    /// # Errors
    ///
    /// [`MappingFault`] if the request does not have what the model takes.
    pub fn call(&self, headers: &HeaderMap, pieces: &[Bytes]) -> Result<MappedCall, MappingFault> {
        let of_body = |error: &dyn std::fmt::Display| MappingFault::Body(error.to_string());
        let body = whole_body(headers, pieces, self.limit).map_err(|error| of_body(&error))?;
        let document = Document::parse(&body).map_err(|error| of_body(&error))?;
        drop(body);
        let (mut tensors, mut left) = (Vec::with_capacity(self.inputs.len() + 3), self.limit);
        for input in &self.inputs {
            let tensor = self.tensor(input, &document, left)?;
            left -= tensor.data.len();
            tensors.push(tensor);
        }
        if let Some(texts) = &self.texts {
            tensors.extend(texts.tensors(&document, left, self.limit)?);
        }
        Ok(self.written(&tensors))
    }

    fn tensor<'m>(&'m self, input: &'m MappedTensor, document: &Document, left: usize) -> Result<InputTensor<'m>, MappingFault> {
        let MappedTensor { port, path } = input;
        let name = || format!("inputs.{}: {path}", port.name);
        let read = input.read(document, left).map_err(|fault| MappingFault::of_value(name(), &fault, self.limit))?;
        let fitted = port.fit(&read.shape).filter(|shape| !shape.contains(&0));
        let wrong = || MappingFault::Shape { input: name(), found: read.shape.clone(), wanted: port.shown_shape() };
        Ok(InputTensor { port, shape: fitted.ok_or_else(wrong)?, data: read.data })
    }

    /// The JSON asks for the outputs that are compared, and for no others: they may be large.
    fn written(&self, tensors: &[InputTensor<'_>]) -> MappedCall {
        let input = |tensor: &InputTensor<'_>| {
            json!({
                "name": tensor.port.name,
                "shape": tensor.shape,
                "datatype": tensor.port.datatype(),
                "parameters": {"binary_data_size": tensor.data.len()},
            })
        };
        let output = |name: &str| json!({"name": name, "parameters": {"binary_data": true}});
        let head = json!({
            "inputs": tensors.iter().map(input).collect::<Vec<_>>(),
            "outputs": self.outputs.names().map(output).collect::<Vec<_>>(),
        });
        let head = head.to_string();
        let length = head.len() + tensors.iter().map(|tensor| tensor.data.len()).sum::<usize>();
        let mut body = BytesMut::with_capacity(length);
        body.extend_from_slice(head.as_bytes());
        tensors.iter().for_each(|tensor| body.extend_from_slice(&tensor.data));
        MappedCall { json_bytes: head.len(), body: body.freeze() }
    }
}

/// The tensors of a rule with the ports of their names.
///
/// # Errors
///
/// The first name that is no port's.
fn tensors<'r>(rule: &'r BTreeMap<String, String>, ports: &[TensorPort]) -> Result<Vec<MappedTensor>, &'r str> {
    let tensor = |(name, path): (&'r String, &String)| {
        let port = ports.iter().find(|port| port.name == *name).ok_or(name.as_str())?.clone();
        Ok(MappedTensor { port, path: ValuePath::parse(path).map_err(|_| name.as_str())? })
    };
    rule.iter().map(tensor).collect()
}

/// A mapping that does not fit the model of its target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shadow.mappings: {route}, for target {target}: {reason}")]
pub struct MappingError {
    /// The route.
    pub route: String,
    /// The target's name.
    pub target: String,
    /// The key, and what is wrong with it.
    pub reason: String,
}

/// The mappings of one target.
#[derive(Debug, Default)]
pub struct MappingTable(BTreeMap<String, Arc<RequestMapping>>);

impl MappingTable {
    /// The checked `rules` compiled for the model of `target`, which the engine runs. Of several for one route the first counts. A
    /// request, and the tensors that it becomes, have at most `max_body` bytes each.
    ///
    /// # Errors
    ///
    /// [`MappingError`] if one does not fit the model, or its tokenizer cannot be read.
    pub fn new(rules: &[MappingRule], max_body: Size, target: &str, model: &ModelPorts) -> Result<Self, MappingError> {
        let limit = usize::try_from(max_body.get()).unwrap_or(usize::MAX);
        let mut table = BTreeMap::new();
        for rule in rules.iter().filter(|rule| rule.is_for(target)) {
            if !table.contains_key(&rule.route) {
                let error = |reason| MappingError { route: rule.route.clone(), target: target.to_owned(), reason };
                table.insert(rule.route.clone(), Arc::new(RequestMapping::new(rule, model, limit).map_err(error)?));
            }
        }
        Ok(Self(table))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The mapping of a route, as `/stats` names it.
    #[must_use]
    pub fn of(&self, route: &str) -> Option<&Arc<RequestMapping>> {
        self.0.get(route)
    }
}
