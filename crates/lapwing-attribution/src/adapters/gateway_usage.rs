//! Token usage that gateways and hosted services name in header or trailer fields, for answers whose body does not have it: what
//! the server reports in the body or by spans wins. Sources of the rows: dd-trace-js (552f19e)
//! `packages/dd-trace/src/llmobs/plugins/bedrockruntime/index.js`, openllmetry (1fd65fd)
//! `packages/opentelemetry-instrumentation-bedrock/tests/traces/test_cache_token_folding.py`, langchain-aws (02893cc)
//! `libs/aws/langchain_aws/llms/bedrock.py`; Fireworks' Python SDK (2ed5b56) `src/fireworks/resources/completions.py`,
//! `perf_metrics_in_response`.

use http::{HeaderMap, HeaderName};

use lapwing_ledger::{Ledger, Unit};

/// Larger amounts are treated as mistakes, as in other reports.
const MAX_TOKENS: u64 = 1 << 53;

/// The fields in which one gateway names token usage.
struct UsageFields {
    /// The input tokens, in every answer with usage: without this field, no other is looked up.
    always: HeaderName,
    /// Further fields. Those of one unit add up.
    others: &'static [(HeaderName, Unit)],
}

pub(crate) const BEDROCK_INPUT: HeaderName = HeaderName::from_static("x-amzn-bedrock-input-token-count");
pub(crate) const FIREWORKS_INPUT: HeaderName = HeaderName::from_static("fireworks-prompt-tokens");

static GATEWAYS: [UsageFields; 2] = [
    // only what was not cached
    UsageFields { always: BEDROCK_INPUT, others: &BEDROCK },
    // cached tokens are part of it; no field has the output tokens
    UsageFields { always: FIREWORKS_INPUT, others: &[] },
];

static BEDROCK: [(HeaderName, Unit); 3] = [
    (HeaderName::from_static("x-amzn-bedrock-cache-read-input-token-count"), Unit::InputToken),
    (HeaderName::from_static("x-amzn-bedrock-cache-write-input-token-count"), Unit::InputToken),
    (HeaderName::from_static("x-amzn-bedrock-output-token-count"), Unit::OutputToken),
];

/// Records the token usage that `headers` name, if the answer is not an error. Returns the number of fields that were refused. Costs
/// two look-ups if there is none.
pub(crate) fn report(headers: &HeaderMap, ledger: &mut Ledger) -> usize {
    let Some(fields) = GATEWAYS.iter().find(|fields| headers.contains_key(&fields.always)) else { return 0 };
    if !(200..300).contains(&ledger.status) {
        return 0;
    }
    let mut refused = 0;
    for unit in [Unit::InputToken, Unit::OutputToken] {
        let always = (unit == Unit::InputToken).then_some(&fields.always);
        let others = fields.others.iter().filter(|(_, own)| *own == unit).map(|(name, _)| name);
        let (mut sum, refused_before) = (None, refused);
        for name in always.into_iter().chain(others) {
            match count(headers, name) {
                Some(Ok(count)) => sum = Some(sum.unwrap_or(0) + count),
                Some(Err(Refused)) => refused += 1,
                None => {}
            }
        }
        // a sum of which a part was refused is unknown
        let Some(amount) = sum.filter(|_| refused == refused_before) else { continue };
        ledger.work.set_by_gateway(unit, amount);
        // for a path of no known protocol; a known one sets its own at the end
        if ledger.work.primary.is_none_or(|known| known == Unit::InputToken) {
            ledger.work.primary = Some(unit);
        }
    }
    refused
}

/// A field that comes more than once, or whose value is no count.
struct Refused;

/// The count in a field; `None` without the field.
fn count(headers: &HeaderMap, name: &HeaderName) -> Option<Result<u64, Refused>> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return Some(Err(Refused));
    }
    let count = value.to_str().ok().and_then(|text| text.trim().parse().ok()).filter(|count| *count <= MAX_TOKENS);
    Some(count.ok_or(Refused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::{Basis, Stamp};

    fn read(status: u16, text: &str) -> (Ledger, usize) {
        let mut ledger = Ledger::open(Stamp::now(), 0);
        ledger.status = status;
        let refused = report(&fields(text), &mut ledger);
        (ledger, refused)
    }

    fn fields(text: &str) -> HeaderMap {
        let fields = text.lines().map(|line| line.split_once(": ").unwrap());
        fields.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    fn tokens(ledger: &Ledger) -> [Option<u64>; 2] {
        [Unit::InputToken, Unit::OutputToken].map(|unit| {
            let (amount, basis) = ledger.work.get(unit)?;
            assert_eq!(basis, Basis::Reported);
            Some(amount)
        })
    }

    const BEDROCK_HEAD: &str = "x-amzn-bedrock-input-token-count: 25\nx-amzn-bedrock-output-token-count: 18";

    #[test]
    fn bedrock_names_both_counts_and_its_input_lacks_what_was_cached() {
        let (ledger, refused) = read(200, BEDROCK_HEAD);
        assert_eq!((refused, tokens(&ledger)), (0, [Some(25), Some(18)]));
        assert_eq!(ledger.work.primary, Some(Unit::OutputToken));
        let cached = "x-amzn-bedrock-cache-read-input-token-count: 1000\nx-amzn-bedrock-cache-write-input-token-count: 200";
        assert_eq!(tokens(&read(200, &format!("{BEDROCK_HEAD}\n{cached}")).0), [Some(1225), Some(18)]);
    }

    #[test]
    fn fireworks_names_the_prompt() {
        let (ledger, refused) = read(200, "fireworks-prompt-tokens: 2421\nfireworks-cached-prompt-tokens: 2420");
        assert_eq!((refused, tokens(&ledger), ledger.work.primary), (0, [Some(2421), None], Some(Unit::InputToken)));
    }

    #[test]
    fn what_the_server_says_itself_wins_whenever_it_comes() {
        let mut ledger = read(200, BEDROCK_HEAD).0;
        ledger.work.set(Unit::OutputToken, 17, Basis::Reported);
        ledger.work.set(Unit::InputToken, 24, Basis::Counted);
        report(&fields(BEDROCK_HEAD), &mut ledger);
        assert_eq!(tokens(&ledger), [Some(25), Some(17)]);
    }

    #[test]
    fn the_primary_unit_of_a_known_protocol_stays() {
        let mut ledger = Ledger::open(Stamp::now(), 0);
        (ledger.status, ledger.work.primary) = (200, Some(Unit::Row));
        report(&fields(BEDROCK_HEAD), &mut ledger);
        assert_eq!(ledger.work.primary, Some(Unit::Row));
    }

    #[test]
    fn absurd_and_repeated_values_are_refused_with_the_sum_that_they_belong_to() {
        for absurd in ["-1", "1.5", "x", "", "NaN", "9007199254740993", "99999999999999999999"] {
            let text = format!("x-amzn-bedrock-input-token-count: {absurd}\nx-amzn-bedrock-output-token-count: 18");
            let (ledger, refused) = read(200, &text);
            assert_eq!((refused, tokens(&ledger)), (1, [None, Some(18)]), "{absurd}");
            let part = format!("{BEDROCK_HEAD}\nx-amzn-bedrock-cache-read-input-token-count: {absurd}");
            assert_eq!(tokens(&read(200, &part).0), [None, Some(18)], "{absurd}");
        }
        let (ledger, refused) = read(200, &format!("{BEDROCK_HEAD}\n{BEDROCK_HEAD}"));
        assert_eq!((refused, tokens(&ledger), ledger.work.primary), (2, [None, None], None));
    }

    #[test]
    fn an_error_and_other_fields_tell_nothing() {
        assert_eq!(tokens(&read(429, BEDROCK_HEAD).0), [None, None]);
        assert_eq!(tokens(&read(200, "x-amzn-bedrock-output-token-count: 18").0), [None, None]);
        assert_eq!(tokens(&read(200, "x-kong-llm-model: openai/gpt").0), [None, None]);
    }
}
