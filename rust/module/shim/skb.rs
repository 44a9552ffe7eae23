// SPDX-License-Identifier: GPL-2.0

//! Packets in socket buffers.
//!
//! | type | content |
//! |---|---|
//! | [`RxSkb`] | a received packet; its bytes begin after the UDP header |
//! | [`RxBatch`] | several received packets, an iterator |
//! | [`Inbox`] | packets that wait for their QP; bounded, and closed with the QP |
//! | [`InboxLimits`] | the limits of an inbox |
//! | [`TxSkb`] | a packet to send: contiguous, from the IP header to the last byte |
//! | [`Room`] | a part of a [`TxSkb`] that is being written |
//!
//! A received packet may have many fragments, and some of them may be memory that its sender, on
//! the same host, changes meanwhile. So only its headers are available as slices, because the
//! kernel has them in the linear part. Other bytes are copied, or read for the CRC.

use crate::shim::bindings as shim;
use core::{
    ops::Range,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

/// CRC-32 (IEEE 802.3, reflected) of `bytes` after bytes with the CRC `crc`, without inversion at
/// the beginning or end. It uses instructions of the CPU if there are any. Any context.
pub(crate) fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    // SAFETY: Pointer and length of a slice.
    unsafe { shim::kfabric_shim_crc32(crc, bytes.as_ptr().cast(), bytes.len()) }
}

/// Where a received packet comes from, whatever its source address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sender {
    /// This host.
    ThisHost,
    /// Another host.
    OtherHost,
    /// This host or another one: it came from a VRF.
    Vrf,
}

/// A received packet. Dropping it frees the packet as consumed.
///
/// # Invariants
///
/// `skb` is a socket buffer on no list, which this value owns. Its network and transport headers
/// are set and in its linear part; its data begins after the UDP header.
pub(crate) struct RxSkb {
    skb: NonNull<bindings::sk_buff>,
}

// SAFETY: The owner of a socket buffer may use it on any CPU.
unsafe impl Send for RxSkb {}

impl RxSkb {
    /// Takes over a packet.
    ///
    /// # Safety
    ///
    /// `skb` is as the type's invariant says, and nothing else uses it any more.
    pub(crate) unsafe fn from_raw(skb: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: By the requirements.
        Self { skb }
    }

    fn into_raw(self) -> *mut bindings::sk_buff {
        let skb = self.skb;
        core::mem::forget(self);
        skb.as_ptr()
    }

    /// Bytes of memory that it uses, with its buffers and the structures that describe them.
    pub(crate) fn truesize(&self) -> u32 {
        // SAFETY: `skb` is valid by the type invariant.
        unsafe { shim::kfabric_shim_skb_truesize(self.skb.as_ptr()) }
    }

    /// Bytes after the UDP header.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: `skb` is valid by the type invariant.
        unsafe { shim::kfabric_shim_skb_len(self.skb.as_ptr()) as usize }
    }

    /// The index of the VRF that it came from; 0 if it came from none.
    pub(crate) fn vrf(&self) -> u32 {
        // SAFETY: `skb` is valid by the type invariant.
        unsafe { shim::kfabric_shim_skb_vrf(self.skb.as_ptr()) }
    }

    /// Where it comes from.
    pub(crate) fn sender(&self) -> Sender {
        // SAFETY: `skb` is valid by the type invariant.
        let from_this_host = unsafe { shim::kfabric_shim_skb_from_this_host(self.skb.as_ptr()) };
        match (from_this_host, self.vrf()) {
            (true, _) => Sender::ThisHost,
            (false, 0) => Sender::OtherHost,
            (false, _) => Sender::Vrf,
        }
    }

    /// The IP header, with its options or extension headers.
    pub(crate) fn ip(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: By the type invariant the header is set, and contiguous; nothing writes to it
        // while the packet lives.
        unsafe {
            let ip = shim::kfabric_shim_skb_ip(self.skb.as_ptr(), &raw mut len);
            core::slice::from_raw_parts(ip, len as usize)
        }
    }

    /// The UDP header.
    pub(crate) fn udp(&self) -> &[u8; 8] {
        // SAFETY: As in `ip`; the header has eight bytes, and bytes need no alignment.
        unsafe { &*shim::kfabric_shim_skb_udp(self.skb.as_ptr()).cast() }
    }

    /// The first bytes after the UDP header: as many as `buffer` has, or all. `buffer` is used if
    /// they are not contiguous.
    pub(crate) fn head<'a>(&'a self, buffer: &'a mut [u8]) -> &'a [u8] {
        let len = buffer.len().min(self.len());
        // SAFETY: `skb` is valid by the type invariant; `buffer` has room. The result points to
        // `len` bytes either of the packet's linear part, to which nothing writes while it lives,
        // or of `buffer`; both live during `'a`.
        unsafe {
            // At most the size of a buffer for headers, so it fits.
            let len = len as u32;
            let head = shim::kfabric_shim_skb_head(self.skb.as_ptr(), len, buffer.as_mut_ptr());
            if head.is_null() {
                return &[];
            }
            core::slice::from_raw_parts(head, len as usize)
        }
    }

    /// Offset and length of a range; `None` if it is not within the packet.
    fn within(&self, range: &Range<usize>) -> Option<(u32, u32)> {
        let len = range.end.checked_sub(range.start)?;
        // Both fit, as the packet's own length does.
        (range.end <= self.len()).then_some((range.start as u32, len as u32))
    }

    /// The CRC of the bytes in `range` after bytes with the CRC `crc`, see [`crc32`]; `crc` if they
    /// are not within the packet. Any context.
    pub(crate) fn crc32(&self, crc: u32, range: Range<usize>) -> u32 {
        let Some((offset, len)) = self.within(&range) else {
            return crc;
        };
        // SAFETY: `skb` is valid by the type invariant; the range is within the packet.
        unsafe { shim::kfabric_shim_skb_crc32(self.skb.as_ptr(), offset, len, crc) }
    }

    /// Copies bytes from `offset` on to `to`. Returns false if there are too few; then the bytes of
    /// `to` are unspecified. Any context.
    #[must_use]
    pub(crate) fn copy_to_slice(&self, offset: usize, to: &mut [u8]) -> bool {
        // SAFETY: The slice is valid for writes of its length.
        unsafe { self.copy_raw(offset, to.as_mut_ptr(), to.len()) }
    }

    /// Copies `len` bytes from `offset` on to `to`; otherwise as
    /// [`copy_to_slice`](Self::copy_to_slice).
    ///
    /// # Safety
    ///
    /// `to` is valid for writes of `len` bytes. Others may access this memory at the same time.
    #[must_use]
    pub(crate) unsafe fn copy_raw(&self, offset: usize, to: *mut u8, len: usize) -> bool {
        let Some(end) = offset.checked_add(len) else {
            return false;
        };
        let Some((offset, len)) = self.within(&(offset..end)) else {
            return false;
        };
        // SAFETY: By the type invariant and the requirements of this function.
        unsafe { shim::kfabric_shim_skb_copy(self.skb.as_ptr(), offset, to.cast(), len) }
    }

    /// Frees the packet as dropped.
    pub(crate) fn reject(self) {
        // SAFETY: By the type invariant it is owned here.
        unsafe { shim::kfabric_shim_skb_drop(self.into_raw()) }
    }
}

impl Drop for RxSkb {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is owned here.
        unsafe { shim::kfabric_shim_skb_consume(self.skb.as_ptr()) }
    }
}

/// Received packets in order of arrival. Dropping it frees the rest as dropped.
///
/// # Invariants
///
/// `first` is null, or the first of a chain of packets that this value owns, which otherwise are as
/// [`RxSkb`] says. `last` is the last of that chain if packets are pushed.
pub(crate) struct RxBatch {
    first: *mut bindings::sk_buff,
    last: *mut bindings::sk_buff,
}

impl RxBatch {
    /// No packets.
    pub(crate) const fn empty() -> Self {
        // INVARIANT: There are no packets.
        Self::from_first(core::ptr::null_mut())
    }

    /// The chain that begins with `first`, as the type's invariant says.
    const fn from_first(first: *mut bindings::sk_buff) -> Self {
        Self {
            first,
            last: core::ptr::null_mut(),
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Appends a packet to a batch that was made with [`empty`](Self::empty).
    pub(crate) fn push(&mut self, skb: RxSkb) {
        let skb = skb.into_raw();
        if self.first.is_null() {
            // INVARIANT: A chain of one.
            self.first = skb;
        } else {
            // SAFETY: By the type invariant `last` is the end of the chain. INVARIANT: The chain is
            // longer by one.
            unsafe { shim::kfabric_shim_skb_chain(self.last, skb) };
        }
        self.last = skb;
    }
}

impl Iterator for RxBatch {
    type Item = RxSkb;

    fn next(&mut self) -> Option<RxSkb> {
        let skb = NonNull::new(self.first)?;
        // SAFETY: `skb` is valid by the type invariant. INVARIANT: The rest is a chain as before.
        self.first = unsafe { shim::kfabric_shim_skb_next(skb.as_ptr()) };
        // SAFETY: The packet is as the invariant says, and is on no list any more.
        Some(unsafe { RxSkb::from_raw(skb) })
    }
}

impl Drop for RxBatch {
    fn drop(&mut self) {
        self.for_each(RxSkb::reject);
    }
}

/// The reason why a packet cannot be appended to an inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoRoom {
    /// A limit of the inbox is reached ([`InboxLimits`]).
    Full,
    /// There is not enough room, see [`Inbox`].
    Room,
    /// The inbox is closed.
    Closed,
}

/// The limits of an [`Inbox`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct InboxLimits {
    /// The most packets that may wait.
    pub(crate) packets: u32,
    /// When waiting packets use this many bytes of memory, no more may wait. The packet that
    /// reaches the limit may exceed it.
    pub(crate) bytes: u32,
}

/// Packets that wait for a run of their QP.
///
/// An inbox has room for a number of bytes of memory. A reserve is always available. A caller that
/// [pushes](Self::push) a packet can add room, and a caller that takes packets learns how much room
/// is not needed any more.
///
/// Its lock is a leaf, taken in softirq.
///
/// # Invariants
///
/// `raw` is initialised; it owns its packets, which are as [`RxSkb`] says.
#[pin_data(PinnedDrop)]
pub(crate) struct Inbox {
    #[pin]
    raw: Opaque<shim::kfabric_shim_inbox>,
}

// SAFETY: The inbox has its own lock.
unsafe impl Send for Inbox {}
// SAFETY: As above.
unsafe impl Sync for Inbox {}

impl Inbox {
    /// An empty inbox with room for `reserve` bytes.
    pub(crate) fn new(reserve: u32) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `raw` is valid for initialisation, and pinned.
            // INVARIANT: Initialised.
            raw <- Opaque::ffi_init(|raw| unsafe { shim::kfabric_shim_inbox_init(raw, reserve) }),
        })
    }

    /// Appends `skb`, unless a limit of `max` is reached or there is no room for it. The room grows
    /// by `more` bytes, unless the packet is returned; if `more` is the packet's
    /// [`truesize`](RxSkb::truesize) or larger, there is always enough. Returns whether the packet
    /// is the first, so that the QP must be scheduled. Softirq or process context.
    pub(crate) fn push(
        &self,
        skb: RxSkb,
        max: InboxLimits,
        more: u32,
    ) -> Result<bool, (NoRoom, RxSkb)> {
        let max = shim::kfabric_shim_inbox_limits {
            packets: max.packets,
            bytes: max.bytes,
        };
        // SAFETY: `raw` is valid by the type invariants; the inbox owns the packet unless the
        // result is negative.
        let ret = unsafe {
            shim::kfabric_shim_inbox_push(self.raw.get(), skb.skb.as_ptr(), &raw const max, more)
        };
        match ret {
            0.. => {
                core::mem::forget(skb);
                Ok(ret > 0)
            }
            ret if ret == ENOBUFS.to_errno() => Err((NoRoom::Full, skb)),
            ret if ret == EDQUOT.to_errno() => Err((NoRoom::Room, skb)),
            _ => Err((NoRoom::Closed, skb)),
        }
    }

    /// Bytes of room beyond the reserve, at some moment of the call. Any context.
    pub(crate) fn borrowed(&self) -> u32 {
        // SAFETY: `raw` is valid by the type invariant.
        unsafe { shim::kfabric_shim_inbox_borrowed(self.raw.get()) }
    }

    /// Takes the waiting packets, at most the first `max`. Also returns the number of bytes by
    /// which the room has become smaller. Process context.
    pub(crate) fn take(&self, max: u32) -> (RxBatch, u32) {
        let mut surplus = 0;
        // SAFETY: `raw` is valid by the type invariant. INVARIANT: The batch now owns the packets.
        let first = unsafe { shim::kfabric_shim_inbox_take(self.raw.get(), max, &raw mut surplus) };
        (RxBatch::from_first(first), surplus)
    }

    /// Whether no packet waits, at some moment of the call. Any context.
    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: `raw` is valid by the type invariant.
        unsafe { shim::kfabric_shim_inbox_is_empty(self.raw.get()) }
    }

    /// Closes the inbox to further packets, and takes all packets, as [`take`](Self::take). Process
    /// context.
    pub(crate) fn close(&self) -> (RxBatch, u32) {
        let mut surplus = 0;
        // SAFETY: `raw` is valid by the type invariant. INVARIANT: The batch now owns all packets.
        let first = unsafe { shim::kfabric_shim_inbox_close(self.raw.get(), &raw mut surplus) };
        (RxBatch::from_first(first), surplus)
    }
}

#[pinned_drop]
impl PinnedDrop for Inbox {
    fn drop(self: Pin<&mut Self>) {
        drop(self.close());
    }
}

/// A packet to send, from its IP header on. It is written from the first byte to the last. The
/// bytes of a new packet are not initialised, so no slice covers those that are not written yet.
///
/// # Invariants
///
/// `skb` is a socket buffer that this value owns; its linear part is the `len` bytes at `data`. The
/// first `written` of them are initialised, and `written` is at most `len`.
pub(crate) struct TxSkb {
    skb: NonNull<bindings::sk_buff>,
    data: NonNull<u8>,
    len: usize,
    written: usize,
}

// SAFETY: The owner of a socket buffer may use it on any CPU.
unsafe impl Send for TxSkb {}

impl TxSkb {
    /// A packet of `len` bytes, none of them written yet. Fails with `ENOMEM`. Does not sleep.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let bytes = u32::try_from(len)?;
        let mut data = core::ptr::null_mut();
        // SAFETY: `data` is valid for the call.
        let skb = unsafe { shim::kfabric_shim_skb_alloc(bytes, &raw mut data) };
        // INVARIANT: The packet is as the function returns it.
        Ok(Self {
            skb: NonNull::new(skb).ok_or(ENOMEM)?,
            data: NonNull::new(data).ok_or(ENOMEM)?,
            len,
            written: 0,
        })
    }

    /// The written bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: By the type invariants they are initialised, and belong to the packet, which this
        // value owns.
        unsafe { core::slice::from_raw_parts(self.data.as_ptr(), self.written) }
    }

    /// The written bytes, to be changed. For tests.
    #[cfg(kfi_kunit)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: As in `bytes`.
        unsafe { core::slice::from_raw_parts_mut(self.data.as_ptr(), self.written) }
    }

    /// Whether all bytes are written.
    pub(crate) fn is_complete(&self) -> bool {
        self.written == self.len
    }

    /// Room for the next `len` bytes, or for as many as are left.
    pub(crate) fn room(&mut self, len: usize) -> Room<'_> {
        // INVARIANT: At most the number of bytes that are not written.
        Room {
            left: len.min(self.len - self.written),
            skb: self,
        }
    }

    pub(super) fn into_raw(self) -> *mut bindings::sk_buff {
        let skb = self.skb;
        core::mem::forget(self);
        skb.as_ptr()
    }
}

impl Drop for TxSkb {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is owned here.
        unsafe { shim::kfabric_shim_skb_drop(self.skb.as_ptr()) }
    }
}

/// A part of a packet that is being written, from its first byte to its last.
///
/// # Invariants
///
/// `left` is at most the number of bytes of `skb` that are not written.
pub(crate) struct Room<'a> {
    skb: &'a mut TxSkb,
    left: usize,
}

impl Room<'_> {
    /// Bytes that are not written yet.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Writes `bytes`, as far as there is room.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        // SAFETY: Pointer and length of a slice.
        unsafe { self.put_raw(bytes.as_ptr(), bytes.len()) };
    }

    /// Writes `len` bytes from `from`, as far as there is room. Returns the number of bytes.
    ///
    /// # Safety
    ///
    /// `from` is valid for reads of `len` bytes. Others may access this memory at the same time.
    pub(crate) unsafe fn put_raw(&mut self, from: *const u8, len: usize) -> usize {
        let len = len.min(self.left);
        // SAFETY: By the type invariants `len` more bytes of the packet follow the written ones,
        // and nothing else uses them; `from` is valid by the requirements. Others may change the
        // source at the same time, which is why C copies it.
        unsafe {
            let to = self.skb.data.as_ptr().add(self.skb.written);
            shim::kfabric_shim_copy(to.cast(), from.cast(), len);
        }
        // INVARIANT: Just written.
        self.skb.written += len;
        self.left -= len;
        len
    }

    /// Writes `byte` to the rest of the room.
    pub(crate) fn fill(&mut self, byte: u8) {
        // SAFETY: As in `put_raw`.
        unsafe {
            let to = self.skb.data.as_ptr().add(self.skb.written);
            core::ptr::write_bytes(to, byte, self.left);
        }
        // INVARIANT: Just written.
        self.skb.written += self.left;
        self.left = 0;
    }
}
