//! A sandbox that stopped is woken by what its profile says now. A profile that was tightened holds for it from then on; one that was
//! removed, or that asks for something that the sandbox cannot become, keeps it asleep, with what to do.

use crate::caller::Caller;
use crate::permission::OWNER;
use crate::profiles::Profiles;
use crate::record::Record;
use belljar_api::SandboxRequest;
use belljar_spec::{ErrorCode, Hint, SandboxError, Term, hint};

/// What a sandbox is made of in its next life, and what a person should know if that is not what its last one was.
pub(crate) fn sandbox_now(
    profiles: &Profiles,
    record: &Record,
) -> Result<(SandboxRequest, Option<String>), SandboxError> {
    let profile = profiles.choose(Some(&record.profile)).map_err(|error| match error.code {
        ErrorCode::ProfileUnknown => {
            let message = format!("the profile `{}` of this sandbox was removed", record.profile);
            ErrorCode::ProfileUnavailable
                .error(message)
                .hint(hint!("configure it again, or {}", remove_hint()))
        }
        _ => error,
    })?;
    // Of an older record the sum alone is known. Applied to that, a profile narrows it or refuses.
    let requested = record.requested.clone().unwrap_or_else(|| record.sandbox.clone());
    let maker = match &record.rules {
        Some(rules) => Caller::granted(&record.owner, rules.clone()),
        None => Caller::owner(),
    };
    debug_assert!(record.rules.is_none() || record.owner != OWNER, "the owner of this machine has no rules");
    let now = profile.apply(requested).and_then(|now| maker.confine(now, profile.is_isolated())).map_err(
        |error| {
            let message =
                format!("the profile `{}` changed, and does not allow this sandbox: {error}", record.profile);
            ErrorCode::ProfileUnavailable
                .error(message)
                .hint(hint!("change it back, or {}", remove_hint()))
                .caused_by(error)
        },
    )?;
    let now = maker.withhold_model(now);
    let before = &record.sandbox;
    if now == *before {
        return Ok((now, None));
    }
    // Its files belong to what they were made in.
    for (field, before, now) in [
        ("backend", shown(&before.backend), shown(&now.backend)),
        ("rootfs", shown(&before.rootfs), shown(&now.rootfs)),
    ] {
        if before != now {
            let message = format!(
                "the profile `{}` changed: `{field}` is {now} now, and this sandbox was made with {before}",
                record.profile
            );
            return Err(ErrorCode::ProfileUnavailable
                .error(message)
                .hint(hint!("change it back, or {}", remove_hint())));
        }
    }
    Ok((
        now,
        Some(format!(
            "the profile `{}` changed since this sandbox was made, and applies as it is now",
            record.profile
        )),
    ))
}

fn shown<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| "nothing".into(), T::to_string)
}

fn remove_hint() -> Hint {
    hint!("delete the sandbox with its home ({}) to make it anew", Term::DeleteSandbox)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::Profile;
    use crate::record::sample;
    use belljar_api::{GrantRules, LimitsRequest};
    use belljar_engine::BackendReport;
    use belljar_spec::BackendName;

    fn profiles(edit: impl FnOnce(&mut Profile)) -> Profiles {
        let backends = [BackendReport {
            backend: BackendName::Native,
            assurance: BackendName::Native.assurance(),
            outcome: Ok(()),
        }];
        let mut profile = Profile {
            name: "ci".into(),
            label: "ci".into(),
            description: None,
            remote: false,
            base: SandboxRequest { backend: Some("native".parse().unwrap()), ..SandboxRequest::default() },
            source: "a file".into(),
        };
        edit(&mut profile);
        Profiles::new(&backends, vec![profile], None).unwrap()
    }

    /// A sandbox of a profile that allowed two names and two gigabytes; a third name was asked for.
    fn record() -> Record {
        let wide = profiles(|profile| {
            profile.base.egress.allow = vec!["a.example".parse().unwrap(), "b.example".parse().unwrap()];
            profile.base.limits.memory = Some("2g".parse().unwrap());
        });
        let mut record = sample("k", true);
        let mut requested = SandboxRequest::default();
        requested.egress.allow = vec!["c.example".parse().unwrap()];
        record.profile = "ci".parse().unwrap();
        record.sandbox = wide.choose(Some("ci")).unwrap().apply(requested.clone()).unwrap();
        record.requested = Some(requested);
        record
    }

    #[test]
    fn a_profile_that_was_tightened_holds_in_the_next_life() {
        let tight = profiles(|profile| {
            profile.base.egress.allow = vec!["a.example".parse().unwrap()];
            profile.base.limits.memory = Some("1g".parse().unwrap());
        });
        let (now, note) = sandbox_now(&tight, &record()).unwrap();
        assert_eq!(now.egress.allow, ["a.example", "c.example"].map(|rule| rule.parse().unwrap()));
        assert_eq!(now.limits.memory, "1g".parse().ok());
        assert!(note.unwrap().contains("`ci` changed"));
    }

    #[test]
    fn what_did_not_change_is_woken_as_it_was() {
        let same = profiles(|profile| {
            profile.base.egress.allow = vec!["a.example".parse().unwrap(), "b.example".parse().unwrap()];
            profile.base.limits.memory = Some("2g".parse().unwrap());
        });
        assert_eq!(sandbox_now(&same, &record()).unwrap(), (record().sandbox, None));
    }

    #[test]
    fn what_the_profile_does_not_allow_any_more_is_not_woken() {
        let mut open = record();
        open.requested.as_mut().unwrap().egress.mode = Some("open".parse().unwrap());
        let cases: [(ErrorCode, Record, Profiles); 4] = [
            (ErrorCode::ProfileUnavailable, Record { profile: "gone".into(), ..record() }, profiles(|_| {})),
            (
                ErrorCode::ProfileUnavailable,
                open,
                profiles(|profile| profile.base.egress.mode = Some("strict".parse().unwrap())),
            ),
            (
                ErrorCode::ProfileUnavailable,
                record(),
                profiles(|profile| profile.base.rootfs = Some("golden".parse().unwrap())),
            ),
            (
                ErrorCode::ProfileUnavailable,
                record(),
                profiles(|profile| profile.base.backend = Some("bwrap".parse().unwrap())),
            ),
        ];
        for (code, record, profiles) in cases {
            let error = sandbox_now(&profiles, &record).unwrap_err();
            assert_eq!(error.code, code);
            assert_eq!(error.kind(), belljar_spec::ErrorKind::Unavailable, "{code}");
            assert!(error.hint.is_some(), "{code}");
        }
    }

    #[test]
    fn the_grant_that_made_it_counts_as_well() {
        let limits = LimitsRequest { memory: Some("512m".parse().unwrap()), ..LimitsRequest::default() };
        let mut made = record();
        made.owner = "g1".into();
        made.rules = Some(GrantRules { allow_sandbox: true, limits, ..GrantRules::default() });
        let (now, _) = sandbox_now(&profiles(|_| {}), &made).unwrap();
        assert_eq!(now.limits.memory, "512m".parse().ok());
        assert_eq!(now.egress.mode, "strict".parse().ok());
        assert_eq!(now.llm.and_then(|llm| llm.url), "off".parse().ok());
    }

    #[test]
    fn an_older_record_is_narrowed_or_refused() {
        let mut old = record();
        old.requested = None;
        old.sandbox.egress.mode = Some("open".parse().unwrap());
        let strict = profiles(|profile| profile.base.egress.mode = Some("strict".parse().unwrap()));
        assert_eq!(sandbox_now(&strict, &old).unwrap_err().code, ErrorCode::ProfileUnavailable);
    }

    #[test]
    fn what_the_previous_version_wrote_is_woken_as_it_was() {
        let text = include_str!("../tests/records/profile-record.json");
        let record: Record = serde_json::from_str(text).unwrap();
        let same = profiles(|profile| {
            profile.base = SandboxRequest { nested: Some(false), ..record.sandbox.clone() };
        });
        assert_eq!(sandbox_now(&same, &record).unwrap(), (record.sandbox.clone(), None));
    }
}
