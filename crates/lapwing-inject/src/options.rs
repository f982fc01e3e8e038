//! What a user asks for.

use std::str::FromStr;

/// How the pod's traffic comes to the sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The pod's named port becomes Lapwing's, so that Services with that name as their `targetPort` lead to it.
    Named,
    /// An init container redirects the server's port in the pod's network namespace.
    Redirect,
    /// The Service is changed to Lapwing's own port.
    Service,
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Named, Self::Redirect, Self::Service];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Redirect => "redirect",
            Self::Service => "service",
        }
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|way| way.name() == name).ok_or_else(|| format!("{name} is no way: named, redirect, service"))
    }
}

/// A version of Kubernetes, as in 1.29.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesVersion(pub u16);

/// The first with sidecars of its own: init containers that go on (`restartPolicy: Always`), KEP-753.
pub(crate) const NATIVE_SIDECARS: KubernetesVersion = KubernetesVersion(29);

impl FromStr for KubernetesVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let minor = text.strip_prefix('v').unwrap_or(text).strip_prefix("1.").and_then(|rest| rest.split('.').next());
        let minor = minor.and_then(|minor| minor.parse().ok());
        minor.map(Self).ok_or_else(|| format!("{text} is no version of Kubernetes, as in 1.29"))
    }
}

/// What to inject, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectOptions {
    /// The image with Lapwing.
    pub image: String,
    /// The way; without one, that which changes least.
    pub way: Option<Way>,
    /// The server's port, if the manifest does not say it.
    pub port: Option<u16>,
    /// The server's container, if the manifest does not show it.
    pub container: Option<String>,
    /// The objects to inject into, by `KIND/NAME` or `NAME`; without any, those with a model server that is known, or the only one.
    pub workloads: Vec<String>,
    /// The cluster's version.
    pub kubernetes: KubernetesVersion,
    /// Where Lapwing listens for clients, if that is free in the pod.
    pub listen: u16,
    /// Where it answers `/stats`, `/metrics`, `/livez` and the like, if that is free in the pod.
    pub admin: u16,
    /// Further arguments of Lapwing.
    pub args: Vec<String>,
    /// The ConfigMap with Lapwing's configuration, in the key `lapwing.yaml`.
    pub config_map: Option<String>,
    /// Whether the server is started so that it reports its stages.
    pub reporting: bool,
}

impl Default for InjectOptions {
    fn default() -> Self {
        Self {
            image: concat!("lapwing:", env!("CARGO_PKG_VERSION")).to_owned(),
            way: None,
            port: None,
            container: None,
            workloads: Vec::new(),
            kubernetes: NATIVE_SIDECARS,
            listen: 9463,
            admin: 9464,
            args: Vec::new(),
            config_map: None,
            reporting: false,
        }
    }
}
