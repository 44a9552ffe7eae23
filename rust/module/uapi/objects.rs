// SPDX-License-Identifier: GPL-2.0

//! The objects that a handle can name, closing them (`KFABRIC_IOC_CLOSE`), and binding one to
//! another (`KFABRIC_IOC_BIND`).

use kfi_core::flags::{
    CntrBind,
    CqBind,
    KFI_REG_MR, //
};

use super::{
    alias::EpAlias,
    prelude::*, //
};
use crate::{
    provider::{
        av::Av,
        cntr::Cntr,
        comp_cntr::CompCntr,
        counters::Counters,
        cq::Cq,
        ep::Endpoint,
        eq::Eq,
        fabric::Fabric,
        flow::Flow,
        mr::Mr,
        object,
        pep::Pep,
        poll::PollSet,
        sep::ScalableEp,
        stx::Stx,
        wait::WaitSet, //
    },
    shim::bindings::{
        kfabric_bind,
        kfabric_close, //
    }, //
};

/// Defines [`Entry`]: `Variant(Type)`, one line per class, in the order in which a file's objects
/// are closed: users before the objects that they use.
macro_rules! classes {
    ($( $(#[$meta:meta])* $variant:ident($class:ty), )*) => {
        /// A counted reference to an object of any class.
        #[derive(Clone)]
        pub(super) enum Entry {
            $( $(#[$meta])* $variant(Arc<$class>), )*
        }

        /// The class of an object, in order of dependence: users before the objects that they use.
        #[derive(Clone, Copy, PartialEq)]
        pub(super) enum Class {
            $( $(#[$meta])* $variant, )*
        }

        impl Class {
            /// All classes, users before the objects that they use.
            pub(super) const IN_ORDER: &'static [Self] = &[$( Self::$variant, )*];
        }

        impl Entry {
            pub(super) fn class(&self) -> Class {
                match self { $( Self::$variant(_) => Class::$variant, )* }
            }

            /// Closes the object. Fails with `EBUSY` while it is used, `EBADF` if another task
            /// closes it too, `EINTR` if the current task is being killed. Sleeps until no
            /// operation accesses its memory.
            pub(super) fn close(&self) -> Result {
                match self { $( Self::$variant(object) => object::close_killable(&**object), )* }
            }

            /// The program knows the handle of the object and can use it.
            pub(super) fn published(&self) {
                if let Self::Mr(mr) = self {
                    mr.registered();
                }
            }

            /// Announces that this object will be closed soon, together with many others. An
            /// endpoint begins to disconnect from peers on other hosts. The work of a domain is
            /// dropped.
            pub(super) fn farewell(&self) {
                match self {
                    Self::Endpoint(endpoint) => endpoint.farewell(),
                    Self::Domain(domain) => domain.end_work(),
                    _ => {}
                }
            }

            /// Closes the object regardless of its users. Does not wait for operations.
            pub(super) fn force_close(&self) {
                match self { $( Self::$variant(object) => object::force_close(&**object), )* }
            }
        }

        $(
            impl Named for $class {
                #[inline]
                fn from_entry(entry: Entry) -> Option<Arc<Self>> {
                    match entry {
                        Entry::$variant(object) => Some(object),
                        _ => None,
                    }
                }
            }

            impl From<Arc<$class>> for Entry {
                fn from(object: Arc<$class>) -> Self {
                    Self::$variant(object)
                }
            }
        )*
    };
}

/// A class of objects that a handle can name.
pub(super) trait Named: Sized {
    /// The object, if `entry` is of this class.
    fn from_entry(entry: Entry) -> Option<Arc<Self>>;
}

classes! {
    Flow(Flow),
    /// An alias of an endpoint.
    EpAlias(EpAlias),
    /// An endpoint, or a shared receive context.
    Endpoint(Endpoint),
    /// A scalable endpoint. Its contexts are endpoints.
    Sep(ScalableEp),
    /// A shared transmit context.
    Stx(Stx),
    Pep(Pep),
    Mr(Mr),
    /// An address vector.
    Av(Av),
    PollSet(PollSet),
    Cq(Cq),
    Cntr(Cntr),
    /// The counters of flows.
    Counters(Counters),
    /// A completion counter of verbs.
    CompCntr(CompCntr),
    Domain(Domain),
    Eq(Eq),
    WaitSet(WaitSet),
    Fabric(Fabric),
}

/// `KFABRIC_IOC_CLOSE`.
pub(super) fn close(file: &OpenFile, arg: &kfabric_close) -> Result {
    // If several tasks close one object, one succeeds and frees the number. The number of an object
    // whose close was interrupted stays, and is freed when the file is released.
    file.entry(arg.handle)?.close()?;
    file.handles().remove(arg.handle);
    Ok(())
}

/// `KFABRIC_IOC_BIND`, with one arm for each allowed pair. The objects themselves check their own
/// rules (same domain, one CQ for each direction, endpoint not enabled).
pub(super) fn bind(file: &OpenFile, arg: &kfabric_bind) -> Result {
    must_be_zero(&[arg.reserved])?;
    let flags = arg.flags;
    match (file.entry(arg.handle)?, file.entry(arg.to)?) {
        (Entry::Domain(domain), Entry::Eq(eq)) => match flags {
            0 => domain.bind_eq(&eq, false),
            KFI_REG_MR => domain.bind_eq(&eq, true),
            _ => Err(EINVAL),
        },
        (Entry::Av(av), Entry::Eq(eq)) if flags == 0 => av.bind_eq(&eq),
        (Entry::Endpoint(ep), Entry::Av(av)) if flags == 0 => ep.bind_av(&av),
        (Entry::Endpoint(ep), Entry::Eq(eq)) if flags == 0 => ep.bind_eq(&eq),
        (Entry::Endpoint(ep), Entry::Endpoint(srx)) if flags == 0 => ep.bind_srx(&srx),
        (Entry::Endpoint(ep), Entry::Stx(stx)) if flags == 0 => ep.bind_stx(&stx),
        (Entry::Pep(pep), Entry::Eq(eq)) if flags == 0 => pep.bind_eq(&eq),
        (Entry::Sep(sep), Entry::Av(av)) if flags == 0 => sep.bind_av(&av),
        (Entry::Endpoint(ep), Entry::Cq(cq)) => {
            ep.bind_cq(&cq, CqBind::from_bits(flags).map_err(to_error)?)
        }
        (Entry::Endpoint(ep), Entry::Cntr(cntr)) => {
            ep.bind_cntr(&cntr, CntrBind::from_bits(flags).map_err(to_error)?)
        }
        (Entry::Mr(mr), Entry::Cntr(cntr)) => {
            let flags = CntrBind::from_bits(flags).map_err(to_error)?;
            let read = flags.contains(CntrBind::REMOTE_READ);
            let write = flags.contains(CntrBind::REMOTE_WRITE);
            let others = flags.without(CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE);
            if !others.is_empty() {
                return Err(EINVAL);
            }
            mr.bind_cntr(&cntr, read, write)
        }
        _ => Err(EINVAL),
    }
}
