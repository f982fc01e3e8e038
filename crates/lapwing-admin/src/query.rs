//! Reads the queries of the admin paths. Every error names field, value and reason.

use axum::extract::Query;
use http::Uri;

use lapwing_diagnosis::DiagnosisWindow;
use lapwing_ledger::TraceId;
use lapwing_metrics::{Order, Window};

/// Exchanges listed when the query gives no limit.
pub(crate) const DEFAULT_LIMIT: usize = 20;
/// The highest limit: the most exchanges that the configuration allows to keep.
pub(crate) const MAX_LIMIT: usize = 65_536;

/// Why a query is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryError {
    /// It is not form-encoded.
    #[error("query {0:?}: not form-encoded: {1}")]
    Malformed(String, String),
    /// The path has no such field.
    #[error("{field}={value:?}: no such field; there is {known}")]
    Unknown { field: String, value: String, known: String },
    /// The field is given more than once.
    #[error("{0}={1:?}: given more than once")]
    Twice(String, String),
    /// The value is not one of the allowed ones.
    #[error("{field}={value:?}: must be one of {allowed}")]
    NotOneOf { field: &'static str, value: String, allowed: String },
    /// The value is not of its kind, or out of range.
    #[error("{field}={value:?}: {reason}")]
    Invalid { field: &'static str, value: String, reason: String },
    /// The value is not a number in range.
    #[error("limit={0:?}: must be a whole number from 0 to {MAX_LIMIT}")]
    Limit(String),
}

/// The values of the `known` fields. Each field may be given once.
pub(crate) fn fields<const N: usize>(uri: &Uri, known: [&'static str; N]) -> Result<[Option<String>; N], QueryError> {
    let malformed = |e: axum::extract::rejection::QueryRejection| {
        QueryError::Malformed(uri.query().unwrap_or_default().to_owned(), e.body_text())
    };
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(malformed)?;
    let mut found = [const { None }; N];
    for (field, value) in pairs {
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

fn one_of<T: Copy, const N: usize>(
    field: &'static str,
    value: Option<String>,
    default: T,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<T, QueryError> {
    Ok(given(field, value, all, name)?.unwrap_or(default))
}

/// The value, if there is one.
fn given<T: Copy, const N: usize>(
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

/// Which traffic is asked for: that of a route and of a model, where given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    route: Option<String>,
    model: Option<String>,
}

impl Names {
    /// Whether traffic of this route and model is asked for. The empty name asks for traffic without a model.
    pub(crate) fn take(&self, route: &str, model: &str) -> bool {
        self.route.as_deref().is_none_or(|wanted| wanted == route) && self.model.as_deref().is_none_or(|wanted| wanted == model)
    }
}

/// What `/stats` is asked for.
pub(crate) fn stats(uri: &Uri) -> Result<(Window, Names), QueryError> {
    let [window, route, model] = fields(uri, ["window", "route", "model"])?;
    Ok((one_of("window", window, Window::default(), Window::ALL, Window::name)?, Names { route, model }))
}

/// Which exchanges are asked for, the first of them in `order`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExchangeQuery {
    pub(crate) order: Order,
    pub(crate) limit: usize,
    pub(crate) names: Names,
    pub(crate) trace: Option<TraceId>,
}

impl ExchangeQuery {
    /// The first `limit` of all.
    #[cfg(test)]
    pub(crate) fn first(order: Order, limit: usize) -> Self {
        Self { order, limit, names: Names::default(), trace: None }
    }

    /// Whether only some exchanges are asked for.
    pub(crate) fn is_filtered(&self) -> bool {
        self.trace.is_some() || self.names != Names::default()
    }
}

/// The form of a diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiagnosisFormat {
    /// Sentences.
    Text,
    /// Every figure.
    Json,
}

impl DiagnosisFormat {
    pub(crate) const ALL: [Self; 2] = [Self::Text, Self::Json];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// What `/diagnosis` is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiagnosisQuery {
    /// `None` where the query leaves it to the configuration.
    pub(crate) window: Option<DiagnosisWindow>,
    pub(crate) names: Names,
    /// `None` where the query leaves it to `Accept`.
    pub(crate) format: Option<DiagnosisFormat>,
}

/// `?window=10s|1m|5m&route=…&model=…&format=text|json`.
pub(crate) fn diagnosis(uri: &Uri) -> Result<DiagnosisQuery, QueryError> {
    let [window, route, model, format] = fields(uri, ["window", "route", "model", "format"])?;
    let window = given("window", window, DiagnosisWindow::ALL, DiagnosisWindow::name)?;
    let format = given("format", format, DiagnosisFormat::ALL, DiagnosisFormat::name)?;
    Ok(DiagnosisQuery { window, names: Names { route, model }, format })
}

/// `?window=10s|1m|5m|all`.
pub(crate) fn window(uri: &Uri, default: Window) -> Result<Window, QueryError> {
    let [window] = fields(uri, ["window"])?;
    one_of("window", window, default, Window::ALL, Window::name)
}

/// `?order=recent|slowest&limit=N&route=…&model=…&trace_id=…`.
pub(crate) fn exchanges(uri: &Uri) -> Result<ExchangeQuery, QueryError> {
    let [order, limit, route, model, trace] = fields(uri, ["order", "limit", "route", "model", "trace_id"])?;
    let order = one_of("order", order, Order::default(), Order::ALL, Order::name)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(query: &str) -> Uri {
        format!("/x{query}").parse().unwrap()
    }

    #[test]
    fn good_queries_are_read() {
        assert_eq!(window(&uri(""), Window::OneMinute), Ok(Window::OneMinute));
        assert_eq!(window(&uri("?window=all"), Window::OneMinute), Ok(Window::All));
        assert_eq!(window(&uri("?window=%31m"), Window::All), Ok(Window::OneMinute));
        assert_eq!(exchanges(&uri("?")), Ok(ExchangeQuery::first(Order::Recent, DEFAULT_LIMIT)));
        assert_eq!(exchanges(&uri("?limit=0&order=slowest")), Ok(ExchangeQuery::first(Order::Slowest, 0)));
    }

    #[test]
    fn a_diagnosis_is_asked_for_by_window_names_and_format() {
        let asked = diagnosis(&uri("?format=json&window=10s&model=m")).unwrap();
        assert_eq!((asked.window, asked.format), (Some(DiagnosisWindow::TenSeconds), Some(DiagnosisFormat::Json)));
        assert!(asked.names.take("any", "m") && !asked.names.take("any", ""));
        let whole = DiagnosisQuery { window: None, names: Names::default(), format: None };
        assert_eq!(diagnosis(&uri("")), Ok(whole));
        let reason = |query| diagnosis(&uri(query)).unwrap_err().to_string();
        assert_eq!(reason("?window=all"), r#"window="all": must be one of 10s, 1m, 5m"#);
        assert_eq!(reason("?format=xml"), r#"format="xml": must be one of text, json"#);
        assert_eq!(reason("?trace=x"), r#"trace="x": no such field; there is window, route, model, format"#);
    }

    #[test]
    fn names_and_a_trace_are_read() {
        let (_, names) = stats(&uri("?route=POST%20%2Fv2&model=")).unwrap();
        assert!(names.take("POST /v2", "") && !names.take("POST /v2", "m") && !names.take("GET /", ""));
        assert!(stats(&uri("")).unwrap().1.take("any", "model"));
        let asked = exchanges(&uri("?model=m&trace_id=0123456789abcdef0123456789abcdef")).unwrap();
        assert!(asked.is_filtered() && asked.names.take("any", "m") && !asked.names.take("any", ""));
        assert_eq!(asked.trace.unwrap().to_string(), "0123456789abcdef0123456789abcdef");
        for bad in ["", "1", "0123456789ABCDEF0123456789ABCDEF", "00000000000000000000000000000000"] {
            let error = exchanges(&uri(&format!("?trace_id={bad}"))).unwrap_err().to_string();
            assert!(error.starts_with(&format!("trace_id={bad:?}: must be 32 hexadecimal digits")), "{error}");
        }
    }

    #[test]
    fn faults_name_field_value_and_reason() {
        let of_window = |query| window(&uri(query), Window::All).unwrap_err().to_string();
        assert_eq!(of_window("?window=2m"), r#"window="2m": must be one of 10s, 1m, 5m, all"#);
        assert_eq!(of_window("?windows=1m"), r#"windows="1m": no such field; there is window"#);
        assert_eq!(of_window("?window=1m&window=5m"), r#"window="5m": given more than once"#);
        assert_eq!(of_window("?window"), r#"window="": must be one of 10s, 1m, 5m, all"#);
        for bad in ["-1", "", "65537", "1e3", "99999999999999999999"] {
            let expected = format!("limit={bad:?}: must be a whole number from 0 to 65536");
            assert_eq!(exchanges(&uri(&format!("?limit={bad}"))).unwrap_err().to_string(), expected);
        }
        assert_eq!(
            exchanges(&uri("?order=oldest")).unwrap_err().to_string(),
            r#"order="oldest": must be one of recent, slowest"#
        );
    }
}
