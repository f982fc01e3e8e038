//! What may be asked of `lapwing engine`.

use clap::Subcommand;

use super::serve::{EXAMPLES, ServeArgs};

/// What to do with a model.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum EngineSub {
    /// Serve models: the Open Inference Protocol by REST and gRPC, on this engine
    #[command(after_help = EXAMPLES)]
    Serve(Box<ServeArgs>),
}
