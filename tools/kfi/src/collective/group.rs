// SPDX-License-Identifier: GPL-2.0
//! The ranks of one host: endpoints, memory and counters.

use std::{net::SocketAddr, ops::Range};

use super::{Action, Counter, Memory, Plan, Ring, Span, driven::Driver};
use crate::{
    Access, AtomicOp, Av, AvKind, Buffer, Caps, Cntr, Cq, CqBind, CqFormat, CqRing, Datatype,
    Deadline, Domain, Endpoint, Error, FiAddr, Mr, Op, Result, Slice, Wait, Work, addr::with_port,
};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// The party that starts the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The module: all of them are deferred work, and no program runs between start and end.
    Deferred,
    /// The program, which reads completions and posts the operations that are due.
    Driven,
    /// The program, as [`Form::Driven`]; but it adds the words up itself, without an operation.
    DrivenAdding,
}

/// The ranks of a ring that are on one host, in one domain.
///
/// ```no_run
/// # fn f(domain: kfi::Domain) -> kfi::Result<()> {
/// use kfi::collective::{Form, Group, Ring};
/// use std::time::Duration;
///
/// let ring = Ring::new(8, 100).unwrap();
/// let mut group = Group::open(&domain, ring, 0, None)?;
/// group.meet(&group.addresses()?)?;
/// for rank in 0..8 {
///     group.set_input(rank, |word| (rank * word) as u64);
/// }
/// group.prepare(Form::Deferred)?;
/// group.start()?;
/// group.finish(Duration::from_secs(5))?;
/// assert_eq!(group.output(7)[2], 2 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Group {
    pub(super) ring: Ring,
    pub(super) members: Vec<Member>,
    start: Cntr,
    done: Cntr,
    pub(super) cq: CqRing,
    domain: Domain,
    prepared: Prepared,
}

/// What [`Group::prepare`] has made.
#[derive(Debug)]
enum Prepared {
    Nothing,
    /// Queued work, and the value of the last counter at its end.
    Deferred(u64),
    Driven(Driver),
}

/// A rank.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) plan: Plan,
    pub(super) ep: Endpoint,
    av: Av,
    /// Addresses of all ranks, in their order.
    peers: Vec<FiAddr>,
    /// All memories in a row; their order is that of [`Memory`].
    memory: Buffer,
    region: Mr,
    words: usize,
    chunks: Vec<Cntr>,
}

impl Member {
    fn open(
        domain: &Domain,
        cq: &Cq,
        plan: Plan,
        ring: &Ring,
        host: Option<SocketAddr>,
    ) -> Result<Self> {
        let av = domain.av().kind(AvKind::Table).open()?;
        let size = u32::try_from(plan.steps.len()).unwrap_or(u32::MAX);
        let caps = Caps::TAGGED | Caps::RMA | Caps::ATOMIC;
        let ep = domain.endpoint().caps(caps).tx_size(size).rx_size(size);
        let ep = match host {
            Some(host) => ep.addr(with_port(host, 0)).open()?,
            None => ep.open()?,
        };
        ep.bind_cq(cq, CqBind::TRANSMIT | CqBind::RECV)?;
        ep.bind_av(&av)?;
        ep.enable()?;
        let memory = Buffer::new(3 * ring.words() * WORD)?;
        // Its own sums come to it as those of a peer.
        let local = Access::SEND | Access::RECV | Access::READ | Access::WRITE;
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = domain.mr(&memory).access(local | remote);
        let region = region.requested_key(plan.rank as u64 + 1).open()?;
        let chunks = { 0..ring.chunks() }.map(|_| domain.cntr().wait(Wait::Queue).open());
        Ok(Self {
            ep,
            av,
            peers: Vec::new(),
            memory,
            region,
            words: ring.words(),
            chunks: chunks.collect::<Result<_>>()?,
            plan,
        })
    }

    /// The bytes of a span in the memory.
    fn bytes(&self, span: &Span) -> Range<usize> {
        let base = match span.memory {
            Memory::Input => 0,
            Memory::Partial => self.words,
            Memory::Output => 2 * self.words,
        };
        (base + span.words.start) * WORD..(base + span.words.end) * WORD
    }

    fn slice(&self, span: &Span) -> Slice<'_> {
        self.region.slice(self.bytes(span))
    }

    /// A whole memory.
    fn all(&self, memory: Memory) -> Span {
        let words = 0..self.words;
        Span { memory, words }
    }

    fn peer(&self, rank: usize) -> FiAddr {
        self.peers.get(rank).copied().unwrap_or(FiAddr::UNSPEC)
    }

    fn read(&self, span: &Span) -> Vec<u64> {
        let bytes = self.memory.to_vec(self.bytes(span));
        let words = bytes.chunks_exact(WORD).map(|word| {
            let mut value = [0; WORD];
            value.copy_from_slice(word);
            u64::from_ne_bytes(value)
        });
        words.collect()
    }

    fn write(&self, span: &Span, words: impl Iterator<Item = u64>) {
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        self.memory.write_at(self.bytes(span).start, &bytes);
    }

    /// Does a sum by itself.
    pub(super) fn add(&self, operand: &Span, target: &Span) {
        let words = { self.read(operand).into_iter() }.zip(self.read(target));
        self.write(target, words.map(|(one, other)| one.wrapping_add(other)));
    }

    /// The operation of a step that is a transfer.
    pub(super) fn op(&self, step: usize) -> Option<Op<'_>> {
        let op = match &self.plan.steps.get(step)?.action {
            Action::Receive { message, into, .. } => Op::trecv(self.slice(into), message.tag(), 0),
            Action::Send { to, message, from } => {
                Op::tsend(self.peer(*to), self.slice(from), message.tag())
            }
            Action::Sum { operand, target } => Op::atomic(
                self.peer(self.plan.rank),
                self.slice(operand),
                self.region.remote(self.bytes(target).start as u64),
                Datatype::Uint64,
                AtomicOp::Sum,
            ),
            Action::Count => return None,
        };
        Some(op.context(context(self.plan.rank, step)))
    }
}

/// The context of a step's operation.
pub(super) fn context(rank: usize, step: usize) -> u64 {
    (rank as u64) << 32 | step as u64
}

impl Group {
    /// Opens the endpoints, memory and counters of the ranks of a host.
    ///
    /// The endpoints have the host's address `addr`; without one, the link's. Its port is ignored.
    /// The memory of a rank has the key of the rank's number plus one, unless the module chooses
    /// the keys of the domain.
    ///
    /// # Errors
    ///
    /// Those of opening the objects; `EOPNOTSUPP`: the endpoints have no atomics.
    pub fn open(
        domain: &Domain,
        ring: Ring,
        host: usize,
        addr: Option<SocketAddr>,
    ) -> Result<Self> {
        let plans: Vec<Plan> = ring.ranks_of(host).map(|rank| ring.plan(rank)).collect();
        // Room for the completions of a program that posts everything.
        let entries: usize = plans.iter().map(|plan| plan.steps.len()).sum();
        let cq = domain
            .cq()
            .entries(u32::try_from(entries).unwrap_or(u32::MAX))
            .format(CqFormat::Context)
            .wait(Wait::Queue)
            .open()?;
        let members = { plans.into_iter() }
            .map(|plan| Member::open(domain, &cq, plan, &ring, addr))
            .collect::<Result<_>>()?;
        Ok(Self {
            ring,
            members,
            start: domain.cntr().wait(Wait::Queue).open()?,
            done: domain.cntr().wait(Wait::Queue).open()?,
            cq: cq.ring()?,
            domain: domain.clone(),
            prepared: Prepared::Nothing,
        })
    }

    /// The ring.
    pub fn ring(&self) -> Ring {
        self.ring
    }

    /// The ranks here.
    pub fn ranks(&self) -> impl Iterator<Item = usize> + '_ {
        self.members.iter().map(|member| member.plan.rank)
    }

    /// The plans of the ranks here.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.members.iter().map(|member| &member.plan)
    }

    /// The addresses of the ranks here, in their order.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>> {
        self.members.iter().map(|member| member.ep.name()).collect()
    }

    /// Tells the ranks here the addresses of all ranks of the ring, in their order.
    ///
    /// # Errors
    ///
    /// Those of [`Av::insert_all`](crate::Av::insert_all).
    pub fn meet(&mut self, addresses: &[SocketAddr]) -> Result<()> {
        for member in &mut self.members {
            member.peers = member.av.insert_all(addresses)?;
        }
        Ok(())
    }

    fn member(&self, rank: usize) -> Option<&Member> {
        self.members.iter().find(|member| member.plan.rank == rank)
    }

    /// Sets the input of a rank, word by word. A rank that is not here has none.
    pub fn set_input(&self, rank: usize, word: impl Fn(usize) -> u64) {
        if let Some(member) = self.member(rank) {
            member.write(&member.all(Memory::Input), (0..member.words).map(word));
        }
    }

    /// The output of a rank; empty for one that is not here.
    pub fn output(&self, rank: usize) -> Vec<u64> {
        let member = self.member(rank);
        member.map_or(Vec::new(), |member| {
            member.read(&member.all(Memory::Output))
        })
    }

    /// Clears the output of the ranks here, so that the next one cannot be mistaken for it.
    pub fn clear(&self) {
        for member in &self.members {
            for memory in [Memory::Partial, Memory::Output] {
                member.write(&member.all(memory), (0..member.words).map(|_| 0));
            }
        }
    }

    /// A counter of a rank here, to watch.
    pub fn cntr(&self, rank: usize, counter: Counter) -> Option<&Cntr> {
        match counter {
            Counter::Start => Some(&self.start),
            Counter::Done => Some(&self.done),
            Counter::Chunk(chunk) => self.member(rank)?.chunks.get(chunk),
        }
    }

    /// Prepares one allreduce: queues all of its work, or posts all of its receives. No rank may
    /// be in another one.
    ///
    /// # Errors
    ///
    /// Those of [`Domain::queue_work`] or of [`Endpoint::post`].
    pub fn prepare(&mut self, form: Form) -> Result<()> {
        self.prepared = match form {
            Form::Deferred => Prepared::Deferred(self.queue()?),
            Form::Driven => Prepared::Driven(Driver::new(self, false)?),
            Form::DrivenAdding => Prepared::Driven(Driver::new(self, true)?),
        };
        Ok(())
    }

    /// Starts it, at the first host only: by adding one to one counter, if it is deferred work.
    ///
    /// # Errors
    ///
    /// Those of [`Cntr::add`] or of [`Endpoint::post`].
    pub fn start(&mut self) -> Result<()> {
        match &mut self.prepared {
            Prepared::Driven(driver) => driver.start(&self.members),
            _ => self.start.add(1),
        }
    }

    /// Waits until all ranks here are done: asleep, or driving them.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`: the deadline has passed.
    /// - [`Error::Completion`]: an operation failed; its context is the rank in the upper half and
    ///   the number of the step in the lower half.
    pub fn finish(&mut self, deadline: impl Into<Deadline>) -> Result<()> {
        let deadline = deadline.into();
        match std::mem::replace(&mut self.prepared, Prepared::Nothing) {
            Prepared::Nothing => Ok(()),
            Prepared::Driven(mut driver) => driver.finish(&self.members, &mut self.cq, deadline),
            Prepared::Deferred(end) => match self.done.wait(end, deadline) {
                Ok(_) => Ok(()),
                // The error entry names the operation.
                Err(error) => Err(match self.cq.cq().readerr()? {
                    Some(entry) => Error::Completion(Box::new(entry)),
                    None => error,
                }),
            },
        }
    }

    /// Queues all steps; gives the value of the last counter at the end.
    fn queue(&self) -> Result<u64> {
        let mut works = Vec::new();
        let mut end = self.done.value();
        for member in &self.members {
            end += member.plan.counts(Counter::Done);
            for at in 0..member.plan.steps.len() {
                works.extend(self.work(member, at));
            }
        }
        for some in works.chunks(crate::abi::KFABRIC_MAX_POST as usize) {
            let queued = self.domain.queue_work(some)?.into_result();
            if let Err(error) = queued {
                self.domain.flush_work()?;
                return Err(error);
            }
        }
        Ok(end)
    }

    fn work<'a>(&'a self, member: &'a Member, at: usize) -> Option<Work<'a>> {
        let step = member.plan.steps.get(at)?;
        let trigger = self.cntr(member.plan.rank, step.trigger)?;
        let completion = self.cntr(member.plan.rank, step.completion)?;
        // Counters go on from the last allreduce. What has no condition is due at once.
        let threshold = match step.threshold {
            0 => 0,
            above => trigger.value() + above,
        };
        Some(match member.op(at) {
            Some(op) => Work::transfer(trigger, threshold, &member.ep, op).completion(completion),
            None => Work::add(trigger, threshold, completion, 1),
        })
    }
}
