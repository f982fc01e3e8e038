//! The bins of one side's latency: those of an HDR histogram of nanoseconds, exact below 2.048 µs and at most 0.1 % wide above.

/// How many bins there are. Bins never change: pods of different versions add up.
pub(crate) const LATENCY_BINS: usize = 34_816;

/// The greatest latency that is told from others: 2⁴³ − 1 ns, 2.4 hours.
pub(crate) const MAX_LATENCY_NS: u64 = (1 << 43) - 1;

/// The last bin holds every latency from 2.44 hours, and the side of a pair that failed or timed out.
pub(crate) const LATENCY_OVERFLOW: usize = LATENCY_BINS - 1;

/// Bins with a width of 1 ns.
const EXACT: u64 = 2_048;
/// Bins of each octave above.
const PER_OCTAVE: u64 = 1_024;

/// The bin of a latency.
pub(crate) fn latency_bin(ns: u64) -> usize {
    let ns = ns.min(MAX_LATENCY_NS);
    if ns < EXACT {
        return ns as usize;
    }
    let octave = ns.ilog2();
    (EXACT + u64::from(octave - 11) * PER_OCTAVE + (ns >> (octave - 10)) - PER_OCTAVE) as usize
}

/// The lower edge of a bin in nanoseconds, which is the upper edge of the bin before; infinite past the last bin.
pub(crate) fn latency_edge_ns(bin: usize) -> f64 {
    let at = bin as u64;
    if bin >= LATENCY_BINS {
        f64::INFINITY
    } else if at < EXACT {
        at as f64
    } else {
        ((PER_OCTAVE + (at - EXACT) % PER_OCTAVE) << ((at - EXACT) / PER_OCTAVE + 1)) as f64
    }
}
