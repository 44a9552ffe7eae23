// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_ud_modify`: a UD QP takes its address and its Q key by changes of its state, and
//! is used again after RESET. kfi_roce tests the transitions themselves.

use super::super::{
    ud::Destination,
    Qp,
    Ud, //
};
use crate::{
    kunit::helpers::{
        a_while,
        count_if,
        eventually,
        Count, //
    },
    mem::{
        Budget,
        Source, //
    },
    net::{
        del,
        kunit_wire_pair::{
            buffer,
            End,
            Recorder,
            Slow,
            TestLink,
            ONE,
            QKEY,
            SIX,
            TWO, //
        },
        NetNs,
        Path,
        Stat, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    prelude::*,
    sync::atomic::Acquire, //
};
use kfi_roce::{
    state::{
        Mask,
        State, //
    },
    ud::Attr, //
};

const TO_INIT: Mask = Mask::PKEY_INDEX.with(Mask::PORT).with(Mask::QKEY);

fn to(state: State) -> Attr {
    Attr {
        state,
        qkey: QKEY,
        ..Attr::default()
    }
}

impl End {
    /// Makes a QP in RESET.
    fn in_reset(link: &TestLink) -> Result<Self> {
        let got = Recorder::new()?;
        let qp = Qp::in_reset(&link.0, None, &Budget::of_program()?, got.clone())?;
        Ok(Self { qp, got })
    }

    /// Changes the state without attributes.
    fn change(&self, state: State) -> Result {
        self.qp.modify(&to(state), Mask::NONE, None)
    }

    /// Moves the QP from RESET to RTS.
    fn start(&self, address: Option<IpAddr>) -> Result {
        self.qp.modify(&to(State::Init), TO_INIT, address)?;
        self.change(State::Rtr)?;
        self.qp.modify(&to(State::Rts), Mask::SQ_PSN, None)
    }

    /// Sends a datagram to `other`.
    fn send_to(&self, path: &Path, other: &Qp<Ud>, qkey: u32) -> Result {
        let destination = Destination {
            qp: other.number(),
            qkey,
            ..self.destination()
        };
        self.qp.send(path, &destination, &Source::Mem(buffer(8)?))
    }

    /// Returns whether a datagram of `sender` reaches this QP; if not, it is dropped by `cause`.
    fn receives(&self, sender: &End, path: &Path, cause: Stat) -> Result<bool> {
        let (got, dropped) = (self.got.count(), self.stat(cause));
        sender.send_to(path, &self.qp, QKEY)?;
        let received = || self.got.count() == got + 1;
        let lost = || self.stat(cause) == dropped + 1;
        // One of them happens, and not both.
        if !eventually(|| received() || lost()) || received() == lost() {
            return Err(EIO);
        }
        Ok(received())
    }
}

#[kunit_tests(kfabric_ud_modify)]
mod tests {
    use super::*;

    /// The run of a packet that comes during a change is made up for, also if the change fails.
    #[test]
    fn a_datagram_that_comes_during_a_change_is_received() -> Result {
        let link = TestLink::new()?;
        let (sender, end) = (End::in_reset(&link)?, End::in_reset(&link)?);
        sender.start(None)?;
        end.start(None)?;
        let path = Path::new(&link.0, ONE, TWO)?;
        let change = end.qp.begin_change(true);
        sender.send_to(&path, &end.qp, QKEY)?;
        a_while();
        ensure_eq!(end.got.count(), 0);
        drop(change);
        ensure!(eventually(|| end.got.count() == 1));
        Ok(())
    }

    #[test]
    fn a_qp_takes_its_address_by_modify() -> Result {
        let link = TestLink::new()?;
        let (sender, end) = (End::in_reset(&link)?, End::in_reset(&link)?);
        sender.start(None)?;
        let number = end.qp.number();
        let path = Path::new(&link.0, ONE, TWO)?;
        ensure!(end.qp.state() == State::Reset);
        ensure!(!end.receives(&sender, &path, Stat::DropState)?);
        ensure!(end.send_to(&path, &sender.qp, QKEY) == Err(EINVAL));
        // Each attribute is required, and an address comes with the port.
        let init = to(State::Init);
        for mask in [
            Mask::NONE,
            Mask::PKEY_INDEX.with(Mask::PORT),
            Mask::PKEY_INDEX.with(Mask::QKEY),
            TO_INIT.with(Mask::SQ_PSN),
        ] {
            ensure!(end.qp.modify(&init, mask, None) == Err(EINVAL));
        }
        ensure!(end.qp.modify(&to(State::Error), Mask::NONE, None) == Err(EINVAL));
        let port = Attr { port: 2, ..init };
        ensure!(end.qp.modify(&port, TO_INIT, Some(TWO)) == Err(EINVAL));
        ensure!(end.qp.state() == State::Reset);
        ensure!(!end.receives(&sender, &path, Stat::DropState)?);

        end.qp.modify(&init, TO_INIT, Some(TWO))?;
        ensure!(!end.receives(&sender, &path, Stat::DropState)?);
        ensure!(end.qp.modify(&to(State::Rtr), Mask::NONE, Some(TWO)) == Err(EINVAL));
        end.change(State::Rtr)?;
        ensure!(end.receives(&sender, &path, Stat::DropState)?);
        ensure!(end.send_to(&path, &sender.qp, QKEY) == Err(EINVAL));
        ensure!(end.change(State::Rts) == Err(EINVAL));
        end.qp.modify(&to(State::Rts), Mask::SQ_PSN, None)?;
        ensure!(end.receives(&sender, &path, Stat::DropState)?);
        let back = Path::new(&link.0, TWO, ONE)?;
        ensure!(sender.receives(&end, &back, Stat::DropState)?);
        // Only one address is its own, and its number is that from its creation.
        let other = Path::new(&link.0, ONE, ONE)?;
        ensure!(!end.receives(&sender, &other, Stat::DropDestination)?);
        ensure!(end.qp.number() == number);
        Ok(())
    }

    #[test]
    fn a_qp_can_have_all_addresses_of_its_link() -> Result {
        let link = TestLink::new()?;
        let (sender, end) = (End::in_reset(&link)?, End::in_reset(&link)?);
        sender.start(None)?;
        end.start(None)?;
        for ip in [ONE, TWO] {
            let path = Path::new(&link.0, ONE, ip)?;
            ensure!(end.receives(&sender, &path, Stat::DropDestination)?);
        }
        if cfg!(CONFIG_IPV6) {
            let path = Path::new(&link.0, SIX, SIX)?;
            ensure!(end.receives(&sender, &path, Stat::DropDestination)?);
        }
        Ok(())
    }

    /// The address can be changed in INIT.
    #[test]
    fn the_last_address_is_valid() -> Result {
        let link = TestLink::new()?;
        let (sender, end) = (End::in_reset(&link)?, End::in_reset(&link)?);
        sender.start(None)?;
        end.qp.modify(&to(State::Init), TO_INIT, Some(ONE))?;
        end.qp.modify(&to(State::Init), Mask::PORT, Some(TWO))?;
        // Without the port the address stays.
        end.qp.modify(&to(State::Init), Mask::QKEY, None)?;
        end.change(State::Rtr)?;
        let path = Path::new(&link.0, ONE, TWO)?;
        ensure!(end.receives(&sender, &path, Stat::DropDestination)?);
        let path = Path::new(&link.0, ONE, ONE)?;
        ensure!(!end.receives(&sender, &path, Stat::DropDestination)?);
        Ok(())
    }

    #[test]
    fn the_q_key_changes_during_use() -> Result {
        let link = TestLink::new()?;
        let (sender, end) = (End::in_reset(&link)?, End::in_reset(&link)?);
        sender.start(None)?;
        end.start(Some(TWO))?;
        let path = Path::new(&link.0, ONE, TWO)?;
        ensure!(end.receives(&sender, &path, Stat::DropQkey)?);
        let other = Attr {
            qkey: QKEY + 1,
            ..to(State::Rts)
        };
        end.qp.modify(&other, Mask::QKEY, None)?;
        ensure!(!end.receives(&sender, &path, Stat::DropQkey)?);
        sender.send_to(&path, &end.qp, QKEY + 1)?;
        ensure!(eventually(|| end.got.count() == 2));
        // The Q key stays in a change without it.
        end.change(State::Sqd)?;
        end.change(State::Rts)?;
        ensure!(!end.receives(&sender, &path, Stat::DropQkey)?);
        Ok(())
    }

    #[test]
    fn each_state_sends_and_receives_by_its_rules() -> Result {
        let link = TestLink::new()?;
        let (sender, end) = (End::in_reset(&link)?, End::in_reset(&link)?);
        sender.start(None)?;
        end.start(Some(TWO))?;
        let path = Path::new(&link.0, ONE, TWO)?;
        let back = Path::new(&link.0, TWO, ONE)?;
        let sqd = Attr {
            en_sqd_async_notify: true,
            ..to(State::Sqd)
        };
        let drained = || end.got.drained.load(Acquire);
        // The work request waits in SQD; the report comes once.
        end.qp.modify(&sqd, Mask::EN_SQD_ASYNC_NOTIFY, None)?;
        ensure!(eventually(|| drained() == 1));
        ensure!(end.send_to(&back, &sender.qp, QKEY) == Err(EAGAIN));
        ensure!(end.receives(&sender, &path, Stat::DropState)?);
        end.change(State::Rts)?;
        end.change(State::Sqd)?;
        a_while();
        ensure_eq!(drained(), 1);
        end.change(State::Rts)?;
        ensure!(sender.receives(&end, &back, Stat::DropState)?);
        // A send that failed ends sending, and not receiving.
        end.qp.fail_send();
        ensure!(end.qp.state() == State::Sqe);
        ensure!(end.send_to(&back, &sender.qp, QKEY) == Err(ECANCELED));
        ensure!(end.receives(&sender, &path, Stat::DropState)?);
        end.change(State::Rts)?;
        ensure!(sender.receives(&end, &back, Stat::DropState)?);
        end.change(State::Error)?;
        ensure!(end.send_to(&back, &sender.qp, QKEY) == Err(ECANCELED));
        ensure!(!end.receives(&sender, &path, Stat::DropState)?);
        ensure!(end.change(State::Rts) == Err(EINVAL));
        ensure!(end.qp.state() == State::Error);
        Ok(())
    }

    #[test]
    fn a_reset_qp_is_used_again() -> Result {
        let link = TestLink::new()?;
        let (sender, end) = (End::in_reset(&link)?, End::in_reset(&link)?);
        sender.start(None)?;
        let number = end.qp.number();
        let paths = [Path::new(&link.0, TWO, ONE)?, Path::new(&link.0, ONE, TWO)?];
        for round in 0..6 {
            let [path, other] = if round % 2 == 0 {
                [&paths[0], &paths[1]]
            } else {
                [&paths[1], &paths[0]]
            };
            end.start(Some(path.addrs().to))?;
            ensure!(end.receives(&sender, path, Stat::DropDestination)?);
            ensure!(!end.receives(&sender, other, Stat::DropDestination)?);
            if round % 3 == 0 {
                end.change(State::Error)?;
            }
            end.change(State::Reset)?;
            ensure!(end.qp.state() == State::Reset && end.qp.number() == number);
            ensure!(!end.receives(&sender, path, Stat::DropState)?);
        }
        // RESET has cleared the Q key.
        end.qp.modify(&to(State::Init), TO_INIT, Some(TWO))?;
        end.change(State::Reset)?;
        let none = Attr {
            qkey: 0,
            ..to(State::Init)
        };
        end.qp.modify(&none, TO_INIT, Some(TWO))?;
        end.change(State::Rtr)?;
        ensure!(!end.receives(&sender, &paths[1], Stat::DropQkey)?);
        Ok(())
    }

    /// RESET waits for the consumer that is being called, and drops what waits.
    #[test]
    fn reset_ends_the_run() -> Result {
        let link = TestLink::new()?;
        let sender = End::in_reset(&link)?;
        sender.start(None)?;
        let slow = Slow::new()?;
        let qp = Qp::in_reset(&link.0, None, &Budget::of_program()?, slow.clone())?;
        let path = Path::new(&link.0, ONE, TWO)?;
        qp.modify(&to(State::Init), TO_INIT, Some(TWO))?;
        qp.modify(&to(State::Rtr), Mask::NONE, None)?;
        sender.send_to(&path, &qp, QKEY)?;
        // The run has taken the first datagram, and the others wait.
        ensure!(eventually(|| slow.is_called()));
        for _ in 0..20 {
            sender.send_to(&path, &qp, QKEY)?;
        }
        ensure!(eventually(|| !qp.inbox.is_empty()));
        let done = Count::new()?;
        let resetter = {
            let qp = qp.clone();
            count_if(&done, move || {
                qp.modify(&to(State::Reset), Mask::NONE, None).is_ok()
            })?
        };
        a_while();
        let early = done.get();
        slow.go_on();
        ensure!(eventually(|| done.get() == 1));
        let count = slow.count.get();
        resetter.join();
        ensure_eq!(early, 0);
        ensure!(qp.inbox.is_empty());
        a_while();
        ensure_eq!(slow.count.get(), count);
        let dropped = qp.stats().get(Stat::DropState);
        ensure_eq!(u64::from(count) + dropped, 21);
        qp.close();
        Ok(())
    }

    #[test]
    fn a_path_belongs_to_no_qp() -> Result {
        let link = TestLink::new()?;
        let (first, second, end) = (
            End::in_reset(&link)?,
            End::in_reset(&link)?,
            End::in_reset(&link)?,
        );
        let path = Path::new(&link.0, ONE, TWO)?;
        for qp in [&first, &second, &end] {
            qp.start(None)?;
        }
        ensure!(end.receives(&first, &path, Stat::DropState)?);
        ensure!(end.receives(&second, &path, Stat::DropState)?);
        // Neither RESET nor the end of a QP affects the path.
        first.change(State::Reset)?;
        ensure!(end.receives(&second, &path, Stat::DropState)?);
        drop(first);
        ensure!(end.receives(&second, &path, Stat::DropState)?);
        // One QP sends along many paths.
        let other = Path::new(&link.0, TWO, ONE)?;
        ensure!(end.receives(&second, &other, Stat::DropState)?);
        ensure!(end.receives(&second, &path, Stat::DropState)?);
        Ok(())
    }

    #[test]
    fn a_qp_without_its_link_cannot_be_used_again() -> Result {
        let link = TestLink::new()?;
        let (end, other) = (End::in_reset(&link)?, End::in_reset(&link)?);
        end.start(Some(TWO))?;
        let path = Path::new(&link.0, TWO, ONE)?;
        del(&NetNs::current()?, link.0.name())?;
        ensure!(end.send_to(&path, &other.qp, QKEY) == Err(ENODEV));
        ensure!(end.change(State::Sqd) == Err(ENODEV));
        ensure!(end.change(State::Error).is_ok());
        ensure!(end.change(State::Reset).is_ok());
        ensure!(end.start(Some(TWO)) == Err(ENODEV));
        ensure!(end.qp.state() == State::Reset);
        let owner = Budget::of_program()?;
        let got = Recorder::new()?;
        ensure!(Qp::in_reset(&link.0, None, &owner, got).is_err_and(|e| e == ENODEV));
        // A path of other sockets is no path of the QP.
        let next_link = TestLink::new()?;
        let path = Path::new(&next_link.0, ONE, TWO)?;
        ensure!(other.send_to(&path, &end.qp, QKEY) == Err(EINVAL));
        Ok(())
    }
}
