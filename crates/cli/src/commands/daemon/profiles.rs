//! `belljar config profiles`: what can be chosen here. Needs no daemon.

use super::print_json;
use crate::args::ListingArgs;
use crate::commands::print;
use crate::commands::table::table;
use belljar_engine::Engine;
use belljar_fleet::Profiles;
use belljar_spec::SandboxError;

pub(crate) fn profiles(options: &ListingArgs) -> Result<u8, SandboxError> {
    let offered = Profiles::of_this_machine(&Engine::new().backends())?.advertised();
    if options.json {
        return print_json(&offered);
    }
    if offered.is_empty() {
        eprintln!("belljar: no profile works here");
        eprintln!("  hint: `belljar doctor` says why");
        return Ok(0);
    }
    let rows: Vec<[String; 5]> = offered
        .into_iter()
        .map(|profile| {
            let name = if profile.default { format!("{} *", profile.name) } else { profile.name };
            let about = profile.description.unwrap_or(profile.label);
            [name, profile.backend, profile.egress, profile.source, about]
        })
        .collect();
    print(table(["NAME", "BACKEND", "EGRESS", "SOURCE", "ABOUT"], &rows).as_bytes())
}
