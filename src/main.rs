//! The `lapwing` command.
fn main() {}
