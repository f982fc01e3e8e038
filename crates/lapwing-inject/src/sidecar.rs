//! The containers that are added to a pod, with the fields and their order as manifests have them.

use serde::Serialize;

/// The name of the sidecar.
pub(crate) const SIDECAR: &str = "lapwing";
/// The name of the container that leads the traffic to it.
pub(crate) const REDIRECT: &str = "lapwing-redirect";

/// A container.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    pub(crate) name: &'static str,
    pub(crate) image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) restart_policy: Option<&'static str>,
    pub(crate) args: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<Variable>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<Port>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) startup_probe: Option<Probe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) liveness_probe: Option<Probe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) readiness_probe: Option<Probe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lifecycle: Option<Lifecycle>,
    pub(crate) resources: Resources,
    pub(crate) security_context: SecurityContext,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) volume_mounts: Vec<VolumeMount>,
}

/// A variable of a container: a text, in which the kubelet expands `$(NAME)` of earlier ones, or a field of the pod.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value_from: Option<ValueFrom>,
}

impl Variable {
    pub(crate) fn text(name: &'static str, value: &str) -> Self {
        Self { name, value: Some(value.to_owned()), value_from: None }
    }

    fn field(name: &'static str, field_path: &'static str) -> Self {
        Self { name, value: None, value_from: Some(ValueFrom { field_ref: FieldRef { field_path } }) }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ValueFrom {
    pub(crate) field_ref: FieldRef,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FieldRef {
    pub(crate) field_path: &'static str,
}

/// The variable, field and resource attribute of each thing that tells a pod from others.
const OF_THE_POD: [(&str, &str, &str); 3] = [
    ("POD_NAME", "metadata.name", "k8s.pod.name"),
    ("POD_NAMESPACE", "metadata.namespace", "k8s.namespace.name"),
    ("NODE_NAME", "spec.nodeName", "k8s.node.name"),
];

/// Variables by which Lapwing's own telemetry names the pod (downward API).
pub(crate) fn pod_attributes() -> Vec<Variable> {
    let fields = OF_THE_POD.map(|(name, field_path, _)| Variable::field(name, field_path));
    let attributes = OF_THE_POD.map(|(name, _, attribute)| format!("{attribute}=$({name})")).join(",");
    fields.into_iter().chain([Variable::text("OTEL_RESOURCE_ATTRIBUTES", &attributes)]).collect()
}

/// Variables by which NVIDIA's container runtime shows all GPUs to a container that was given none by the scheduler
/// (docs.nvidia.com, container toolkit, "Environment variables").
pub(crate) fn gpu_visible() -> [Variable; 2] {
    [("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")]
        .map(|(name, value)| Variable::text(name, value))
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeMount {
    pub(crate) name: &'static str,
    pub(crate) mount_path: &'static str,
    pub(crate) read_only: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Volume {
    pub(crate) name: &'static str,
    pub(crate) config_map: ConfigMap,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConfigMap {
    pub(crate) name: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Port {
    pub(crate) name: &'static str,
    pub(crate) container_port: u16,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Probe {
    pub(crate) http_get: HttpGet,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) period_seconds: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure_threshold: Option<u16>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct HttpGet {
    pub(crate) path: &'static str,
    pub(crate) port: u16,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lifecycle {
    pub(crate) pre_stop: PreStop,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PreStop {
    pub(crate) exec: Exec,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Exec {
    pub(crate) command: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Resources {
    pub(crate) requests: Amounts,
    pub(crate) limits: Amounts,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Amounts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecurityContext {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_as_user: Option<u32>,
    pub(crate) run_as_non_root: bool,
    pub(crate) read_only_root_filesystem: bool,
    pub(crate) allow_privilege_escalation: bool,
    pub(crate) capabilities: Capabilities,
    pub(crate) seccomp_profile: SeccompProfile,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Capabilities {
    pub(crate) drop: [&'static str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) add: Option<[&'static str; 1]>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SeccompProfile {
    pub(crate) r#type: &'static str,
}

impl Default for SecurityContext {
    /// As Kubernetes' profile `restricted` asks.
    fn default() -> Self {
        Self {
            run_as_user: None,
            run_as_non_root: true,
            read_only_root_filesystem: true,
            allow_privilege_escalation: false,
            capabilities: Capabilities { drop: ["ALL"], add: None },
            seccomp_profile: SeccompProfile { r#type: "RuntimeDefault" },
        }
    }
}

impl SecurityContext {
    /// For who writes the rules of the pod's network: root with one capability.
    pub(crate) fn network_admin() -> Self {
        Self {
            run_as_user: Some(0),
            run_as_non_root: false,
            capabilities: Capabilities { drop: ["ALL"], add: Some(["NET_ADMIN"]) },
            ..Self::default()
        }
    }
}
