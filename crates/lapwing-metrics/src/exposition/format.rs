//! The format that a scrape asks for by `Accept`.

use std::fmt;

use http::{HeaderMap, header};

use super::encode::Encoder;
use super::protobuf::ProtobufEncoder;
use super::text::ExpositionTextEncoder;
use crate::config::Shown;

/// A format of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// Length-delimited protobuf, with native histograms.
    Protobuf,
    /// OpenMetrics text 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Plain,
}

impl ExpositionFormat {
    /// In the order of preference among those that are accepted alike.
    const ALL: [Self; 3] = [Self::Protobuf, Self::OpenMetrics, Self::Plain];

    /// The `Content-Type` of an answer.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The format with the highest weight among those that `Accept` names; OpenMetrics text if it names none.
    #[must_use]
    pub fn accepted(head: &HeaderMap) -> Self {
        let fields = head.get_all(header::ACCEPT).iter().filter_map(|field| field.to_str().ok());
        let ranges: Vec<(Self, f64)> = fields.flat_map(|field| field.split(',')).filter_map(named).collect();
        let weight = |of: Self| ranges.iter().filter(|(format, _)| *format == of).map(|(_, q)| *q).fold(0.0, f64::max);
        let best = Self::ALL.into_iter().map(weight).fold(0.0, f64::max);
        let chosen = Self::ALL.into_iter().find(|format| best > 0.0 && weight(*format) >= best);
        chosen.unwrap_or(Self::OpenMetrics)
    }

    /// The page, in pieces, for a registry with these settings (`native_schema`, `classic_buckets`) in a process that started at `started_unix_ns`. `write` writes the
    /// families; it is given the schema of native histograms where the format has them.
    ///
    /// # Errors
    ///
    /// When `write` fails, which no encoder makes it do.
    pub fn page(
        self,
        (native_schema, classic_buckets): (i8, Shown),
        started_unix_ns: u64,
        write: impl FnOnce(Option<i8>, &mut dyn Encoder) -> fmt::Result,
    ) -> Result<Vec<Vec<u8>>, fmt::Error> {
        if self == Self::Protobuf {
            let mut encoder = ProtobufEncoder::new(classic_buckets == Shown::On, started_unix_ns);
            write(Some(native_schema), &mut encoder)?;
            return Ok(encoder.finish());
        }
        let mut encoder = ExpositionTextEncoder::new(self == Self::Plain);
        write(None, &mut encoder)?;
        Ok(encoder.finish())
    }
}

/// The format that a range of `Accept` names, and its weight. Ranges with `*` name none.
fn named(range: &str) -> Option<(ExpositionFormat, f64)> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next()?.to_ascii_lowercase();
    let (mut weight, mut proto, mut is_delimited) = (1.0, "", true);
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim().trim_matches('"');
        match &*name.trim().to_ascii_lowercase() {
            "q" => weight = value.parse().ok().filter(|q| (0.0..=1.0).contains(q))?,
            "proto" => proto = value,
            "encoding" => is_delimited = value == "delimited",
            _ => {}
        }
    }
    let format = match &*kind {
        "application/vnd.google.protobuf" if proto == "io.prometheus.client.MetricFamily" && is_delimited => {
            ExpositionFormat::Protobuf
        }
        "application/openmetrics-text" => ExpositionFormat::OpenMetrics,
        "text/plain" => ExpositionFormat::Plain,
        _ => return None,
    };
    Some((format, weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(fields: &[&str]) -> ExpositionFormat {
        let mut head = HeaderMap::new();
        for field in fields {
            head.append(header::ACCEPT, field.parse().unwrap());
        }
        ExpositionFormat::accepted(&head)
    }

    #[test]
    fn the_format_with_the_highest_weight_is_chosen() {
        const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let prometheus_2 = format!(
            "{PROTOBUF},application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
        );
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (fields, wanted) in [
            (&[][..], ExpositionFormat::OpenMetrics),
            (&["*/*"], ExpositionFormat::OpenMetrics),
            (&["text/html, */*;q=0.8"], ExpositionFormat::OpenMetrics),
            (&["text/plain"], ExpositionFormat::Plain),
            (&["text/plain;version=0.0.4, */*;q=0.1"], ExpositionFormat::Plain),
            (&["text/plain;q=0.2", "application/openmetrics-text;q=0.5"], ExpositionFormat::OpenMetrics),
            (&["application/openmetrics-text;q=0.5, TEXT/PLAIN"], ExpositionFormat::Plain),
            (&["application/openmetrics-text;q=0, text/plain;q=0.1"], ExpositionFormat::Plain),
            (&[PROTOBUF], ExpositionFormat::Protobuf),
            (&[&*prometheus_2], ExpositionFormat::Protobuf),
            (&[prometheus_3], ExpositionFormat::OpenMetrics),
            (&[&*format!("{PROTOBUF};q=0.6,{prometheus_3}")], ExpositionFormat::Protobuf),
            (
                &["application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text, text/plain"],
                ExpositionFormat::Plain,
            ),
            (&["application/vnd.google.protobuf"], ExpositionFormat::OpenMetrics),
            (&["text/plain;q=nan, text/plain;q=7"], ExpositionFormat::OpenMetrics),
        ] {
            assert_eq!(accepted(fields), wanted, "{fields:?}");
        }
    }
}
