// SPDX-License-Identifier: GPL-2.0
//! Failures injected while objects are made.

use super::{Made, name, sweep};
use crate::host::LINK;
use kfi::{
    Errno,
    abi::{self, Call},
};
use std::os::fd::AsRawFd;

pub(super) fn making_objects() {
    sweep(&[
        ("FABRIC_OPEN", |w| {
            let arg = w.call(abi::kfabric_fabric_open::sized())?;
            Ok(Made::Object(arg.handle))
        }),
        ("DOMAIN_OPEN", |w| {
            let arg = w.call(abi::kfabric_domain_open {
                fabric: w.fabric.handle(),
                link: name(LINK),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("EQ_OPEN", |w| {
            let arg = w.call(abi::kfabric_eq_open {
                fabric: w.fabric.handle(),
                wait_obj: abi::KFI_WAIT_QUEUE,
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("AV_OPEN", |w| {
            let arg = w.call(abi::kfabric_av_open {
                domain: w.domain.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("CQ_OPEN", |w| {
            let arg = w.call(abi::kfabric_cq_open {
                domain: w.domain.handle(),
                wait_obj: abi::KFI_WAIT_QUEUE,
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("CNTR_OPEN", |w| {
            let arg = w.call(abi::kfabric_cntr_open {
                domain: w.domain.handle(),
                wait_obj: abi::KFI_WAIT_SET,
                wait_set: w.wait_set.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("COMP_CNTR_CREATE", |w| {
            let arg = w.call(abi::kfabric_comp_cntr_create {
                domain: w.domain.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("COMP_CNTR_CREATE in memory of the program", |w| {
            let at = |offset| abi::kfabric_memory_location {
                ptr: w.buffer.addr() + offset,
                ..Default::default()
            };
            let arg = w.call(abi::kfabric_comp_cntr_create {
                domain: w.domain.handle(),
                flags: abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM,
                comp_cntr_ext_mem: at(0),
                err_cntr_ext_mem: at(4096),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("COMP_CNTR_CREATE in a DMA-BUF", |w| {
            let at = |offset| abi::kfabric_memory_location {
                fd: w.dma_buf.fd.as_raw_fd(),
                offset,
                type_: abi::KFABRIC_MEMORY_LOCATION_DMABUF,
                ..Default::default()
            };
            let arg = w.call(abi::kfabric_comp_cntr_create {
                domain: w.domain.handle(),
                flags: abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM,
                comp_cntr_ext_mem: at(0),
                err_cntr_ext_mem: at(8),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("COMP_CNTR_ATTACH", |w| {
            let ep = w.call(abi::kfabric_ep_open {
                domain: w.domain.handle(),
                ..Call::sized()
            })?;
            let attach = abi::kfabric_comp_cntr_attach {
                ep: ep.handle,
                comp_cntr: w.comp_cntr.handle(),
                op_mask: 0x3f,
                ..Call::sized()
            };
            match w.call(attach) {
                Ok(_) => Ok(Made::Object(ep.handle)),
                Err(errno) => {
                    w.undo(Made::Object(ep.handle));
                    Err(errno)
                }
            }
        }),
        ("WAIT_OPEN", |w| {
            let arg = w.call(abi::kfabric_wait_open {
                fabric: w.fabric.handle(),
                wait_obj: abi::KFI_WAIT_QUEUE,
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("POLL_OPEN", |w| {
            let arg = w.call(abi::kfabric_poll_open {
                domain: w.domain.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("EP_OPEN", |w| {
            let arg = w.call(abi::kfabric_ep_open {
                domain: w.domain.handle(),
                type_: abi::KFI_EP_RDM,
                auth_key: [1, 2, 3, 4],
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("SEP_OPEN and SEP_CONTEXT", |w| {
            let sep = w.call(abi::kfabric_sep_open {
                domain: w.domain.handle(),
                auth_key: [1, 2, 3, 4],
                ..Call::sized()
            })?;
            for receive in [0, 1] {
                let context = w.call(abi::kfabric_sep_context {
                    sep: sep.handle,
                    receive,
                    ..Call::sized()
                });
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
            let arg = w.call(abi::kfabric_mr_reg {
                domain: w.domain.handle(),
                iov: (&raw const iov).expose_provenance() as u64,
                iov_count: 1,
                access: abi::KFI_SEND,
                requested_key: 1,
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("COUNTERS_OPEN", |w| {
            let arg = w.call(abi::kfabric_counters_open {
                domain: w.domain.handle(),
                count: 256,
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("FLOW_OPEN", |w| {
            let arg = w.call(abi::kfabric_flow_open {
                ep: w.dgram.handle(),
                counters: w.counters.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("FLOW_OPEN and CLOSE", |w| {
            let flow = w.call(abi::kfabric_flow_open {
                ep: w.dgram.handle(),
                ..Call::sized()
            })?;
            let close = abi::kfabric_close {
                handle: flow.handle,
                ..Call::sized()
            };
            w.call(close).inspect_err(|errno| {
                // It needs no memory; only its argument can be inaccessible.
                assert_eq!(*errno, Errno::EFAULT, "close of a flow");
                w.call(close).expect("close it again");
            })?;
            Ok(Made::Nothing)
        }),
        ("GETWAIT of a counter", |w| {
            let arg = w.call(abi::kfabric_getwait {
                handle: w.cntr.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Fd(arg.fd))
        }),
        ("GETWAIT of a CQ", |w| {
            let arg = w.call(abi::kfabric_getwait {
                handle: w.a.cq.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Fd(arg.fd))
        }),
        ("GETWAIT of an EQ", |w| {
            let arg = w.call(abi::kfabric_getwait {
                handle: w.eq.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Fd(arg.fd))
        }),
        ("GETWAIT of a wait set", |w| {
            let arg = w.call(abi::kfabric_getwait {
                handle: w.wait_set.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Fd(arg.fd))
        }),
        ("LINK_ADD", |w| {
            w.call(abi::kfabric_link_add {
                name: name("faulty"),
                netdev: name("fault0"),
                ..Call::sized()
            })
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
