// SPDX-License-Identifier: GPL-2.0
//! Failures injected while objects are read and changed.

use super::{Made, World, sockaddr, sweep};
use kfi::{
    Errno,
    abi::{self, Call},
};
use std::ffi::c_char;

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
    let arg = abi::kfabric_stat {
        object_class,
        ..Call::sized()
    };
    w.call(arg).map(|_| Made::Nothing)
}

pub(super) fn looking_and_changing() {
    sweep(&[
        ("QUERY", |w| {
            w.call(abi::kfabric_query::sized()).map(|_| Made::Nothing)
        }),
        ("QUERY_ATOMIC", |w| {
            let arg = abi::kfabric_query_atomic {
                domain: w.domain.handle(),
                ep_type: abi::KFI_EP_RDM,
                opcode: abi::KFABRIC_OP_ATOMIC,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("FIGURES", |w| {
            let arg = abi::kfabric_figures {
                of: abi::KFABRIC_FIGURES_NETNS,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("LINK_GET", |w| {
            w.call(abi::kfabric_link_get::sized())
                .map(|_| Made::Nothing)
        }),
        ("GETINFO", |w| {
            let hints = abi::kfabric_info {
                auth_key_size: 4,
                auth_key: [1, 2, 3, 4],
                ..Default::default()
            };
            let mut infos = [abi::kfabric_info::default(); 2];
            let arg = abi::kfabric_getinfo {
                hints: (&raw const hints).expose_provenance() as u64,
                infos: (&raw mut infos).expose_provenance() as u64,
                count: 2,
                info_size: size_of::<abi::kfabric_info>() as u32,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
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
            let buf = (&raw mut data).expose_provenance() as u64;
            w.call(abi::kfabric_eq_write {
                eq: w.eq.handle(),
                buf,
                len: 24,
                event: 77,
                ..Call::sized()
            })?;
            loop {
                let read = w.call(abi::kfabric_eq_read {
                    eq: w.eq.handle(),
                    buf,
                    len: 24,
                    ..Call::sized()
                });
                match read {
                    // It lost nothing: the call is made once more.
                    Err(Errno::ENOMEM | Errno::EFAULT) => {}
                    read => return read.map(|_| Made::Nothing),
                }
            }
        }),
        ("CNTR_WAIT", |w| {
            let wait = w.call(abi::kfabric_cntr_wait {
                cntr: w.cntr.handle(),
                threshold: 5,
                deadline: 1,
                ..Call::sized()
            });
            match wait {
                Err(Errno::ETIMEDOUT) => Ok(Made::Nothing),
                Ok(_) => panic!("nobody added"),
                Err(e) => Err(e),
            }
        }),
        ("WAIT", |w| {
            let wait = w.call(abi::kfabric_wait {
                wait_set: w.wait_set.handle(),
                deadline: 1,
                ..Call::sized()
            });
            match wait {
                Err(Errno::ETIMEDOUT) => Ok(Made::Nothing),
                Ok(_) => panic!("nobody signalled"),
                Err(e) => Err(e),
            }
        }),
        ("POLL_CHANGE", |w| {
            let arg = abi::kfabric_poll_change {
                poll: w.poll.handle(),
                handle: w.cntr.handle(),
                ..Call::sized()
            };
            w.call(arg)?;
            let arg = abi::kfabric_poll_change { remove: 1, ..arg };
            // The fault may occur here, too, but only once.
            w.call(arg).or_else(|_| w.call(arg)).map(|_| Made::Nothing)
        }),
        ("NOP", |w| {
            w.call(abi::kfabric_nop::sized()).map(|_| Made::Nothing)
        }),
        ("OPSFLAG", |w| {
            let arg = abi::kfabric_opsflag {
                handle: w.a.ep.handle(),
                flags: abi::KFI_RECV,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("CNTR_READ", |w| {
            let arg = abi::kfabric_cntr_read {
                cntr: w.cntr.handle(),
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("CNTR_MODIFY", |w| {
            let arg = abi::kfabric_cntr_modify {
                cntr: w.cntr.handle(),
                what: abi::KFABRIC_CNTR_SET,
                value: 1,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("COMP_CNTR_CAPS", |w| {
            let arg = abi::kfabric_comp_cntr_caps {
                domain: w.domain.handle(),
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("COMP_CNTR_READ", |w| {
            let arg = abi::kfabric_comp_cntr_read {
                comp_cntr: w.comp_cntr.handle(),
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("COMP_CNTR_MODIFY", |w| {
            let arg = abi::kfabric_comp_cntr_modify {
                comp_cntr: w.comp_cntr.handle(),
                value: 1,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("EQ_READERR", |w| {
            let arg = abi::kfabric_eq_readerr {
                eq: w.eq.handle(),
                ..Call::sized()
            };
            nothing_there(w.call(arg).map(|_| ()))
        }),
        ("CQ_SIGNAL", |w| {
            let arg = abi::kfabric_cq_signal {
                cq: w.a.cq.handle(),
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("CQ_STRERROR", |w| {
            let arg = abi::kfabric_cq_strerror {
                cq: w.a.cq.handle(),
                prov_errno: 1,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("CQ_READERR", |w| {
            let arg = abi::kfabric_cq_readerr {
                cq: w.a.cq.handle(),
                ..Call::sized()
            };
            nothing_there(w.call(arg).map(|_| ()))
        }),
        ("POLL", |w| {
            let mut context = 0u64;
            let arg = abi::kfabric_poll {
                poll: w.poll.handle(),
                contexts: (&raw mut context).expose_provenance() as u64,
                count: 1,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("AV_INSERTSVC, AV_LOOKUP and AV_STRADDR", |w| {
            let mut insert = abi::kfabric_av_insertsvc {
                av: w.a.av.handle(),
                ..Call::sized()
            };
            insert.node[..9].copy_from_slice(&b"127.0.0.1".map(|b| b as c_char));
            insert.service[..1].copy_from_slice(&b"9".map(|b| b as c_char));
            let fi_addr = w.call(insert)?.fi_addr;
            let addr = w
                .call(abi::kfabric_av_lookup {
                    av: w.a.av.handle(),
                    fi_addr,
                    ..Call::sized()
                })?
                .addr;
            w.call(abi::kfabric_av_straddr {
                av: w.a.av.handle(),
                addr,
                ..Call::sized()
            })
            .map(|_| Made::Nothing)
        }),
        ("EP_NAME, EP_OPT and EP_CANCEL", |w| {
            w.call(abi::kfabric_ep_name {
                ep: w.a.ep.handle(),
                ..Call::sized()
            })?;
            w.call(abi::kfabric_ep_opt {
                ep: w.a.ep.handle(),
                ..Call::sized()
            })?;
            let cancel = w.call(abi::kfabric_ep_cancel {
                ep: w.a.ep.handle(),
                context: 12345,
                ..Call::sized()
            });
            match cancel {
                Err(Errno::ENOENT) => Ok(Made::Nothing),
                Ok(_) => panic!("cancelled what was not posted"),
                Err(e) => Err(e),
            }
        }),
        ("AV_INSERT and AV_REMOVE", |w| {
            let open = w.call(abi::kfabric_av_open {
                domain: w.domain.handle(),
                count: 1,
                ..Call::sized()
            })?;
            let addrs = [sockaddr("127.0.0.1:9".parse().expect("address")); 8];
            let mut fi_addrs = [0u64; 8];
            let list = (&raw mut fi_addrs).expose_provenance() as u64;
            let insert = w.call(abi::kfabric_av_insert {
                av: open.handle,
                addrs: (&raw const addrs).expose_provenance() as u64,
                fi_addrs: list,
                count: 8,
                ..Call::sized()
            });
            // Some may have been inserted before the memory ran out.
            let result = match insert {
                Ok(arg) if arg.inserted == 8 => w
                    .call(abi::kfabric_av_remove {
                        av: open.handle,
                        fi_addrs: list,
                        count: 8,
                        ..Call::sized()
                    })
                    .map(|_| ()),
                Ok(_) => Err(Errno::ENOMEM),
                Err(e) => Err(e),
            };
            w.undo(Made::Object(open.handle));
            result.map(|()| Made::Nothing)
        }),
        ("COUNTERS_ATTACH of a static point", |w| {
            w.call(abi::kfabric_counters_attach {
                counters: w.counters.handle(),
                ..Call::sized()
            })
            .map(|_| Made::Nothing)
        }),
        ("COUNTERS_ATTACH of a dynamic point", |w| {
            w.call(abi::kfabric_counters_attach {
                counters: w.dynamic.handle(),
                flow: w.flow.handle(),
                ..Call::sized()
            })
            .map(|_| Made::Nothing)
        }),
        ("COUNTERS_READ", |w| {
            let mut values = [0u64; 16];
            w.call(abi::kfabric_counters_read {
                counters: w.counters.handle(),
                values: (&raw mut values).expose_provenance() as u64,
                count: 16,
                ..Call::sized()
            })
            .map(|_| Made::Nothing)
        }),
        ("EP_BIND and EP_ENABLE", |w| {
            let cq = w.call(abi::kfabric_cq_open {
                domain: w.domain.handle(),
                ..Call::sized()
            })?;
            let av = w.call(abi::kfabric_av_open {
                domain: w.domain.handle(),
                ..Call::sized()
            });
            let ep = w.call(abi::kfabric_ep_open {
                domain: w.domain.handle(),
                ..Call::sized()
            });
            let result = match (&av, &ep) {
                (Ok(av), Ok(ep)) => [(cq.handle, abi::KFI_SEND | abi::KFI_RECV), (av.handle, 0)]
                    .into_iter()
                    .try_for_each(|(to, flags)| {
                        w.call(abi::kfabric_bind {
                            handle: ep.handle,
                            to,
                            flags,
                            ..Call::sized()
                        })
                        .map(|_| ())
                    })
                    .and_then(|()| {
                        w.call(abi::kfabric_ep_enable {
                            ep: ep.handle,
                            ..Call::sized()
                        })
                        .map(|_| ())
                    }),
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
            let sep = w.call(abi::kfabric_sep_open {
                domain: w.domain.handle(),
                rx_ctx_cnt: 8,
                ..Call::sized()
            })?;
            let av = w.call(abi::kfabric_av_open {
                domain: w.domain.handle(),
                rx_ctx_bits: 8,
                ..Call::sized()
            });
            let result = av.map(|av| {
                let enabled = w
                    .call(abi::kfabric_bind {
                        handle: sep.handle,
                        to: av.handle,
                        ..Call::sized()
                    })
                    .and_then(|_| {
                        w.call(abi::kfabric_ep_enable {
                            ep: sep.handle,
                            ..Call::sized()
                        })
                    });
                (av.handle, enabled.map(|_| ()))
            });
            w.undo(Made::Object(sep.handle));
            let (av, enabled) = result?;
            w.undo(Made::Object(av));
            enabled.map(|()| Made::Nothing)
        }),
    ]);
}
