//! The `lapwing` command.
use lapwing::{
    ledger::*,
    metrics::{Counters, Labels},
    proxy,
};
use std::sync::Arc;
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;
fn main() {
    let port: u16 = std::env::args().nth(1).unwrap().parse().unwrap();
    let up = std::env::args().nth(2).unwrap();
    let counters = Arc::new(Counters::default());
    let queue = Arc::new(crossbeam_queue::ArrayQueue::new(8192));
    let labels = Arc::new(Labels::new(100, 100, 100));
    let profiler = proxy::Profiler::new(queue.clone(), counters.clone(), labels, &up, Box::new(|_, _, _| ()));
    let q = queue.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(std::time::Duration::from_millis(20));
            while let Some(l) = q.pop() {
                if std::env::var_os("SHOW").is_some() {
                    println!("{l:?}");
                }
            }
        }
    });
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let parts = proxy::Parts {
        config: proxy::Config::default(),
        target: proxy::Target::Tcp(up),
        tracing: proxy::Tracing { sampling: proxy::TraceSampling::Auto, mark: TraceMark::random(), forced: Arc::new(|_| ()) },
        observer: Arc::new(profiler),
        counters,
    };
    let l = proxy::bind(([127, 0, 0, 1], port).into(), 1024, false).unwrap();
    rt.block_on(proxy::serve(l, parts, tokio_util::sync::CancellationToken::new())).unwrap();
}
