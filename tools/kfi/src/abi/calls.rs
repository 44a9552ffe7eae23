// SPDX-License-Identifier: GPL-2.0
//! The calls as safe functions, for the rest of the crate.
//!
//! Calls whose structure holds no address go through [`plain`].  The others
//! have a function each that takes slices, so that address and count of an
//! array always belong together.  Errors carry the call's name.

use std::{
    ffi::c_char,
    net::SocketAddr,
    os::fd::{AsFd, FromRawFd, OwnedFd},
};

use super::*;
use crate::{
    addr::FiAddr,
    cq::Entry,
    deadline::Deadline,
    error::{Error, Result},
    op::{IoVec, Op},
};

/// A call whose structure holds no address.
pub(crate) fn plain<C: Plain>(fd: impl AsFd, arg: &mut C) -> Result<()> {
    // SAFETY: `Plain` says that there is no address in it, and values of such
    // structures are made by `sized()` only.
    unsafe { named(fd, arg) }
}

/// [`call`], with the call's name in the error.
///
/// # Safety
///
/// As for [`call`].
unsafe fn named<C: Call>(fd: impl AsFd, arg: &mut C) -> Result<()> {
    // SAFETY: promised by the caller.
    unsafe { call(fd, arg) }.map_err(|errno| Error::call(C::NAME, errno))
}

/// A name as a field of fixed length, NUL-terminated.
pub(crate) fn chars<const N: usize>(what: &'static str, name: &str) -> Result<[c_char; N]> {
    let bytes = name.as_bytes();
    if bytes.len() >= N || bytes.contains(&0) {
        return Err(Error::Name {
            what,
            name: name.to_owned(),
            max: N - 1,
        });
    }
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = *from as c_char;
    }
    Ok(field)
}

/// The text in a field of fixed length, up to its NUL.
pub(crate) fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field
        .iter()
        .map(|c| *c as u8)
        .take_while(|c| *c != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The number of elements of an array.
fn count<T>(what: &'static str, array: &[T]) -> Result<u32> {
    u32::try_from(array.len()).map_err(|_| Error::TooMany(what))
}

/// Address of an array for the kernel to read; null if it is empty.
fn read_from<T>(array: &[T]) -> u64 {
    if array.is_empty() {
        0
    } else {
        array.as_ptr().expose_provenance() as u64
    }
}

/// Address of an array for the kernel to fill; null if it is empty.
fn write_to<T>(array: &mut [T]) -> u64 {
    if array.is_empty() {
        0
    } else {
        array.as_mut_ptr().expose_provenance() as u64
    }
}

/// `KFABRIC_IOC_GETWAIT`: a new descriptor of the object's wait object.
pub(crate) fn getwait(fd: impl AsFd, handle: u32) -> Result<OwnedFd> {
    let mut arg = kfabric_getwait {
        handle,
        ..Call::sized()
    };
    plain(fd, &mut arg)?;
    if arg.fd < 0 {
        return Err(Error::Nonsense("a negative descriptor"));
    }
    // SAFETY: the call made this descriptor for us; no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(arg.fd) })
}

/// `KFABRIC_IOC_GETINFO`; fills `infos` and returns the number of entries,
/// which may be more than fit.
pub(crate) fn getinfo(
    fd: impl AsFd,
    mut arg: kfabric_getinfo,
    hints: Option<&kfabric_info>,
    infos: &mut [kfabric_info],
) -> Result<usize> {
    arg.hints = hints.map_or(0, |hints| read_from(std::slice::from_ref(hints)));
    arg.count = count("list of infos", infos)?;
    arg.infos = write_to(infos);
    // SAFETY: `infos` has room for `count` elements; any bytes make a valid
    // kfabric_info, whose size is that which `arg` tells.
    unsafe { named(fd, &mut arg) }?;
    Ok(arg.count as usize)
}

/// `KFABRIC_IOC_EQ_READ`; returns the structure also with an error: its `len`
/// is the room that the event needs.
pub(crate) fn eq_read(
    fd: impl AsFd,
    eq: u32,
    deadline: Deadline,
    flags: u64,
    buf: &mut [u8],
) -> (kfabric_eq_read, Result<()>) {
    let mut arg = kfabric_eq_read {
        eq,
        deadline: deadline.as_nanos(),
        flags,
        len: u32::try_from(buf.len()).unwrap_or(u32::MAX),
        buf: write_to(buf),
        ..Call::sized()
    };
    // SAFETY: `buf` has room for at least `len` bytes.
    let result = unsafe { named(fd, &mut arg) };
    (arg, result)
}

/// `KFABRIC_IOC_EQ_READERR`; stores private data in `buf`.
pub(crate) fn eq_readerr(fd: impl AsFd, eq: u32, buf: &mut [u8]) -> Result<kfabric_eq_readerr> {
    let mut arg = kfabric_eq_readerr {
        eq,
        err_data: write_to(buf),
        err_data_size: u32::try_from(buf.len()).unwrap_or(u32::MAX),
        ..Call::sized()
    };
    // SAFETY: `buf` has room for at least `err_data_size` bytes.
    unsafe { named(fd, &mut arg) }?;
    Ok(arg)
}

/// `KFABRIC_IOC_EP_NAME`: gets the address of an endpoint, passive or not.
pub(crate) fn ep_name(fd: impl AsFd, ep: u32) -> Result<SocketAddr> {
    let mut arg = kfabric_ep_name {
        ep,
        ..Call::sized()
    };
    plain(fd, &mut arg)?;
    arg.addr
        .to_std()
        .ok_or(Error::Nonsense("an address of no family"))
}

/// `KFABRIC_IOC_EP_NAME`: sets the address.
pub(crate) fn ep_set_name(fd: impl AsFd, ep: u32, addr: SocketAddr) -> Result<()> {
    let mut arg = kfabric_ep_name {
        ep,
        set: 1,
        addr: addr.into(),
        ..Call::sized()
    };
    plain(fd, &mut arg)
}

/// `KFABRIC_IOC_PEP_REJECT`.
pub(crate) fn pep_reject(fd: impl AsFd, pep: u32, connreq: u32, private: &[u8]) -> Result<()> {
    let mut arg = kfabric_pep_reject {
        pep,
        connreq,
        param: read_from(private),
        param_len: count("private data", private)?,
        ..Call::sized()
    };
    // SAFETY: the kernel only reads, `param_len` bytes of `private`.
    unsafe { named(fd, &mut arg) }
}

/// `KFABRIC_IOC_EP_CONNECT`.
pub(crate) fn ep_connect(
    fd: impl AsFd,
    ep: u32,
    addr: kfabric_sockaddr,
    private: &[u8],
) -> Result<()> {
    let mut arg = kfabric_ep_connect {
        ep,
        addr,
        param: read_from(private),
        param_len: count("private data", private)?,
        ..Call::sized()
    };
    // SAFETY: the kernel only reads, `param_len` bytes of `private`.
    unsafe { named(fd, &mut arg) }
}

/// `KFABRIC_IOC_EP_ACCEPT`.
pub(crate) fn ep_accept(
    fd: impl AsFd,
    ep: u32,
    pep: u32,
    connreq: u32,
    private: &[u8],
) -> Result<()> {
    let mut arg = kfabric_ep_accept {
        ep,
        pep,
        connreq,
        param: read_from(private),
        param_len: count("private data", private)?,
        ..Call::sized()
    };
    // SAFETY: the kernel only reads, `param_len` bytes of `private`.
    unsafe { named(fd, &mut arg) }
}

/// `KFABRIC_IOC_EQ_WRITE`.
pub(crate) fn eq_write(fd: impl AsFd, eq: u32, event: u32, data: &[u8]) -> Result<()> {
    let mut arg = kfabric_eq_write {
        eq,
        event,
        len: count("event", data)?,
        buf: read_from(data),
        ..Call::sized()
    };
    // SAFETY: the kernel only reads, `len` bytes of `data`.
    unsafe { named(fd, &mut arg) }
}

/// `KFABRIC_IOC_AV_INSERT`; returns the number of addresses inserted.
/// `fi_addrs` and `errors` are empty or as long as `addrs`.
pub(crate) fn av_insert(
    fd: impl AsFd,
    av: u32,
    addrs: &[kfabric_sockaddr],
    fi_addrs: &mut [FiAddr],
    errors: &mut [i32],
    context: u64,
) -> Result<u32> {
    assert!(fi_addrs.is_empty() || fi_addrs.len() == addrs.len());
    assert!(errors.is_empty() || errors.len() == addrs.len());
    let mut arg = kfabric_av_insert {
        av,
        flags: if errors.is_empty() { 0 } else { KFI_SYNC_ERR },
        addrs: read_from(addrs),
        fi_addrs: write_to(fi_addrs),
        errors: write_to(errors),
        context,
        count: count("list of addresses", addrs)?,
        ..Call::sized()
    };
    // SAFETY: the arrays have `count` elements or are not given; FiAddr is a
    // u64, and any number is valid in it.
    unsafe { named(fd, &mut arg) }?;
    Ok(arg.inserted)
}

/// `KFABRIC_IOC_AV_REMOVE`.
pub(crate) fn av_remove(fd: impl AsFd, av: u32, fi_addrs: &[FiAddr]) -> Result<()> {
    let mut arg = kfabric_av_remove {
        av,
        fi_addrs: read_from(fi_addrs),
        count: count("list of addresses", fi_addrs)?,
        ..Call::sized()
    };
    // SAFETY: the kernel only reads, `count` elements.
    unsafe { named(fd, &mut arg) }
}

/// `KFABRIC_IOC_MR_REG`; stores handle, key and iova in the structure.
pub(crate) fn mr_reg(
    fd: impl AsFd,
    mut arg: kfabric_mr_reg,
    iov: &[IoVec<'_>],
) -> Result<kfabric_mr_reg> {
    arg.iov_count = count("iov list", iov)?;
    arg.iov = read_from(iov);
    // SAFETY: the kernel reads `iov_count` elements, which have the layout of
    // kfabric_iov.  They name memory of a `Buffer`, which may be written to at
    // any time; the kernel holds its pages, not its addresses, so this stays
    // true when the Buffer is dropped.
    unsafe { named(fd, &mut arg) }?;
    Ok(arg)
}

/// `KFABRIC_IOC_COMP_CNTR_CREATE`; external memory is in a `Buffer` or a
/// DMA-BUF. Stores the results in the structure.
pub(crate) fn comp_cntr_create(
    fd: impl AsFd,
    mut arg: kfabric_comp_cntr_create,
) -> Result<kfabric_comp_cntr_create> {
    // SAFETY: the kernel writes to the memory that the locations name, as long
    // as the counter exists. They name memory of a `Buffer`, which may be
    // written to at any time (see `mr_reg`), or a DMA-BUF.
    unsafe { named(fd, &mut arg) }?;
    Ok(arg)
}

/// `KFABRIC_IOC_CQ_READ`: fills `out`, whose CQ has entries of `entry_size`
/// bytes, and `src_addrs`, which is empty or as long as `out`; returns the
/// number of entries.
pub(crate) fn cq_read(
    fd: impl AsFd,
    cq: u32,
    entry_size: usize,
    out: &mut [Entry],
    src_addrs: &mut [FiAddr],
    cond: u32,
    deadline: Deadline,
) -> Result<usize> {
    assert!(src_addrs.is_empty() || src_addrs.len() == out.len());
    let mut arg = kfabric_cq_read {
        cq,
        count: count("list of entries", out)?,
        buf: write_to(out),
        src_addrs: write_to(src_addrs),
        cond,
        deadline: deadline.as_nanos(),
        ..Call::sized()
    };
    // SAFETY: the kernel packs `count` entries of at most 48 bytes into `out`,
    // which has 64 for each, and as many numbers into `src_addrs`, if given.
    unsafe { named(fd, &mut arg) }?;
    let taken = (arg.count as usize).min(out.len());
    unpack(&mut out[..taken], entry_size);
    for (entry, src_addr) in out[..taken].iter_mut().zip(src_addrs.iter()) {
        entry.src_addr = *src_addr;
    }
    Ok(taken)
}

/// Expands packed entries at the front of `out`, `size` bytes each, to whole
/// ones.  It begins with the last one, so that it overwrites none before
/// reading it.  Fields that the format does not have become zero.
fn unpack(out: &mut [Entry], size: usize) {
    const WORDS: usize = size_of::<Entry>() / 8;
    let words = (size / 8).min(WORDS - 2);
    for index in (0..out.len()).rev() {
        let mut raw = [0u64; WORDS];
        // SAFETY: `index * words` words are less than the length of `out`,
        // which consists of words.
        unsafe {
            let packed = out.as_ptr().cast::<u64>().add(index * words);
            packed.copy_to_nonoverlapping(raw.as_mut_ptr(), words);
        }
        out[index] = Entry::from_words(raw);
    }
}

/// `KFABRIC_IOC_POLL`; returns the number of contexts stored.
pub(crate) fn poll(fd: impl AsFd, poll: u32, contexts: &mut [u64]) -> Result<usize> {
    let mut arg = kfabric_poll {
        poll,
        count: count("list of contexts", contexts)?,
        contexts: write_to(contexts),
        ..Call::sized()
    };
    // SAFETY: `contexts` has room for `count` elements.
    unsafe { named(fd, &mut arg) }?;
    Ok((arg.count as usize).min(contexts.len()))
}

/// `KFABRIC_IOC_COUNTERS_READ`.
pub(crate) fn counters_read(
    fd: impl AsFd,
    counters: u32,
    flags: u64,
    values: &mut [u64],
) -> Result<()> {
    let mut arg = kfabric_counters_read {
        counters,
        flags,
        count: count("list of values", values)?,
        values: write_to(values),
        ..Call::sized()
    };
    // SAFETY: `values` has room for `count` elements.
    unsafe { named(fd, &mut arg) }
}

/// `KFABRIC_IOC_POST`; returns the structure also with an error: its `done` and
/// `error` say how many operations were accepted.
#[inline]
pub(crate) fn post(fd: impl AsFd, ep: u32, ops: &[Op<'_>]) -> (kfabric_post, Result<()>) {
    let mut arg = kfabric_post {
        ep,
        ops: read_from(ops),
        count: u32::try_from(ops.len()).unwrap_or(u32::MAX),
        op_size: size_of::<kfabric_op>() as u32,
        ..Call::sized()
    };
    // SAFETY: the kernel reads `count` structures; Op is one.  By Op's
    // invariant the lists that it names are valid during the call, and the
    // memory that operations read or write later belongs to a `Buffer`, see
    // `mr_reg`.
    let result = unsafe { named(fd, &mut arg) };
    (arg, result)
}

/// `KFABRIC_IOC_QUEUE_WORK`; the kernel stores the identities in `works`.
///
/// # Safety
///
/// The address `op` of each work is 0, or that of a [`kfabric_op`] that belongs to an [`Op`] and is
/// valid during the call.
pub(crate) unsafe fn queue_work(
    fd: impl AsFd,
    domain: u32,
    works: &mut [kfabric_work],
) -> (kfabric_queue_work, Result<()>) {
    let mut arg = kfabric_queue_work {
        domain,
        works: write_to(works),
        count: u32::try_from(works.len()).unwrap_or(u32::MAX),
        work_size: size_of::<kfabric_work>() as u32,
        op_size: size_of::<kfabric_op>() as u32,
        ..Call::sized()
    };
    // SAFETY: the kernel reads and writes `count` structures, and reads the operations that they
    // name, which the caller promises; what the operations name is as in `post`.
    let result = unsafe { named(fd, &mut arg) };
    (arg, result)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_nul_terminated_and_checked() {
        let field: [c_char; 8] = chars("link", "roce0").unwrap();
        assert_eq!(text(&field), "roce0");
        assert_eq!(text(&chars::<8>("link", "1234567").unwrap()), "1234567");
        assert_eq!(text(&chars::<8>("link", "").unwrap()), "");
        for bad in ["12345678", "a\0b"] {
            let error = chars::<8>("link", bad).unwrap_err().to_string();
            assert!(
                error.contains("link") && error.contains("7 bytes"),
                "{error}"
            );
        }
        assert_eq!(text(&[b'a' as c_char; 4]), "aaaa", "without a NUL");
    }

    #[test]
    fn empty_arrays_have_no_address() {
        assert_eq!(read_from::<u64>(&[]), 0);
        assert_eq!(write_to::<u64>(&mut []), 0);
        assert_ne!(read_from(&[1u8]), 0);
    }

    proptest! {
        /// Packed entries are expanded in every format.
        #[test]
        fn packed_entries_are_expanded(words in 1usize..=6, entries in prop::collection::vec(any::<[u64; 6]>(), 0..20)) {
            let mut out = vec![Entry::default(); entries.len()];
            {
                let packed: Vec<u64> =
                    entries.iter().flat_map(|e| e[..words].iter().copied()).collect();
                // The same layout that the kernel writes: the packed words at
                // the front.
                for (index, word) in packed.iter().enumerate() {
                    let (entry, place) = (index / 8, index % 8);
                    let mut raw = out[entry].to_words();
                    raw[place] = *word;
                    out[entry] = Entry::from_raw_words(raw);
                }
            }
            unpack(&mut out, words * 8);
            for (got, want) in out.iter().zip(&entries) {
                let mut raw = [0u64; 8];
                raw[..words].copy_from_slice(&want[..words]);
                prop_assert_eq!(*got, Entry::from_words(raw));
            }
        }
    }
}
