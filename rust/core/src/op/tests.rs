// SPDX-License-Identifier: GPL-2.0

//! Tests of operations: properties by kind, flag and capability.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_op))]
mod suite {
    use super::super::*;

    const ALL: [OpType; 9] = [
        OpType::Recv,
        OpType::Send,
        OpType::TRecv,
        OpType::TSend,
        OpType::Read,
        OpType::Write,
        OpType::Atomic,
        OpType::FetchAtomic,
        OpType::CompareAtomic,
    ];

    #[test]
    fn numbers_are_those_of_kfabric() {
        for (number, kind) in ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert_eq!(OpType::try_from(number as u32), Ok(*kind));
        }
        assert_eq!(OpType::try_from(9), Err(Errno::EINVAL));
        assert_eq!(OpType::try_from(u32::MAX), Err(Errno::EINVAL));
    }

    #[test]
    fn completion_flags_follow_from_the_kind() {
        assert_eq!(OpType::Recv.comp_flags(false).bits(), (1 << 1) | (1 << 10));
        assert_eq!(
            OpType::Recv.comp_flags(true).bits(),
            (1 << 1) | (1 << 10) | (1 << 17)
        );
        assert_eq!(
            OpType::TRecv.comp_flags(true).bits(),
            (1 << 3) | (1 << 10) | (1 << 17)
        );
        assert_eq!(OpType::Send.comp_flags(true).bits(), (1 << 1) | (1 << 11));
        assert_eq!(OpType::TSend.comp_flags(true).bits(), (1 << 3) | (1 << 11));
        assert_eq!(OpType::Read.comp_flags(true).bits(), (1 << 2) | (1 << 8));
        assert_eq!(OpType::Write.comp_flags(true).bits(), (1 << 2) | (1 << 9));
        assert_eq!(OpType::Atomic.comp_flags(true).bits(), (1 << 4) | (1 << 9));
        for kind in [OpType::FetchAtomic, OpType::CompareAtomic] {
            assert_eq!(kind.comp_flags(true).bits(), (1 << 4) | (1 << 8));
        }
    }

    #[test]
    fn only_writes_and_base_atomics_with_data_report_at_the_target() {
        for kind in ALL {
            assert_eq!(kind.target_comp_flags(OpFlags::EMPTY), None);
            let with = kind.target_comp_flags(OpFlags::REMOTE_CQ_DATA);
            let expected = match kind {
                OpType::Write => Some((1 << 2) | (1 << 13) | (1 << 17)),
                OpType::Atomic => Some((1 << 4) | (1 << 13) | (1 << 17)),
                _ => None,
            };
            assert_eq!(with.map(CompFlags::bits), expected);
        }
    }

    #[test]
    fn tagged_rma_accesses_a_receive() {
        let none = OpFlags::EMPTY;
        let tagged = OpFlags::TAGGED;
        for kind in ALL {
            let accepted = matches!(kind, OpType::Read | OpType::Write);
            assert_eq!(kind.flags(1 << 3, true, none).is_ok(), accepted);
            assert!(!kind.side().default_flags_allowed().contains(tagged));
        }
        let data = OpFlags::REMOTE_CQ_DATA | tagged;
        assert_eq!(OpType::Write.target_comp_flags(data), None);
        let caps = OpType::Write.caps();
        let check = |caps| OpType::Write.check_caps(caps, tagged, false);
        assert_eq!(check(caps | Caps::TAGGED), Err(Errno::EOPNOTSUPP));
        assert_eq!(check(caps | Caps::TAGGED_RMA), Err(Errno::EOPNOTSUPP));
        assert_eq!(check(caps | Caps::TAGGED | Caps::TAGGED_RMA), Ok(()));

        let read = TaggedRma::new(OpType::Read, 5).unwrap_or(TaggedRma {
            read: false,
            offset: 0,
        });
        assert_eq!((read.read, read.offset), (true, 5));
        assert_eq!(read.receive_flags().bits(), (1 << 2) | (1 << 8));
        let write = TaggedRma {
            read: false,
            ..read
        };
        assert_eq!(TaggedRma::new(OpType::Write, 5), Ok(write));
        assert_eq!(write.receive_flags().bits(), (1 << 2) | (1 << 9));
        assert_eq!(TaggedRma::COMP_FLAGS.bits(), (1 << 3) | (1 << 11));
        assert!(TaggedRma::new(OpType::Write, 1 << 30).is_ok());
        for offset in [(1 << 30) + 1, 1 << 32, u64::MAX] {
            assert_eq!(TaggedRma::new(OpType::Read, offset), Err(Errno::EINVAL));
        }
        let both = Caps::RMA | Caps::TAGGED | Caps::RECV | Caps::TAGGED_RMA;
        assert_eq!(read.target_caps(), both | Caps::REMOTE_READ);
        assert_eq!(write.target_caps(), both | Caps::REMOTE_WRITE);
    }

    #[test]
    fn flags_of_another_kind_are_refused() {
        let none = OpFlags::EMPTY;
        let inject = OpFlags::INJECT.bits();
        let data = OpFlags::REMOTE_CQ_DATA.bits();
        let multi = OpFlags::MULTI_RECV.bits();
        assert!(OpType::Send.flags(inject | data, true, none).is_ok());
        assert!(OpType::TSend.flags(inject | data, true, none).is_ok());
        assert!(OpType::Write.flags(inject | data, true, none).is_ok());
        assert_eq!(OpType::Read.flags(inject, true, none), Err(Errno::EINVAL));
        assert_eq!(OpType::Read.flags(data, true, none), Err(Errno::EINVAL));
        assert!(OpType::Atomic.flags(inject | data, true, none).is_ok());
        for kind in [OpType::FetchAtomic, OpType::CompareAtomic] {
            assert_eq!(kind.flags(inject, true, none), Ok(none));
            assert_eq!(kind.flags(0, false, OpFlags::INJECT), Ok(none));
            assert_eq!(kind.flags(data, true, none), Err(Errno::EINVAL));
        }
        assert_eq!(OpType::Recv.flags(inject, true, none), Err(Errno::EINVAL));
        assert!(OpType::Recv.flags(multi, true, none).is_ok());
        assert_eq!(OpType::TRecv.flags(multi, true, none), Err(Errno::EINVAL));
        assert_eq!(OpType::Send.flags(multi, true, none), Err(Errno::EINVAL));
        let fence = OpFlags::FENCE.bits();
        assert!(OpType::Read.flags(fence, true, none).is_ok());
        assert_eq!(OpType::TRecv.flags(fence, true, none), Err(Errno::EINVAL));
        for kind in ALL {
            assert_eq!(kind.flags(1 << 63, true, none), Err(Errno::EINVAL));
            assert_eq!(kind.flags(1 << 20, true, none), Err(Errno::EINVAL));
            assert_eq!(kind.flags(1 << 30, true, none), Err(Errno::EINVAL));
            let both = OpFlags::COMPLETION | OpFlags::MORE;
            assert_eq!(kind.flags(both.bits(), true, none), Ok(both));
        }
    }

    #[test]
    fn search_flags_go_together() {
        let none = OpFlags::EMPTY;
        let (p, c, d) = (OpFlags::PEEK, OpFlags::CLAIM, OpFlags::DISCARD);
        for good in [p, c, p | c, p | d, c | d] {
            assert_eq!(OpType::TRecv.flags(good.bits(), true, none), Ok(good));
            assert_eq!(
                OpType::Recv.flags(good.bits(), true, none),
                Err(Errno::EINVAL)
            );
            assert_eq!(
                OpType::TSend.flags(good.bits(), true, none),
                Err(Errno::EINVAL)
            );
        }
        assert_eq!(
            OpType::TRecv.flags(d.bits(), true, none),
            Err(Errno::EINVAL)
        );
        assert_eq!(
            OpType::TRecv.flags((p | c | d).bits(), true, none),
            Err(Errno::EINVAL)
        );
    }

    #[test]
    fn defaults_are_added_where_they_fit() {
        let defaults = OpFlags::COMPLETION | OpFlags::INJECT | OpFlags::DELIVERY_COMPLETE;
        assert_eq!(OpType::Send.flags(0, false, defaults), Ok(defaults));
        assert_eq!(OpType::Send.flags(0, true, defaults), Ok(OpFlags::EMPTY));
        assert_eq!(
            OpType::Read.flags(0, false, defaults),
            Ok(OpFlags::COMPLETION | OpFlags::DELIVERY_COMPLETE)
        );
        let defaults = OpFlags::MULTI_RECV;
        assert_eq!(
            OpType::Recv.flags(0, false, defaults),
            Ok(OpFlags::MULTI_RECV)
        );
        assert_eq!(OpType::TRecv.flags(0, false, defaults), Ok(OpFlags::EMPTY));
    }

    #[test]
    fn default_flags_have_a_side() {
        let tx = OpFlags::COMPLETION
            | OpFlags::INJECT
            | OpFlags::INJECT_COMPLETE
            | OpFlags::TRANSMIT_COMPLETE
            | OpFlags::DELIVERY_COMPLETE
            | OpFlags::TRIGGER;
        let rx = OpFlags::COMPLETION | OpFlags::MULTI_RECV | OpFlags::TRIGGER;
        assert_eq!(Side::Transmit.default_flags(tx.bits()), Ok(tx));
        assert_eq!(Side::Receive.default_flags(rx.bits()), Ok(rx));
        for bit in 0..64 {
            let flag = 1u64 << bit;
            assert_eq!(
                Side::Transmit.default_flags(flag).is_ok(),
                tx.bits() & flag != 0
            );
            assert_eq!(
                Side::Receive.default_flags(flag).is_ok(),
                rx.bits() & flag != 0
            );
        }
    }

    #[test]
    fn selective_completion_reports_on_request() {
        let none = OpFlags::EMPTY;
        assert!(reports_success(none, false));
        assert!(!reports_success(none, true));
        assert!(reports_success(OpFlags::COMPLETION, true));
        assert!(!reports_success(OpFlags::INJECT, false));
        assert!(!reports_success(OpFlags::INJECT, true));
        assert!(reports_success(OpFlags::INJECT | OpFlags::COMPLETION, true));
        assert!(reports_success(OpFlags::PEEK, true));
        assert!(!reports_success(OpFlags::CLAIM, true));
    }

    #[test]
    fn completion_levels_are_ordered() {
        assert_eq!(
            CompletionLevel::of(OpFlags::EMPTY),
            CompletionLevel::Transmit
        );
        assert_eq!(
            CompletionLevel::of(OpFlags::INJECT),
            CompletionLevel::Transmit
        );
        assert_eq!(
            CompletionLevel::of(OpFlags::INJECT_COMPLETE),
            CompletionLevel::Inject
        );
        assert_eq!(
            CompletionLevel::of(OpFlags::TRANSMIT_COMPLETE),
            CompletionLevel::Transmit
        );
        assert_eq!(
            CompletionLevel::of(OpFlags::DELIVERY_COMPLETE),
            CompletionLevel::Delivery
        );
        let all = OpFlags::INJECT_COMPLETE | OpFlags::TRANSMIT_COMPLETE;
        assert_eq!(CompletionLevel::of(all), CompletionLevel::Transmit);
        assert_eq!(
            CompletionLevel::of(all | OpFlags::DELIVERY_COMPLETE),
            CompletionLevel::Delivery
        );
        assert!(CompletionLevel::Inject < CompletionLevel::Transmit);
        assert!(CompletionLevel::Transmit < CompletionLevel::Delivery);
    }

    #[test]
    fn counters_and_access_follow_from_the_kind() {
        assert_eq!(OpType::TSend.counts(), CntrBind::SEND);
        assert_eq!(OpType::Send.counts(), CntrBind::SEND);
        assert_eq!(OpType::Recv.counts(), CntrBind::RECV);
        assert_eq!(OpType::TRecv.counts(), CntrBind::RECV);
        assert_eq!(OpType::Read.counts(), CntrBind::READ);
        assert_eq!(OpType::Write.counts(), CntrBind::WRITE);
        assert_eq!(OpType::Read.counts_at_target(), CntrBind::REMOTE_READ);
        assert_eq!(OpType::Write.counts_at_target(), CntrBind::REMOTE_WRITE);
        assert_eq!(OpType::TSend.counts_at_target(), CntrBind::EMPTY);
        for kind in ALL.into_iter().filter(|kind| !kind.is_atomic()) {
            // A counter's bind flags and a region's access rights are the same bits.
            assert_eq!(kind.local_access().bits(), kind.counts().bits());
            assert_eq!(kind.target_access().bits(), kind.counts_at_target().bits());
            let is_rma = matches!(kind, OpType::Read | OpType::Write);
            assert_eq!(kind.target_access().is_empty(), !is_rma);
        }
        assert_eq!(OpType::Atomic.counts(), CntrBind::WRITE);
        assert_eq!(OpType::FetchAtomic.counts(), CntrBind::READ);
        assert_eq!(OpType::CompareAtomic.counts(), CntrBind::READ);
        for kind in ALL.into_iter().filter(|kind| kind.is_atomic()) {
            assert_eq!(kind.local_access(), Access::WRITE);
            assert_eq!(
                kind.target_access(),
                Access::REMOTE_READ | Access::REMOTE_WRITE
            );
        }
        for kind in [OpType::FetchAtomic, OpType::CompareAtomic] {
            assert_eq!(kind.counts_at_target(), CntrBind::REMOTE_READ);
        }
        assert_eq!(OpType::Atomic.counts_at_target(), CntrBind::REMOTE_WRITE);
    }

    #[test]
    fn operations_without_their_capabilities_are_refused() {
        let none = OpFlags::EMPTY;
        for kind in ALL {
            assert!(kind.check_caps(Caps::ALL, none, true).is_ok());
            assert!(kind.check_caps(kind.caps(), none, false).is_ok());
            for bit in 0..64 {
                let Ok(cap) = Caps::from_bits(1 << bit) else {
                    continue;
                };
                let enough = kind.check_caps(Caps::ALL.without(cap), none, false).is_ok();
                assert_eq!(enough, !kind.caps().contains(cap));
            }
        }
        let recv = OpType::Recv.caps();
        let multi = OpFlags::MULTI_RECV;
        assert_eq!(
            OpType::Recv.check_caps(recv, multi, false),
            Err(Errno::EOPNOTSUPP)
        );
        assert!(OpType::Recv
            .check_caps(recv | Caps::MULTI_RECV, multi, false)
            .is_ok());
        assert_eq!(
            OpType::Recv.check_caps(recv, none, true),
            Err(Errno::EOPNOTSUPP)
        );
        assert!(OpType::Recv
            .check_caps(recv | Caps::DIRECTED_RECV, none, true)
            .is_ok());
        assert!(OpType::Send
            .check_caps(OpType::Send.caps(), none, true)
            .is_ok());
        assert_eq!(OpType::TSend.target_caps(), Caps::TAGGED | Caps::RECV);
        assert_eq!(OpType::Send.target_caps(), Caps::MSG | Caps::RECV);
        assert_eq!(OpType::Read.target_caps(), Caps::RMA | Caps::REMOTE_READ);
        assert_eq!(OpType::Write.target_caps(), Caps::RMA | Caps::REMOTE_WRITE);
        assert_eq!(OpType::TRecv.target_caps(), Caps::EMPTY);
        let both = Caps::REMOTE_READ | Caps::REMOTE_WRITE;
        assert_eq!(OpType::FetchAtomic.target_caps(), both);
    }

    #[test]
    fn lengths_above_the_limits_are_refused() {
        let none = OpFlags::EMPTY;
        assert!(OpType::Send.check_len(none, 1 << 30).is_ok());
        assert_eq!(
            OpType::Send.check_len(none, (1 << 30) + 1),
            Err(Errno::EMSGSIZE)
        );
        assert_eq!(OpType::Recv.check_len(none, u64::MAX), Err(Errno::EMSGSIZE));
        assert!(OpType::Write.check_len(OpFlags::INJECT, 256).is_ok());
        assert_eq!(
            OpType::Write.check_len(OpFlags::INJECT, 257),
            Err(Errno::EMSGSIZE)
        );
    }

    #[test]
    fn incomplete_capabilities_are_completed() {
        let directions = MESSAGE_DIRECTIONS | RMA_DIRECTIONS;
        let whole = |caps| expand_caps(caps, Caps::ALL);
        assert_eq!(whole(Caps::EMPTY), DEFAULT_KINDS | directions);
        assert_eq!(
            whole(Caps::SOURCE),
            DEFAULT_KINDS | directions | Caps::SOURCE
        );
        assert_eq!(whole(Caps::MSG), Caps::MSG | Caps::SEND | Caps::RECV);
        assert_eq!(whole(Caps::MSG | Caps::SEND), Caps::MSG | Caps::SEND);
        assert_eq!(whole(Caps::RMA), Caps::RMA | RMA_DIRECTIONS);
        let write = Caps::RMA | Caps::WRITE;
        assert_eq!(whole(write), write);
        assert_eq!(
            whole(write | Caps::MSG),
            write | Caps::MSG | MESSAGE_DIRECTIONS
        );
        assert_eq!(whole(Caps::SEND), Caps::SEND | Caps::MSG | Caps::TAGGED);
        assert_eq!(whole(Caps::READ), Caps::READ | Caps::RMA);
        // Capabilities that the type does not have are not added, but they are kept if they were
        // requested.
        let of = Caps::MSG | Caps::SEND;
        assert_eq!(expand_caps(Caps::EMPTY, of), of);
        assert_eq!(expand_caps(Caps::SEND, of), of);
        assert_eq!(expand_caps(Caps::READ, of), Caps::READ);
        assert_eq!(expand_caps(Caps::TAGGED, of), Caps::TAGGED | Caps::SEND);
    }
}
