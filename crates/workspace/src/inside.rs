//! Git's config in a sandbox: the committer, that the workspace is safe to work in, and where the host's repository is.
//!
//! It is a system-level file, so that a repository's own config overrides it. The host's config is read without running anything;
//! only the user's name and address are copied from it.

use crate::settings::{HostFiles, MAX_BYTES_TOGETHER};
use belljar_git::config::quoted;
use belljar_spec::git::BranchName;
use belljar_spec::secret::{Credential, CredentialLocation};
use belljar_spec::workspace::View;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The committer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    pub name: String,
    pub email: String,
}

impl Person {
    /// The host's user, by their own config for this workspace, or for the host's repository that it is a clone of: the config of that
    /// one counts more, as it does outside. A user without a configured name gets a default: a commit inside must not fail for that.
    pub fn of_host(view: Option<&View>, repository: Option<&Path>) -> Person {
        Person::of(view, repository, &HostFiles::real())
    }

    /// The same, from these files.
    pub fn of(view: Option<&View>, repository: Option<&Path>, host: &HostFiles) -> Person {
        let of_view = |view: &View| match &view.git {
            Some(git) if git.own.is_empty() => git.common.clone(),
            Some(git) => git.common.join(&git.own),
            None => view.folder.join(".git"),
        };
        let git_dir = repository.map(Path::to_path_buf).or_else(|| view.map(of_view));
        let own: Vec<PathBuf> = repository.map(|git_dir| git_dir.join("config")).into_iter().collect();
        let settings = host.settings(&own, git_dir.as_deref(), MAX_BYTES_TOGETHER).unwrap_or_default();
        let last = |name: &str| {
            let configured = settings.iter().rfind(|one| one.counts && one.variable.name == name);
            configured.and_then(|one| one.variable.text()).filter(|text| !text.is_empty()).map(str::to_string)
        };
        Person {
            name: last("user.name").unwrap_or_else(|| DEFAULT_AUTHOR.0.to_string()),
            email: last("user.email").unwrap_or_else(|| DEFAULT_AUTHOR.1.to_string()),
        }
    }
}

/// The host's repository, as seen from inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The port on the sandbox's loopback where the relay listens.
    pub port: u16,
    /// The current branch, the target of a plain `git push`.
    pub branch: Option<BranchName>,
}

/// The config file.
pub fn config(person: &Person, remote: Option<&Remote>) -> String {
    // Inside, every file belongs to the sandbox user or to `nobody`, whatever user owns it outside. So git must not take a file for
    // changed because the index has another owner: `git reset --hard` would rewrite it, and fail where it is protected.
    let mut text = format!(
        "# Made by belljar. The repository's own config counts more.\n\
         {HOSTS_CONFIG}[safe]\n\tdirectory = *\n[core]\n\tcheckStat = minimal\n[user]\n\tname = {}\n\temail = {}\n",
        quoted(&person.name),
        quoted(&person.email)
    );
    if let Some(Remote { port, branch }) = remote {
        let _ = write!(
            text,
            "[push]\n\tdefault = simple\n[remote \"{NAME}\"]\n\turl = git://127.0.0.1:{port}/repo\n\
             \tfetch = +refs/heads/*:refs/remotes/{NAME}/*\n"
        );
        if let Some(branch) = branch {
            let merge = quoted(&format!("refs/heads/{branch}"));
            let branch = quoted(branch.as_str());
            let _ = write!(text, "[branch {branch}]\n\tremote = {NAME}\n\tmerge = {merge}\n");
        }
    }
    text
}

/// Credential helpers for the placeholders of passwords: git asks them when a host wants a password, and sends it to that host
/// alone. A program that unsets the variable gets none.
pub fn helpers(credentials: &[Credential]) -> String {
    let mut text = String::new();
    for (credential, binding) in
        credentials.iter().flat_map(|one| one.bindings.iter().map(move |binding| (one, binding)))
    {
        let user = binding.locations.iter().find_map(|location| match location {
            CredentialLocation::Basic { user } => Some(user),
            CredentialLocation::Bearer | CredentialLocation::Header(_) | CredentialLocation::Query(_) => None,
        });
        let (Some(user), Some(variable)) = (user, credential.variables.first()) else { continue };
        if binding.ports.first() != binding.ports.last() {
            continue;
        }
        let port = match binding.ports.first() {
            443 => String::new(),
            port => format!(":{port}"),
        };
        // Quoted as a word of the shell.
        let user = user.replace('\'', r"'\''");
        let helper = format!(
            "!f() {{ test \"$1\" = get && test -n \"${variable}\" && \
             printf 'username=%s\\npassword=%s\\n' '{user}' \"${variable}\"; }}; f"
        );
        let name = binding.host.name();
        let below = (binding.host.to_string() != format!("={name}")).then(|| format!("*.{name}"));
        for host in below.into_iter().chain([name.to_string()]) {
            let url = quoted(&format!("https://{host}{port}"));
            let _ = write!(text, "[credential {url}]\n\thelper = {}\n", quoted(&helper));
        }
    }
    text
}

/// The part of [`config`] that reads the system's own, which a sandbox without mounts cannot.
pub const HOSTS_CONFIG: &str = "[include]\n\tpath = /etc/gitconfig\n";
/// The host repository's name inside.
const NAME: &str = "host";
/// `.invalid` is reserved: RFC 2606.
const DEFAULT_AUTHOR: (&str, &str) = ("belljar agent", "agent@belljar.invalid");

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_git::config::variables;
    use std::fs;

    #[test]
    fn the_users_name_goes_in_whatever_it_is() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".gitconfig");
        let host = HostFiles { files: vec![file.clone()], home: Some(home.path().to_path_buf()) };
        for name in ["Ann Öz", "A \"B\" C\\D", "x\n[core]\n\thooksPath = /evil", "# no; name", " [x] "] {
            fs::write(&file, format!("[user]\nname = {}\nemail = a@example.org\n", quoted(name))).unwrap();
            let person = Person::of(None, None, &host);
            assert_eq!(person.name, name);
            let inside = variables(config(&person, None).as_bytes());
            let names: Vec<&str> = inside.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(
                names,
                ["include.path", "safe.directory", "core.checkstat", "user.name", "user.email"]
            );
            assert_eq!(inside[3].text(), Some(name));
        }
        fs::write(&file, "[core]\nbare\n").unwrap();
        assert_eq!(Person::of(None, None, &host).email, "agent@belljar.invalid");
    }

    #[test]
    fn the_config_of_the_hosts_repository_counts_more() {
        let home = tempfile::tempdir().unwrap();
        let (file, work) = (home.path().join(".gitconfig"), home.path().join("work"));
        let git_dir = home.path().join("web/.git");
        fs::create_dir_all(&git_dir).unwrap();
        let of_work = format!(
            "[user]\nname = Ann\nemail = home@example.org\n[includeIf \"gitdir:{}\"]\npath = work\n",
            git_dir.display()
        );
        fs::write(&file, of_work).unwrap();
        fs::write(&work, "[user]\nemail = work@example.org\n").unwrap();
        let host = HostFiles { files: vec![file], home: Some(home.path().to_path_buf()) };
        let person = |repository| Person::of(None, repository, &host);
        let of = |name: &str, email: &str| Person { name: name.into(), email: email.into() };
        assert_eq!(person(None), of("Ann", "home@example.org"));
        assert_eq!(person(Some(&git_dir)), of("Ann", "work@example.org"));
        fs::write(git_dir.join("config"), "[core]\nbare = false\n[user]\nname = Ann of web\n").unwrap();
        assert_eq!(person(Some(&git_dir)), of("Ann of web", "work@example.org"));
    }

    #[test]
    fn git_finds_a_placeholder_for_the_hosts_that_take_it_as_a_password() {
        use belljar_spec::secret::built_in;
        let github = built_in("github").unwrap().credential.clone();
        let mut own = github.clone();
        own.variables = vec!["OWN".parse().unwrap()];
        own.bindings.truncate(1);
        own.bindings[0].host = "git.example.com".parse().unwrap();
        own.bindings[0].ports = "8443".parse().unwrap();
        own.bindings[0].locations = vec![CredentialLocation::basic("it's").unwrap()];
        let inside =
            variables(helpers(&[github, built_in("openai").unwrap().credential.clone(), own]).as_bytes());
        let names: Vec<&str> = inside.iter().map(|one| one.name.as_str()).collect();
        let hosts = [
            "api.github.com",
            "uploads.github.com",
            "codeload.github.com",
            "github.com",
            "*.git.example.com:8443",
            "git.example.com:8443",
        ];
        assert_eq!(names, hosts.map(|host| format!("credential.https://{host}.helper")));
        let answer = |helper: &str, operation: &str, value: &str| {
            let script = format!("{} {operation}", helper.strip_prefix('!').unwrap());
            let mut shell = std::process::Command::new("sh");
            let output =
                shell.args(["-c", &script]).env("GITHUB_TOKEN", value).env("OWN", value).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let (first, last) = (inside[3].text().unwrap(), inside[5].text().unwrap());
        assert_eq!(answer(first, "get", "ghp_x'$y"), "username=x-access-token\npassword=ghp_x'$y\n");
        assert_eq!(answer(last, "get", "v"), "username=it's\npassword=v\n");
        assert_eq!((answer(first, "store", "v"), answer(first, "get", "")), (String::new(), String::new()));
    }

    #[test]
    fn a_plain_push_goes_to_the_hosts_branch() {
        let person = Person { name: "A".into(), email: "a@example.org".into() };
        let remote = Remote { port: 9418, branch: Some("feature/a\"b".parse().unwrap()) };
        let inside = variables(config(&person, Some(&remote)).as_bytes());
        let value = |name: &str| inside.iter().find(|one| one.name == name).and_then(|one| one.text());
        assert_eq!(value("remote.host.url"), Some("git://127.0.0.1:9418/repo"));
        assert_eq!(value("branch.feature/a\"b.remote"), Some("host"));
        assert_eq!(value("branch.feature/a\"b.merge"), Some("refs/heads/feature/a\"b"));
        assert_eq!(value("push.default"), Some("simple"));
    }
}
