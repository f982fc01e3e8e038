//! One line of the access log.

use lapwing_ledger::Exchange;
use lapwing_metrics::Labels;
use lapwing_metrics::views::Waterfall;

/// The exchange as `/exchanges` shows it, without its spans.
///
/// # Errors
///
/// If it cannot be written as JSON.
pub fn access_line(exchange: &Exchange, labels: &Labels) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Waterfall::of(exchange, labels).without_spans())?;
    line.push(b'\n');
    Ok(line)
}
