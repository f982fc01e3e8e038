//! The whole proxy between a client and an upstream that send any bytes, in any pieces, at any time.
//! The allocator counts what is held, so that memory has a bound too.
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lapwing_proxy::proxy_properties;

static HELD: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count of the bytes that are held.
struct Counting;

// SAFETY: the system's allocator does all the work; counting only changes a number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's guarantees are those that the system's allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's guarantees are those that the system's allocator needs.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if std::env::var_os("TRANSCRIPT").is_some() {
        println!("{}", proxy_properties::transcript(bytes));
    }
    if let Err(broken) = proxy_properties::fuzz(bytes, Some(|| HELD.load(Relaxed))) {
        panic!("{broken}");
    }
});
