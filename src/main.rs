//! The `lapwing` command.

#![forbid(unsafe_code)]

/// Requests allocate little, but often, and on every thread: mimalloc makes that cheap and gives memory back.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    lapwing::app::run()
}
