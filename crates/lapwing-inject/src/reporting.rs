//! What a server must be started with to report its stages, as `lapwing upstream-flags` says it; added only when asked for.

use lapwing_ledger::Server;
use serde_json::Value;

use crate::ManifestError;
use crate::changes::Changes;
use crate::found::Found;
use crate::pod::items;
use crate::sidecar::Variable;

/// Arguments and variables of a server.
struct Wanted {
    args: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// Whether more is needed than a manifest can say.
    is_all: bool,
}

const NOTHING: Wanted = Wanted { args: &[], variables: &[], is_all: true };
/// What OpenTelemetry's SDKs read.
const SDK: &[(&str, &str)] =
    &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")];

const fn wanted(server: Option<Server>) -> Wanted {
    match server {
        Some(Server::Triton) => Wanted {
            args: &[
                "--trace-config=mode=opentelemetry",
                "--trace-config=level=TIMESTAMPS",
                "--trace-config=rate=0",
                "--trace-config=count=-1",
                "--trace-config=opentelemetry,url=http://127.0.0.1:4318/v1/traces",
                "--trace-config=opentelemetry,bsp_schedule_delay=100",
            ],
            ..NOTHING
        },
        Some(Server::Vllm) => Wanted { args: &["--enable-per-request-metrics", "--enable-force-include-usage"], ..NOTHING },
        Some(Server::Sglang) => {
            Wanted { args: &["--enable-trace", "--otlp-traces-endpoint=127.0.0.1:4317", "--enable-metrics"], ..NOTHING }
        }
        Some(Server::Tei | Server::Tgi) => Wanted { args: &["--otlp-endpoint=http://127.0.0.1:4317"], ..NOTHING },
        Some(Server::LlamaCpp) => Wanted { args: &["--metrics"], ..NOTHING },
        Some(Server::FastApi | Server::BentoMl) | None => Wanted { variables: SDK, is_all: false, ..NOTHING },
        Some(
            Server::TensorRtLlm | Server::MlServer | Server::RayServe | Server::KServe | Server::TorchServe | Server::TfServing,
        ) => Wanted { is_all: false, ..NOTHING },
        Some(Server::Ollama) => NOTHING,
    }
}

/// Adds what the server lacks; lines about what is added, and what is left to do.
pub(crate) fn report(found: &Found, changes: &mut Changes) -> Result<Vec<String>, ManifestError> {
    let server = found.serving.known.and_then(|known| known.server);
    let Wanted { args, variables, is_all } = wanted(server);
    let container = found.serving.container;
    if items(found.pod.value, "containers").next().is_none() {
        return Ok(vec![
            "its container is KServe's: what it needs to report its stages: lapwing upstream-flags kserve".to_owned(),
        ]);
    }
    let path = |key: &str| -> Vec<String> { found.container().into_iter().chain([key.to_owned()]).collect() };
    let mut lines = Vec::new();
    let args: Vec<&str> = args.iter().copied().filter(|arg| !found.serving.words.has(arg)).collect();
    if !args.is_empty() {
        let words: Vec<&Value> = items(container, "command").chain(items(container, "args")).collect();
        let is_shell = words.iter().any(|word| word.as_str().is_some_and(|word| word.contains(char::is_whitespace)));
        if words.is_empty() || is_shell {
            let why = if is_shell { "it is started by a script" } else { "its image says what is run" };
            lines.push(format!("to make it report its stages add {} ({why})", args.join(" ")));
        } else {
            let count = items(container, "args").count();
            changes.items(&path("args"), args.iter().enumerate().map(|(at, arg)| ((count + at).to_string(), *arg)).collect())?;
            lines.push(format!("it reports its stages by {}", args.join(" ")));
        }
    }
    let is_set = |name: &str| items(container, "env").any(|one| one.get("name").and_then(Value::as_str) == Some(name));
    let variables: Vec<(String, Variable)> = variables
        .iter()
        .filter(|(name, _)| !is_set(name))
        .map(|(name, value)| ((*name).to_owned(), Variable::text(name, value)))
        .collect();
    if !variables.is_empty() {
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        lines.push(format!("spans of OpenTelemetry's SDK go to Lapwing ({})", names.join(", ")));
        changes.items(&path("env"), variables)?;
    }
    if !is_all {
        let name = server.map_or("fastapi", Server::name);
        lines.push(format!("what else it needs to report its stages: lapwing upstream-flags {name}"));
    }
    Ok(lines)
}
