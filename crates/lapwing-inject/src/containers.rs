//! The containers of an injection, for what was found in a pod.

use serde_json::Value;

use crate::ManifestError;
use crate::changes::Changes;
use crate::found::Found;
use crate::options::{InjectOptions, NATIVE_SIDECARS, Way};
use crate::sidecar::{
    Amounts, ConfigMap, Container, Exec, HttpGet, Lifecycle, Port, PreStop, Probe, REDIRECT, Resources, SIDECAR, SecurityContext,
    Volume, VolumeMount, gpu_visible, pod_attributes,
};

/// The volume with Lapwing's configuration, and where it is mounted.
const CONFIG: &str = "lapwing-config";
const CONFIG_FOLDER: &str = "/etc/lapwing";

/// Adds them to the pod.
pub(crate) fn add_containers(
    found: &Found,
    way: Way,
    options: &InjectOptions,
    changes: &mut Changes,
) -> Result<(), ManifestError> {
    let is_native = options.kubernetes >= NATIVE_SIDECARS;
    let list = |key: &str| -> Vec<String> { found.pod.spec.iter().cloned().chain([key.to_owned()]).collect() };
    let mut first = Vec::new();
    if way == Way::Redirect {
        first.push((REDIRECT.to_owned(), redirect(found, options)));
    }
    if let Some(name) = &options.config_map {
        let volume = Volume { name: CONFIG, config_map: ConfigMap { name: name.text().to_owned() } };
        changes.items(&list("volumes"), vec![(CONFIG.to_owned(), volume)])?;
    }
    if options.share_processes && found.pod.value.get("shareProcessNamespace").and_then(Value::as_bool) != Some(true) {
        changes.set(&found.pod.spec, "shareProcessNamespace", &true)?;
    }
    let sidecar = (SIDECAR.to_owned(), sidecar(found, options, is_native));
    // behind the pod's own init containers, which may fetch a model for minutes
    if is_native {
        first.push(sidecar);
        return changes.items(&list("initContainers"), first);
    }
    changes.items(&list("initContainers"), first)?;
    changes.items(&list("containers"), vec![sidecar])
}

fn redirect(found: &Found, options: &InjectOptions) -> Container {
    let amounts = |cpu: &str, memory: &str| Amounts { cpu: Some(cpu.to_owned()), memory: Some(memory.to_owned()) };
    Container {
        name: REDIRECT,
        image: options.image.clone(),
        args: vec!["redirect".to_owned(), format!("--from={}", found.port.number), format!("--to={}", found.listen)],
        resources: Resources { requests: amounts("10m", "16Mi"), limits: Amounts { cpu: None, memory: Some("64Mi".to_owned()) } },
        security_context: SecurityContext::network_admin(),
        ..Container::default()
    }
}

fn sidecar(found: &Found, options: &InjectOptions, is_native: bool) -> Container {
    let has_config = options.config_map.is_some();
    let mut args: Vec<String> = has_config.then(|| format!("--config={CONFIG_FOLDER}/lapwing.yaml")).into_iter().collect();
    args.extend([
        format!("--upstream=http://127.0.0.1:{}", found.port.number),
        format!("--listen=[::]:{}", found.listen),
        format!("--admin=[::]:{}", found.admin),
    ]);
    for (port, receiver) in [(4317, "--otlp-grpc=off"), (4318, "--otlp-http=off")] {
        if found.pod.taken().any(|taken| taken == port) {
            args.push(receiver.to_owned());
        }
    }
    args.extend(options.args.iter().cloned());
    // alive, not ready: whether the server is ready is for its own probe to say, so that a pod is never unready because of Lapwing's view
    let alive = |period_seconds: Option<u16>, failure_threshold: Option<u16>| Probe {
        http_get: HttpGet { path: "/livez", port: found.admin },
        period_seconds,
        failure_threshold,
    };
    // when the pod begins to end, before any container gets a signal; beside the server, it also has to outlive it
    let mut leave = vec!["lapwing".to_owned(), "leave".to_owned(), format!("--admin=127.0.0.1:{}", found.admin)];
    if !is_native {
        leave.push(format!("--wait-for=127.0.0.1:{}", found.port.number));
    }
    let runs_as_root =
        found.pod.value.get("securityContext").and_then(|context| context.get("runAsUser")).and_then(Value::as_u64) == Some(0);
    Container {
        name: SIDECAR,
        image: options.image.clone(),
        restart_policy: is_native.then_some("Always"),
        args,
        env: pod_attributes().into_iter().chain(options.gpu.then(gpu_visible).into_iter().flatten()).collect(),
        ports: vec![
            Port { name: "lapwing", container_port: found.listen },
            Port { name: "lapwing-admin", container_port: found.admin },
        ],
        startup_probe: is_native.then(|| alive(Some(1), Some(30))),
        liveness_probe: Some(alive(None, None)),
        readiness_probe: Some(alive(None, None)),
        lifecycle: Some(Lifecycle { pre_stop: PreStop { exec: Exec { command: leave } } }),
        resources: Resources {
            requests: Amounts { cpu: Some("100m".to_owned()), memory: Some("32Mi".to_owned()) },
            limits: Amounts { cpu: None, memory: Some(options.memory.text().to_owned()) },
        },
        security_context: SecurityContext { run_as_user: runs_as_root.then_some(65532), ..SecurityContext::default() },
        volume_mounts: has_config
            .then_some(VolumeMount { name: CONFIG, mount_path: CONFIG_FOLDER, read_only: true })
            .into_iter()
            .collect(),
    }
}
