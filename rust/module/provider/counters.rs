// SPDX-License-Identifier: GPL-2.0

//! Counters object: the values that flows count into, as specified by
//! ibv_attach_counters_point_flow(3).
//!
//! A [`Counters`] is an array of values, and not a `kfi_cntr` ([`cntr`](super::cntr)): nobody waits
//! for it or sets it. Its values ([`FlowValues`]) belong to the network layer, where packets are
//! counted. What a packet adds is determined by counter points; [`kfi_core::flow::point`] has their
//! rules. A [`flow`](super::flow) that counts into the object holds a [`Binding`] for its static
//! points, and one for each dynamic point. Each is a use, so the object cannot be closed.

use kfi_core::flow::{
    Bindings,
    Point, //
};

use super::{
    object_list::{
        Class,
        ObjectListEntry,
        ObjectStats,
        StatsSource, //
    },
    prelude::*, //
};
use crate::net::flow::FlowValues;

/// A counters object.
#[pin_data]
pub(crate) struct Counters {
    values: Arc<FlowValues>,
    /// A leaf. Process context only.
    #[pin]
    bindings: SpinLock<Bindings>,
    uses: UseCount,
    domain: UseRef<Domain>,
    ident: Ident,
    list_entry: ObjectListEntry,
    _memory: Allowance,
}

impl Counters {
    /// Makes an object with `count` values, at least one. Fails with `EBADF` if the domain is
    /// closed, `ENOMEM`. Sleeps.
    pub(crate) fn open(domain: &Arc<Domain>, count: u32, ident: Ident) -> Result<Arc<Self>> {
        let domain = UseRef::new(domain.clone())?;
        let memory = ident.budget.take_for::<Self>(0)?;
        let values = FlowValues::new(usize::try_from(count)?, &ident.budget)?;
        let counters = Arc::pin_init(
            pin_init!(Self {
                values,
                bindings <- new_spinlock!(Bindings::new(count), "Counters::bindings"),
                uses: UseCount::new(),
                domain,
                ident,
                list_entry: ObjectListEntry::new(),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        counters.list_entry.enter(counters.clone())?;
        Ok(counters)
    }

    /// Its values.
    pub(super) fn values(&self) -> &Arc<FlowValues> {
        &self.values
    }

    /// The first `count` values, each as it is at some moment of the iteration. Fails with `EINVAL`
    /// for none, or more than there are. Does not sleep.
    pub(crate) fn read(&self, count: u32) -> Result<impl Iterator<Item = u64> + '_> {
        let count = usize::try_from(count)?;
        if count == 0 || count > self.values.len() {
            return Err(EINVAL);
        }
        Ok((0..count).map(|index| self.values.get(index)))
    }

    /// Attaches a static point. Fails with `EINVAL` if there is no such index; `EBUSY` while the
    /// object is bound statically; `ENOSPC` if it has as many points as a flow can have. Does not
    /// sleep.
    pub(crate) fn attach(&self, point: Point) -> Result {
        self.bindings.lock().attach(point).map_err(to_error)
    }
}

impl Object for Counters {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        self.list_entry.leave();
        self.domain.release();
    }
}

impl StatsSource for Counters {
    fn class(&self) -> Class {
        Class::Counters
    }

    fn ident(&self) -> &Ident {
        &self.ident
    }

    fn domain(&self) -> &Arc<Domain> {
        self.domain.arc()
    }

    fn stats(&self) -> ObjectStats {
        let bindings = self.bindings.lock();
        ObjectStats {
            addr: None,
            values: [
                bindings.values().into(),
                bindings.len() as u64,
                bindings.bound(),
                0,
                0,
                0,
                0,
                0,
            ],
        }
    }
}

/// A binding of a counters object to a flow. Ends when it is dropped.
pub(super) struct Binding {
    counters: UseRef<Counters>,
}

impl Binding {
    /// Binds an object to a flow that is being made, and passes each of its static points to
    /// `add`. Fails with `EINVAL` if there are none, `EBADF` if the object is closed, or with an
    /// error of `add`, which must not sleep.
    pub(super) fn of_static(
        counters: &Arc<Counters>,
        mut add: impl FnMut(Point) -> Result,
    ) -> Result<Self> {
        let counters = UseRef::new(counters.clone())?;
        let mut bindings = counters.bindings.lock();
        let added = bindings
            .bind()
            .map_err(to_error)?
            .iter()
            .try_for_each(|point| add(*point));
        drop(bindings);
        // The drop of the result undoes the binding.
        let binding = Self { counters };
        added.map(|()| binding)
    }

    /// Binds an object to a flow for a dynamic point. Fails with `EINVAL` if there is no such
    /// index, `EBUSY` while the object is bound statically, `EBADF` if it is closed. Does not
    /// sleep.
    pub(super) fn of_point(counters: &Arc<Counters>, point: Point) -> Result<Self> {
        let counters = UseRef::new(counters.clone())?;
        let bound = counters.bindings.lock().bind_point(point);
        bound.map_err(to_error)?;
        Ok(Self { counters })
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.counters.bindings.lock().unbind();
    }
}
