//! Which HTTP versions the upstream speaks, learnt from its first bytes, and what is wrong if it speaks none that it is asked in.
//!
//! Over cleartext nobody says beforehand what is spoken (RFC 9113, 3.1). So the first request of an HTTP/2 client waits for the upstream's
//! `SETTINGS`, which any server of HTTP/2 sends first; one that answers anything else gets that request, and all that follow, over HTTP/1.1. An
//! HTTP/1.1 client's requests go over HTTP/1.1 until the upstream is found to speak HTTP/2 only. Over TLS the version is agreed on (ALPN),
//! and what the server chose is learnt here too.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::Version;
use parking_lot::Mutex;

use super::ask;
use crate::config::UpstreamProtocol;
use crate::connection::Greeting;
use crate::error::Error;
use lapwing_ledger::Stamp;
use lapwing_net::Target;

/// The time between two questions to an upstream whose answers are not HTTP as configured.
const PAUSE_NS: u64 = 1_000_000_000;
/// How long an answer to a question may take.
const ANSWER: Duration = Duration::from_millis(250);

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Over which version a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Http1,
    Http2,
    /// Over HTTP/2 if the upstream turns out to speak it, else over HTTP/1.1.
    Http2IfSpoken,
}

/// What is known of it. Whoever learns something writes it, and nobody waits for it.
#[derive(Debug, Default)]
pub(crate) struct Spoken {
    http1: AtomicU8,
    http2: AtomicU8,
    has_fault: AtomicBool,
    fault: Mutex<Option<Fault>>,
    /// When it was last asked.
    asked: AtomicU64,
}

/// Why no request can be answered.
#[derive(Debug)]
struct Fault {
    protocol: UpstreamProtocol,
    text: String,
}

impl Spoken {
    /// Over which version a client's request of `version` goes.
    pub(crate) fn route(&self, protocol: UpstreamProtocol, version: Version) -> Route {
        match protocol {
            UpstreamProtocol::H1 => Route::Http1,
            UpstreamProtocol::H2 => Route::Http2,
            UpstreamProtocol::Auto if version == Version::HTTP_2 => match self.http2.load(Relaxed) {
                YES => Route::Http2,
                NO if self.http1.load(Relaxed) != NO => Route::Http1,
                _ => Route::Http2IfSpoken,
            },
            UpstreamProtocol::Auto if self.is_http2_only() => Route::Http2,
            UpstreamProtocol::Auto => Route::Http1,
        }
    }

    /// Whether it is known to speak HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.http2.load(Relaxed) == YES
    }

    /// Whether it refuses HTTP/1.1 and speaks HTTP/2.
    pub(crate) fn is_http2_only(&self) -> bool {
        self.http1.load(Relaxed) == NO && self.http2.load(Relaxed) == YES
    }

    /// Whether it is known not to speak HTTP/2.
    pub(crate) fn refuses_http2(&self) -> bool {
        self.http2.load(Relaxed) == NO
    }

    /// Whether no answer over HTTP/1.1 has come yet.
    pub(crate) fn is_http1_unproven(&self) -> bool {
        self.http1.load(Relaxed) != YES
    }

    /// An answer over HTTP/1.1 came.
    pub(crate) fn on_http1(&self) {
        if self.is_http1_unproven() {
            self.http1.store(YES, Relaxed);
        }
        self.on_answer();
    }

    /// An answer over HTTP/2 came.
    pub(crate) fn on_http2(&self) {
        if self.http2.load(Relaxed) != YES {
            self.http2.store(YES, Relaxed);
        }
        self.on_answer();
    }

    fn on_answer(&self) {
        if self.has_fault.load(Relaxed) {
            self.has_fault.store(false, Relaxed);
            *self.fault.lock() = None;
            tracing::info!("the upstream answers as it is asked");
        }
    }

    /// A connection on which HTTP/2 was begun was greeted so. A server that ends it without a word may have stopped just then.
    pub(crate) fn on_greeting(&self, target: &Target, greeting: Greeting) {
        match greeting {
            Greeting::Http2 => self.http2.store(YES, Relaxed),
            Greeting::Http1 => self.on_no_http2(target),
            _ => {}
        }
    }

    /// The upstream answers HTTP/1.1, and did not answer the preface of HTTP/2.
    pub(crate) fn on_no_http2(&self, target: &Target) {
        if self.http2.swap(NO, Relaxed) != NO {
            tracing::info!(upstream = %target, "the upstream does not speak HTTP/2: clients' requests are translated to HTTP/1.1");
        }
    }

    /// A request that was translated to HTTP/1.1 failed: the next finds out whether HTTP/2 is spoken now.
    pub(crate) fn doubt_no_http2(&self) {
        if self.refuses_http2() {
            self.http2.store(UNKNOWN, Relaxed);
        }
    }

    /// Asks whether HTTP/2 is spoken now, for a request that cannot go without it.
    pub(crate) async fn finds_http2(&self, target: &Target) -> bool {
        if self.refuses_http2() && self.may_ask() && ask::greeting(target, ANSWER).await == Some(Greeting::Http2) {
            self.http2.store(YES, Relaxed);
        }
        self.http2.load(Relaxed) == YES
    }

    /// Another server may be there from now on.
    pub(crate) fn forget(&self) {
        self.http1.store(UNKNOWN, Relaxed);
        self.http2.store(UNKNOWN, Relaxed);
        self.has_fault.store(false, Relaxed);
        *self.fault.lock() = None;
    }

    /// A connection over which `asked` was spoken was greeted by something else. Returns the error that says so, if that tells anything.
    pub(crate) fn explain(
        &self,
        target: &Target,
        protocol: UpstreamProtocol,
        asked: Version,
        greeting: Greeting,
    ) -> Option<Error> {
        let is_auto = protocol == UpstreamProtocol::Auto;
        let text = match (asked, greeting) {
            (Version::HTTP_2, Greeting::Http2) | (Version::HTTP_11, Greeting::Http1 | Greeting::Nothing) => return None,
            (Version::HTTP_2, Greeting::Nothing) => {
                let text = format!(
                    "the upstream {target} closed the connection without the SETTINGS of HTTP/2; if it speaks HTTP/1.1 only, set \
                     proxy.upstream_protocol to auto or h1, and the scheme of upstream to http"
                );
                // it may have crashed as well
                return (!is_auto).then_some(Error::WrongProtocol(text));
            }
            (Version::HTTP_2, Greeting::Http1) if is_auto => {
                self.http2.store(NO, Relaxed);
                let text = format!("the upstream {target} speaks HTTP/1.1 now: the next request goes over that");
                return Some(Error::WrongProtocol(text));
            }
            (_, Greeting::Http2) if is_auto => {
                self.http1.store(NO, Relaxed);
                self.on_http2();
                tracing::info!(upstream = %target, "the upstream speaks HTTP/2 only: clients' requests are translated to it");
                let text = format!(
                    "the upstream {target} speaks HTTP/2 only, and too much of this request had been sent to send it again: the next goes \
                     over HTTP/2; to begin with it, set proxy.upstream_protocol to h2"
                );
                return Some(Error::WrongProtocol(text));
            }
            (_, Greeting::Http1) => format!(
                "the upstream {target} speaks HTTP/1.1, and HTTP/2 is set: set proxy.upstream_protocol to auto or h1, and the scheme of \
                 upstream to http"
            ),
            (_, Greeting::Http2) => {
                format!(
                    "the upstream {target} speaks HTTP/2 only, and HTTP/1.1 is set: set proxy.upstream_protocol to auto or h2"
                )
            }
            (_, Greeting::Tls) => format!(
                "the upstream {target} speaks TLS, and Lapwing sends HTTP without it: write https:// in upstream, or set it to a port where it speaks plain HTTP"
            ),
            (Version::HTTP_2, Greeting::Other) => format!(
                "the upstream {target} does not speak HTTP/2: if it speaks HTTP/1.1, set proxy.upstream_protocol to auto or h1, and the \
                 scheme of upstream to http; else set upstream to the port of an HTTP server"
            ),
            (_, Greeting::Other | Greeting::Nothing) => {
                format!(
                    "what listens at the upstream {target} answers neither HTTP/1.1 nor HTTP/2: set upstream to the port of an HTTP server"
                )
            }
        };
        self.set_fault(protocol, &text);
        Some(Error::WrongProtocol(text))
    }

    /// Says once what is wrong, until an answer comes.
    fn set_fault(&self, protocol: UpstreamProtocol, text: &str) {
        if !self.has_fault.swap(true, Relaxed) {
            tracing::warn!("{text}");
        }
        *self.fault.lock() = Some(Fault { protocol, text: text.to_owned() });
    }

    /// A request over `version` was given no answer: asks what the upstream speaks, if none has come before, and it was not asked just now.
    /// Returns what there is to say of it.
    pub(crate) async fn ask(&self, target: &Target, protocol: UpstreamProtocol, version: Version) -> Option<Error> {
        let known = if version == Version::HTTP_2 { &self.http2 } else { &self.http1 };
        if known.load(Relaxed) == YES {
            return None;
        }
        if !self.may_ask() {
            return self.fault.lock().as_ref().map(|fault| Error::WrongProtocol(fault.text.clone()));
        }
        let greeting = match ask::greeting(target, ANSWER).await? {
            // it may speak both, and have failed at that request
            Greeting::Http2 if version != Version::HTTP_2 && ask::speaks_h1(target, ANSWER).await != Some(false) => return None,
            Greeting::Nothing | Greeting::Other if ask::speaks_tls(target, ANSWER).await => Greeting::Tls,
            Greeting::Nothing | Greeting::Other => return None,
            greeting => greeting,
        };
        self.explain(target, protocol, version, greeting)
    }

    fn may_ask(&self) -> bool {
        let now = Stamp::now();
        let may = Stamp::from_ns(self.asked.load(Relaxed)).is_none_or(|asked| now.since(asked) >= PAUSE_NS);
        if may {
            self.asked.store(now.as_ns(), Relaxed);
        }
        may
    }

    /// If nothing has worked so far, asks whether it would now.
    pub(crate) async fn ask_again(&self, target: &Target) -> Result<(), String> {
        let Some((protocol, text)) = self.fault.lock().as_ref().map(|fault| (fault.protocol, fault.text.clone())) else {
            return Ok(());
        };
        if !self.may_ask() {
            return Err(text);
        }
        let http2 = protocol != UpstreamProtocol::H1 && ask::greeting(target, ANSWER).await == Some(Greeting::Http2);
        let http1 = protocol != UpstreamProtocol::H2 && !http2 && ask::speaks_h1(target, ANSWER).await == Some(true);
        if !http1 && !http2 {
            return Err(text);
        }
        self.forget();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H1: Version = Version::HTTP_11;
    const H2: Version = Version::HTTP_2;

    fn target() -> Target {
        Target::Tcp("m:1".into())
    }

    #[test]
    fn a_request_goes_over_its_own_version_until_the_upstream_refuses_it() {
        let spoken = Spoken::default();
        let routes = || [H1, H2].map(|version| spoken.route(UpstreamProtocol::Auto, version));
        assert_eq!(routes(), [Route::Http1, Route::Http2IfSpoken]);
        spoken.on_greeting(&target(), Greeting::Http2);
        assert_eq!(routes(), [Route::Http1, Route::Http2]);
        spoken.explain(&target(), UpstreamProtocol::Auto, H1, Greeting::Http2);
        assert_eq!(routes(), [Route::Http2, Route::Http2]);
        spoken.forget();
        spoken.on_greeting(&target(), Greeting::Http1);
        assert_eq!(routes(), [Route::Http1, Route::Http1]);
        spoken.forget();
        assert_eq!(routes(), [Route::Http1, Route::Http2IfSpoken]);
        for (protocol, route) in [(UpstreamProtocol::H1, Route::Http1), (UpstreamProtocol::H2, Route::Http2)] {
            assert_eq!([H1, H2].map(|version| spoken.route(protocol, version)), [route; 2]);
        }
    }

    #[test]
    fn what_is_wrong_names_the_setting_that_helps() {
        let text = |protocol, asked, greeting| {
            let error = Spoken::default().explain(&target(), protocol, asked, greeting)?;
            Some(error.to_string())
        };
        for (protocol, asked, greeting, says) in [
            (UpstreamProtocol::H2, H2, Greeting::Http1, "set proxy.upstream_protocol to auto or h1"),
            (UpstreamProtocol::H2, H2, Greeting::Nothing, "set proxy.upstream_protocol to auto or h1"),
            (UpstreamProtocol::H1, H1, Greeting::Http2, "set proxy.upstream_protocol to auto or h2"),
            (UpstreamProtocol::Auto, H1, Greeting::Tls, "speaks TLS"),
            (UpstreamProtocol::Auto, H1, Greeting::Other, "the port of an HTTP server"),
            (UpstreamProtocol::H2, H2, Greeting::Other, "set proxy.upstream_protocol to auto or h1"),
            (UpstreamProtocol::Auto, H1, Greeting::Http2, "the next goes over HTTP/2"),
        ] {
            let text = text(protocol, asked, greeting).unwrap();
            assert!(text.contains(says) && text.contains("m:1"), "{text}");
        }
        assert_eq!(text(UpstreamProtocol::H2, H2, Greeting::Http2), None);
        assert_eq!(text(UpstreamProtocol::Auto, H1, Greeting::Http1), None);
        assert_eq!(text(UpstreamProtocol::H1, H1, Greeting::Nothing), None, "it broke off");
    }

    #[tokio::test]
    async fn it_is_ready_again_once_it_answers() {
        let spoken = Spoken::default();
        assert!(spoken.ask_again(&target()).await.is_ok());
        spoken.explain(&target(), UpstreamProtocol::H2, H2, Greeting::Http1);
        assert!(spoken.ask_again(&target()).await.is_err_and(|text| text.contains("HTTP/1.1")));
        spoken.on_http2();
        assert!(spoken.ask_again(&target()).await.is_ok());
    }
}
