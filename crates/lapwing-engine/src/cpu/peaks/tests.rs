//! The measurement as a whole. The rates themselves are not tested, because other processes share the machine; only
//! their consistency is.

use super::*;

fn on_threads(count: usize) -> impl Fn(&(dyn Fn(usize) + Sync)) {
    move |work| {
        std::thread::scope(|scope| {
            for thread in 0..count {
                scope.spawn(move || work(thread));
            }
        });
    }
}

fn setup(threads: usize) -> PeakSetup {
    PeakSetup { level: Level::best(), level_i8: LevelI8::best(), threads, launch_ns: 7.0, caches: Caches::probe() }
}

#[test]
fn every_peak_is_a_finite_rate_and_launch_is_carried_along() {
    let peaks = calibrate(&setup(1), &|work| work(0)).unwrap();
    for rate in [peaks.flops_per_s, peaks.int8_ops_per_s, peaks.l2_bytes_per_s, peaks.l2_copy_bytes_per_s, peaks.dram_bytes_per_s]
    {
        assert!(rate.is_finite() && rate > 1e6, "{peaks:?}");
    }
    assert_eq!((peaks.launch_ns, peaks.threads), (7.0, 1));
    assert!((0.0..=1.0).contains(&peaks.spread.worst()));
    assert!(peaks.llc_bytes >= peaks.l2_bytes);
}

#[test]
fn threads_that_do_not_come_are_an_error() {
    let refused = calibrate(&setup(2), &on_threads(1)).unwrap_err();
    assert_eq!(refused, PeaksError::Threads { wanted: 2, ran: 1 });
    assert_eq!(refused.to_string(), "2 threads were to be measured, but 1 ran at the same time");
    assert_eq!(calibrate(&setup(1), &|_| {}).unwrap_err(), PeaksError::Threads { wanted: 1, ran: 0 });
}

#[test]
fn a_plan_reads_from_the_smallest_memory_that_holds_it() {
    let peaks = Peaks {
        flops_per_s: 5.0,
        int8_ops_per_s: 6.0,
        l2_bytes_per_s: 3.0,
        l2_copy_bytes_per_s: 9.0,
        llc_bytes_per_s: 2.0,
        dram_bytes_per_s: 1.0,
        l2_bytes: 10,
        llc_bytes: 100,
        dram_buffer_bytes: 400,
        launch_ns: 8.0,
        threads: 1,
        spread: Spread { dram: 0.3, l2: 0.1, ..Spread::default() },
    };
    assert_eq!([0, 10, 11, 100, 101].map(|bytes| peaks.ceiling(bytes).bytes_per_s), [3.0, 3.0, 2.0, 2.0, 1.0]);
    let ceiling = peaks.ceiling(0);
    assert_eq!((ceiling.fp32_per_s, ceiling.int8_per_s, ceiling.launch_ns), (5.0, 6.0, 8.0));
    assert_eq!(peaks.spread.worst(), 0.3);
}

#[test]
fn the_dram_buffer_is_four_caches_within_bounds_and_never_what_is_not_there() {
    let mib = 1 << 20;
    assert_eq!(dram_buffer(32 * mib, None), 128 * mib);
    assert_eq!(dram_buffer(mib, Some(1 << 40)), 64 * mib);
    assert_eq!(dram_buffer(1 << 30, None), 256 * mib);
    assert_eq!(dram_buffer(32 * mib, Some(100 * mib)), 25 * mib);
    assert_eq!(dram_buffer(usize::MAX, Some(0)), PIECE_BYTES);
}

#[test]
fn parts_are_read_to_the_end_and_from_the_start_again() {
    let workers = WorkerGroup { threads: 1, run: &|work| work(0) };
    let parts = Parts::new(workers, PIECE_BYTES + 4096);
    read(workers, Level::best(), &parts, 1_000_000).unwrap();
    let at = parts.0[0].lock().unwrap().1;
    assert!(at == PIECE_BYTES / 4 || at == PIECE_BYTES / 4 + 1024, "{at}");
}
