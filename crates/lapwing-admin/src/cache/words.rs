//! The report in words.

use std::fmt;

use super::ghost::{GhostCellView, GhostView};
use super::{CacheView, SeriesTrustView};
use lapwing_cache::{CacheEvent, CacheMode, CacheRefusal};
use lapwing_diagnosis::{duration, thousands, time_to_live};

/// What an answer given from here was, or why none was.
const fn result(event: CacheEvent) -> &'static str {
    match event {
        CacheEvent::L1 => "an answer in memory",
        CacheEvent::L2 => "an answer in the shared Redis",
        CacheEvent::Coalesced => "the answer to the same request, which was under way",
        CacheEvent::Miss => "there was no answer to it",
        CacheEvent::Verified => "there was an answer, and the upstream was asked all the same, to compare",
        CacheEvent::Unproven => "its route and model have not yet been shown to give the same answer",
        CacheEvent::Refused => "its route and model gave other answers to the same question",
        CacheEvent::OnlyIfCached => "its client wanted an answer from here only, and there was none",
        CacheEvent::FollowersFull => "too many waited for the answer to the same request",
        CacheEvent::LeadersFull => "too many requests led others",
        CacheEvent::FollowerAlone => "it waited for the answer to the same request, which failed or took too long",
        CacheEvent::Same | CacheEvent::Different | CacheEvent::Unread | CacheEvent::Refreshed => "",
    }
}

/// Why a request or its answer stayed out.
const fn reason(refusal: CacheRefusal) -> &'static str {
    match refusal {
        CacheRefusal::NotRepeatable => "it is no call of a known protocol that leaves nothing behind",
        CacheRefusal::Compressed => "it is compressed, so nobody knows what it asks for",
        CacheRefusal::SharedMemory => "the server reads or writes memory that it shares with the client",
        CacheRefusal::Stateful => "it belongs to a sequence of calls, or the server keeps its answer",
        CacheRefusal::Sampled => "its answer is drawn by chance, or may be: set temperature to 0, or a seed",
        CacheRefusal::Stream => "its answer comes as a stream",
        CacheRefusal::Conditional => "it is to be answered on a condition, or in part",
        CacheRefusal::RequestNoStore => "it says Cache-Control: no-store",
        CacheRefusal::Status => "its answer has another status than 200",
        CacheRefusal::GrpcStatus => "its answer has another grpc-status than 0",
        CacheRefusal::Incomplete => "its answer did not come to its end",
        CacheRefusal::TooLarge => "its answer is larger than max_entry",
        CacheRefusal::NoStore => "its answer says Cache-Control: no-store",
        CacheRefusal::Private => "its answer says Cache-Control: private",
        CacheRefusal::NoCache => "its answer says Cache-Control: no-cache",
        CacheRefusal::SetCookie => "its answer sets a cookie",
        CacheRefusal::VaryAny => "its answer says Vary: *",
        CacheRefusal::VaryUnkeyed => "its answer varies with a field that is not in the key: name it in vary",
        CacheRefusal::Expired => "its answer is out of date by its own account",
        CacheRefusal::UnreadableId => "the id in its answer cannot be replaced",
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 || percent >= 9.95 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        gib if gib >= 1_073_741_824.0 => format!("{:.1} GiB", gib / 1_073_741_824.0),
        mib if mib >= 1_048_576.0 => format!("{:.1} MiB", mib / 1_048_576.0),
        kib if kib >= 1_024.0 => format!("{:.1} KiB", kib / 1_024.0),
        bytes => format!("{bytes} B"),
    }
    .replace(".0 ", " ")
}

impl fmt::Display for CacheView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            CacheMode::On => self.write_hits(f)?,
            _ => writeln!(f, "the cache observes: the upstream is asked in all cases")?,
        }
        for one in &self.series {
            writeln!(f, "{one}")?;
        }
        if self.refused.values().any(|count| *count > 0) {
            writeln!(f, "what stayed out:")?;
        }
        let known = CacheRefusal::ALL.map(|refusal| (refusal.name(), reason(refusal)));
        let unread = (CacheEvent::Unread.name(), "too much was waiting to be kept");
        for (name, why) in known.into_iter().chain([unread]) {
            let count = self.refused.get(name).copied().unwrap_or_default();
            if count > 0 {
                writeln!(f, "  {:>9} {name}: {why}", thousands(count))?;
            }
        }
        self.ghost.as_ref().map_or(Ok(()), |ghost| write!(f, "{ghost}"))
    }
}

impl CacheView {
    /// What is answered from here, and what is kept.
    fn write_hits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, hit_rate, saved_ns, entries, leading, following, .. } = self;
        #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
        let saved = duration(*saved_ns as f64);
        match hit_rate {
            None => writeln!(f, "the cache is on; no request yet that might be answered from it")?,
            Some(rate) => writeln!(
                f,
                "the cache is on: it answered {} of {} requests that it might answer, and saved {saved} of the upstream's time",
                percent(*rate),
                thousands(*requests)
            )?,
        }
        for event in super::RESULTS {
            let count = self.results.get(event.name()).copied().unwrap_or_default();
            if count > 0 {
                writeln!(f, "  {:>9} {}: {}", thousands(count), event.name(), result(event))?;
            }
        }
        let (used, room) = (bytes(self.bytes), bytes(self.max_bytes));
        writeln!(
            f,
            "it keeps {} answers, {used} of {room}; {leading} lead now, {following} wait for them",
            thousands(*entries as u64)
        )
    }
}

impl fmt::Display for SeriesTrustView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { route, model, state, compared, same, different, different_share, needed } = self;
        let name = if model.is_empty() { route.clone() } else { format!("{route}, model {model}") };
        let (tries, same) = (thousands(*compared), thousands(*same));
        write!(f, "{name}: {state}, the same answer to the same question in {same} of {tries} tries")?;
        if *compared > 0 {
            write!(f, " ({} to {} differ)", percent(different_share.low), percent(different_share.high))?;
        }
        if *state == "refused" {
            write!(f, ": it is asked in all cases; leave it out by cache.routes, or POST /cache/purge once that is mended")?;
        } else if *needed > 0 {
            write!(f, "; {} more until it is trusted", thousands(*needed))?;
        } else if *different > 0 {
            write!(f, ", which cache.max_stale allows")?;
        }
        Ok(())
    }
}

impl fmt::Display for GhostView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, service_ns, observed_ns, cells, enough } = self;
        #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
        let [service, observed] = [service_ns, observed_ns].map(|ns| duration(*ns as f64));
        let requests = thousands(*requests);
        writeln!(
            f,
            "{requests} requests in {observed} took {service}; what caches of a size and a time to live would have answered, and saved in an hour:"
        )?;
        let Some(first) = cells.first() else { return Ok(()) };
        let of_one_size = cells.iter().take_while(|cell| cell.max_bytes == first.max_bytes).count().max(1);
        write!(f, "  {:>8}", "")?;
        for cell in cells.iter().take(of_one_size) {
            write!(f, " {:>15}", time_to_live(cell.ttl_s))?;
        }
        writeln!(f)?;
        for row in cells.chunks(of_one_size) {
            write!(f, "  {:>8}", row.first().map(|cell| bytes(cell.max_bytes)).unwrap_or_default())?;
            for GhostCellView { hit_rate, saved_ns_an_hour, .. } in row {
                write!(f, " {:>15}", format!("{} {}", percent(*hit_rate), duration(*saved_ns_an_hour)))?;
            }
            writeln!(f)?;
        }
        match enough {
            Some(enough) => writeln!(f, "{}", enough.sentence),
            None => writeln!(f, "no question came again: a cache would bring nothing"),
        }
    }
}
