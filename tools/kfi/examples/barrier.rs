// SPDX-License-Identifier: GPL-2.0
//! A barrier of deferred work: endpoints in a tree wait for each other, and the module passes the
//! news up and down: `barrier [LINK [ENDPOINTS [ROUNDS]]]`.  See Documentation/barrier.md.
//!
//! Each endpoint has two counters. `arrived` counts its own thread and the subtrees of its
//! children. When all of them have come, a message goes up to its parent. The root has then heard
//! of everyone, and messages go down again: each endpoint counts one in `released` and sends it
//! on. The work of all rounds is queued before the first.

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use kfi::{Av, AvKind, Buffer, Cntr, Cq, CqBind, Device, Domain, Endpoint, FiAddr, Op, Wait, Work};

/// Tags of messages.
const UP: u64 = 1;
const DOWN: u64 = 2;

/// Children of an endpoint at most.
const CHILDREN: usize = 4;

/// Longest wait at the barrier.
const SOON: Duration = Duration::from_secs(10);

struct Node {
    ep: Endpoint,
    av: Av,
    arrived: Cntr,
    released: Cntr,
}

impl Node {
    fn open(domain: &Domain, cq: &Cq) -> kfi::Result<Self> {
        let av = domain.av().kind(AvKind::Table).open()?;
        let ep = domain.endpoint().open()?;
        ep.bind_av(&av)?;
        // Counters report everything; the completion queue would have the failures.
        ep.bind_cq(cq, CqBind::TRANSMIT | CqBind::RECV)?;
        ep.enable()?;
        Ok(Self {
            ep,
            av,
            arrived: domain.cntr().wait(Wait::Queue).open()?,
            released: domain.cntr().wait(Wait::Queue).open()?,
        })
    }

    /// Queues the work of all rounds. The addresses are those of the parent, which the root does
    /// not have, and of the children.
    fn queue(
        &self,
        domain: &Domain,
        rounds: u64,
        parent: Option<FiAddr>,
        children: &[FiAddr],
    ) -> kfi::Result<()> {
        let nothing = Buffer::new(1)?;
        let empty = || nothing.slice(..0);
        // No condition starts a receive: it is posted at once. Its message is counted.
        let receive = |tag, cntr: &Cntr| {
            Work::transfer(&self.arrived, 0, &self.ep, Op::trecv(empty(), tag, 0)).completion(cntr)
        };
        let send = |trigger: &Cntr, threshold, peer, tag| {
            Work::transfer(trigger, threshold, &self.ep, Op::tsend(peer, empty(), tag))
        };
        let mut works = Vec::new();
        for round in 1..=rounds {
            let all_here = round * (1 + children.len() as u64);
            works.extend(children.iter().map(|_| receive(UP, &self.arrived)));
            match parent {
                Some(parent) => works.extend([
                    receive(DOWN, &self.released),
                    send(&self.arrived, all_here, parent, UP),
                ]),
                // The root turns round.
                None => works.push(Work::add(&self.arrived, all_here, &self.released, 1)),
            }
            let down = |child: &FiAddr| send(&self.released, round, *child, DOWN);
            works.extend(children.iter().map(down));
        }
        domain.queue_work(&works)?.into_result()?;
        Ok(())
    }
}

/// One thread: comes to the barrier in each round, and checks that all others are there when it
/// leaves. `here` has the number of threads that have come to each round.
fn take_part(node: &Node, rank: u64, here: &[AtomicU64], endpoints: u64) -> kfi::Result<()> {
    for (round, count) in (0..).zip(here) {
        // Threads come at different times.
        let pause: u64 = (rank * 7919 + round * 104_729) % 3000;
        thread::sleep(Duration::from_micros(pause));
        count.fetch_add(1, Ordering::SeqCst);
        node.arrived.add(1)?;
        node.released.wait(round + 1, SOON)?;
        assert_eq!(count.load(Ordering::SeqCst), endpoints, "round {round}");
    }
    Ok(())
}

fn main() -> kfi::Result<()> {
    let mut args = env::args().skip(1);
    let link = args.next();
    let mut number = |default| {
        args.next()
            .map_or(default, |arg| arg.parse().expect("a number"))
    };
    let (endpoints, rounds) = (number(13) as usize, number(20));

    let device = Device::open()?;
    let link = match link {
        Some(name) => name,
        None => device.first_link()?.name,
    };
    let domain = device.fabric()?.domain(&link).open()?;
    let cq = domain.cq().open()?;
    let nodes: Vec<Node> = (0..endpoints)
        .map(|_| Node::open(&domain, &cq))
        .collect::<kfi::Result<_>>()?;
    let addresses: Vec<_> = nodes
        .iter()
        .map(|node| node.ep.name())
        .collect::<kfi::Result<_>>()?;
    for (rank, node) in nodes.iter().enumerate() {
        let peers = node.av.insert_all(&addresses)?;
        let parent = rank.checked_sub(1).map(|above| peers[above / CHILDREN]);
        let first = (rank * CHILDREN + 1).min(endpoints);
        let children = &peers[first..(first + CHILDREN).min(endpoints)];
        node.queue(&domain, rounds, parent, children)?;
    }

    let here: Vec<AtomicU64> = (0..rounds).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let here = &here;
        let spawn =
            |(node, rank)| scope.spawn(move || take_part(node, rank, here, endpoints as u64));
        let threads: Vec<_> = nodes.iter().zip(0..).map(spawn).collect();
        let mut results = threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread"));
        results.find(Result::is_err).unwrap_or(Ok(()))
    })?;
    println!("{endpoints} endpoints, {rounds} rounds: nobody left before all had come");
    Ok(())
}
