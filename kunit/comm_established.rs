// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_comm_established`: the first packet of the peer establishes a connection that an
//! endpoint has accepted, if the RTU is lost; and an event that comes while a task connects the
//! endpoint is delivered afterwards.
//!
//! The peer is a QP at another address of the loopback interface, connected by the suite, which
//! sends its RTU late. Connection management may sleep, so a debugging kernel reports a packet that
//! is passed to it in atomic context.

#[path = "pep_refused_peer.rs"]
mod pep_refused_peer;

use super::*;
use crate::{
    kunit::fixture::{
        ep_attr,
        eventually,
        ident_of,
        wait_for,
        TestDomain, //
    },
    mem::{
        Budget,
        MemRef, //
    },
    net::{
        kunit_rc_pair::{
            default_attr,
            plain,
            Peer as Remote, //
        },
        qp::{
            Qp,
            Rc, //
        }, //
    },
    provider::{
        eq::Eq,
        object::force_close,
        pep::PepAttr, //
    },
    shim::reclaim::OwnerKind, //
};
use core::net::{
    IpAddr,
    Ipv4Addr, //
};
use kernel::{
    new_mutex,
    sync::Mutex, //
};
use kfi_core::{
    enums::{
        EpType,
        WaitObj, //
    },
    flags::Caps, //
};
use kfi_roce::rc::{
    Op,
    Status, //
};

/// The address of the peer, and its first PSN.
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const PSN: u32 = 0x1234;

/// The values that a peer gets in the REP: QP, first PSN, path MTU.
#[pin_data]
struct ReplyReceiver {
    #[pin]
    reply: Mutex<Option<(Qpn, Psn, PathMtu)>>,
}

impl Consumer for ReplyReceiver {
    fn owner_kind(&self) -> OwnerKind {
        OwnerKind::Program
    }

    fn event(&self, _conn: &Arc<Conn>, event: &Event<'_>) -> Delivery {
        if let Event::Reply(reply) = event {
            *self.reply.lock() = Some((reply.qpn, reply.starting_psn, reply.mtu));
        }
        Delivery::Done
    }
}

/// A listening endpoint. It is only the target of RMA, so that it needs no CQ.
struct Target {
    endpoint: Arc<Endpoint>,
    pep: Arc<Pep>,
    eq: Arc<Eq>,
    domain: TestDomain,
}

impl Target {
    fn open() -> Result<Self> {
        Self::open_for(&Budget::of_program()?)
    }

    fn open_for(owner: &Budget) -> Result<Self> {
        let domain = TestDomain::open()?;
        let eq = domain.fabric.eq(8, WaitObj::Queue, false)?;
        let attr = PepAttr {
            addr: domain.domain.link().first_ipv4().ok_or(EADDRNOTAVAIL)?,
            backlog: 0,
        };
        let pep = Pep::open(&domain.fabric.0, attr, ident_of(owner, 4)?)?;
        let caps = Caps::RMA | Caps::REMOTE_READ | Caps::REMOTE_WRITE;
        let attr = ep_attr(EpType::Msg, caps);
        let endpoint = Endpoint::open(&domain.domain, attr, ident_of(owner, 5)?)?;
        let target = Self {
            endpoint,
            pep,
            eq,
            domain,
        };
        target.pep.bind_eq(&target.eq)?;
        target.endpoint.bind_eq(&target.eq)?;
        target.pep.listen()?;
        target.endpoint.enable()?;
        Ok(target)
    }

    /// Returns whether this is the next event.
    fn reports(&self, event: EqEvent) -> bool {
        let next = wait_for(|| {
            let mut reported = None;
            let read = self.eq.read(false, |read| {
                reported = Some(read.event);
                Ok(())
            });
            reported.filter(|_| read.is_ok())
        });
        next == Ok(event.into())
    }

    /// Requests a connection for `qp`.
    fn request(&self, qp: &Arc<Qp<Rc>>, consumer: Arc<ReplyReceiver>) -> Result<Arc<Conn>> {
        let here = self.pep.name();
        let header = IpHeader {
            src: THERE,
            src_port: 1,
            dst: here.ip(),
        };
        let params = Connect {
            link: self.domain.domain.link(),
            local: THERE,
            remote: here.ip(),
            service_id: ServiceId::tcp(here.port()),
            side: Side {
                qpn: qp.number(),
                starting_psn: Psn::new(PSN),
                responder_resources: 1,
                initiator_depth: 1,
                rnr_retry_count: 7,
                srq: false,
            },
            mtu: None,
            retry_count: 7,
            private: &header.write(&[]).ok_or(EINVAL)?,
            context: 0,
        };
        cm::connect(&params, consumer)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        force_close(&*self.endpoint);
        force_close(&*self.pep);
        force_close(&*self.eq);
    }
}

/// A connection that a peer's QP has requested and the target has accepted. The peer has not sent
/// its RTU.
struct Accepted {
    target: Target,
    remote: Arc<Remote>,
    qp: Arc<Qp<Rc>>,
    conn: Arc<Conn>,
}

impl Accepted {
    fn new() -> Result<Self> {
        let target = Target::open()?;
        let receiver = reply_receiver()?;
        let remote = Remote::new()?;
        let link = target.domain.domain.link();
        let qp = Qp::connection(link, 1, &Budget::of_program()?, remote.clone())?;
        let conn = target.request(&qp, receiver.clone())?;
        ensure!(target.reports(EqEvent::ConnReq));
        // The first request of a passive endpoint has this number.
        target.endpoint.accept(&target.pep, 1.into(), &[])?;
        make_ready(&qp, &conn, &receiver)?;
        ensure!(target.endpoint.msg()?.phase() == Phase::Accepting);
        Ok(Self {
            target,
            remote,
            qp,
            conn,
        })
    }

    /// Ends the connection.
    fn disconnect(&self) -> Result {
        self.conn.disconnect(&[])?;
        ensure!(self.target.reports(EqEvent::Shutdown));
        self.qp.close();
        self.conn.close();
        Ok(())
    }
}

fn reply_receiver() -> Result<Arc<ReplyReceiver>> {
    Arc::pin_init(
        pin_init!(ReplyReceiver {
            reply <- new_mutex!(None),
        }),
        GFP_KERNEL,
    )
}

/// Moves `qp` to RTS with the values that the peer of `conn` has sent.
fn make_ready(qp: &Arc<Qp<Rc>>, conn: &Conn, receiver: &ReplyReceiver) -> Result {
    eventually(|| receiver.reply.lock().is_some());
    let (dest_qpn, sq_psn, path_mtu) = receiver.reply.lock().ok_or(ETIMEDOUT)?;
    let mut attr = Attr {
        state: State::Init,
        dest_qpn,
        rq_psn: Psn::new(PSN),
        sq_psn,
        path_mtu,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        ..default_attr()
    };
    qp.modify(&attr, Mask::RC_TO_INIT, None)?;
    attr.state = State::Rtr;
    qp.modify(&attr, Mask::RC_TO_RTR, Some(conn.path()))?;
    attr.state = State::Rts;
    qp.modify(&attr, Mask::RC_TO_RTS, None)
}

#[kunit_tests(kfabric_comm_established)]
mod tests {
    use super::*;

    /// The first packet is a request for no bytes, sent before the RTU.
    #[test]
    fn the_first_packet_replaces_a_lost_rtu() -> Result {
        let (va, rkey) = (0, 0);
        let write = Op::Write {
            va,
            rkey,
            imm: None,
        };
        for op in [Op::Read { va, rkey }, write] {
            let accepted = Accepted::new()?;
            let Accepted {
                target,
                remote,
                qp,
                conn,
            } = &accepted;
            let msg = target.endpoint.msg()?;
            qp.queue(&plain(op), &[], &mut MemRef::buffer(0)?, 0)?;
            qp.push();
            ensure!(target.reports(EqEvent::Connected));
            ensure!(msg.phase() == Phase::Connected);
            ensure!(eventually(|| remote.status() == Some(Status::Success)));
            // The RTU has no further effect: the next event is the end of the connection.
            conn.confirm(&[])?;
            accepted.disconnect()?;
        }
        Ok(())
    }

    /// The worker that delivers an event does not wait for a task that connects the endpoint. The
    /// event is delivered when the task has released the lock.
    #[test]
    fn an_event_is_left_to_the_task_that_connects() -> Result {
        let accepted = Accepted::new()?;
        let target = &accepted.target;
        let msg = target.endpoint.msg()?;
        let connecting = msg.begin_connecting();
        accepted.conn.confirm(&[])?;
        ensure!(eventually(|| msg.event_left.is_left()));
        ensure!(msg.phase() == Phase::Accepting);
        drop(connecting);
        ensure!(target.reports(EqEvent::Connected));
        ensure!(msg.phase() == Phase::Connected);
        accepted.disconnect()
    }
}
