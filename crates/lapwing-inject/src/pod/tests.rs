//! Servers, their commands and options, as manifests show them.

use serde_json::json;

use super::server::Serving;
use super::words::Words;

#[test]
fn options_are_found_however_they_are_written() {
    for (container, port) in [
        (json!({"args": ["--port", "8000"]}), Some("8000")),
        (json!({"args": ["--port=8000"]}), Some("8000")),
        (json!({"args": ["-p", 8000]}), Some("8000")),
        (json!({"args": ["-p8000"]}), Some("8000")),
        (json!({"args": ["--port-range", "1", "--port"]}), None),
        // the last decides
        (json!({"args": ["--port=1", "--port=2"]}), Some("2")),
        (json!({"command": ["sh", "-c", "exec serve \\\n --port '8000' && true"]}), Some("8000")),
        (json!({"args": ["--port=$(PORT)"], "env": [{"name": "PORT", "value": "7"}]}), Some("7")),
        (json!({"command": ["sh", "-c", "serve --port $PORT"], "env": [{"name": "PORT", "value": "7"}]}), Some("7")),
    ] {
        assert_eq!(Words::of(&container).option(&["--port", "-p"]), port, "{container}");
    }
}

#[test]
fn commands_are_words_and_modules_and_no_parts_of_words() {
    for (command, wanted, runs) in [
        (json!(["/usr/bin/vllm", "serve"]), "vllm", true),
        (json!(["python3", "-m", "vllm.entrypoints.openai.api_server"]), "vllm.", true),
        (json!(["my-vllm-client"]), "vllm", false),
        (json!(["serve", "run", "app:app"]), "serve run", true),
        (json!(["vllm", "serve", "x"]), "serve run", false),
    ] {
        assert_eq!(Words::of(&json!({"command": command})).runs(wanted), runs, "{command} {wanted}");
    }
}

#[test]
fn arguments_that_are_there_are_known() {
    let args = ["--metrics", "--otlp-endpoint", "http://x:1", "--trace-config=mode=opentelemetry"];
    let there = Words::of(&json!({"args": args}));
    for (argument, has) in [
        ("--metrics", true),
        ("--enable-metrics", false),
        // with another value: it is the user's
        ("--otlp-endpoint=http://127.0.0.1:4317", true),
        ("--trace-config=mode=opentelemetry", true),
        ("--trace-config=rate=0", false),
    ] {
        assert_eq!(there.has(argument), has, "{argument}");
    }
}

#[test]
fn images_are_known_by_parts_of_their_path() {
    for (image, title) in [
        ("vllm/vllm-openai:v0.9.1", "vLLM"),
        ("registry.example:5000/mirror/vllm-openai@sha256:00", "vLLM"),
        ("nvcr.io/nvidia/tritonserver:25.01-py3", "NVIDIA Triton Inference Server"),
        ("acme/my-vllm-client:1", "an HTTP server that is not known by name"),
        ("acme/server:vllm", "an HTTP server that is not known by name"),
    ] {
        assert_eq!(Serving::of(0, &json!({"name": "s", "image": image})).title(), title, "{image}");
    }
}
