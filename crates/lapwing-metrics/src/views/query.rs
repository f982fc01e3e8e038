//! What the queries of `/stats` and `/exchanges` may ask. Every error names field, value and reason.

use lapwing_ledger::TraceId;

use crate::{Order, Window};

/// Exchanges listed when the query gives no limit.
pub const DEFAULT_LIMIT: usize = 20;
/// The highest limit: the most exchanges that the configuration allows to keep.
pub const MAX_LIMIT: usize = 65_536;

/// Why a query is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// It is not form-encoded.
    #[error("query {0:?}: not form-encoded: {1}")]
    Malformed(String, String),
    /// The path has no such field.
    #[error("{field}={value:?}: no such field; there is {known}")]
    Unknown {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// The fields that there are.
        known: String,
    },
    /// The field is given more than once.
    #[error("{0}={1:?}: given more than once")]
    Twice(String, String),
    /// The value is not one of the allowed ones.
    #[error("{field}={value:?}: must be one of {allowed}")]
    NotOneOf {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The values that it may have.
        allowed: String,
    },
    /// The value is not of its kind, or out of range.
    #[error("{field}={value:?}: {reason}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// Why not.
        reason: String,
    },
    /// The value is not a number in range.
    #[error("limit={0:?}: must be a whole number from 0 to {MAX_LIMIT}")]
    Limit(String),
}

/// The decoded fields of a query, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryFields(pub Vec<(String, String)>);

impl QueryFields {
    /// The values of the `known` fields. Each field may be given once.
    ///
    /// # Errors
    ///
    /// If a field is unknown or given more than once.
    pub fn known<const N: usize>(self, known: [&'static str; N]) -> Result<[Option<String>; N], QueryError> {
        let mut found = [const { None }; N];
        for (field, value) in self.0 {
            let Some(at) = known.iter().position(|name| *name == field) else {
                return Err(QueryError::Unknown { field, value, known: known.join(", ") });
            };
            if found[at].is_some() {
                return Err(QueryError::Twice(field, value));
            }
            found[at] = Some(value);
        }
        Ok(found)
    }

    /// `?window=10s|1m|5m|all&route=…&model=…`.
    ///
    /// # Errors
    ///
    /// If a field is unknown, given more than once, or not one of its values.
    pub fn stats(self) -> Result<(Window, Names), QueryError> {
        let [window, route, model] = self.known(["window", "route", "model"])?;
        Ok((Self::value("window", window, Window::ALL, Window::name)?.unwrap_or_default(), Names::of(route, model)))
    }

    /// `?order=recent|slowest&limit=N&route=…&model=…&trace_id=…`.
    ///
    /// # Errors
    ///
    /// If a field is unknown, given more than once, or none of its values.
    pub fn exchanges(self) -> Result<ExchangeQuery, QueryError> {
        let [order, limit, route, model, trace] = self.known(["order", "limit", "route", "model", "trace_id"])?;
        let order = Self::value("order", order, Order::ALL, Order::name)?.unwrap_or_default();
        let limit = match limit.map(|limit| limit.parse().ok().filter(|number| *number <= MAX_LIMIT).ok_or(limit)) {
            None => DEFAULT_LIMIT,
            Some(Ok(number)) => number,
            Some(Err(limit)) => return Err(QueryError::Limit(limit)),
        };
        let trace = trace.map(|text| TraceId::from_hex(&text).ok_or(text)).transpose().map_err(|value| {
            let reason = "must be 32 hexadecimal digits in lower case, not all 0".to_owned();
            QueryError::Invalid { field: "trace_id", value, reason }
        })?;
        Ok(ExchangeQuery { order, limit, names: Names { route, model }, trace })
    }

    /// The one of `all` that a field names, if it is given.
    ///
    /// # Errors
    ///
    /// If it names none of them.
    pub fn value<T: Copy, const N: usize>(
        field: &'static str,
        value: Option<String>,
        all: [T; N],
        name: fn(T) -> &'static str,
    ) -> Result<Option<T>, QueryError> {
        let Some(value) = value else { return Ok(None) };
        match all.into_iter().find(|one| name(*one) == value) {
            Some(found) => Ok(Some(found)),
            None => Err(QueryError::NotOneOf { field, value, allowed: all.map(name).join(", ") }),
        }
    }
}

/// Which traffic is asked for: that of a route and of a model, where given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    route: Option<String>,
    model: Option<String>,
}

impl Names {
    /// That of this route and this model, where given.
    #[must_use]
    pub const fn of(route: Option<String>, model: Option<String>) -> Self {
        Self { route, model }
    }

    /// Whether traffic of this route and model is asked for. The empty name asks for traffic without a model.
    #[must_use]
    pub fn take(&self, route: &str, model: &str) -> bool {
        self.route.as_deref().is_none_or(|wanted| wanted == route) && self.model.as_deref().is_none_or(|wanted| wanted == model)
    }
}

/// Which exchanges are asked for, the first of them in `order`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeQuery {
    /// The order.
    pub order: Order,
    /// At most this many.
    pub limit: usize,
    /// Only those of this traffic.
    pub names: Names,
    /// Only those of this trace.
    pub trace: Option<TraceId>,
}

impl ExchangeQuery {
    /// The first `limit` of all.
    #[must_use]
    pub fn first(order: Order, limit: usize) -> Self {
        Self { order, limit, names: Names::default(), trace: None }
    }

    /// Whether only some exchanges are asked for.
    #[must_use]
    pub fn is_filtered(&self) -> bool {
        self.trace.is_some() || self.names != Names::default()
    }
}
