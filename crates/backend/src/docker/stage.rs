//! The stage: one tree on the host with everything that the container will be shown, put together by the same steps as the
//! root of any other backend. The container gets its outermost parts; what is nested comes along, with the flags it has
//! here.

use super::container_dir::{ContainerDir, SOCKET};
use super::helper::Helper;
use crate::layout::{BindOrigin, Layout};
use crate::mountpoints::Mountpoints;
use crate::native::{Identity, Sources, bind_steps, private_step_beside, user_of_container};
use crate::{Plan, embedded};
use belljar_spec::SandboxError;
use belljar_sys::rustix::fd::AsFd;
use belljar_wire::message::{Access, Bytes, NodeKind, Source, Step};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Puts the stage together. Gives what was made for it in folders of the host.
pub(super) fn build(
    plan: &Plan,
    layout: &Layout,
    place: &ContainerDir,
) -> Result<Option<Mountpoints>, SandboxError> {
    let mut helper = Helper::start(plan)?;
    let sources = Sources::open(layout, identity(plan))?;
    helper.make_mountpoints(plan, layout, place)?;
    let mounts: Vec<_> = sources.mounts.iter().map(AsFd::as_fd).collect();
    let steps = steps(plan, layout, &sources, place);
    let pending = helper.carry_out(steps, &mounts)?;
    let done = helper.finish(pending).map_err(|failure| crate::native::setup_failed(failure, layout))?;
    Ok(done.mountpoints)
}

/// The steps, from an empty directory to a finished stage.
pub(super) fn steps(plan: &Plan, layout: &Layout, sources: &Sources, place: &ContainerDir) -> Vec<Step> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let cover = text(place.private());
    let (uid, gid) = identity(plan).user_on_host();
    let mut steps = vec![
        Step::ActAs { uid, gid },
        Step::Stage { place: text(place.root()) },
        private_step_beside(plan, layout, &cover, embedded::size()),
        Step::Dir { target: "run".into(), mode: 0o755 },
    ];
    steps.extend(bind_steps(layout, sources, |bind| bind.origin == BindOrigin::System));
    let private = layout.private.iter().map(|directory| directory.target.to_string());
    steps.extend(private.map(|target| Step::PrivateDir { target }));
    // What hides files.
    steps.push(bind("/dev/null".into(), "dev/null", NodeKind::File, Access::Device));
    steps.extend(link_steps(plan, layout));
    steps.extend(layout.files.iter().map(|(target, content)| Step::File {
        target: target.clone(),
        mode: 0o644,
        content: Bytes(content.clone()),
    }));
    steps.extend(bind_steps(layout, sources, |bind| bind.origin != BindOrigin::System));
    let is_of_proc = |step: &Step| matches!(step, Step::Mask { target, .. } if is_in(target, "proc"));
    steps.extend(layout.mask_steps().filter(|step| !is_of_proc(step)));
    if plan.is_for_runc() {
        // The daemon's own would let the container take every terminal that sandboxes have.
        steps.push(Step::DevPts { target: TERMINALS.into() });
    }
    // The daemon would mount the host's cgroups there.
    steps.push(Step::Dir { target: CGROUPS.into(), mode: 0o755 });
    let (source, target) = (Source::OwnProgram, GUEST.to_string());
    steps.push(Step::Bind { source, target, kind: NodeKind::File, access: Access::ReadOnly });
    steps.push(bind(text(place.control_socket()), CONTROL_SOCKET, NodeKind::Directory, Access::ReadOnly));
    steps.push(Step::ReadOnlyRoot);
    steps.push(Step::Uncover { cover });
    steps
}

/// The outermost of the directories in which files are written, and where the guest's program and its control socket are:
/// what is mounted there must not lie elsewhere. A program that does would let the image say what process 1 is.
pub(super) fn must_be_plain(layout: &Layout) -> BTreeSet<&str> {
    let folders = layout.binds.iter().filter(|bind| bind.origin != BindOrigin::System);
    let private = layout.private.iter().map(|directory| &*directory.target);
    outermost(
        folders.map(|bind| bind.target.as_str()).chain(private).chain([GUEST, CONTROL_SOCKET]).collect(),
    )
}

/// Links as links; over an image, where only files and directories can be shown, those to files of ours as the files.
fn link_steps(plan: &Plan, layout: &Layout) -> Vec<Step> {
    let link = |(target, to): &(String, String)| match plan.image() {
        None => Some(Step::Symlink { target: target.clone(), to: to.clone() }),
        Some(_) => {
            let content = content_of(layout, to)?.clone();
            Some(Step::File { target: target.clone(), mode: 0o644, content: Bytes(content) })
        }
    };
    layout.links.iter().filter_map(link).collect()
}

/// The file of ours at this absolute path.
fn content_of<'l>(layout: &'l Layout, path: &str) -> Option<&'l Vec<u8>> {
    let place = path.strip_prefix('/')?;
    layout.files.iter().find(|(target, _)| target == place).map(|(_, content)| content)
}

fn bind(source: String, target: &str, kind: NodeKind, access: Access) -> Step {
    Step::Bind { source: Source::Path(source), target: target.into(), kind, access }
}

/// The outermost parts of the stage, as places without the leading slash: what the container is shown.
pub(super) fn shown(plan: &Plan, layout: &Layout) -> Vec<String> {
    let binds = layout.binds.iter().map(|bind| bind.target.as_str());
    let files = layout.files.iter().map(|(target, _)| target.as_str());
    let private = layout.private.iter().map(|directory| &*directory.target);
    let links = layout.links.iter().filter(|(target, to)| match plan.image() {
        None => target.contains('/'),
        Some(_) => content_of(layout, to).is_some(),
    });
    let links = links.map(|(target, _)| target.as_str());
    // Of these the container has its own.
    let is_its_own = |target: &str| is_in(target, "proc") || target == "dev";
    let all = binds.chain(files).chain(private).chain(links).chain([GUEST, CONTROL_SOCKET]);
    let all: BTreeSet<&str> = all.filter(|target| !is_its_own(target)).collect();
    let mut shown: BTreeSet<&str> = match plan.image() {
        // Nothing else is in the root.
        None => {
            all.into_iter().map(|target| if is_in(target, "dev") { target } else { first(target) }).collect()
        }
        Some(_) => outermost(
            all.into_iter().map(|target| if is_in(target, "sys") { "sys" } else { target }).collect(),
        ),
    };
    // The host's, in which the daemon would mount more of the host's; and files of which it has its own, which lie over
    // ours unless they are named.
    shown.extend(["sys", CGROUPS, "etc/resolv.conf", "etc/hostname", "etc/hosts"]);
    shown.extend(plan.is_for_runc().then_some(TERMINALS));
    shown.into_iter().map(str::to_string).collect()
}

fn first(target: &str) -> &str {
    target.split('/').next().unwrap_or(target)
}

/// Those that lie in none of the others.
fn outermost(all: BTreeSet<&str>) -> BTreeSet<&str> {
    let is_inner = |target: &str| {
        Path::new(target).ancestors().skip(1).filter_map(Path::to_str).any(|outer| all.contains(outer))
    };
    all.iter().copied().filter(|target| !is_inner(target)).collect()
}

fn is_in(target: &str, directory: &str) -> bool {
    Path::new(target).starts_with(directory)
}

/// The places of the guest's program and of its control socket, inside.
pub(super) const GUEST: &str = "run/.belljar/guest";
const CONTROL_SOCKET: &str = "run/.belljar/door";
const TERMINALS: &str = "dev/pts";
const CGROUPS: &str = "sys/fs/cgroup";

/// The socket, as the guest knows it.
pub(super) fn control_socket_inside() -> String {
    format!("/{CONTROL_SOCKET}/{SOCKET}")
}

/// A container has no user namespace of its own: its user is the host's of the same number, whatever that is. What is named
/// comes in with its owner shown as that one.
pub(super) fn identity(plan: &Plan) -> Identity {
    Identity::Range { first: 0, inside: user_of_container(plan.id) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::trial;

    #[test]
    fn what_lies_in_something_that_is_shown_comes_along() {
        let all = BTreeSet::from(["a", "a/b", "c/d", "c/d/e/f", "c/dd", "g"]);
        assert_eq!(outermost(all), BTreeSet::from(["a", "c/d", "c/dd", "g"]));
    }

    #[test]
    fn no_link_leads_to_the_guests_program_or_its_control_socket() {
        let plan = trial().expect("a plan");
        let places = must_be_plain(plan.layout().expect("a layout"));
        for place in [GUEST, CONTROL_SOCKET] {
            assert!(places.iter().any(|known| is_in(place, known)), "{place} is not in {places:?}");
        }
    }
}
