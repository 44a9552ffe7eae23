// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cm_slow`: consumers and listeners of connection management that block in a
//! callback. Other connections and listeners must work meanwhile.

use super::{
    cm::{
        connect,
        listen,
        Conn,
        Connect,
        Consumer,
        Listener,
        Listening,
        Request, //
    },
    kunit_cm_pair::side,
    kunit_wire_pair::{
        TestLink,
        ONE,
        TWO, //
    },
};
use crate::kunit::helpers::{
    a_while,
    eventually,
    Count, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        Mutex, //
    }, //
};
use kfi_core::rdm::service_id;
use kfi_roce::cm::{
    Event,
    Reason,
    ServiceId,
    State, //
};

/// A callback of a consumer or a listener, without its arguments.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Told {
    /// `Listener::request`, with this first byte of private data.
    Asked(u8),
    Gone,
    Reply,
    Established,
    Rejected,
    Unreachable,
    Disconnected,
    Released,
}

/// A consumer and listener that blocks in each callback until the test lets the callback return,
/// and records the callbacks. It must never be called twice at the same time.
#[pin_data]
struct Slow {
    /// The number of callbacks that may return.
    tickets: Atomic<i64>,
    /// The number of callbacks that have begun.
    begun: Arc<Count>,
    /// The number of callbacks that are running.
    inside: Atomic<u32>,
    /// Whether two callbacks ever ran at the same time.
    crowded: Atomic<bool>,
    #[pin]
    told: Mutex<KVec<Told>>,
    #[pin]
    kept: Mutex<KVec<Request>>,
}

impl Slow {
    fn new() -> Result<Arc<Self>> {
        let begun = Count::new()?;
        Arc::pin_init(
            pin_init!(Self {
                tickets: Atomic::new(0),
                begun,
                inside: Atomic::new(0),
                crowded: Atomic::new(false),
                told <- new_mutex!(KVec::new()),
                kept <- new_mutex!(KVec::new()),
            }),
            GFP_KERNEL,
        )
    }

    /// Allows this many callbacks to return.
    fn let_go(&self, calls: i64) {
        self.tickets.fetch_add(calls, Full);
    }

    fn told(&self, told: Told) {
        if self.inside.fetch_add(1, Full) != 0 {
            self.crowded.xchg(true, Full);
        }
        self.begun.add(1);
        // With a time limit, in case the test fails.
        eventually(|| {
            let free = self.tickets.fetch_add(-1, Full) > 0;
            if !free {
                self.tickets.fetch_add(1, Full);
            }
            free
        });
        let _ = self.told.lock().push(told, GFP_KERNEL);
        self.inside.fetch_sub(1, Full);
    }

    /// Waits until this many callbacks have begun. Returns false if they have not in time.
    fn begins(&self, calls: u32) -> bool {
        eventually(|| self.begun.get() == calls)
    }

    /// Whether exactly these callbacks have returned, in this order and one at a time.
    fn was_told(&self, told: &[Told]) -> bool {
        !self.crowded.load(Acquire) && self.told.lock().as_slice() == told
    }
}

impl Consumer for Slow {
    fn event(&self, _conn: &Arc<Conn>, event: &Event<'_>) {
        self.told(match event {
            Event::Reply(_) => Told::Reply,
            Event::Established(_) => Told::Established,
            Event::Rejected { .. } => Told::Rejected,
            Event::Unreachable => Told::Unreachable,
            Event::Disconnected(_) => Told::Disconnected,
            Event::Released | Event::Closed => Told::Released,
        });
    }
}

impl Listener for Slow {
    fn request(&self, request: Request) {
        let private = request.private().first().copied().unwrap_or(0);
        self.told(Told::Asked(private));
        let _ = self.kept.lock().push(request, GFP_KERNEL);
    }

    fn gone(&self) {
        self.told(Told::Gone);
    }
}

/// A listener of the test, and its service ID.
struct TestListener {
    slow: Arc<Slow>,
    service: ServiceId,
    listening: Option<Listening>,
}

impl TestListener {
    fn new(link: &TestLink, port: u16) -> Result<Self> {
        let slow = Slow::new()?;
        let service = service_id(port);
        let listening = listen(link.0.socket(), TWO, service, 8, slow.clone())?;
        Ok(Self {
            slow,
            service,
            listening: Some(listening),
        })
    }

    /// A listener that does not block.
    fn open(link: &TestLink, port: u16) -> Result<Self> {
        let door = Self::new(link, port)?;
        door.slow.let_go(1000);
        Ok(door)
    }

    fn ask(&self, link: &TestLink, qpn: u32, who: &Arc<Slow>) -> Result<Arc<Conn>> {
        let connect_to = Connect {
            link: &link.0,
            local: ONE,
            remote: TWO,
            service_id: self.service,
            side: side(qpn),
            mtu: None,
            retry_count: 3,
            private: &[qpn as u8],
            context: 0,
        };
        connect(&connect_to, who.clone())
    }

    /// Takes a request that the listener has got. `ETIMEDOUT`.
    fn next(&self) -> Result<Request> {
        let mut request = None;
        eventually(|| {
            request = self.slow.kept.lock().pop();
            request.is_some()
        });
        request.ok_or(ETIMEDOUT)
    }

    /// Makes a connection and disconnects it. Returns whether both ends got all events.
    fn works(&self, link: &TestLink, qpn: u32) -> Result<bool> {
        let (active, passive) = (Slow::new()?, Slow::new()?);
        active.let_go(1000);
        passive.let_go(1000);
        let asks = self.ask(link, qpn, &active)?;
        let answers = self
            .next()?
            .accept(&side(qpn + 1), &[], 0, passive.clone())?;
        let replied = eventually(|| active.was_told(&[Told::Reply]));
        asks.confirm(&[])?;
        let established = eventually(|| passive.was_told(&[Told::Established]));
        answers.disconnect(&[])?;
        let over = eventually(|| active.was_told(&[Told::Reply, Told::Disconnected]))
            && eventually(|| passive.was_told(&[Told::Established, Told::Released]));
        asks.close();
        answers.close();
        Ok(replied && established && over)
    }
}

#[kunit_tests(kfabric_cm_slow)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_consumer_delays_no_other() -> Result {
        let link = TestLink::new()?;
        let door = TestListener::open(&link, 7)?;
        let (slow, peer) = (Slow::new()?, Slow::new()?);
        peer.let_go(1000);
        let asks = door.ask(&link, 2, &slow)?;
        let answers = door.next()?.accept(&side(3), &[], 0, peer.clone())?;
        // The callback for the reply has begun.
        assert!(slow.begins(1));
        assert!(door.works(&link, 4)?);
        assert!(door.works(&link, 6)?);
        // The next event of its own connection waits for that callback.
        answers.close();
        assert!(eventually(|| asks.state() == State::Timewait));
        a_while();
        assert!(slow.begun.get() == 1 && slow.was_told(&[]));
        slow.let_go(1);
        assert!(slow.begins(2));
        assert!(slow.was_told(&[Told::Reply]));
        slow.let_go(1);
        assert!(eventually(|| slow.was_told(&[Told::Reply, Told::Rejected])));
        asks.close();
        Ok(())
    }

    #[test]
    fn events_during_a_callback_are_delivered_after_it() -> Result {
        let link = TestLink::new()?;
        let door = TestListener::open(&link, 7)?;
        let (slow, peer) = (Slow::new()?, Slow::new()?);
        peer.let_go(1000);
        let first = door.ask(&link, 2, &slow)?;
        let answers = door.next()?.accept(&side(3), &[], 0, peer.clone())?;
        assert!(slow.begins(1));
        assert!(first.confirm(&[]).is_ok());
        assert!(eventually(|| peer.was_told(&[Told::Established])));
        answers.disconnect(&[])?;
        assert!(eventually(|| first.state() == State::Timewait));
        // The connection has ended before the callback for the reply returns.
        assert!(slow.begun.get() == 1);
        assert!(first.confirm(&[]) == Err(ENOTCONN));
        slow.let_go(2);
        assert!(eventually(
            || slow.was_told(&[Told::Reply, Told::Disconnected])
        ));
        first.close();
        answers.close();
        Ok(())
    }

    #[test]
    fn a_blocked_listener_delays_no_other() -> Result {
        let link = TestLink::new()?;
        let (slow, other) = (TestListener::new(&link, 7)?, TestListener::open(&link, 8)?);
        let active = Slow::new()?;
        active.let_go(1000);
        let first = slow.ask(&link, 2, &active)?;
        assert!(slow.slow.begins(1));
        assert!(other.works(&link, 4)?);
        // The blocked listener gets all its requests, one at a time.
        let second = slow.ask(&link, 8, &active)?;
        assert!(other.works(&link, 10)?);
        let third = slow.ask(&link, 14, &active)?;
        assert!(other.works(&link, 16)?);
        a_while();
        assert!(slow.slow.begun.get() == 1);
        slow.slow.let_go(3);
        let asked = [Told::Asked(2), Told::Asked(8), Told::Asked(14)];
        assert!(eventually(|| slow.slow.was_told(&asked)));
        for conn in [first, second, third] {
            conn.close();
        }
        Ok(())
    }

    #[test]
    fn a_connection_closed_during_a_callback_gets_no_more_events() -> Result {
        let link = TestLink::new()?;
        let door = TestListener::open(&link, 7)?;
        let (slow, peer) = (Slow::new()?, Slow::new()?);
        peer.let_go(1000);
        let asks = door.ask(&link, 2, &slow)?;
        let answers = door.next()?.accept(&side(3), &[], 0, peer)?;
        assert!(slow.begins(1));
        // Another event is queued.
        answers.close();
        assert!(eventually(|| asks.state() == State::Timewait));
        // Closing does not wait for the call that is under way.
        asks.close();
        slow.let_go(1000);
        assert!(eventually(|| slow.was_told(&[Told::Reply])));
        a_while();
        assert!(slow.begun.get() == 1);
        Ok(())
    }

    #[test]
    fn a_closed_listener_rejects_undelivered_requests() -> Result {
        let link = TestLink::new()?;
        let mut door = TestListener::new(&link, 7)?;
        let (first, second) = (Slow::new()?, Slow::new()?);
        first.let_go(1000);
        second.let_go(1000);
        let asked = door.ask(&link, 2, &first)?;
        assert!(door.slow.begins(1));
        let waits = door.ask(&link, 4, &second)?;
        // The request is queued, or comes when the listener is closed: both reject it.
        a_while();
        door.listening = None;
        assert!(eventually(|| second.was_told(&[Told::Rejected])));
        assert!(first.was_told(&[]));
        // The request that the listener has got is not affected.
        door.slow.let_go(1000);
        let request = door.next()?;
        request.reject(Reason::CONSUMER_DEFINED, &[]);
        assert!(eventually(|| first.was_told(&[Told::Rejected])));
        assert!(door.slow.was_told(&[Told::Asked(2)]));
        asked.close();
        waits.close();
        Ok(())
    }

    #[test]
    fn removing_the_link_does_not_wait_for_a_blocked_consumer() -> Result {
        let link = TestLink::new()?;
        let (door, other) = (TestListener::new(&link, 7)?, TestListener::open(&link, 8)?);
        let (slow, active, passive) = (Slow::new()?, Slow::new()?, Slow::new()?);
        active.let_go(1000);
        passive.let_go(1000);
        // A consumer blocks in its reply, a listener in its request; another connection does not.
        let stands = other.ask(&link, 2, &slow)?;
        let answers = other.next()?.accept(&side(3), &[], 0, passive.clone())?;
        assert!(slow.begins(1));
        let waits = door.ask(&link, 4, &active)?;
        assert!(door.slow.begins(1));
        drop(link);
        assert!(eventually(|| active.was_told(&[Told::Unreachable])));
        assert!(eventually(|| passive.was_told(&[Told::Unreachable])));
        assert!(eventually(|| other.slow.told.lock().contains(&Told::Gone)));
        assert!(slow.was_told(&[]) && door.slow.was_told(&[]));
        slow.let_go(1000);
        door.slow.let_go(1000);
        assert!(eventually(
            || slow.was_told(&[Told::Reply, Told::Unreachable])
        ));
        assert!(eventually(|| door
            .slow
            .was_told(&[Told::Asked(4), Told::Gone])));
        for conn in [stands, answers, waits] {
            conn.close();
        }
        Ok(())
    }
}
