//! `[profile.NAME]`: named choices of a sandbox, of the operator and the user. Each word is checked where it stands, and kept as it was
//! written: whoever applies a profile puts it where a request's own words would be.

use super::fault::at;
use super::file::{ProfileTable, Scalar};
use super::layer::{Layer, Settings};
use super::load::above;
use super::place::{Place, Places};
use super::read::Text;
use belljar_spec::egress::{GroupName, Mode, Rule, RuleSource};
use belljar_spec::secret::SecretName;
use belljar_spec::{Assurance, BackendChoice, ByteSize, Cpus, Root, SandboxError, parse_time};
use std::collections::BTreeMap;
use std::fmt;
use toml::Spanned;

/// A profile of a file. What it leaves out, it leaves to whoever asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub name: String,
    /// Where it stands.
    pub place: Place,
    pub layer: Layer,
    /// It is taken where none is named.
    pub default: bool,
    /// For people.
    pub label: Option<String>,
    pub description: Option<String>,
    pub backend: Option<String>,
    pub at_least: Option<String>,
    pub rootfs: Option<String>,
    /// The mode.
    pub egress: Option<String>,
    pub allow: Vec<String>,
    pub groups: Vec<String>,
    /// Look into TLS to every host.
    pub inspect: bool,
    pub secrets: Vec<String>,
    pub nested: Option<bool>,
    pub memory: Option<String>,
    pub cpus: Option<String>,
    pub pids: Option<u32>,
    pub disk: Option<String>,
    pub timeout: Option<String>,
    pub output: Option<String>,
}

/// The profiles of this machine's files, the operator's first. At most one of them is the default: the user's, else the operator's.
pub fn profiles() -> Result<Vec<Profile>, SandboxError> {
    profiles_from(&Places::real())
}

/// The same, with files from elsewhere.
pub fn profiles_from(places: &Places) -> Result<Vec<Profile>, SandboxError> {
    let layers = above(places, &mut Vec::new())?;
    let of =
        |layer: &Option<Settings>| layer.as_ref().map(|layer| layer.profiles.clone()).unwrap_or_default();
    let (mut operators, users) = (of(&layers.operator), of(&layers.user));
    for profile in &users {
        if let Some(known) = operators.iter().find(|known| known.name == profile.name) {
            let what = format!("the profile `{}` is the operator's already ({})", profile.name, known.place);
            return Err(at(&profile.place, "config_value", what).hint("give yours another name"));
        }
    }
    if users.iter().any(|profile| profile.default) {
        operators.iter_mut().for_each(|profile| profile.default = false);
    }
    Ok(operators.into_iter().chain(users).collect())
}

pub(super) fn understand(
    text: &Text,
    tables: &BTreeMap<String, Spanned<ProfileTable>>,
) -> Result<Vec<Profile>, SandboxError> {
    let mut profiles: Vec<Profile> = Vec::new();
    for (name, table) in tables {
        let place = text.place(table.span().start);
        if text.layer == Layer::Repository {
            return Err(at(&place, "config_not_for_this_layer", "a repository has no profiles")
                .hint("take the table out here; a repository names one with `profile` below `[sandbox]`"));
        }
        let profile = one(text, name, place, table.get_ref())?;
        if let Some(other) = profiles.iter().find(|other| other.default && profile.default) {
            let what = format!("`{}` and `{}` cannot both be the default", other.name, profile.name);
            return Err(at(&profile.place, "config_value", what).hint("take `default` out of one of them"));
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

fn one(text: &Text, name: &str, place: Place, table: &ProfileTable) -> Result<Profile, SandboxError> {
    if !is_name(name) {
        let what = format!(
            "`{}` cannot name a profile: write small letters, digits, `-` and `_`",
            name.escape_debug()
        );
        return Err(at(&place, "config_value", what));
    }
    let reader = Words { text };
    Ok(Profile {
        name: name.to_string(),
        layer: text.layer,
        default: table.default,
        label: table.label.clone(),
        description: table.description.clone(),
        backend: reader.optional(&table.backend, |word| word.parse::<BackendChoice>())?,
        at_least: reader.optional(&table.at_least, |word| word.parse::<Assurance>())?,
        rootfs: reader.optional(&table.rootfs, |word| word.parse::<Root>())?,
        egress: reader.optional(&table.egress, |word| word.parse::<Mode>())?,
        allow: reader.each(&table.allow, |word| Rule::allow(word, RuleSource::Program))?,
        groups: reader.each(&table.groups, |word| word.parse::<GroupName>())?,
        secrets: reader.each(&table.secrets, |word| word.parse::<SecretName>())?,
        inspect: table.inspect,
        nested: table.nested,
        memory: reader.scalar(&table.memory, |word| word.parse::<ByteSize>())?,
        cpus: reader.scalar(&table.cpus, |word| word.parse::<Cpus>())?,
        pids: table.pids.as_ref().map(|pids| reader.checked(pids, |pids| number(*pids))).transpose()?,
        disk: reader.scalar(&table.disk, |word| word.parse::<ByteSize>())?,
        timeout: reader.scalar(&table.timeout, parse_time)?,
        output: reader.scalar(&table.output, |word| word.parse::<ByteSize>())?,
        place,
    })
}

/// Checks words, and names the line of one that makes no sense.
struct Words<'t> {
    text: &'t Text,
}

impl Words<'_> {
    fn checked<W, T, E: fmt::Display>(
        &self,
        written: &Spanned<W>,
        check: impl FnOnce(&W) -> Result<T, E>,
    ) -> Result<T, SandboxError> {
        let failed = |error| at(&self.text.place(written.span().start), "config_value", error);
        check(written.get_ref()).map_err(failed)
    }

    fn optional<T, E: fmt::Display>(
        &self,
        written: &Option<Spanned<String>>,
        check: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<String>, SandboxError> {
        let Some(written) = written else { return Ok(None) };
        self.checked(written, |word| check(word))?;
        Ok(Some(written.get_ref().clone()))
    }

    fn scalar<T, E: fmt::Display>(
        &self,
        written: &Option<Spanned<Scalar>>,
        check: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<String>, SandboxError> {
        let Some(written) = written else { return Ok(None) };
        self.checked(written, |Scalar(word)| check(word))?;
        Ok(Some(written.get_ref().0.clone()))
    }

    fn each<T, E: fmt::Display>(
        &self,
        written: &[Spanned<String>],
        check: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<String>, SandboxError> {
        let one = |word: &Spanned<String>| {
            self.checked(word, |word| check(word))?;
            Ok(word.get_ref().clone())
        };
        written.iter().map(one).collect()
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
