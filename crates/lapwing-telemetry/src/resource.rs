//! The resource of everything that Lapwing sends: which service, which instance of it, and what the user adds.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::Config;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The resource and the instrumentation scope of Lapwing's own telemetry.
#[derive(Clone, Debug)]
pub struct ServiceResource {
    resource: Resource,
}

impl ServiceResource {
    /// The resource that `config` describes. Without a `service.instance.id` of the user's it gets one at random, so that two
    /// Lapwings are never taken for one.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mut attributes = vec![text("service.name", &config.service_name)];
        let given = &config.resource_attributes;
        if !given.contains_key("service.instance.id") {
            attributes.push(text("service.instance.id", &random_uuid()));
        }
        if !given.contains_key("service.version") {
            attributes.push(text("service.version", VERSION));
        }
        attributes.extend(given.iter().map(|(name, value)| text(name, value)));
        Self { resource: Resource { attributes, ..Resource::default() } }
    }

    pub(crate) fn resource(&self) -> Option<Resource> {
        Some(self.resource.clone())
    }

    pub(crate) fn scope() -> Option<InstrumentationScope> {
        Some(InstrumentationScope { name: "lapwing".to_owned(), version: VERSION.to_owned(), ..InstrumentationScope::default() })
    }
}

/// An attribute.
pub(crate) fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// An attribute with a text.
pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

/// A UUID of version 4 (RFC 9562, 5.4).
fn random_uuid() -> String {
    let random: u128 = rand::random();
    let id = random & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62;
    let hex = format!("{id:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(resource: &ServiceResource, key: &str) -> Vec<String> {
        let of = resource.resource.attributes.iter().filter(|attribute| attribute.key == key);
        of.map(|attribute| match attribute.value.clone().unwrap().value {
            Some(Value::StringValue(text)) => text,
            other => panic!("{other:?}"),
        })
        .collect()
    }

    #[test]
    fn the_users_attributes_win_and_an_instance_is_always_named() {
        let plain = ServiceResource::new(&Config::default());
        assert_eq!(value(&plain, "service.name"), ["lapwing"]);
        let id = value(&plain, "service.instance.id");
        assert_eq!((id.len(), id[0].len(), &id[0][14..15]), (1, 36, "4"));
        assert!(["8", "9", "a", "b"].contains(&&id[0][19..20]), "{id:?}");
        assert_ne!(id, value(&ServiceResource::new(&Config::default()), "service.instance.id"));
        let given = [("k8s.pod.name", "web-0"), ("service.instance.id", "mine"), ("service.version", "9")];
        let resource_attributes = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let named = ServiceResource::new(&Config { service_name: "edge".to_owned(), resource_attributes, ..Config::default() });
        let of = |key| value(&named, key);
        assert_eq!((of("service.name"), of("service.instance.id")), (vec!["edge".to_owned()], vec!["mine".to_owned()]));
        assert_eq!((of("service.version"), of("k8s.pod.name")), (vec!["9".to_owned()], vec!["web-0".to_owned()]));
    }
}
