//! The forwarder to the user's collector: a bounded queue, a few messages under way at once, bounded retries, every loss counted.

mod message;
mod queue;
mod rewrite;
mod sampler;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};

use self::message::QueuedMessage;
pub use self::queue::ForwardQueue;
#[cfg(any(test, feature = "testing"))]
pub(crate) use self::rewrite::{SpanFate, rewritten};
use super::OwnTraces;
use crate::Config;
use crate::collector::{self, CollectorClient, CollectorOptions, Compression, RetryPolicy};
use lapwing_metrics::Counters;
use lapwing_net::ClientIdentity;
use lapwing_settings::{Collector, Secret, TraceSampler};

/// For one attempt.
const ATTEMPT: Duration = Duration::from_secs(10);

/// Returns a queue of messages to `to`, and the future that sends them.
///
/// The queue holds `config.forward_queue` messages, and no more than 32 MiB of them (or one of `config.otlp_max_body`);
/// a message that finds it full is lost and counted. Of the traces that `own_traces` knows, only those enter it that `sampler`, the
/// user's own, would have sampled, and Lapwing's spans in them are replaced by their parents.
///
/// The future ends when every [`ForwardQueue`] is dropped and the queue is empty. Once they are dropped, each message is sent only
/// once more, within two seconds. Dropping the future counts what is left as lost. It must be polled in a tokio runtime.
///
/// # Errors
///
/// When a header's name or value, or the collector's address, cannot be put on the wire.
pub fn forwarder(
    (to, identity): (&Collector, &Arc<ClientIdentity>),
    headers: BTreeMap<String, Secret>,
    config: &Config,
    sampler: TraceSampler,
    own_traces: Arc<OwnTraces>,
    counters: Arc<Counters>,
) -> Result<(ForwardQueue, impl Future<Output = ()> + Send + 'static), collector::Error> {
    // an exporter compresses what is worth it; a collector near its pods gains nothing by another pass
    let options = CollectorOptions { headers, compression: Compression::None, timeout: ATTEMPT, identity: identity.clone() };
    let client = CollectorClient::new(to, options)?;
    let (sender, receiver) = mpsc::channel(config.forward_queue.max(1));
    let (queue, closing) = ForwardQueue::new(sender, config, matches!(to, Collector::Grpc(_)), own_traces, sampler, counters);
    let policy = RetryPolicy::new(config.forward_attempts, ATTEMPT);
    let future = async move {
        let receiver = Mutex::new(receiver);
        let worker = || work(&receiver, &client, &policy, &closing);
        // four at once: a collector far away answers one in tens of milliseconds
        tokio::join!(worker(), worker(), worker(), worker());
    };
    Ok((queue, future))
}

async fn work(
    receiver: &Mutex<mpsc::Receiver<QueuedMessage>>,
    client: &CollectorClient,
    policy: &RetryPolicy,
    closing: &tokio_util::sync::CancellationToken,
) {
    loop {
        let next = receiver.lock().await.recv().await;
        let Some(QueuedMessage { message, _room, mut outcome }) = next else { return };
        match collector::send(&message, client, policy, closing).await {
            Ok(_) => outcome.mark_forwarded(),
            Err(reason) => tracing::warn!(signal = ?message.signal, reason, "cannot forward an OTLP message; it is lost"),
        }
    }
}

#[cfg(test)]
mod tests;
