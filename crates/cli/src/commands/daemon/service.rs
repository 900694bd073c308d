//! `belljar daemon service install`: units for systemd.

use crate::args::ServiceArgs;
use crate::commands::print;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::process::geteuid;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) fn install(options: &ServiceArgs) -> Result<u8, SandboxError> {
    let whose = match options.system || (geteuid().is_root() && !options.user) {
        true => Whose::System,
        false => Whose::User,
    };
    let program = std::env::current_exe().map_err(|error| {
        ErrorCode::Internal.error(format!("cannot say where belljar itself is: {error}")).caused_by(error)
    })?;
    let units = [("belljar.service", service(&program, whose)), ("belljar.socket", socket(whose))];
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
    let flag = match whose {
        Whose::User => " --user",
        Whose::System => "",
    };
    eprintln!("  hint: `systemctl{flag} daemon-reload && systemctl{flag} enable --now belljar.socket`");
    Ok(0)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    User,
    System,
}

impl Whose {
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
         # Shims are processes of their own: sandboxes go on while the daemon is started again.\nKillMode=process\n\
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
