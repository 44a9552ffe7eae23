// SPDX-License-Identifier: GPL-2.0

//! The GSI QP of a device: QP 1, for the connection management of the RDMA subsystem.
//!
//! The real QP 1 belongs to the namespace, and to the module's own connection management first
//! ([`Gsi`]). So this QP has a state of its own and nothing else. Datagrams arrive in the work item
//! of QP 1, which serves all users. They are placed there at once: the receives are memory of the
//! kernel, and the locks on the way are spin locks.
//!
//! `ib_mad` posts under a spin lock with interrupts off. The work item of this QP issues its work
//! requests, because QP 1 has no run for this QP.

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
    workqueue::{
        new_work,
        Work, //
    }, //
};

use super::qp::Qp;
use crate::{
    mem::Source,
    net::{
        cm::Gsi,
        qp::ud::Destination,
        Link,
        Path, //
    },
    shim::{
        reclaim::{
            NoIo,
            OwnerKind, //
        },
        work::{
            self,
            impl_work, //
        }, //
    }, //
};

/// What a GSI QP has in place of a QP of `net`.
#[pin_data]
pub(super) struct GsiQp {
    /// The use of QP 1; `None` when the QP is closed. Held while a datagram is sent.
    #[pin]
    gsi: Mutex<Option<Gsi>>,
    /// The QP; `None` when it is closed. A leaf.
    #[pin]
    qp: SpinLock<Option<Arc<Qp>>>,
    #[pin]
    work: Work<Self>,
}

impl_work! {
    impl Work for GsiQp { self.work, run: GsiQp::run }
}

impl GsiQp {
    /// The GSI QP of a device on `link`. Fails as [`Gsi::open`]; `ENOMEM`. Sleeps.
    pub(super) fn new(link: &Arc<Link>, qp: &Arc<Qp>) -> Result<Arc<Self>> {
        let gsi = Gsi::open(link, qp.clone())?;
        Arc::pin_init(
            pin_init!(Self {
                gsi <- new_mutex!(Some(gsi), "GsiQp::gsi"),
                qp <- new_spinlock!(Some(qp.clone()), "GsiQp::qp"),
                work <- new_work!("kfabric::GsiQp"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn run(this: &Arc<Self>) {
        // The callers may be a part of memory reclaim, a storage driver for example.
        let _no_io = NoIo::enter();
        let qp = this.qp.lock().clone();
        if let Some(qp) = qp {
            qp.end_run();
        }
    }

    /// Queues the work item. Any context.
    pub(super) fn wake(self: &Arc<Self>) {
        // The queue refuses an item that is queued already.
        let _ = work::submit_queue(OwnerKind::Consumer).enqueue(self.clone());
    }

    /// Sends a datagram. Fails with `ECANCELED` if the QP is closed; otherwise as [`Gsi::send`].
    pub(super) fn send(&self, path: &Path, to: &Destination, payload: &Source<'_>) -> Result {
        match &*self.gsi.lock() {
            Some(gsi) => gsi.send(path, to, payload),
            None => Err(ECANCELED),
        }
    }

    /// Ends the use of QP 1: no datagram arrives and nothing is issued any more. Waits for the work
    /// items. Sleeps.
    pub(super) fn close(self: &Arc<Self>) {
        let gsi = self.gsi.lock().take();
        drop(gsi);
        let qp = self.qp.lock().take();
        work::cancel(self);
        drop(qp);
    }
}
