//! One request's account: stages, spans, sources, outcome, identity, the law that time is conserved, and the merge
//! of what is observed with what is reported.
//!
//! Plain data: nothing here does I/O, waits, or knows HTTP, a server or a metric, so that whatever measures a request can depend on it.
//!
//! ```
//! use lapwing_ledger::{Claim, Source, Stage, conserve};
//!
//! let claim = |stage, source, start_ns, end_ns| Claim { stage, phase: None, source, start_ns, end_ns, depth: 0 };
//! // the proxy saw 100 ns of ingress; the upstream reports a forward that would begin before it
//! let claims = [claim(Stage::Ingress, Source::Observed, 0, 100), claim(Stage::Forward, Source::Reported, 50, 900)];
//! let account = conserve(1_000, &claims);
//! let ns = [Stage::Ingress, Stage::Forward, Stage::Unattributed].map(|stage| account.stage_ns(stage));
//! assert_eq!((ns, account.total_ns()), ([100, 800, 100], 1_000));
//! ```

#![forbid(unsafe_code)]

mod account;
mod circumstances;
pub mod clock;
mod deadline;
mod exchange;
mod generation;
mod identity;
mod merge;
mod names;
mod naming;
mod observed_event;
mod open;
mod optimum;
mod outcome;
mod pair;
mod prompt;
mod record;
mod route;
mod sampling;
mod served_by;
mod server;
mod stage;
mod waterfall;
mod work;

pub use account::{Account, server_timing};
pub use circumstances::{Annotation, Annotations, Circumstances};
pub use clock::{Stamp, WallClock};
pub use deadline::{Deadline, DeadlineSource};
pub use exchange::{ClippedReports, Exchange, SpanNote, TracedSpan};
pub use generation::{Generation, HiddenTokens};
pub use identity::{PassedContext, SpanId, TraceContext, TraceId, TraceMark};
pub use merge::{Claim, Claims, conserve, each_instant, merge, placed};
pub use names::{LABEL_BYTES, LabelId, LabelTable, label_text};
pub use naming::{NameProof, NewNames};
pub use observed_event::ObservedEvent;
pub use open::OpenLedger;
pub use optimum::{ForwardDebt, OptimalForward};
pub use outcome::{ExchangeKind, Outcome};
pub use pair::{CopyCause, PairId};
pub use prompt::{Prompt, PromptBody, PromptBudget};
pub use record::{Ledger, Report, ReportPlace, SeriesKey, Span, UpstreamWindow};
pub use route::{FoldedRoute, fold_path};
pub use sampling::SamplingThreshold;
pub use served_by::ServedBy;
pub use server::{Server, ServerEvidence, ServerField};
pub use stage::{Phase, Source, Stage};
pub use waterfall::{WaterfallBar, waterfall_bars};
pub use work::{Basis, PerUnit, Unit, Work};
