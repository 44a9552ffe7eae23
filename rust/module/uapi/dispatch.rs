// SPDX-License-Identifier: GPL-2.0

//! Calls the function for the number of a call, from the table in [`calls`](super::calls).
//!
//! A command is recognised by its type and number. The size coded in it is ignored, because
//! structures grow. The table names the function below that copies the argument of a call and
//! returns its results. All but [`itself`] read the argument by the rules of the interface
//! (`shim::user::read_struct`), so the functions of the calls get complete structures of the
//! module's version.

use core::marker::PhantomData;

use kernel::ioctl::{
    _IOC_NR,
    _IOC_TYPE, //
};

use super::{
    alias,
    av,
    calls::calls,
    cntr,
    comp_cntr,
    cq,
    ep,
    eq,
    fabric,
    flow,
    info,
    mr,
    objects::{
        self,
        Entry, //
    },
    post,
    prelude::*,
    sep,
    shared,
    stat,
    wait,
    work, //
};
use crate::shim::abi::Versioned;

/// The argument of a call, in the memory of the program.
struct Arg<T>(UserPtr, PhantomData<fn(T)>);

impl<T: Versioned> Arg<T> {
    #[inline]
    fn read(&self) -> Result<(T, usize)> {
        read_struct(self.0)
    }

    #[inline]
    fn write(&self, value: &T, size: usize) -> Result {
        write_struct(self.0, value, size)
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
                $($number => $way(file, Arg::<$arg>(at, PhantomData), $file::$function),)*
                _ => Err(ENOTTY),
            }
        }
    };
    (@make $arg:ident) => {
        dispatch!(@makes $arg, |arg| arg.context);
    };
    (@make_silent $arg:ident) => {
        dispatch!(@makes $arg, |_| 0);
    };
    (@makes $arg:ident, $context:expr) => {
        impl Makes for $arg {
            fn context(&self) -> u64 {
                let context: fn(&Self) -> u64 = $context;
                context(self)
            }

            fn handle(&mut self) -> &mut u32 {
                &mut self.handle
            }
        }
    };
    (@$way:ident $arg:ident) => {};
}
calls!(dispatch);

/// For a call that returns no results.
#[link_section = ".text.hot"]
fn input<T: Versioned>(file: &OpenFile, arg: Arg<T>, call: fn(&OpenFile, &T) -> Result) -> Result {
    let (value, _) = arg.read()?;
    call(file, &value)
}

/// For a call whose results are written back if it succeeds. If they cannot be written, nothing is
/// lost.
fn query<T: Versioned>(
    file: &OpenFile,
    arg: Arg<T>,
    call: fn(&OpenFile, &mut T) -> Result,
) -> Result {
    let (mut value, size) = arg.read()?;
    call(file, &mut value)?;
    arg.write(&value, size)
}

/// As [`query`], for a call that consumes or changes something: checks before the call that the
/// argument is writable.
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

/// As [`consume`], and writes the results back even if the call fails.
#[link_section = ".text.hot"]
fn consume_always<T: Versioned>(
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

/// Writes the results back even if the call fails. If they cannot be written, nothing is lost.
#[link_section = ".text.hot"]
fn query_always<T: Versioned>(
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

/// For a call that creates an object that reports no events and has no context.
use self::make as make_silent;

/// For a call that creates an object. The object is published under its handle after the handle was
/// written to the argument, and closed again if the handle cannot be written.
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

/// For a call whose function reads and writes the argument itself.
#[link_section = ".text.hot"]
fn itself<T>(file: &OpenFile, arg: Arg<T>, call: fn(&OpenFile, UserPtr) -> Result) -> Result {
    call(file, arg.0)
}
