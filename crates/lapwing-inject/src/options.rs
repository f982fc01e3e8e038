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

/// An amount of bytes as Kubernetes writes it, as in `192Mi`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryAmount(String);

impl MemoryAmount {
    /// As it is written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl FromStr for MemoryAmount {
    type Err = String;

    /// Whole numbers with a suffix of k8s.io/apimachinery's `resource.Quantity` that makes bytes.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits);
        let is_amount = number.parse::<u64>().is_ok_and(|number| number > 0);
        let is_suffix = matches!(suffix, "" | "k" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti");
        if is_amount && is_suffix {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("{text} is no amount of memory, as in 192Mi or 2Gi"))
        }
    }
}

/// The name of an object of Kubernetes: a DNS subdomain (RFC 1123), without which the API server refuses the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceName(String);

impl ResourceName {
    /// As it is written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl FromStr for ResourceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_label = |label: &str| {
            label.starts_with(is_alphanumeric)
                && label.ends_with(is_alphanumeric)
                && label.chars().all(|c| c == '-' || is_alphanumeric(c))
        };
        if text.len() <= 253 && text.split('.').all(is_label) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("{text:?} is no name of an object: a-z, 0-9, - and . between them"))
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
    pub config_map: Option<ResourceName>,
    /// Whether the server is started so that it reports its stages.
    pub reporting: bool,
    /// The sidecar's limit of memory.
    pub memory: MemoryAmount,
    /// Whether the sidecar sees the node's GPUs, without asking the scheduler for one.
    pub gpu: bool,
    /// Whether the pod's containers see one another's processes.
    pub share_processes: bool,
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
            // 20 to 30 are in use; a flood of spans fills the receiver's bounds, and they must fit
            memory: MemoryAmount("192Mi".to_owned()),
            gpu: false,
            share_processes: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_api_server_takes() {
        for good in ["a", "settings", "lapwing.prod", "0-a.b9"] {
            assert_eq!(good.parse::<ResourceName>().map(|name| name.0).as_deref(), Ok(good));
        }
        for bad in ["", "Settings", "a_b", "-a", "a-", "a..b", ".a", "a.", "ä", "a b", &"x".repeat(254)] {
            assert!(bad.parse::<ResourceName>().unwrap_err().contains("is no name of an object"), "{bad}");
        }
    }
}
