//! Which sandbox a request means: its key, whether it stays, and whether the caller may make it. Three facts that follow from the
//! request alone; whether the caller may have that key is asked elsewhere.

use belljar_api::{CreateSandbox, Scope};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::new_id;
use serde::{Deserialize, Serialize};

/// Which sandbox is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub key: Key,
    pub persistent: Persistence,
    /// What the request wants to be to the sandbox. What it is follows from the grant, too.
    pub role: Role,
    /// The request said that it is the owner; else it takes as much as the grant has.
    pub insists: bool,
}

/// Same key, same sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    text: String,
    unique: bool,
}

/// Whether a sandbox stays when it has no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Persistence {
    pub persistent: bool,
    /// The request said so; else it follows from the rest, and a sandbox that is there is taken as it is.
    pub is_explicit: bool,
}

/// What a caller is to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Makes, wakes, pauses and deletes it.
    Owner,
    /// Only uses it while it lives.
    Guest,
}

/// What is taken over from a sandbox that another one inherits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    pub key: String,
    pub persistent: bool,
}

impl Identity {
    /// Of a request. `parent` is the sandbox that it inherits, if it names one.
    pub fn of(request: &CreateSandbox, parent: Option<&Parent>) -> Result<Identity, SandboxError> {
        if request.inherit.is_some() {
            return inherited(request, parent);
        }
        let (key, by_default) = key_of(request)?;
        Ok(Identity {
            key,
            persistent: Persistence {
                persistent: request.persistent.unwrap_or(by_default),
                is_explicit: request.persistent.is_some(),
            },
            role: if request.owner == Some(false) { Role::Guest } else { Role::Owner },
            insists: request.owner == Some(true),
        })
    }
}

impl Key {
    /// A key that the caller gave.
    pub fn given(text: impl Into<String>) -> Result<Key, SandboxError> {
        let text = text.into();
        let invalid = |what: &str| {
            ErrorCode::RequestValue
                .error(format!("the key of a sandbox {what}"))
                .hint("a key is one line of 1 to 512 characters")
        };
        if text.is_empty() {
            return Err(invalid("is empty"));
        }
        if text.chars().count() > MAX_KEY_BYTES {
            return Err(invalid(&format!("has more than {MAX_KEY_BYTES} characters")));
        }
        if text.chars().any(char::is_control) {
            return Err(invalid("has control characters in it"));
        }
        Ok(Key { text, unique: false })
    }

    /// A random key that no other sandbox has.
    pub fn unique() -> Result<Key, SandboxError> {
        Ok(Key { text: format!("box-{}", new_id()?), unique: true })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it was generated: it belongs to the grant that asked.
    pub fn is_unique(&self) -> bool {
        self.unique
    }
}

fn inherited(request: &CreateSandbox, parent: Option<&Parent>) -> Result<Identity, SandboxError> {
    let alone = CreateSandbox { inherit: request.inherit.clone(), ..CreateSandbox::default() };
    if *request != alone {
        let message = "`inherit` takes a sandbox as it is, and something else is said beside it";
        return Err(ErrorCode::RequestConflict.error(message).hint("say `inherit` alone"));
    }
    let parent = parent.ok_or_else(|| {
        let name = request.inherit.as_deref().unwrap_or_default();
        ErrorCode::SandboxNotFound.error(format!("there is no sandbox `{name}` to inherit"))
    })?;
    Ok(Identity {
        key: Key::given(parent.key.clone())?,
        persistent: Persistence { persistent: parent.persistent, is_explicit: false },
        role: Role::Guest,
        insists: false,
    })
}

/// The key, and whether a sandbox with such a key stays unless the request says otherwise.
fn key_of(request: &CreateSandbox) -> Result<(Key, bool), SandboxError> {
    if let Some(key) = &request.key {
        if request.scope.is_some() {
            let message = "`key` and `scope` both say which sandbox is meant";
            return Err(ErrorCode::RequestConflict.error(message).hint("leave one of them out"));
        }
        return Ok((Key::given(key)?, true));
    }
    let Some(entity) = &request.entity else {
        if request.scope.is_some() || request.wake.is_some() {
            let message = "a key is to follow from an entity, and none is named";
            return Err(ErrorCode::RequestConflict.error(message).hint("set `entity`, or give a `key`"));
        }
        return Ok((Key::unique()?, false));
    };
    match request.scope.unwrap_or(Scope::Entity) {
        Scope::Entity => Ok((Key::given(entity)?, true)),
        Scope::Wake => {
            let wake = request.wake.as_ref().filter(|wake| !wake.is_empty()).ok_or_else(|| {
                ErrorCode::RequestConflict
                    .error("`scope` is `wake`, and no `wake` is named")
                    .hint("set `wake`, or leave `scope` out for one sandbox an entity")
            })?;
            if entity.is_empty() {
                Key::given("")?;
            }
            Ok((Key::given(format!("{entity}#{wake}"))?, false))
        }
    }
}

const MAX_KEY_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn request(edit: impl FnOnce(&mut CreateSandbox)) -> CreateSandbox {
        let mut request = CreateSandbox::default();
        edit(&mut request);
        request
    }

    fn with(entity: &str, scope: Option<Scope>, wake: Option<&str>) -> CreateSandbox {
        CreateSandbox {
            entity: Some(entity.into()),
            scope,
            wake: wake.map(str::to_string),
            ..CreateSandbox::default()
        }
    }

    #[test]
    fn keys_and_durability_follow_from_what_is_said() {
        let keyed = |key: &str| request(|request| request.key = Some(key.into()));
        let cases = [
            ("a key", keyed("k"), "k", true),
            (
                "a key wins over an entity",
                CreateSandbox { entity: Some("e".into()), ..keyed("k") },
                "k",
                true,
            ),
            ("an entity", with("e", None, None), "e", true),
            ("an entity, and a wake that is not the scope", with("e", None, Some("w")), "e", true),
            ("an entity by scope", with("e", Some(Scope::Entity), Some("w")), "e", true),
            ("a wake", with("e", Some(Scope::Wake), Some("w")), "e#w", false),
        ];
        for (case, request, key, persistent) in cases {
            let found = Identity::of(&request, None).unwrap();
            assert_eq!((found.key.as_str(), found.persistent.persistent), (key, persistent), "{case}");
            assert!(
                !found.key.is_unique() && found.role == Role::Owner && !found.persistent.is_explicit,
                "{case}"
            );
            for is_explicit in [true, false] {
                let request =
                    CreateSandbox { persistent: Some(is_explicit), owner: Some(false), ..request.clone() };
                let found = Identity::of(&request, None).unwrap();
                assert_eq!(
                    found.persistent,
                    Persistence { persistent: is_explicit, is_explicit: true },
                    "{case}"
                );
                assert_eq!((found.key.as_str(), found.role), (key, Role::Guest), "{case}");
            }
        }
    }

    #[test]
    fn without_a_key_it_gets_a_unique_one() {
        let made = || Identity::of(&CreateSandbox::default(), None).unwrap();
        let (one, other) = (made(), made());
        assert_ne!(one.key, other.key);
        assert!(one.key.is_unique() && !one.persistent.persistent && one.role == Role::Owner);
        assert_eq!(one.key.as_str().len(), "box-".len() + 16);
        assert!(one.key.as_str().starts_with("box-"));
    }

    #[test]
    fn an_heir_is_a_guest_with_the_parents_key() {
        let parent = Parent { key: "p".into(), persistent: true };
        let heir = request(|request| request.inherit = Some("bj-p".into()));
        let found = Identity::of(&heir, Some(&parent)).unwrap();
        assert_eq!((found.key.as_str(), found.role), ("p", Role::Guest));
        assert_eq!(found.persistent, Persistence { persistent: true, is_explicit: false });
        assert_eq!(Identity::of(&heir, None).unwrap_err().code, ErrorCode::SandboxNotFound);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let long = "x".repeat(513);
        let keyed = |key: &str| request(|request| request.key = Some(key.into()));
        let cases = [
            (ErrorCode::RequestConflict, CreateSandbox { scope: Some(Scope::Entity), ..keyed("k") }),
            (ErrorCode::RequestConflict, request(|request| request.scope = Some(Scope::Entity))),
            (ErrorCode::RequestConflict, request(|request| request.scope = Some(Scope::Wake))),
            (ErrorCode::RequestConflict, request(|request| request.wake = Some("w".into()))),
            (ErrorCode::RequestConflict, with("e", Some(Scope::Wake), None)),
            (ErrorCode::RequestConflict, with("e", Some(Scope::Wake), Some(""))),
            (ErrorCode::RequestValue, keyed("")),
            (ErrorCode::RequestValue, keyed(&long)),
            (ErrorCode::RequestValue, keyed("a\nb")),
            (ErrorCode::RequestValue, keyed("a\u{85}b")),
            (ErrorCode::RequestValue, with("", None, None)),
            (ErrorCode::RequestValue, with("", Some(Scope::Wake), Some("w"))),
            (ErrorCode::RequestValue, with(&long[..511], Some(Scope::Wake), Some("w"))),
            (ErrorCode::RequestConflict, CreateSandbox { inherit: Some("bj-p".into()), ..keyed("k") }),
            (
                ErrorCode::RequestConflict,
                CreateSandbox { inherit: Some("bj-p".into()), owner: Some(true), ..Default::default() },
            ),
            (
                ErrorCode::RequestConflict,
                CreateSandbox { inherit: Some("bj-p".into()), ..with("e", None, None) },
            ),
        ];
        let parent = Parent { key: "p".into(), persistent: true };
        for (code, request) in cases {
            let error = Identity::of(&request, Some(&parent)).unwrap_err();
            assert_eq!(error.code, code, "{request:?}");
            assert!(error.hint.is_some(), "{request:?}");
        }
        assert!(Identity::of(&keyed(&long[..512]), None).is_ok());
        assert!(Identity::of(&keyed(&"ä".repeat(512)), None).is_ok(), "characters are counted, not bytes");
    }
}
