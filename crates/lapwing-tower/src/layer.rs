//! The layer, as a server or a proxy makes it: with whose accounts its service is called.

use std::sync::Arc;

use http::request::Parts;
use tower_layer::Layer;

use crate::account::LedgerService;
use crate::recorder::ServerRecorder;
use crate::server_accounts::ServerAccounts;

/// Applies [`LedgerService`]. Put it outside all layers whose time is to be counted.
#[derive(Clone, Debug)]
pub struct LedgerLayer<A = ServerAccounts> {
    accounts: A,
}

impl<A> LedgerLayer<A> {
    /// A layer whose accounts are opened by `accounts`.
    #[must_use]
    pub const fn with_accounts(accounts: A) -> Self {
        Self { accounts }
    }
}

impl LedgerLayer {
    /// A layer whose ledgers go to `recorder`.
    #[must_use]
    pub fn new(recorder: &ServerRecorder) -> Self {
        Self::with_accounts(ServerAccounts::new(recorder))
    }

    /// Says in the response's head, as `Server-Timing`, how long each stage took that ended before it.
    #[must_use]
    pub fn with_server_timing(self) -> Self {
        Self::with_accounts(self.accounts.with_server_timing())
    }

    /// Names the route of a request whose framework knows it, such as axum by `MatchedPath`; `None` leaves the folded path.
    #[must_use]
    pub fn with_route(self, route: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::with_accounts(self.accounts.with_route(Arc::new(route)))
    }
}

impl<S, A: Clone> Layer<S> for LedgerLayer<A> {
    type Service = LedgerService<S, A>;

    fn layer(&self, inner: S) -> LedgerService<S, A> {
        LedgerService::new(inner, self.accounts.clone())
    }
}
