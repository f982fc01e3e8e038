//! One request's account: stages, spans, sources, outcome, identity, the law that time is conserved, and the merge
//! of what is observed with what is reported.
//!
//! Everything here is plain data without I/O, and every other module may use it.

#![forbid(unsafe_code)]

mod account;
mod circumstances;
mod claim;
pub mod clock;
mod exchange;
mod generation;
mod identity;
mod merge;
mod names;
mod naming;
mod open;
mod optimum;
mod outcome;
mod pair;
mod prompt;
mod record;
mod route;
mod sampling;
mod server;
mod stage;
mod waterfall;
mod work;

pub use account::Account;
pub use circumstances::{Annotation, Annotations, Circumstances};
pub use claim::each_instant;
pub use claim::{Claim, conserve};
pub use clock::{Stamp, WallClock};
pub use exchange::{ClippedReports, Exchange, SpanNote, TracedSpan};
pub use generation::{Generation, HiddenTokens};
pub use identity::{PassedContext, SpanId, TraceContext, TraceId, TraceMark};
pub use merge::{Claims, merge, placed};
pub use names::{LABEL_BYTES, LabelId, LabelTable, label_text};
pub use naming::{NameProof, NewNames};
pub use open::OpenLedger;
pub use optimum::{ForwardDebt, OptimalForward};
pub use outcome::{ExchangeKind, Outcome};
pub use pair::{CopyCause, PairId};
pub use prompt::{Prompt, PromptBody, PromptBudget};
pub use record::{Ledger, ObservedEvent, Report, ReportPlace, SeriesKey, Span, UpstreamWindow};
pub use route::{FoldedRoute, fold_path};
pub use sampling::SamplingThreshold;
pub use server::{Server, ServerEvidence, ServerField};
pub use stage::{Phase, Source, Stage};
pub use waterfall::{WaterfallBar, waterfall_bars};
pub use work::{Basis, PerUnit, Unit, Work};
