// SPDX-License-Identifier: GPL-2.0

//! Counter points, and what a counters object is bound to.
//!
//! A *point* is a description ([`Description`]) and an index: it says what of the packets of a flow
//! is added to the value at the index. Points of one index add up.
//!
//! - A *static* point belongs to a counters object. It takes effect when a flow is created with the
//!   object: the flow counts into all static points of the object, and the object is bound
//!   statically. From then on nothing is attached to it, until it is bound to no flow at all.
//! - A *dynamic* point belongs to a flow that exists. It takes effect at once, and binds the object
//!   to the flow, too.
//!
//! [`Bindings`] has this state of one counters object. Flows are counted, not remembered: each flow
//! binds an object once for its static points, and once for each dynamic point.

use crate::{
    enums::enumerator,
    errno::Errno,
    limits::MAX_FLOW_POINTS, //
};

enumerator! {
    /// What a point adds for each packet of a flow.
    Description {
        /// One.
        Packets = 0,
        /// The bytes of the packet.
        Bytes = 1,
    }
}

/// A counter point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The amount that is added.
    pub description: Description,
    /// The index of the value that it is added to.
    pub index: u32,
}

/// The points of one flow at one index: how many times each description is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    packets: u64,
    bytes: u64,
}

impl Times {
    /// Adds a point.
    pub fn count(&mut self, description: Description) {
        let times = match description {
            Description::Packets => &mut self.packets,
            Description::Bytes => &mut self.bytes,
        };
        *times = times.saturating_add(1);
    }

    /// Returns what a packet of `bytes` bytes adds to the value.
    #[inline]
    pub const fn of(&self, bytes: u64) -> u64 {
        self.packets.wrapping_add(self.bytes.wrapping_mul(bytes))
    }
}

/// The static points of a counters object, and its bindings.
///
/// # Invariants
///
/// The first `len` of `points` are static points, with indices below `values`. `len` is at most
/// [`MAX_FLOW_POINTS`].
pub struct Bindings {
    values: u32,
    points: [Point; MAX_FLOW_POINTS],
    len: usize,
    /// The number of bindings, static and dynamic.
    bound: u64,
    /// Whether it was bound statically since it was last bound to no flow.
    is_static: bool,
}

impl Bindings {
    /// Returns the state of an object with `values` values, which has no points and is bound to
    /// nothing.
    pub const fn new(values: u32) -> Self {
        let none = Point {
            description: Description::Packets,
            index: 0,
        };
        // INVARIANT: No points.
        Self {
            values,
            points: [none; MAX_FLOW_POINTS],
            len: 0,
            bound: 0,
            is_static: false,
        }
    }

    /// Checks that a point can be attached. Fails with `EINVAL` if there is no such index, `EBUSY`
    /// while the object is bound statically.
    fn check(&self, point: Point) -> Result<(), Errno> {
        if point.index >= self.values {
            return Err(Errno::EINVAL);
        }
        if self.is_static {
            return Err(Errno::EBUSY);
        }
        Ok(())
    }

    /// Attaches a static point.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no such index. `EBUSY`: the object is bound statically. `ENOSPC`: it has
    /// [`MAX_FLOW_POINTS`] static points.
    pub fn attach(&mut self, point: Point) -> Result<(), Errno> {
        self.check(point)?;
        let place = self.points.get_mut(self.len).ok_or(Errno::ENOSPC)?;
        // INVARIANT: The index is below `values`, and the array has room.
        *place = point;
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Binds the object for a dynamic point, which the caller adds to a flow. Undone by
    /// [`unbind`](Self::unbind).
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no such index. `EBUSY`: the object is bound statically.
    pub fn bind_point(&mut self, point: Point) -> Result<(), Errno> {
        self.check(point)?;
        self.bound = self.bound.wrapping_add(1);
        Ok(())
    }

    /// Binds the object statically to a new flow, and returns its static points. Undone by
    /// [`unbind`](Self::unbind).
    ///
    /// # Errors
    ///
    /// `EINVAL`: it has no static points, so the flow would count nothing.
    pub fn bind(&mut self) -> Result<&[Point], Errno> {
        // The invariant makes the slice valid.
        let points = self.points.get(..self.len).unwrap_or_default();
        if points.is_empty() {
            return Err(Errno::EINVAL);
        }
        self.bound = self.bound.wrapping_add(1);
        self.is_static = true;
        Ok(points)
    }

    /// Ends one binding.
    pub fn unbind(&mut self) {
        self.bound = self.bound.saturating_sub(1);
        if self.bound == 0 {
            self.is_static = false;
        }
    }

    /// Returns the number of values.
    pub const fn values(&self) -> u32 {
        self.values
    }

    /// Returns the number of static points.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no static points.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bindings: one for each flow that was created with the object, and one
    /// for each dynamic point.
    pub const fn bound(&self) -> u64 {
        self.bound
    }

    /// Returns whether a point can be attached now, if its index is valid.
    pub const fn is_static(&self) -> bool {
        self.is_static
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_flow_point))]
mod tests {
    use super::*;

    const fn packets(index: u32) -> Point {
        Point {
            description: Description::Packets,
            index,
        }
    }

    const fn bytes(index: u32) -> Point {
        Point {
            description: Description::Bytes,
            index,
        }
    }

    #[test]
    fn points_of_one_index_add_up() {
        let mut times = Times::default();
        assert_eq!(times.of(100), 0);
        times.count(Description::Packets);
        assert_eq!(times.of(100), 1);
        times.count(Description::Bytes);
        times.count(Description::Bytes);
        times.count(Description::Packets);
        assert_eq!(times.of(100), 202);
        assert_eq!(times.of(0), 2);
    }

    #[test]
    fn a_flow_gets_the_static_points_in_order() {
        let mut bindings = Bindings::new(4);
        assert_eq!(bindings.bind(), Err(Errno::EINVAL));
        assert_eq!(bindings.bound(), 0);
        assert_eq!(bindings.attach(packets(3)), Ok(()));
        assert_eq!(bindings.attach(bytes(0)), Ok(()));
        assert_eq!(bindings.attach(packets(3)), Ok(()));
        assert_eq!(bindings.attach(packets(4)), Err(Errno::EINVAL));
        assert_eq!(bindings.bind(), Ok(&[packets(3), bytes(0), packets(3)][..]));
    }

    #[test]
    fn nothing_is_attached_until_the_object_is_bound_to_no_flow() {
        let mut bindings = Bindings::new(1);
        let busy = Err(Errno::EBUSY);
        assert_eq!(bindings.attach(packets(0)), Ok(()));
        // A dynamic point is no static binding.
        assert_eq!(bindings.bind_point(bytes(0)), Ok(()));
        assert_eq!(bindings.attach(bytes(0)), Ok(()));
        assert!(!bindings.is_static() && bindings.bind().is_ok() && bindings.bind().is_ok());
        assert_eq!(bindings.bound(), 3);
        for _ in 0..2 {
            assert_eq!(bindings.attach(packets(0)), busy);
            assert_eq!(bindings.bind_point(packets(0)), busy);
            // The order of the checks.
            assert_eq!(bindings.attach(packets(1)), Err(Errno::EINVAL));
            bindings.unbind();
        }
        // Both static bindings have ended; the dynamic one has not.
        assert_eq!(bindings.attach(packets(0)), busy);
        bindings.unbind();
        assert_eq!((bindings.bound(), bindings.is_static()), (0, false));
        assert_eq!(bindings.attach(packets(0)), Ok(()));
        assert_eq!(bindings.len(), 3);
        assert_eq!(bindings.bind_point(packets(0)), Ok(()));
    }

    #[test]
    fn the_number_of_static_points_is_limited() {
        let mut bindings = Bindings::new(1);
        assert!(bindings.is_empty());
        for _ in 0..MAX_FLOW_POINTS {
            assert_eq!(bindings.attach(packets(0)), Ok(()));
        }
        assert_eq!(bindings.attach(packets(0)), Err(Errno::ENOSPC));
        assert_eq!(bindings.len(), MAX_FLOW_POINTS);
        // Dynamic points belong to the flow.
        assert_eq!(bindings.bind_point(packets(0)), Ok(()));
    }
}
