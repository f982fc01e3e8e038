//! The rows of the table: series with their rates, sorted and filtered.

use crate::printable::printable;
use crate::stats::{Series, Stats};

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// The time that all answered requests of the window took: rate times mean.
    #[default]
    Time,
    Rate,
    Errors,
    P50,
    P99,
    Name,
}

impl Sort {
    pub(crate) const ALL: [Self; 6] = [Self::Time, Self::Rate, Self::Errors, Self::P50, Self::P99, Self::Name];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Rate => "rate",
            Self::Errors => "errors",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Name => "name",
        }
    }

    /// The one after it; the first after the last.
    pub(crate) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or_default();
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// An order of rows: names from A to Z, figures from the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) by: Sort,
    pub(crate) is_reversed: bool,
}

/// The names that a row is known by from one reading to the next.
pub(crate) type RowKey = (String, String, String);

/// A series as a row.
#[derive(Clone, Debug)]
pub(crate) struct SeriesRow<'a> {
    pub(crate) series: &'a Series,
    /// Requests per second over the window.
    pub(crate) rate: f64,
}

impl SeriesRow<'_> {
    pub(crate) fn key(&self) -> RowKey {
        let text = |name: &Option<String>| name.clone().unwrap_or_default();
        (text(&self.series.route), text(&self.series.model), text(&self.series.upstream))
    }

    /// Route and model in at most `columns` columns, escaped: the model is kept whole where it takes up to half of them.
    pub(crate) fn title(&self, columns: usize) -> String {
        let route = self.series.route.as_deref().unwrap_or_default();
        match self.series.model.as_deref().filter(|model| !model.is_empty()) {
            None => printable(route, columns),
            Some(model) => {
                let model = printable(model, (columns / 2).max(1));
                let link = ", model ";
                let left = columns.saturating_sub(link.len() + crate::printable::width(&model));
                if left == 0 { model } else { format!("{}{link}{model}", printable(route, left)) }
            }
        }
    }

    /// The share of requests that failed, `0..=1`.
    pub(crate) fn error_share(&self) -> f64 {
        if self.series.count == 0 { 0.0 } else { self.series.errors as f64 / self.series.count as f64 }
    }

    fn weight(&self, sort: Sort) -> f64 {
        let total = &self.series.total;
        match sort {
            Sort::Time => total.count as f64 * total.mean_ns,
            Sort::Rate => self.rate,
            Sort::Errors => self.error_share(),
            Sort::P50 => total.p50_ns,
            Sort::P99 => total.p99_ns,
            Sort::Name => 0.0,
        }
    }
}

/// The series with traffic, those that fail first where nothing else is asked for, whose route or model contains `filter`, in any case of letters.
pub(crate) fn rows<'a>(stats: &'a Stats, order: Order, filter: &str) -> Vec<SeriesRow<'a>> {
    let filter = filter.to_lowercase();
    let has = |name: &Option<String>| name.as_deref().is_some_and(|name| name.to_lowercase().contains(&filter));
    let shown = |series: &&Series| series.count > 0 && (filter.is_empty() || has(&series.route) || has(&series.model));
    let row = |series| SeriesRow { series, rate: stats.rate(series, f64::INFINITY) };
    let mut rows: Vec<_> = stats.series.iter().filter(shown).map(row).collect();
    // by name among equals, so that rows keep their places
    rows.sort_by(|a, b| b.weight(order.by).total_cmp(&a.weight(order.by)).then_with(|| a.key().cmp(&b.key())));
    if order.is_reversed {
        rows.reverse();
    } else if order.by == Sort::Time {
        rows.sort_by_key(|row| !row.series.is_failing());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> Stats {
        let series = serde_json::json!([
            {"route": "GET /a", "model": "Tickets", "count": 10, "errors": 5, "total": {"count": 5, "mean_ns": 10, "p50_ns": 1, "p99_ns": 90}},
            {"route": "GET /b", "count": 40, "total": {"count": 40, "mean_ns": 1, "p50_ns": 2, "p99_ns": 4}},
            {"route": "GET /c", "model": "m", "count": 20, "total": {"count": 20, "mean_ns": 20, "p50_ns": 3, "p99_ns": 40}},
            {"route": "GET /quiet", "count": 0}
        ]);
        serde_json::from_value(serde_json::json!({"covered_ns": 10e9, "series": series})).unwrap()
    }

    fn routes(by: Sort, is_reversed: bool, filter: &str) -> String {
        rows(&stats(), Order { by, is_reversed }, filter).iter().map(|row| &row.series.route.as_ref().unwrap()[5..]).collect()
    }

    #[test]
    fn every_order_is_by_its_figure() {
        let orders = Sort::ALL.map(|sort| routes(sort, false, ""));
        assert_eq!(orders, ["cab", "bca", "abc", "cba", "acb", "abc"]);
        assert_eq!(routes(Sort::Name, true, ""), "cba");
        assert_eq!(Sort::ALL.map(Sort::next)[5], Sort::ALL[0]);
    }

    #[test]
    fn what_fails_comes_first_unless_another_order_is_asked_for() {
        let mut stats = stats();
        stats.series[1].outcomes = [("ok".to_owned(), 30), ("server_error".to_owned(), 10)].into();
        let of = |by, is_reversed| -> String {
            rows(&stats, Order { by, is_reversed }, "").iter().map(|row| &row.series.route.as_ref().unwrap()[5..]).collect()
        };
        assert_eq!([of(Sort::Time, false), of(Sort::Time, true), of(Sort::Name, false)], ["bca", "bac", "abc"]);
    }

    #[test]
    fn a_filter_finds_routes_and_models_in_any_case() {
        assert_eq!(routes(Sort::Name, false, "tICK"), "a");
        assert_eq!(routes(Sort::Name, false, "/B"), "b");
        assert_eq!(routes(Sort::Name, false, "nothing"), "");
        assert_eq!(rows(&stats(), Order::default(), "/a")[0].rate, 1.0);
    }

    #[test]
    fn titles_fit_whatever_the_names_are() {
        let hostile = ["\x1b[2J".repeat(50), "鸟".repeat(200), "m".to_owned(), String::new()];
        for (route, model) in hostile.iter().flat_map(|route| hostile.iter().map(move |model| (route, model))) {
            let series = Series { route: Some(route.clone()), model: Some(model.clone()), ..Series::default() };
            for columns in 1..80 {
                let title = SeriesRow { series: &series, rate: 0.0 }.title(columns);
                assert!(crate::printable::width(&title) <= columns, "{columns}: {title}");
                assert!(!title.contains('\x1b'));
            }
        }
    }
}
