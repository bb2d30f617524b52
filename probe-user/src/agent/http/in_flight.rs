//! Answers that clients have not received: bounds their time and their memory.

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

use super::socket::{LOOK, Socket};
use crate::sys::clock::{nanos, now};

/// The most time for a client to receive an answer.
pub(super) const SENDING: Duration = Duration::from_secs(30);

/// The same where another answer waits for its memory.
const IN_DEMAND: Duration = Duration::from_secs(1);

/// The most time that an answer waits for memory.
const WAITING: Duration = Duration::from_secs(5);

/// Bytes of all answers in flight, in this process and in the kernel. The limit of
/// [`crate::agent::memory`] has room for them.
const MOST: usize = 16 << 20;

/// The same of those to one address, unless it is a single one.
const MOST_OF_ONE: usize = MOST / 2;

/// What an answer holds in addition to its text: the kernel's send buffer, or less.
const BUFFERS: usize = 256 << 10;

/// An answer of at most so many bytes never waits: probes, refusals. All connections together hold
/// 2 MiB of those.
const SMALL: usize = 4 << 10;

/// All answers in flight.
#[derive(Default)]
pub(super) struct InFlight {
    flights: Mutex<Flights>,
    /// Notified when one ended.
    ended: Notify,
}

#[derive(Default)]
struct Flights {
    /// By their order; the first is the oldest.
    all: BTreeMap<u64, Sending>,
    began: u64,
}

struct Sending {
    body: Bytes,
    peer: IpAddr,
    since: Duration,
    makes_room: Arc<Notify>,
    /// Its connection must end to make room, and has not ended yet.
    ends: bool,
}

/// Bytes that bodies hold; a text that several send is in memory once.
fn held<'a>(bodies: impl Iterator<Item = &'a Bytes>) -> usize {
    let mut texts = HashMap::new();
    let buffers = bodies.map(|body| {
        texts.insert(body.as_ptr(), body.len());
        body.len().min(BUFFERS)
    });
    buffers.sum::<usize>() + texts.values().sum::<usize>()
}

impl Flights {
    /// The oldest one that is in the way of a new one, which would exceed a bound. `counts` says
    /// which flights still hold memory.
    fn in_the_way(&self, new: &Sending, counts: fn(&Sending) -> bool) -> Option<u64> {
        let there = || self.all.iter().filter(move |(_, flight)| counts(flight));
        let to_peer = || there().filter(|(_, flight)| flight.peer == new.peer);
        let bodies = to_peer().map(|(_, flight)| &flight.body);
        if held(bodies.chain([&new.body])) > MOST_OF_ONE
            && let Some((oldest, _)) = to_peer().next()
        {
            return Some(*oldest);
        }
        let bodies = there().map(|(_, flight)| &flight.body);
        let full = held(bodies.chain([&new.body])) > MOST;
        there().next().map(|(oldest, _)| *oldest).filter(|_| full)
    }

    /// Adds an answer if it has room. If not, ends those that took too long. Returns its number, or
    /// how long to wait at most before the next try.
    fn add(&mut self, sending: Sending) -> Result<u64, (Sending, Duration)> {
        let is_small = sending.body.len() <= SMALL;
        if is_small || self.in_the_way(&sending, |_| true).is_none() {
            self.began += 1;
            self.all.insert(self.began, sending);
            return Ok(self.began);
        }
        while let Some(oldest) = self.in_the_way(&sending, |flight| !flight.ends) {
            let Some(late) = self.all.get_mut(&oldest) else {
                break;
            };
            let left = IN_DEMAND.saturating_sub(now().saturating_sub(late.since));
            if !left.is_zero() {
                return Err((sending, left));
            }
            late.ends = true;
            late.makes_room.notify_one();
        }
        Err((sending, IN_DEMAND))
    }
}

impl InFlight {
    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an answer once there is room for it. The oldest ones end where that takes long.
    async fn begin(self: &Arc<Self>, sending: Sending) -> Flight {
        let mut waits = sending;
        loop {
            let ended = self.ended.notified();
            let added = self.flights().add(waits);
            match added {
                Ok(number) => {
                    let of = Arc::clone(self);
                    return Flight { number, of };
                }
                Err((sending, left)) => {
                    waits = sending;
                    let _ended = timeout(left, ended).await;
                }
            }
        }
    }
}

/// An answer in flight.
struct Flight {
    number: u64,
    of: Arc<InFlight>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.of.flights().all.remove(&self.number);
        self.of.ended.notify_waiters();
    }
}

/// A body that the server has not handed to the kernel yet.
struct Body {
    bytes: Bytes,
    _flight: Arc<Flight>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What a connection does.
pub(super) struct Activity {
    /// When something last happened, in nanoseconds of the clock.
    last: AtomicU64,
    /// The last answer, until the client has received it, and its deadline.
    sending: Mutex<Option<(Arc<Flight>, Duration)>>,
    began: Notify,
    /// Notified when this answer is in the way of another.
    makes_room: Arc<Notify>,
    in_flight: Arc<InFlight>,
}

/// Why a connection is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// The client did not take an answer in time.
    Overdue,
    /// It held memory that later answers need.
    MadeRoom,
}

impl Activity {
    pub(super) fn of(in_flight: &Arc<InFlight>) -> Arc<Self> {
        let activity = Self {
            last: AtomicU64::default(),
            sending: Mutex::default(),
            began: Notify::new(),
            makes_room: Arc::default(),
            in_flight: Arc::clone(in_flight),
        };
        activity.touch();
        Arc::new(activity)
    }

    fn touch(&self) {
        self.last.store(nanos(now()), Relaxed);
    }

    /// When something last happened, in nanoseconds of the clock.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    fn sending(&self) -> MutexGuard<'_, Option<(Arc<Flight>, Duration)>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request arrived.
    pub(super) fn asked(&self) {
        self.touch();
    }

    /// Its answer is made, to be received within so long. Returns its body once there is memory for
    /// it; none where there is not.
    pub(super) async fn answered(
        &self,
        bytes: Bytes,
        peer: IpAddr,
        within: Duration,
    ) -> Option<Bytes> {
        let sending = Sending {
            body: bytes.clone(),
            peer,
            since: now(),
            makes_room: Arc::clone(&self.makes_room),
            ends: false,
        };
        // The client has more to ask, so it has received the answer before.
        self.sending().take();
        let flight = timeout(WAITING, self.in_flight.begin(sending)).await.ok()?;
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
    pub(super) fn ended(&self) {
        self.sending().take();
    }

    /// Waits until the client is late, or another needs the memory of its answer.
    pub(super) async fn late(&self, socket: &Socket) -> Late {
        tokio::select! {
            () = self.makes_room.notified() => Late::MadeRoom,
            () = self.overdue(socket) => Late::Overdue,
        }
    }

    async fn overdue(&self, socket: &Socket) {
        loop {
            let left = {
                let mut sending = self.sending();
                // The body is with the kernel, and with the client.
                let received = |(flight, _): &mut (Arc<Flight>, _)| {
                    Arc::strong_count(flight) == 1 && socket.is_drained()
                };
                let _received = sending.take_if(received);
                let due = sending.as_ref().map(|(_, deadline)| *deadline);
                due.map(|deadline| deadline.saturating_sub(now()))
            };
            match left {
                None => self.began.notified().await,
                Some(Duration::ZERO) => return,
                Some(left) => tokio::time::sleep(left.min(LOOK)).await,
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

    /// Adds answers that began so many seconds ago; numbers of those in flight.
    fn in_flight(bodies: &[(Bytes, u8, u64)]) -> Vec<u64> {
        let mut flights = Flights::default();
        for (body, to, ago) in bodies {
            let mut sending = Sending {
                body: body.clone(),
                peer: peer(*to),
                since: now().saturating_sub(Duration::from_secs(*ago)),
                makes_room: Arc::default(),
                ends: false,
            };
            while let Err((waits, _)) = flights.add(sending) {
                let before = flights.all.len();
                flights.all.retain(|_, flight| !flight.ends);
                if flights.all.len() == before {
                    break;
                }
                sending = waits;
            }
            let bodies = flights.all.values().map(|flight| &flight.body);
            assert!(held(bodies) <= MOST || flights.all.len() == 1);
        }
        flights.all.into_keys().collect()
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
        // Young ones do not, and the last one waits.
        assert_eq!(in_flight(&to([1, 2, 3, 4], [0, 0, 0, 0])), [1, 2, 3]);
        // Of one address its own do.
        assert_eq!(in_flight(&to([1, 2, 2, 2], [9, 9, 9, 9])), [1, 4]);
        assert_eq!(in_flight(&to([1, 2, 2, 1], [9, 9, 0, 0])), [3, 4]);
        // One text is there once, the send buffers as often as it is sent.
        let shared = vec![(text(5 << 20), 1, 0); 60];
        assert_eq!(in_flight(&shared).len(), (3 << 20) / BUFFERS);
        // Probes are answered whatever is in flight.
        let young = [texts[0].clone(), texts[1].clone(), texts[2].clone()];
        let mut full: Vec<_> = young
            .into_iter()
            .zip(1..)
            .map(|(it, to)| (it, to, 0))
            .collect();
        full.extend([(text(300 << 10), 4, 0), (text(9), 5, 0), (text(9), 1, 0)]);
        assert_eq!(in_flight(&full), [1, 2, 3, 4, 5]);
        // Whatever is asked for first is answered.
        let large = text(2 * MOST);
        assert_eq!(in_flight(&[(large.clone(), 1, 9)]), [1]);
        assert_eq!(in_flight(&[(large, 1, 9), (text(2 * SMALL), 2, 9)]), [2]);
    }

    #[tokio::test]
    async fn an_answer_waits_until_another_has_ended() {
        let all = Arc::default();
        let body = text(MOST_OF_ONE / 2);
        let sending = || Sending {
            body: body.clone().to_vec().into(),
            peer: peer(1),
            since: now(),
            makes_room: Arc::default(),
            ends: false,
        };
        let first = InFlight::begin(&all, sending()).await;
        let mut second = std::pin::pin!(InFlight::begin(&all, sending()));
        let waits = timeout(Duration::ZERO, second.as_mut()).await;
        assert!(waits.is_err());
        drop(first);
        let second = second.await;
        assert_eq!(all.flights().all.len(), 1);
        drop(second);
        assert!(all.flights().all.is_empty());
    }

    /// A connection, and the client's end of it.
    async fn connected() -> (tokio::net::TcpStream, Socket, std::net::TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let socket = Socket::of(&stream).unwrap();
        (stream, socket, client)
    }

    #[tokio::test]
    async fn a_client_that_drips_is_late() {
        use std::io::Read as _;
        let (stream, socket, mut client) = connected().await;
        let activity = Activity::of(&Arc::default());
        let within = Duration::from_millis(200);
        let body = activity.answered(text(4 << 20), peer(1), within).await;
        while stream.try_write(body.as_ref().unwrap()).is_ok() {}
        let drips =
            std::thread::spawn(move || while client.read(&mut [0]).is_ok_and(|it| it > 0) {});
        assert_eq!(activity.late(&socket).await, Late::Overdue);
        drop((stream, socket));
        drips.join().unwrap();
    }

    #[tokio::test]
    async fn a_client_that_has_its_answer_holds_nothing() {
        use std::io::Read as _;
        let (stream, socket, mut client) = connected().await;
        let all = Arc::default();
        let activity = Activity::of(&all);
        let body = activity
            .answered(text(1000), peer(1), SENDING)
            .await
            .unwrap();
        stream.try_write(&body).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        drop(body);
        let mut late = std::pin::pin!(activity.late(&socket));
        while !all.flights().all.is_empty() {
            let _not_late = timeout(LOOK, late.as_mut()).await.unwrap_err();
        }
    }
}
