//! Why there was no warm-up.

/// Why there was no warm-up.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// Nothing would be kept.
    #[error("nothing would be kept, so nothing was sent: {0} there; set cache.mode: on")]
    Off(&'static str),
    /// The running Lapwing does not answer, or not what is understood.
    #[error("{0}")]
    Unavailable(String),
}
