//! The numbers of types and operations in `fmi.h`, and the derived types of a program.

use core::ffi::c_int;
use ftb_job::fmi::{Combine, FmiError, Layout, Primitive};
use std::collections::BTreeMap;

/// Number of the first derived type.
const DERIVED: c_int = 16;
/// Most derived types at once. At the limit a new one is refused.
const DERIVED_MAX: usize = 4096;

pub(super) struct Types {
    next: c_int,
    derived: BTreeMap<c_int, Layout>,
}

impl Default for Types {
    fn default() -> Self {
        Self { next: DERIVED, derived: BTreeMap::new() }
    }
}

impl Types {
    pub(super) fn layout(&self, of: c_int) -> Result<Layout, FmiError> {
        let primitive = match of {
            0 => Primitive::Byte,
            1 => Primitive::I8,
            2 => Primitive::I16,
            3 => Primitive::I32,
            4 => Primitive::I64,
            5 => Primitive::U8,
            6 => Primitive::U16,
            7 => Primitive::U32,
            8 => Primitive::U64,
            9 => Primitive::F32,
            10 => Primitive::F64,
            of => {
                let found = self.derived.get(&of).cloned();
                return found.ok_or_else(|| FmiError::Invalid(format!("there is no type {of}")));
            }
        };
        Ok(Layout::of(primitive))
    }

    pub(super) fn vector(
        &mut self,
        (count, len, stride): (c_int, c_int, c_int),
        of: c_int,
    ) -> Result<c_int, FmiError> {
        let size = |value: c_int| {
            let problem = || FmiError::Invalid(format!("{value} values in a type"));
            usize::try_from(value).map_err(|_| problem())
        };
        let made = self.layout(of)?.vector(size(count)?, size(len)?, size(stride)?)?;
        if self.derived.len() >= DERIVED_MAX {
            return Err(FmiError::Full(format!("the program has {DERIVED_MAX} derived types")));
        }
        let number = self.next;
        self.next = number.checked_add(1).ok_or_else(|| {
            FmiError::Full("the program has made as many types as there are numbers".to_owned())
        })?;
        self.derived.insert(number, made);
        Ok(number)
    }

    pub(super) fn free(&mut self, of: c_int) -> Result<(), FmiError> {
        let found = self.derived.remove(&of).map(drop);
        found.ok_or_else(|| FmiError::Invalid(format!("there is no derived type {of}")))
    }
}

pub(super) fn operation(op: c_int) -> Result<Combine, FmiError> {
    Ok(match op {
        0 => Combine::Sum,
        1 => Combine::Product,
        2 => Combine::Min,
        3 => Combine::Max,
        4 => Combine::And,
        5 => Combine::Or,
        6 => Combine::BitAnd,
        7 => Combine::BitOr,
        8 => Combine::BitXor,
        op => return Err(FmiError::Invalid(format!("there is no operation {op}"))),
    })
}
