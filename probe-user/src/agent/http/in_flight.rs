//! Answers that clients have not received yet: bounds their time and their memory.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::Notify, time::timeout};

use super::socket::{CHECK_INTERVAL, Socket};
use crate::sys::clock::{nanos, now};

/// The most time for a client to receive an answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The most time for a client to receive an answer while another answer waits for memory.
const TIMEOUT_IN_DEMAND: Duration = Duration::from_secs(1);

/// The most time that an answer waits for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of all answers in flight, in this process and in the kernel. The limit of
/// [`crate::agent::memory`] has room for them.
const MOST_BYTES: usize = 16 << 20;

/// The most bytes of all answers in flight to one address. A single answer may exceed it.
const MOST_BYTES_TO_ONE: usize = MOST_BYTES / 2;

/// The most bytes of an answer's copy in the kernel's send buffer.
const SEND_BUFFER: usize = 256 << 10;

/// An answer of at most this many bytes never waits: probes, refusals. All connections together
/// hold at most 2 MiB of them.
const SMALL_ANSWER: usize = 4 << 10;

/// All answers in flight.
#[derive(Default)]
pub(super) struct InFlight {
    flights: Mutex<Flights>,
    /// Notified when an answer ended.
    ended: Notify,
}

#[derive(Default)]
struct Flights {
    /// By number; the first is the oldest.
    by_number: BTreeMap<u64, PendingAnswer>,
    last_number: u64,
}

struct PendingAnswer {
    body: Bytes,
    peer: IpAddr,
    /// When the answer was ready to be sent, by [`now`].
    since: Duration,
    /// Notified when the answer's connection must close.
    makes_room: Arc<Notify>,
    /// The answer's connection was asked to close, and has not closed yet.
    is_ending: bool,
}

/// Bytes that bodies hold. A text in several answers is in memory once.
fn memory_of<'a>(bodies: impl Iterator<Item = &'a Bytes>) -> usize {
    let mut texts = HashMap::new();
    let buffers = bodies.map(|body| {
        texts.insert(body.as_ptr(), body.len());
        body.len().min(SEND_BUFFER)
    });
    buffers.sum::<usize>() + texts.values().sum::<usize>()
}

impl Flights {
    /// The oldest answer that must end before a new one fits into both bounds. Only the answers
    /// that `holds_memory` accepts are counted.
    fn oldest_blocker(
        &self,
        new: &PendingAnswer,
        holds_memory: fn(&PendingAnswer) -> bool,
    ) -> Option<u64> {
        let counted = || {
            self.by_number
                .iter()
                .filter(move |(_, flight)| holds_memory(flight))
        };
        let to_peer = || counted().filter(|(_, flight)| flight.peer == new.peer);
        let bodies = to_peer().map(|(_, flight)| &flight.body);
        if memory_of(bodies.chain([&new.body])) > MOST_BYTES_TO_ONE
            && let Some((oldest, _)) = to_peer().next()
        {
            return Some(*oldest);
        }
        let bodies = counted().map(|(_, flight)| &flight.body);
        let full = memory_of(bodies.chain([&new.body])) > MOST_BYTES;
        counted().next().map(|(oldest, _)| *oldest).filter(|_| full)
    }

    /// Adds an answer if it fits, and returns its number. If it does not fit, asks the connections
    /// of late answers to close. Then returns the new answer and how long to wait at most before
    /// the next attempt.
    fn add(&mut self, new: PendingAnswer) -> Result<u64, (PendingAnswer, Duration)> {
        let is_small = new.body.len() <= SMALL_ANSWER;
        if is_small || self.oldest_blocker(&new, |_| true).is_none() {
            self.last_number += 1;
            self.by_number.insert(self.last_number, new);
            return Ok(self.last_number);
        }
        while let Some(oldest) = self.oldest_blocker(&new, |flight| !flight.is_ending) {
            let Some(late) = self.by_number.get_mut(&oldest) else {
                break;
            };
            let wait = TIMEOUT_IN_DEMAND.saturating_sub(now().saturating_sub(late.since));
            if !wait.is_zero() {
                return Err((new, wait));
            }
            late.is_ending = true;
            late.makes_room.notify_one();
        }
        Err((new, TIMEOUT_IN_DEMAND))
    }
}

impl InFlight {
    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an answer once it fits. Until then, late answers end, the oldest first.
    async fn begin(self: &Arc<Self>, new: PendingAnswer) -> Flight {
        let mut pending = new;
        loop {
            let ended = self.ended.notified();
            let added = self.flights().add(pending);
            match added {
                Ok(number) => {
                    return Flight {
                        number,
                        in_flight: Arc::clone(self),
                    };
                }
                Err((new, wait)) => {
                    pending = new;
                    let _ended = timeout(wait, ended).await;
                }
            }
        }
    }
}

/// An answer in flight.
struct Flight {
    number: u64,
    in_flight: Arc<InFlight>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.in_flight.flights().by_number.remove(&self.number);
        self.in_flight.ended.notify_waiters();
    }
}

/// A body that is not completely in the kernel yet.
struct Body {
    bytes: Bytes,
    _flight: Arc<Flight>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The state of a connection.
pub(super) struct Activity {
    /// When the connection, a request or an answer last began, in nanoseconds of [`now`].
    last_active: AtomicU64,
    /// The last answer, until the client has received it, and its deadline.
    sending: Mutex<Option<(Arc<Flight>, Duration)>>,
    /// Notified when an answer begins to be sent.
    began: Notify,
    /// Notified when the last answer must end so that another fits.
    makes_room: Arc<Notify>,
    in_flight: Arc<InFlight>,
}

/// Why a connection is closed by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The client did not take an answer in time.
    Overdue,
    /// Its answer held memory that other answers need.
    MadeRoom,
}

impl Activity {
    pub(super) fn new(in_flight: &Arc<InFlight>) -> Arc<Self> {
        let activity = Self {
            last_active: AtomicU64::default(),
            sending: Mutex::default(),
            began: Notify::new(),
            makes_room: Arc::default(),
            in_flight: Arc::clone(in_flight),
        };
        activity.touch();
        Arc::new(activity)
    }

    fn touch(&self) {
        self.last_active.store(nanos(now()), Relaxed);
    }

    /// When the connection, a request or an answer last began, in nanoseconds of [`now`].
    pub(super) fn last_active(&self) -> u64 {
        self.last_active.load(Relaxed)
    }

    fn sending(&self) -> MutexGuard<'_, Option<(Arc<Flight>, Duration)>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request arrived.
    pub(super) fn on_request(&self) {
        self.touch();
    }

    /// Registers an answer, which the client must receive in `within`. Returns its body once the
    /// client has received the previous answer, and this one fits into the memory bounds; None if
    /// it did not fit in time.
    pub(super) async fn on_answer(
        &self,
        bytes: Bytes,
        (peer, socket): (IpAddr, &Socket),
        within: Duration,
    ) -> Option<Bytes> {
        // A client may send a request before it has received the previous answer. That answer's
        // deadline still holds.
        while !self.is_received(socket) {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        let sending = PendingAnswer {
            body: bytes.clone(),
            peer,
            since: now(),
            makes_room: Arc::clone(&self.makes_room),
            is_ending: false,
        };
        let flight = timeout(MEMORY_TIMEOUT, self.in_flight.begin(sending))
            .await
            .ok()?;
        let flight = Arc::new(flight);
        self.touch();
        *self.sending() = Some((Arc::clone(&flight), now() + within));
        self.began.notify_one();
        Some(Bytes::from_owner(Body {
            bytes,
            _flight: flight,
        }))
    }

    /// The connection has ended, and its socket is closed.
    pub(super) fn on_close(&self) {
        self.sending().take();
    }

    /// Waits until the connection must be closed: the client did not take an answer in time, or
    /// another answer needs the memory of its answer.
    pub(super) async fn must_close(&self, socket: &Socket) -> CloseReason {
        tokio::select! {
            () = self.makes_room.notified() => CloseReason::MadeRoom,
            () = self.overdue(socket) => CloseReason::Overdue,
        }
    }

    /// Whether the client has received the last answer. If so, it no longer holds memory.
    fn is_received(&self, socket: &Socket) -> bool {
        let mut sending = self.sending();
        // All of the body is in the kernel, and acknowledged by the client.
        let received = |(flight, _): &mut (Arc<Flight>, _)| {
            Arc::strong_count(flight) == 1 && socket.is_drained()
        };
        let _received = sending.take_if(received);
        sending.is_none()
    }

    async fn overdue(&self, socket: &Socket) {
        loop {
            self.is_received(socket);
            let due = self.sending().as_ref().map(|(_, deadline)| *deadline);
            match due.map(|deadline| deadline.saturating_sub(now())) {
                None => self.began.notified().await,
                Some(Duration::ZERO) => return,
                Some(remaining) => tokio::time::sleep(remaining.min(CHECK_INTERVAL)).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(size: usize) -> Bytes {
        vec![b'x'; size].into()
    }

    fn peer(number: u8) -> IpAddr {
        [127, 0, 0, number].into()
    }

    /// Adds answers (body, address, seconds since their start), and returns the numbers of those
    /// still in flight.
    fn in_flight(bodies: &[(Bytes, u8, u64)]) -> Vec<u64> {
        let mut flights = Flights::default();
        for (body, to, ago) in bodies {
            let mut sending = PendingAnswer {
                body: body.clone(),
                peer: peer(*to),
                since: now().saturating_sub(Duration::from_secs(*ago)),
                makes_room: Arc::default(),
                is_ending: false,
            };
            while let Err((pending, _)) = flights.add(sending) {
                let before = flights.by_number.len();
                flights.by_number.retain(|_, flight| !flight.is_ending);
                if flights.by_number.len() == before {
                    break;
                }
                sending = pending;
            }
            let bodies = flights.by_number.values().map(|flight| &flight.body);
            assert!(memory_of(bodies) <= MOST_BYTES || flights.by_number.len() == 1);
        }
        flights.by_number.into_keys().collect()
    }

    #[test]
    fn answers_that_take_long_make_room() {
        let texts = [0; 4].map(|_| text(5 << 20));
        let to = |peers: [u8; 4], ago: [u64; 4]| -> Vec<_> {
            let all = texts.iter().zip(peers).zip(ago);
            all.map(|((text, peer), ago)| (text.clone(), peer, ago))
                .collect()
        };
        assert_eq!(in_flight(&to([1, 2, 3, 4], [9, 9, 9, 9])), [2, 3, 4]);
        // Young answers do not make room, and the last answer waits.
        assert_eq!(in_flight(&to([1, 2, 3, 4], [0, 0, 0, 0])), [1, 2, 3]);
        // Answers to the same address make room for each other.
        assert_eq!(in_flight(&to([1, 2, 2, 2], [9, 9, 9, 9])), [1, 4]);
        assert_eq!(in_flight(&to([1, 2, 2, 1], [9, 9, 0, 0])), [3, 4]);
        // A text that answers share counts once, a send buffer for each answer.
        let shared = vec![(text(5 << 20), 1, 0); 60];
        assert_eq!(in_flight(&shared).len(), (3 << 20) / SEND_BUFFER);
        // Probes are answered at any load.
        let young = [texts[0].clone(), texts[1].clone(), texts[2].clone()];
        let mut full: Vec<_> = young
            .into_iter()
            .zip(1..)
            .map(|(it, to)| (it, to, 0))
            .collect();
        full.extend([(text(300 << 10), 4, 0), (text(9), 5, 0), (text(9), 1, 0)]);
        assert_eq!(in_flight(&full), [1, 2, 3, 4, 5]);
        // The first answer may be of any size.
        let large = text(2 * MOST_BYTES);
        assert_eq!(in_flight(&[(large.clone(), 1, 9)]), [1]);
        assert_eq!(
            in_flight(&[(large, 1, 9), (text(2 * SMALL_ANSWER), 2, 9)]),
            [2]
        );
    }

    #[tokio::test]
    async fn an_answer_waits_until_another_has_ended() {
        let all = Arc::default();
        let body = text(MOST_BYTES_TO_ONE / 2);
        let sending = || PendingAnswer {
            body: body.clone().to_vec().into(),
            peer: peer(1),
            since: now(),
            makes_room: Arc::default(),
            is_ending: false,
        };
        let first = InFlight::begin(&all, sending()).await;
        let mut second = std::pin::pin!(InFlight::begin(&all, sending()));
        let result = timeout(Duration::ZERO, second.as_mut()).await;
        assert!(result.is_err());
        drop(first);
        let second = second.await;
        assert_eq!(all.flights().by_number.len(), 1);
        drop(second);
        assert!(all.flights().by_number.is_empty());
    }

    /// A connection, and the client's end of it.
    async fn connected() -> (tokio::net::TcpStream, Socket, std::net::TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let socket = Socket::new(&stream).unwrap();
        (stream, socket, client)
    }

    #[tokio::test]
    async fn a_client_that_reads_byte_by_byte_is_overdue() {
        use std::io::Read as _;
        let (stream, socket, mut client) = connected().await;
        let activity = Activity::new(&Arc::default());
        let within = Duration::from_millis(200);
        let body = activity
            .on_answer(text(4 << 20), (peer(1), &socket), within)
            .await;
        while stream.try_write(body.as_ref().unwrap()).is_ok() {}
        let reader =
            std::thread::spawn(move || while client.read(&mut [0]).is_ok_and(|it| it > 0) {});
        assert_eq!(activity.must_close(&socket).await, CloseReason::Overdue);
        drop((stream, socket));
        reader.join().unwrap();
    }

    #[tokio::test]
    async fn a_received_answer_holds_no_memory() {
        use std::io::Read as _;
        let (stream, socket, mut client) = connected().await;
        let all = Arc::default();
        let activity = Activity::new(&all);
        let body = activity
            .on_answer(text(1000), (peer(1), &socket), ANSWER_TIMEOUT)
            .await
            .unwrap();
        stream.try_write(&body).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        drop(body);
        let mut closes = std::pin::pin!(activity.must_close(&socket));
        while !all.flights().by_number.is_empty() {
            let _still_open = timeout(CHECK_INTERVAL, closes.as_mut()).await.unwrap_err();
        }
    }

    /// The client sends requests without reading: only one answer is in flight, and it is overdue.
    #[tokio::test]
    async fn a_client_that_sends_requests_ahead_is_overdue() {
        let (stream, socket, client) = connected().await;
        let all = Arc::default();
        let activity = Activity::new(&all);
        let within = Duration::from_millis(300);
        let answer = || activity.on_answer(text(4 << 20), (peer(1), &socket), within);
        let first = answer().await.unwrap();
        while stream.try_write(&first).is_ok() {}
        drop(first);
        let mut next = std::pin::pin!(answer());
        tokio::select! {
            _ = next.as_mut() => panic!("a second answer is in flight"),
            reason = activity.must_close(&socket) => assert_eq!(reason, CloseReason::Overdue),
        }
        assert_eq!(all.flights().by_number.len(), 1);
        drop(client);
    }
}
