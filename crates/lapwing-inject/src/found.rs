//! What is found in a pod before anything is changed: the server, its port, who leads there, which ports are free.

use serde_json::Value;

use crate::options::InjectOptions;
use crate::pod::{FoundPort, Object, Pod, Route, Serving, Target, declared, items, routes, serving, text};
use crate::sidecar::{REDIRECT, SIDECAR};

/// What was found of a pod, and chosen for it.
pub(crate) struct Found<'a> {
    pub(crate) object: &'a Object<'a>,
    pub(crate) pod: Pod<'a>,
    pub(crate) serving: Serving<'a>,
    pub(crate) port: FoundPort,
    /// The Services' ports that lead to the server's.
    pub(crate) routes: Vec<Route<'a>>,
    pub(crate) listen: u16,
    pub(crate) admin: u16,
}

/// Looks at an object's pod.
///
/// # Errors
///
/// Why nothing is to be injected, in a line.
pub(crate) fn find<'a>(object: &'a Object<'a>, objects: &'a [Object<'a>], options: &InjectOptions) -> Result<Found<'a>, String> {
    let pod = object.pod().ok_or_else(|| format!("{} is no kind with a pod in it that Lapwing knows", object.kind()))?;
    refuse_what_shares(object, &pod)?;
    let routes = routes(objects, object, &pod);
    let serving = serving(&pod, options.container.as_deref())?;
    let port = match options.port {
        Some(number) => FoundPort { number, from: "--port".to_owned() },
        None => serving.port(&routes)?,
    };
    if let Some(front) = in_front(&pod, &serving, port.number) {
        return Err(format!(
            "its container {front} already stands in front of port {}: to profile what comes to that one, name it with --container, and its port with --port",
            port.number
        ));
    }
    if matches!(object.kind(), "Job" | "CronJob") && options.port.is_none() && declared(serving.container).is_empty() {
        return Err(
            "it is a Job, and declares no port: it seems to serve nobody; if it does, name its port with --port".to_owned()
        );
    }
    for name in ["readinessProbe", "livenessProbe", "startupProbe"] {
        let probe = serving.container.get(name).and_then(|probe| probe.get("httpGet"));
        if probe.and_then(|probe| text(probe, &["scheme"])) == Some("HTTPS") {
            return Err(format!(
                "its {name} says that the server takes TLS; Lapwing must then have the certificate: write its sidecar by hand, with `tls` (docs/SECURITY.md)"
            ));
        }
    }
    let ports = declared(serving.container);
    let leads = |target: &Target| match target {
        Target::Number(number) => *number == port.number,
        Target::Name(name) => ports.iter().any(|declared| declared.name == Some(name) && declared.number == port.number),
    };
    let routes = routes.into_iter().filter(|route| leads(&route.target)).collect();
    let mut taken: Vec<u16> = pod.taken().collect();
    taken.push(port.number);
    let mut free = |wanted: u16| {
        let number = (wanted..=u16::MAX).find(|number| !taken.contains(number)).unwrap_or(wanted);
        taken.push(number);
        number
    };
    let (listen, admin) = (free(options.listen), free(options.admin));
    Ok(Found { object, pod, serving, port, routes, listen, admin })
}

/// Pods that share more than a sidecar may change.
fn refuse_what_shares(object: &Object, pod: &Pod) -> Result<(), String> {
    if pod.value.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        return Err(
            "it uses the node's network (hostNetwork), where Lapwing's ports and rules would be the node's: run Lapwing there \
                    by hand, with --listen and --upstream"
                .to_owned(),
        );
    }
    if text(pod.value, &["os", "name"]) == Some("windows") {
        return Err("its pods run on Windows".to_owned());
    }
    let names = items(pod.value, "containers").chain(items(pod.value, "initContainers")).filter_map(|one| text(one, &["name"]));
    if names.into_iter().any(|name| name == SIDECAR || name == REDIRECT) {
        return Err(format!("it has a container {SIDECAR} that was not injected by this command: take it out first"));
    }
    if object.is_inference_service() {
        let mode = text(object.value, &["metadata", "annotations", "serving.kserve.io/deploymentMode"]);
        if !mode.is_some_and(|mode| matches!(mode, "RawDeployment" | "Standard")) {
            return Err(
                "on Knative only one container has a port, and none may write the pod's network: deploy it with the annotation \
                        serving.kserve.io/deploymentMode: RawDeployment (Standard in newer versions)"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// Another container that takes requests for the server: it has a port of its own, and names the server's.
fn in_front<'a>(pod: &Pod<'a>, serving: &Serving, port: u16) -> Option<&'a str> {
    let names_port = |word: &Value| {
        let after =
            |mark: char| word.as_str().and_then(|word| word.rsplit(mark).next()).is_some_and(|end| end == port.to_string());
        after('=') || (after(':') && word.as_str().is_some_and(|word| word.contains("127.0.0.1") || word.contains("localhost")))
    };
    let is_in_front = |one: &&Value| {
        let own = declared(one);
        let is_other = text(one, &["name"]) != Some(serving.name);
        is_other
            && !own.is_empty()
            && own.iter().all(|declared| declared.number != port)
            && items(one, "command").chain(items(one, "args")).any(names_port)
    };
    pod.running().find(is_in_front).and_then(|one| text(one, &["name"]))
}

impl Found<'_> {
    /// Whether a service mesh leads the pod's traffic through a proxy of its own, by rules of its own.
    pub(crate) fn is_in_mesh(&self) -> bool {
        let said = self
            .pod
            .annotations(self.object)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .chain(self.pod.labels.and_then(Value::as_object).into_iter().flatten());
        let is_on = |key: &str, value: &Value| match key {
            "sidecar.istio.io/inject" => value.as_str() == Some("true"),
            "linkerd.io/inject" => value.as_str() == Some("enabled"),
            _ => key.starts_with("traffic.sidecar.istio.io/include"),
        };
        let has_proxy = self.pod.running().any(|one| matches!(text(one, &["name"]), Some("istio-proxy" | "linkerd-proxy")));
        has_proxy || said.into_iter().any(|(key, value)| is_on(key, value))
    }

    /// The name of the server's port, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        let ports = declared(self.serving.container);
        ports.iter().filter(|port| port.number == self.port.number).find_map(|port| port.name)
    }

    /// The path of the server's container, from its object.
    pub(crate) fn container(&self) -> Vec<String> {
        self.pod.spec.iter().cloned().chain(["containers".to_owned(), self.serving.at.to_string()]).collect()
    }
}
