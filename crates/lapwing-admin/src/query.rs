//! Reads the queries of the admin paths. Every error names field, value and reason.

use axum::extract::Query;
use http::Uri;

use lapwing_diagnosis::DiagnosisWindow;
use lapwing_metrics::Window;
use lapwing_metrics::views::{ExchangeQuery, Names, QueryError, QueryFields};

/// The values of the `known` fields. Each field may be given once.
pub(crate) fn fields<const N: usize>(uri: &Uri, known: [&'static str; N]) -> Result<[Option<String>; N], QueryError> {
    decoded(uri)?.known(known)
}

fn decoded(uri: &Uri) -> Result<QueryFields, QueryError> {
    let malformed = |e: axum::extract::rejection::QueryRejection| {
        QueryError::Malformed(uri.query().unwrap_or_default().to_owned(), e.body_text())
    };
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(malformed)?;
    Ok(QueryFields(pairs))
}

/// What `/stats` is asked for.
pub(crate) fn stats(uri: &Uri) -> Result<(Window, Names), QueryError> {
    decoded(uri)?.stats()
}

/// Which exchanges are asked for.
pub(crate) fn exchanges(uri: &Uri) -> Result<ExchangeQuery, QueryError> {
    decoded(uri)?.exchanges()
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
    let window = QueryFields::value("window", window, DiagnosisWindow::ALL, DiagnosisWindow::name)?;
    let format = QueryFields::value("format", format, DiagnosisFormat::ALL, DiagnosisFormat::name)?;
    Ok(DiagnosisQuery { window, names: Names::of(route, model), format })
}

/// `?format=text|json`.
pub(crate) fn format(uri: &Uri) -> Result<Option<DiagnosisFormat>, QueryError> {
    let [format] = fields(uri, ["format"])?;
    QueryFields::value("format", format, DiagnosisFormat::ALL, DiagnosisFormat::name)
}

/// `?window=10s|1m|5m|all`.
pub(crate) fn window(uri: &Uri, default: Window) -> Result<Window, QueryError> {
    let [window] = fields(uri, ["window"])?;
    Ok(QueryFields::value("window", window, Window::ALL, Window::name)?.unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_metrics::Order;
    use lapwing_metrics::views::DEFAULT_LIMIT;

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
