//! Shares inside of other shares. What is read-only must be so wherever it is seen, and must stay where it is: a folder on
//! the way to it that can be renamed takes it along, and leaves its place free for another.

use super::{Bind, BindKind, BindOrigin, seen_at, spelled};
use std::path::Path;

/// `named`, and what it takes to hold them inside the binds that are there already.
pub(super) fn everywhere(named: Vec<Bind>, before: &[Bind]) -> Vec<Bind> {
    let mut all: Vec<Bind> = Vec::new();
    for bind in named {
        let seen: Vec<Bind> = before.iter().cloned().chain(all.iter().cloned()).collect();
        let around = seen_at(&bind.source, &seen).into_iter();
        let is_inside = |outer: &Bind| outer.kind == BindKind::ReadWrite && outer.source != bind.source;
        for (outer, place) in around.filter(|(outer, _)| is_inside(outer)) {
            // Mounted onto itself, a folder cannot be renamed.
            for step in on_the_way(&outer.source, &bind.source) {
                if let Some(target) = outer.shows(step).and_then(spelled) {
                    let origin = BindOrigin::Held;
                    all.push(Bind { source: step.to_path_buf(), target, kind: outer.kind, origin });
                }
            }
            if let Some(target) = spelled(place).filter(|target| *target != bind.target) {
                all.push(Bind { target, ..bind.clone() });
            }
        }
        all.push(bind);
    }
    all
}

/// The folders between two, outermost first, without either.
fn on_the_way<'p>(outer: &Path, inner: &'p Path) -> Vec<&'p Path> {
    let mut steps: Vec<&Path> =
        inner.ancestors().skip(1).take_while(|step| step.starts_with(outer) && *step != outer).collect();
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(source: &str, target: &str, kind: BindKind) -> Bind {
        Bind { source: source.into(), target: target.into(), kind, origin: BindOrigin::Named }
    }

    #[test]
    fn a_read_only_share_in_the_workspace_is_read_only_there_too() {
        let workspace = [bind("/w", "workspace", BindKind::ReadWrite)];
        let all = everywhere(vec![bind("/w/a/keep", "w/a/keep", BindKind::ReadOnly)], &workspace);
        let seen: Vec<_> = all.iter().map(|bind| (bind.target.as_str(), bind.kind)).collect();
        assert_eq!(
            seen,
            [
                ("workspace/a", BindKind::ReadWrite),
                ("workspace/a/keep", BindKind::ReadOnly),
                ("w/a/keep", BindKind::ReadOnly)
            ]
        );
    }

    #[test]
    fn a_read_only_share_is_so_at_every_place_that_shows_it() {
        let workspace = [bind("/w", "workspace", BindKind::ReadWrite)];
        let named = vec![
            bind("/w", "w", BindKind::ReadWrite),
            bind("/w/a", "w/a", BindKind::ReadWrite),
            bind("/w/a/keep", "w/a/keep", BindKind::ReadOnly),
        ];
        let all = everywhere(named, &workspace);
        let last_at =
            |target: &str| all.iter().rev().find(|bind| bind.target == target).map(|bind| bind.kind);
        assert_eq!(last_at("workspace/a/keep"), Some(BindKind::ReadOnly));
        assert_eq!(last_at("w/a/keep"), Some(BindKind::ReadOnly));
        assert_eq!(last_at("workspace/a"), Some(BindKind::ReadWrite));
    }
}
