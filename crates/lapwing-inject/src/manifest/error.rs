//! Why a manifest cannot be read or changed.

/// Why a manifest cannot be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The text is no YAML, and no JSON.
    #[error("it is neither YAML nor JSON: {0}")]
    NotYaml(String),
    /// Nested beyond what Kubernetes' own objects are.
    #[error("it is nested more than 200 levels deep")]
    TooDeep,
    /// Aliases that stand for more than there could be.
    #[error("its aliases stand for more than {0} nodes")]
    TooManyNodes(usize),
    /// A value that is not to be written.
    #[error("a value cannot be written: {0}")]
    NotWritten(String),
    /// A path that leads nowhere.
    #[error("nothing is at {0}")]
    NoPath(String),
    /// What is to be changed stands elsewhere, for other things too.
    #[error("{0} is an alias or comes by a merge key (<<), so that a change would reach other places too: write it out there")]
    Shared(String),
    /// The text that results is not what was meant.
    #[error(
        "its layout at {0} is not understood, so it would be changed wrongly: write that part in block style, two columns an indent"
    )]
    Layout(String),
}
