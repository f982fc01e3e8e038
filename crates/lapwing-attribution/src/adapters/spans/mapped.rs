//! The input and the result of interpreting a span.

use opentelemetry_proto::tonic::common::v1::KeyValue;

use crate::span::ServerSpan;
use lapwing_ledger::{Phase, Stage};

/// The sender of a span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender<'a> {
    /// The resource's `service.name`.
    pub(crate) service: &'a str,
    /// The instrumentation scope's name.
    pub(crate) scope: &'a str,
    /// Whether the resource has attributes of vLLM, by [`Sender::is_vllm`].
    pub(crate) is_vllm: bool,
}

impl Sender<'_> {
    /// Whether a resource has attributes of vLLM. To be asked once for each resource, which may have many spans and attributes.
    pub(crate) fn is_vllm(resource: &[KeyValue]) -> bool {
        resource.iter().any(|attribute| attribute.key.starts_with("vllm."))
    }

    /// Whether the service or the scope has this name or begins with it.
    pub(crate) fn is(&self, name: &str) -> bool {
        let begins = |text: &str| text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name));
        begins(self.service) || begins(self.scope)
    }
}

/// The interpretation of a span.
#[derive(Debug, Default)]
pub(crate) struct MappedSpan {
    /// The stage of the span as a whole.
    pub(crate) stage: Option<Stage>,
    /// The phase of the stage, if it has one.
    pub(crate) phase: Option<Phase>,
    /// What else it reports, if a model server sent it.
    pub(crate) server: Option<Box<ServerSpan>>,
}

impl MappedSpan {
    /// A server's span whose duration as a whole is no stage.
    pub(crate) fn of(server: ServerSpan) -> Self {
        Self { stage: None, phase: None, server: Some(Box::new(server)) }
    }
}

/// The value of a text attribute.
pub(crate) fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    match attributes.iter().find(|a| a.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}
