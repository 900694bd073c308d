//! The part of a repository's config that a sandbox gets: keys that define how git reads and writes this repository, the committer,
//! and the remotes. An allow list: keys that name a command, a secret or a path of the host are left out. The file is written anew
//! from the parsed variables, never copied.

use super::setup::{HostFilesOfGit, SetupError, Target};
use crate::settings::{HostFiles, MAX_BYTES_TOGETHER, Setting, contents};
use belljar_git::config::quoted;
use std::fmt::Write;

/// Facts from the host's config that are not in the sandbox's config.
pub(super) struct Written {
    /// Refs are kept as a reftable.
    pub(super) is_reftable: bool,
    /// Patterns that the user ignores in every repository (`core.excludesFile`).
    pub(super) ignored_everywhere: Vec<u8>,
}

/// Writes the sandbox's config.
pub(super) fn write(
    source: &HostFilesOfGit<'_>,
    target: &Target<'_>,
    work_tree: Option<&str>,
    files: &HostFiles,
) -> Result<Written, SetupError> {
    let own = [source.host.common.join("config"), source.host.own.join("config.worktree")];
    let settings = files.settings(&own, Some(&source.host.own), MAX_BYTES_TOGETHER);
    let mut settings = settings.map_err(|error| SetupError::Unsupported(error.message))?;
    // If an agent wrote the repository's config, it may include any file of the host. Files in the folder are visible inside
    // anyway.
    let everywhere = files.settings(&[], Some(&source.host.own), MAX_BYTES_TOGETHER).unwrap_or_default();
    let top = source.host.top.canonicalize().ok();
    settings.retain(|one| {
        let is_known = own.contains(&one.file) || everywhere.iter().any(|known| known.file == one.file);
        is_known
            || one.file.canonicalize().ok().zip(top.as_ref()).is_some_and(|(file, top)| file.starts_with(top))
    });
    let last = |name: &str| settings.iter().rfind(|one| one.variable.name == name);
    let text_of = |name: &str| last(name).and_then(|one| one.variable.text());
    let format = text_of("extensions.objectformat").filter(|format| *format != "sha1");
    let partial = text_of("extensions.partialclone");
    let is_reftable = text_of("extensions.refstorage") == Some("reftable");
    for one in settings.iter().filter(|one| one.variable.name.starts_with("extensions.")) {
        if !KNOWN_EXTENSIONS.contains(&one.variable.name.as_str()) {
            let message = format!("belljar does not know the repository's `{}`", one.variable.name);
            return Err(SetupError::Unsupported(message));
        }
    }
    let version = if format.is_some() || partial.is_some() { 1 } else { 0 };
    let mut text = format!("[core]\n\trepositoryformatversion = {version}\n\tbare = false\n");
    if let Some(work_tree) = work_tree {
        let _ = writeln!(text, "\tworktree = {}", quoted(work_tree));
    }
    for (name, value) in [("objectFormat", format), ("partialClone", partial)] {
        if let Some(value) = value {
            let _ = writeln!(text, "[extensions]\n\t{name} = {}", quoted(value));
        }
    }
    for one in settings.iter().filter(|one| one.counts) {
        append(&mut text, one);
    }
    if settings.iter().any(|one| one.counts && one.variable.name.starts_with("filter.lfs.")) {
        text.push_str(LFS);
    }
    target.write("config", text.as_bytes())?;
    Ok(Written { is_reftable, ignored_everywhere: ignored_everywhere(source, files) })
}

/// Not from the repository's own config, which an agent may have written: it could name any file of the host.
fn ignored_everywhere(source: &HostFilesOfGit<'_>, files: &HostFiles) -> Vec<u8> {
    let settings = files.settings(&[], Some(&source.host.own), MAX_BYTES_TOGETHER).unwrap_or_default();
    let named = settings.iter().rfind(|one| one.counts && one.variable.name == "core.excludesfile");
    let named = named.and_then(|one| files.resolve(one.variable.text()?, one.file.parent()?));
    let usual = || {
        let shared = std::env::var_os("XDG_CONFIG_HOME").map(std::path::PathBuf::from);
        Some(
            shared
                .filter(|path| path.is_absolute())
                .or_else(|| Some(files.home.as_ref()?.join(".config")))?
                .join("git/ignore"),
        )
    };
    let file = named.or_else(usual);
    file.and_then(|file| contents(&file)).unwrap_or_default()
}

/// Adds a variable, if it is on the allow list.
fn append(text: &mut String, setting: &Setting) {
    let name = setting.variable.name.as_str();
    let Some((section, key)) = name.rsplit_once('.') else { return };
    let (section, subsection) = match section.split_once('.') {
        Some((section, subsection)) => (section, Some(subsection)),
        None => (section, None),
    };
    if !is_carried(section, subsection.is_some(), key) {
        return;
    }
    let value = match (setting.variable.text(), is_address(section, key)) {
        (Some(value), true) => match address(value) {
            Some(value) => Some(value),
            None => return,
        },
        (Some(value), false) if name == "core.hookspath" => match stays_in_work_tree(value) {
            true => Some(value.to_string()),
            false => return,
        },
        (Some(value), false) => Some(value.to_string()),
        // A variable without a value is true; one that is not UTF-8 is left out.
        (None, _) if setting.variable.value.is_none() => None,
        (None, _) => return,
    };
    let header = match subsection {
        // Quotes and backslashes are escaped; a section name cannot contain a newline.
        Some(subsection) if subsection.contains(['\n', '\0']) => return,
        Some(subsection) => {
            format!("[{section} \"{}\"]", subsection.replace('\\', "\\\\").replace('"', "\\\""))
        }
        None => format!("[{section}]"),
    };
    let _ = match value {
        Some(value) => writeln!(text, "{header}\n\t{key} = {}", quoted(&value)),
        None => writeln!(text, "{header}\n\t{key}"),
    };
}

/// Whether the key is on the list: names are in lower case, as git compares them.
fn is_carried(section: &str, has_subsection: bool, key: &str) -> bool {
    CARRIED.iter().any(|(listed, subsection, keys)| {
        *listed == section && *subsection == has_subsection && (keys.contains(&key) || keys.contains(&"*"))
    })
}

fn is_address(section: &str, key: &str) -> bool {
    matches!((section, key), ("remote", "url" | "pushurl") | ("submodule", "url") | ("lfs", "url"))
}

/// A remote's URL, without a password; `None` for a path on this machine or a command.
fn address(value: &str) -> Option<String> {
    // `HELPER::ADDRESS` starts a program; the colons of an IPv6 address are in brackets.
    if value.split('[').next().is_some_and(|before| before.contains("::")) {
        return None;
    }
    match value.split_once("://") {
        Some(("file", _)) => None,
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit_once('@').map_or(authority, |(who, host)| {
                // A user name is part of an ssh URL; in other URLs it may be a token.
                if scheme.ends_with("ssh") && !who.contains(':') { authority } else { host }
            });
            Some(format!("{scheme}://{host}/{path}"))
        }
        // `user@host:path`; a relative address of a submodule; a path of this machine is left out.
        None if value.starts_with("./") || value.starts_with("../") => Some(value.to_string()),
        None => {
            let (host, _) = value.split_once(':')?;
            (!host.is_empty() && !host.contains('/')).then(|| value.to_string())
        }
    }
}

fn stays_in_work_tree(path: &str) -> bool {
    !path.starts_with(['/', '~']) && !path.starts_with("%(") && path.split('/').all(|part| part != "..")
}

/// What git-lfs itself writes; without it, `git add` would commit a file's content in the place of its pointer.
const LFS: &str = "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\
                   \tprocess = git-lfs filter-process\n\trequired = true\n";
/// Extensions that are written anew (`objectformat`, `partialclone`) or have no meaning inside.
const KNOWN_EXTENSIONS: [&str; 8] = [
    "extensions.objectformat",
    "extensions.partialclone",
    "extensions.refstorage",
    "extensions.worktreeconfig",
    "extensions.relativeworktrees",
    "extensions.noop",
    "extensions.noop-v1",
    "extensions.preciousobjects",
];
/// Section, whether it has a subsection, keys (`*` for all). None of them names a command, a secret or a file of the host.
const CARRIED: &[(&str, bool, &[&str])] = &[
    (
        "core",
        false,
        &[
            "filemode",
            "symlinks",
            "ignorecase",
            "precomposeunicode",
            "autocrlf",
            "eol",
            "safecrlf",
            "bigfilethreshold",
            "sparsecheckout",
            "sparsecheckoutcone",
            "untrackedcache",
            "splitindex",
            "quotepath",
            "abbrev",
            "commentchar",
            "whitespace",
            "logallrefupdates",
            "protecthfs",
            "protectntfs",
            "hookspath",
        ],
    ),
    ("index", false, &["*"]),
    ("user", false, &["name", "email"]),
    ("author", false, &["name", "email"]),
    ("committer", false, &["name", "email"]),
    ("init", false, &["defaultbranch"]),
    ("branch", true, &["remote", "merge", "rebase", "pushremote", "description"]),
    ("branch", false, &["sort", "autosetupmerge", "autosetuprebase"]),
    (
        "remote",
        true,
        &[
            "url",
            "pushurl",
            "fetch",
            "push",
            "tagopt",
            "prune",
            "promisor",
            "partialclonefilter",
            "gh-resolved",
        ],
    ),
    ("remote", false, &["pushdefault"]),
    ("submodule", true, &["url", "active", "branch", "ignore"]),
    ("submodule", false, &["active"]),
    (
        "diff",
        false,
        &["renames", "algorithm", "noprefix", "context", "submodule", "ignoresubmodules", "colormoved"],
    ),
    ("merge", false, &["conflictstyle", "ff", "renames", "log"]),
    ("pull", false, &["rebase", "ff", "octopus", "twohead"]),
    ("push", false, &["default", "autosetupremote", "followtags"]),
    ("rebase", false, &["autosquash", "autostash", "updaterefs"]),
    ("rerere", false, &["*"]),
    ("fetch", false, &["prune", "prunetags"]),
    ("status", false, &["*"]),
    ("log", false, &["date", "decorate", "follow"]),
    ("commit", false, &["cleanup", "status", "verbose"]),
    ("tag", false, &["sort"]),
    ("color", false, &["*"]),
    ("color", true, &["*"]),
    ("column", false, &["*"]),
    ("i18n", false, &["*"]),
    ("lfs", false, &["url"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_git::config::variables;

    fn carried(config: &str) -> Vec<(String, Option<String>)> {
        let mut text = String::new();
        for variable in variables(config.as_bytes()) {
            append(&mut text, &Setting { variable, file: "/x/config".into(), counts: true });
        }
        let text_of = |one: belljar_git::config::Variable| (one.name.clone(), one.text().map(str::to_string));
        variables(text.as_bytes()).into_iter().map(text_of).collect()
    }

    #[test]
    fn nothing_that_runs_or_is_secret_goes_in() {
        let hostile = "[core]\nfsmonitor = evil\nsshCommand = evil\neditor = evil\npager = evil\nhooksPath = /evil\n\
            attributesFile = /evil\nexcludesFile = /evil\naskPass = evil\ngitProxy = evil\n\
            [alias]\nst = !evil\n[credential]\nhelper = evil\n[credential \"https://a\"]\nhelper = evil\n\
            [filter \"x\"]\nclean = evil\nsmudge = evil\n[diff \"x\"]\ntextconv = evil\n[diff]\nexternal = evil\n\
            [merge \"x\"]\ndriver = evil\n[http]\nextraHeader = secret\n[http \"https://a\"]\nproxy = secret\n\
            [url \"https://secret@a\"]\ninsteadOf = b\n[gpg]\nprogram = evil\n[commit]\ngpgSign = true\n\
            [user]\nsigningKey = secret\n[remote \"o\"]\nuploadpack = evil\nreceivepack = evil\nvcs = evil\nproxy = secret\n\
            [submodule \"s\"]\nupdate = !evil\n[include]\npath = evil\n[includeIf \"gitdir:/\"]\npath = evil\n\
            [protocol \"ext\"]\nallow = always\n[safe]\ndirectory = *\n[extensions]\nworktreeConfig = true\n\
            [uploadpack]\npackObjectsHook = evil\n[trailer \"x\"]\ncommand = evil\n[sequence]\neditor = evil\n\
            [difftool \"x\"]\ncmd = evil\n[mergetool \"x\"]\ncmd = evil\n[pager]\nlog = evil\n[sendemail]\nsmtppass = secret\n";
        assert_eq!(carried(hostile), []);
    }

    #[test]
    fn what_git_needs_goes_in() {
        let config = "[core]\nautocrlf = input\nhooksPath = .githooks\n[user]\nname = \"A \\\"B\\\"\"\n\
            [branch \"a\\\\b\\\"c\"]\nmerge = refs/heads/x\n[remote \"o\"]\nurl = https://u:t@h.example/r.git\n\
            prune\nfetch = +refs/heads/*:refs/remotes/o/*\n";
        let expected = [
            ("core.autocrlf", Some("input")),
            ("core.hookspath", Some(".githooks")),
            ("user.name", Some("A \"B\"")),
            ("branch.a\\b\"c.merge", Some("refs/heads/x")),
            ("remote.o.url", Some("https://h.example/r.git")),
            ("remote.o.prune", None),
            ("remote.o.fetch", Some("+refs/heads/*:refs/remotes/o/*")),
        ];
        let expected = expected.map(|(name, value)| (name.to_string(), value.map(str::to_string)));
        assert_eq!(carried(config), expected);
    }

    #[test]
    fn addresses_have_no_passwords_and_lead_nowhere_on_this_machine() {
        for (value, inside) in [
            ("https://token@github.com/a/b", Some("https://github.com/a/b")),
            ("https://u:p@h:8443/a", Some("https://h:8443/a")),
            ("ssh://git@h/a", Some("ssh://git@h/a")),
            ("ssh://git:secret@h/a", Some("ssh://h/a")),
            ("git@github.com:a/b.git", Some("git@github.com:a/b.git")),
            ("../sibling.git", Some("../sibling.git")),
            ("/srv/git/a", None),
            ("srv/git/a", None),
            ("file:///srv/a", None),
            ("ext::sh -c evil", None),
            ("helper::https://x", None),
        ] {
            assert_eq!(address(value).as_deref(), inside, "{value}");
        }
    }
}
