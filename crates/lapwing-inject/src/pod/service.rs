//! The Services that lead to a pod.

use serde_json::Value;

use super::object::{Object, Pod, items, number, text};

/// One port of a Service that leads to a pod.
#[derive(Clone, Debug)]
pub(crate) struct Route<'a> {
    pub(crate) service: &'a Object<'a>,
    /// Its number in the Service's `ports`.
    pub(crate) at: usize,
    pub(crate) target: Target,
    /// Whether clients find the pods' own addresses and so take the server's port, whatever the Service says (`clusterIP: None`).
    pub(crate) is_headless: bool,
}

/// Where a Service's port leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To a number, which is that of the Service's own port where it names none.
    Number(u16),
    /// To the pod's port of that name.
    Name(String),
}

/// The ports of Services that lead to a pod of an object.
pub(crate) fn routes<'a>(objects: &'a [Object<'a>], of: &Object, pod: &Pod) -> Vec<Route<'a>> {
    let mut found = Vec::new();
    for service in objects.iter().filter(|object| object.kind() == "Service" && object.group() == "v1") {
        let is_near = service.namespace() == of.namespace() || service.namespace().is_none() || of.namespace().is_none();
        let spec = service.value.get("spec").unwrap_or(&Value::Null);
        if !is_near || !selects(spec, pod) {
            continue;
        }
        for (at, port) in items(spec, "ports").enumerate() {
            let is_tcp = text(port, &["protocol"]).is_none_or(|protocol| protocol == "TCP");
            let target = port.get("targetPort").filter(|target| !target.is_null()).or_else(|| port.get("port"));
            let target = target.and_then(|target| match number(target) {
                Some(number) => Some(Target::Number(number)),
                None => target.as_str().map(|name| Target::Name(name.to_owned())),
            });
            if let Some(target) = target.filter(|_| is_tcp) {
                found.push(Route { service, at, target, is_headless: text(spec, &["clusterIP"]) == Some("None") });
            }
        }
    }
    found
}

/// The network policies that say on which ports a pod may be reached.
pub(crate) fn policies<'a>(objects: &'a [Object<'a>], of: &Object, pod: &Pod) -> Vec<&'a Object<'a>> {
    let is_one = |object: &&Object| {
        let spec = object.value.get("spec").unwrap_or(&Value::Null);
        let taken = spec.get("podSelector").and_then(|selector| selector.get("matchLabels")).and_then(Value::as_object);
        let takes = taken
            .is_none_or(|taken| taken.iter().all(|(key, value)| pod.labels.and_then(|labels| labels.get(key)) == Some(value)));
        let names_ports = items(spec, "ingress").any(|rule| items(rule, "ports").next().is_some());
        object.kind() == "NetworkPolicy" && object.namespace() == of.namespace() && takes && names_ports
    };
    objects.iter().filter(is_one).collect()
}

/// Whether a Service's selector takes the pod's labels.
fn selects(service: &Value, pod: &Pod) -> bool {
    let Some(selector) = service.get("selector").and_then(Value::as_object).filter(|selector| !selector.is_empty()) else {
        return false;
    };
    selector.iter().all(|(key, value)| pod.labels.and_then(|labels| labels.get(key)) == Some(value))
}
