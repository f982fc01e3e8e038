//! A table of candidates, each by every protocol: what the comparison says of it is right, or that it cannot be compared.
//!
//! - `protocols`: an answer as each protocol writes it;
//! - `candidates`: the table;
//! - `trial`: one candidate by one protocol, through the comparer, the accounts, the pairs and the gates.

mod candidates;
mod protocols;
mod trial;

use candidates::CANDIDATES;
use protocols::WireProtocol;
use trial::{Trial, Verdicts};

use lapwing_compare::ab::Verdict;
use lapwing_compare::outputs::OutputsVerdict;

#[test]
fn forty_candidates_by_each_protocol_are_judged_right_or_not_at_all() {
    let (mut exact, mut all, mut wrong) = (0, 0, Vec::new());
    assert!(CANDIDATES.len() >= 40 && WireProtocol::ALL.len() >= 6);
    for candidate in CANDIDATES {
        for protocol in WireProtocol::ALL {
            let found = Trial::run(candidate, protocol);
            let Verdicts { outputs, latency, holds_gate, sentence, summary } = &found;
            let is_exact = *outputs == candidate.outputs;
            let is_right = is_exact || *outputs == OutputsVerdict::CannotBeCompared;
            let is_latency_right = *latency == candidate.latency || *latency == Verdict::Undecided;
            // a build passes only where the candidate agrees
            let is_gate_right = !holds_gate || candidate.outputs == OutputsVerdict::Agree;
            // speed is never told without what the outputs say
            let is_told = *outputs == OutputsVerdict::Agree || sentence.contains(", but its outputs ");
            if !(is_right && is_latency_right && is_gate_right && is_told) {
                wrong.push(format!("{} by {protocol:?}: {found:?}", candidate.name));
            }
            let says_so = match outputs {
                OutputsVerdict::CannotBeCompared => summary.starts_with("Outputs cannot be compared "),
                OutputsVerdict::Differ => summary.contains("differ"),
                _ => summary.starts_with("Outputs agree"),
            };
            assert!(says_so, "{}: {summary}", candidate.name);
            exact += usize::from(is_exact);
            all += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {all}:\n{}", wrong.len(), wrong.join("\n"));
    println!("{exact} of {all} verdicts are exact, the others are \"cannot be compared\"");
    assert!(exact * 10 >= all * 9, "{exact} of {all}");
}
