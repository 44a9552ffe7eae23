// SPDX-License-Identifier: GPL-2.0

//! From the number of a call to the function that does it, by the table of [`calls`](super::calls).
//!
//! A command is recognised by its type and number; the size coded in it is not looked at, because
//! structures grow. An argument travels in one of the ways below, each of which is a function here;
//! the table names the way of each call:
//!
//! - [`input`]: nothing comes back;
//! - [`query`]: results are written back if the call succeeds, and failing to do so costs nothing;
//! - [`consume`]: as `query`, for calls that take something away or change something: the argument
//!   is proven writable before that;
//! - [`report`]: as `consume`, and results are written back even if the call fails;
//! - [`tell`]: results are written back even if the call fails, and failing to do so costs nothing;
//! - [`make`]: the call makes an object, which is published under its handle once the program has
//!   been told the handle, and closed again if it cannot be told;
//! - [`make_silent`]: as `make`, for objects that report no events and have no context;
//! - [`itself`]: the function of the call reads and writes its argument itself.
//!
//! All but the last read the argument by the rules of the interface (`shim::user::read_struct`), so
//! the functions of the calls see whole structures of the module's own size.

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
    bind,
    calls::calls,
    cntr,
    cq,
    ep,
    eq,
    fabric,
    figures,
    file::OpenFile,
    info,
    link,
    mr,
    objects,
    objects::Entry,
    pep,
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

    /// As [`read_struct`].
    #[inline]
    fn read(&self) -> Result<(T, usize)> {
        read_struct(self.at)
    }

    /// As [`write_struct`].
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

        /// Does the call `command` with the argument at `at`. Process context, sleeps.
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

/// See the list above.
#[link_section = ".text.hot"]
fn input<T: Versioned>(file: &OpenFile, arg: Arg<T>, call: fn(&OpenFile, &T) -> Result) -> Result {
    let (value, _) = arg.read()?;
    call(file, &value)
}

/// See the list above.
fn query<T: Versioned>(
    file: &OpenFile,
    arg: Arg<T>,
    call: fn(&OpenFile, &mut T) -> Result,
) -> Result {
    let (mut value, size) = arg.read()?;
    call(file, &mut value)?;
    arg.write(&value, size)
}

/// See the list above.
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

/// See the list above.
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

/// See the list above.
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

/// The argument of a call that makes an object.
trait Makes: Versioned {
    /// The caller's context of the object.
    fn context(&self) -> u64;
    /// Where the handle goes.
    fn handle(&mut self) -> &mut u32;
}

use self::make as make_silent;

/// See the list above.
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
        // Nothing of the program's knows the object, but a peer may: it can have guessed the key of a
        // region. The close waits for that peer, unless the caller is being killed.
        if entry.close().is_err() {
            entry.force_close();
        }
        return Err(error);
    }
    handle.publish(entry.clone());
    entry.published();
    Ok(())
}

/// See the list above.
#[link_section = ".text.hot"]
fn itself<T>(file: &OpenFile, arg: Arg<T>, call: fn(&OpenFile, UserPtr) -> Result) -> Result {
    call(file, arg.at)
}
