// SPDX-License-Identifier: GPL-2.0
//! Failures injected while objects are read and changed.

use super::{Made, World, sweep};
use crate::raw::{addr_of, addr_of_mut, arg, data, ipv4, text};
use kfi::{Errno, abi};

/// The result of a call that takes an element from an empty queue.
fn nothing_there(answer: Result<(), Errno>) -> Result<Made, Errno> {
    match answer {
        Err(Errno::EAGAIN) => Ok(Made::Nothing),
        Ok(()) => panic!("something was there"),
        Err(e) => Err(e),
    }
}

/// The statistics of the first object of a class.
fn stat(w: &World, object_class: u32) -> Result<Made, Errno> {
    w.does(arg!(kfabric_stat: object_class))
}

pub(super) fn looking_and_changing() {
    sweep(&[
        ("QUERY", |w| w.does(arg!(kfabric_query))),
        ("QUERY_ATOMIC", |w| {
            w.does(arg!(kfabric_query_atomic:
                domain: w.domain.handle(), ep_type: abi::KFI_EP_RDM, opcode: abi::KFABRIC_OP_ATOMIC
            ))
        }),
        ("FIGURES", |w| {
            w.does(arg!(kfabric_figures: of: abi::KFABRIC_FIGURES_NETNS))
        }),
        ("LINK_GET", |w| w.does(arg!(kfabric_link_get))),
        ("GETINFO", |w| {
            let hints = data!(kfabric_info: auth_key_size: 4, auth_key: [1, 2, 3, 4]);
            let mut infos = [abi::kfabric_info::default(); 2];
            w.does(arg!(kfabric_getinfo:
                hints: addr_of(&hints),
                infos: addr_of_mut(&mut infos), count: 2,
                info_size: size_of::<abi::kfabric_info>() as u32
            ))
        }),
        ("STAT of endpoints", |w| stat(w, abi::KFI_CLASS_EP)),
        ("STAT of completion counters", |w| {
            stat(w, abi::KFABRIC_CLASS_COMP_CNTR)
        }),
        ("STAT of counters objects", |w| {
            stat(w, abi::KFABRIC_CLASS_COUNTERS)
        }),
        ("STAT of flows", |w| stat(w, abi::KFABRIC_CLASS_FLOW)),
        ("EQ_WRITE and EQ_READ", |w| {
            let mut data = [1u8; 24];
            let buf = addr_of_mut(&mut data);
            w.call(arg!(kfabric_eq_write: eq: w.eq.handle(), buf, len: 24, event: 77))?;
            loop {
                let read = w.call(arg!(kfabric_eq_read: eq: w.eq.handle(), buf, len: 24));
                match read {
                    // It lost nothing: the call is made once more.
                    Err(Errno::ENOMEM | Errno::EFAULT) => {}
                    read => return read.map(|_| Made::Nothing),
                }
            }
        }),
        ("CNTR_WAIT", |w| {
            let wait = w.call(arg!(kfabric_cntr_wait:
                cntr: w.cntr.handle(), threshold: 5, deadline: 1
            ));
            match wait {
                Err(Errno::ETIMEDOUT) => Ok(Made::Nothing),
                Ok(_) => panic!("nobody added"),
                Err(e) => Err(e),
            }
        }),
        ("WAIT", |w| {
            let wait = w.call(arg!(kfabric_wait: wait_set: w.wait_set.handle(), deadline: 1));
            match wait {
                Err(Errno::ETIMEDOUT) => Ok(Made::Nothing),
                Ok(_) => panic!("nobody signalled"),
                Err(e) => Err(e),
            }
        }),
        ("POLL_CHANGE", |w| {
            let arg = arg!(kfabric_poll_change: poll: w.poll.handle(), handle: w.cntr.handle());
            w.call(arg)?;
            let arg = abi::kfabric_poll_change { remove: 1, ..arg };
            // The fault may occur here, too, but only once.
            w.call(arg).or_else(|_| w.call(arg)).map(|_| Made::Nothing)
        }),
        ("NOP", |w| w.does(arg!(kfabric_nop))),
        ("OPSFLAG", |w| {
            w.does(arg!(kfabric_opsflag: handle: w.a.ep.handle(), flags: abi::KFI_RECV))
        }),
        ("CNTR_READ", |w| {
            w.does(arg!(kfabric_cntr_read: cntr: w.cntr.handle()))
        }),
        ("CNTR_MODIFY", |w| {
            w.does(arg!(kfabric_cntr_modify:
                cntr: w.cntr.handle(), what: abi::KFABRIC_CNTR_SET, value: 1
            ))
        }),
        ("COMP_CNTR_CAPS", |w| {
            w.does(arg!(kfabric_comp_cntr_caps: domain: w.domain.handle()))
        }),
        ("COMP_CNTR_READ", |w| {
            w.does(arg!(kfabric_comp_cntr_read: comp_cntr: w.comp_cntr.handle()))
        }),
        ("COMP_CNTR_MODIFY", |w| {
            w.does(arg!(kfabric_comp_cntr_modify: comp_cntr: w.comp_cntr.handle(), value: 1))
        }),
        ("EQ_READERR", |w| {
            let arg = arg!(kfabric_eq_readerr: eq: w.eq.handle());
            nothing_there(w.call(arg).map(|_| ()))
        }),
        ("CQ_SIGNAL", |w| {
            w.does(arg!(kfabric_cq_signal: cq: w.a.cq.handle()))
        }),
        ("CQ_STRERROR", |w| {
            w.does(arg!(kfabric_cq_strerror: cq: w.a.cq.handle(), prov_errno: 1))
        }),
        ("CQ_READERR", |w| {
            let arg = arg!(kfabric_cq_readerr: cq: w.a.cq.handle());
            nothing_there(w.call(arg).map(|_| ()))
        }),
        ("POLL", |w| {
            let mut context = 0u64;
            w.does(arg!(kfabric_poll:
                poll: w.poll.handle(), contexts: addr_of_mut(&mut context),
                count: 1
            ))
        }),
        ("AV_INSERTSVC, AV_LOOKUP and AV_STRADDR", |w| {
            let insert = arg!(kfabric_av_insertsvc:
                av: w.a.av.handle(), node: text("127.0.0.1"), service: text("9")
            );
            let fi_addr = w.call(insert)?.fi_addr;
            let addr = w
                .call(arg!(kfabric_av_lookup: av: w.a.av.handle(), fi_addr))?
                .addr;
            w.does(arg!(kfabric_av_straddr: av: w.a.av.handle(), addr))
        }),
        ("EP_NAME, EP_OPT and EP_CANCEL", |w| {
            w.call(arg!(kfabric_ep_name: ep: w.a.ep.handle()))?;
            w.call(arg!(kfabric_ep_opt: ep: w.a.ep.handle()))?;
            let cancel = w.call(arg!(kfabric_ep_cancel: ep: w.a.ep.handle(), context: 12345));
            match cancel {
                Err(Errno::ENOENT) => Ok(Made::Nothing),
                Ok(_) => panic!("cancelled what was not posted"),
                Err(e) => Err(e),
            }
        }),
        ("AV_INSERT and AV_REMOVE", |w| {
            let open = w.call(arg!(kfabric_av_open: domain: w.domain.handle(), count: 1))?;
            let addrs = [ipv4([127, 0, 0, 1], 9); 8];
            let mut fi_addrs = [0u64; 8];
            let list = addr_of_mut(&mut fi_addrs);
            let insert = w.call(arg!(kfabric_av_insert:
                av: open.handle, addrs: addr_of(&addrs),
                fi_addrs: list, count: 8
            ));
            // Some may have been inserted before the memory ran out.
            let result = match insert {
                Ok(arg) if arg.inserted == 8 => w
                    .call(arg!(kfabric_av_remove: av: open.handle, fi_addrs: list, count: 8))
                    .map(|_| ()),
                Ok(_) => Err(Errno::ENOMEM),
                Err(e) => Err(e),
            };
            w.undo(Made::Object(open.handle));
            result.map(|()| Made::Nothing)
        }),
        ("COUNTERS_ATTACH of a static point", |w| {
            w.does(arg!(kfabric_counters_attach: counters: w.counters.handle()))
        }),
        ("COUNTERS_ATTACH of a dynamic point", |w| {
            w.does(arg!(kfabric_counters_attach:
                counters: w.dynamic.handle(), flow: w.flow.handle()
            ))
        }),
        ("COUNTERS_READ", |w| {
            let mut values = [0u64; 16];
            w.does(arg!(kfabric_counters_read:
                counters: w.counters.handle(), values: addr_of_mut(&mut values),
                count: 16
            ))
        }),
        ("EP_BIND and EP_ENABLE", |w| {
            let cq = w.call(arg!(kfabric_cq_open: domain: w.domain.handle()))?;
            let av = w.call(arg!(kfabric_av_open: domain: w.domain.handle()));
            let ep = w.call(arg!(kfabric_ep_open: domain: w.domain.handle()));
            let result = match (&av, &ep) {
                (Ok(av), Ok(ep)) => [(cq.handle, abi::KFI_SEND | abi::KFI_RECV), (av.handle, 0)]
                    .into_iter()
                    .try_for_each(|(to, flags)| {
                        w.call(arg!(kfabric_bind: handle: ep.handle, to, flags))
                            .map(|_| ())
                    })
                    .and_then(|()| w.call(arg!(kfabric_ep_enable: ep: ep.handle)).map(|_| ())),
                _ => Err(Errno::ENOMEM),
            };
            for handle in [
                ep.ok().map(|a| a.handle),
                av.ok().map(|a| a.handle),
                Some(cq.handle),
            ]
            .into_iter()
            .flatten()
            {
                w.undo(Made::Object(handle));
            }
            result.map(|()| Made::Nothing)
        }),
        ("EP_ENABLE of a scalable endpoint", |w| {
            let sep = w.call(arg!(kfabric_sep_open: domain: w.domain.handle(), rx_ctx_cnt: 8))?;
            let av = w.call(arg!(kfabric_av_open: domain: w.domain.handle(), rx_ctx_bits: 8));
            let result = av.map(|av| {
                let enabled = w
                    .call(arg!(kfabric_bind: handle: sep.handle, to: av.handle))
                    .and_then(|_| w.call(arg!(kfabric_ep_enable: ep: sep.handle)));
                (av.handle, enabled.map(|_| ()))
            });
            w.undo(Made::Object(sep.handle));
            let (av, enabled) = result?;
            w.undo(Made::Object(av));
            enabled.map(|()| Made::Nothing)
        }),
    ]);
}
