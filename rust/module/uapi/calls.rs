// SPDX-License-Identifier: GPL-2.0

//! The table of calls: one line for each command of `<uapi/kfabric.h>`.
//!
//! | column | content |
//! |---|---|
//! | number, command | as in the header |
//! | argument | its structure, and the size of that structure's first version, which all callers know. The size stays when the structure grows |
//! | way | how the argument is copied: a function of [`dispatch`](super::dispatch) |
//! | function | executes the call |
//!
//! [`dispatch`](super::dispatch) creates the ioctl handler from it. [`header`](super::header)
//! compares it with the header: a command that has no line here, another number, another structure,
//! or a structure shorter than its first version does not compile.

/// Calls the macro `$then` with the table.
macro_rules! calls {
    ($then:ident) => {
        $then! {
            0x00 KFABRIC_IOC_QUERY(kfabric_query: 72) query info::query;
            0x01 KFABRIC_IOC_NOP(kfabric_nop: 8) input info::nop;
            0x02 KFABRIC_IOC_LINK_ADD(kfabric_link_add: 40) input fabric::link_add;
            0x03 KFABRIC_IOC_LINK_DEL(kfabric_link_del: 24) input fabric::link_del;
            0x04 KFABRIC_IOC_LINK_GET(kfabric_link_get: 152) query fabric::link_get;
            0x05 KFABRIC_IOC_GETINFO(kfabric_getinfo: 168) query info::getinfo;
            0x06 KFABRIC_IOC_STAT(kfabric_stat: 136) query stat::stat;
            0x07 KFABRIC_IOC_FIGURES(kfabric_figures: 536) query stat::figures;

            0x08 KFABRIC_IOC_CLOSE(kfabric_close: 8) input objects::close;
            0x09 KFABRIC_IOC_GETWAIT(kfabric_getwait: 16) itself wait::getwait;
            0x0a KFABRIC_IOC_OPSFLAG(kfabric_opsflag: 24) consume ep::opsflag;
            0x0b KFABRIC_IOC_BIND(kfabric_bind: 24) input objects::bind;

            0x10 KFABRIC_IOC_FABRIC_OPEN(kfabric_fabric_open: 16) make fabric::fabric_open;
            0x11 KFABRIC_IOC_DOMAIN_OPEN(kfabric_domain_open: 40) make fabric::domain_open;
            0x12 KFABRIC_IOC_QUERY_ATOMIC(kfabric_query_atomic: 48) query fabric::query_atomic;

            0x18 KFABRIC_IOC_EQ_OPEN(kfabric_eq_open: 40) make eq::open;
            0x19 KFABRIC_IOC_EQ_READ(kfabric_eq_read: 40) itself eq::read;
            0x1a KFABRIC_IOC_EQ_READERR(kfabric_eq_readerr: 48) itself eq::readerr;
            0x1b KFABRIC_IOC_EQ_WRITE(kfabric_eq_write: 32) input eq::write;

            0x20 KFABRIC_IOC_AV_OPEN(kfabric_av_open: 40) make av::open;
            0x21 KFABRIC_IOC_AV_INSERT(kfabric_av_insert: 56) consume av::insert;
            0x22 KFABRIC_IOC_AV_INSERTSVC(kfabric_av_insertsvc: 160) consume av::insertsvc;
            0x23 KFABRIC_IOC_AV_REMOVE(kfabric_av_remove: 32) input av::remove;
            0x24 KFABRIC_IOC_AV_LOOKUP(kfabric_av_lookup: 48) query av::lookup;
            0x25 KFABRIC_IOC_AV_STRADDR(kfabric_av_straddr: 120) query av::straddr;

            0x28 KFABRIC_IOC_MR_REG(kfabric_mr_reg: 80) make mr::reg;

            0x30 KFABRIC_IOC_CQ_OPEN(kfabric_cq_open: 72) make cq::open;
            0x31 KFABRIC_IOC_CQ_READ(kfabric_cq_read: 40) itself cq::read;
            0x32 KFABRIC_IOC_CQ_READERR(kfabric_cq_readerr: 88) itself cq::readerr;
            0x33 KFABRIC_IOC_CQ_SIGNAL(kfabric_cq_signal: 8) input cq::signal;
            0x34 KFABRIC_IOC_CQ_STRERROR(kfabric_cq_strerror: 80) query cq::strerror;

            0x38 KFABRIC_IOC_CNTR_OPEN(kfabric_cntr_open: 56) make cntr::open;
            0x39 KFABRIC_IOC_CNTR_READ(kfabric_cntr_read: 24) query cntr::read;
            0x3a KFABRIC_IOC_CNTR_MODIFY(kfabric_cntr_modify: 24) input cntr::modify;
            0x3b KFABRIC_IOC_CNTR_WAIT(kfabric_cntr_wait: 40) query_always cntr::wait;

            0x40 KFABRIC_IOC_WAIT_OPEN(kfabric_wait_open: 24) make_silent wait::open;
            0x41 KFABRIC_IOC_WAIT(kfabric_wait: 16) input wait::wait;
            0x44 KFABRIC_IOC_POLL_OPEN(kfabric_poll_open: 24) make_silent wait::poll_open;
            0x45 KFABRIC_IOC_POLL_CHANGE(kfabric_poll_change: 24) input wait::poll_change;
            0x46 KFABRIC_IOC_POLL(kfabric_poll: 24) consume wait::poll;

            0x48 KFABRIC_IOC_EP_OPEN(kfabric_ep_open: 96) make ep::open;
            0x49 KFABRIC_IOC_EP_ENABLE(kfabric_ep_enable: 8) input ep::enable;
            0x4a KFABRIC_IOC_EP_NAME(kfabric_ep_name: 48) consume ep::name;
            0x4b KFABRIC_IOC_EP_CANCEL(kfabric_ep_cancel: 16) input ep::cancel;
            0x4c KFABRIC_IOC_EP_OPT(kfabric_ep_opt: 32) consume ep::opt;

            0x4d KFABRIC_IOC_EP_QP(kfabric_ep_qp: 48) query ep::qp;
            0x4e KFABRIC_IOC_EP_CONNECT_QP(kfabric_ep_connect_qp: 48) input ep::connect_qp;

            0x50 KFABRIC_IOC_POST(kfabric_post: 40) consume_always post::post;
            0x51 KFABRIC_IOC_QUEUE_WORK(kfabric_queue_work: 48) consume_always work::queue;
            0x52 KFABRIC_IOC_CANCEL_WORK(kfabric_cancel_work: 24) input work::cancel;
            0x53 KFABRIC_IOC_FLUSH_WORK(kfabric_flush_work: 24) query work::flush;
            0x54 KFABRIC_IOC_EP_ALIAS(kfabric_ep_alias: 40) make alias::open;
            0x55 KFABRIC_IOC_STX_OPEN(kfabric_stx_open: 32) make shared::open_stx;
            0x56 KFABRIC_IOC_SRX_OPEN(kfabric_srx_open: 48) make shared::open_srx;

            0x58 KFABRIC_IOC_PEP_OPEN(kfabric_pep_open: 56) make ep::pep_open;
            0x59 KFABRIC_IOC_PEP_LISTEN(kfabric_pep_listen: 8) input ep::pep_listen;
            0x5a KFABRIC_IOC_PEP_REJECT(kfabric_pep_reject: 24) input ep::pep_reject;
            0x5b KFABRIC_IOC_EP_CONNECT(kfabric_ep_connect: 56) input ep::connect;
            0x5c KFABRIC_IOC_EP_ACCEPT(kfabric_ep_accept: 32) input ep::accept;
            0x5d KFABRIC_IOC_EP_SHUTDOWN(kfabric_ep_shutdown: 16) input ep::shutdown;
            0x5e KFABRIC_IOC_EP_PEER(kfabric_ep_peer: 40) query ep::peer;

            0x60 KFABRIC_IOC_COMP_CNTR_CAPS(kfabric_comp_cntr_caps: 24) query comp_cntr::caps;
            0x61 KFABRIC_IOC_COMP_CNTR_CREATE(kfabric_comp_cntr_create: 104) make comp_cntr::create;
            0x62 KFABRIC_IOC_COMP_CNTR_MODIFY(kfabric_comp_cntr_modify: 24) input comp_cntr::modify;
            0x63 KFABRIC_IOC_COMP_CNTR_READ(kfabric_comp_cntr_read: 24) query comp_cntr::read;
            0x64 KFABRIC_IOC_COMP_CNTR_ATTACH(kfabric_comp_cntr_attach: 24) input comp_cntr::attach;
            0x68 KFABRIC_IOC_SEP_OPEN(kfabric_sep_open: 104) make sep::open;
            0x69 KFABRIC_IOC_SEP_CONTEXT(kfabric_sep_context: 56) make sep::context;
            0x70 KFABRIC_IOC_COUNTERS_OPEN(kfabric_counters_open: 32) make flow::counters_open;
            0x71 KFABRIC_IOC_COUNTERS_ATTACH(kfabric_counters_attach: 24) input flow::attach;
            0x72 KFABRIC_IOC_COUNTERS_READ(kfabric_counters_read: 32) input flow::read;
            0x73 KFABRIC_IOC_FLOW_OPEN(kfabric_flow_open: 136) make flow::open;
        }
    };
}
pub(super) use calls;
