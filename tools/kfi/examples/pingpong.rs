// SPDX-License-Identifier: GPL-2.0
//! Two endpoints that send a message to and fro: `pingpong [LINK [ROUNDS]]`.
//!
//! Each side is a thread that sleeps in its completion queue while the message
//! is with the other; two programs on two hosts do just the same.

use std::{
    env, thread,
    time::{Duration, Instant},
};

use kfi::{
    Av, AvKind, Buffer, CompFlags, Cq, CqBind, CqFormat, Device, Domain, Endpoint, FiAddr, Wait,
};

const PATIENCE: Duration = Duration::from_secs(5);

/// An endpoint with the objects it needs.
struct Side {
    ep: Endpoint,
    cq: Cq,
    av: Av,
    ball: Buffer,
}

impl Side {
    fn open(domain: &Domain) -> kfi::Result<Self> {
        let cq = domain
            .cq()
            .format(CqFormat::Tagged)
            .wait(Wait::Queue)
            .open()?;
        let av = domain.av().kind(AvKind::Table).open()?;
        let ep = domain.endpoint().open()?;
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
        ep.bind_av(&av)?;
        ep.enable()?;
        let ball = Buffer::new(8)?;
        Ok(Self { ep, cq, av, ball })
    }

    /// Sleeps until a completion of this kind has come.
    fn until(&self, flags: CompFlags) -> kfi::Result<()> {
        loop {
            let entry = self.cq.next(PATIENCE)?.expect("nothing came in 5 s");
            if entry.flags.contains(flags) {
                return Ok(());
            }
        }
    }

    /// Receives the ball.  The receive was posted before.
    fn catch(&self) -> kfi::Result<u64> {
        self.until(CompFlags::RECV)?;
        let mut bytes = [0; 8];
        self.ball.read_at(0, &mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    /// Sends the ball, ready to receive it again.
    fn throw(&self, peer: FiAddr, count: u64) -> kfi::Result<()> {
        // The post copies the eight bytes, so the same memory can receive the
        // answer.
        self.ep.recv(&self.ball, 0)?;
        self.ep.inject(peer, &count.to_le_bytes())
    }
}

fn main() -> kfi::Result<()> {
    let mut args = env::args().skip(1);
    let link = args.next();
    let rounds: u64 = args
        .next()
        .map_or(1000, |arg| arg.parse().expect("a number"));

    let device = Device::open()?;
    let link = match link {
        Some(name) => name,
        None => device.first_link()?.name,
    };
    let domain = device.fabric()?.domain(&link).open()?;
    let (one, two) = (Side::open(&domain)?, Side::open(&domain)?);
    println!("from {} to {}", one.ep.name()?, two.ep.name()?);
    let to_two = one.av.insert_one(two.ep.name()?)?;
    let to_one = two.av.insert_one(one.ep.name()?)?;

    two.ep.recv(&two.ball, 0)?;
    let start = Instant::now();
    thread::scope(|scope| -> kfi::Result<()> {
        let other = scope.spawn(|| -> kfi::Result<()> {
            for _ in 0..rounds {
                let count = two.catch()?;
                two.throw(to_one, count + 1)?;
            }
            Ok(())
        });
        for round in 0..rounds {
            one.throw(to_two, 2 * round)?;
            assert_eq!(one.catch()?, 2 * round + 1);
        }
        other.join().expect("the other side does not panic")
    })?;
    let time = start.elapsed();
    println!(
        "{rounds} rounds in {time:.1?}: {:.2?} one way",
        time / u32::try_from(2 * rounds).expect("fewer rounds")
    );
    Ok(())
}
