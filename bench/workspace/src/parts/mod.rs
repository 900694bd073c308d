//! What is measured.

mod apply;
mod managed;
mod small_files;
mod start;

use crate::Outcome;
use crate::belljar::Belljar;
use std::path::Path;

#[derive(Clone, Copy)]
pub(crate) enum Part {
    Start,
    SmallFiles,
    ManagedClone,
    Apply,
}

impl Part {
    const ALL: [(&'static str, Part); 4] = [
        ("start", Part::Start),
        ("small-files", Part::SmallFiles),
        ("managed", Part::ManagedClone),
        ("apply", Part::Apply),
    ];

    /// Those that were named, or all.
    pub(crate) fn chosen(names: &[&str]) -> Outcome<Vec<Part>> {
        if names.is_empty() {
            return Ok(Part::ALL.map(|(_, part)| part).to_vec());
        }
        let find = |name: &&str| {
            let known = Part::ALL.iter().find(|(known, _)| known == name);
            known.map(|(_, part)| *part).ok_or_else(|| {
                let all = Part::ALL.map(|(name, _)| name).join(", ");
                format!("there is no part `{name}`: use some of {all}").into()
            })
        };
        names.iter().map(find).collect()
    }

    /// Measures it in a folder, all of which is removed in the end.
    pub(crate) fn run(self, belljar: &Belljar, folder: &Path, rounds: usize) -> Outcome<()> {
        match self {
            Part::Start => start::run(belljar, &folder.join("start"), rounds),
            Part::SmallFiles => small_files::run(belljar, &folder.join("small-files"), rounds),
            Part::ManagedClone => managed::run(belljar, &folder.join("managed")),
            Part::Apply => apply::run(belljar, &folder.join("apply"), rounds),
        }
    }
}
