// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_closing`: closing endpoints by force while peers' operations are in progress.

use super::{
    op::{
        Flags,
        Op,
        Receive, //
    },
    post::Poster,
    rdm::transmit::{
        PendingOp,
        WaitingSend, //
    },
    receive::{
        EnqueueResult,
        Location,
        MatchResult,
        Message, //
    },
    ticket::Ticket,
    *, //
};
use crate::{
    kunit::fixture::{
        a_while,
        allow_kill,
        count_if,
        ep_attr,
        eventually,
        ident,
        Count,
        TestDomain, //
    },
    mem::{
        self,
        MemRef,
        Source, //
    },
    provider::{
        av::Av,
        cq::Cq,
        object::{
            close,
            close_killable,
            force_close, //
        }, //
    }, //
};
use kfi_core::{
    enums,
    flags::{
        CqBind,
        KFI_ADDR_UNSPEC, //
    },
    matching::Envelope,
    op::OpType, //
};

/// The length of a message in bytes.
const LEN: usize = 64;

/// An endpoint for messages with its own CQ.
struct End {
    endpoint: Arc<Endpoint>,
    cq: Arc<Cq>,
    av: Arc<Av>,
}

impl End {
    fn open(test: &TestDomain) -> Result<Self> {
        let cq = test.cq(8, enums::WaitObj::None, 3)?;
        let av = test.av(ident(4, 4)?)?;
        let attr = EpAttr {
            tx_size: 4,
            rx_size: 4,
            total_buffered_recv: 1 << 16,
            ..ep_attr(EpType::Rdm, Caps::MSG | Caps::SEND | Caps::RECV)
        };
        let endpoint = Endpoint::open(&test.domain, attr, ident(5, 5)?)?;
        let end = Self { endpoint, cq, av };
        end.endpoint.bind_av(&end.av)?;
        end.endpoint
            .bind_cq(&end.cq, CqBind::TRANSMIT | CqBind::RECV)?;
        end.endpoint.enable()?;
        Ok(end)
    }

    fn bound(&self) -> Result<&Bound> {
        self.endpoint.bound.as_ref().ok_or(EBADF)
    }

    /// Returns the numbers of completions and errors in the CQ, and of credits that are taken.
    fn cq(&self) -> (u64, u64, u64) {
        let [_, queued, errors, _, _, reserved, ..] = self.cq.stats().values;
        (queued, errors, reserved)
    }

    fn ticket(&self) -> Result<Ticket> {
        let flags = OpFlags::COMPLETION;
        let len = LEN as u64;
        self.endpoint
            .ticket(self.bound()?, OpType::Send, flags, 7, len, &mut None)
    }

    /// Makes a waiting send of this endpoint to `target`, which is not queued there yet.
    fn waiting_send(&self, target: &Self) -> Result<Arc<WaitingSend>> {
        let pending = PendingOp {
            from: filled(0x5a)?,
            ticket: self.ticket()?,
        };
        let made = WaitingSend::new(&self.endpoint, &target.endpoint, 7, 1, pending);
        made.map_err(|(error, _)| error)
    }

    /// Posts a receive into `memory`.
    fn receive(&self, memory: &MemRef) -> Result {
        let receive = Receive {
            flags: Flags {
                own: OpFlags::COMPLETION,
                explicit: true,
            },
            context: 8,
            into: memory.clone(),
            addr: 0,
            peer: KFI_ADDR_UNSPEC,
            tag: None,
        };
        Poster::new(&self.endpoint).post(Op::Receive(receive))
    }

    /// Closes all other objects by force, like the release of the file.
    fn close_rest(&self) {
        force_close(&*self.av);
        force_close(&*self.cq);
    }

    /// Drops the other objects, and returns whether this was the last reference to the endpoint.
    fn into_last(self) -> bool {
        Arc::into_unique_or_drop(self.endpoint).is_some()
    }
}

fn filled(byte: u8) -> Result<MemRef> {
    let memory = MemRef::buffer(LEN)?;
    mem::memref::fill(&memory, byte);
    Ok(memory)
}

/// Makes a message from `from`.
fn message(from: &End) -> Result<Message> {
    Ok(Message {
        tagged: false,
        envelope: Envelope {
            src: from.bound()?.name,
            tag: 0,
        },
        data: None,
        len: LEN as u64,
        rma: None,
    })
}

#[kunit_tests(kfabric_closing)]
mod tests {
    use super::*;

    #[test]
    fn a_message_after_the_close_of_its_target_fails() -> Result {
        let test = TestDomain::open()?;
        let (sender, target) = (End::open(&test)?, End::open(&test)?);
        let send = sender.waiting_send(&target)?;
        ensure_eq!(sender.cq(), (0, 0, 1));
        {
            let inside = target.endpoint.drain.enter();
            ensure!(inside.is_some());
            force_close(&*target.endpoint);
            target.close_rest();
            let arrival = target
                .endpoint
                .arrive(&message(&sender)?, Location::Sender(send.clone(), None));
            ensure!(matches!(arrival, EnqueueResult::Kept));
        }
        ensure!(!send.is_waiting());
        ensure_eq!(sender.cq(), (0, 1, 0));
        drop(send);
        ensure!(target.into_last());
        force_close(&*sender.endpoint);
        sender.close_rest();
        ensure!(sender.into_last());
        Ok(())
    }

    #[test]
    fn a_message_is_placed_although_its_target_was_closed() -> Result {
        let test = TestDomain::open()?;
        let (sender, target) = (End::open(&test)?, End::open(&test)?);
        let memory = filled(0)?;
        target.receive(&memory)?;
        ensure_eq!(target.cq(), (0, 0, 1));
        let message = message(&sender)?;
        {
            let inside = target.endpoint.drain.enter();
            ensure!(inside.is_some());
            let from = &sender.endpoint.ident.budget;
            let offered = target.endpoint.offer(&message, true, from);
            let MatchResult::Taken(receive) = offered else {
                return Err(EINVAL);
            };
            force_close(&*target.endpoint);
            target.close_rest();
            let from = Source::Mem(filled(0x5a)?);
            target
                .endpoint
                .place(target.bound()?, receive, &message, &from);
        }
        ensure!(mem::memref::equal(&memory, &filled(0x5a)?));
        // The CQ still exists, and has the completion.
        ensure_eq!(target.cq(), (1, 0, 0));
        ensure!(target.into_last());
        force_close(&*sender.endpoint);
        sender.close_rest();
        Ok(())
    }

    #[test]
    fn a_message_is_delivered_although_its_sender_was_closed() -> Result {
        let test = TestDomain::open()?;
        let (sender, target) = (End::open(&test)?, End::open(&test)?);
        let send = sender.waiting_send(&target)?;
        let memory = filled(0)?;
        let delivered = send.deliver(|from| {
            force_close(&*sender.endpoint);
            sender.close_rest();
            mem::copy(&memory, from);
        });
        ensure!(delivered);
        ensure!(mem::memref::equal(&memory, &filled(0x5a)?));
        ensure_eq!(sender.cq(), (1, 0, 0));
        drop(send);
        ensure!(sender.into_last());
        force_close(&*target.endpoint);
        target.close_rest();
        Ok(())
    }

    #[test]
    fn an_endpoint_is_unusable_after_an_interrupted_close() -> Result {
        let test = TestDomain::open()?;
        let end = End::open(&test)?;
        let name = end.bound()?.name;
        let interrupted = Count::new()?;
        {
            let inside = end.endpoint.drain.enter();
            ensure!(inside.is_some());
            let closer = {
                let endpoint = end.endpoint.clone();
                count_if(&interrupted, move || {
                    allow_kill();
                    close_killable(&*endpoint) == Err(EINTR)
                })?
            };
            ensure!(eventually(|| !end.endpoint.drain.is_open()));
            a_while();
            ensure_eq!(interrupted.get(), 0);
            closer.kill();
            closer.join();
        }
        ensure_eq!(interrupted.get(), 1);
        ensure!(end.receive(&filled(0)?).is_err());
        ensure!(end.endpoint.enable() == Err(EBADF));
        // Another endpoint can get its address, and finishing the close does not remove that.
        ensure!(test.domain.directory().find(&name).is_none());
        let other = End::open(&test)?;
        let _ = test.domain.directory().enter(name, &other.endpoint)?;
        ensure_eq!(close(&*end.endpoint), Ok(()));
        ensure!(test.domain.directory().find(&name).is_some());
        test.domain.directory().leave(&name);
        ensure_eq!(close(&*end.cq), Ok(()));
        ensure_eq!(close(&*end.av), Ok(()));
        ensure!(end.into_last());
        force_close(&*other.endpoint);
        other.close_rest();
        Ok(())
    }
}
