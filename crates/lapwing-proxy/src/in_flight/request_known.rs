//! What the reader of a request's body knows of it before it is answered.

use super::account::RequestAccount;
use lapwing_protocol::ModelInBody;

impl RequestAccount {
    /// Whether the request's body tells the model. To be asked before its first piece.
    pub(crate) fn model_in_body(&self) -> ModelInBody {
        let mut found = ModelInBody::Absent;
        self.with_reader(|reader| found = reader.model_in_body());
        found
    }

    /// The model's name, as far as what has passed of the request tells it.
    pub(crate) fn named_model(&self) -> Option<Box<str>> {
        let mut name = None;
        self.with_reader(|reader| name = reader.model().map(Into::into));
        name
    }
}
