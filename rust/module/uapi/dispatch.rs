// SPDX-License-Identifier: GPL-2.0

//! Calls the function for the number of a call, from the table in [`calls`](super::calls).
//!
//! A command is recognised by its type and number. The size coded in it is ignored, because
//! structures grow. Each function of the following list copies the argument of a call in its own
//! way; the table names the function:
//!
//! - [`input`]: returns no results.
//! - [`query`]: writes results back if the call succeeds. If they cannot be written, nothing is
//!   lost.
//! - [`consume`]: as `query`, for calls that consume or change something: it checks before the call
//!   that the argument is writable.
//! - [`report`]: as `consume`, and writes results back even if the call fails.
//! - [`tell`]: writes results back even if the call fails. If they cannot be written, nothing is
//!   lost.
//! - [`make`]: the call creates an object. The object is published under its handle after the
//!   handle was written to the argument, and closed again if the handle cannot be written.
//! - [`make_silent`]: as `make`, for objects that report no events and have no context.
//! - [`itself`]: the function of the call reads and writes the argument itself.
//!
//! All but the last read the argument by the rules of the interface (`shim::user::read_struct`), so
//! the functions of the calls get complete structures of the module's version.

use core::marker::PhantomData;

use kernel::{
    ioctl::{
        _IOC_NR,
        _IOC_TYPE, //
    },
    prelude::*, //
};

use super::{
    av,
    calls::calls,
    cntr,
    cq,
    ep,
    eq,
    fabric,
    file::OpenFile,
    info,
    link,
    mr,
    objects::{
        self,
        Entry, //
    },
    post,
    stat,
    wait, //
};
use crate::{
    provider::object::Ident,
    shim::{
        abi::Versioned,
        bindings::*,
        user::{
            read_struct,
            write_struct, //
        }, //
    }, //
};

/// The argument of a call, in the memory of the program.
struct Arg<T> {
    at: UserPtr,
    _is: PhantomData<fn(T)>,
}

impl<T: Versioned> Arg<T> {
    fn new(at: UserPtr) -> Self {
        Self {
            at,
            _is: PhantomData,
        }
    }

    /// The same as [`read_struct`].
    #[inline]
    fn read(&self) -> Result<(T, usize)> {
        read_struct(self.at)
    }

    /// The same as [`write_struct`].
    #[inline]
    fn write(&self, value: &T, size: usize) -> Result {
        write_struct(self.at, value, size)
    }
}

macro_rules! dispatch {
    ($(
        $number:literal $command:ident ($arg:ident: $v1:literal) $way:ident $file:ident::$function:ident;
    )*) => {
        $(
            impl Versioned for $arg {
                const V1_SIZE: usize = $v1;

                #[inline]
                fn size(&self) -> u32 {
                    self.size
                }

                #[inline]
                fn set_size(&mut self, size: u32) {
                    self.size = size;
                }
            }

            dispatch!(@$way $arg);
        )*

        /// Executes the call `command` with the argument at `at`. Process context; sleeps.
        pub(super) fn dispatch(file: &OpenFile, command: u32, at: UserPtr) -> Result {
            if _IOC_TYPE(command) != KFABRIC_IOC_TYPE {
                return Err(ENOTTY);
            }
            match _IOC_NR(command) {
                $($number => $way(file, Arg::<$arg>::new(at), $file::$function),)*
                _ => Err(ENOTTY),
            }
        }
    };
    (@make $arg:ident) => {
        impl Makes for $arg {
            fn context(&self) -> u64 {
                self.context
            }

            fn handle(&mut self) -> &mut u32 {
                &mut self.handle
            }
        }
    };
    (@make_silent $arg:ident) => {
        impl Makes for $arg {
            fn context(&self) -> u64 {
                0
            }

            fn handle(&mut self) -> &mut u32 {
                &mut self.handle
            }
        }
    };
    (@$way:ident $arg:ident) => {};
}
calls!(dispatch);

/// See the documentation of this file.
#[link_section = ".text.hot"]
fn input<T: Versioned>(file: &OpenFile, arg: Arg<T>, call: fn(&OpenFile, &T) -> Result) -> Result {
    let (value, _) = arg.read()?;
    call(file, &value)
}

/// See the documentation of this file.
fn query<T: Versioned>(
    file: &OpenFile,
    arg: Arg<T>,
    call: fn(&OpenFile, &mut T) -> Result,
) -> Result {
    let (mut value, size) = arg.read()?;
    call(file, &mut value)?;
    arg.write(&value, size)
}

/// See the documentation of this file.
#[link_section = ".text.hot"]
fn consume<T: Versioned>(
    file: &OpenFile,
    arg: Arg<T>,
    call: fn(&OpenFile, &mut T) -> Result,
) -> Result {
    let (mut value, size) = arg.read()?;
    arg.write(&value, size)?;
    call(file, &mut value)?;
    arg.write(&value, size)
}

/// See the documentation of this file.
#[link_section = ".text.hot"]
fn report<T: Versioned>(
    file: &OpenFile,
    arg: Arg<T>,
    call: fn(&OpenFile, &mut T) -> Result,
) -> Result {
    let (mut value, size) = arg.read()?;
    arg.write(&value, size)?;
    let result = call(file, &mut value);
    arg.write(&value, size)?;
    result
}

/// See the documentation of this file.
#[link_section = ".text.hot"]
fn tell<T: Versioned>(
    file: &OpenFile,
    arg: Arg<T>,
    call: fn(&OpenFile, &mut T) -> Result,
) -> Result {
    let (mut value, size) = arg.read()?;
    let result = call(file, &mut value);
    arg.write(&value, size)?;
    result
}

/// The argument of a call that creates an object.
trait Makes: Versioned {
    /// The context that the caller gives the object.
    fn context(&self) -> u64;
    /// The field for the handle.
    fn handle(&mut self) -> &mut u32;
}

use self::make as make_silent;

/// See the documentation of this file.
fn make<T: Makes, O: Into<Entry>>(
    file: &OpenFile,
    arg: Arg<T>,
    call: fn(&OpenFile, &mut T, Ident) -> Result<O>,
) -> Result {
    let (mut value, size) = arg.read()?;
    let handle = file.handles().reserve()?;
    let ident = file.ident(handle.number(), value.context());
    let entry: Entry = call(file, &mut value, ident)?.into();
    *value.handle() = handle.number();
    if let Err(error) = arg.write(&value, size) {
        // The program does not know the object, but a peer may have guessed the key of a region.
        // The close waits for that peer, unless the caller is being killed.
        if entry.close().is_err() {
            entry.force_close();
        }
        return Err(error);
    }
    handle.publish(entry.clone());
    entry.published();
    Ok(())
}

/// See the documentation of this file.
#[link_section = ".text.hot"]
fn itself<T>(file: &OpenFile, arg: Arg<T>, call: fn(&OpenFile, UserPtr) -> Result) -> Result {
    call(file, arg.at)
}
