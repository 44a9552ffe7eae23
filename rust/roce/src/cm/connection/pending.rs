// SPDX-License-Identifier: GPL-2.0
//! The queue of undelivered events of a connection.
//!
//! An event refers to bytes of the message that caused it. To deliver it later, the queue copies
//! the event with those bytes. A connection has at most two undelivered events: a reply or its
//! establishment, and its end. The queue has room for both, so it allocates nothing.

use super::{
    super::{
        Rej,
        Rtu, //
    },
    Event,
    Reply, //
};

/// A copy of bytes of a message that an event refers to. Bytes beyond `N` are cut off.
#[derive(Clone, Copy, Debug)]
struct Bytes<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Bytes<N> {
    fn new(from: &[u8]) -> Self {
        let mut bytes = [0; N];
        for (to, from) in bytes.iter_mut().zip(from) {
            *to = *from;
        }
        Self {
            bytes,
            len: from.len().min(N),
        }
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// An event with copies of the bytes that it refers to.
#[derive(Clone, Copy, Debug)]
pub struct StoredEvent {
    /// The event, with empty slices in place of the bytes.
    event: Event<'static>,
    info: Bytes<{ Rej::INFO_LEN }>,
    /// The longest private data is that of an RTU.
    private: Bytes<{ Rtu::PRIVATE_LEN }>,
}

impl StoredEvent {
    fn new(event: &Event<'_>) -> Self {
        let (event, info, private): (Event<'static>, &[u8], &[u8]) = match *event {
            Event::Reply(reply) => {
                let private = reply.private;
                (Event::Reply(with_private(reply, &[])), &[], private)
            }
            Event::Established(private) => (Event::Established(&[]), &[], private),
            Event::Rejected {
                reason,
                info,
                private,
            } => {
                let event = Event::Rejected {
                    reason,
                    info: &[],
                    private: &[],
                };
                (event, info, private)
            }
            Event::Unreachable => (Event::Unreachable, &[], &[]),
            Event::Disconnected(private) => (Event::Disconnected(&[]), &[], private),
            Event::Released => (Event::Released, &[], &[]),
            Event::Closed => (Event::Closed, &[], &[]),
        };
        Self {
            event,
            info: Bytes::new(info),
            private: Bytes::new(private),
        }
    }

    /// Returns the event.
    pub fn event(&self) -> Event<'_> {
        let private = self.private.get();
        match self.event {
            Event::Reply(reply) => Event::Reply(with_private(reply, private)),
            Event::Established(_) => Event::Established(private),
            Event::Rejected { reason, .. } => Event::Rejected {
                reason,
                info: self.info.get(),
                private,
            },
            Event::Disconnected(_) => Event::Disconnected(private),
            other => other,
        }
    }

    /// Returns whether this is the last event, see [`Event::is_last`].
    pub const fn is_last(&self) -> bool {
        self.event.is_last()
    }
}

/// Returns `reply` with other private data.
const fn with_private<'a>(reply: Reply<'_>, private: &'a [u8]) -> Reply<'a> {
    Reply {
        qpn: reply.qpn,
        starting_psn: reply.starting_psn,
        mtu: reply.mtu,
        responder_resources: reply.responder_resources,
        initiator_depth: reply.initiator_depth,
        rnr_retry_count: reply.rnr_retry_count,
        ack_timeout: reply.ack_timeout,
        srq: reply.srq,
        private,
    }
}

/// The undelivered events of a connection, in order.
#[derive(Clone, Debug, Default)]
pub struct PendingEvents {
    /// [`Event::Reply`] or [`Event::Established`].
    first: Option<StoredEvent>,
    /// The last event, see [`Event::is_last`].
    last: Option<StoredEvent>,
}

impl PendingEvents {
    /// Returns an empty queue.
    pub const fn new() -> Self {
        Self {
            first: None,
            last: None,
        }
    }

    /// Adds an event. The caller adds events in the order in which the connection returns them. The
    /// last event removes a reply that has not been taken, because that reply can no longer be
    /// answered. Events after the last one, and [`Event::Closed`], are ignored.
    pub fn add(&mut self, event: &Event<'_>) {
        match event {
            _ if self.last.is_some() => {}
            Event::Closed => {}
            Event::Reply(_) | Event::Established(_) => self.first = Some(StoredEvent::new(event)),
            _ => {
                self.first = self.first.filter(|first| !first.event.is_reply());
                self.last = Some(StoredEvent::new(event));
            }
        }
    }

    /// Takes the next event; `None` if the queue is empty.
    pub fn take(&mut self) -> Option<StoredEvent> {
        self.first.take().or_else(|| self.last.take())
    }

    /// Returns a copy of the next event, which stays in the queue; `None` if the queue is empty.
    pub const fn next(&self) -> Option<StoredEvent> {
        match self.first {
            None => self.last,
            first => first,
        }
    }

    /// Removes an event that [`next`](Self::next) has returned. Does nothing if it has been removed
    /// meanwhile.
    pub fn remove(&mut self, event: &StoredEvent) {
        if event.is_last() {
            self.last = None;
        } else {
            self.first = None;
        }
    }

    /// Returns whether the queue is empty.
    pub const fn is_empty(&self) -> bool {
        self.first.is_none() && self.last.is_none()
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_cm_pending))]
mod tests {
    use super::{
        super::super::{
            super::{
                headers::Qpn,
                mtu::PathMtu,
                psn::Psn, //
            },
            Reason,
            Timeout, //
        },
        *, //
    };

    const PRIVATE: [u8; Rtu::PRIVATE_LEN] = [7; Rtu::PRIVATE_LEN];

    fn reply(private: &[u8]) -> Event<'_> {
        Event::Reply(Reply {
            qpn: Qpn::new(0x123),
            starting_psn: Psn::new(0x456),
            mtu: PathMtu::Mtu1024,
            responder_resources: 1,
            initiator_depth: 2,
            rnr_retry_count: 3,
            ack_timeout: Timeout::new(4),
            srq: true,
            private,
        })
    }

    fn rejected<'a>(info: &'a [u8], private: &'a [u8]) -> Event<'a> {
        Event::Rejected {
            reason: Reason::STALE_CONN,
            info,
            private,
        }
    }

    fn part(len: usize) -> &'static [u8] {
        PRIVATE.get(..len).unwrap_or(&[])
    }

    #[test]
    fn an_event_is_delivered_with_its_bytes() {
        let events = [
            reply(part(196)),
            reply(&[]),
            Event::Established(&PRIVATE),
            rejected(part(72), part(148)),
            rejected(part(1), &[]),
            Event::Unreachable,
            Event::Disconnected(part(220)),
            Event::Disconnected(&[]),
            Event::Released,
        ];
        for event in events {
            let mut pending = PendingEvents::new();
            assert!(pending.is_empty());
            pending.add(&event);
            assert!(!pending.is_empty());
            let stored = pending.take();
            assert!(stored.is_some_and(|stored| stored.event() == event));
            assert!(stored.is_some_and(|stored| stored.is_last() == event.is_last()));
            assert!(pending.is_empty() && pending.take().is_none());
        }
    }

    #[test]
    fn events_are_delivered_in_order() {
        let mut pending = PendingEvents::new();
        pending.add(&Event::Established(part(3)));
        pending.add(&Event::Disconnected(part(4)));
        let taken = [pending.take(), pending.take(), pending.take()];
        let is = |stored: Option<StoredEvent>, event| {
            stored.is_some_and(|stored| stored.event() == event)
        };
        let [first, second, none] = taken;
        assert!(is(first, Event::Established(part(3))));
        assert!(is(second, Event::Disconnected(part(4))));
        assert!(none.is_none());
    }

    #[test]
    fn a_reply_is_dropped_after_the_last_event() {
        for end in [rejected(&[], part(2)), Event::Unreachable] {
            let mut pending = PendingEvents::new();
            pending.add(&reply(part(5)));
            pending.add(&end);
            assert!(pending.take().is_some_and(|stored| stored.event() == end));
            assert!(pending.is_empty());
            // A reply that was taken before the end stays delivered.
            pending.add(&reply(part(5)));
            assert!(pending.take().is_some_and(|stored| !stored.is_last()));
            pending.add(&end);
            assert!(pending.take().is_some_and(|stored| stored.event() == end));
        }
    }

    #[test]
    fn events_after_the_last_one_are_ignored() {
        let mut pending = PendingEvents::new();
        pending.add(&Event::Disconnected(part(6)));
        // The device is removed before the event is delivered.
        for late in [Event::Released, Event::Unreachable, reply(&[])] {
            pending.add(&late);
        }
        let is = |stored: Option<StoredEvent>, event| {
            stored.is_some_and(|stored| stored.event() == event)
        };
        assert!(is(pending.take(), Event::Disconnected(part(6))));
        assert!(pending.is_empty());
    }

    #[test]
    fn closed_is_not_queued() {
        let mut pending = PendingEvents::new();
        pending.add(&Event::Closed);
        assert!(pending.is_empty());
        pending.add(&Event::Released);
        pending.add(&Event::Closed);
        assert!(pending
            .take()
            .is_some_and(|stored| stored.event() == Event::Released));
        assert!(pending.is_empty());
    }
}
