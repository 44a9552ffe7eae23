// SPDX-License-Identifier: GPL-2.0

//! Tests of offers: the entries for various hints.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_offer))]
mod suite {
    use super::super::*;
    use crate::auth_key::AuthKey;
    use core::net::Ipv4Addr;

    fn link() -> SockAddr {
        SockAddr::v4(Ipv4Addr::new(10, 0, 0, 1), 0)
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap_or(Name::EMPTY)
    }

    fn offer() -> Offer {
        Offer {
            fabric_name: name("fab"),
            prov_name: name("prov"),
            prov_version: 3,
            ..Offer::new(Kind::RDM, link().with_port(9), name("roce0"))
        }
    }

    /// Returns the result for hints that are empty except for `change`.
    fn ask(change: impl FnOnce(&mut Info)) -> Result<Info, HintMismatch> {
        let mut hints = Info::ANY;
        change(&mut hints);
        offer().negotiate(&Request::ANY, &hints)
    }

    #[test]
    fn empty_hints_match() -> Result<(), HintMismatch> {
        let info = ask(|_| ())?;
        // Only a hint gives an endpoint this one.
        let caps = Kind::RDM.caps.without(Caps::TAGGED_RMA);
        assert_eq!(info.caps, caps.bits());
        assert_eq!(info.mode, 0);
        assert_eq!(info.addr_format, 2);
        assert_eq!(info.src_addr, Some(link()));
        assert_eq!(info.dest_addr, None);
        assert_eq!(info.tx.caps & Caps::RECV.bits(), 0);
        assert_eq!(info.rx.caps & Caps::SEND.bits(), 0);
        assert_eq!(info.tx.caps | info.rx.caps, info.caps);
        assert_eq!(info.tx.op_flags, OpFlags::COMPLETION.bits());
        assert_eq!(info.rx.op_flags, OpFlags::COMPLETION.bits());
        assert_eq!(info.tx.inject_size, 256);
        assert_eq!((info.tx.size, info.rx.size), (256, 256));
        assert_eq!((info.tx.iov_limit, info.tx.rma_iov_limit), (256, 256));
        assert_eq!((info.rx.iov_limit, info.domain.mr_iov_limit), (256, 256));
        assert_eq!(info.rx.total_buffered_recv, 1 << 20);
        assert_eq!((info.ep.ep_type, info.ep.protocol), (3, 7));
        assert_eq!(info.ep.max_msg_size, 1 << 30);
        assert_eq!(info.ep.mem_tag_format, 0xaaaa_aaaa_aaaa_aaaa);
        assert_eq!(info.domain.name, name("roce0"));
        assert_eq!(info.domain.threading, 1);
        assert_eq!(
            (info.domain.control_progress, info.domain.data_progress),
            (1, 1)
        );
        assert_eq!(info.domain.resource_mgmt, 1);
        assert_eq!(info.domain.av_type, 2);
        assert_eq!(info.domain.mr_mode, 0);
        assert_eq!((info.domain.mr_key_size, info.domain.cq_data_size), (4, 8));
        assert_eq!(info.fabric.name, name("fab"));
        assert_eq!(info.fabric.prov_name, name("prov"));
        assert_eq!(info.fabric.prov_version, 3);
        assert_eq!(info.fabric.api_version, (1 << 16) | 7);
        // An entry used as hints gives the same entry again.
        assert_eq!(offer().negotiate(&Request::ANY, &info), Ok(info));
        Ok(())
    }

    #[test]
    fn acceptable_hints_match() {
        let is = |change: fn(&mut Info), holds: fn(&Info) -> bool| {
            ask(change).is_ok_and(|info| holds(&info))
        };
        assert!(is(|i| i.tx.size = 16_384, |i| i.tx.size == 16_384));
        assert!(is(|i| i.rx.size = 1, |i| i.rx.size == 1));
        assert!(is(|i| i.tx.inject_size = 8, |i| i.tx.inject_size == 256));
        assert!(is(|i| i.mode = u64::MAX, |i| i.mode == 0));
        assert!(is(|i| i.addr_format = 1, |i| i.addr_format == 2));
        assert!(is(
            |i| i.ep.mem_tag_format = 5,
            |i| i.ep.mem_tag_format == 5
        ));
        assert!(is(|i| i.domain.av_type = 1, |i| i.domain.av_type == 1));
        assert!(is(
            |i| i.domain.mr_key_size = 2,
            |i| i.domain.mr_key_size == 2
        ));
        assert!(is(
            |i| i.domain.mr_mode = u32::MAX,
            |i| i.domain.mr_mode == 0x18
        ));
        assert!(is(|i| i.domain.threading = 5, |i| i.domain.threading == 1));
        assert!(is(
            |i| i.domain.data_progress = 2,
            |i| i.domain.data_progress == 1
        ));
        assert!(is(
            |i| i.domain.resource_mgmt = 1,
            |i| i.domain.resource_mgmt == 1
        ));
        assert!(is(
            |i| i.tx.op_flags = 1 << 28,
            |i| i.tx.op_flags == 1 << 28
        ));
        assert!(is(
            |i| i.rx.msg_order = 1 << 8,
            |i| i.rx.msg_order == Kind::RDM.msg_order.bits()
        ));
        assert!(is(
            |i| i.fabric.api_version = 1 << 16,
            |i| i.fabric.api_version == 1 << 16
        ));
    }

    #[test]
    fn capabilities_are_completed() {
        let caps = |hint: Caps| ask(|i| i.caps = hint.bits()).map(|i| i.caps);
        let all = Caps::MSG | Caps::SEND | Caps::RECV | REACH;
        assert_eq!(caps(Caps::MSG), Ok(all.bits()));
        let send = Caps::MSG | Caps::SEND | REACH;
        assert_eq!(caps(Caps::MSG | Caps::SEND), Ok(send.bits()));
        assert_eq!(caps(Caps::MSG | Caps::REMOTE_COMM), Ok(all.bits()));
        let tagged_rma = Caps::TAGGED_RMA | Caps::TAGGED | Caps::RMA;
        let directions = Caps::READ | Caps::WRITE | Caps::REMOTE_READ | Caps::REMOTE_WRITE;
        let whole = tagged_rma | directions | Caps::SEND | Caps::RECV | REACH;
        assert_eq!(caps(tagged_rma), Ok(whole.bits()));
        assert_eq!(caps(Caps::MSG | Caps::MULTICAST), Err(HintMismatch::Caps));
        let named = Caps::MSG | Caps::NAMED_RX_CTX;
        assert_eq!(caps(named), Ok((all | Caps::NAMED_RX_CTX).bits()));
        assert_eq!(
            caps(Caps::MSG | Caps::TRIGGER),
            Ok((all | Caps::TRIGGER).bits())
        );
        assert_eq!(ask(|i| i.caps = 1 << 63).err(), Some(HintMismatch::Caps));

        let tx = |hint: u64| ask(|i| i.tx.caps = hint).map(|i| i.tx.caps);
        assert_eq!(tx(Caps::MSG.bits()), Ok((Caps::MSG | Caps::SEND).bits()));
        assert_eq!(tx(Caps::RECV.bits()), Err(HintMismatch::TxCaps));
        assert_eq!(tx(1 << 63), Err(HintMismatch::TxCaps));
        let atomic = Caps::ATOMIC | Caps::READ | Caps::WRITE;
        assert_eq!(tx(Caps::ATOMIC.bits()), Ok(atomic.bits()));
        let rx = |hint: u64| ask(|i| i.rx.caps = hint).map(|i| i.rx.caps);
        assert_eq!(rx(Caps::MSG.bits()), Ok((Caps::MSG | Caps::RECV).bits()));
        assert_eq!(rx(Caps::SEND.bits()), Err(HintMismatch::RxCaps));
        // A kind without a direction on one side is accepted if the hint has a direction.
        let read = (Caps::RMA | Caps::READ).bits();
        let info = ask(|i| i.caps = read);
        assert_eq!(info.map(|i| i.rx.caps), Ok((Caps::RMA | REACH).bits()));
        let again = info.and_then(|info| offer().negotiate(&Request::ANY, &info));
        assert_eq!(again, info);
        // No more than the endpoint has.
        let more = ask(|i| {
            i.caps = Caps::MSG.bits();
            i.tx.caps = Caps::TAGGED.bits();
        });
        assert_eq!(more.err(), Some(HintMismatch::TxCaps));
    }

    #[test]
    fn unacceptable_hints_are_refused() {
        let no =
            |mismatch: HintMismatch, change: fn(&mut Info)| ask(change).err() == Some(mismatch);
        assert!(no(HintMismatch::AddrFormat, |i| i.addr_format = 3));
        assert!(no(HintMismatch::AddrFormat, |i| i.addr_format = 4));
        assert!(no(HintMismatch::TxOpFlags, |i| i.tx.op_flags = 1 << 16));
        assert!(no(HintMismatch::TxMsgOrder, |i| i.tx.msg_order = 1 << 3));
        assert!(no(HintMismatch::TxMsgOrder, |i| i.tx.msg_order = 1 << 16));
        assert!(no(HintMismatch::TxCompOrder, |i| i.tx.comp_order = 1));
        assert!(no(HintMismatch::TxInjectSize, |i| i.tx.inject_size = 257));
        assert!(no(HintMismatch::TxSize, |i| i.tx.size = 16_385));
        assert!(no(HintMismatch::TxIovLimit, |i| i.tx.iov_limit = 257));
        assert!(no(HintMismatch::TxRmaIovLimit, |i| i.tx.rma_iov_limit = 257));
        assert!(no(HintMismatch::RxOpFlags, |i| i.rx.op_flags = 1 << 25));
        assert!(no(HintMismatch::RxMsgOrder, |i| i.rx.msg_order = 1 << 6));
        assert!(no(HintMismatch::RxCompOrder, |i| i.rx.comp_order = 1));
        assert!(no(HintMismatch::RxTotalBufferedRecv, |i| {
            i.rx.total_buffered_recv = (64 << 20) + 1;
        }));
        assert!(no(HintMismatch::RxSize, |i| i.rx.size = 16_385));
        assert!(no(HintMismatch::RxIovLimit, |i| i.rx.iov_limit = 257));
        assert!(no(HintMismatch::EpType, |i| i.ep.ep_type = 1));
        assert!(no(HintMismatch::EpType, |i| i.ep.ep_type = 2));
        assert!(no(HintMismatch::Protocol, |i| i.ep.protocol = 1));
        assert!(no(HintMismatch::ProtocolVersion, |i| i
            .ep
            .protocol_version =
            2));
        assert!(no(HintMismatch::MaxMsgSize, |i| i.ep.max_msg_size =
            (1 << 30) + 1));
        assert!(no(HintMismatch::AuthKeySize, |i| i.ep.auth_key_size = 5));
        assert!(no(HintMismatch::DomainName, |i| i.domain.name = name("roce1")));
        assert!(no(HintMismatch::Threading, |i| i.domain.threading = 6));
        assert!(no(HintMismatch::Progress, |i| i.domain.control_progress = 3));
        assert!(no(HintMismatch::Progress, |i| i.domain.data_progress = 3));
        // Resource management is not offered, because completions of multi-receive buffers and
        // remote CQ data can be lost.
        assert!(no(HintMismatch::ResourceMgmt, |i| i.domain.resource_mgmt = 2));
        assert!(no(HintMismatch::ResourceMgmt, |i| i.domain.resource_mgmt = 3));
        assert!(no(HintMismatch::AvType, |i| i.domain.av_type = 3));
        assert!(no(HintMismatch::MrKeySize, |i| i.domain.mr_key_size = 5));
        assert!(no(HintMismatch::CqDataSize, |i| i.domain.cq_data_size = 9));
        assert!(no(HintMismatch::CqCnt, |i| i.domain.cq_cnt = 65_536));
        assert!(no(HintMismatch::EpCnt, |i| i.domain.ep_cnt = 65_536));
        assert!(no(HintMismatch::CntrCnt, |i| i.domain.cntr_cnt = 65_536));
        assert!(no(HintMismatch::MrCnt, |i| i.domain.mr_cnt = 65_536));
        assert!(no(HintMismatch::MrIovLimit, |i| i.domain.mr_iov_limit = 257));
        assert!(no(HintMismatch::FabricName, |i| i.fabric.name = name("fabric")));
        assert!(no(HintMismatch::ProvName, |i| i.fabric.prov_name = name("pro")));
        assert!(no(HintMismatch::ApiVersion, |i| i.fabric.api_version =
            (1 << 16) | 8));
        assert_eq!(Errno::from(HintMismatch::Caps), Errno::ENODATA);
    }

    #[test]
    fn addresses_must_match() {
        let asks = |flags: u64, node: &str, service: &str| {
            let request = Request::new(0, flags, node.as_bytes(), service.as_bytes());
            let request = request.unwrap_or(Request::ANY);
            offer().negotiate(&request, &Info::ANY)
        };
        let src = |node: &str, service: &str| {
            asks(flags::KFI_SOURCE, node, service).map(|info| info.src_addr)
        };
        assert_eq!(src("10.0.0.1", "80"), Ok(Some(link().with_port(80))));
        assert_eq!(src("0.0.0.0", "80"), Ok(Some(link().with_port(80))));
        assert_eq!(src("", "80"), Ok(Some(link().with_port(80))));
        assert_eq!(src("10.0.0.1", ""), Ok(Some(link())));
        assert_eq!(src("10.0.0.2", "80"), Err(HintMismatch::SrcAddr));
        assert_eq!(src("::", "80"), Err(HintMismatch::SrcAddr));
        let dest = asks(0, "10.0.0.2", "80");
        let peer = SockAddr::v4(Ipv4Addr::new(10, 0, 0, 2), 80);
        assert_eq!(
            dest.map(|info| (info.src_addr, info.dest_addr)),
            Ok((Some(link()), Some(peer)))
        );
        assert_eq!(asks(0, "::1", "80").err(), Some(HintMismatch::DestAddr));
        // Hints count if the request has no address.
        let hint = ask(|i| {
            i.src_addr = Some(link().with_port(81));
            i.dest_addr = Some(link().with_port(82));
        });
        assert_eq!(
            hint.map(|info| (info.src_addr, info.dest_addr)),
            Ok((Some(link().with_port(81)), Some(link().with_port(82))))
        );
    }

    /// Returns the result for hints for another endpoint type.
    fn ask_for(kind: Kind, change: impl FnOnce(&mut Info)) -> Result<Info, HintMismatch> {
        let mut hints = Info::ANY;
        change(&mut hints);
        Offer { kind, ..offer() }.negotiate(&Request::ANY, &hints)
    }

    #[test]
    fn hints_for_connected_endpoints() {
        let ask = |change: fn(&mut Info)| ask_for(Kind::MSG, change);
        let info = ask(|i| i.ep.ep_type = 1);
        assert_eq!(info, ask(|_| ()));
        let Ok(info) = info else {
            return;
        };
        assert_eq!(info.caps, Kind::MSG.caps.bits());
        assert_eq!((info.ep.ep_type, info.ep.protocol), (1, 1));
        assert_eq!(info.ep.max_msg_size, 1 << 30);
        assert_eq!(info.domain.cq_data_size, 4);
        assert_eq!(info.rx.total_buffered_recv, 0);
        assert_eq!((info.tx.iov_limit, info.tx.rma_iov_limit), (256, 1));
        assert_eq!(
            ask(|i| i.caps = Caps::TAGGED.bits()),
            Err(HintMismatch::Caps)
        );
        let both = ask(|i| i.caps = Caps::SEND.bits()).map(|i| i.caps);
        let reach = Caps::LOCAL_COMM | Caps::REMOTE_COMM;
        assert_eq!(both, Ok((Caps::MSG | Caps::SEND | reach).bits()));
        assert_eq!(ask(|i| i.ep.ep_type = 3), Err(HintMismatch::EpType));
        assert_eq!(
            ask(|i| i.domain.cq_data_size = 5),
            Err(HintMismatch::CqDataSize)
        );
        assert_eq!(
            ask(|i| i.tx.rma_iov_limit = 2),
            Err(HintMismatch::TxRmaIovLimit)
        );
        let buffered = ask(|i| i.rx.total_buffered_recv = 1);
        assert_eq!(buffered, Err(HintMismatch::RxTotalBufferedRecv));
    }

    #[test]
    fn hints_for_datagram_endpoints() -> Result<(), HintMismatch> {
        let kind = Kind {
            max_msg_size: 1024,
            ..Kind::DGRAM
        };
        let ask = |change: fn(&mut Info)| ask_for(kind, change);
        let info = ask(|i| i.ep.max_msg_size = 1024)?;
        assert_eq!(info.caps, Kind::DGRAM.caps.bits());
        assert_eq!((info.ep.ep_type, info.ep.protocol), (2, 3));
        assert_eq!(info.ep.max_msg_size, 1024);
        assert_eq!((info.tx.msg_order, info.tx.rma_iov_limit), (0, 0));
        assert_eq!(
            ask(|i| i.ep.max_msg_size = 1025),
            Err(HintMismatch::MaxMsgSize)
        );
        assert_eq!(ask(|i| i.caps = Caps::RMA.bits()), Err(HintMismatch::Caps));
        assert_eq!(
            ask(|i| i.tx.msg_order = 1 << 8),
            Err(HintMismatch::TxMsgOrder)
        );
        assert_eq!(
            ask(|i| i.tx.op_flags = 1 << 28),
            Err(HintMismatch::TxOpFlags)
        );
        assert!(ask(|i| i.tx.op_flags = 1 << 27).is_ok());
        Ok(())
    }

    #[test]
    fn reliable_datagrams_have_a_key_if_it_is_given() {
        let key = AuthKey::new([1, 2, 3, 4]);
        let ask = |kind, size| {
            ask_for(kind, |info| {
                info.ep.auth_key_size = size;
                info.ep.auth_key = key;
            })
        };
        let given =
            |kind, size| ask(kind, size).map(|info| (info.ep.auth_key_size, info.ep.auth_key));
        assert_eq!(given(Kind::RDM, 0), Ok((0, AuthKey::NONE)));
        assert_eq!(given(Kind::RDM, 4), Ok((4, key)));
        for kind in [Kind::MSG, Kind::DGRAM] {
            assert_eq!(given(kind, 0), Ok((0, AuthKey::NONE)));
        }
        for (kind, size) in [
            (Kind::RDM, 1),
            (Kind::RDM, 3),
            (Kind::RDM, 5),
            (Kind::RDM, u64::MAX),
            (Kind::MSG, 4),
            (Kind::DGRAM, 4),
        ] {
            assert_eq!(given(kind, size), Err(HintMismatch::AuthKeySize));
        }
        // An entry used as hints gives the same entry again.
        let entry = ask(Kind::RDM, 4);
        assert_eq!(
            entry.and_then(|entry| ask_for(Kind::RDM, |info| *info = entry)),
            entry
        );
    }

    #[test]
    fn a_context_has_capabilities_of_its_side() {
        let caps = Kind::RDM.caps;
        let tx = |caps: Caps, hint: Caps| {
            let hint = TxAttr {
                caps: hint.bits(),
                ..TxAttr::default()
            };
            Kind::RDM.tx(caps, &hint).map(|attr| attr.caps)
        };
        let rx = |caps: Caps, hint: Caps| {
            let hint = RxAttr {
                caps: hint.bits(),
                ..RxAttr::default()
            };
            Kind::RDM.rx(caps, &hint).map(|attr| attr.caps)
        };
        assert_eq!(tx(caps, Caps::EMPTY), Ok((caps & TX_CAPS).bits()));
        assert_eq!(rx(caps, Caps::EMPTY), Ok((caps & RX_CAPS).bits()));
        // A transmit context may say that it sends to contexts.
        let named = Caps::MSG | Caps::NAMED_RX_CTX;
        assert_eq!(tx(caps, named), Ok((named | Caps::SEND).bits()));
        assert_eq!(rx(caps, named), Ok((named | Caps::RECV).bits()));
        // No more than the scalable endpoint has.
        let sends = Caps::MSG | Caps::SEND;
        assert_eq!(tx(sends, Caps::TAGGED), Err(HintMismatch::TxCaps));
        assert_eq!(rx(sends, Caps::RECV), Err(HintMismatch::RxCaps));
    }

    #[test]
    fn a_link_can_be_named_instead_of_its_address() {
        let ask = |node: &[u8]| {
            let request = Request::new(0, flags::KFI_SOURCE, node, b"988");
            let request = request.unwrap_or(Request::ANY);
            let entry = offer().negotiate(&request, &Info::ANY);
            entry.map(|info| info.src_addr)
        };
        assert_eq!(ask(b"roce0"), Ok(Some(link().with_port(988))));
        assert_eq!(ask(b"0x0a000001"), Ok(Some(link().with_port(988))));
        assert_eq!(ask(b"roce1"), Err(HintMismatch::SrcAddr));
        assert_eq!(ask(b"roce"), Err(HintMismatch::SrcAddr));
        assert_eq!(ask(b"0x0a000002"), Err(HintMismatch::SrcAddr));
    }

    #[test]
    fn hints_of_kfilnd_match() {
        let caps = Caps::MSG
            | Caps::RMA
            | Caps::SEND
            | Caps::RECV
            | Caps::READ
            | Caps::WRITE
            | Caps::REMOTE_READ
            | Caps::REMOTE_WRITE
            | Caps::MULTI_RECV
            | Caps::REMOTE_COMM
            | Caps::NAMED_RX_CTX
            | Caps::TAGGED
            | Caps::TAGGED_RMA
            | Caps::DIRECTED_RECV;
        let mut hints = Info::ANY;
        hints.caps = caps.bits();
        hints.tx.op_flags = OpFlags::COMPLETION.bits();
        hints.tx.iov_limit = 256;
        hints.tx.rma_iov_limit = 256;
        hints.rx.op_flags = (OpFlags::COMPLETION | OpFlags::MULTI_RECV).bits();
        hints.rx.iov_limit = 256;
        hints.ep.max_msg_size = 1 << 20;
        hints.domain.mr_iov_limit = 256;
        hints.domain.mr_key_size = 4;
        hints.domain.resource_mgmt = ResourceMgmt::Disabled.into();
        hints.fabric.prov_version = (1 << 16) | 1;
        // Its node is the name of an interface, its service the number of an LNet network.
        let request = Request::new(0, flags::KFI_SOURCE, b"roce0", b"988");
        let request = request.unwrap_or(Request::ANY);
        let entry = offer().negotiate(&request, &hints);
        assert_eq!(entry.map(|info| info.caps), Ok((caps | REACH).bits()));
        assert_eq!(entry.map(|info| info.ep.ep_type), Ok(3));
        assert_eq!(entry.map(|info| info.domain.mr_key_size), Ok(4));
        let src = entry.map(|info| info.src_addr);
        assert_eq!(src, Ok(Some(link().with_port(988))));
        // And what it gives its contexts.
        let tx = TxAttr {
            op_flags: (OpFlags::COMPLETION | OpFlags::TRANSMIT_COMPLETE).bits(),
            size: 512,
            iov_limit: 256,
            rma_iov_limit: 256,
            ..TxAttr::default()
        };
        assert_eq!(Kind::RDM.tx(caps, &tx).map(|tx| tx.size), Ok(512));
    }
}
