//! Agent context: a file of ours that is seen in the workspace, in the place of one that is there or of none. No process
//! inside can change it, and nothing of it is on the host. Where nothing is there, its mount point is made as that of a
//! protected path is.
//!
//! Git inside is told of it: what was added is never part of a commit.

use super::{Bind, BindKind, BindOrigin, Layout, Missing, relative};
use belljar_spec::{AgentContext, ErrorCode, SandboxError, Term, hint};
use belljar_wire::message::{Bytes, Mountpoint, MountpointKind};
use std::path::PathBuf;

impl Layout {
    /// Shows this in its workspace.
    pub(super) fn add_context(&mut self, context: &AgentContext) -> Result<(), SandboxError> {
        let workspace = relative(&self.workspace).to_string();
        let target = format!("{workspace}/{}", context.path);
        let folder = self.binds.iter().find(|bind| bind.target == workspace).map(|bind| bind.source.clone());
        if context.own.is_none() {
            self.make_place(&workspace, &target, &context.path, folder.as_ref())?;
        }
        self.files.push((FILE.into(), context.text.clone()));
        let source = folder.map(|folder| folder.join(&context.path)).unwrap_or_default();
        let (kind, origin) = (BindKind::ReadOnly, BindOrigin::Made(FILE));
        self.binds.push(Bind { source, target, kind, origin });
        Ok(())
    }

    /// A mount needs a place.
    fn make_place(
        &mut self,
        workspace: &str,
        target: &str,
        path: &str,
        folder: Option<&PathBuf>,
    ) -> Result<(), SandboxError> {
        let mountpoint = Mountpoint { path: path.into(), kind: MountpointKind::File(Bytes(Vec::new())) };
        let Some(folder) = folder else {
            // Private files, gone with the sandbox.
            self.files.push((target.into(), Vec::new()));
            return Ok(());
        };
        if let Some(layer) = self.layers.iter_mut().find(|layer| layer.target == workspace) {
            layer.mountpoints.push(mountpoint);
            return Ok(());
        }
        if super::workspace::cannot_be_made(&self.opened.look_through(folder), path) {
            let message =
                format!("agent context cannot be shown in `{}`: nothing can be made there", folder.display());
            return Err(ErrorCode::RequestValue
                .error(message)
                .hint(hint!("make the folder writable for yourself, or work on it with {}", Term::Overlay)));
        }
        match self.missing.iter_mut().find(|missing| missing.root == *folder) {
            Some(missing) => {
                missing.mountpoints.push(mountpoint);
                missing.shields.push(path.into());
            }
            None => {
                let (root, shields) = (folder.clone(), vec![path.into()]);
                self.missing.push(Missing { root, mountpoints: vec![mountpoint], shields });
            }
        }
        Ok(())
    }

    /// What the config that [`git_config`] includes says. Of agent context: where the repository has no such file, it is passed over;
    /// where it has one, git takes that one's content for what is there. Of covered files: one that git tracks has the content
    /// that it has in the index, so that no commit takes the cover for it, and any other one is passed over.
    pub(super) fn tell_git(&mut self, context: Option<&AgentContext>, covered: &[String]) {
        let (mut ignored, mut attributes, mut filters) = (String::new(), String::new(), String::new());
        match context.map(|context| (&context.path, &context.own)) {
            Some((path, None)) => ignored += &format!("/{path}\n"),
            Some((path, Some(own))) => {
                self.files.push((OWN.into(), own.clone()));
                attributes += &format!("/{path} filter=belljar-context\n");
                filters += &format!("[filter \"belljar-context\"]\n\tclean = cat /{OWN}\n");
            }
            None => {}
        }
        // A line ends a pattern.
        for path in covered.iter().filter(|path| !path.contains('\n')) {
            let pattern = pattern(path);
            ignored += &format!("{pattern}\n");
            let quoted = pattern.replace('\\', "\\\\").replace('"', "\\\"");
            attributes += &format!("\"{quoted}\" filter=belljar-covered\n");
        }
        if !covered.is_empty() {
            filters += "[filter \"belljar-covered\"]\n\tclean = git cat-file blob :%f\n\tsmudge = cat\n\trequired = true\n";
        }
        if ignored.is_empty() && attributes.is_empty() {
            return;
        }
        let mut config = "[core]\n".to_string();
        for (key, place, text) in
            [("excludesFile", IGNORED, ignored), ("attributesFile", ATTRIBUTES, attributes)]
        {
            // An empty one would be in the place of git's default.
            if !text.is_empty() {
                config += &format!("\t{key} = /{place}\n");
                self.files.push((place.into(), text.into_bytes()));
            }
        }
        self.files.push((CONFIG.into(), (config + &filters).into_bytes()));
    }
}

/// What matches this path alone: gitignore(5).
fn pattern(path: &str) -> String {
    path.chars().fold("/".to_string(), |mut pattern, letter| {
        pattern.extend(matches!(letter, '*' | '?' | '[' | '\\' | ' ').then_some('\\'));
        pattern.push(letter);
        pattern
    })
}

/// What is added to git's config: of the workspace's own repository, and of no other one that is made inside.
pub fn git_config(workspace: &str) -> String {
    let of = |directory: &str| format!("[includeIf \"gitdir:{directory}\"]\n\tpath = /{CONFIG}\n");
    [of(&format!("{workspace}/.git")), of("/run/belljar/git/"), of("/run/belljar/git")].concat()
}

/// Ours, without the leading slash. In a root that may be written to, this directory may not.
const FILE: &str = "etc/belljar/agent-context.md";
/// What the repository's own says.
const OWN: &str = "etc/belljar/agent-context.own";
const CONFIG: &str = "etc/belljar/context.gitconfig";
const IGNORED: &str = "etc/belljar/context.gitignore";
const ATTRIBUTES: &str = "etc/belljar/context.gitattributes";
