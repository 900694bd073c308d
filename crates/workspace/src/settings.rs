//! Git's config on the host, read without git: the files and their variables.
//!
//! It answers two questions. Which paths does the host's git run or read (protect)? There every include counts, regardless of its
//! condition: protecting too much is no harm. And who is the user (inside)? There an include counts only if its condition holds.

use belljar_git::config::{Variable, variables};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::rustix::fs::OFlags;
use std::collections::{HashSet, VecDeque};
use std::env;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// The files of the user and of the machine, as git would find them in this process's environment.
#[derive(Debug, Clone, Default)]
pub struct HostFiles {
    /// In git's order: later files override earlier ones.
    pub files: Vec<PathBuf>,
    pub home: Option<PathBuf>,
}

/// A variable, and the file that sets it.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) variable: Variable,
    pub(crate) file: PathBuf,
    /// Whether it applies here and now, as far as that is known.
    pub(crate) counts: bool,
}

impl HostFiles {
    /// The files of this process.
    pub fn real() -> HostFiles {
        let path = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = path("HOME");
        let mut files = vec![path("GIT_CONFIG_SYSTEM").unwrap_or_else(|| PathBuf::from("/etc/gitconfig"))];
        if let Some(global) = path("GIT_CONFIG_GLOBAL") {
            files.push(global);
        } else if let Some(home) = &home {
            let shared = path("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
            files.extend([shared.join("git/config"), home.join(".gitconfig")]);
        }
        HostFiles { files, home }
    }

    /// No files: for explicitly named ones.
    pub(crate) fn only_home() -> HostFiles {
        HostFiles { files: Vec::new(), home: HostFiles::real().home }
    }

    /// The variables of these files, of `more`, and of their includes: files of no more than `most_bytes` together. Conditions are
    /// evaluated for `git_dir`.
    pub(crate) fn settings(
        &self,
        more: &[PathBuf],
        git_dir: Option<&Path>,
        most_bytes: u64,
    ) -> Result<Vec<Setting>, SandboxError> {
        let mut settings = Vec::new();
        let mut waiting: VecDeque<(PathBuf, bool)> =
            self.files.iter().chain(more).map(|file| (file.clone(), true)).collect();
        // Includes may be circular.
        let mut read = HashSet::new();
        let mut bytes_left = most_bytes;
        while let Some((file, counts)) = waiting.pop_front() {
            if !read.insert((file.clone(), counts)) {
                continue;
            }
            if read.len() > MAX_FILES {
                return Err(too_many("files", MAX_FILES));
            }
            // An included file counts where it is included.
            let mut included = Vec::new();
            let bytes = contents(&file).unwrap_or_default();
            bytes_left = bytes_left
                .checked_sub(bytes.len() as u64)
                .ok_or_else(|| too_many("bytes", most_bytes as usize))?;
            for variable in variables(&bytes) {
                if let Some(condition) = include_condition(&variable)
                    && let Some(path) = variable.text().and_then(|text| self.resolve(text, file.parent()?))
                {
                    included.push((path, counts && self.holds(condition, &file, git_dir)));
                }
                settings.push(Setting { variable, file: file.clone(), counts });
            }
            included.into_iter().rev().for_each(|one| waiting.push_front(one));
        }
        Ok(settings)
    }

    /// A path as written in a config file: relative to a user's home, to git's installation, to the root, or to `base`.
    pub(crate) fn resolve(&self, text: &str, base: &Path) -> Option<PathBuf> {
        let path = if let Some(from_home) = text.strip_prefix('~') {
            let (user, rest) = from_home.split_once('/').unwrap_or((from_home, ""));
            let home = if user.is_empty() { self.home.clone()? } else { home_of(user)? };
            home.join(rest)
        } else if let Some(rest) = text.strip_prefix("%(prefix)/") {
            Path::new("/usr").join(rest)
        } else {
            base.join(text)
        };
        Some(plain(&path))
    }

    /// Whether a condition holds: an absent one does, and `gitdir:` without wildcards is evaluated. Others cannot be evaluated
    /// without git.
    fn holds(&self, condition: &str, file: &Path, git_dir: Option<&Path>) -> bool {
        if condition.is_empty() {
            return true;
        }
        let Some(pattern) = condition.strip_prefix("gitdir:").filter(|text| !text.contains(['*', '?', '[']))
        else {
            return false;
        };
        let Some(git_dir) = git_dir else { return false };
        let from_file = pattern.strip_prefix("./").and_then(|rest| Some(plain(&file.parent()?.join(rest))));
        let place = match from_file {
            Some(place) => place,
            None if pattern.starts_with("~/") || pattern.starts_with('/') => {
                match self.resolve(pattern, Path::new("/")) {
                    Some(place) => place,
                    None => return false,
                }
            }
            // Any parent folder of that name.
            None => return format!("{}/", git_dir.display()).contains(&format!("/{pattern}")),
        };
        let real = place.canonicalize().unwrap_or(place);
        if pattern.ends_with('/') { git_dir.starts_with(real) } else { git_dir == real }
    }
}

/// From the user database (passwd(5)).
fn home_of(user: &str) -> Option<PathBuf> {
    let users = std::fs::read("/etc/passwd").ok()?;
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        (fields.next()? == user.as_bytes()).then(|| fields.nth(4).map(path_of))?
    })
}

/// The condition of an include: empty for one without; `None` for what is no include.
fn include_condition(variable: &Variable) -> Option<&str> {
    let name = variable.name.as_str();
    if name == "include.path" {
        return Some("");
    }
    name.strip_prefix("includeif.")?.strip_suffix(".path")
}

/// A regular file and its size; never blocks, even if it is replaced by a pipe.
pub(crate) fn open_file(file: &Path) -> Option<(File, u64)> {
    let without_waiting = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = File::options().read(true).custom_flags(without_waiting).open(file).ok()?;
    let found = file.metadata().ok()?;
    found.is_file().then_some((file, found.len()))
}

/// A small regular file.
pub(crate) fn contents(file: &Path) -> Option<Vec<u8>> {
    let (file, size) = open_file(file)?;
    // One more byte of capacity shows the end without another read.
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(MAX_BYTES)).unwrap_or_default() + 1);
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// A path without `.` and `..`, resolved textually.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => plain.push(part),
        }
    }
    plain
}

/// Bytes as a path.
pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Files beyond the limit would not be protected: then no sandbox starts.
pub(crate) fn too_many(what: &str, most: usize) -> SandboxError {
    let message = format!("git's config has more than {most} {what}, too many to protect all that it names");
    ErrorCode::PathRefused
        .error(message)
        .hint(hint!("shorten `.git/config` or your own `~/.gitconfig`, or work with {}", Term::Overlay))
}

const MAX_FILES: usize = 256;
const MAX_BYTES: u64 = 1 << 20;
/// The size limit of all files together; a repository with thousands of branches has a megabyte.
pub(crate) const MAX_BYTES_TOGETHER: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn includes_are_followed_and_conditions_kept() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().canonicalize().unwrap();
        fs::create_dir_all(home.join("work/repo/.git")).unwrap();
        let config = "[user]\nname = A\n[include]\npath = more\n[includeIf \"gitdir:~/work/\"]\npath = ~/at-work\n\
                      [includeIf \"onbranch:x\"]\npath = other\n[include]\npath = .gitconfig\n";
        fs::write(home.join(".gitconfig"), config).unwrap();
        fs::write(home.join("more"), "[core]\nhooksPath = ~/hooks\n").unwrap();
        fs::write(home.join("at-work"), "[user]\nemail = a@work\n").unwrap();
        fs::write(home.join("other"), "[user]\nemail = b@branch\n").unwrap();
        let files = HostFiles { files: vec![home.join(".gitconfig")], home: Some(home.clone()) };

        let emails = |git_dir: Option<&Path>| -> Vec<String> {
            let settings = files.settings(&[], git_dir, MAX_BYTES_TOGETHER).unwrap();
            let counting = settings.iter().filter(|one| one.counts && one.variable.name == "user.email");
            counting.filter_map(|one| one.variable.text().map(str::to_string)).collect()
        };
        assert_eq!(emails(Some(&home.join("work/repo/.git"))).last().map(String::as_str), Some("a@work"));
        assert_eq!(emails(Some(&home.join("play/.git"))), [""; 0]);
        assert_eq!(emails(None), [""; 0]);
        let all = files.settings(&[], None, MAX_BYTES_TOGETHER).unwrap();
        assert!(all.iter().any(|one| one.variable.name == "core.hookspath"));
        assert!(all.iter().any(|one| one.variable.text() == Some("b@branch") && !one.counts));
    }

    #[test]
    fn a_path_is_spelled_in_many_ways() {
        let files = HostFiles { files: Vec::new(), home: Some("/home/me".into()) };
        let resolved =
            |text: &str| files.resolve(text, Path::new("/w")).map(|path| path.display().to_string());
        for (text, path) in [
            ("hooks", "/w/hooks"),
            ("./a/../hooks", "/w/hooks"),
            ("/hooks", "/hooks"),
            ("~", "/home/me"),
            ("~/hooks", "/home/me/hooks"),
            ("~root/hooks", "/root/hooks"),
            ("%(prefix)/share/hooks", "/usr/share/hooks"),
        ] {
            assert_eq!(resolved(text).as_deref(), Some(path), "{text}");
        }
        assert_eq!(resolved("~nobody-has-this-name/hooks"), None);
    }

    #[test]
    fn what_cannot_be_looked_at_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = |number: usize| place.path().join(number.to_string());
        for number in 0..=MAX_FILES {
            fs::write(file(number), format!("[include]\npath = {}\n", number + 1)).unwrap();
        }
        let files = HostFiles { files: vec![file(0)], home: None };
        let refused = |bytes: u64| files.settings(&[], None, bytes).unwrap_err().code;
        assert_eq!(refused(MAX_BYTES_TOGETHER), ErrorCode::PathRefused);
        fs::write(file(0), "[a]\nb\nb\n").unwrap();
        assert_eq!(files.settings(&[], None, 8).unwrap().len(), 2);
        assert_eq!(refused(7), ErrorCode::PathRefused);
    }
}
