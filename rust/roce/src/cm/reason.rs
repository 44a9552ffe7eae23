// SPDX-License-Identifier: GPL-2.0
//! Rejections: the reasons, and the rejection of a REQ without keeping a connection.
//!
//! A [`Refusal`] is a REJ to a REQ for which no state is kept: there is no listener, there is no
//! room, or the REQ cannot be granted. A duplicate of the REQ is rejected again.
//!
//! Source: InfiniBand specification, volume 1, section 12.6.7.2; `enum ib_cm_rej_reason`.

use core::ffi::CStr;

use super::{
    Body,
    CommId,
    Mad,
    Message,
    Private,
    Regarding,
    Rej, //
};

/// The reason in a REJ. Every 16-bit number is possible; the constants below have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(u16);

macro_rules! reasons {
    ($( $(#[$doc:meta])* $name:ident = $code:literal, $text:literal; )*) => {
        impl Reason {
            $( $(#[$doc])* pub const $name: Self = Self($code); )*

            /// Returns the meaning; `"unknown reason"` for a number without a name.
            pub const fn text(self) -> &'static CStr {
                match self.0 {
                    $( $code => $text, )*
                    _ => c"unknown reason",
                }
            }
        }
    };
}

reasons! {
    /// No QP is available.
    NO_QP = 1, c"no QP";
    /// No end-to-end context is available (reliable datagrams of InfiniBand).
    NO_EEC = 2, c"no EEC";
    /// No resources are available.
    NO_RESOURCES = 3, c"no resources";
    /// The peer did not answer in time. The additional information is the sender's GUID.
    TIMEOUT = 4, c"timeout";
    /// The request cannot be supported.
    UNSUPPORTED = 5, c"unsupported request";
    /// The communication ID is not known.
    INVALID_COMM_ID = 6, c"invalid communication ID";
    /// The communication IDs do not belong together.
    INVALID_COMM_INSTANCE = 7, c"invalid communication instance";
    /// No listener has this service ID.
    INVALID_SERVICE_ID = 8, c"invalid service ID";
    /// The transport service is not RC.
    INVALID_TRANSPORT_TYPE = 9, c"invalid transport service type";
    /// A connection with these IDs exists, or existed until a moment ago.
    STALE_CONN = 10, c"stale connection";
    /// The RDC does not exist.
    RDC_NOT_EXIST = 11, c"RDC does not exist";
    /// The remote GID of the primary path is not the receiver's. The additional information is the
    /// receiver's GID.
    INVALID_GID = 12, c"invalid GID";
    /// The primary path's LID is not valid.
    INVALID_LID = 13, c"invalid LID";
    /// The primary path's service level is not valid.
    INVALID_SL = 14, c"invalid SL";
    /// The primary path's traffic class is not valid.
    INVALID_TRAFFIC_CLASS = 15, c"invalid traffic class";
    /// The primary path's hop limit is not valid.
    INVALID_HOP_LIMIT = 16, c"invalid hop limit";
    /// The primary path's packet rate is not valid.
    INVALID_PACKET_RATE = 17, c"invalid packet rate";
    /// The alternate path's remote GID is not valid.
    INVALID_ALT_GID = 18, c"invalid alternate GID";
    /// The alternate path's LID is not valid.
    INVALID_ALT_LID = 19, c"invalid alternate LID";
    /// The alternate path's service level is not valid.
    INVALID_ALT_SL = 20, c"invalid alternate SL";
    /// The alternate path's traffic class is not valid.
    INVALID_ALT_TRAFFIC_CLASS = 21, c"invalid alternate traffic class";
    /// The alternate path's hop limit is not valid.
    INVALID_ALT_HOP_LIMIT = 22, c"invalid alternate hop limit";
    /// The alternate path's packet rate is not valid.
    INVALID_ALT_PACKET_RATE = 23, c"invalid alternate packet rate";
    /// The requester must ask the CM of another port.
    PORT_CM_REDIRECT = 24, c"port and CM redirection";
    /// The requester must use another port.
    PORT_REDIRECT = 25, c"port redirection";
    /// The path MTU cannot be used. The additional information is the code of the largest usable
    /// one.
    INVALID_MTU = 26, c"invalid path MTU";
    /// The peer wants more responder resources than are available.
    INSUFFICIENT_RESP_RESOURCES = 27, c"insufficient responder resources";
    /// The consumer has rejected the request; the private data may give its reason.
    CONSUMER_DEFINED = 28, c"consumer reject";
    /// The RNR retry count is not supported.
    INVALID_RNR_RETRY = 29, c"RNR retry count reject";
    /// Another request has the same communication ID.
    DUPLICATE_LOCAL_COMM_ID = 30, c"duplicate local communication ID";
    /// The class version is not supported.
    INVALID_CLASS_VERSION = 31, c"invalid class version";
    /// The flow label of the primary path is not valid.
    INVALID_FLOW_LABEL = 32, c"invalid flow label";
    /// The alternate path's flow label is not valid.
    INVALID_ALT_FLOW_LABEL = 33, c"invalid alternate flow label";
    /// A vendor's option is not supported.
    VENDOR_OPTION_NOT_SUPPORTED = 35, c"vendor option not supported";
}

impl Reason {
    /// Returns the reason with this number.
    pub const fn new(code: u16) -> Self {
        Self(code)
    }

    /// Returns the number.
    pub const fn code(self) -> u16 {
        self.0
    }
}

/// The length in bytes of the longest additional information in a refusal: a GID.
const INFO_MAX: usize = 16;

/// A rejection: the reason and the additional information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    reason: Reason,
    info: [u8; INFO_MAX],
    info_len: usize,
}

impl Refusal {
    /// Rejects for `reason`.
    pub const fn new(reason: Reason) -> Self {
        Self {
            reason,
            info: [0; INFO_MAX],
            info_len: 0,
        }
    }

    /// Rejects for `reason`, with the value that the requester should have used as additional
    /// information.
    pub(super) fn with(reason: Reason, info: &[u8]) -> Self {
        let mut refusal = Self::new(reason);
        for (to, from) in refusal.info.iter_mut().zip(info) {
            *to = *from;
        }
        refusal.info_len = info.len().min(INFO_MAX);
        refusal
    }

    /// Returns the reason.
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the datagram that rejects the REQ with this transaction ID and this
    /// [`Req::local_id`].
    ///
    /// [`Req::local_id`]: super::Req::local_id
    pub fn message(&self, tid: u64, remote_id: CommId) -> Mad {
        self.message_with(tid, remote_id, Private::NONE)
    }

    /// Returns the same datagram with private data.
    pub fn message_with(&self, tid: u64, remote_id: CommId, private: Private<'_, 148>) -> Mad {
        let info = self.info.get(..self.info_len).unwrap_or(&[]);
        let rej = Rej {
            local_id: CommId(0),
            remote_id,
            regarding: Regarding::Req,
            reason: self.reason,
            info: Private::new(info).unwrap_or(Private::NONE),
            private,
        };
        let body = Body::Rej(rej);
        Message { tid, body }.write()
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_cm_reason))]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_codes_and_texts() {
        let named = |code: &u16| Reason::new(*code).text() != c"unknown reason";
        assert_eq!((0..=u16::MAX).filter(named).count(), 34);
        assert!(!named(&0) && !named(&34) && !named(&36));
        assert_eq!(Reason::STALE_CONN.code(), 10);
        assert_eq!(Reason::CONSUMER_DEFINED.code(), 28);
        assert_eq!(Reason::VENDOR_OPTION_NOT_SUPPORTED.code(), 35);
        assert_eq!(Reason::new(28), Reason::CONSUMER_DEFINED);
    }
}
