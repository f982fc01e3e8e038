//! Reads a socket that most often has nothing to read: hyper asks whenever it is polled, several times for each message. The runtime would take a
//! lock each time to be told of a task that it knows. A read of a client's takes fewer bytes than there is room for, where that serves the
//! upstream ([`read_size`]).

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::coop::has_budget_remaining;

use super::meter::SocketMeter;
use lapwing_net::Socket;

/// Bytes of a read of a body that the upstream does not wait for yet: what it does not take should wait in the client.
const AHEAD: usize = 64 * 1024;
/// Bytes of a read where a request begins. A small request is whole then; of a larger one the upstream has the beginning, and wakes up, while the
/// rest is copied.
const BEGINNING: usize = 16 * 1024;

/// The task that waits for a socket's next bytes. All reads of the socket go through it.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    task: Option<Waker>,
    /// The runtime was told of the task, and has not woken it since.
    is_told: bool,
}

impl Reader {
    /// Reads what there is. If there is nothing, the task of `cx` is woken once there is.
    pub(crate) fn poll_read(&mut self, socket: &mut Socket, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let is_same = self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker()));
        if self.is_told && is_same && !socket.may_be_read() {
            return Poll::Pending;
        }
        let polled = Pin::new(socket).poll_read(cx, buf);
        self.is_told = is_told(&polled);
        if self.is_told && !is_same {
            self.task = Some(cx.waker().clone());
        }
        polled
    }

    /// Returns whether the task is woken once there is something to read.
    pub(crate) const fn is_told(&self) -> bool {
        self.is_told
    }

    /// The runtime is told of another task.
    pub(crate) fn forget(&mut self) {
        self.is_told = false;
    }
}

/// Returns whether the runtime remembers who waits: whether a socket or timer that has just been `polled` wakes the task.
///
/// A task's turn is a budget (`tokio::task::coop`). Once it is used up, a socket or timer is `Pending` without having been asked: the task is
/// polled once more, and neither the socket nor the timer knows of it. A read may use the last of it on the way, for it asks the runtime again
/// after the system had nothing. So it is only known afterwards.
pub(crate) fn is_told<T>(polled: &Poll<T>) -> bool {
    polled.is_pending() && has_budget_remaining()
}

/// Returns how many bytes the next read of a client's connection takes at most. HTTP/2 has windows for that.
pub(crate) fn read_size(meter: &SocketMeter) -> usize {
    if meter.is_multiplexed.load(Relaxed) {
        usize::MAX
    } else if meter.is_ahead() {
        AHEAD
    } else if meter.first_read().is_none() {
        BEGINNING
    } else {
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;
    use tokio::task::coop::{consume_budget, has_budget_remaining, poll_proceed};
    use tokio::task::yield_now;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicU32);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    struct Reading {
        reader: Reader,
        socket: Socket,
    }

    impl Reading {
        /// What a task reads.
        fn read(&mut self, task: &Arc<Task>) -> Option<Vec<u8>> {
            let (waker, mut space) = (Waker::from(task.clone()), [0; 16]);
            let mut buf = ReadBuf::new(&mut space);
            match self.reader.poll_read(&mut self.socket, &mut Context::from_waker(&waker), &mut buf) {
                Poll::Ready(read) => read.map(|()| buf.filled().to_vec()).ok(),
                Poll::Pending => None,
            }
        }
    }

    /// Writes, and lets the runtime see it.
    async fn write(peer: &mut UnixStream, bytes: &[u8]) {
        peer.write_all(bytes).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }

    #[tokio::test]
    async fn whoever_read_last_is_woken_however_often_nothing_came() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let mut reading = Reading { reader: Reader::default(), socket: Socket::Unix(socket) };
        let [first, second] = [(); 2].map(|()| Arc::<Task>::default());
        let woken = |task: &Arc<Task>| task.0.load(Relaxed);
        for n in 1..=3 {
            assert_eq!([reading.read(&first), reading.read(&first), reading.read(&first)], [None, None, None]);
            write(&mut peer, b"ab").await;
            assert_eq!((woken(&first), reading.read(&first).as_deref()), (n, Some(&b"ab"[..])));
        }
        assert_eq!([reading.read(&first), reading.read(&second), reading.read(&second)], [None, None, None]);
        write(&mut peer, b"c").await;
        assert_eq!((woken(&first), woken(&second)), (3, 1), "another task reads now");
        assert_eq!(reading.read(&second).as_deref(), Some(&b"c"[..]));
        assert_eq!(reading.read(&second), None);
        drop(peer);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert_eq!((woken(&second), reading.read(&second).as_deref()), (2, Some(&b""[..])), "the end");
    }

    #[tokio::test]
    async fn a_task_that_has_used_its_turn_up_is_told_of_in_its_next() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let mut reading = Reading { reader: Reader::default(), socket: Socket::Unix(socket) };
        let task = Arc::<Task>::default();
        while has_budget_remaining() {
            consume_budget().await;
        }
        assert_eq!(reading.read(&task), None);
        yield_now().await;
        assert_eq!((task.0.load(Relaxed), reading.read(&task)), (1, None), "it is polled once more");
        write(&mut peer, b"a").await;
        assert_eq!(task.0.load(Relaxed), 2);
    }

    /// A read that fills its buffer does not say that there is no more, so the next asks the system, finds nothing, and asks the runtime
    /// again: it takes two units of the turn.
    #[tokio::test]
    async fn whoever_uses_its_turn_up_within_a_read_is_woken() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let mut reading = Reading { reader: Reader::default(), socket: Socket::Unix(socket) };
        let task = Arc::<Task>::default();
        for used in 0..=128 {
            peer.write_all(&[7; 16]).await.unwrap();
            yield_now().await;
            yield_now().await;
            assert_eq!(reading.read(&task).map(|bytes| bytes.len()), Some(16));
            yield_now().await;
            for _ in 0..used {
                poll_fn(|cx| poll_proceed(cx).map(|spent| spent.made_progress())).await;
            }
            assert_eq!(reading.read(&task), None);
            yield_now().await;
            assert_eq!(reading.read(&task), None);
            let before = task.0.load(Relaxed);
            peer.write_all(b"a").await.unwrap();
            yield_now().await;
            yield_now().await;
            assert_eq!((task.0.load(Relaxed) - before, reading.read(&task)), (1, Some(b"a".to_vec())), "after {used} units");
        }
    }

    #[test]
    fn a_read_is_small_where_a_request_begins_and_where_nobody_waits() {
        let meter = SocketMeter::default();
        assert_eq!(read_size(&meter), BEGINNING);
        meter.on_read(None);
        assert_eq!(read_size(&meter), usize::MAX, "the head goes on");
        meter.on_body_left(Some(1 << 20));
        assert_eq!(read_size(&meter), AHEAD, "nobody waits for the body yet");
        meter.on_body_awaited(true);
        assert_eq!(read_size(&meter), usize::MAX);
        meter.on_message_read();
        assert_eq!(read_size(&meter), BEGINNING, "the next request");
        meter.is_multiplexed.store(true, Relaxed);
        assert_eq!(read_size(&meter), usize::MAX);
    }
}
