// SPDX-License-Identifier: GPL-2.0
//! The header of the RDMA CM at the beginning of a REQ's private data: the IP addresses and the
//! source port of the connection.
//!
//! | byte | field |
//! |---|---|
//! | 0 | version of the header: 0 |
//! | 1 | IP version, 4 or 6, in the upper four bits |
//! | 2 | port of the source |
//! | 4 | source address; an IPv4 address in the last 4 of 16 bytes |
//! | 20 | destination address, likewise |
//!
//! The destination port is in the service ID. The remaining 56 bytes of private data belong to the
//! consumer.
//!
//! The header contains what the peer claims. The source of the REQ's packet, with which its path
//! must agree, is [`Request::from`](super::Request::from). A consumer must reject a header with
//! another source address.
//!
//! Source: InfiniBand specification, volume 1, annex A11, section A11.5; drivers/infiniband/core/
//! cma.c.

use super::{
    super::bytes::{
        Reader,
        Writer, //
    },
    Req, //
};
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

/// The header of the RDMA CM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// The source address.
    pub src: IpAddr,
    /// The source port.
    pub src_port: u16,
    /// The destination address, of the same IP version.
    pub dst: IpAddr,
}

/// The reason for which private data has no valid header of the RDMA CM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The version of the header is not 0.
    Version,
    /// The IP version is neither 4 nor 6.
    IpVersion,
}

impl IpHeader {
    /// The length of the header in bytes.
    pub const LEN: usize = 36;

    /// The number of bytes that are left for the consumer.
    pub const CONSUMER_LEN: usize = Req::PRIVATE_LEN - Self::LEN;

    /// Reads the header in a REQ's private data. Returns it with the consumer's part.
    ///
    /// # Errors
    ///
    /// See [`Invalid`]. The caller rejects the request as
    /// [unsupported](super::Reason::UNSUPPORTED).
    pub fn parse(
        private: &[u8; Req::PRIVATE_LEN],
    ) -> Result<(Self, &[u8; Self::CONSUMER_LEN]), Invalid> {
        // LEN is a constant below PRIVATE_LEN, so the split cannot fail.
        let (header, consumer) = private
            .split_first_chunk::<{ Self::LEN }>()
            .ok_or(Invalid::Version)?;
        let consumer = consumer.first_chunk().ok_or(Invalid::Version)?;
        let mut reader = Reader::new(header);
        let version = reader.u8().ok_or(Invalid::Version)?;
        if version != 0 {
            return Err(Invalid::Version);
        }
        let header = Self::read(&mut reader).ok_or(Invalid::IpVersion)?;
        Ok((header, consumer))
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let version = reader.u8()? >> 4;
        let src_port = reader.u16()?;
        let (src, dst) = (reader.array()?, reader.array()?);
        let ip = |bytes: [u8; 16]| match version {
            4 => {
                let [.., a, b, c, d] = bytes;
                Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
            }
            6 => Some(IpAddr::V6(Ipv6Addr::from(bytes))),
            _ => None,
        };
        Some(Self {
            src: ip(src)?,
            src_port,
            dst: ip(dst)?,
        })
    }

    /// Writes a REQ's private data: the header and the consumer's part. Returns `None` if that part
    /// is longer than [`IpHeader::CONSUMER_LEN`], or if the two addresses have different IP
    /// versions.
    pub fn write(&self, consumer: &[u8]) -> Option<[u8; Req::PRIVATE_LEN]> {
        if self.src.is_ipv4() != self.dst.is_ipv4() {
            return None;
        }
        let mut private = [0; Req::PRIVATE_LEN];
        let mut writer = Writer::new(&mut private);
        writer.put(&[0, if self.src.is_ipv4() { 0x40 } else { 0x60 }])?;
        writer.put(&self.src_port.to_be_bytes())?;
        for ip in [self.src, self.dst] {
            match ip {
                IpAddr::V4(ip) => {
                    writer.put(&[0; 12])?;
                    writer.put(&ip.octets())?;
                }
                IpAddr::V6(ip) => writer.put(&ip.octets())?,
            }
        }
        writer.put(consumer)?;
        Some(private)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_cm_ip_header))]
mod tests {
    use super::*;

    const V4: IpHeader = IpHeader {
        src: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        src_port: 0x1234,
        dst: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
    };
    const V6: IpHeader = IpHeader {
        src: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        src_port: 7471,
        dst: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2)),
    };

    #[test]
    fn the_layout_is_that_of_the_rdma_cm() {
        let private = V4.write(b"hello").unwrap_or([0xff; 92]);
        let (header, consumer) = private.split_at(36);
        assert_eq!(
            header,
            [
                0, 0x40, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0,
                0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2
            ]
        );
        assert!(consumer.starts_with(b"hello\0"));
        assert_eq!(consumer.len(), 56);

        let private = V6.write(&[]).unwrap_or([0xff; 92]);
        assert!(private.starts_with(&[0, 0x60, 0x1d, 0x2f, 0x20, 0x01, 0x0d, 0xb8, 0]));
        assert_eq!(private.get(20..22), Some([0xfe, 0x80].as_slice()));
        assert_eq!(private.get(35..37), Some([2, 0].as_slice()));
    }

    #[test]
    fn a_written_header_is_parsed_again() {
        for header in [V4, V6] {
            let private = header.write(&[7; 56]).unwrap_or([0xff; 92]);
            assert_eq!(IpHeader::parse(&private), Ok((header, &[7; 56])));
        }
    }

    #[test]
    fn invalid_headers_are_refused() {
        assert!(V4.write(&[0; 57]).is_none());
        let mixed = IpHeader { dst: V6.dst, ..V4 };
        assert!(mixed.write(&[]).is_none());

        let mut private = V4.write(&[]).unwrap_or([0xff; 92]);
        for (version, ip_version, error) in [
            (1, 0x40, Invalid::Version),
            (0xff, 0x40, Invalid::Version),
            (0, 0x00, Invalid::IpVersion),
            (0, 0x50, Invalid::IpVersion),
            (0, 0x70, Invalid::IpVersion),
            (0, 0x04, Invalid::IpVersion),
        ] {
            let [first, second, ..] = &mut private;
            *first = version;
            *second = ip_version;
            assert_eq!(IpHeader::parse(&private), Err(error));
        }
        // The lower four bits are ignored, as are the bytes before an IPv4 address.
        let [first, second, _, _, fifth, ..] = &mut private;
        *first = 0;
        *second = 0x4f;
        *fifth = 0xff;
        assert_eq!(IpHeader::parse(&private), Ok((V4, &[0; 56])));
    }
}
