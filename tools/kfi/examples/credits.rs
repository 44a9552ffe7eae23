// SPDX-License-Identifier: GPL-2.0
//! Flow control by credits, with counters and deferred work: a fast sender never overruns a slow
//! receiver: `credits [LINK [MESSAGES [WINDOW]]]`.  See Documentation/credits.md.
//!
//! The receiver has receives for a window of messages. For each that it has processed it posts
//! the receive again and gives a credit back, by a write to the sender's memory, which a counter
//! of the sender counts. Message n of the sender is deferred work that starts when the counter
//! has reached n. So the sender's program queues all of its messages and sleeps until they are
//! sent, whatever the pace of the receiver.

use std::{env, process, thread, time::Duration};

use kfi::{
    Access, AvKind, Buffer, Cntr, CntrBind, CqBind, CqFormat, Device, Domain, FiAddr, Op, Remote,
    StatClass, StatValues, Wait, Work,
};

/// Longest wait for the next message.
const SOON: Duration = Duration::from_secs(10);

/// The messages that are queued.
struct Sender {
    _ep: kfi::Endpoint,
    _mr: kfi::Mr,
    sent: Cntr,
}

/// Where the sender takes credits: its address, and the place for a write.
#[derive(Clone, Copy)]
struct Purse {
    sender: std::net::SocketAddr,
    remote: Remote,
}

/// Queues all messages; the first ones go when credits come.
fn sender(
    domain: &Domain,
    receiver: std::net::SocketAddr,
    messages: u64,
) -> kfi::Result<(Sender, Purse)> {
    let av = domain.av().kind(AvKind::Table).open()?;
    let ep = domain.endpoint().open()?;
    // Counters report everything; the completion queue would have the failures.
    ep.bind_cq(&domain.cq().open()?, CqBind::TRANSMIT | CqBind::RECV)?;
    ep.bind_av(&av)?;
    ep.enable()?;
    let (credits, sent) = (
        domain.cntr().open()?,
        domain.cntr().wait(Wait::Queue).open()?,
    );
    // The bytes that are written do not matter: the counter counts the writes.
    let word = Buffer::new(8)?;
    let access = Access::REMOTE_WRITE;
    let mr = domain
        .mr(&word)
        .access(access)
        .requested_key(1)
        .rma_event()
        .open()?;
    mr.bind_cntr(&credits, CntrBind::REMOTE_WRITE)?;

    let peer: FiAddr = av.insert_one(receiver)?;
    let numbers: Vec<u8> = (1..=messages).flat_map(u64::to_ne_bytes).collect();
    let numbers = Buffer::from_bytes(&numbers)?;
    let works: Vec<Work<'_>> = (1..=messages)
        .map(|message| {
            let end = message as usize * 8;
            let send = Op::send(peer, numbers.slice(end - 8..end));
            Work::transfer(&credits, message, &ep, send).completion(&sent)
        })
        .collect();
    domain.queue_work(&works)?.into_result()?;
    let purse = Purse {
        sender: ep.name()?,
        remote: mr.remote(0),
    };
    let sender = Sender {
        _ep: ep,
        _mr: mr,
        sent,
    };
    Ok((sender, purse))
}

/// Messages that wait at an endpoint without a receive.
fn unexpected(device: &Device, ep: &kfi::Endpoint) -> kfi::Result<u64> {
    for stat in device.stats(StatClass::Endpoint) {
        let stat = stat?;
        if let StatValues::Endpoint { unexpected, .. } = stat.values
            && (stat.handle, stat.pid) == (ep.handle(), Some(process::id()))
        {
            return Ok(unexpected);
        }
    }
    Ok(0)
}

fn main() -> kfi::Result<()> {
    let mut args = env::args().skip(1);
    let link = args.next();
    let mut number = |default| {
        args.next()
            .map_or(default, |arg| arg.parse().expect("a number"))
    };
    let (messages, window): (u64, u64) = (number(200), number(4));

    let device = Device::open()?;
    let link = match link {
        Some(name) => name,
        None => device.first_link()?.name,
    };
    let domain = device.fabric()?.domain(&link).open()?;
    let cq = domain.cq().format(CqFormat::Msg).wait(Wait::Queue).open()?;
    let av = domain.av().kind(AvKind::Table).open()?;
    let ep = domain.endpoint().open()?;
    // Credits that are given back need no entry.
    ep.bind_cq(&cq, CqBind::RECV)?;
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::SELECTIVE)?;
    ep.bind_av(&av)?;
    ep.enable()?;
    let (sender, purse) = sender(&domain, ep.name()?, messages)?;

    let peer = av.insert_one(purse.sender)?;
    let window = window.min(messages);
    let buffer = Buffer::new(8 * window as usize)?;
    let place = |slot: u64| buffer.slice(8 * slot as usize..8 * slot as usize + 8);
    let credit = || ep.inject_write(peer, &[0; 8], purse.remote);
    for slot in 0..window {
        ep.recv(place(slot), slot)?;
        credit()?;
    }
    let mut most = 0;
    for message in 1..=messages {
        let entry = cq.next(SOON)?.expect("the next message");
        let slot = entry.op_context;
        let mut number = [0; 8];
        buffer.read_at(8 * slot as usize, &mut number);
        assert_eq!(u64::from_ne_bytes(number), message, "the order");
        // Slow work, now and then.
        if message % 16 == 0 {
            thread::sleep(Duration::from_millis(2));
        }
        most = most.max(sender.sent.value().saturating_sub(message - 1));
        assert_eq!(unexpected(&device, &ep)?, 0, "a message without a receive");
        ep.recv(place(slot), slot)?;
        credit()?;
    }
    sender.sent.wait(messages, SOON)?;
    assert!(most <= window, "{most} messages under way");
    println!("{messages} messages, at most {most} under way of a window of {window}");
    Ok(())
}
