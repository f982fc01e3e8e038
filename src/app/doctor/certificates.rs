//! When Lapwing's own certificates are valid.

use std::sync::Arc;

use super::check::DoctorReport;
use crate::app::identities::Identities;
use crate::config::Config;
use lapwing_diagnosis::CertificateValidity;
use lapwing_ledger::clock;

const DAY_S: u64 = 86_400;
/// Of a certificate's life, the part that is left when it should have been renewed.
const RENEWED_BY: u64 = 10;

pub(crate) fn check(config: &Config, report: &mut DoctorReport) {
    // those that cannot be read are faults of the configuration
    let Ok((identities, _)) = Identities::load(config, Arc::default()) else { return };
    for certificate in &*identities.certificates().load() {
        one(certificate, clock::unix_ns() / 1_000_000_000, report);
    }
}

fn one(certificate: &CertificateValidity, now_s: u64, report: &mut DoctorReport) {
    let CertificateValidity { section, from_s, until_s } = certificate;
    let advice = format!("renew the files of {section}; Lapwing reads them again when they change");
    let days = |seconds: u64| seconds / DAY_S;
    if now_s >= *until_s {
        report.wrong(section, format!("its certificate expired {} days ago", days(now_s - until_s)), advice);
    } else if now_s < *from_s {
        let found = format!("its certificate is not valid before {} days from now", days(from_s - now_s) + 1);
        report.wrong(section, found, "set this machine's clock, or use a certificate that is valid now");
    } else if (until_s - now_s).saturating_mul(RENEWED_BY) < until_s - from_s {
        report.note(section, format!("its certificate expires in {} days", days(until_s - now_s)), advice);
    } else {
        report.ok(section, format!("its certificate is valid for {} days", days(until_s - now_s)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::CheckVerdict::{Note, Ok, Wrong};
    use super::*;

    #[test]
    fn a_certificate_is_judged_by_the_time_that_is_left() {
        let day = |days: u64| days * DAY_S;
        for (now_s, verdict) in [(day(99), Wrong), (day(100), Ok), (day(190), Ok), (day(191), Note), (day(200), Wrong)] {
            let mut report = DoctorReport::default();
            let certificate = CertificateValidity { section: "tls.listen".to_owned(), from_s: day(100), until_s: day(200) };
            one(&certificate, now_s, &mut report);
            assert_eq!(report.checks[0].verdict, verdict, "{}", report.text());
            assert_eq!(report.checks[0].advice.is_some(), verdict != Ok);
        }
    }
}
