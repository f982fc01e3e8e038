//! How sure a verdict can be at most: it must hold in single blocks of time too, and the machine's other load must not explain it.
//!
//! Drawing blocks again says how much the verdict depends on which moments were seen. It cannot say that all moments had a common cause
//! outside the upstream: where every slow request waits in a queue because a neighbour has the processors, each draw says "queue".

use super::attribution::Attribution;
use super::bound::{Cause, LatencyBound};
use super::host::HostLoad;
use super::part::{Part, PartSet, Parts};
use super::report::Missing;
use super::text::percent;

/// A block of time counts if it has at least this part of the mean time in question of those that have any.
const LEAST_OF_MEAN: f64 = 0.1;
/// How sure a verdict is at most that holds in one block, or in each of two or three.
const FEW_BLOCKS: f64 = 0.8;
/// From this share of the processors' time on that a hypervisor took, a block counts as stolen from.
const STEAL_SHARE: f64 = 0.03;
/// From this share of the time on in which some process waited for a processor, a block counts as crowded.
const PRESSURE_SHARE: f64 = 0.25;
/// Where that is not known: from this share of the processors' time on that is used.
const BUSY_SHARE: f64 = 0.95;
/// The share of the time in question that must lie in such blocks.
const MOSTLY: f64 = 0.5;
/// How sure a verdict is at most that the machine's load may explain, …
const IN_A_CROWD: f64 = 0.8;
/// … that stolen time explains which the other blocks do not have, …
const STOLEN: f64 = 0.6;
/// … and where the kernel does not say how busy the machine was.
const UNSEEN: f64 = 0.9;
/// How many times the steal of the other blocks the blocks in question have, if it explains them.
const TIMES_OTHERS: f64 = 2.0;

/// What the machine's load says about a verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostDoubt {
    /// How sure a verdict is at most.
    pub(crate) most: f64,
    /// Why, in a clause.
    pub(crate) why: &'static str,
    /// What may explain it instead, and how to find out.
    pub(crate) said: Missing,
}

/// Time in question by block, without those that have little of it: the place of the block, and its parts.
fn blocks_in_question<'a>(found: &'a Attribution<'_>) -> Vec<(usize, &'a Parts)> {
    let whole = |parts: &Parts| parts.iter().sum::<f64>();
    let any: Vec<_> = found.blocks.iter().enumerate().filter(|(_, parts)| whole(parts) > 0.0).collect();
    let mean = any.iter().map(|(_, parts)| whole(parts)).sum::<f64>() / any.len().max(1) as f64;
    any.into_iter().filter(|(_, parts)| whole(parts) >= LEAST_OF_MEAN * mean).collect()
}

/// How sure each finding is at most by the blocks of time in which the parts that it claims explain more than the others and more than any part that none
/// explains: the share of those blocks by the rule of succession, so that few blocks never exceed [`FEW_BLOCKS`].
pub(crate) fn most_by_blocks(found: &Attribution<'_>, claims: &[PartSet], rest: PartSet) -> Vec<f64> {
    let blocks = blocks_in_question(found);
    let mut held = vec![0_usize; claims.len()];
    for (_, parts) in &blocks {
        let best = claims.iter().enumerate().map(|(at, claimed)| (at, claimed.sum(parts)));
        let Some((at, most)) = best.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        if rest.largest(parts).is_none_or(|part: Part| most >= parts[part as usize]) {
            held[at] += 1;
        }
    }
    let all = blocks.len();
    let most = |held: usize| ((held + 1) as f64 / (all + 2) as f64).max(FEW_BLOCKS * held as f64 / all.max(1) as f64);
    held.into_iter().map(most).collect()
}

/// Whether the load of the machine may make a verdict: not where bytes are slow on their way or the time passes elsewhere.
pub(crate) const fn may_be_of_host(bound: LatencyBound, cause: Cause) -> bool {
    !matches!(
        (bound, cause),
        (
            LatencyBound::Network,
            Cause::SlowClient | Cause::FarRegion | Cause::OversizedBodies | Cause::SplitWrites | Cause::Reconnects
        )
    )
}

/// The doubt that the machine's load leaves, by its load in each block of time; `None` if there is none.
pub(crate) fn doubt_of_host(found: &Attribution<'_>, loads: &[Option<HostLoad>]) -> Option<HostDoubt> {
    let blocks = blocks_in_question(found);
    let weight = |parts: &Parts| parts.iter().sum::<f64>();
    let all: f64 = blocks.iter().map(|(_, parts)| weight(parts)).sum();
    let load_of = |at: usize| loads.get(at).copied().flatten();
    let share_of = |is_so: &dyn Fn(HostLoad) -> bool| {
        let such = blocks.iter().filter(|(at, _)| load_of(*at).is_some_and(is_so));
        such.map(|(_, parts)| weight(parts)).sum::<f64>() / all.max(f64::MIN_POSITIVE)
    };
    if share_of(&|_| true) < MOSTLY {
        let said = Missing {
            what: "how busy the machine's processors were, so whether other load on it is the cause".to_owned(),
            how: "let Lapwing read /proc/stat and /proc/pressure/cpu (a kernel with PSI), or look at the machine".to_owned(),
        };
        return Some(HostDoubt { most: UNSEEN, why: "how busy the machine was is not known", said });
    }
    let mean = |of: fn(HostLoad) -> f64, is_in_question: bool| {
        let is_in = |at: &usize| blocks.iter().any(|(other, _)| other == at) == is_in_question;
        let values: Vec<f64> = (0..loads.len()).filter(is_in).filter_map(load_of).map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let in_words = |share: Option<f64>| share.map_or_else(|| "an unknown share".to_owned(), percent);
    let look = "look at the machine meanwhile (top, the pod's CPU request, other pods of the node); if it is this server's own load, the verdict stands";
    let stolen = share_of(&|load| load.steal_share >= STEAL_SHARE);
    if stolen >= MOSTLY {
        let [slow, others] = [true, false].map(|is_in_question| mean(|load| load.steal_share, is_in_question));
        let what = format!(
            "whether it is the hypervisor: {} of the time in question is in moments in which it took {} of the processors' time, {} in others",
            percent(stolen),
            in_words(slow),
            in_words(others)
        );
        let how = "move to a machine whose processors are not shared, or look at its steal (top: st)".to_owned();
        // without other moments nothing shows whether they are as slow
        let is_more = slow.zip(others).is_some_and(|(slow, others)| slow >= TIMES_OTHERS * others);
        let most = if is_more { STOLEN } else { IN_A_CROWD };
        let why = "the hypervisor took processor time meanwhile";
        return Some(HostDoubt { most, why, said: Missing { what, how } });
    }
    let is_crowded =
        |load: HostLoad| load.pressure_share.map_or(load.busy_share >= BUSY_SHARE, |pressure| pressure >= PRESSURE_SHARE);
    let crowded = share_of(&is_crowded);
    (crowded >= MOSTLY).then(|| {
        let used = |is_in_question| mean(|load| load.pressure_share.unwrap_or(load.busy_share), is_in_question);
        let what = format!(
            "whether it is other load on the machine: {} of the time in question is in moments in which its processors were crowded \
             (some process waited for one {} of the time, {} in other moments)",
            percent(crowded),
            in_words(used(true)),
            in_words(used(false))
        );
        let why = "the machine's processors were crowded meanwhile";
        HostDoubt { most: IN_A_CROWD, why, said: Missing { what, how: look.to_owned() } }
    })
}
