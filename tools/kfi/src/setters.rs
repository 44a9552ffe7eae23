// SPDX-License-Identifier: GPL-2.0
//! Setters of builders.

/// Defines setters in the `impl` of a builder: each stores a value in a field, and returns the
/// builder.
///
/// ```ignore
/// setters! {
///     /// Capabilities; without this all.
///     caps(caps: Caps) => raw.caps = caps.bits();
/// }
/// ```
macro_rules! setters {
    ($(
        $(#[$doc:meta])*
        $name:ident($value:ident: $type:ty) => $($field:ident).+ = $stored:expr;
    )*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, $value: $type) -> Self {
            self.$($field).+ = $stored;
            self
        }
    )*};
}

pub(crate) use setters;
