// SPDX-License-Identifier: GPL-2.0
//! Sends many small messages, posted in batches, and reads their completions
//! from the mapped ring: `ring [LINK [MESSAGES]]`.

use std::{env, time::Duration};

use kfi::{AvKind, Buffer, CompFlags, CqBind, CqFormat, Device, Entry, Op, Wait};

const BATCH: u64 = 32;

fn main() -> kfi::Result<()> {
    let mut args = env::args().skip(1);
    let link = args.next();
    let messages: u64 = args
        .next()
        .map_or(10_000, |arg| arg.parse().expect("a number"));

    let device = Device::open()?;
    let link = match link {
        Some(name) => name,
        None => device.first_link()?.name,
    };
    let domain = device.fabric()?.domain(&link).open()?;
    let cq = domain
        .cq()
        .entries(4 * BATCH as u32)
        .format(CqFormat::Tagged)
        .wait(Wait::Queue)
        .open()?;
    let av = domain.av().kind(AvKind::Table).open()?;
    let ep = domain.endpoint().open()?;
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
    ep.bind_av(&av)?;
    ep.enable()?;

    // The endpoint sends to itself and receives its own messages.
    let peer = av.insert_one(ep.name()?)?;
    let buffer = Buffer::new(8 * BATCH as usize)?;
    let mut ring = cq.ring()?;
    let mut entries = vec![Entry::default(); BATCH as usize];
    let (mut sent, mut received, mut slept) = (0, 0, 0);

    while sent < messages {
        let batch = BATCH.min(messages - sent);
        let place = |n: u64| 8 * n as usize..8 * (n as usize + 1);
        let recvs: Vec<Op> = (0..batch)
            .map(|n| Op::recv(buffer.slice(place(n))).context(sent + n))
            .collect();
        let bytes: Vec<[u8; 8]> = (0..batch).map(|n| (sent + n).to_le_bytes()).collect();
        let sends: Vec<Op> = bytes.iter().map(|bytes| Op::inject(peer, bytes)).collect();
        for ops in [recvs, sends] {
            ep.post(&ops)?.into_result()?;
        }

        // Injected messages complete silently: these completions are of
        // receives.
        let mut open = batch;
        while open > 0 {
            let mut count = ring.read(&mut entries)?;
            if count == 0 {
                slept += 1;
                count = ring.sread(&mut entries, Duration::from_secs(5))?;
                assert_ne!(count, 0, "nothing came in 5 s");
            }
            for entry in &entries[..count] {
                if entry.flags.contains(CompFlags::RECV) {
                    let n = entry.op_context - sent;
                    assert_eq!(buffer.to_vec(place(n)), entry.op_context.to_le_bytes());
                    received += 1;
                }
            }
            open -= count as u64;
        }
        sent += batch;
    }
    println!("{received} messages received, slept {slept} times");
    Ok(())
}
