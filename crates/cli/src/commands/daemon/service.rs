//! `belljar daemon service install` and `uninstall`: units for systemd.

use crate::args::{ServiceArgs, ServiceUninstallArgs};
use crate::commands::print;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::process::geteuid;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) fn install(options: &ServiceArgs) -> Result<u8, SandboxError> {
    let whose = Whose::requested(options.system, options.user);
    let program = std::env::current_exe().map_err(|error| {
        ErrorCode::Internal.error(format!("cannot say where belljar itself is: {error}")).caused_by(error)
    })?;
    let [of_service, of_socket] = UNITS;
    let units = [(of_service, service(&program, whose)), (of_socket, socket(whose))];
    if options.print {
        let text: Vec<String> = units.iter().map(|(name, text)| format!("# {name}\n{text}")).collect();
        return print(text.join("\n").as_bytes());
    }
    let directory = whose.directory()?;
    for (name, text) in &units {
        let path = directory.join(name);
        let written = fs::create_dir_all(&directory).and_then(|()| fs::write(&path, text));
        written.map_err(|error: io::Error| {
            ErrorCode::StateFailed
                .error(format!("cannot write {}: {error}", path.display()))
                .hint("`--print` shows the units; write them where your system wants them")
                .caused_by(error)
        })?;
        eprintln!("belljar: wrote {}", path.display());
    }
    let flag = whose.flag();
    eprintln!("  hint: `systemctl{flag} daemon-reload && systemctl{flag} enable --now belljar.socket`");
    Ok(0)
}

pub(crate) fn uninstall(options: &ServiceUninstallArgs) -> Result<u8, SandboxError> {
    if remove(Whose::requested(options.system, options.user))? == 0 {
        eprintln!("belljar: no service is installed");
    }
    Ok(0)
}

/// Removes the service of this user, and as root that of the machine.
pub(crate) fn remove_here() -> Result<(), SandboxError> {
    Whose::here().iter().try_for_each(|whose| remove(*whose).map(drop))
}

/// The units that [`remove_here`] would remove.
pub(crate) fn installed() -> Vec<PathBuf> {
    Whose::here().iter().flat_map(|whose| whose.units()).collect()
}

/// Stops the service and removes its units; gives how many there were.
fn remove(whose: Whose) -> Result<usize, SandboxError> {
    let units = whose.units();
    if units.is_empty() {
        return Ok(0);
    }
    let flag = whose.flag();
    let is_stopped = systemctl(whose, &["disable", "--now", "belljar.socket", "belljar.service"]);
    for path in &units {
        fs::remove_file(path).map_err(|error| {
            ErrorCode::StateFailed
                .error(format!("cannot remove {}: {error}", path.display()))
                .hint("a service of the machine is root's: `sudo belljar daemon service uninstall --system`")
                .caused_by(error)
        })?;
        eprintln!("belljar: removed {}", path.display());
    }
    if !is_stopped || !systemctl(whose, &["daemon-reload"]) {
        eprintln!("belljar: systemd could not be told");
        eprintln!(
            "  hint: `systemctl{flag} stop belljar.socket belljar.service; systemctl{flag} daemon-reload`"
        );
    }
    Ok(units.len())
}

/// Whether systemd did that. One that does not run here needs no word.
fn systemctl(whose: Whose, words: &[&str]) -> bool {
    // sd_booted(3)
    if !Path::new("/run/systemd/system").exists() {
        return true;
    }
    let mut command = Command::new("systemctl");
    if whose == Whose::User {
        command.arg("--user");
    }
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    User,
    System,
}

impl Whose {
    fn requested(system: bool, user: bool) -> Whose {
        if system || (geteuid().is_root() && !user) { Whose::System } else { Whose::User }
    }

    /// Those that this user can remove.
    fn here() -> &'static [Whose] {
        if geteuid().is_root() { &[Whose::User, Whose::System] } else { &[Whose::User] }
    }

    /// The units that are there and that `install` wrote.
    fn units(self) -> Vec<PathBuf> {
        let Ok(directory) = self.directory() else { return Vec::new() };
        let is_ours = |path: &PathBuf| {
            fs::read_to_string(path).is_ok_and(|text| text.starts_with("[Unit]\nDescription=belljar, "))
        };
        UNITS.iter().map(|name| directory.join(name)).filter(is_ours).collect()
    }

    fn flag(self) -> &'static str {
        match self {
            Whose::User => " --user",
            Whose::System => "",
        }
    }

    fn directory(self) -> Result<PathBuf, SandboxError> {
        if self == Whose::System {
            return Ok("/etc/systemd/system".into());
        }
        let variable =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config =
            variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
        config.map(|config| config.join("systemd/user")).ok_or_else(|| {
            ErrorCode::ConfigInvalid
                .error("neither HOME nor XDG_CONFIG_HOME says where units belong")
                .hint("`--print` shows them")
        })
    }

    /// As `belljar serve` and its clients look for it.
    fn socket(self) -> &'static str {
        match self {
            Whose::User => "%t/belljar/daemon.sock",
            Whose::System => "/run/belljar/daemon.sock",
        }
    }

    fn target(self) -> &'static str {
        match self {
            Whose::User => "default.target",
            Whose::System => "multi-user.target",
        }
    }
}

fn service(program: &Path, whose: Whose) -> String {
    // What systemd reads in a value: quotes, and percent signs twice.
    let program = program.display().to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!(
        "[Unit]\nDescription=belljar, persistent sandboxes\nDocumentation=man:belljar(1)\nRequires=belljar.socket\n\
         After=belljar.socket\n\n\
         [Service]\nType=notify\nExecStart=\"{program}\" serve\nRestart=on-failure\n\
         # Where it keeps what it keeps; a system service is told of no home.\nEnvironment=HOME=%h\n\
         # Shims are processes of their own: sandboxes keep running while the daemon is started again.\nKillMode=process\n\
         # Limits of sandboxes are cgroups below this one.\nDelegate=yes\nLimitNOFILE=infinity\n\n\
         [Install]\nWantedBy={}\n",
        whose.target()
    )
}

fn socket(whose: Whose) -> String {
    format!(
        "[Unit]\nDescription=belljar, its socket\n\n\
         [Socket]\nListenStream={}\nSocketMode=0600\nDirectoryMode=0700\n\n\
         [Install]\nWantedBy=sockets.target\n",
        whose.socket()
    )
}

const UNITS: [&str; 2] = ["belljar.service", "belljar.socket"];
