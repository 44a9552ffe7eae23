// SPDX-License-Identifier: GPL-2.0

//! Flows: rules that select received packets, and the counters that count these packets.
//!
//! A *flow* is a rule at an endpoint. A *counters* object is an array of values. A *counter point*
//! connects both: it says what of the packets of a flow is added to the value at an index. Source:
//! ibv_create_flow(3), ibv_attach_counters_point_flow(3).
//!
//! | file | content |
//! |---|---|
//! | [`rule`] | rules: validation, order, matching |
//! | [`point`] | counter points, and what a counters object is bound to |

pub mod point;
pub mod rule;

pub use self::{
    point::{
        Bindings,
        Description,
        Point,
        Times, //
    },
    rule::{
        for_each_match,
        place,
        words_of,
        Family,
        Fields,
        Rule,
        Words, //
    }, //
};
