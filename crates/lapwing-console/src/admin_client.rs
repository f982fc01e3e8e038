//! How commands ask the admin address of a running Lapwing: where it is, the token, and the errors in words.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::ACCEPT;
use http::request::Builder;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};

use super::admin_token::TokenArgs;
use super::printable::printable;
use lapwing_net::{Body, Client, ClientError, ClientIdentity, ClientLimits, MAX_ERROR_TEXT, Target};
use lapwing_settings::{Bind, ClientTls, Fault, File, HttpScheme, Switch, Upstream};

/// The exit code when Lapwing does not answer (`EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;
/// The bounds of one answer that is read as a whole: the largest `/stats` has every series that the configuration allows.
const WHOLE: ClientLimits = ClientLimits {
    connect_timeout: Duration::from_secs(5),
    timeout: Duration::from_secs(10),
    max_body: 64 << 20,
    idle_timeout: Duration::from_secs(90),
    max_idle: 1,
    keep_alive: None,
};

/// Which Lapwing a command asks, and the token that it shows.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct AdminArgs {
    /// The admin address of the running Lapwing: HOST:PORT, or https://HOST:PORT where it speaks TLS
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464", value_parser = admin_address)]
    admin: AdminAddress,
    #[command(flatten)]
    tls: AdminTlsArgs,
    #[command(flatten)]
    token: TokenArgs,
}

/// Whom the admin address has to prove itself to over TLS, and what it is shown.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminTlsArgs {
    /// A PEM file with the authorities that may have signed its certificate, instead of the system's
    #[arg(long, value_name = "FILE")]
    admin_ca: Option<File>,
    /// A PEM file with a certificate to show, where it asks for one
    #[arg(long, value_name = "FILE", requires = "admin_key")]
    admin_certificate: Option<File>,
    /// A PEM file with the certificate's private key
    #[arg(long, value_name = "FILE", requires = "admin_certificate")]
    admin_key: Option<File>,
}

impl AdminTlsArgs {
    /// What the files hold.
    ///
    /// # Errors
    ///
    /// The file that cannot be used.
    pub fn identity(&self) -> Result<Arc<ClientIdentity>, Fault> {
        let file = |file: &Option<File>| file.clone().map_or(Switch::Off, Switch::On);
        let (ca, certificate, key) = (file(&self.admin_ca), file(&self.admin_certificate), file(&self.admin_key));
        // the faults name the fields of a section as the flags do
        ClientIdentity::load("admin", &ClientTls { ca, certificate, key, server_name: Switch::Off })
    }
}

/// An admin address, as it was given but for its host: `:9464` is this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AdminAddress {
    text: String,
    server: Upstream,
}

/// Checks that `text` is `HOST:PORT` or a URL with no more than that.
fn admin_address(text: &str) -> Result<AdminAddress, String> {
    let http = |authority: String| Upstream::Http { authority, scheme: HttpScheme::Http };
    if text.contains("://") {
        let server = text.parse::<Upstream>().map_err(|error| error.reason)?;
        return match &server {
            Upstream::Http { scheme: HttpScheme::Https, .. } => Ok(AdminAddress { text: server.to_string(), server }),
            Upstream::Http { authority, scheme: HttpScheme::Http } => Ok(AdminAddress { text: authority.clone(), server }),
            _ => Err("the schemes are http and https".to_owned()),
        };
    }
    match text.parse::<Bind>() {
        Ok(bind) => {
            let text = bind.reached_at().unwrap_or_else(|| bind.get()).to_string();
            Ok(AdminAddress { server: http(text.clone()), text })
        }
        // the name of another machine
        Err(error) => match format!("http://{text}").parse() {
            Ok(Upstream::Http { authority, .. }) if text.contains(':') => {
                Ok(AdminAddress { server: http(authority.clone()), text: authority })
            }
            _ => Err(error.reason),
        },
    }
}

impl AdminArgs {
    /// The address, as an error names it.
    pub(crate) fn address(&self) -> &str {
        &self.admin.text
    }

    /// A client with the bounds of answers that are read as a whole: 10 s, 64 MiB.
    pub fn client(&self) -> AdminClient {
        self.client_with(WHOLE)
    }

    /// A client with other bounds.
    pub(crate) fn client_with(&self, limits: ClientLimits) -> AdminClient {
        let identity = self.tls.identity().map_err(|fault| fault.to_string());
        let client = identity.map(|identity| Client::new(Target::of(&self.admin.server, &identity), limits));
        AdminClient { client, args: self.clone() }
    }
}

/// A client of one admin address.
#[derive(Clone, Debug)]
pub struct AdminClient {
    /// The file that it cannot be used with, if there is one.
    client: Result<Client, String>,
    args: AdminArgs,
}

impl AdminClient {
    /// The address, as an error names it.
    #[cfg(feature = "top")]
    pub(crate) fn address(&self) -> &str {
        self.args.address()
    }

    /// Sends a request without a body, and returns the response if its status is a success.
    ///
    /// # Errors
    ///
    /// Address and reason, in one line that a terminal can show.
    pub(crate) async fn send(&self, request: Builder) -> Result<Response<Body>, String> {
        let named = |reason: &dyn std::fmt::Display| {
            format!("{}: {}", self.args.address(), printable(&reason.to_string(), MAX_ERROR_TEXT))
        };
        let signed = self.args.token.sign(request).map_err(|reason| named(&reason))?;
        let request = signed.body(Full::<Bytes>::default()).map_err(|error| named(&error))?;
        let client = self.client.as_ref().map_err(|reason| named(reason))?;
        let response = client.send(request).await.map_err(|error| match &error {
            ClientError::Connect { .. } => format!("{}; is Lapwing running there? --admin names another address", named(&error)),
            _ => named(&error),
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = Limited::new(response.into_body(), MAX_ERROR_TEXT).collect().await;
        let told = body.map(|body| body.to_bytes()).unwrap_or_default();
        let told = String::from_utf8_lossy(&told);
        // the first line is the reason; some go on with a list
        let told = told.lines().next().filter(|told| !told.is_empty()).unwrap_or("is it the admin address of a Lapwing?");
        Err(named(&format!("answered {status}: {told}")))
    }

    /// The whole answer of `GET path`.
    ///
    /// # Errors
    ///
    /// If it cannot be asked, answers with an error, breaks off or is too large.
    pub async fn get(&self, path: &str, accept: &str) -> Result<Bytes, String> {
        let response = self.send(Request::get(path).header(ACCEPT, accept)).await?;
        let body = response.into_body().collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(|error| format!("{}: {error}", self.args.address()))
    }
}

/// Runs `asking` to its end on a separate runtime.
///
/// # Errors
///
/// Those of `asking`, and if there is no runtime to be had.
pub fn block_on<T>(asking: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(asking)
}
