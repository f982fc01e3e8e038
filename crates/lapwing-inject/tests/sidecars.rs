//! Pods that have sidecars of Kubernetes' own kind: init containers that go on.

#![allow(clippy::unwrap_used, reason = "a test")]

use lapwing_inject::{InjectOptions, InjectVerdict, MemoryAmount, inject};
use serde_json::{Value, json};

/// A pod with vLLM, and this among its init containers, as it is injected; and what was said of it.
fn injected(beside: Value) -> (Value, String) {
    with(beside, &InjectOptions::default())
}

fn with(beside: Value, options: &InjectOptions) -> (Value, String) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "chat"}, "spec": {
        "initContainers": [beside],
        "containers": [{"name": "server", "image": "vllm/vllm-openai:v0.9.1", "args": ["--port=8000"]}]}});
    let made = inject(&pod.to_string(), options).unwrap();
    (serde_json::from_str(&made.text).unwrap(), made.reports[0].lines.join("\n"))
}

#[test]
fn their_ports_are_taken() {
    let ports = json!([{"containerPort": 9463}, {"containerPort": 9465}, {"containerPort": 4317}]);
    let arguments = |goes_on: bool| {
        let mut beside = json!({"name": "collector", "image": "collector", "ports": ports});
        if goes_on {
            beside["restartPolicy"] = "Always".into();
        }
        let (pod, _) = injected(beside);
        let names: Vec<&str> =
            pod["spec"]["initContainers"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["collector", "lapwing-redirect", "lapwing"]);
        pod["spec"]["initContainers"][2]["args"].as_array().unwrap()[1..].to_vec()
    };
    assert_eq!(arguments(true), ["--listen=[::]:9464", "--admin=[::]:9466", "--otlp-grpc=off"]);
    // one that ends before the server starts holds no port
    assert_eq!(arguments(false), ["--listen=[::]:9463", "--admin=[::]:9464"]);
}

#[test]
fn the_proxy_of_a_mesh_is_seen() {
    let (_, lines) = injected(json!({"name": "istio-proxy", "image": "proxyv2", "restartPolicy": "Always"}));
    assert!(lines.contains("way service"), "{lines}");
}

#[test]
fn gpus_processes_and_memory_are_given_when_asked_for() {
    let beside = || json!({"name": "fetch", "image": "fetch"});
    let (pod, lines) = injected(beside());
    assert_eq!((pod["spec"].get("shareProcessNamespace"), lines.contains("GPU")), (None, false));
    assert!(!pod.to_string().contains("NVIDIA"));
    let options = InjectOptions { gpu: true, share_processes: true, memory: "2Gi".parse().unwrap(), ..InjectOptions::default() };
    let (pod, lines) = with(beside(), &options);
    let sidecar = &pod["spec"]["initContainers"][2];
    assert_eq!(
        (&pod["spec"]["shareProcessNamespace"], &sidecar["resources"]["limits"]),
        (&json!(true), &json!({"memory": "2Gi"}))
    );
    let env = sidecar["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})) && lines.contains("GPUs"), "{lines}");
    for bad in ["", "Mi", "0", "1.5Gi", "2gb", "-1Mi"] {
        assert!(bad.parse::<MemoryAmount>().unwrap_err().contains("as in 192Mi"), "{bad}");
    }
}

#[test]
fn what_a_user_added_stays_and_what_is_no_longer_asked_for_goes() {
    let gpu = InjectOptions { gpu: true, ..InjectOptions::default() };
    let (pod, _) = with(json!({"name": "fetch", "image": "fetch"}), &gpu);
    let plain = inject(&pod.to_string(), &InjectOptions::default()).unwrap();
    assert!(plain.reports[0].verdict == InjectVerdict::Injected && !plain.text.contains("NVIDIA"), "{}", plain.text);
    let mut pod: Value = serde_json::from_str(&plain.text).unwrap();
    let sidecar = &mut pod["spec"]["initContainers"][2];
    sidecar["env"].as_array_mut().unwrap().insert(0, json!({"name": "LAPWING_LOG", "value": "debug"}));
    sidecar["volumeMounts"] = json!([{"name": "own", "mountPath": "/own"}]);
    let again = inject(&pod.to_string(), &InjectOptions::default()).unwrap();
    assert_eq!((again.reports[0].verdict, again.text), (InjectVerdict::Unchanged, pod.to_string()));
    // another value is no addition
    pod["spec"]["initContainers"][2]["env"][1]["valueFrom"]["fieldRef"]["fieldPath"] = "metadata.uid".into();
    assert_eq!(inject(&pod.to_string(), &InjectOptions::default()).unwrap().reports[0].verdict, InjectVerdict::Injected);
}
