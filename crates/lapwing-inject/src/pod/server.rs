//! Which container of a pod is the model server.

use serde_json::Value;

use super::known::{Known, RUNTIME, SERVERS};
use super::object::{Pod, items, text};
use super::words::Words;
use lapwing_ledger::Server;

/// The container that serves.
pub(crate) struct Serving<'a> {
    /// Its number in `containers`.
    pub(crate) at: usize,
    pub(crate) container: &'a Value,
    /// Its name there.
    pub(crate) name: &'a str,
    /// What it is, if its image or command says so.
    pub(crate) known: Option<&'static Known>,
    pub(crate) words: Words,
}

/// Containers that other tools put beside a server, or that stand in front of it.
const BESIDE: [&str; 9] = [
    "istio-proxy",
    "linkerd-proxy",
    "queue-proxy",
    "kube-rbac-proxy",
    "cloud-sql-proxy",
    "otel-collector",
    "otc-container",
    "dcgm-exporter",
    "lapwing",
];
/// Names that ports of HTTP servers have.
const HTTP_NAMES: [&str; 7] = ["http", "https", "web", "api", "rest", "predict", "serving"];

/// The container of a pod that serves; `name` is the one that a user names.
///
/// # Errors
///
/// Why that is not clear.
pub(crate) fn serving<'a>(pod: &Pod<'a>, name: Option<&str>) -> Result<Serving<'a>, String> {
    if let Some(model) = pod.value.get("model").filter(|_| pod.value.get("containers").is_none()) {
        return Ok(Serving::of_model(model));
    }
    let all: Vec<Serving<'a>> = pod.containers().map(|(at, container)| Serving::of(at, container)).collect();
    if let Some(name) = name {
        let names: Vec<&str> = all.iter().map(|one| one.name).collect();
        let names = names.join(", ");
        return all.into_iter().find(|one| one.name == name).ok_or_else(|| format!("it has no container {name}; it has {names}"));
    }
    let known: Vec<&Serving> = all.iter().filter(|one| one.known.is_some()).collect();
    let several = |ones: &[&Serving]| {
        let named: Vec<String> = ones.iter().map(|one| format!("{} ({})", one.name, one.title())).collect();
        format!("several of its containers may be the server: {}; name one with --container", named.join(", "))
    };
    let at = match known.as_slice() {
        [one] => one.at,
        [] => {
            let plain: Vec<&Serving> = all.iter().filter(|one| !BESIDE.contains(&one.name) && one.declares_one()).collect();
            let http: Vec<&Serving> = plain.iter().copied().filter(|one| one.shows_http()).collect();
            match http.as_slice() {
                [one] => one.at,
                [] if plain.len() == 1 => plain[0].at,
                [] => return Err("none of its containers shows an HTTP server: no known image or command, no HTTP probe, no port that is called http; name the container with --container, and its port with --port".to_owned()),
                more => return Err(several(more)),
            }
        }
        more => return Err(several(more)),
    };
    all.into_iter().find(|one| one.at == at).ok_or_else(|| "it has no containers".to_owned())
}

/// Whether a pod has a model server that is known by name.
pub(crate) fn has_known(pod: &Pod) -> bool {
    pod.containers().any(|(at, container)| Serving::of(at, container).known.is_some())
}

impl<'a> Serving<'a> {
    pub(crate) fn of(at: usize, container: &'a Value) -> Self {
        let words = Words::of(container);
        let image = text(container, &["image"]).unwrap_or_default();
        let name = text(container, &["name"]).unwrap_or_default();
        let is_beside = BESIDE.contains(&name);
        let by = |is_it: &dyn Fn(&&Known) -> bool| SERVERS.iter().find(is_it).filter(|_| !is_beside);
        // what is run says more than the image that it is in
        let known =
            by(&|known| known.server != Some(Server::FastApi) && known.commands.iter().any(|command| words.runs(command)));
        let known = known.or_else(|| by(&|known| known.images.iter().any(|part| is_image(image, part))));
        let known = known.or_else(|| by(&|known| known.commands.iter().any(|command| words.runs(command))));
        Self { at, container, name, known, words }
    }

    /// The container that KServe makes for a model, by the contract of its runtimes.
    fn of_model(model: &'a Value) -> Self {
        Self { at: 0, container: model, name: "kserve-container", known: Some(&RUNTIME), words: Words::of(model) }
    }

    /// What it is, in prose.
    pub(crate) fn title(&self) -> &'static str {
        let named = self.known.map(|known| known.server.map_or(known.title, Server::title));
        named.unwrap_or("an HTTP server that is not known by name")
    }

    fn declares_one(&self) -> bool {
        let probes = ["readinessProbe", "livenessProbe", "startupProbe"];
        items(self.container, "ports").next().is_some() || probes.iter().any(|probe| self.container.get(probe).is_some())
    }

    fn shows_http(&self) -> bool {
        let probes = ["readinessProbe", "livenessProbe", "startupProbe"];
        let is_probed = probes.iter().any(|probe| self.container.get(probe).is_some_and(|probe| probe.get("httpGet").is_some()));
        is_probed || items(self.container, "ports").any(|port| text(port, &["name"]).is_some_and(is_http))
    }
}

/// Whether a port's name is one of HTTP.
pub(crate) fn is_http(name: &str) -> bool {
    let first = name.split('-').next().unwrap_or_default();
    HTTP_NAMES.contains(&first) || HTTP_NAMES.iter().any(|known| name.ends_with(&format!("-{known}")))
}

/// Whether an image's name, or a part of its path, is like a pattern: `vllm/vllm-openai:v0.9` has `vllm` and `vllm-*`, `my-vllm-client` none.
fn is_image(image: &str, pattern: &str) -> bool {
    let repository = image.split('@').next().unwrap_or_default();
    // a port of the registry stands before a slash
    let end = repository.rfind(':').filter(|colon| !repository[*colon..].contains('/')).unwrap_or(repository.len());
    let repository = repository[..end].to_ascii_lowercase();
    let parts: Vec<&str> = repository.split('/').collect();
    let wanted: Vec<&str> = pattern.split('/').collect();
    parts.windows(wanted.len()).any(|parts| parts.iter().zip(&wanted).all(|(part, wanted)| is_like(part, wanted)))
}

/// Whether a text is like a pattern, whose stars are any start or end.
fn is_like(text: &str, pattern: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => text.contains(pattern.trim_matches('*')),
        (Some(end), None) => text.ends_with(end),
        (None, Some(start)) => text.starts_with(start),
        (None, None) => text == pattern,
    }
}
