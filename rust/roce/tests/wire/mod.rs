// SPDX-License-Identifier: GPL-2.0
//! Helpers of the tests: a table-driven CRC, and IP packets.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod cm;

use kfi_roce::{
    icrc::{
        Crc32,
        Icrc, //
    },
    packet::{
        Packet,
        ICRC_LEN,
        UDP_PORT, //
    }, //
};
use std::net::IpAddr;

/// The CRC of Ethernet, by table.
pub(crate) struct Table;

impl Crc32 for Table {
    fn update(crc: u32, bytes: &[u8]) -> u32 {
        const TABLE: [u32; 256] = {
            let mut table = [0; 256];
            let mut byte = 0;
            while byte < 256 {
                let mut crc = byte as u32;
                let mut bit = 0;
                while bit < 8 {
                    crc = (crc >> 1) ^ ((crc & 1) * 0xedb8_8320);
                    bit += 1;
                }
                table[byte] = crc;
                byte += 1;
            }
            table
        };
        bytes.iter().fold(crc, |crc, byte| {
            (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)]
        })
    }
}

/// An IPv4 or IPv6 packet with a UDP datagram to the port of RoCEv2.
pub(crate) struct Datagram<'a> {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    ip: &'a [u8],
    udp: &'a [u8],
    /// The payload: a packet, ICRC included.
    pub(crate) payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Parses the headers of a valid packet.
    pub(crate) fn new(packet: &'a [u8]) -> Self {
        let address = |at: usize, len: usize| {
            let bytes = &packet[at..at + len];
            match <[u8; 4]>::try_from(bytes) {
                Ok(v4) => IpAddr::from(v4),
                Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap()),
            }
        };
        let (ip, len, protocol, src, dst) = match packet[0] {
            0x45 => {
                let len = u16::from_be_bytes([packet[2], packet[3]]).into();
                (20, len, packet[9], address(12, 4), address(16, 4))
            }
            first if first >> 4 == 6 => {
                let len = 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
                (40, len, packet[6], address(8, 16), address(24, 16))
            }
            first => panic!("no IP packet: {first:#x}"),
        };
        assert_eq!((packet.len(), protocol), (len, 17));
        let (ip, rest) = packet.split_at(ip);
        let (udp, payload) = rest.split_at(8);
        assert_eq!(udp[2..4], UDP_PORT.to_be_bytes());
        assert_eq!(
            usize::from(u16::from_be_bytes([udp[4], udp[5]])),
            rest.len()
        );
        Self {
            src,
            dst,
            ip,
            udp,
            payload,
        }
    }

    /// Begins the ICRC, with `headers` as the BTH and the extended headers.
    pub(crate) fn icrc(&self, headers: &[u8]) -> Icrc<Table> {
        let udp = self.udp.try_into().unwrap();
        match <&[u8; 20]>::try_from(self.ip) {
            Ok(v4) => Icrc::ipv4(v4, udp, headers),
            Err(_) => Icrc::ipv6(self.ip.try_into().unwrap(), udp, headers),
        }
    }

    /// Returns the packet with its payload.
    pub(crate) fn parse(&self) -> (Packet, &'a [u8]) {
        let packet = Packet::parse(self.payload, self.payload.len()).unwrap();
        (packet, &self.payload[packet.payload()])
    }

    /// Returns whether the ICRC is correct.
    pub(crate) fn verify(&self) -> bool {
        let (covered, icrc) = self.payload.split_at(self.payload.len() - ICRC_LEN);
        self.icrc(covered).matches(icrc.try_into().unwrap())
    }
}
