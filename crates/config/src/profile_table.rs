//! `[profile.NAME]`: named sandbox configurations of the operator and the user. A profile is a request, which the caller's own
//! request overrides.

use crate::fault::at;
use crate::file::ProfileTable;
use crate::layer::{Layer, Settings};
use crate::load::above;
use crate::origin::{ConfigPaths, Position};
use crate::read::Text;
use belljar_spec::request::EgressRequest;
use belljar_spec::{LimitsRequest, SandboxError, SandboxRequest, parse_time};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use toml::Spanned;

/// A profile of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub name: String,
    /// Its position.
    pub place: Position,
    pub layer: Layer,
    /// It is used if none is named.
    pub default: bool,
    /// A description for users.
    pub label: Option<String>,
    pub description: Option<String>,
    /// Its settings of a sandbox. The caller sets the others.
    pub base: SandboxRequest,
}

/// The profiles of this machine's files, the operator's first. At most one of them is the default: the user's, else the operator's.
pub fn profiles() -> Result<Vec<Profile>, SandboxError> {
    profiles_from(&ConfigPaths::real())
}

/// The same, with files from elsewhere.
pub fn profiles_from(places: &ConfigPaths) -> Result<Vec<Profile>, SandboxError> {
    let layers = above(places, &mut Vec::new())?;
    let of =
        |layer: &Option<Settings>| layer.as_ref().map(|layer| layer.profiles.clone()).unwrap_or_default();
    let (mut operators, users) = (of(&layers.operator), of(&layers.user));
    for profile in &users {
        if let Some(known) = operators.iter().find(|known| known.name == profile.name) {
            let what = format!("the profile `{}` is the operator's already ({})", profile.name, known.place);
            return Err(at(&profile.place, what).hint("give yours another name"));
        }
    }
    if users.iter().any(|profile| profile.default) {
        operators.iter_mut().for_each(|profile| profile.default = false);
    }
    Ok(operators.into_iter().chain(users).collect())
}

pub(crate) fn understand(
    text: &Text,
    tables: &BTreeMap<String, Spanned<ProfileTable>>,
) -> Result<Vec<Profile>, SandboxError> {
    let mut profiles: Vec<Profile> = Vec::new();
    for (name, table) in tables {
        let place = text.place(table.span().start);
        if text.layer == Layer::Repository {
            return Err(at(&place, "a repository has no profiles")
                .hint("take the table out here; a repository names one with `profile` below `[sandbox]`"));
        }
        let profile = one(text, name, place, table.get_ref())?;
        if let Some(other) = profiles.iter().find(|other| other.default && profile.default) {
            let what = format!("`{}` and `{}` cannot both be the default", other.name, profile.name);
            return Err(at(&profile.place, what).hint("take `default` out of one of them"));
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

/// What runs where no file names a profile.
const BUILT_IN: &str = "default";

fn one(text: &Text, name: &str, place: Position, table: &ProfileTable) -> Result<Profile, SandboxError> {
    if !is_name(name) {
        let what = format!(
            "`{}` cannot name a profile: write small letters, digits, `-` and `_`",
            name.escape_debug()
        );
        return Err(at(&place, what));
    }
    if name == BUILT_IN {
        return Err(at(
            &place,
            format!("the profile `{BUILT_IN}` is built in, and this one would never be used"),
        )
        .hint("give it another name, and write `default = true` in it"));
    }
    let reader = Words { text };
    let base = SandboxRequest {
        backend: reader.optional(&table.backend, str::parse)?,
        at_least: reader.optional(&table.at_least, str::parse)?,
        rootfs: reader.optional(&table.rootfs, str::parse)?,
        egress: EgressRequest {
            mode: reader.optional(&table.egress, str::parse)?,
            allow: reader.each(&table.allow)?,
            deny: Vec::new(),
            groups: reader.each(&table.groups)?,
            host_ports: Vec::new(),
            inspect: table.inspect,
        },
        secrets: reader.each(&table.secrets)?,
        nested: table.nested,
        limits: LimitsRequest {
            memory: reader.optional(&table.memory, str::parse)?,
            cpus: reader.optional(&table.cpus, str::parse)?,
            pids: table.pids.as_ref().map(|pids| reader.checked(pids, |pids| number(*pids))).transpose()?,
            disk: reader.optional(&table.disk, str::parse)?,
            timeout: reader.optional(&table.timeout, parse_time)?,
            output: reader.optional(&table.output, str::parse)?,
            ..LimitsRequest::default()
        },
        ..SandboxRequest::default()
    };
    Ok(Profile {
        name: name.to_string(),
        layer: text.layer,
        default: table.default,
        label: table.label.clone(),
        description: table.description.clone(),
        base,
        place,
    })
}

/// Parses values, and names the line of an invalid one.
struct Words<'t> {
    text: &'t Text,
}

impl Words<'_> {
    fn checked<W, T, E: fmt::Display>(
        &self,
        written: &Spanned<W>,
        read: impl FnOnce(&W) -> Result<T, E>,
    ) -> Result<T, SandboxError> {
        let failed = |error| at(&self.text.place(written.span().start), error);
        read(written.get_ref()).map_err(failed)
    }

    fn optional<W: AsRef<str>, T, E: fmt::Display>(
        &self,
        written: &Option<Spanned<W>>,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, SandboxError> {
        written.as_ref().map(|written| self.checked(written, |word| read(word.as_ref()))).transpose()
    }

    fn each<T: FromStr<Err: fmt::Display>>(
        &self,
        written: &[Spanned<String>],
    ) -> Result<Vec<T>, SandboxError> {
        written.iter().map(|word| self.checked(word, |word| word.parse())).collect()
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    !name.is_empty() && name.len() <= 64 && name.bytes().all(is_letter) && !name.starts_with(['-', '_'])
}

fn number(number: i64) -> Result<u32, String> {
    match u32::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("`{number}` is not a number of processes: write one above 0")),
    }
}
