// SPDX-License-Identifier: GPL-2.0
//! A model test: both queues, used like in an endpoint, against vectors that are searched linearly.
//!
//! The test compares the results with the model and checks in addition: no message and no plain
//! receive is used twice; no message waits while a matching receive waits; and messages with the
//! same source and tag are received in the order in which they were sent (fi_tagged(3),
//! "Ordering").

use kfi_core::{
    errno::Errno,
    flags::OpFlags,
    matching::{
        posted::PostedSlot,
        unexpected::{
            Answer,
            Message,
            Search,
            UnexpectedSlot, //
        },
        Criteria,
        Envelope,
        Posted,
        Unexpected, //
    },
    slab::{
        Full,
        Slot, //
    },
};
use proptest::prelude::*;

const RX_SIZE: usize = 5;
const MESSAGES: usize = 6;
const BYTES: u64 = 40;

#[derive(Clone, Debug)]
enum Step {
    Message {
        src: u8,
        tag: u64,
        len: u64,
    },
    Receive {
        search: Search,
        want: Criteria<u8>,
        context: u64,
    },
    Cancel {
        context: u64,
    },
    TakeAndPutBack {
        src: u8,
        tag: u64,
    },
    Withdraw(usize),
}

fn criteria() -> impl Strategy<Value = Criteria<u8>> {
    let ignore = prop_oneof![Just(0u64), Just(1), Just(2), Just(u64::MAX)];
    (prop::option::of(0u8..3), 0u64..4, ignore).prop_map(|(src, tag, ignore)| Criteria {
        src,
        tag,
        ignore,
    })
}

fn search() -> impl Strategy<Value = Search> {
    let (p, c, d) = (OpFlags::PEEK, OpFlags::CLAIM, OpFlags::DISCARD);
    prop_oneof![
        6 => Just(OpFlags::EMPTY),
        1 => Just(p),
        2 => Just(p | c),
        1 => Just(p | d),
        2 => Just(c),
        1 => Just(c | d),
    ]
    .prop_map(Search::of)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..3, 0u64..4, 0u64..20).prop_map(|(src, tag, len)| Step::Message { src, tag, len }),
        6 => (search(), criteria(), 0u64..4)
            .prop_map(|(search, want, context)| Step::Receive { search, want, context }),
        1 => (0u64..4).prop_map(|context| Step::Cancel { context }),
        1 => (0u8..3, 0u64..4).prop_map(|(src, tag)| Step::TakeAndPutBack { src, tag }),
        1 => any::<usize>().prop_map(Step::Withdraw),
    ]
}

/// The visible effects of an endpoint.
#[derive(Debug, PartialEq)]
enum Event {
    Delivered { receive: u64, message: u64 },
    Found(u64, u64),
    Discarded(u64),
    NoMessage,
    NotClaimed,
    Refused,
    Cancelled(u64),
    NothingToCancel,
    PutBack,
    Withdrawn(u64),
}

/// The number and the context of a receive.
type Receive = (u64, u64);

struct Endpoint {
    posted: Posted<u8, Receive, Vec<PostedSlot<u8, Receive>>>,
    unexpected: Unexpected<u8, u64, Vec<UnexpectedSlot<u8, u64>>>,
}

impl Endpoint {
    fn new() -> Self {
        let posted = (0..RX_SIZE).map(|_| Slot::new()).collect();
        let unexpected = (0..MESSAGES).map(|_| Slot::new()).collect();
        Self {
            posted: Posted::new(posted),
            unexpected: Unexpected::new(unexpected, BYTES),
        }
    }

    fn message(&mut self, number: u64, src: u8, tag: u64, len: u64) -> Option<Event> {
        let envelope = Envelope { src, tag };
        if let Some(found) = self.posted.match_message(&envelope) {
            let receive = found.take().unwrap().token.0;
            let message = number;
            return Some(Event::Delivered { receive, message });
        }
        if self.unexpected.charge(len) == Err(Errno::EAGAIN) {
            return Some(Event::Refused);
        }
        let message = Message {
            envelope,
            len,
            data: None,
            charged: len,
        };
        match self.unexpected.arrive(message, number) {
            Ok(()) => None,
            Err(Full(back)) => {
                assert_eq!(back, number);
                self.unexpected.uncharge(len);
                Some(Event::Refused)
            }
        }
    }

    fn receive(
        &mut self,
        receive: u64,
        search: Search,
        want: Criteria<u8>,
        context: u64,
    ) -> Option<Event> {
        match self.unexpected.receive(search, &want, context) {
            Answer::Post => match self.posted.post(want, (receive, context)) {
                Ok(()) => None,
                Err(Full(back)) => {
                    assert_eq!(back, (receive, context));
                    Some(Event::Refused)
                }
            },
            Answer::Received(known, message) => {
                self.unexpected.uncharge(known.charged);
                Some(Event::Delivered { receive, message })
            }
            Answer::Found(known) => Some(Event::Found(known.envelope.tag, known.len)),
            Answer::Discarded(known, message) => {
                self.unexpected.uncharge(known.charged);
                Some(Event::Discarded(message))
            }
            Answer::NoMessage => Some(Event::NoMessage),
            Answer::NotClaimed => Some(Event::NotClaimed),
        }
    }
}

struct Waiting {
    number: u64,
    src: u8,
    tag: u64,
    len: u64,
    claim: Option<u64>,
}

/// The model, which follows the manual page sentence by sentence.
#[derive(Default)]
struct Model {
    posted: Vec<(Receive, Criteria<u8>)>,
    waiting: Vec<Waiting>,
}

fn takes(want: &Criteria<u8>, src: u8, tag: u64) -> bool {
    let bits = (0..64).filter(|bit| want.ignore >> bit & 1 == 0);
    let same = bits
        .clone()
        .all(|bit| want.tag >> bit & 1 == tag >> bit & 1);
    same && match want.src {
        Some(wanted) => wanted == src,
        None => true,
    }
}

impl Model {
    fn message(&mut self, number: u64, src: u8, tag: u64, len: u64) -> Option<Event> {
        for at in 0..self.posted.len() {
            if takes(&self.posted[at].1, src, tag) {
                let receive = self.posted.remove(at).0 .0;
                let message = number;
                return Some(Event::Delivered { receive, message });
            }
        }
        let bytes: u64 = self.waiting.iter().map(|message| message.len).sum();
        if self.waiting.len() == MESSAGES || bytes + len > BYTES {
            return Some(Event::Refused);
        }
        let claim = None;
        self.waiting.push(Waiting {
            number,
            src,
            tag,
            len,
            claim,
        });
        None
    }

    fn receive(
        &mut self,
        receive: u64,
        search: Search,
        want: Criteria<u8>,
        context: u64,
    ) -> Option<Event> {
        let free = self
            .waiting
            .iter()
            .position(|m| m.claim.is_none() && takes(&want, m.src, m.tag));
        let claimed = self.waiting.iter().position(|m| m.claim == Some(context));
        let found = |m: &Waiting| Event::Found(m.tag, m.len);
        Some(match (search, free, claimed) {
            (Search::Receive, None, _) => {
                if self.posted.len() == RX_SIZE {
                    return Some(Event::Refused);
                }
                self.posted.push(((receive, context), want));
                return None;
            }
            (Search::Receive, Some(at), _) | (Search::Claim, _, Some(at)) => Event::Delivered {
                receive,
                message: self.waiting.remove(at).number,
            },
            (Search::Peek, Some(at), _) => found(&self.waiting[at]),
            (Search::PeekClaim, Some(at), _) => {
                self.waiting[at].claim = Some(context);
                found(&self.waiting[at])
            }
            (Search::PeekDiscard, Some(at), _) | (Search::ClaimDiscard, _, Some(at)) => {
                Event::Discarded(self.waiting.remove(at).number)
            }
            (Search::Peek | Search::PeekClaim | Search::PeekDiscard, None, _) => Event::NoMessage,
            (Search::Claim | Search::ClaimDiscard, _, None) => Event::NotClaimed,
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn an_endpoint_matches_as_its_model(steps in prop::collection::vec(step(), 0..120)) {
        let mut endpoint = Endpoint::new();
        let mut model = Model::default();
        let mut envelopes: Vec<(u8, u64)> = Vec::new();
        let mut delivered: Vec<u64> = Vec::new();
        let mut receives: Vec<u64> = Vec::new();
        let mut out_of_turn: Vec<u64> = Vec::new();
        for (number, step) in (0u64..).zip(steps) {
            envelopes.push((0, u64::MAX));
            let (seen, want) = match step {
                Step::Message { src, tag, len } => {
                    *envelopes.last_mut().unwrap() = (src, tag);
                    let seen = endpoint.message(number, src, tag, len);
                    (seen, model.message(number, src, tag, len))
                }
                Step::Receive { search, want, context } => {
                    let seen = endpoint.receive(number, search, want, context);
                    (seen, model.receive(number, search, want, context))
                }
                Step::Cancel { context } => {
                    let seen = match endpoint.posted.cancel(|receive| receive.1 == context) {
                        Some(taken) => Event::Cancelled(taken.token.0),
                        None => Event::NothingToCancel,
                    };
                    let at = model.posted.iter().position(|(receive, _)| receive.1 == context);
                    let want = match at {
                        Some(at) => Event::Cancelled(model.posted.remove(at).0 .0),
                        None => Event::NothingToCancel,
                    };
                    (Some(seen), Some(want))
                }
                Step::TakeAndPutBack { src, tag } => {
                    let found = endpoint.posted.match_message(&Envelope { src, tag });
                    let taken = found.and_then(|found| found.take());
                    let seen = taken.map(|taken| {
                        assert!(endpoint.posted.put_back(taken).is_ok());
                        Event::PutBack
                    });
                    let any = model.posted.iter().any(|(_, want)| takes(want, src, tag));
                    (seen, any.then_some(Event::PutBack))
                }
                Step::Withdraw(at) => {
                    let Some(at) = at.checked_rem(model.waiting.len()) else {
                        continue;
                    };
                    let gone = model.waiting.remove(at);
                    let (known, number) =
                        endpoint.unexpected.withdraw(|token| *token == gone.number).unwrap();
                    endpoint.unexpected.uncharge(known.charged);
                    (Some(Event::Withdrawn(number)), Some(Event::Withdrawn(gone.number)))
                }
            };
            prop_assert_eq!(&seen, &want);

            match seen {
                Some(Event::Delivered { receive, message }) => {
                    prop_assert!(!delivered.contains(&message));
                    prop_assert!(!receives.contains(&receive));
                    delivered.push(message);
                    receives.push(receive);
                }
                Some(Event::Cancelled(receive)) => receives.push(receive),
                _ => {}
            }
            out_of_turn.extend(model.waiting.iter().filter(|m| m.claim.is_some()).map(|m| m.number));

            // The queues are equal to those of the model.
            let posted: Vec<_> =
                endpoint.posted.iter().map(|(want, receive)| (*receive, *want)).collect();
            prop_assert_eq!(&posted, &model.posted);
            let waiting: Vec<_> = endpoint.unexpected.iter().map(|(_, token)| *token).collect();
            let numbers: Vec<_> = model.waiting.iter().map(|m| m.number).collect();
            prop_assert_eq!(waiting, numbers);
            let bytes: u64 = model.waiting.iter().map(|message| message.len).sum();
            prop_assert_eq!(endpoint.unexpected.charged(), bytes);

            // No message waits while a matching receive waits.
            for message in model.waiting.iter().filter(|message| message.claim.is_none()) {
                for (_, want) in &posted {
                    prop_assert!(!takes(want, message.src, message.tag));
                }
            }
        }
        // Messages with the same source and tag are in order, except for claimed ones.
        for (at, first) in delivered.iter().enumerate() {
            for second in &delivered[at + 1..] {
                let same = envelopes[*first as usize] == envelopes[*second as usize];
                let claimed = out_of_turn.contains(first) || out_of_turn.contains(second);
                prop_assert!(!same || claimed || first < second);
            }
        }
        // Closing returns everything.
        let mut left = Vec::new();
        while let Some(taken) = endpoint.posted.drain() {
            left.push((taken.token, taken.want));
        }
        prop_assert_eq!(left, model.posted);
        let mut left = Vec::new();
        while let Some((known, number)) = endpoint.unexpected.drain() {
            endpoint.unexpected.uncharge(known.charged);
            left.push(number);
        }
        prop_assert_eq!(left, model.waiting.iter().map(|m| m.number).collect::<Vec<_>>());
        prop_assert_eq!(endpoint.unexpected.charged(), 0);
    }
}
