//! `belljar volume list`, `shared-volumes`: what outlives sandboxes.

use super::print_json;
use super::repository::Repository;
use super::volume::{self, Volume};
use crate::args::{PersistentListArgs, VolumesArgs};
use crate::commands::print;
use crate::commands::table::table;
use belljar_spec::{ByteSize, ErrorCode, SandboxError};
use serde_json::{Value, json};

pub(crate) fn volumes(options: VolumesArgs) -> Result<u8, SandboxError> {
    let repository = match options.folder {
        Some(folder) => Repository::of(&folder, None)?,
        None => Repository::here(None)?,
    };
    let found = repository.volumes()?;
    if options.json {
        return print_json(&found.iter().map(as_json).collect::<Vec<_>>());
    }
    if found.is_empty() {
        eprintln!("belljar: `{}` has no volumes", repository.folder.display());
        eprintln!("  hint: `belljar sandbox init` makes them");
        return Ok(0);
    }
    let rows: Vec<[String; 4]> = found
        .iter()
        .map(|volume| {
            [volume.name.clone(), volume.inside.clone(), size(volume), volume.path.display().to_string()]
        })
        .collect();
    print(table(["NAME", "INSIDE", "SIZE", "HERE"], &rows).as_bytes())
}

pub(crate) fn shared(options: &PersistentListArgs) -> Result<u8, SandboxError> {
    let found = shared_ones()?;
    if options.json {
        return print_json(&found.iter().map(as_json).collect::<Vec<_>>());
    }
    if found.is_empty() {
        eprintln!("belljar: there is no volume that belongs to no folder");
        eprintln!("  hint: a program makes them over the API; `belljar volume list` shows those of a folder");
        return Ok(0);
    }
    let rows: Vec<[String; 3]> = found
        .iter()
        .map(|volume| [volume.name.clone(), size(volume), volume.path.display().to_string()])
        .collect();
    print(table(["NAME", "SIZE", "HERE"], &rows).as_bytes())
}

/// Those whose names no folder gave.
fn shared_ones() -> Result<Vec<Volume>, SandboxError> {
    let entries = match std::fs::read_dir(volume::all()?) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(ErrorCode::WorkspaceFailed.error(format!("cannot list volumes: {error}")));
        }
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !is_a_folders(name)).collect();
    names.sort();
    let directory = volume::all()?;
    Ok(names.into_iter().map(|name| Volume::at(directory.join(name), "")).collect())
}

/// As a folder's are named: `bj-history.3f2a9c04d1e7`.
fn is_a_folders(name: &str) -> bool {
    let digest = name.rsplit_once('.').map(|(_, digest)| digest);
    digest.is_some_and(|digest| digest.len() == 12 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn size(volume: &Volume) -> String {
    match volume.size() {
        0 => "0".into(),
        bytes => ByteSize::bytes(bytes).to_string(),
    }
}

fn as_json(volume: &Volume) -> Value {
    json!({
        "name": volume.name,
        "inside": Some(&volume.inside).filter(|inside| !inside.is_empty()),
        "bytes": volume.size(),
        "path": volume.path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folders_volumes_are_known_by_their_names() {
        for (name, is_one) in [
            ("bj-history.3f2a9c04d1e7", true),
            ("npm.cache.3f2a9c04d1e7", true),
            ("npm-cache", false),
            ("npm.cache", false),
            ("3f2a9c04d1e7", false),
        ] {
            assert_eq!(is_a_folders(name), is_one, "{name}");
        }
    }
}
