//! Synthetic support tickets, each with the team that should get it. A seed gives the same tickets on every machine.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Teams, each with the typical words of its tickets.
const TEAMS: [(&str, &str); CLASSES] = [
    ("billing", "invoice charge refund payment receipt subscription discount card amount overcharged renewal tax"),
    ("shipping", "parcel courier delivery tracking warehouse address delayed shipment package customs label arrived"),
    ("login", "password account locked username verification authenticator code expired session reset email denied"),
    ("network", "router connection latency timeout packet wireless gateway bandwidth firewall dropped offline signal"),
    ("hardware", "screen battery keyboard overheating charger broken replacement fan noise port cracked warranty"),
    ("security", "phishing suspicious breach malware certificate vulnerability stolen attacker scan leak encrypted quarantine"),
    ("reporting", "dashboard export spreadsheet chart quarterly filter column totals report mismatch schedule metrics"),
    ("feedback", "suggestion love wonderful improve feature wish interface colours friendly idea thanks praise"),
];
/// Words of any ticket.
const COMMON: &str = "hello please the a my our your we you they it this that when since after before again still never always \
    yesterday today morning week month last next tried twice called waiting answer support team help need want would could \
    should cannot does not work working problem issue question about with from into over under for and but because while \
    customer order number item product office company colleague phone computer website page button message error shows says \
    says nothing happened already checked attached picture details below urgent soon possible regards kind best thank";
/// How many of 100 words of a ticket are its team's, and how many another team's. The rest are common words.
const OWN: u32 = 34;
const STRAY: u32 = 7;
/// Words of a ticket, the fewest and the most.
const LENGTH: (usize, usize) = (24, 44);

/// How many teams there are.
pub(crate) const CLASSES: usize = 8;

/// A ticket.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    /// The team that should get it, `0..CLASSES`.
    pub(crate) team: usize,
    pub(crate) text: String,
}

/// Every word of any ticket except numbers; some occur twice.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    TEAMS.iter().flat_map(|(_, words)| words.split_whitespace()).chain(COMMON.split_whitespace())
}

/// Generates `count` tickets.
pub(crate) fn tickets(seed: u64, count: usize) -> Vec<Ticket> {
    let mut writer = Writer::new(seed);
    (0..count).map(|_| writer.ticket()).collect()
}

struct Writer {
    random: StdRng,
    teams: Vec<Vec<&'static str>>,
    common: Vec<&'static str>,
}

impl Writer {
    fn new(seed: u64) -> Self {
        let teams = TEAMS.iter().map(|(_, words)| words.split_whitespace().collect()).collect();
        Self { random: StdRng::seed_from_u64(seed), teams, common: COMMON.split_whitespace().collect() }
    }

    fn ticket(&mut self) -> Ticket {
        let team = self.random.random_range(0..CLASSES);
        let words = self.random.random_range(LENGTH.0..=LENGTH.1);
        let mut text = String::with_capacity(words * 8);
        let mut starts_sentence = true;
        for _ in 0..words {
            let word = self.word(team);
            if !text.is_empty() {
                text.push(' ');
            }
            match word.chars().next() {
                Some(first) if starts_sentence => {
                    text.extend(first.to_uppercase());
                    text.push_str(&word[first.len_utf8()..]);
                }
                _ => text.push_str(&word),
            }
            starts_sentence = self.random.random_ratio(1, 9);
            if starts_sentence {
                text.push('.');
            }
        }
        Ticket { team, text }
    }

    /// The next word of a team's ticket: sometimes a number, and the first words of each list more often than the last.
    fn word(&mut self, team: usize) -> String {
        let draw = self.random.random_range(0..100);
        if draw >= 97 {
            return format!("#{}", self.random.random_range(1000..100_000));
        }
        let skewed: f64 = self.random.random::<f64>().powi(2);
        let list = match draw {
            0..OWN => &self.teams[team],
            draw if draw < OWN + STRAY => &self.teams[self.random.random_range(0..CLASSES)],
            _ => &self.common,
        };
        let at = (skewed * list.len() as f64) as usize;
        list.get(at).copied().unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_tickets_and_another_seed_gives_others() {
        let texts = |seed| tickets(seed, 20).into_iter().map(|ticket| ticket.text).collect::<Vec<_>>();
        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
    }

    #[test]
    fn every_team_gets_tickets_of_bounded_length() {
        let all = tickets(3, 400);
        for (team, (name, ..)) in TEAMS.iter().enumerate() {
            assert!(all.iter().filter(|ticket| ticket.team == team).count() > 20, "{name}");
        }
        assert!(all.iter().all(|ticket| (LENGTH.0..=LENGTH.1).contains(&ticket.text.split(' ').count())));
    }
}
