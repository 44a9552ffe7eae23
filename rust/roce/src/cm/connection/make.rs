// SPDX-License-Identifier: GPL-2.0
//! Constructors of [`Connection`]: the active end sends a REQ, the passive end has received one.

use super::{
    super::{
        super::{
            headers::{
                Qpn,
                DEFAULT_PKEY, //
            },
            mtu::PathMtu, //
        },
        timing::Retry,
        Body,
        CommId,
        Gid,
        Path,
        Reason,
        Refusal,
        Req,
        Timeout,
        Timing,
        Transport,
        MAD_LEN, //
    },
    Connect,
    Connection,
    Device,
    Pending,
    ReqIdentity,
    Request,
    State, //
};
use core::net::IpAddr;

/// The hop limit in the paths of a REQ.
const HOP_LIMIT: u8 = 64;

impl Connection {
    /// Makes the active end of a connection at time `now`. A REQ is then ready for
    /// [`Connection::transmit`].
    pub fn connect(now: u64, device: &Device, connect: &Connect<'_>) -> Self {
        let timing = device.timing;
        let ack_timeout = Timeout::ack(timing.life_time, Timeout::new(0));
        let side = connect.side;
        let mtu = connect.mtu.min(device.mtu);
        let req = Req {
            local_id: connect.local_id,
            service_id: connect.service_id,
            ca_guid: device.ca_guid,
            qpn: side.qpn,
            responder_resources: side.responder_resources,
            initiator_depth: side.initiator_depth,
            remote_response_timeout: timing.longest,
            transport: Transport::Rc,
            flow_control: false,
            starting_psn: side.starting_psn,
            local_response_timeout: timing.longest,
            retry_count: connect.retry_count.min(7),
            pkey: DEFAULT_PKEY,
            mtu: mtu.code(),
            rnr_retry_count: side.rnr_retry_count.min(7),
            max_cm_retries: timing.retries.min(15),
            srq: side.srq,
            primary: Path::new(
                device.ip.into(),
                connect.remote.into(),
                HOP_LIMIT,
                ack_timeout,
            ),
            alternate: Path::NONE,
            private: connect.private,
        };
        let mut connection = Self {
            local_qpn: side.qpn,
            least_mtu: connect.least_mtu,
            timewait: ack_timeout.ns(),
            linger: ack_timeout.ns(),
            tid: connect.tid,
            ..Self::new(device, connect.remote, &req, mtu, timing.longest)
        };
        connection.send(now, State::ReqSent, Body::Req(req));
        connection
    }

    /// Makes the passive end of a connection from a REQ that is not a duplicate (see
    /// [`Route`](super::super::Route)), with the communication ID `local_id`. Also returns the
    /// request for the consumer, which later calls [`accept`](Self::accept) or
    /// [`reject`](Self::reject).
    ///
    /// # Errors
    ///
    /// The caller sends the [`Refusal`] to the peer. Reasons are: the transport service is not RC;
    /// the path MTU is invalid or larger than the device's; the GID is not the device's; a path, QP
    /// number or partition is invalid.
    pub fn request<'m>(
        device: &Device,
        local_id: CommId,
        from: IpAddr,
        tid: u64,
        req: &Req<'m>,
    ) -> Result<(Self, Request<'m>), Refusal> {
        let mtu = Self::check_req(device, from, req)?;
        let private = req.private.get().try_into();
        let private = private.map_err(|_| Refusal::new(Reason::UNSUPPORTED))?;
        let timing = device.timing;
        let ack_timeout = req.primary.ack_timeout.min(Timing::LIMIT);
        let response = req.remote_response_timeout.min(Timing::LIMIT);
        // The sender of a REQ is not authenticated, so the packet life time is taken from this
        // end's configuration.
        let again = ack_timeout
            .min(Timeout::ack(timing.life_time, Timeout::new(0)))
            .ns()
            .saturating_mul(2);
        let request = Request {
            from,
            service_id: req.service_id,
            qpn: req.qpn,
            starting_psn: req.starting_psn,
            mtu,
            responder_resources: req.initiator_depth.min(device.responder_resources),
            initiator_depth: req.responder_resources.min(device.initiator_depth),
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout: req.primary.ack_timeout,
            flow_label: req.primary.flow_label,
            traffic_class: req.primary.traffic_class,
            srq: req.srq,
            private,
        };
        let connection = Self {
            state: State::ReqReceived,
            active: false,
            local_id,
            remote_id: Some(req.local_id),
            remote_guid: req.ca_guid,
            remote_qpn: req.qpn,
            timewait: ack_timeout.ns(),
            linger: response.ns().saturating_add(again),
            tid,
            ..Self::new(device, from, req, mtu, req.local_response_timeout)
        };
        Ok((connection, request))
    }

    /// Makes the active end of the connection that a REQ requests. `response` is the time that the
    /// peer may take to answer.
    fn new(device: &Device, peer: IpAddr, req: &Req<'_>, mtu: PathMtu, response: Timeout) -> Self {
        Self {
            state: State::ReqSent,
            active: true,
            end_reported: false,
            local_id: req.local_id,
            remote_id: None,
            ca_guid: device.ca_guid,
            remote_guid: 0,
            peer,
            local_qpn: Qpn::default(),
            remote_qpn: Qpn::default(),
            req_identity: ReqIdentity::new(req),
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            mtu,
            least_mtu: mtu,
            timing: device.timing,
            response,
            timewait: 0,
            linger: 0,
            mra_sent: false,
            retry: Retry::new(&device.timing, response),
            mra_received: false,
            deadline: None,
            next_answer: 0,
            tid: 0,
            last_message: [0; MAD_LEN],
            last_kind: None,
            pending: Pending::Nothing,
        }
    }

    /// Checks whether a REQ can be granted, and returns its path MTU.
    fn check_req(device: &Device, from: IpAddr, req: &Req<'_>) -> Result<PathMtu, Refusal> {
        if req.transport != Transport::Rc {
            return Err(Refusal::new(Reason::INVALID_TRANSPORT_TYPE));
        }
        let mtu = PathMtu::from_code(req.mtu).filter(|mtu| *mtu <= device.mtu);
        let mtu = mtu.ok_or(Refusal::with(Reason::INVALID_MTU, &[device.mtu.code()]))?;
        let gid = Gid::from(device.ip);
        if req.primary.remote_gid != gid {
            return Err(Refusal::with(Reason::INVALID_GID, &gid.0));
        }
        let member = req.pkey | 0x8000;
        if req.primary.local_gid != Gid::from(from)
            || member != DEFAULT_PKEY
            || !Self::can_be_connected(req.qpn)
        {
            return Err(Refusal::new(Reason::UNSUPPORTED));
        }
        Ok(mtu)
    }

    /// Returns whether a QP with this number can have a connection.
    pub(super) fn can_be_connected(qpn: Qpn) -> bool {
        qpn > Qpn::GSI && qpn != Qpn::MULTICAST
    }
}
