//! What each model server reports of itself, by exact field name: one table.

mod row;

pub use row::{Carrier, Flags, Row, Says, Scale};
