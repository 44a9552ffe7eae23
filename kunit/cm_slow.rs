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
        Delivery,
        Listener,
        Listening,
        Request, //
    },
    kunit_cm_pair::{
        params,
        side, //
    },
    kunit_wire_pair::{
        TestLink,
        TWO, //
    },
};
use crate::{
    kunit::helpers::{
        a_while,
        eventually,
        wait_for,
        Count, //
    },
    shim::reclaim::OwnerKind, //
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
enum Call {
    /// `Listener::request`, with this first byte of private data.
    Requested(u8),
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
    permits: Atomic<i64>,
    /// The number of callbacks that have begun.
    begun: Arc<Count>,
    /// The number of callbacks that are running.
    inside: Atomic<u32>,
    /// Whether two callbacks ever ran at the same time.
    overlapped: Atomic<bool>,
    #[pin]
    calls: Mutex<KVec<Call>>,
    #[pin]
    requests: Mutex<KVec<Request>>,
}

impl Slow {
    fn new() -> Result<Arc<Self>> {
        let begun = Count::new()?;
        Arc::pin_init(
            pin_init!(Self {
                permits: Atomic::new(0),
                begun,
                inside: Atomic::new(0),
                overlapped: Atomic::new(false),
                calls <- new_mutex!(KVec::new()),
                requests <- new_mutex!(KVec::new()),
            }),
            GFP_KERNEL,
        )
    }

    /// One that does not block.
    fn unblocked() -> Result<Arc<Self>> {
        let slow = Self::new()?;
        slow.allow(1000);
        Ok(slow)
    }

    /// Allows this many callbacks to return.
    fn allow(&self, calls: i64) {
        self.permits.fetch_add(calls, Full);
    }

    fn block(&self, call: Call) {
        if self.inside.fetch_add(1, Full) != 0 {
            self.overlapped.xchg(true, Full);
        }
        self.begun.add(1);
        // With a time limit, in case the test fails.
        eventually(|| {
            let free = self.permits.fetch_add(-1, Full) > 0;
            if !free {
                self.permits.fetch_add(1, Full);
            }
            free
        });
        let _ = self.calls.lock().push(call, GFP_KERNEL);
        self.inside.fetch_sub(1, Full);
    }

    /// Waits until this many callbacks have begun. Returns false if they have not in time.
    fn begins(&self, calls: u32) -> bool {
        eventually(|| self.begun.get() == calls)
    }

    /// Whether exactly these callbacks have returned, in this order and one at a time.
    fn has_calls(&self, calls: &[Call]) -> bool {
        !self.overlapped.load(Acquire) && self.calls.lock().as_slice() == calls
    }
}

impl Consumer for Slow {
    fn owner_kind(&self) -> OwnerKind {
        OwnerKind::Program
    }

    fn event(&self, _conn: &Arc<Conn>, event: &Event<'_>) -> Delivery {
        self.block(match event {
            Event::Reply(_) => Call::Reply,
            Event::Established(_) => Call::Established,
            Event::Rejected { .. } => Call::Rejected,
            Event::Unreachable => Call::Unreachable,
            Event::Disconnected(_) => Call::Disconnected,
            Event::Released | Event::Closed => Call::Released,
        });
        Delivery::Done
    }
}

impl Listener for Slow {
    fn owner_kind(&self) -> OwnerKind {
        OwnerKind::Program
    }

    fn request(&self, request: Request) {
        let private = request.private().first().copied().unwrap_or(0);
        self.block(Call::Requested(private));
        let _ = self.requests.lock().push(request, GFP_KERNEL);
    }

    fn gone(&self) {
        self.block(Call::Gone);
    }
}

/// A listener of the test, and its service ID.
struct SlowListener {
    slow: Arc<Slow>,
    service: ServiceId,
    listening: Option<Listening>,
}

impl SlowListener {
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
        let listener = Self::new(link, port)?;
        listener.slow.allow(1000);
        Ok(listener)
    }

    fn request(&self, link: &TestLink, qpn: u32, consumer: &Arc<Slow>) -> Result<Arc<Conn>> {
        let private = [qpn as u8];
        let params = Connect {
            service_id: self.service,
            ..params(link, TWO, qpn, &private)
        };
        connect(&params, consumer.clone())
    }

    /// Takes a request that the listener has got. `ETIMEDOUT`.
    fn next(&self) -> Result<Request> {
        wait_for(|| self.slow.requests.lock().pop())
    }

    /// Makes a connection and disconnects it. Returns whether both ends got all events.
    fn works(&self, link: &TestLink, qpn: u32) -> Result<bool> {
        let (active, passive) = (Slow::unblocked()?, Slow::unblocked()?);
        let active_end = self.request(link, qpn, &active)?;
        let passive_end = self
            .next()?
            .accept(&side(qpn + 1), &[], 0, passive.clone())?;
        let replied = eventually(|| active.has_calls(&[Call::Reply]));
        active_end.confirm(&[])?;
        let established = eventually(|| passive.has_calls(&[Call::Established]));
        passive_end.disconnect(&[])?;
        let over = eventually(|| active.has_calls(&[Call::Reply, Call::Disconnected]))
            && eventually(|| passive.has_calls(&[Call::Established, Call::Released]));
        active_end.close();
        passive_end.close();
        Ok(replied && established && over)
    }
}

#[kunit_tests(kfabric_cm_slow)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_consumer_delays_no_other() -> Result {
        let link = TestLink::new()?;
        let listener = SlowListener::open(&link, 7)?;
        let (slow, peer) = (Slow::new()?, Slow::unblocked()?);
        let active_end = listener.request(&link, 2, &slow)?;
        let passive_end = listener.next()?.accept(&side(3), &[], 0, peer.clone())?;
        // The callback for the reply has begun.
        ensure!(slow.begins(1));
        ensure!(listener.works(&link, 4)?);
        ensure!(listener.works(&link, 6)?);
        // The next event of its own connection waits for that callback.
        passive_end.close();
        ensure!(eventually(|| active_end.state() == State::Timewait));
        a_while();
        ensure!(slow.begun.get() == 1 && slow.has_calls(&[]));
        slow.allow(1);
        ensure!(slow.begins(2));
        ensure!(slow.has_calls(&[Call::Reply]));
        slow.allow(1);
        ensure!(eventually(|| slow.has_calls(&[Call::Reply, Call::Rejected])));
        active_end.close();
        Ok(())
    }

    #[test]
    fn events_during_a_callback_are_delivered_after_it() -> Result {
        let link = TestLink::new()?;
        let listener = SlowListener::open(&link, 7)?;
        let (slow, peer) = (Slow::new()?, Slow::unblocked()?);
        let first = listener.request(&link, 2, &slow)?;
        let passive_end = listener.next()?.accept(&side(3), &[], 0, peer.clone())?;
        ensure!(slow.begins(1));
        ensure!(first.confirm(&[]).is_ok());
        ensure!(eventually(|| peer.has_calls(&[Call::Established])));
        passive_end.disconnect(&[])?;
        ensure!(eventually(|| first.state() == State::Timewait));
        // The connection has ended before the callback for the reply returns.
        ensure!(slow.begun.get() == 1);
        ensure!(first.confirm(&[]) == Err(ENOTCONN));
        slow.allow(2);
        ensure!(eventually(
            || slow.has_calls(&[Call::Reply, Call::Disconnected])
        ));
        first.close();
        passive_end.close();
        Ok(())
    }

    #[test]
    fn a_blocked_listener_delays_no_other() -> Result {
        let link = TestLink::new()?;
        let (slow, other) = (SlowListener::new(&link, 7)?, SlowListener::open(&link, 8)?);
        let active = Slow::unblocked()?;
        let first = slow.request(&link, 2, &active)?;
        ensure!(slow.slow.begins(1));
        ensure!(other.works(&link, 4)?);
        // The blocked listener gets all its requests, one at a time.
        let second = slow.request(&link, 8, &active)?;
        ensure!(other.works(&link, 10)?);
        let third = slow.request(&link, 14, &active)?;
        ensure!(other.works(&link, 16)?);
        a_while();
        ensure!(slow.slow.begun.get() == 1);
        slow.slow.allow(3);
        let requested = [Call::Requested(2), Call::Requested(8), Call::Requested(14)];
        ensure!(eventually(|| slow.slow.has_calls(&requested)));
        for conn in [first, second, third] {
            conn.close();
        }
        Ok(())
    }

    #[test]
    fn a_connection_closed_during_a_callback_gets_no_more_events() -> Result {
        let link = TestLink::new()?;
        let listener = SlowListener::open(&link, 7)?;
        let (slow, peer) = (Slow::new()?, Slow::unblocked()?);
        let active_end = listener.request(&link, 2, &slow)?;
        let passive_end = listener.next()?.accept(&side(3), &[], 0, peer)?;
        ensure!(slow.begins(1));
        // Another event is queued.
        passive_end.close();
        ensure!(eventually(|| active_end.state() == State::Timewait));
        // Closing does not wait for the call that is under way.
        active_end.close();
        slow.allow(1000);
        ensure!(eventually(|| slow.has_calls(&[Call::Reply])));
        a_while();
        ensure!(slow.begun.get() == 1);
        Ok(())
    }

    #[test]
    fn a_closed_listener_rejects_undelivered_requests() -> Result {
        let link = TestLink::new()?;
        let mut listener = SlowListener::new(&link, 7)?;
        let (first, second) = (Slow::unblocked()?, Slow::unblocked()?);
        let requested = listener.request(&link, 2, &first)?;
        ensure!(listener.slow.begins(1));
        let waits = listener.request(&link, 4, &second)?;
        // The request is queued, or comes when the listener is closed: both reject it.
        a_while();
        listener.listening = None;
        ensure!(eventually(|| second.has_calls(&[Call::Rejected])));
        ensure!(first.has_calls(&[]));
        // The request that the listener has got is not affected.
        listener.slow.allow(1000);
        let request = listener.next()?;
        request.reject(Reason::CONSUMER_DEFINED, &[]);
        ensure!(eventually(|| first.has_calls(&[Call::Rejected])));
        ensure!(listener.slow.has_calls(&[Call::Requested(2)]));
        requested.close();
        waits.close();
        Ok(())
    }

    #[test]
    fn removing_the_link_does_not_wait_for_a_blocked_consumer() -> Result {
        let link = TestLink::new()?;
        let (listener, other) = (SlowListener::new(&link, 7)?, SlowListener::open(&link, 8)?);
        let (slow, active) = (Slow::new()?, Slow::unblocked()?);
        let passive = Slow::unblocked()?;
        // A consumer blocks in its reply, a listener in its request; another connection does not.
        let stands = other.request(&link, 2, &slow)?;
        let passive_end = other.next()?.accept(&side(3), &[], 0, passive.clone())?;
        ensure!(slow.begins(1));
        let waits = listener.request(&link, 4, &active)?;
        ensure!(listener.slow.begins(1));
        drop(link);
        ensure!(eventually(|| active.has_calls(&[Call::Unreachable])));
        ensure!(eventually(|| passive.has_calls(&[Call::Unreachable])));
        ensure!(eventually(|| other.slow.calls.lock().contains(&Call::Gone)));
        ensure!(slow.has_calls(&[]) && listener.slow.has_calls(&[]));
        slow.allow(1000);
        listener.slow.allow(1000);
        ensure!(eventually(
            || slow.has_calls(&[Call::Reply, Call::Unreachable])
        ));
        ensure!(eventually(|| listener
            .slow
            .has_calls(&[Call::Requested(4), Call::Gone])));
        for conn in [stands, passive_end, waits] {
            conn.close();
        }
        Ok(())
    }
}
