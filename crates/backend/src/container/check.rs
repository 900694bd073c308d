//! Whether a container is around us. What the container's maker put there counts; a variable, which any program can set,
//! counts only where the root filesystem is layered, as a container's is.

use crate::open_place;
use crate::plan::trial_without_isolation;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::rustix::fs::statfs;
use belljar_sys::rustix::io::Errno;
use belljar_sys::{landlock, seccomp};
use std::env;
use std::fs;
use std::path::Path;

/// A container is around us and a guest starts in it, or an error.
pub(super) fn check() -> Result<(), SandboxError> {
    is_around_us()?;
    open_place::launch(&trial_without_isolation()?, &|| Ok(())).map(|guest| guest.stop())
}

/// A container is around us, or an error.
pub(super) fn is_around_us() -> Result<(), SandboxError> {
    match around_us() {
        Some(_) => Ok(()),
        None => {
            let message = "belljar does not run inside a container, whose isolation it could use";
            Err(ErrorCode::BackendUnavailable.error(message).hint(hint!(
                "outside a container use {}, or {} for no isolation at all",
                Term::Backend.to("native"),
                Term::Backend.to("host")
            )))
        }
    }
}

/// What kind of container is around us.
pub fn around_us() -> Option<&'static str> {
    let marks = Marks {
        variable: |name| env::var(name).ok(),
        exists: |path| Path::new(path).exists(),
        first_process: fs::read("/proc/1/environ").unwrap_or_default(),
        cgroup: fs::read_to_string("/proc/1/cgroup").unwrap_or_default(),
        layered_root: statfs("/").is_ok_and(|root| LAYERED.contains(&(root.f_type as u32))),
    };
    kind(&marks)
}

/// Whether a seccomp filter around us, as containers have one, refuses Landlock, and not the kernel.
pub fn landlock_is_filtered() -> bool {
    match landlock::version() {
        Err(Errno::PERM | Errno::ACCESS) => true,
        Err(Errno::NOSYS) => seccomp::refuses_namespaces(),
        _ => false,
    }
}

struct Marks<V: Fn(&str) -> Option<String>, E: Fn(&str) -> bool> {
    variable: V,
    exists: E,
    /// Process 1's environment, where we may read it: `container=` is set by the container runtime.
    first_process: Vec<u8>,
    cgroup: String,
    layered_root: bool,
}

fn kind<V: Fn(&str) -> Option<String>, E: Fn(&str) -> bool>(marks: &Marks<V, E>) -> Option<&'static str> {
    let variable = |name: &str| (marks.variable)(name).filter(|_| marks.layered_root);
    let is = |name: &str, value: &str| variable(name).as_deref() == Some(value);
    let born_as = |value: &str| {
        marks
            .first_process
            .split(|byte| *byte == 0)
            .any(|variable| variable == format!("container={value}").as_bytes())
    };
    let started_as = |value: &str| born_as(value) || is("container", value);
    if is("CODESPACES", "true") {
        Some("Codespaces")
    } else if variable("GITPOD_WORKSPACE_ID").is_some_and(|id| !id.is_empty()) {
        Some("Gitpod")
    } else if (marks.exists)("/var/run/secrets/kubernetes.io/serviceaccount")
        || marks.cgroup.contains("kubepods")
    {
        Some("Kubernetes")
    } else if (marks.exists)("/.dockerenv") || marks.cgroup.contains("/docker/") {
        Some("Docker")
    } else if (marks.exists)("/run/.containerenv") || started_as("podman") {
        Some("Podman")
    } else if started_as("containerd") || marks.cgroup.contains("/containerd") {
        Some("containerd")
    } else if started_as("lxc") || started_as("systemd-nspawn") {
        Some("a system container")
    } else {
        None
    }
}

/// overlayfs, and FUSE, which carries its rootless twin: linux/magic.h.
const LAYERED: [u32; 2] = [0x794c_7630, 0x6573_5546];

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(
        variables: &[(&str, &str)],
        files: &[&str],
        environ: &[u8],
        cgroup: &str,
    ) -> Option<&'static str> {
        detect_in(true, variables, files, environ, cgroup)
    }

    fn detect_in(
        layered_root: bool,
        variables: &[(&str, &str)],
        files: &[&str],
        environ: &[u8],
        cgroup: &str,
    ) -> Option<&'static str> {
        kind(&Marks {
            variable: |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
            },
            exists: |path: &str| files.contains(&path),
            first_process: environ.to_vec(),
            cgroup: cgroup.to_string(),
            layered_root,
        })
    }

    #[test]
    fn variables_that_anybody_can_set_make_no_container() {
        let variables = [
            ("container", "podman"),
            ("container", "lxc"),
            ("container", "containerd"),
            ("CODESPACES", "true"),
            ("GITPOD_WORKSPACE_ID", "x"),
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ];
        for variable in variables {
            assert_eq!(detect_in(false, &[variable], &[], b"PATH=/bin\0", "0::/\n"), None, "{variable:?}");
        }
        // Nor does a pod's variable where the root is layered, as that of a live system is.
        assert_eq!(detect(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")], &[], b"", ""), None);
        // What the container's maker put there counts in any case.
        assert_eq!(detect_in(false, &[], &["/.dockerenv"], b"", ""), Some("Docker"));
        assert_eq!(detect_in(false, &[], &[], b"container=lxc\0", ""), Some("a system container"));
    }

    #[test]
    fn containers_are_known_by_their_marks() {
        assert_eq!(detect(&[("CODESPACES", "true")], &[], b"", ""), Some("Codespaces"));
        assert_eq!(detect(&[("CODESPACES", "")], &[], b"", ""), None);
        assert_eq!(detect(&[("GITPOD_WORKSPACE_ID", "x")], &[], b"", ""), Some("Gitpod"));
        assert_eq!(detect(&[], &["/.dockerenv"], b"", ""), Some("Docker"));
        assert_eq!(detect(&[], &[], b"PATH=/bin\0container=podman\0", ""), Some("Podman"));
        assert_eq!(detect(&[("container", "containerd")], &[], b"", ""), Some("containerd"));
        assert_eq!(
            detect(&[], &["/var/run/secrets/kubernetes.io/serviceaccount"], b"", ""),
            Some("Kubernetes")
        );
        assert_eq!(detect(&[], &[], b"", "0::/kubepods/besteffort/pod1\n"), Some("Kubernetes"));
        assert_eq!(detect(&[], &[], b"PATH=/bin\0", "0::/\n"), None);
    }
}
