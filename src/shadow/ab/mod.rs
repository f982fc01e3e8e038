//! The statistics of latency, baseline against candidate.
