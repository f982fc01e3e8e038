//! Cost of one exchange.
fn main() {}
