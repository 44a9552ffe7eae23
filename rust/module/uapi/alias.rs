// SPDX-License-Identifier: GPL-2.0

//! Aliases of endpoints (`KFABRIC_IOC_EP_ALIAS`): a second handle of an endpoint, with default
//! flags of its own. `KFABRIC_IOC_POST` resolves it; the provider knows no aliases.

use kfi_core::{
    flags::OpFlags,
    op::Side, //
};

use super::prelude::*;
use crate::{
    mem::Allowance,
    provider::{
        ep::Endpoint,
        object::{
            Object,
            UseCount,
            UseRef, //
        }, //
    }, //
};

/// The default flags of both sides.
#[derive(Clone, Copy)]
pub(super) struct DefaultFlags {
    pub(super) transmit: OpFlags,
    pub(super) receive: OpFlags,
}

impl DefaultFlags {
    /// Those of an endpoint now. Does not sleep.
    #[inline]
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        Self {
            transmit: endpoint.op_flags(Side::Transmit),
            receive: endpoint.op_flags(Side::Receive),
        }
    }

    pub(super) fn side(self, side: Side) -> OpFlags {
        match side {
            Side::Transmit => self.transmit,
            Side::Receive => self.receive,
        }
    }
}

/// An alias of an endpoint, which it uses.
pub(super) struct EpAlias {
    endpoint: UseRef<Endpoint>,
    defaults: DefaultFlags,
    uses: UseCount,
    _memory: Allowance,
}

impl EpAlias {
    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        self.endpoint.arc()
    }

    pub(super) fn defaults(&self) -> DefaultFlags {
        self.defaults
    }
}

impl Object for EpAlias {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        self.endpoint.release();
    }
}

/// `KFABRIC_IOC_EP_ALIAS`.
pub(super) fn open(
    file: &OpenFile,
    arg: &mut kfabric_ep_alias,
    ident: Ident,
) -> Result<Arc<EpAlias>> {
    must_be_zero(&[arg.reserved])?;
    let endpoint = file.object::<Endpoint>(arg.ep)?;
    let check = |side: Side, flags| {
        let flags = side.default_flags(flags).map_err(to_error)?;
        endpoint.check_op_flags(flags)?;
        Ok::<_, Error>(flags)
    };
    let defaults = DefaultFlags {
        transmit: check(Side::Transmit, arg.tx_op_flags)?,
        receive: check(Side::Receive, arg.rx_op_flags)?,
    };
    let memory = ident.budget.take_for::<EpAlias>(0)?;
    Ok(Arc::new(
        EpAlias {
            endpoint: UseRef::new(endpoint)?,
            defaults,
            uses: UseCount::new(),
            _memory: memory,
        },
        GFP_KERNEL_ACCOUNT,
    )?)
}
