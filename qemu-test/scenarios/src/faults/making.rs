// SPDX-License-Identifier: GPL-2.0
//! Failures injected while objects are made.

use super::{Made, sweep};
use crate::{
    host::LINK,
    raw::{addr_of, arg, data, text},
};
use kfi::{Errno, abi};
use std::os::fd::AsRawFd;

pub(super) fn making_objects() {
    sweep(&[
        ("FABRIC_OPEN", |w| w.makes(arg!(kfabric_fabric_open))),
        ("DOMAIN_OPEN", |w| {
            w.makes(arg!(kfabric_domain_open:
                fabric: w.fabric.handle(), link: text(LINK)
            ))
        }),
        ("EQ_OPEN", |w| {
            w.makes(arg!(kfabric_eq_open:
                fabric: w.fabric.handle(), wait_obj: abi::KFI_WAIT_QUEUE
            ))
        }),
        ("AV_OPEN", |w| {
            w.makes(arg!(kfabric_av_open: domain: w.domain.handle()))
        }),
        ("CQ_OPEN", |w| {
            w.makes(arg!(kfabric_cq_open:
                domain: w.domain.handle(), wait_obj: abi::KFI_WAIT_QUEUE
            ))
        }),
        ("CNTR_OPEN", |w| {
            w.makes(arg!(kfabric_cntr_open:
                domain: w.domain.handle(), wait_obj: abi::KFI_WAIT_SET,
                wait_set: w.wait_set.handle()
            ))
        }),
        ("COMP_CNTR_CREATE", |w| {
            w.makes(arg!(kfabric_comp_cntr_create: domain: w.domain.handle()))
        }),
        ("COMP_CNTR_CREATE in memory of the program", |w| {
            let at = |offset| data!(kfabric_memory_location: ptr: w.buffer.addr() + offset);
            w.makes(arg!(kfabric_comp_cntr_create:
                domain: w.domain.handle(), flags: abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM,
                comp_cntr_ext_mem: at(0), err_cntr_ext_mem: at(4096)
            ))
        }),
        ("COMP_CNTR_CREATE in a DMA-BUF", |w| {
            let at = |offset| {
                data!(kfabric_memory_location:
                    fd: w.dma_buf.fd.as_raw_fd(), offset, type_: abi::KFABRIC_MEMORY_LOCATION_DMABUF
                )
            };
            w.makes(arg!(kfabric_comp_cntr_create:
                domain: w.domain.handle(), flags: abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM,
                comp_cntr_ext_mem: at(0), err_cntr_ext_mem: at(8)
            ))
        }),
        ("COMP_CNTR_ATTACH", |w| {
            let ep = w.call(arg!(kfabric_ep_open: domain: w.domain.handle()))?;
            let attach = arg!(kfabric_comp_cntr_attach:
                ep: ep.handle, comp_cntr: w.comp_cntr.handle(), op_mask: 0x3f
            );
            match w.call(attach) {
                Ok(_) => Ok(Made::Object(ep.handle)),
                Err(errno) => {
                    w.undo(Made::Object(ep.handle));
                    Err(errno)
                }
            }
        }),
        ("WAIT_OPEN", |w| {
            w.makes(arg!(kfabric_wait_open:
                fabric: w.fabric.handle(), wait_obj: abi::KFI_WAIT_QUEUE
            ))
        }),
        ("POLL_OPEN", |w| {
            w.makes(arg!(kfabric_poll_open: domain: w.domain.handle()))
        }),
        ("EP_OPEN", |w| {
            w.makes(arg!(kfabric_ep_open:
                domain: w.domain.handle(), type_: abi::KFI_EP_RDM, auth_key: [1, 2, 3, 4]
            ))
        }),
        ("SEP_OPEN and SEP_CONTEXT", |w| {
            let sep = w.call(arg!(kfabric_sep_open:
                domain: w.domain.handle(), auth_key: [1, 2, 3, 4]
            ))?;
            for receive in [0, 1] {
                let context = w.call(arg!(kfabric_sep_context: sep: sep.handle, receive));
                match context {
                    Ok(context) => w.undo(Made::Object(context.handle)),
                    Err(errno) => {
                        w.undo(Made::Object(sep.handle));
                        return Err(errno);
                    }
                }
            }
            Ok(Made::Object(sep.handle))
        }),
        ("MR_REG", |w| {
            let iov = abi::kfabric_iov {
                addr: w.buffer.addr(),
                len: w.buffer.len() as u64,
            };
            w.makes(arg!(kfabric_mr_reg:
                domain: w.domain.handle(), iov: addr_of(&iov),
                iov_count: 1, access: abi::KFI_SEND, requested_key: 1
            ))
        }),
        ("COUNTERS_OPEN", |w| {
            w.makes(arg!(kfabric_counters_open: domain: w.domain.handle(), count: 256))
        }),
        ("FLOW_OPEN", |w| {
            w.makes(arg!(kfabric_flow_open:
                ep: w.dgram.handle(), counters: w.counters.handle()
            ))
        }),
        ("FLOW_OPEN and CLOSE", |w| {
            let flow = w.call(arg!(kfabric_flow_open: ep: w.dgram.handle()))?;
            let close = arg!(kfabric_close: handle: flow.handle);
            w.call(close).inspect_err(|errno| {
                // It needs no memory; only its argument can be inaccessible.
                assert_eq!(*errno, Errno::EFAULT, "close of a flow");
                w.call(close).expect("close it again");
            })?;
            Ok(Made::Nothing)
        }),
        ("GETWAIT of a counter", |w| {
            let arg = w.call(arg!(kfabric_getwait: handle: w.cntr.handle()))?;
            Ok(Made::Fd(arg.fd))
        }),
        ("GETWAIT of a CQ", |w| {
            let arg = w.call(arg!(kfabric_getwait: handle: w.a.cq.handle()))?;
            Ok(Made::Fd(arg.fd))
        }),
        ("GETWAIT of an EQ", |w| {
            let arg = w.call(arg!(kfabric_getwait: handle: w.eq.handle()))?;
            Ok(Made::Fd(arg.fd))
        }),
        ("GETWAIT of a wait set", |w| {
            let arg = w.call(arg!(kfabric_getwait: handle: w.wait_set.handle()))?;
            Ok(Made::Fd(arg.fd))
        }),
        ("LINK_ADD", |w| {
            w.call(arg!(kfabric_link_add: name: text("faulty"), netdev: text("fault0")))
                .map(|arg| Made::Link(arg.name))
                .or_else(|e| match e {
                    // There is no such interface: the call goes as far as it can
                    // without one.
                    Errno::ENODEV => Ok(Made::Nothing),
                    e => Err(e),
                })
        }),
    ]);
}
