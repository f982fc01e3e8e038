//! Connections to one server, to the master that sentinels name, and to a cluster.
//!
//! Certificates and passwords are read for each connection, so new ones need no restart.

use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates, TlsMode, Value,
};

use crate::error::describe;
use crate::target::{RedisTarget, password, pem};
use lapwing_settings::{Fault, RedisAddress, Secret, Switch};

/// How long a connection to one server may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How long all may take: sentinels are asked one after the other.
const ALL: Duration = Duration::from_secs(5);
/// How long an answer may take that nobody waits for any more, and one to the background.
pub(crate) const RESPONSE: Duration = Duration::from_secs(1);

/// A connection that many share.
#[derive(Clone)]
pub(crate) enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// What is asked.
#[derive(Clone, Copy)]
pub(crate) enum Question<'a> {
    One(&'a Cmd),
    Many(&'a Pipeline),
}

impl Link {
    /// The answers, one for each command. A server's error is the answer to its command.
    pub(crate) async fn ask(&mut self, question: Question<'_>) -> RedisResult<Vec<Value>> {
        match (self, question) {
            (Self::One(link), Question::One(command)) => answer(link.req_packed_command(command).await).map(|value| vec![value]),
            (Self::Cluster(link), Question::One(command)) => {
                answer(link.req_packed_command(command).await).map(|value| vec![value])
            }
            (Self::One(link), Question::Many(all)) => link.req_packed_commands(all, 0, all.len()).await,
            // each goes to the node of its key
            (Self::Cluster(link), Question::Many(all)) => {
                let one = |command| {
                    let mut link = link.clone();
                    async move { answer(link.req_packed_command(command).await) }
                };
                join_all(all.cmd_iter().map(one)).await.into_iter().collect()
            }
        }
    }
}

/// A server's error is its answer; what is left are errors of connections.
fn answer(result: RedisResult<Value>) -> RedisResult<Value> {
    result.or_else(|error| {
        let errors = error.clone().into_server_errors();
        errors.and_then(|errors| errors.first().map(|(_, error)| Value::ServerError(error.clone()))).ok_or(error)
    })
}

/// Makes connections.
#[derive(Debug)]
pub(crate) struct Connector {
    section: String,
    target: RedisTarget,
}

/// What the files of a target hold.
struct Credentials {
    user: Option<String>,
    password: Option<Secret>,
    sentinel_password: Option<Secret>,
    certificates: Option<TlsCertificates>,
}

impl Connector {
    /// For `target`, which the section `section` names.
    ///
    /// # Errors
    ///
    /// The first of its files that cannot be read.
    pub(crate) fn new(section: &str, target: RedisTarget) -> Result<Self, Fault> {
        let this = Self { section: section.to_owned(), target };
        if this.credentials()?.certificates.is_some() {
            // the library takes that of the process. One that is there already is as good: all of this process are ring's
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Ok(this)
    }

    /// Where it connects to, for people.
    pub(crate) fn url(&self) -> &RedisAddress {
        &self.target.url
    }

    /// A new connection.
    ///
    /// # Errors
    ///
    /// Why there is none, without what is secret.
    pub(crate) async fn connect(&self) -> Result<Link, String> {
        let credentials = self.credentials().map_err(|fault| fault.to_string())?;
        let made = async {
            if self.target.is_cluster {
                self.cluster(credentials).await
            } else if let Some(service) = &self.target.sentinel {
                self.master(service, credentials).await
            } else {
                self.server(credentials).await
            }
        };
        match tokio::time::timeout(ALL, made).await {
            Ok(made) => made.map_err(|error| describe(&error)),
            Err(_) => Err(format!("no connection within {} s", ALL.as_secs())),
        }
    }

    fn credentials(&self) -> Result<Credentials, Fault> {
        let RedisTarget { url, password_file, sentinel_password_file, tls, .. } = &self.target;
        let secret = |field, file: &Option<_>| file.as_ref().map(|file| password(&self.section, field, file)).transpose();
        let user = match url {
            RedisAddress::Tcp { user, .. } => user.clone(),
            RedisAddress::Unix { .. } => None,
        };
        let section = format!("{}.tls", self.section);
        let read = |field, file: &Switch<_>| file.on().map(|file| pem(&section, field, file)).transpose();
        let certificates = if url.is_tls() {
            let pair = read("certificate", &tls.certificate)?.zip(read("key", &tls.key)?);
            let client_tls = pair.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
            Some(TlsCertificates { client_tls, root_cert: read("ca", &tls.ca)? })
        } else {
            None
        };
        Ok(Credentials {
            user,
            password: secret("password_file", password_file)?,
            sentinel_password: secret("sentinel_password_file", sentinel_password_file)?,
            certificates,
        })
    }

    async fn server(&self, credentials: Credentials) -> RedisResult<Link> {
        let mut settings = RedisConnectionInfo::default().set_db(db(&self.target.url)).set_skip_set_lib_name();
        if let Some(user) = &credentials.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &credentials.password {
            settings = settings.set_password(password.expose());
        }
        let info = address(&self.target.url).into_connection_info()?.set_redis_settings(settings);
        let client = match credentials.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates)?,
            None => Client::open(info)?,
        };
        client.get_multiplexed_async_connection_with_config(&times()).await.map(Link::One)
    }

    async fn master(&self, service: &str, credentials: Credentials) -> RedisResult<Link> {
        let sentinels = self.nodes().map(address);
        let mut builder = SentinelClientBuilder::new(sentinels, service, SentinelServerType::Master)?;
        builder = builder.set_client_to_redis_db(db(&self.target.url));
        if let Some(user) = &credentials.user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = &credentials.password {
            builder = builder.set_client_to_redis_password(password.expose());
        }
        if let Some(password) = &credentials.sentinel_password {
            builder = builder.set_client_to_sentinel_password(password.expose());
        }
        if let Some(certificates) = credentials.certificates {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_certificates(certificates);
        }
        builder.build()?.get_async_connection_with_config(&times()).await.map(Link::One)
    }

    async fn cluster(&self, credentials: Credentials) -> RedisResult<Link> {
        let nodes: Vec<_> =
            self.nodes().map(address).map(IntoConnectionInfo::into_connection_info).collect::<Result<_, RedisError>>()?;
        // the deadline of who asks is shorter; the second try is for slots that have moved
        let mut builder = ClusterClientBuilder::new(nodes).connection_timeout(CONNECT).response_timeout(RESPONSE).retries(1);
        if let Some(user) = &credentials.user {
            builder = builder.username(user);
        }
        if let Some(password) = &credentials.password {
            builder = builder.password(password.expose());
        }
        if let Some(certificates) = credentials.certificates {
            builder = builder.tls(TlsMode::Secure).certs(certificates);
        }
        builder.build()?.get_async_connection().await.map(Link::Cluster)
    }

    fn nodes(&self) -> impl Iterator<Item = &RedisAddress> {
        std::iter::once(&self.target.url).chain(&self.target.nodes)
    }
}

fn times() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(Some(RESPONSE))
}

fn db(url: &RedisAddress) -> i64 {
    match url {
        RedisAddress::Tcp { db, .. } => i64::from(*db),
        RedisAddress::Unix { .. } => 0,
    }
}

fn address(url: &RedisAddress) -> ConnectionAddr {
    match url {
        RedisAddress::Tcp { host, port, is_tls: false, .. } => ConnectionAddr::Tcp(host.clone(), *port),
        RedisAddress::Tcp { host, port, is_tls: true, .. } => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
        RedisAddress::Unix { path } => ConnectionAddr::Unix(path.clone()),
    }
}
