//! What the reader of a request's body knows of it before it is answered.

use http::HeaderMap;

use super::account::RequestAccount;
use lapwing_metrics::Counter;
use lapwing_protocol::{ExchangeReader, ToldByBody};

impl RequestAccount {
    /// Asks the reader of the bodies, after it has read what has passed; what is the default if there is none.
    fn ask_reader<T: Default>(&self, ask: impl FnOnce(&mut ExchangeReader) -> T) -> T {
        let mut answer = T::default();
        self.with_reader(|reader| answer = ask(reader.up_to_date()));
        answer
    }

    /// Whether the request's body tells the model, or with `is_work` its work. To be asked before its first piece.
    pub(crate) fn told_by_body(&self, is_work: bool) -> ToldByBody {
        self.ask_reader(|reader| if is_work { reader.work_in_body() } else { reader.model_in_body() })
    }

    /// The model's name, as far as what has passed of the request tells it.
    pub(crate) fn named_model(&self) -> Option<Box<str>> {
        self.ask_reader(|reader| reader.model().map(Into::into))
    }

    /// Counts the request under the model that its body names, if that is known.
    pub(crate) fn count_under(&self, model: &str) {
        self.write_ledger(|ledger| {
            self.context.observer.call(Counter::ObserverPanics, |observer| observer.model(model, ledger));
        });
    }

    /// Notes how long the request may take by its body, after [`Self::asked_work`], unless its head says so.
    pub(crate) fn note_asked_deadline(&self) {
        if let Some(asked) = self.ask_reader(|reader| reader.asked_deadline()) {
            self.write_ledger(|ledger| ledger.deadline = ledger.deadline.or(Some(asked)));
        }
    }

    /// Whether the request, with this head, may be neither reordered nor repeated, after [`Self::asked_work`].
    pub(crate) fn is_stateful(&self, headers: &HeaderMap) -> bool {
        self.ask_reader(|reader| reader.is_stateful(headers))
    }

    /// How much the request asks for, whose body has passed to its end.
    pub(crate) fn asked_work(&self) -> Option<u64> {
        let bytes = self.stamps.request_bytes();
        self.ask_reader(|reader| reader.asked_work(bytes))
    }
}
