//! The list `downstreams`: where the model server's own calls are taken, and where they go.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cache_config::{DOWNSTREAM_CACHE, DownstreamCache, check_downstream_cache};
use crate::kind::DownstreamKind;
use lapwing_ledger::Stage;
use lapwing_settings::{
    Bind, CLIENT_TLS, Checks, ClientTls, DownstreamAddress, DownstreamScheme, Form, Record, SERVER_TLS, Section, ServerTls,
};

/// The most downstreams.
pub const MAX_DOWNSTREAMS: usize = 16;
/// Where each listens, as faults name it.
pub const LISTEN_KEYS: [&str; MAX_DOWNSTREAMS] = [
    "downstreams[0].listen",
    "downstreams[1].listen",
    "downstreams[2].listen",
    "downstreams[3].listen",
    "downstreams[4].listen",
    "downstreams[5].listen",
    "downstreams[6].listen",
    "downstreams[7].listen",
    "downstreams[8].listen",
    "downstreams[9].listen",
    "downstreams[10].listen",
    "downstreams[11].listen",
    "downstreams[12].listen",
    "downstreams[13].listen",
    "downstreams[14].listen",
    "downstreams[15].listen",
];
/// The longest name.
const MAX_NAME_BYTES: usize = 63;

/// What a downstream is.
pub const DOWNSTREAM: Record = Record {
    what: "a section, as in {listen: 127.0.0.1:6380, to: redis://127.0.0.1:6379, kind: redis}",
    keys: &[
        ("name", Form::Text),
        ("listen", Form::Text),
        ("to", Form::Text),
        ("kind", Form::Text),
        ("stage", Form::Text),
        ("tls", Form::Record(&CLIENT_TLS)),
        ("listen_tls", Form::Record(&SERVER_TLS)),
        ("cache", Form::Record(&DOWNSTREAM_CACHE)),
    ],
    stand_in: &[("listen", "127.0.0.1:6380"), ("to", "redis://127.0.0.1:6379"), ("kind", "redis")],
};

/// The stage that calls are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallStage {
    /// Feature lookup.
    #[default]
    Hydration,
    /// What is done elsewhere before inference, such as tokenising.
    Preprocessing,
    /// What is done elsewhere with the model's outputs.
    Postprocessing,
    /// Other calls after inference.
    Downstream,
}

impl CallStage {
    /// The stage of a request.
    #[must_use]
    pub const fn stage(self) -> Stage {
        match self {
            Self::Hydration => Stage::Hydration,
            Self::Preprocessing => Stage::Preprocessing,
            Self::Postprocessing => Stage::Postprocessing,
            Self::Downstream => Stage::Downstream,
        }
    }
}

/// A store or service that the model server calls through Lapwing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "downstream")]
pub struct Downstream {
    /// Its name in `/downstreams` and `/metrics`; without one, its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address that the server's client connects to instead.
    pub listen: Bind,
    /// Where the calls go: `redis://` or `rediss://` (TLS); `http://`, `https://`, for gRPC `h2c://` too; or `unix:/path`.
    pub to: DownstreamAddress,
    /// What is spoken there.
    pub kind: DownstreamKind,
    /// The stage that a request's calls are.
    #[serde(default)]
    pub stage: CallStage,
    /// How TLS is spoken to `rediss://` and `https://`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientTls>,
    /// How TLS is spoken at `listen`; without it, it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_tls: Option<ServerTls>,
    /// Answers that are kept and given again, so that the store is not asked twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<DownstreamCache>,
}

impl Downstream {
    /// Its name on every surface.
    #[must_use]
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.to.to_string())
    }

    fn fits_kind(&self) -> bool {
        let Some(scheme) = self.to.scheme() else { return true };
        match self.kind {
            DownstreamKind::Redis => scheme.is_redis(),
            DownstreamKind::Http => matches!(scheme, DownstreamScheme::Http | DownstreamScheme::Https),
            DownstreamKind::Grpc => !scheme.is_redis(),
        }
    }
}

/// Reports the faults of `downstreams`.
pub fn check_downstreams(downstreams: &[Downstream], checks: &mut Checks) {
    if downstreams.len() > MAX_DOWNSTREAMS {
        checks.fault("downstreams", downstreams.len(), format!("must be at most {MAX_DOWNSTREAMS}"));
    }
    for (at, one) in downstreams.iter().enumerate() {
        let key = format!("downstreams[{at}]");
        if let Some(name) = &one.name {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_name) {
                let reason = format!("is no name: give 1 to {MAX_NAME_BYTES} letters, digits, -, _ and .");
                checks.fault(&format!("{key}.name"), name, reason);
            }
        }
        if let Some(twin) = downstreams[..at].iter().position(|other| other.label() == one.label()) {
            let (field, text) = if one.name.is_some() { ("name", one.label()) } else { ("to", one.to.to_string()) };
            checks.fault(
                &format!("{key}.{field}"),
                text,
                format!("is that of downstreams[{twin}] too: give each a name of its own"),
            );
        }
        if one.listen.get().port() == 0 {
            checks.fault(&format!("{key}.listen"), one.listen, "needs a port above 0, which the server's client is told");
        }
        if !one.fits_kind() {
            checks.fault(&format!("{key}.to"), &one.to, "does not fit the kind: redis goes to redis:// or rediss://, http to http:// or https://, grpc to h2c:// or https://");
        }
        if let Some(tls) = &one.tls {
            if !one.to.scheme().is_some_and(DownstreamScheme::is_tls) {
                checks.fault(
                    &format!("{key}.tls"),
                    &one.to,
                    "speaks no TLS: give it an address with rediss or https, or leave this out",
                );
            }
            checks.section(&format!("{key}.tls"), |checks| tls.check(checks));
        }
        if let Some(tls) = &one.listen_tls {
            if !tls.is_on() {
                checks.fault(&format!("{key}.listen_tls"), "", "needs certificate and key, or is to be left out");
            }
            checks.section(&format!("{key}.listen_tls"), |checks| tls.check(checks));
        }
        if let Some(cache) = &one.cache {
            check_downstream_cache(&format!("{key}.cache"), one.kind, cache, checks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_the_record_are_the_fields() {
        DOWNSTREAM.assert_describes::<Downstream>();
    }

    #[test]
    fn each_fault_names_its_field() {
        let read = |text: &str| serde_json::from_str::<Vec<Downstream>>(text).unwrap();
        let faults = |text: &str| {
            let mut checks = Checks::new(Default::default());
            check_downstreams(&read(text), &mut checks);
            checks.into_faults().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let sound = r#"{"listen": "127.0.0.1:6380", "to": "redis://store", "kind": "redis"}"#;
        assert_eq!(faults(&format!("[{sound}]")), [""; 0]);
        assert_eq!(read(&format!("[{sound}]"))[0].label(), "redis://store:6379");
        for (text, beginning) in [
            (format!("[{sound}, {sound}]"), "downstreams[1].to: redis://store:6379: is that of downstreams[0] too"),
            (sound.replace("redis://store", "http://store"), "downstreams[0].to: http://store:80: does not fit the kind"),
            (sound.replace("\"kind\"", "\"name\": \"a b\", \"kind\""), "downstreams[0].name: a b: is no name"),
            (sound.replace("\"kind\"", "\"tls\": {}, \"kind\""), "downstreams[0].tls: redis://store:6379: speaks no TLS"),
            (sound.replace("6380", "0"), "downstreams[0].listen: 127.0.0.1:0: needs a port above 0"),
            (sound.replace("\"kind\"", "\"listen_tls\": {}, \"kind\""), "downstreams[0].listen_tls: needs certificate and key"),
        ] {
            let text = if text.starts_with('[') { text } else { format!("[{text}]") };
            let found = faults(&text);
            assert!(found.first().is_some_and(|fault| fault.starts_with(beginning)), "{beginning}: {found:?}");
        }
    }
}
