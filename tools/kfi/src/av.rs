// SPDX-License-Identifier: GPL-2.0
//! Address vectors: they map socket addresses of peers to the short addresses
//! that operations use.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use crate::{
    abi::{self, Call, calls},
    addr::FiAddr,
    domain::Domain,
    enums::AvKind,
    eq::Eq,
    errno::Errno,
    error::{Error, Result},
    object::{Inner, Node, object},
    setters::setters,
};

/// Opens an address vector; from [`Domain::av`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct AvBuilder {
    domain: Domain,
    kind: AvKind,
    count: u32,
    flags: u64,
    rx_ctx_bits: u32,
    context: u64,
}

impl AvBuilder {
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            kind: AvKind::Unspec,
            count: 0,
            flags: 0,
            rx_ctx_bits: 0,
            context: 0,
        }
    }

    setters! {
        /// Its type.
        kind(kind: AvKind) => kind = kind;

        /// Addresses that are expected; it grows beyond.
        count(count: u32) => count = count;
    }

    /// Insertions report to the event queue to which the address vector is
    /// bound.
    pub fn events(mut self) -> Self {
        self.flags |= abi::KFI_EVENT;
        self
    }

    setters! {
        /// Upper bits of its addresses that select a receive context of a scalable
        /// endpoint; at most 16.  See [`FiAddr::receive_context`].
        rx_ctx_bits(bits: u32) => rx_ctx_bits = bits;

        /// A number for the caller's own use.
        context(context: u64) => context = context;
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a count above [`Query::max_av`](crate::Query::max_av), too many
    /// bits for contexts; `EMFILE`; `ENOMEM`.
    pub fn open(self) -> Result<Av> {
        let mut arg = abi::kfabric_av_open {
            domain: self.domain.handle(),
            type_: self.kind.raw(),
            count: self.count,
            flags: self.flags,
            rx_ctx_bits: self.rx_ctx_bits,
            context: self.context,
            ..Call::sized()
        };
        let device = self.domain.device();
        calls::plain(device, &mut arg)?;
        Ok(Av {
            kind: AvKind::from_raw(arg.type_),
            inner: Inner::new(device, arg.handle, vec![self.domain.as_hold()]),
        })
    }
}

/// An address vector.
///
/// ```no_run
/// # fn f(domain: kfi::Domain) -> kfi::Result<()> {
/// let av = domain.av().open()?;
/// let peer = av.insert_one(kfi::parse_address("10.0.0.2:7471")?)?;
/// assert_eq!(av.lookup(peer)?.port(), 7471);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Av {
    inner: Arc<Inner>,
    kind: AvKind,
}

object!(Av);

impl Av {
    /// Its type, as chosen.
    pub fn kind(&self) -> AvKind {
        self.kind
    }

    /// Reports to an event queue.
    ///
    /// # Errors
    ///
    /// `EINVAL`: bound already.
    pub fn bind_eq(&self, eq: &Eq) -> Result<()> {
        let node: &Node = &self.inner.node;
        node.bind(eq.handle(), 0, eq.as_hold())
    }

    /// Inserts addresses.  An address that could not be inserted is
    /// [`FiAddr::NOTAVAIL`] in the result; [`Av::insert_all`] makes an error of
    /// it.
    ///
    /// With [`events`](AvBuilder::events) the event of the event queue has the
    /// number of addresses inserted.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the address vector is full, and no address could be inserted;
    /// `KFI_ENOEQ`: opened with events, and not bound to an event queue.
    pub fn insert(&self, addrs: &[SocketAddr]) -> Result<Vec<FiAddr>> {
        self.insert_with_context(addrs, 0)
    }

    /// As [`Av::insert`], with the context of the event.
    ///
    /// # Errors
    ///
    /// As [`Av::insert`].
    pub fn insert_with_context(&self, addrs: &[SocketAddr], context: u64) -> Result<Vec<FiAddr>> {
        let addrs: Vec<_> = addrs.iter().copied().map(Into::into).collect();
        let mut fi_addrs = vec![FiAddr::NOTAVAIL; addrs.len()];
        calls::av_insert(
            self.device(),
            self.handle(),
            &addrs,
            &mut fi_addrs,
            &mut [],
            context,
        )?;
        Ok(fi_addrs)
    }

    /// Inserts all of these addresses, or none.
    ///
    /// # Errors
    ///
    /// As [`Av::insert`]; the error of the first address that could not be
    /// inserted, with that address.
    pub fn insert_all(&self, addrs: &[SocketAddr]) -> Result<Vec<FiAddr>> {
        let results = self.insert_sync_err(addrs)?;
        let good: Vec<FiAddr> = results.iter().flatten().copied().collect();
        let bad = { results.iter().zip(addrs) }.find_map(|(result, addr)| match result {
            Ok(_) => None,
            Err(errno) => Some((*errno, *addr)),
        });
        let Some((errno, addr)) = bad else {
            return Ok(good);
        };
        if !good.is_empty() {
            self.remove(&good)?;
        }
        Err(Error::call("KFABRIC_IOC_AV_INSERT", errno).on(format_args!("address {addr}")))
    }

    /// Inserts one address.
    ///
    /// # Errors
    ///
    /// As [`Av::insert`].
    pub fn insert_one(&self, addr: SocketAddr) -> Result<FiAddr> {
        self.insert(&[addr])
            .map_err(|error| error.on(format_args!("address {addr}")))?
            .into_iter()
            .find_map(FiAddr::known)
            .ok_or(Error::Nonsense("no address for the one inserted"))
    }

    /// Inserts addresses, and returns a result for each (`KFI_SYNC_ERR`).
    ///
    /// # Errors
    ///
    /// As [`Av::insert`].
    pub fn insert_sync_err(&self, addrs: &[SocketAddr]) -> Result<Vec<Result<FiAddr, Errno>>> {
        let addrs: Vec<_> = addrs.iter().copied().map(Into::into).collect();
        let mut fi_addrs = vec![FiAddr::NOTAVAIL; addrs.len()];
        let mut errors = vec![0; addrs.len()];
        calls::av_insert(
            self.device(),
            self.handle(),
            &addrs,
            &mut fi_addrs,
            &mut errors,
            0,
        )?;
        let results = fi_addrs.into_iter().zip(errors);
        Ok(results
            .map(|(fi_addr, error)| match error {
                0 => Ok(fi_addr),
                error => Err(Errno::from_raw(error)),
            })
            .collect())
    }

    /// Inserts an address given as text: numeric address and port.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the text is not an address or a port; else as
    /// [`Av::insert`].
    pub fn insertsvc(&self, node: &str, service: &str) -> Result<FiAddr> {
        let mut arg = abi::kfabric_av_insertsvc {
            av: self.handle(),
            node: calls::chars("node", node)?,
            service: calls::chars("service", service)?,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(FiAddr(arg.fi_addr))
    }

    /// Inserts the addresses of `nodecnt` nodes with `svccnt` services each, from
    /// `first` on: consecutive IP addresses with consecutive ports.  All ports of
    /// a node come before the next node (fi_av_insertsym).  The result is that of
    /// [`Av::insert`], in this order.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a count is 0, there are more than 65536 addresses, or the last
    /// one does not exist; else as [`Av::insert`].
    pub fn insertsym(&self, first: SocketAddr, nodecnt: u32, svccnt: u32) -> Result<Vec<FiAddr>> {
        let addrs = symmetric(first, nodecnt, svccnt)
            .ok_or(Error::call("fi_av_insertsym", Errno::EINVAL))?;
        self.insert(&addrs)
    }

    /// Removes addresses, all or none.
    ///
    /// # Errors
    ///
    /// `ENOENT`: one of them is not there; `EINVAL`: none given.
    pub fn remove(&self, fi_addrs: &[FiAddr]) -> Result<()> {
        calls::av_remove(self.device(), self.handle(), fi_addrs)
    }

    /// The socket address of a short address.
    ///
    /// # Errors
    ///
    /// `ENOENT`: it is not there.
    pub fn lookup(&self, fi_addr: FiAddr) -> Result<SocketAddr> {
        let mut arg = abi::kfabric_av_lookup {
            av: self.handle(),
            fi_addr: fi_addr.0,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        arg.addr
            .to_std()
            .ok_or(Error::Nonsense("an address of no family"))
    }

    /// A socket address as the module writes it.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn straddr(&self, addr: SocketAddr) -> Result<String> {
        let mut arg = abi::kfabric_av_straddr {
            av: self.handle(),
            addr: addr.into(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(calls::text(&arg.text))
    }
}

/// Addresses that one call inserts.
const MAX_ROW: u32 = abi::KFABRIC_MAX_AV;

/// The addresses of a symmetric insertion; `None` if one of them does not exist,
/// or there are too many or none.
fn symmetric(first: SocketAddr, nodecnt: u32, svccnt: u32) -> Option<Vec<SocketAddr>> {
    let count = nodecnt.checked_mul(svccnt)?;
    if count == 0 || count > MAX_ROW {
        return None;
    }
    let node = |index: u32| {
        let mut addr = first;
        addr.set_ip(match first.ip() {
            IpAddr::V4(ip) => Ipv4Addr::from(u32::from(ip).checked_add(index)?).into(),
            IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip).checked_add(index.into())?).into(),
        });
        Some(addr)
    };
    let address = |index: u32| {
        let mut addr = node(index / svccnt)?;
        let port = u32::from(first.port()).checked_add(index % svccnt)?;
        addr.set_port(u16::try_from(port).ok()?);
        Some(addr)
    };
    (0..count).map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(first: &str, nodecnt: u32, svccnt: u32) -> Option<Vec<String>> {
        let row = symmetric(first.parse().unwrap(), nodecnt, svccnt)?;
        Some(row.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn all_ports_of_a_node_come_first() {
        let expected = [
            "10.1.1.255:5000",
            "10.1.1.255:5001",
            "10.1.2.0:5000",
            "10.1.2.0:5001",
        ];
        assert_eq!(row("10.1.1.255:5000", 2, 2).unwrap(), expected);
        let expected = ["[fd00::ffff]:1", "[fd00::1:0]:1"];
        assert_eq!(row("[fd00::ffff]:1", 2, 1).unwrap(), expected);
    }

    #[test]
    fn rows_have_limits() {
        assert_eq!(row("10.0.0.1:65535", 1, 2), None);
        assert_eq!(row("255.255.255.255:1", 2, 1), None);
        assert_eq!(row("10.0.0.1:1", 0, 1), None);
        assert_eq!(row("10.0.0.1:1", 1, 0), None);
        assert_eq!(row("10.0.0.1:1", 65_536, 65_536), None);
        assert_eq!(row("10.0.0.1:1", MAX_ROW + 1, 1), None);
        assert_eq!(
            row("10.0.0.1:1", 1, 65_535).map(|row| row.len()),
            Some(65_535)
        );
    }
}
