//! Shares inside of other shares. What is read-only must be so wherever it is seen, and must stay where it is: a folder on
//! the way to it that can be renamed takes it along, and leaves its place free for another.

use super::{Bind, BindKind, BindOrigin, seen_at};
use std::path::Path;

/// `named`, and what it takes to hold them inside the binds that are there already.
pub(super) fn everywhere(named: Vec<Bind>, before: &[Bind]) -> Vec<Bind> {
    let mut all: Vec<Bind> = Vec::new();
    for bind in named {
        let seen: Vec<Bind> = before.iter().cloned().chain(all.iter().cloned()).collect();
        let outer = seen
            .iter()
            .rev()
            .find(|outer| bind.source.starts_with(&outer.source) && bind.source != outer.source);
        if let Some(outer) = outer.filter(|outer| outer.kind == BindKind::ReadWrite) {
            let steps = on_the_way(&outer.source, &bind.source);
            // Mounted onto itself, a folder cannot be renamed.
            for step in &steps {
                if let Some(target) = seen_at(step, std::slice::from_ref(outer)) {
                    let origin = BindOrigin::Held;
                    all.push(Bind { source: step.to_path_buf(), target, kind: outer.kind, origin });
                }
            }
            if let Some(target) = seen_at(&bind.source, std::slice::from_ref(outer))
                && target != bind.target
            {
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
}
