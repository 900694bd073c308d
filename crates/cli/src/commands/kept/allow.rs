//! `belljar allow`: a host name in a folder's configuration.

use super::print_json;
use super::repository::Repository;
use crate::args::AllowArgs;
use belljar_config as config;
use belljar_spec::SandboxError;
use serde_json::json;

pub(crate) fn allow(options: AllowArgs) -> Result<u8, SandboxError> {
    let repository = match &options.folder {
        Some(folder) => Repository::of(folder, None)?,
        None => Repository::here(None)?,
    };
    repository.judge()?;
    let allowed = config::allow(&repository.folder, &options.host)?;
    if options.json {
        return print_json(&json!({
            "folder": repository.text(),
            "config": allowed.file,
            "rule": allowed.rule,
            "changed": allowed.is_new,
        }));
    }
    let (rule, file) = (&allowed.rule, allowed.file.display());
    match allowed.is_new {
        true => eprintln!("belljar: {rule} is allowed for sandboxes of this folder ({file})"),
        false => eprintln!("belljar: {rule} was allowed already ({file})"),
    }
    eprintln!("  hint: a sandbox that runs has its rules until `belljar stop` and `belljar start`");
    Ok(0)
}
