//! Somebody else on the wire: servers in memory, behind real frames and a clock that runs.
//!
//! Owns: a thread between a seat at the wire and `netroot`'s [`Peer`]. It ends with this value.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netroot::peer::{Peer, Plan};
use qemu_tests::lan::Seat;

/// The thread looks so often whether it is wanted.
const TURN: Duration = Duration::from_millis(20);
/// What is read before the servers get their turn.
const MOST_FRAMES: usize = 32;
/// IEEE 802.1Q: where the tag stands, and its first half.
const TAG_AT: usize = 12;
const TAGGED: [u8; 2] = [0x81, 0];

/// Servers of somebody else's.
pub(crate) struct Neighbour {
    ends: Arc<AtomicBool>,
    requests: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    pub(crate) fn start(plan: &Plan, seat: Seat) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (until, tells, mut peer) = (ends.clone(), requests.clone(), Peer::new(plan));
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            while !until.load(Ordering::Relaxed) {
                turn(&mut peer, &seat, began);
                tells.lock().unwrap().append(&mut peer.requests);
            }
        });
        Self { ends, requests, thread: Some(thread) }
    }

    /// What was asked for over HTTP so far: `80 /layers/x.layer from 0`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // A panic there was printed there.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Takes what came, or waits for it, and sends what the servers answer.
fn turn(peer: &mut Peer, seat: &Seat, began: Instant) {
    let now = || u64::try_from(began.elapsed().as_nanos()).unwrap();
    let next = peer.next_ns().map_or(TURN, |at| Duration::from_nanos(at.saturating_sub(now())));
    let mut limit = next.min(TURN);
    for _ in 0..MOST_FRAMES {
        let Some(frame) = seat.receive(limit) else { break };
        peer.take(&frame);
        limit = Duration::ZERO;
    }
    peer.turn(now());
    while let Some((mut frame, tag)) = peer.give() {
        if let Some(tag) = tag {
            let tag = [TAGGED, tag.to_be_bytes()].concat();
            frame.splice(TAG_AT..TAG_AT, tag);
        }
        seat.send(&frame);
    }
}
