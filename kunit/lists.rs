// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_lists`: the segment lists of operations that do not end in their call are charged
//! to the owner of the endpoint as long as they live.

use super::*;
use crate::{
    kunit::{
        ep_pair::{
            End,
            Pair,
            Sizes,
            FLAGS, //
        },
        fixture::{
            eventually,
            ident_of, //
        },
        helpers::{
            take_rest,
            user, //
        }, //
    },
    mem::{
        Budget,
        MemRef,
        Part,
        Source,
        UserRange, //
    },
    provider::{
        ep::{
            admit::Context,
            op::{
                Flags,
                Op,
                RemoteRange,
                Tag, //
            }, //
        },
        mr::Mr,
        object::close, //
    }, //
};
use kfi_core::{
    enums::EpType,
    flags::Access, //
};

/// The number of segments of a list.
const SEGMENTS: usize = 256;

/// Every second byte of a buffer.
fn every_second_byte() -> Result<MemRef> {
    let buffer = MemRef::buffer(2 * SEGMENTS)?;
    let mut parts = KVec::new();
    for index in 0..SEGMENTS {
        parts.push(buffer.slice(2 * index, 1), GFP_KERNEL)?;
    }
    MemRef::gather(&parts)
}

fn receive(end: &End, memory: MemRef) -> Op<'static> {
    end.receive(memory, 1)
}

fn tagged_receive(end: &End, memory: MemRef) -> Op<'static> {
    let mut op = receive(end, memory);
    if let Op::Receive(receive) = &mut op {
        receive.tag = Some(Tag::default());
    }
    op
}

/// As many bytes of the peer as [`every_second_byte`] has.
const REMOTE: RemoteRange = RemoteRange {
    addr: 0,
    len: SEGMENTS as u64,
    key: 1,
};

fn read(end: &End, memory: MemRef) -> Op<'static> {
    end.read(memory, REMOTE)
}

fn write(end: &End, memory: MemRef) -> Op<'static> {
    end.write(memory, REMOTE)
}

/// A SEND that completes when it has been received.
fn send(from: &End, memory: MemRef) -> Op<'static> {
    let mut op = from.send(Source::Mem(memory), 1);
    if let Op::Send(send) = &mut op {
        send.flags = Flags {
            own: OpFlags::DELIVERY_COMPLETE,
            ..FLAGS
        };
    }
    op
}

/// Makes an operation on this memory.
type Make = fn(&End, MemRef) -> Op<'static>;

/// Operations of reliable datagrams that wait for the peer.
const RDM_OPS: [Make; 3] = [receive, tagged_receive, send];

/// Those of a connection. The SEND waits for a receive of the peer, and the others behind it.
const MSG_OPS: [Make; 4] = [receive, send, read, write];

#[kunit_tests(kfabric_lists)]
mod tests {
    use super::*;

    /// Posted receives, and transmits that the peer does not end, on one host and over a
    /// connection.
    #[test]
    fn lists_of_kept_operations_are_charged() -> Result {
        let all: [(EpType, &[Make]); 2] = [(EpType::Rdm, &RDM_OPS), (EpType::Msg, &MSG_OPS)];
        for (ep_type, make) in all {
            let owner = Budget::of(user(95), Some(64 << 20))?;
            let mut pair = Pair::of(&owner, ep_type, Sizes::DEFAULT)?;
            let end = &mut pair.a;
            let charged = || owner.charged(Part::Peers).0;
            for make in make {
                let before = charged();
                let memory = every_second_byte()?;
                let list = memory.heap_bytes() as u64;
                // A segment has an address, its end and a length.
                ensure!(list >= (SEGMENTS * 24) as u64);
                // Nothing is charged for an operation that is refused.
                let rest = take_rest(|bytes| owner.take(bytes))?;
                ensure_eq!(end.post(make(end, memory.clone())), Err(ENOMEM));
                drop(rest);
                ensure_eq!(charged(), before);
                end.post(make(end, memory))?;
                ensure!(charged() >= before + list);
            }
            drop(pair);
            ensure!(eventually(|| charged() == 0));
        }
        Ok(())
    }

    /// Operations on the same memory share one charge for its list.
    #[test]
    fn a_list_is_charged_once() -> Result {
        let owner = Budget::of(user(96), Some(64 << 20))?;
        let pair = Pair::of(&owner, EpType::Rdm, Sizes::DEFAULT)?;
        let memory = every_second_byte()?;
        let list = memory.heap_bytes() as u64;
        let charged = || owner.charged(Part::Peers).0;
        let before = charged();
        for _ in 0..4 {
            pair.a.post(pair.a.receive(memory.clone(), 1))?;
        }
        ensure_eq!(charged() - before, list);
        for _ in 0..4 {
            ensure!(charged() > before);
            pair.b.post(pair.b.send(Source::Mem(MemRef::empty()), 2))?;
            pair.b.complete()?;
            pair.a.complete()?;
        }
        drop(memory);
        ensure_eq!(charged(), before);
        Ok(())
    }

    /// The list of a region stays charged while operations use the memory of the closed region.
    #[test]
    fn a_list_of_a_closed_region_is_charged() -> Result {
        let owner = Budget::of(user(97), Some(64 << 20))?;
        let pair = Pair::of(&owner, EpType::Rdm, Sizes::DEFAULT)?;
        let charged = || owner.charged(Part::Peers).0;
        let before = charged();
        let memory = every_second_byte()?;
        let (list, len) = (memory.heap_bytes() as u64, memory.len() as u64);
        let mut ranges = KVec::new();
        ranges.push(UserRange { addr: 0, len }, GFP_KERNEL)?;
        let domain = &pair.domain.domain;
        let mr = Mr::reg(
            domain,
            memory,
            ranges,
            Access::RECV,
            1,
            ident_of(&owner, 50)?,
        )?;
        let of_region = charged();
        ensure!(of_region >= before + list);
        pair.a
            .post(pair.a.receive(mr.local(0, len, Access::RECV)?, 1))?;
        ensure_eq!(charged(), of_region);
        close(&*mr)?;
        drop(mr);
        ensure_eq!(charged(), before + list);
        pair.b.post(pair.b.send(Source::Mem(MemRef::empty()), 2))?;
        pair.a.complete()?;
        ensure!(eventually(|| charged() == before));
        Ok(())
    }

    /// An admitted operation needs no more of its owner's limit when it starts, in whatever context
    /// it was admitted.
    #[test]
    fn lists_of_admitted_operations_are_charged_once() -> Result {
        for (ep_type, context) in [
            (EpType::Rdm, Context::MaySleep),
            (EpType::Rdm, Context::Atomic),
            (EpType::Msg, Context::MaySleep),
            (EpType::Msg, Context::Atomic),
        ] {
            let owner = Budget::of(user(98), Some(64 << 20))?;
            let pair = Pair::of(&owner, ep_type, Sizes::DEFAULT)?;
            let endpoint = &pair.a.endpoint;
            let make = [
                receive(&pair.a, every_second_byte()?),
                send(&pair.a, every_second_byte()?),
            ];
            for mut op in make {
                let admitted = endpoint.admit(&mut op, context)?;
                let rest = take_rest(|bytes| owner.take(bytes))?;
                admitted.start_here(endpoint, usize::MAX);
                ensure!(pair.a.poll().is_none());
                drop(rest);
            }
            pair.b.post(pair.b.receive(MemRef::buffer(SEGMENTS)?, 3))?;
            pair.b.post(pair.b.send(Source::Mem(MemRef::empty()), 4))?;
            for _ in 0..2 {
                pair.a.complete()?;
                pair.b.complete()?;
            }
        }
        Ok(())
    }
}
