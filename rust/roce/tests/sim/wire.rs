// SPDX-License-Identifier: GPL-2.0
//! Datagrams with IP header, UDP header, packet and ICRC; and a pcap file of them.

use kfi_roce::{
    headers::MAX_HEADERS,
    icrc::{
        Crc32,
        Icrc, //
    },
    packet::{
        Malformed,
        Packet,
        ICRC_LEN,
        UDP_PORT, //
    }, //
};
use std::{
    io::{
        self,
        Write, //
    },
    path::Path,
    sync::OnceLock,
};

const IP: usize = 20;
const UDP: usize = 8;

/// The size of the block from which all payloads and memories take their bytes.
pub const BLOCK: usize = 1 << 17;

/// Returns `len` bytes of the data identified by `seed`, from `offset` on.
pub fn bytes(seed: u64, offset: usize, len: usize) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let block = BYTES.get_or_init(|| {
        let mut rng = super::rng::Rng::new(1);
        (0..2 * BLOCK).map(|_| rng.u64() as u8).collect()
    });
    let start = (seed as usize % BLOCK + offset) % BLOCK;
    &block[start..start + len]
}

/// A CRC-32 that processes eight bytes at a time.
pub struct Table;

fn tables() -> &'static [[u32; 256]; 8] {
    static TABLES: OnceLock<Box<[[u32; 256]; 8]>> = OnceLock::new();
    TABLES.get_or_init(|| {
        let mut tables = Box::new([[0; 256]; 8]);
        for n in 0..256 {
            let mut crc = n as u32;
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
            }
            tables[0][n] = crc;
        }
        for n in 0..256 {
            for t in 1..8 {
                let below: u32 = tables[t - 1][n];
                tables[t][n] = (below >> 8) ^ tables[0][(below & 0xff) as usize];
            }
        }
        tables
    })
}

impl Crc32 for Table {
    fn update(mut crc: u32, bytes: &[u8]) -> u32 {
        let tables = tables();
        let at = |table: usize, word: u32, byte: u32| {
            tables[table][(word >> (8 * byte) & 0xff) as usize]
        };
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let &[a, b, c, d, e, f, g, h] = chunk else {
                unreachable!("chunks of 8 bytes");
            };
            let low = crc ^ u32::from_le_bytes([a, b, c, d]);
            let high = u32::from_le_bytes([e, f, g, h]);
            crc = (0..4).fold(0, |crc, byte| {
                crc ^ at(7 - byte as usize, low, byte) ^ at(3 - byte as usize, high, byte)
            });
        }
        for byte in chunks.remainder() {
            crc = (crc >> 8) ^ tables[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
        }
        crc
    }
}

/// Builds the datagram, with IP header, that carries a packet from host `from` to host `to`.
pub fn encode(from: u8, to: u8, id: u16, packet: &Packet, payload: &[u8]) -> Vec<u8> {
    assert_eq!(payload.len(), packet.payload_len());
    let len = IP + UDP + packet.len();
    let mut ip = [0; IP];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    ip[4..6].copy_from_slice(&id.to_be_bytes());
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = 17;
    ip[12..16].copy_from_slice(&[10, 0, 0, from]);
    ip[16..20].copy_from_slice(&[10, 0, 0, to]);
    let sum: u32 = ip
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(((sum & 0xffff) + (sum >> 16)) as u16)).to_be_bytes());
    let mut udp = [0; UDP];
    udp[..2].copy_from_slice(&0xc001_u16.to_be_bytes());
    udp[2..4].copy_from_slice(&UDP_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&((len - IP) as u16).to_be_bytes());

    let mut buffer = [0; MAX_HEADERS];
    let headers = packet.write(&mut buffer);
    let mut icrc = Icrc::<Table>::ipv4(&ip, &udp, headers);
    icrc.update(payload);
    let trailer = icrc.trailer(packet.pad());
    let mut datagram = Vec::with_capacity(len);
    datagram.extend(ip);
    datagram.extend(udp);
    datagram.extend(headers);
    datagram.extend(payload);
    datagram.extend(&*trailer);
    assert_eq!(datagram.len(), len);
    datagram
}

/// The reason for which a datagram is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The datagram is not RoCEv2, or is truncated.
    Short,
    Malformed(Malformed),
    Icrc,
}

/// Parses a datagram. Returns the packet and its payload.
pub fn decode(datagram: &[u8]) -> Result<(Packet, &[u8]), Bad> {
    let (ip, rest) = datagram.split_first_chunk::<IP>().ok_or(Bad::Short)?;
    let (udp, body) = rest.split_first_chunk::<UDP>().ok_or(Bad::Short)?;
    let packet = Packet::parse(body, body.len()).map_err(Bad::Malformed)?;
    let (covered, wire) = body.split_last_chunk::<ICRC_LEN>().ok_or(Bad::Short)?;
    if !Icrc::<Table>::ipv4(ip, udp, covered).matches(*wire) {
        return Err(Bad::Icrc);
    }
    Ok((packet, &body[packet.payload()]))
}

/// Returns the packet of a datagram, valid or not, for a trace.
pub fn look(datagram: &[u8]) -> Option<Packet> {
    let body = datagram.get(IP + UDP..)?;
    Packet::parse(body, body.len()).ok()
}

/// Writes datagrams with the times at which they were sent, in nanoseconds, to a pcap file.
pub fn write_pcap(path: &Path, datagrams: &[(u64, Vec<u8>)]) -> io::Result<()> {
    const MAGIC_NS: u32 = 0xa1b2_3c4d;
    const LINKTYPE_RAW: u32 = 101;
    let mut file = io::BufWriter::new(std::fs::File::create(path)?);
    for word in [MAGIC_NS, 2 | 4 << 16, 0, 0, 65_535, LINKTYPE_RAW] {
        file.write_all(&word.to_le_bytes())?;
    }
    for (time, datagram) in datagrams {
        let len = datagram.len() as u32;
        let (s, ns) = (time / 1_000_000_000, time % 1_000_000_000);
        for word in [s as u32, ns as u32, len, len] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(datagram)?;
    }
    file.flush()
}
