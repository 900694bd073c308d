//! What is the same for every field of a request, by its type: whether it was said, a request over a profile, and a request beside a
//! living sandbox.

use super::{AllowRule, DenyRule, EnvValue, HostPath, LlmUrl, WebSearch};
use crate::egress::{GroupName, Mode};
use crate::git::{BranchName, RefPattern};
use crate::llm::{Budget, ModelGlob, UpstreamKind};
use crate::secret::{GitHubProfile, RepositoryName, SecretName, SecretRef};
use crate::workspace::ProtectedPath;
use crate::{Assurance, BackendChoice, ByteSize, Cpus, Root, SnapshotName, UserName, VolumePath};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

/// A field of a request, or a part that consists of fields.
pub(super) trait Field: Sized {
    /// Was nothing said? Then it is not written, so that an older belljar reads what does not use a newer option.
    fn is_unsaid(&self) -> bool;
    /// The request's value where it has one, else the profile's; lists and maps are joined.
    fn over(self, base: Self) -> Self;
    /// Adds the names of fields where the living sandbox is not what was asked for. `effective` is what the profile and the grant make of
    /// the request.
    fn compare(&self, effective: &Self, living: &Self, at: &str, found: &mut Vec<String>);
    /// The first field that was said and that only the owner of the machine may say.
    fn owner_only(&self, _at: &str) -> Option<String> {
        None
    }
}

/// Defines a part of a request. Behind each field stands who may ask for it: `anyone`; `owner`, only the owner of the machine; `grant`, who
/// has a grant for it, which `within.rs` checks, or a part whose own fields say so. `as` gives the type in the OpenAPI document.
macro_rules! request {
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[$meta:meta])* $field:ident: $type:ty $(as $schema:ty)?, $who:ident;)+
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {$(
            $(#[$meta])*
            #[serde(skip_serializing_if = "crate::request::field::Field::is_unsaid")]
            $(#[cfg_attr(feature = "schema", schema(value_type = $schema))])?
            pub $field: $type,
        )+}

        impl crate::request::field::Field for $name {
            fn is_unsaid(&self) -> bool {
                true $(&& self.$field.is_unsaid())+
            }

            fn over(self, base: $name) -> $name {
                $name { $($field: crate::request::field::Field::over(self.$field, base.$field),)+ }
            }

            fn compare(&self, effective: &$name, living: &$name, at: &str, found: &mut Vec<String>) {
                $(
                    let at_field = crate::request::field::below(at, stringify!($field));
                    self.$field.compare(&effective.$field, &living.$field, &at_field, found);
                )+
            }

            fn owner_only(&self, at: &str) -> Option<String> {
                $(
                    let at_field = crate::request::field::below(at, stringify!($field));
                    let is_refused = crate::request::field::is_for_owner!($who) && !self.$field.is_unsaid();
                    let refused = if is_refused { Some(at_field) } else { self.$field.owner_only(&at_field) };
                    if refused.is_some() {
                        return refused;
                    }
                )+
                None
            }
        }
    };
}

macro_rules! is_for_owner {
    (owner) => {
        true
    };
    (grant) => {
        false
    };
    (anyone) => {
        false
    };
}

pub(super) use {is_for_owner, request};

/// The name of a field in a part.
pub(super) fn below(at: &str, field: &str) -> String {
    if at.is_empty() { field.to_string() } else { format!("{at}.{field}") }
}

impl Field for bool {
    fn is_unsaid(&self) -> bool {
        !self
    }

    fn over(self, base: bool) -> bool {
        self || base
    }

    fn compare(&self, _: &bool, living: &bool, at: &str, found: &mut Vec<String>) {
        if *self && !living {
            found.push(at.to_string());
        }
    }
}

impl<T: Field> Field for Option<T> {
    fn is_unsaid(&self) -> bool {
        self.as_ref().is_none_or(T::is_unsaid)
    }

    fn over(self, base: Option<T>) -> Option<T> {
        self.or(base)
    }

    fn compare(&self, effective: &Option<T>, living: &Option<T>, at: &str, found: &mut Vec<String>) {
        match (self, living) {
            (Some(requested), Some(living)) => {
                requested.compare(effective.as_ref().unwrap_or(requested), living, at, found)
            }
            (Some(requested), None) if !requested.is_unsaid() => found.push(at.to_string()),
            (Some(_) | None, _) => {}
        }
    }

    fn owner_only(&self, at: &str) -> Option<String> {
        self.as_ref().and_then(|value| value.owner_only(at))
    }
}

impl<T: PartialEq> Field for Vec<T> {
    fn is_unsaid(&self) -> bool {
        self.is_empty()
    }

    fn over(self, mut base: Vec<T>) -> Vec<T> {
        for one in self {
            if !base.contains(&one) {
                base.push(one);
            }
        }
        base
    }

    fn compare(&self, _: &Vec<T>, living: &Vec<T>, at: &str, found: &mut Vec<String>) {
        if !self.iter().all(|one| living.contains(one)) {
            found.push(at.to_string());
        }
    }
}

impl<K: Ord + Display, V: Field> Field for BTreeMap<K, V> {
    fn is_unsaid(&self) -> bool {
        self.is_empty()
    }

    fn over(self, mut base: BTreeMap<K, V>) -> BTreeMap<K, V> {
        base.extend(self);
        base
    }

    fn compare(&self, effective: &Self, living: &Self, at: &str, found: &mut Vec<String>) {
        for (key, value) in self {
            let at = below(at, &key.to_string());
            match living.get(key) {
                Some(living) => value.compare(effective.get(key).unwrap_or(value), living, &at, found),
                None => found.push(at),
            }
        }
    }
}

/// One value, which is another one or not.
macro_rules! value {
    ($($type:ty),+ $(,)?) => {$(
        impl Field for $type {
            fn is_unsaid(&self) -> bool {
                false
            }

            fn over(self, _: $type) -> $type {
                self
            }

            fn compare(&self, effective: &$type, living: &$type, at: &str, found: &mut Vec<String>) {
                if living != self && living != effective {
                    found.push(at.to_string());
                }
            }
        }
    )+};
}

value!(
    u16,
    u32,
    u64,
    String,
    Duration,
    ByteSize,
    Cpus,
    Assurance,
    BackendChoice,
    Root,
    Mode,
    UserName,
    VolumePath
);
value!(
    SecretName,
    SecretRef,
    Budget,
    ModelGlob,
    UpstreamKind,
    LlmUrl,
    GitHubProfile,
    RepositoryName,
    EnvValue
);
value!(SnapshotName);
value!(BranchName, RefPattern, ProtectedPath, GroupName, AllowRule, DenyRule, HostPath, WebSearch);
