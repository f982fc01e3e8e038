//! The way on to the user's collector: a bounded queue, a few deliveries at once, bounded retry, every loss counted.

mod carrier;
mod deliver;
mod headers;
mod parcel;
mod queue;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use self::carrier::Carrier;
pub use self::headers::Error;
pub use self::queue::ForwardQueue;
use super::Ours;
use crate::attribution::Config;
use crate::metrics::Counters;
use crate::settings::{Collector, Secret};

/// A queue to `to`, and what empties it.
///
/// The queue holds `config.forward_queue` messages, and no more than 32 MiB of them (or one of `config.otlp_max_body`);
/// what finds it full is lost and counted. Spans of traces that are `ours` are taken out on the way in.
///
/// The future delivers until every [`ForwardQueue`] is dropped and the queue is empty; from then on each message is tried
/// once more and not longer than two seconds. Dropping it early counts what is left as lost. It must be polled in a tokio
/// runtime.
///
/// # Errors
///
/// Where a header's name or value, or the collector's address, cannot be put on the wire.
pub fn forwarder(
    to: &Collector,
    headers: BTreeMap<String, Secret>,
    config: &Config,
    ours: Arc<Ours>,
    counters: Arc<Counters>,
) -> Result<(ForwardQueue, impl Future<Output = ()> + Send + 'static), Error> {
    let headers = headers::checked(headers)?;
    let route = carrier::Route::new(to, headers)?;
    let (sender, receiver) = mpsc::channel(config.forward_queue.max(1));
    let (queue, closing) = ForwardQueue::new(sender, config, matches!(to, Collector::Grpc(_)), ours, counters);
    let policy = deliver::Policy::new(config.forward_attempts);
    let future = async move {
        let carrier = route.open();
        let receiver = Mutex::new(receiver);
        let worker = || work(&receiver, &carrier, &policy, &closing);
        // four at once: a collector far away answers one in tens of milliseconds
        tokio::join!(worker(), worker(), worker(), worker());
    };
    Ok((queue, future))
}

async fn work(
    receiver: &Mutex<mpsc::Receiver<parcel::Parcel>>,
    carrier: &Carrier,
    policy: &deliver::Policy,
    closing: &tokio_util::sync::CancellationToken,
) {
    loop {
        let next = receiver.lock().await.recv().await;
        let Some(parcel) = next else { return };
        deliver::deliver(parcel, carrier, policy, closing).await;
    }
}
