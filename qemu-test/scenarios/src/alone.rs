// SPDX-License-Identifier: GPL-2.0
//! An endpoint that is its own peer: it makes completions and errors on a CQ when a test needs
//! them.

use crate::host::{device, domain, until};
use kfi::{
    Access, Av, Buffer, CompFlags, Cq, CqBind, CqBuilder, CqFormat, Deadline, Domain, Endpoint,
    EndpointBuilder, Entry, FiAddr, Mr, Op, OpFlags, Remote, StatClass, StatValues, Wait,
};

/// Flags of the completions that [`Alone::complete`] makes.
pub(crate) const WROTE: CompFlags = CompFlags::RMA.union(CompFlags::WRITE);

/// See the top of the file.
pub(crate) struct Alone {
    /// The domain of the objects.
    pub(crate) domain: Domain,
    /// CQ of both directions.
    pub(crate) cq: Cq,
    /// Contains the endpoint itself.
    pub(crate) av: Av,
    /// The endpoint.
    pub(crate) ep: Endpoint,
    /// The endpoint's own address in its AV.
    pub(crate) me: FiAddr,
    mr: Mr,
}

impl Alone {
    /// With a CQ of 64 entries, format TAGGED, wait object QUEUE.
    pub(crate) fn new() -> Self {
        Self::with_cq(|cq| cq)
    }

    /// With the CQ that `cq` makes of that.
    pub(crate) fn with_cq(cq: impl FnOnce(CqBuilder) -> CqBuilder) -> Self {
        Self::with(cq, |ep| ep, CqBind::TRANSMIT | CqBind::RECV)
    }

    /// With these attributes.
    pub(crate) fn with(
        cq: impl FnOnce(CqBuilder) -> CqBuilder,
        ep: impl FnOnce(EndpointBuilder) -> EndpointBuilder,
        bind: CqBind,
    ) -> Self {
        let (_, domain) = domain();
        let usual = domain
            .cq()
            .entries(64)
            .format(CqFormat::Tagged)
            .wait(Wait::Queue);
        let cq = cq(usual).open().expect("cq");
        let av = domain.av().open().expect("av");
        let ep = ep(domain.endpoint()).open().expect("endpoint");
        ep.bind_cq(&cq, bind).expect("bind cq");
        ep.bind_av(&av).expect("bind av");
        ep.enable().expect("enable");
        let me = av.insert_one(ep.name().expect("name")).expect("insert");
        let mr = domain
            .mr(&Buffer::new(4096).expect("buffer"))
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .open()
            .expect("mr");
        Self {
            domain,
            cq,
            av,
            ep,
            me,
            mr,
        }
    }

    /// The memory that the endpoint can write to.
    pub(crate) fn remote(&self) -> Remote {
        self.mr.remote(0)
    }

    /// Writes to itself, which makes one entry, with `more` flags.
    pub(crate) fn try_complete(&self, context: u64) -> kfi::Result<()> {
        let op = Op::inject_write(self.me, b"", self.remote())
            .flags(OpFlags::COMPLETION)
            .context(context);
        self.ep.post_one(&op)
    }

    /// Makes one entry.
    #[track_caller]
    pub(crate) fn complete(&self, context: u64) {
        self.try_complete(context).expect("write");
    }

    /// Makes one entry for each context.
    #[track_caller]
    pub(crate) fn complete_all(&self, contexts: impl IntoIterator<Item = u64>) {
        contexts
            .into_iter()
            .for_each(|context| self.complete(context));
    }

    /// Makes one error entry: there is no region with this key.
    #[track_caller]
    pub(crate) fn fail(&self, context: u64) {
        let op = Op::inject_write(self.me, b"", Remote::new(0, 0xdead)).context(context);
        self.ep.post_one(&op).expect("write");
    }

    /// The contexts of at most `max` queued entries.
    #[track_caller]
    pub(crate) fn read(&self, max: usize) -> Vec<u64> {
        let mut entries = vec![Entry::default(); max];
        let count = self.cq.read(&mut entries).expect("read");
        entries[..count]
            .iter()
            .map(|entry| entry.op_context)
            .collect()
    }

    /// The next error entry's context, if there is one.
    #[track_caller]
    pub(crate) fn read_error(&self) -> Option<u64> {
        let entry = self.cq.readerr().expect("readerr");
        entry.map(|entry| entry.op_context)
    }
}

/// The statistics of an object of this process. Its handle must be unique in the process.
pub(crate) fn stat_of(class: StatClass, handle: u32) -> Option<StatValues> {
    device()
        .stats(class)
        .map(|stat| stat.expect("stat"))
        .find(|stat| stat.pid == Some(std::process::id()) && stat.handle == handle)
        .map(|stat| stat.values)
}

/// The statistics of a CQ.
pub(crate) fn values(cq: &Cq) -> StatValues {
    stat_of(StatClass::Cq, cq.handle()).expect("a CQ that is listed")
}

/// Waits until `count` threads sleep on the CQ.
pub(crate) fn until_asleep(cq: &Cq, count: u64) {
    until(
        "threads asleep on a CQ",
        || matches!(values(cq), StatValues::Cq { waiters, .. } if waiters == count),
    );
}

/// One entry, by a read that sleeps until an event ends it; `None` if it returns without an entry.
/// For a [`Sleeper`](crate::threads::Sleeper): a test waits for its end for a limited time, and a
/// read with a deadline would return `None` in that time by itself.
pub(crate) fn sread_one(cq: &Cq) -> kfi::Result<Option<u64>> {
    let mut entry = [Entry::default()];
    let count = cq.sread(&mut entry, Deadline::FOREVER)?;
    Ok((count == 1).then(|| entry[0].op_context))
}
