//! The repetitive half of describing a protocol.

/// A struct that goes over the wire field by field, in the order written.
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
        }

        impl $crate::xdr::Encode for $name {
            fn encode(&self, out: &mut $crate::xdr::Writer) {
                $($crate::xdr::Encode::encode(&self.$field, out);)*
            }
        }

        impl $crate::xdr::Decode for $name {
            fn decode(from: &mut $crate::xdr::Reader<'_>) -> $crate::xdr::Result<Self> {
                Ok(Self { $($field: $crate::xdr::Decode::decode(from)?,)* })
            }
        }
    };
}

/// An enumeration that a newer daemon may extend: a number without a name is kept, not refused.
macro_rules! open_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
            /// A number that this version has no name for.
            Other(i32),
        }

        impl From<i32> for $name {
            fn from(number: i32) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl From<$name> for i32 {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$variant => $number,)*
                    $name::Other(other) => other,
                }
            }
        }

        impl $crate::xdr::Encode for $name {
            fn encode(&self, out: &mut $crate::xdr::Writer) {
                out.i32((*self).into());
            }
        }

        impl $crate::xdr::Decode for $name {
            fn decode(from: &mut $crate::xdr::Reader<'_>) -> $crate::xdr::Result<Self> {
                from.i32().map(Self::from)
            }
        }
    };
}

/// A set of flags: a word whose bits have names, combined with `|`.
macro_rules! flags {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$flag_meta:meta])* $flag:ident = $bits:expr,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// None of them, which is what most calls want.
            pub const NONE: Self = Self(0);
            $($(#[$flag_meta])* pub const $flag: Self = Self($bits);)*

            /// The bits as they go over the wire.
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// Flags from bits, also those without a name here.
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            /// Whether all of `other` are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl $crate::xdr::Encode for $name {
            fn encode(&self, out: &mut $crate::xdr::Writer) {
                out.u32(self.0);
            }
        }

        impl $crate::xdr::Decode for $name {
            fn decode(from: &mut $crate::xdr::Reader<'_>) -> $crate::xdr::Result<Self> {
                from.u32().map(Self)
            }
        }
    };
}

/// Procedures as types: number, arguments (a struct is made where they have names), result.
macro_rules! procedures {
    ($($(#[$meta:meta])* $name:ident = $number:literal ($arguments:ty) -> $reply:ty;)*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy)]
            pub struct $name;

            impl $crate::rpc::Procedure for $name {
                const NUMBER: u32 = $number;
                type Arguments = $arguments;
                type Reply = $reply;
            }
        )*
    };
}

pub(crate) use {flags, open_enum, procedures, wire_struct};
