//! How much a request asks for, before it is answered.

use super::{BYTES_PER_TOKEN, ExchangeFacts};
use crate::plan::ReadPlan;
use lapwing_ledger::Unit;

impl ExchangeFacts {
    /// How much a request with a body of `bytes`, which has been read to its end, asks for, in the first unit of `plan` that is known.
    pub(crate) fn asked_work(&self, plan: &ReadPlan, bytes: u64) -> Option<u64> {
        [Some(plan.primary), plan.primary_otherwise].into_iter().flatten().find_map(|unit| self.asked(plan, unit, bytes))
    }

    fn asked(&self, plan: &ReadPlan, unit: Unit, bytes: u64) -> Option<u64> {
        let stated = |unit| self.work.get(unit).map(|(amount, _)| amount);
        match unit {
            Unit::Byte => Some(bytes),
            Unit::Row => self.known_rows().or(stated(unit)).or_else(|| plan.row_each.then(|| self.documents.max(1))),
            Unit::Element => self.elements.or(stated(unit)),
            // how many it writes is not known yet
            Unit::InputToken | Unit::OutputToken => {
                stated(Unit::InputToken).or_else(|| self.inputs.tokens(BYTES_PER_TOKEN).map(|(tokens, _)| tokens))
            }
            _ => stated(unit),
        }
    }
}
