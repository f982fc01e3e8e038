//! The port that a server's HTTP API has, and what says so.

use serde_json::Value;

use super::object::{Pod, items, number, text};
use super::server::{Serving, is_http};
use super::service::{Route, Target};

/// A port, and what says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundPort {
    pub(crate) number: u16,
    /// What says it, in prose: `its argument --port`.
    pub(crate) from: String,
}

/// A port that a container declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declared<'a> {
    /// Its number in `ports`.
    pub(crate) at: usize,
    pub(crate) number: u16,
    pub(crate) name: Option<&'a str>,
}

/// The ports that a container declares for TCP.
pub(crate) fn declared(container: &Value) -> Vec<Declared<'_>> {
    let is_tcp = |port: &Value| text(port, &["protocol"]).is_none_or(|protocol| protocol == "TCP");
    let of = |(at, port): (usize, &'_ Value)| {
        port.get("containerPort").and_then(number).map(|number| (at, number)).filter(|_| is_tcp(port))
    };
    let ports = items(container, "ports").enumerate();
    ports
        .filter_map(|(at, port)| of((at, port)).map(|(at, number)| Declared { at, number, name: text(port, &["name"]) }))
        .collect()
}

impl<'a> Pod<'a> {
    /// The ports that whatever runs in it declares.
    pub(crate) fn taken(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.running().flat_map(declared).map(|port| port.number)
    }
}

impl Serving<'_> {
    /// The port of its HTTP API. What it is started with says most, then what is declared for it, then what leads to it.
    ///
    /// # Errors
    ///
    /// That nothing says it.
    pub(crate) fn port(&self, routes: &[Route]) -> Result<FoundPort, String> {
        let ports = declared(self.container);
        let found = self.started().or_else(|| {
            if self.known.is_some() {
                self.usual(&ports)
                    .or_else(|| self.probed(&ports))
                    .or_else(|| routed(routes, &ports))
                    .or_else(|| sole(&ports))
                    .or_else(|| self.image())
            } else {
                self.probed(&ports).or_else(|| named(&ports)).or_else(|| routed(routes, &ports)).or_else(|| sole(&ports))
            }
        });
        found.ok_or_else(|| format!("nothing says on which port its container {} serves: name it with --port", self.name))
    }

    /// By an argument or a variable.
    fn started(&self) -> Option<FoundPort> {
        let known = self.known?;
        let ends_in = |value: &str| value.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
        if let Some(port) = self.words.option(known.options).and_then(ends_in) {
            let name = known.options.iter().find(|name| self.words.option(&[name]).and_then(ends_in) == Some(port));
            return Some(FoundPort { number: port, from: format!("its argument {}", name.copied().unwrap_or_default()) });
        }
        known.variables.iter().find_map(|name| {
            let number = self.words.variable(name).and_then(ends_in)?;
            Some(FoundPort { number, from: format!("its variable {name}") })
        })
    }

    /// The one where this server usually listens, or that is called so, if it is declared.
    fn usual(&self, ports: &[Declared]) -> Option<FoundPort> {
        let usual = self.known?.port;
        let declared = ports.iter().find(|port| port.number == usual);
        declared.map(|port| FoundPort { number: port.number, from: "its containerPort".to_owned() }).or_else(|| named(ports))
    }

    fn image(&self) -> Option<FoundPort> {
        let known = self.known?;
        Some(FoundPort { number: known.port, from: format!("the default of {}", self.title()) })
    }

    /// The one that a probe asks.
    fn probed(&self, ports: &[Declared]) -> Option<FoundPort> {
        ["readinessProbe", "startupProbe", "livenessProbe"].iter().find_map(|name| {
            let port = self.container.get(name)?.get("httpGet")?.get("port")?;
            let by_name = port.as_str().and_then(|name| ports.iter().find(|port| port.name == Some(name)));
            let number = number(port).or_else(|| by_name.map(|port| port.number))?;
            Some(FoundPort { number, from: format!("its {name}") })
        })
    }
}

/// One whose name is of HTTP.
fn named(ports: &[Declared]) -> Option<FoundPort> {
    let port = ports.iter().find(|port| port.name.is_some_and(is_http))?;
    Some(FoundPort { number: port.number, from: format!("its port {}", port.name.unwrap_or_default()) })
}

/// The only one.
fn sole(ports: &[Declared]) -> Option<FoundPort> {
    let [port] = ports else { return None };
    Some(FoundPort { number: port.number, from: "its only containerPort".to_owned() })
}

/// The only one to which Services lead.
fn routed(routes: &[Route], ports: &[Declared]) -> Option<FoundPort> {
    let number = |target: &Target| match target {
        Target::Number(number) => Some(*number),
        Target::Name(name) => ports.iter().find(|port| port.name == Some(name)).map(|port| port.number),
    };
    let mut numbers: Vec<u16> = routes.iter().filter_map(|route| number(&route.target)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let [number] = numbers.as_slice() else { return None };
    Some(FoundPort { number: *number, from: "the Service that leads to it".to_owned() })
}
