//! Names that belong together, so that one word allows them. The data is in `groups.table`.

use super::{Printable, Rule, RuleSource};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

/// Rules under one name.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    name: GroupName,
    entries: Vec<Entry>,
}

/// The name of a group that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupName(&'static str);

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    rule: Rule,
    reason: &'static str,
    matches: Vec<&'static str>,
    does_not_match: Vec<&'static str>,
}

/// The group of this name.
pub fn group(name: &str) -> Option<&'static Group> {
    groups().find(|group| group.name.0 == name)
}

/// All groups, by name.
pub fn groups() -> impl Iterator<Item = &'static Group> {
    GROUPS.iter()
}

impl Group {
    /// What it is called.
    pub fn name(&self) -> GroupName {
        self.name
    }

    /// Its rules; their labels name the group.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.entries.iter().map(|entry| &entry.rule)
    }

    /// Its rules, and why each is in it.
    pub fn reasons(&self) -> impl Iterator<Item = (&Rule, &'static str)> {
        self.entries.iter().map(|entry| (&entry.rule, entry.reason))
    }
}

impl GroupName {
    /// As text.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

/// A word that is no group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a group: there are {names}", names = names())]
pub struct UnknownGroup(pub Printable);

fn names() -> String {
    groups().map(|group| group.name.0).collect::<Vec<_>>().join(", ")
}

impl FromStr for GroupName {
    type Err = UnknownGroup;

    fn from_str(text: &str) -> Result<GroupName, UnknownGroup> {
        group(text).map(Group::name).ok_or_else(|| UnknownGroup(text.into()))
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl Serialize for GroupName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

/// Rows of a group stand together, groups by name.
fn read(table: &'static str) -> Result<Vec<Group>, String> {
    let mut groups: Vec<Group> = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut columns = line.split('|').map(str::trim);
        let mut column = || columns.next().ok_or_else(|| format!("a column is missing: {line}"));
        let name = GroupName(column()?);
        let rule =
            Rule::allow(column()?, RuleSource::Group(name)).map_err(|error| format!("{line}: {error}"))?;
        let examples = |text: &'static str| text.split_whitespace().filter(|word| *word != "-").collect();
        let entry = Entry {
            rule,
            matches: examples(column()?),
            does_not_match: examples(column()?),
            reason: column()?,
        };
        match groups.last_mut().filter(|group| group.name == name) {
            Some(group) => group.entries.push(entry),
            None => groups.push(Group { name, entries: vec![entry] }),
        }
    }
    Ok(groups)
}

static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| {
    read(TABLE).expect("a test reads every row of groups.table, which is part of the program")
});

const TABLE: &str = include_str!("groups.table");

crate::text::read_as_text!(GroupName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_of_the_table_holds() {
        for group in groups() {
            for entry in &group.entries {
                entry.rule.check_examples(&entry.matches, &entry.does_not_match).expect("an example");
                assert!(
                    !entry.matches.is_empty() && !entry.does_not_match.is_empty(),
                    "{}: examples",
                    entry.rule
                );
                assert!(!entry.reason.is_empty(), "{}: a reason", entry.rule);
                // What a row must not match, no other row of its group may let in.
                for example in &entry.does_not_match {
                    for rule in group.rules() {
                        assert_eq!(
                            rule.matches_example(example),
                            Ok(false),
                            "{}: {rule} {example}",
                            group.name
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn groups_are_known_by_name() {
        assert_eq!(names(), "coding-agents, github, providers, registries");
        let rules =
            |name: &str| group(name).expect(name).rules().map(Rule::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(rules("github"), "github.com *.githubusercontent.com");
        assert_eq!(rules("providers"), "anthropic.com openai.com openrouter.ai");
        assert_eq!(rules("registries").split(' ').count(), 9);
        let label = group("github").and_then(|group| group.rules().next()).map(|rule| rule.label.to_string());
        assert_eq!(label.as_deref(), Some("`github.com` (group github)"));
        assert_eq!("github".parse::<GroupName>().map(|name| name.to_string()), Ok("github".to_string()));
        let error = "githb".parse::<GroupName>().expect_err("no group").to_string();
        assert_eq!(error, "`githb` is not a group: there are coding-agents, github, providers, registries");
    }

    #[test]
    fn a_group_stands_in_one_place_of_the_table() {
        let mut seen: Vec<GroupName> = groups().map(Group::name).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen, groups().map(Group::name).collect::<Vec<_>>());
    }
}
