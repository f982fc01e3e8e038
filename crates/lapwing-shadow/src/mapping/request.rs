//! A mapping compiled for one model: a request's body in, a call of the Open Inference Protocol out; and the mappings of one target, by
//! route.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use serde_json::json;

use super::call::{InputTensor, MappedCall, MappingFault, ModelPorts};
use super::columns::ColumnMapping;
use super::config::MappingRule;
use super::images::{ImageMapping, RequestBody};
use super::postprocessing::PostprocessingRule;
use super::texts::{TextMapping, TextTensors};
use lapwing_compare::outputs::{Document, MappedTensor, OutputMapping, TensorPort, ValuePath, is_absent_or, whole_body};
use lapwing_settings::Size;

/// How requests of a route become calls of a model, and where their answers have the model's outputs.
#[derive(Debug)]
pub struct RequestMapping {
    inputs: Vec<MappedTensor>,
    columns: Vec<ColumnMapping>,
    images: Vec<ImageMapping>,
    /// What a request must have at a path, if it has anything there.
    parameters: Vec<(ValuePath, String)>,
    texts: Option<TextMapping>,
    outputs: OutputMapping,
    /// The most bytes of a request, and of the tensors that it becomes.
    limit: usize,
}

impl RequestMapping {
    /// Compiles a checked rule for the model in `file`.
    ///
    /// # Errors
    ///
    /// Why the rule does not fit the model, or the tokenizer cannot be read.
    pub(crate) fn new(rule: &MappingRule, ports: &ModelPorts, file: &Path, limit: usize) -> Result<Self, String> {
        let mut inputs = Vec::with_capacity(rule.inputs.len());
        for (name, path) in &rule.inputs {
            inputs.push(mapped("inputs", rule, input_port("inputs", name, ports)?, path)?);
        }
        // in the model's order
        inputs.sort_by_key(|input| ports.inputs.iter().position(|port| port.name == input.port.name));
        let mut columns = Vec::with_capacity(rule.columns.len());
        for (name, paths) in &rule.columns {
            let port = input_port("columns", name, ports)?;
            let mapped: Result<_, _> = paths.iter().map(|path| mapped("columns", rule, port, path)).collect();
            columns.push(ColumnMapping::new(port.clone(), mapped?));
        }
        let image = |(name, source): (&String, &String)| ImageMapping::new(rule, name, source, ports, file);
        let images = rule.images.iter().map(image).collect::<Result<Vec<_>, _>>()?;
        let texts = TextMapping::new(rule, ports, file)?;
        let of_images = |name: &str| images.iter().any(|image| image.port().name == name);
        let of_texts = |name: &str| texts.as_ref().is_some_and(|texts| texts.ports().any(|port| port.name == name));
        for TensorPort { name, .. } in &ports.inputs {
            let keys = [rule.inputs.contains_key(name), rule.columns.contains_key(name), of_texts(name) || of_images(name)];
            match keys {
                [false, false, false] => return Err(format!("inputs: {name} is an input of the model, and is not mapped")),
                [true, _, true] => return Err(format!("inputs.{name}: is what text or a picture becomes")),
                [_, true, true] => return Err(format!("columns.{name}: is what text or a picture becomes")),
                [true, true, _] => return Err(format!("columns.{name}: is mapped by inputs too")),
                _ => {}
            }
        }
        let path = |key: &str, path: &str| ValuePath::parse(path).map_err(|reason| format!("{key}: {path}: {reason}"));
        let parameter = |(at, value): (&String, &String)| Ok((path("parameters", at)?, value.clone()));
        let parameters = rule.parameters.iter().map(parameter).collect::<Result<_, String>>()?;
        let plain = PostprocessingRule::default();
        let output = |(name, at): (&String, &String)| {
            rule.postprocessing.get(name).unwrap_or(&plain).output(name, path("outputs", at)?, &ports.outputs)
        };
        let outputs = rule.outputs.iter().map(output).collect::<Result<_, String>>()?;
        Ok(Self { inputs, columns, images, parameters, texts, outputs: OutputMapping::new(outputs), limit })
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
        if self.is_picture_alone() {
            return self.written_of(&RequestBody { headers, body: &body, document: None }, &Document::default());
        }
        let document = Document::parse(&body).map_err(|error| of_body(&error))?;
        self.written_of(&RequestBody { headers, body: &body, document: Some(&document) }, &document)
    }

    /// Whether requests are no documents.
    fn is_picture_alone(&self) -> bool {
        !self.images.is_empty() && !self.images.iter().any(ImageMapping::is_in_document)
    }

    fn written_of(&self, request: &RequestBody<'_>, document: &Document) -> Result<MappedCall, MappingFault> {
        for (path, expected) in &self.parameters {
            if !is_absent_or(document.root(), path, expected) {
                return Err(MappingFault::Parameter { path: path.to_string(), expected: expected.clone() });
            }
        }
        let (mut tensors, mut left) = (Vec::with_capacity(self.inputs.len() + 3), self.limit);
        for input in &self.inputs {
            let tensor = self.tensor(input, document, left)?;
            left -= tensor.data.len();
            tensors.push(tensor);
        }
        for columns in &self.columns {
            let tensor = columns.tensor(document, left, self.limit)?;
            left -= tensor.data.len();
            tensors.push(tensor);
        }
        for image in &self.images {
            let tensor = image.tensor(request, left, self.limit)?;
            left -= tensor.data.len();
            tensors.push(tensor);
        }
        let mut token_counts = Vec::new();
        if let Some(texts) = &self.texts {
            let TextTensors { tensors: of_texts, token_counts: counts } = texts.tensors(document, left, self.limit)?;
            tensors.extend(of_texts);
            token_counts = counts;
        }
        Ok(self.written(&tensors, token_counts.into()))
    }

    fn tensor<'m>(&'m self, input: &'m MappedTensor, document: &Document, left: usize) -> Result<InputTensor<'m>, MappingFault> {
        let MappedTensor { port, path, .. } = input;
        let name = || format!("inputs.{}: {path}", port.name);
        let read = input.read(document, left).map_err(|fault| MappingFault::of_value(name(), &fault, self.limit))?;
        let fitted = port.fit(&read.shape).filter(|shape| !shape.contains(&0));
        let wrong = || MappingFault::Shape { input: name(), found: read.shape.clone(), wanted: port.shown_shape() };
        Ok(InputTensor { port, shape: fitted.ok_or_else(wrong)?, data: read.data })
    }

    /// The JSON asks for the outputs that are compared, and for no others: they may be large.
    fn written(&self, tensors: &[InputTensor<'_>], token_counts: Arc<[u32]>) -> MappedCall {
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
        MappedCall { json_bytes: head.len(), body: body.freeze(), token_counts }
    }
}

/// The input of this name, which `key` maps.
///
/// # Errors
///
/// There is none, or its numbers are none of JSON.
fn input_port<'p>(key: &str, name: &str, ports: &'p ModelPorts) -> Result<&'p TensorPort, String> {
    let names = || ports.inputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
    let port = ports.inputs.iter().find(|port| port.name == name);
    match port.ok_or_else(|| format!("{key}.{name}: is no input of the model; its inputs are {}", names()))? {
        half if matches!(half.datatype(), "FP16" | "BF16") => {
            Err(format!("{key}.{name}: the model takes {}, to which JSON numbers are not mapped", half.datatype()))
        }
        port => Ok(port),
    }
}

/// The tensor of an input at `path`, with the categories that the rule has for that path.
fn mapped(key: &str, rule: &MappingRule, port: &TensorPort, path: &str) -> Result<MappedTensor, String> {
    let categories = rule.categories.get(path).cloned().unwrap_or_default();
    if !categories.is_empty() && port.datatype() == "BYTES" {
        return Err(format!("categories.{path}: the model's input {} takes texts as they are", port.name));
    }
    let parsed = ValuePath::parse(path).map_err(|reason| format!("{key}.{}: {path}: {reason}", port.name))?;
    Ok(MappedTensor { port: port.clone(), path: parsed, categories })
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

/// The mappings of one target; the default is that of a server, which has none.
#[derive(Debug, Default)]
pub struct MappingTable {
    routes: BTreeMap<String, Arc<RequestMapping>>,
    is_of_engine: bool,
}

impl MappingTable {
    /// The checked `rules` compiled for the model in `file`, which the engine runs as `target`. Of several for one route the first counts. A
    /// request, and the tensors that it becomes, have at most `max_body` bytes each.
    ///
    /// # Errors
    ///
    /// [`MappingError`] if one does not fit the model, or its tokenizer cannot be read.
    pub fn new(
        rules: &[MappingRule],
        max_body: Size,
        target: &str,
        file: &Path,
        model: &ModelPorts,
    ) -> Result<Self, MappingError> {
        let limit = usize::try_from(max_body.get()).unwrap_or(usize::MAX);
        let mut table = BTreeMap::new();
        for rule in rules.iter().filter(|rule| rule.is_for(target)) {
            if !table.contains_key(&rule.route) {
                let error = |reason| MappingError { route: rule.route.clone(), target: target.to_owned(), reason };
                table.insert(rule.route.clone(), Arc::new(RequestMapping::new(rule, model, file, limit).map_err(error)?));
            }
        }
        Ok(Self { routes: table, is_of_engine: true })
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The mapping of a route, as `/stats` names it.
    #[must_use]
    pub fn of(&self, route: &str) -> Option<&Arc<RequestMapping>> {
        self.routes.get(route)
    }

    /// Whether the target is a model that the engine runs.
    #[must_use]
    pub const fn is_of_engine(&self) -> bool {
        self.is_of_engine
    }
}
