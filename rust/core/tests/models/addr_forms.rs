// SPDX-License-Identifier: GPL-2.0
//! Property tests: socket addresses in bytes and text, compared with the standard library.

use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr,
    SocketAddr,
    SocketAddrV6, //
};
use kfi_core::{
    addr::{
        parse_service,
        SockAddr,
        DGRAM_QPN,
        RAW_LEN,
        TEXT_MAX, //
    },
    errno::Errno, //
};
use proptest::prelude::*;

fn ip() -> impl Strategy<Value = IpAddr> {
    let v4 = any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    let segment = prop_oneof![2 => Just(0u16), 1 => any::<u16>(), 1 => Just(0xffff)];
    let v6 = prop::array::uniform8(segment).prop_map(|segments| IpAddr::V6(segments.into()));
    let local = (0xfe60u16..0xfee0, any::<u64>()).prop_map(|(high, low)| {
        let bits = (u128::from(high) << 112) | u128::from(low);
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    });
    prop_oneof![v4, v6, local]
}

fn text(addr: &SockAddr) -> String {
    let mut buf = [0xff; TEXT_MAX];
    let len = addr.straddr(&mut buf);
    assert_eq!(buf[len - 1], 0);
    String::from_utf8(buf[..len - 1].to_vec()).unwrap()
}

proptest! {
    #[test]
    fn an_address_converts_to_every_form_and_back(ip in ip(), port in any::<u16>(), scope in 0u32..4) {
        let addr = match ip {
            IpAddr::V4(ip) => SockAddr::v4(ip, port),
            IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => {
                prop_assert_eq!(SockAddr::v6(ip, port, scope), Err(Errno::EINVAL));
                return Ok(());
            }
            IpAddr::V6(ip) => {
                let addr = SockAddr::v6(ip, port, scope).unwrap();
                let local = ip.is_unicast_link_local()
                    || (ip.is_multicast() && ip.octets()[1] & 0xf == 2);
                prop_assert_eq!(addr.scope(), if local { scope } else { 0 });
                addr
            }
        };
        prop_assert_eq!(SockAddr::from_raw(&addr.to_raw()), Ok(addr));
        prop_assert_eq!(addr.ip(), ip);
        prop_assert_eq!(addr.port(), port);
        prop_assert_eq!(addr.is_loopback(), ip.is_loopback());

        // The text is that of std, except for the prefix.
        let (family, standard) = match ip {
            IpAddr::V4(_) => ("in", SocketAddr::new(ip, port)),
            IpAddr::V6(ip) => ("in6", SocketAddrV6::new(ip, port, 0, addr.scope()).into()),
        };
        prop_assert_eq!(text(&addr), format!("fi_sockaddr_{family}://{standard}"));

        let node = match addr.scope() {
            0 => ip.to_string(),
            scope => format!("{ip}%{scope}"),
        };
        let service = port.to_string();
        prop_assert_eq!(SockAddr::parse(node.as_bytes(), service.as_bytes()), Ok(addr));
    }

    #[test]
    fn every_length_of_buffer_is_filled(ip in ip(), port in any::<u16>(), len in 0..TEXT_MAX) {
        let addr = match ip {
            IpAddr::V4(ip) => Ok(SockAddr::v4(ip, port)),
            IpAddr::V6(ip) => SockAddr::v6(ip, port, 0),
        };
        let Ok(addr) = addr else { return Ok(()) };
        let whole = text(&addr);
        let mut buf = vec![0xff; len];
        prop_assert_eq!(addr.straddr(&mut buf), whole.len() + 1);
        if let Some(room) = len.checked_sub(1) {
            let part = room.min(whole.len());
            prop_assert_eq!(&buf[..part], &whole.as_bytes()[..part]);
            prop_assert_eq!(buf[part], 0);
            prop_assert!(buf[part + 1..].iter().all(|byte| *byte == 0xff));
        }
    }

    #[test]
    fn valid_bytes_are_parsed_and_others_refused(
        family in prop_oneof![4 => Just(2u16), 4 => Just(10), 1 => any::<u16>()],
        port in prop_oneof![1 => Just([0; 2]), 1 => any::<[u8; 2]>()],
        v4 in any::<[u8; 4]>(),
        v6 in prop_oneof![2 => Just([0; 16]), 1 => any::<[u8; 16]>()],
        scope in prop_oneof![2 => Just(0u32), 1 => any::<u32>()],
        qpn in prop_oneof![4 => Just(0), 4 => 0u32..1 << 25, 1 => any::<u32>()],
    ) {
        let family_bytes = family.to_ne_bytes();
        let scope_bytes = scope.to_ne_bytes();
        let qpn_bytes = qpn.to_ne_bytes();
        let parts: [&[u8]; 6] = [&family_bytes, &port, &v4, &v6, &scope_bytes, &qpn_bytes];
        let raw: [u8; RAW_LEN] = parts.concat().try_into().unwrap();
        let ip6 = Ipv6Addr::from(v6);
        let good = (qpn == 0 || (qpn < 1 << 24 && port == [0; 2])) && match family {
            2 => v6 == [0; 16] && scope == 0,
            10 => ip6.to_ipv4_mapped().is_none(),
            _ => false,
        };
        match SockAddr::from_raw(&raw) {
            Ok(addr) => {
                prop_assert!(good);
                let ip: IpAddr = if family == 2 { v4.into() } else { v6.into() };
                prop_assert_eq!(addr.ip(), ip);
                let port = u16::from_be_bytes(port);
                let number = match qpn.checked_sub(DGRAM_QPN) {
                    Some(number @ 1..=0xffff) => number,
                    _ => u32::from(port),
                };
                prop_assert_eq!(u32::from(addr.port()), number);
                let port_qpn = (port != 0).then(|| DGRAM_QPN + u32::from(port));
                prop_assert_eq!(addr.qpn(), if qpn != 0 { Some(qpn) } else { port_qpn });
                prop_assert_eq!(addr.family(), family);
                prop_assert_eq!(SockAddr::from_raw_or_none(&raw), Ok(Some(addr)));
            }
            Err(error) => {
                prop_assert_eq!(error, Errno::EINVAL);
                prop_assert!(!good);
            }
        }
    }

    #[test]
    fn ports_are_digits(text in "[0-9+ -]{0,7}") {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let want = if digits { text.parse::<u16>().ok() } else { None };
        prop_assert_eq!(parse_service(text.as_bytes()).ok(), want);
    }

    #[test]
    fn text_is_parsed_like_in_std(node in "[0-9a-f:.%]{0,20}") {
        let (ip, scope) = match node.split_once('%') {
            Some((ip, scope)) => (ip, Some(scope)),
            None => (node.as_str(), None),
        };
        let want = match (ip.parse::<IpAddr>(), scope) {
            (Ok(IpAddr::V4(_)), None) => true,
            (Ok(IpAddr::V6(ip)), scope) => {
                let scope = scope.is_none_or(|scope| scope.parse::<u32>().is_ok());
                scope && ip.to_ipv4_mapped().is_none()
            }
            _ => false,
        };
        // More digits than a scope can have are refused, whatever their value.
        prop_assume!(scope.is_none_or(|scope| scope.len() <= 10));
        prop_assert_eq!(SockAddr::parse_node(node.as_bytes()).is_ok(), want);
    }
}
