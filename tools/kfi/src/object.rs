// SPDX-License-Identifier: GPL-2.0
//! The common part of all objects: a handle, which is closed once, after all
//! objects that depend on it.
//!
//! Each public type is a reference to a [`Node`].  A node holds the nodes from
//! which its object was made and to which it was bound.  So the kernel sees the
//! objects closed in order of dependence, however a program drops them, and no
//! close returns `EBUSY`.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use crate::{
    abi::{self, Call, calls},
    device::Device,
    error::Result,
};

/// An object that stays open while it is held.
pub(crate) type Hold = Arc<dyn Send + Sync>;

/// A [`Hold`], for types that derive Debug.
pub(crate) struct Held(#[expect(dead_code, reason = "held for its drop")] Hold);

impl Held {
    pub(crate) fn new(what: Hold) -> Self {
        Self(what)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// An object of the open file, by its handle.
pub(crate) struct Node {
    device: Device,
    /// 0 once it was closed.
    handle: AtomicU32,
    /// The objects from which it was made and to which it is bound.
    holds: Mutex<Vec<Hold>>,
}

impl Node {
    /// An object that was just opened, made from `parent`.
    pub(crate) fn new(device: &Device, handle: u32, parents: Vec<Hold>) -> Self {
        Self {
            device: device.clone(),
            handle: AtomicU32::new(handle),
            holds: Mutex::new(parents),
        }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The handle; 0, which every call refuses, once the object was closed.
    pub(crate) fn handle(&self) -> u32 {
        self.handle.load(Relaxed)
    }

    /// Keeps something open until this object is closed.
    pub(crate) fn hold(&self, what: Hold) {
        self.holds().push(what);
    }

    /// Releases one such hold.
    pub(crate) fn release(&self, what: &Hold) {
        let mut holds = self.holds();
        let place = holds.iter().position(|hold| Arc::ptr_eq(hold, what));
        let gone = place.map(|place| holds.swap_remove(place));
        // Dropping a hold may close its object, so it happens outside the lock.
        drop(holds);
        drop(gone);
    }

    fn holds(&self) -> std::sync::MutexGuard<'_, Vec<Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `KFABRIC_IOC_CLOSE`.  The object stays as it is if the kernel refuses.
    pub(crate) fn close(&self) -> Result<()> {
        let mut arg = abi::kfabric_close {
            handle: self.handle(),
            ..Call::sized()
        };
        calls::plain(&self.device, &mut arg)?;
        self.handle.store(0, Relaxed);
        Ok(())
    }

    /// `KFABRIC_IOC_BIND` of this object to another, which it holds from then
    /// on.
    pub(crate) fn bind(&self, to: u32, flags: u64, hold: Hold) -> Result<()> {
        let mut arg = abi::kfabric_bind {
            handle: self.handle(),
            to,
            flags,
            ..Call::sized()
        };
        calls::plain(&self.device, &mut arg)?;
        self.hold(hold);
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // If the kernel refuses to close an object (a duplicated descriptor
        // keeps it busy), closing the open file closes it.
        if self.handle() != 0 {
            let _ = self.close();
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle {}", self.handle())
    }
}

/// The methods that every object has; the type has a field `inner`, an `Arc` of
/// something with a field `node`.
macro_rules! object {
    ($name:ident) => {
        impl $name {
            /// The handle, for raw calls; 0 once it was closed.
            pub fn handle(&self) -> u32 {
                self.inner.node.handle()
            }

            /// Closes the object now, and returns an error if that fails.
            ///
            /// Dropping the last reference closes it too, without reporting
            /// errors, after the objects that depend on it.  After a successful
            /// close other references to it return `EBADF`.
            ///
            /// # Errors
            ///
            /// `EBUSY`: an object that still exists was made from it or is
            /// bound to it, or a thread waits on it.  It is closed later then,
            /// with the last reference.
            pub fn close(self) -> crate::error::Result<()> {
                self.inner.node.close()
            }

            #[allow(dead_code, reason = "not every object makes calls of its own")]
            pub(crate) fn device(&self) -> &crate::device::Device {
                self.inner.node.device()
            }

            #[allow(dead_code, reason = "not every object is held by others")]
            pub(crate) fn as_hold(&self) -> crate::object::Hold {
                self.inner.clone()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.inner.node)
            }
        }
    };
}
pub(crate) use object;

/// The inner part of most objects.
pub(crate) struct Inner {
    pub(crate) node: Node,
}

impl Inner {
    pub(crate) fn new(device: &Device, handle: u32, parents: Vec<Hold>) -> Arc<Self> {
        Arc::new(Self {
            node: Node::new(device, handle, parents),
        })
    }
}
