// SPDX-License-Identifier: GPL-2.0

//! From the number of a call to the function that does it: one line per call.
//!
//! A command is recognised by its type and number; the size coded in it is not looked at, because
//! structures grow. The six ways in which an argument travels are the six functions below; each
//! call says which is its own:
//!
//! - [`input`]: nothing comes back;
//! - [`query`]: results are written back if the call succeeds, and failing to do so costs nothing;
//! - [`consume`]: as `query`, for calls that take something away or change something: the argument
//!   is proven writable before that;
//! - [`report`]: as `consume`, and results are written back even if the call fails;
//! - [`tell`]: results are written back even if the call fails, and failing to do so costs nothing;
//! - [`make`]: the call makes an object, which is published under its handle once the program has
//!   been told the handle, and closed again if it cannot be told.
//!
//! All of them read the argument by the rules of the interface (`shim::user::read_struct`), so
//! the functions of the calls see whole structures of the module's own size.

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

/// Does the call `command` with the argument at `arg`. Process context, sleeps.
pub(super) fn dispatch(file: &OpenFile, command: u32, arg: UserPtr) -> Result {
    if _IOC_TYPE(command) != KFABRIC_IOC_TYPE {
        return Err(ENOTTY);
    }
    match _IOC_NR(command) {
        KFABRIC_NR_POST => report(file, arg, post::post),
        KFABRIC_NR_CQ_READ => cq::read(file, arg),

        KFABRIC_NR_QUERY => query(file, arg, info::query),
        KFABRIC_NR_NOP => input(file, arg, info::nop),
        KFABRIC_NR_LINK_ADD => input(file, arg, link::add),
        KFABRIC_NR_LINK_DEL => input(file, arg, link::del),
        KFABRIC_NR_LINK_GET => query(file, arg, link::get),
        KFABRIC_NR_GETINFO => query(file, arg, info::getinfo),
        KFABRIC_NR_STAT => query(file, arg, stat::stat),
        KFABRIC_NR_FIGURES => query(file, arg, figures::figures),

        KFABRIC_NR_CLOSE => input(file, arg, objects::close),
        KFABRIC_NR_GETWAIT => wait::getwait(file, arg),
        KFABRIC_NR_OPSFLAG => consume(file, arg, ep::opsflag),
        KFABRIC_NR_BIND => input(file, arg, bind::bind),

        KFABRIC_NR_FABRIC_OPEN => make(file, arg, fabric::fabric_open),
        KFABRIC_NR_DOMAIN_OPEN => make(file, arg, fabric::domain_open),

        KFABRIC_NR_EQ_OPEN => make(file, arg, eq::open),
        KFABRIC_NR_EQ_READ => eq::read(file, arg),
        KFABRIC_NR_EQ_READERR => eq::readerr(file, arg),
        KFABRIC_NR_EQ_WRITE => input(file, arg, eq::write),

        KFABRIC_NR_AV_OPEN => make(file, arg, av::open),
        KFABRIC_NR_AV_INSERT => consume(file, arg, av::insert),
        KFABRIC_NR_AV_INSERTSVC => consume(file, arg, av::insertsvc),
        KFABRIC_NR_AV_REMOVE => input(file, arg, av::remove),
        KFABRIC_NR_AV_LOOKUP => query(file, arg, av::lookup),
        KFABRIC_NR_AV_STRADDR => query(file, arg, av::straddr),

        KFABRIC_NR_MR_REG => make(file, arg, mr::reg),

        KFABRIC_NR_CQ_OPEN => make(file, arg, cq::open),
        KFABRIC_NR_CQ_READERR => cq::readerr(file, arg),
        KFABRIC_NR_CQ_SIGNAL => input(file, arg, cq::signal),
        KFABRIC_NR_CQ_STRERROR => query(file, arg, cq::strerror),

        KFABRIC_NR_CNTR_OPEN => make(file, arg, cntr::open),
        KFABRIC_NR_CNTR_READ => query(file, arg, cntr::read),
        KFABRIC_NR_CNTR_MODIFY => input(file, arg, cntr::modify),
        KFABRIC_NR_CNTR_WAIT => tell(file, arg, cntr::wait),

        KFABRIC_NR_WAIT_OPEN => make(file, arg, wait::open),
        KFABRIC_NR_WAIT => input(file, arg, wait::wait),
        KFABRIC_NR_POLL_OPEN => make(file, arg, wait::poll_open),
        KFABRIC_NR_POLL_CHANGE => input(file, arg, wait::poll_change),
        KFABRIC_NR_POLL => consume(file, arg, wait::poll),

        KFABRIC_NR_EP_OPEN => make(file, arg, ep::open),
        KFABRIC_NR_EP_ENABLE => input(file, arg, ep::enable),
        KFABRIC_NR_EP_NAME => consume(file, arg, ep::name),
        KFABRIC_NR_EP_CANCEL => input(file, arg, ep::cancel),
        KFABRIC_NR_EP_OPT => consume(file, arg, ep::opt),
        KFABRIC_NR_EP_QP => query(file, arg, ep::qp),
        KFABRIC_NR_EP_CONNECT_QP => input(file, arg, ep::connect_qp),
        KFABRIC_NR_EP_CONNECT => input(file, arg, ep::connect),
        KFABRIC_NR_EP_ACCEPT => input(file, arg, ep::accept),
        KFABRIC_NR_EP_SHUTDOWN => input(file, arg, ep::shutdown),
        KFABRIC_NR_EP_PEER => query(file, arg, ep::peer),

        KFABRIC_NR_PEP_OPEN => make(file, arg, pep::open),
        KFABRIC_NR_PEP_LISTEN => input(file, arg, pep::listen),
        KFABRIC_NR_PEP_REJECT => input(file, arg, pep::reject),

        _ => Err(ENOTTY),
    }
}

/// See the module's story.
#[link_section = ".text.hot"]
fn input<T: Versioned>(file: &OpenFile, arg: UserPtr, call: fn(&OpenFile, &T) -> Result) -> Result {
    let (value, _) = read_struct(arg)?;
    call(file, &value)
}

/// See the module's story.
fn query<T: Versioned>(
    file: &OpenFile,
    arg: UserPtr,
    call: fn(&OpenFile, &mut T) -> Result,
) -> Result {
    let (mut value, size) = read_struct(arg)?;
    call(file, &mut value)?;
    write_struct(arg, &value, size)
}

/// See the module's story.
#[link_section = ".text.hot"]
fn consume<T: Versioned>(
    file: &OpenFile,
    arg: UserPtr,
    call: fn(&OpenFile, &mut T) -> Result,
) -> Result {
    let (mut value, size) = read_struct(arg)?;
    write_struct(arg, &value, size)?;
    call(file, &mut value)?;
    write_struct(arg, &value, size)
}

/// See the module's story.
#[link_section = ".text.hot"]
fn report<T: Versioned>(
    file: &OpenFile,
    arg: UserPtr,
    call: fn(&OpenFile, &mut T) -> Result,
) -> Result {
    let (mut value, size) = read_struct(arg)?;
    write_struct(arg, &value, size)?;
    let result = call(file, &mut value);
    write_struct(arg, &value, size)?;
    result
}

/// See the module's story.
#[link_section = ".text.hot"]
fn tell<T: Versioned>(
    file: &OpenFile,
    arg: UserPtr,
    call: fn(&OpenFile, &mut T) -> Result,
) -> Result {
    let (mut value, size) = read_struct(arg)?;
    let result = call(file, &mut value);
    write_struct(arg, &value, size)?;
    result
}

/// The argument of a call that makes an object.
trait Makes: Versioned {
    /// The caller's context of the object.
    fn context(&self) -> u64;
    /// Where the handle goes.
    fn handle(&mut self) -> &mut u32;
}

macro_rules! makes {
    ($( $ty:ty: $context:expr; )*) => {
        $(
            impl Makes for $ty {
                fn context(&self) -> u64 {
                    let context: fn(&Self) -> u64 = $context;
                    context(self)
                }

                fn handle(&mut self) -> &mut u32 {
                    &mut self.handle
                }
            }
        )*
    };
}

makes! {
    kfabric_fabric_open: |arg| arg.context;
    kfabric_domain_open: |arg| arg.context;
    kfabric_eq_open: |arg| arg.context;
    kfabric_av_open: |arg| arg.context;
    kfabric_mr_reg: |arg| arg.context;
    kfabric_cq_open: |arg| arg.context;
    kfabric_cntr_open: |arg| arg.context;
    kfabric_ep_open: |arg| arg.context;
    kfabric_pep_open: |arg| arg.context;
    // These report no events, so nobody would see a context.
    kfabric_wait_open: |_| 0;
    kfabric_poll_open: |_| 0;
}

/// See the module's story.
fn make<T: Makes, O: Into<Entry>>(
    file: &OpenFile,
    arg: UserPtr,
    call: fn(&OpenFile, &mut T, Ident) -> Result<O>,
) -> Result {
    let (mut value, size) = read_struct::<T>(arg)?;
    let handle = file.handles().reserve()?;
    let ident = file.ident(handle.number(), value.context());
    let entry: Entry = call(file, &mut value, ident)?.into();
    *value.handle() = handle.number();
    if let Err(error) = write_struct(arg, &value, size) {
        // Nobody has been told of the object, so nothing of the program's can use it.
        entry.force_close();
        return Err(error);
    }
    handle.publish(entry.clone());
    entry.published();
    Ok(())
}
