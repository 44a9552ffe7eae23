// SPDX-License-Identifier: GPL-2.0
//! The elements of atomics as types of Rust, and which atomics endpoints have.

use crate::{
    abi::{self, Call, calls},
    buffer::Buffer,
    domain::Domain,
    enums::{AtomicOp, Datatype, EpType},
    error::Result,
};

/// A type of Rust that is an element of atomics.
///
/// ```
/// use kfi::{Buffer, Datatype, Element};
///
/// let numbers = Buffer::of(&[1.5f64, -2.0])?;
/// assert_eq!(numbers.elements::<f64>(), [1.5, -2.0]);
/// assert_eq!(<f64 as Element>::DATATYPE, Datatype::Double);
/// # Ok::<(), kfi::Error>(())
/// ```
pub trait Element: Copy + sealed::Bytes {
    /// Its name in the interface.
    const DATATYPE: Datatype;
}

mod sealed {
    /// Conversion to and from the bytes in memory.
    pub trait Bytes: Sized {
        fn append_to(self, bytes: &mut Vec<u8>);
        fn all_of(bytes: &[u8]) -> Vec<Self>;
    }
}

macro_rules! elements {
    ($($type:ty: $name:ident,)*) => {
        $(
            impl Element for $type {
                const DATATYPE: Datatype = Datatype::$name;
            }

            impl sealed::Bytes for $type {
                fn append_to(self, bytes: &mut Vec<u8>) {
                    bytes.extend(self.to_ne_bytes());
                }

                fn all_of(bytes: &[u8]) -> Vec<Self> {
                    let (elements, _) = bytes.as_chunks();
                    elements.iter().map(|bytes| Self::from_ne_bytes(*bytes)).collect()
                }
            }
        )*
    };
}

elements! {
    i8: Int8,
    u8: Uint8,
    i16: Int16,
    u16: Uint16,
    i32: Int32,
    u32: Uint32,
    i64: Int64,
    u64: Uint64,
    f32: Float,
    f64: Double,
}

impl Buffer {
    /// A buffer that holds these elements.
    ///
    /// # Errors
    ///
    /// As [`Buffer::new`].
    pub fn of<T: Element>(elements: &[T]) -> Result<Self> {
        let mut bytes = Vec::new();
        for element in elements {
            element.append_to(&mut bytes);
        }
        Self::from_bytes(&bytes)
    }

    /// A copy of all elements in it; bytes at the end that are no whole element are left out.
    pub fn elements<T: Element>(&self) -> Vec<T> {
        T::all_of(&self.to_vec(..))
    }
}

/// The forms of atomics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicForm {
    /// [`Op::atomic`](crate::Op::atomic).
    Base,
    /// [`Op::fetch_atomic`](crate::Op::fetch_atomic).
    Fetch,
    /// [`Op::compare_atomic`](crate::Op::compare_atomic).
    Compare,
}

/// What endpoints can do with an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAttr {
    /// The most elements of one operation.
    pub count: u64,
    /// Bytes of an element.
    pub size: u64,
}

impl Domain {
    /// Whether endpoints of a type have an atomic (`kfi_query_atomic`).
    ///
    /// ```no_run
    /// # fn f(domain: kfi::Domain) -> kfi::Result<()> {
    /// use kfi::{AtomicForm, AtomicOp, Datatype, EpType};
    ///
    /// let attr = domain.query_atomic(
    ///     EpType::Rdm,
    ///     AtomicForm::Fetch,
    ///     Datatype::Double,
    ///     AtomicOp::Sum,
    /// )?;
    /// println!("{} numbers at a time", attr.count);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: they do not have it; `EINVAL`: an unknown type or operation.
    pub fn query_atomic(
        &self,
        ep_type: EpType,
        form: AtomicForm,
        datatype: Datatype,
        op: AtomicOp,
    ) -> Result<AtomicAttr> {
        let mut arg = abi::kfabric_query_atomic {
            domain: self.handle(),
            ep_type: ep_type.raw(),
            opcode: match form {
                AtomicForm::Base => abi::KFABRIC_OP_ATOMIC,
                AtomicForm::Fetch => abi::KFABRIC_OP_FETCH_ATOMIC,
                AtomicForm::Compare => abi::KFABRIC_OP_COMPARE_ATOMIC,
            },
            datatype: datatype.raw(),
            op: op.raw(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(AtomicAttr {
            count: arg.count,
            size: arg.elem_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_where_they_belong() {
        let buffer = Buffer::of(&[1u16, 0x203]).unwrap();
        let bytes: Vec<u8> = [1u16.to_ne_bytes(), 0x203u16.to_ne_bytes()].concat();
        assert_eq!(buffer.to_vec(..), bytes);
        assert_eq!(buffer.elements::<u16>(), [1, 0x203]);
        assert_eq!(Buffer::of(&[-1i8]).unwrap().elements::<u8>(), [255]);
        assert_eq!(buffer.elements::<f64>(), []);
        assert_eq!(<i32 as Element>::DATATYPE, Datatype::Int32);
    }
}
