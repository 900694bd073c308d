//! `[git]`: rules for pushes to the host's repository and to git hosts with TLS interception; and the objects that repositories may
//! borrow.

use crate::fault::at;
use crate::file::{GitTable, Scalar};
use crate::merge::Layers;
use crate::read::Text;
use belljar_spec::git::{PushRules, RefPattern};
use belljar_spec::{ByteSize, SandboxError};
use std::path::{Path, PathBuf};

/// One file's rules for pushes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitSettings {
    pub push: Vec<RefPattern>,
    pub tags: Option<bool>,
    pub force: Option<bool>,
    pub delete: Option<bool>,
    pub workflows: Option<bool>,
    pub bytes: Option<ByteSize>,
    pub objects: Option<u64>,
    pub alternates: Vec<PathBuf>,
}

impl GitSettings {
    pub(crate) fn understand(text: &Text, table: &GitTable) -> Result<GitSettings, SandboxError> {
        let place = |start: usize| text.place(start);
        let mut push = Vec::new();
        for pattern in &table.push {
            let parsed = pattern.get_ref().parse::<RefPattern>();
            push.push(parsed.map_err(|error| at(&place(pattern.span().start), error))?);
        }
        if !push.is_empty() && push.iter().all(RefPattern::excludes) {
            let start = table.push[0].span().start;
            return Err(at(&place(start), "`push` allows no branch: every pattern has a `!`")
                .hint("write what is allowed first, as in `push = [\"*\", \"!main\"]`"));
        }
        let bytes = table.bytes.as_ref().map(|size| {
            let Scalar(size_text) = size.get_ref();
            size_text.parse().map_err(|error| at(&place(size.span().start), error))
        });
        let objects = table.objects.as_ref().map(|number| {
            u64::try_from(*number.get_ref()).ok().filter(|number| *number > 0).ok_or_else(|| {
                at(&place(number.span().start), "`objects` is a number of objects, at least 1")
            })
        });
        let mut alternates = Vec::new();
        for directory in &table.alternates {
            let path = PathBuf::from(directory.get_ref());
            if !path.is_absolute() || path == Path::new("/") {
                let message = format!("`{}` is not the whole path of a directory", path.display());
                return Err(at(&place(directory.span().start), message)
                    .hint("name the directory that repositories borrow objects from, as in `/srv/mirrors`"));
            }
            alternates.push(path);
        }
        Ok(GitSettings {
            alternates,
            push,
            tags: table.tags,
            force: table.force,
            delete: table.delete,
            workflows: table.workflows,
            bytes: bytes.transpose()?,
            objects: objects.transpose()?,
        })
    }
}

impl Layers {
    /// Directories that repositories may borrow objects from.
    pub(crate) fn alternates(&self) -> Vec<PathBuf> {
        let both = self.operator.iter().chain(&self.user);
        both.flat_map(|settings| settings.git.alternates.iter().cloned()).collect()
    }

    /// The push rules of a run: those requested for it, else those of the user's file, within the operator's. Names that the
    /// operator forbids stay forbidden, and of two numbers the smaller counts.
    pub(crate) fn pushes(&self, requested: &[RefPattern]) -> PushRules {
        let rules_of = |layer: &Option<crate::Settings>| {
            layer.as_ref().map(|layer| layer.git.clone()).unwrap_or_default()
        };
        let (operator, user) = (rules_of(&self.operator), rules_of(&self.user));
        let below = |choice: fn(&GitSettings) -> Option<bool>| match (choice(&operator), choice(&user)) {
            (Some(false), _) => Some(false),
            (above, below) => below.or(above),
        };
        let own = if requested.is_empty() { user.push.clone() } else { requested.to_vec() };
        // If no lower layer has a list, the operator's applies.
        let (branches, within) =
            if own.is_empty() { (operator.push.clone(), Vec::new()) } else { (own, operator.push.clone()) };
        PushRules {
            branches,
            within,
            tags: below(|git| git.tags).unwrap_or(false),
            force: below(|git| git.force).unwrap_or(false),
            delete: below(|git| git.delete).unwrap_or(false),
            workflows: below(|git| git.workflows),
            bytes: operator.bytes.into_iter().chain(user.bytes).min(),
            objects: operator.objects.into_iter().chain(user.objects).min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{Layer, Settings};

    fn read(layer: Layer, lines: &str) -> Result<Settings, SandboxError> {
        let content = format!("[git]\n{lines}\n");
        Settings::understand(&Text { layer, name: "belljar.toml".into(), content })
    }

    fn layers(operator: &str, user: &str) -> Layers {
        Layers {
            operator: Some(read(Layer::Operator, operator).expect("a file")),
            user: Some(read(Layer::User, user).expect("a file")),
            repository: None,
        }
    }

    #[test]
    fn lower_layers_restore_nothing_that_the_operator_removed() {
        let both = layers(
            "push = [\"agent/*\"]\nforce = false\ntags = true\nbytes = \"10m\"",
            "push = [\"*\"]\nforce = true\nbytes = \"1g\"",
        );
        let policy = both.pushes(&[]).to_network();
        let allows = |name: &str| policy.allows_branch(&name.parse().expect("a branch"));
        assert!(allows("agent/x") && !allows("x"));
        assert!(!policy.force && policy.tags);
        assert_eq!(policy.limits.bytes, ByteSize::mebibytes(10));
        let network = both.pushes(&["main".parse().expect("a pattern")]).to_network();
        assert!(!network.allows_branch(&"main".parse().expect("a branch")));
    }

    #[test]
    fn the_operators_list_is_the_list_if_no_layer_adds_to_it() {
        let policy = layers("push = [\"agent/*\"]", "").pushes(&[]).to_network();
        assert!(policy.allows_branch(&"agent/x".parse().expect("a branch")));
        assert!(!policy.allows_branch(&"x".parse().expect("a branch")));
        assert_eq!(Layers::default().pushes(&[]), PushRules::default());
    }

    #[test]
    fn directories_to_borrow_from_add_up() {
        let both = layers("alternates = [\"/srv/a\"]", "alternates = [\"/srv/b\"]");
        assert_eq!(both.alternates(), ["/srv/a", "/srv/b"].map(PathBuf::from));
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_line() {
        for (line, says) in [
            ("push = [\"a b\"]", "is not a pattern of branches"),
            ("push = [\"!main\"]", "allows no branch"),
            ("objects = 0", "at least 1"),
            ("alternates = [\"mirrors\"]", "not the whole path"),
            ("alternates = [\"/\"]", "not the whole path"),
            ("bytes = \"much\"", "is not a size"),
        ] {
            let error = read(Layer::User, line).expect_err(line);
            assert!(error.message.starts_with("belljar.toml:2: "), "{error}");
            assert!(error.message.contains(says), "{error}");
        }
        assert!(read(Layer::Repository, "tags = true").is_err(), "a repository says nothing of pushes");
    }
}
