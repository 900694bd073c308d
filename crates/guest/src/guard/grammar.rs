//! Which options the commands have that the guard looks at. Only what decides how a line is read is written down: which
//! ones take a word with them, and what an abbreviation could mean. From `git COMMAND -h` of git 2.47.

/// The options of a command.
pub(super) struct Grammar {
    pub(super) command: &'static str,
    /// Short ones that take the rest of their word, or the next one.
    pub(super) with_argument: &'static str,
    /// Short ones that take the rest of their word, if there is one.
    pub(super) with_rest: &'static str,
    /// Short ones that matter here, and what they mean.
    pub(super) meanings: &'static [(char, &'static str)],
    /// Long ones; `=` means that one takes the next word if it has no `=` itself. Each has an opposite, with `no-` or
    /// without.
    pub(super) long: &'static str,
}

/// The grammar of a command, if the guard looks at it.
pub(super) fn of(command: &[u8]) -> Option<&'static Grammar> {
    GRAMMARS.iter().find(|grammar| grammar.command.as_bytes() == command)
}

const GRAMMARS: [Grammar; 6] = [
    Grammar {
        command: "commit",
        with_argument: "FmcCtU",
        with_rest: "Su",
        meanings: &[('n', "no-verify")],
        long: "quiet verbose file= author= date= message= reedit-message= reuse-message= fixup= squash= reset-author \
               trailer= signoff template= edit cleanup= status gpg-sign all include interactive patch only no-verify \
               dry-run short branch ahead-behind porcelain long null amend no-post-rewrite untracked-files \
               pathspec-from-file= pathspec-file-nul allow-empty allow-empty-message unified= inter-hunk-context=",
    },
    Grammar {
        command: "push",
        with_argument: "o",
        with_rest: "",
        meanings: &[('f', "force"), ('d', "delete")],
        long: "verbose quiet repo= all branches mirror delete tags dry-run porcelain force force-with-lease \
               force-if-includes recurse-submodules= thin receive-pack= exec= set-upstream progress prune no-verify \
               follow-tags signed atomic push-option= ipv4 ipv6",
    },
    Grammar {
        command: "merge",
        with_argument: "sXmF",
        with_rest: "S",
        meanings: &[],
        long: "stat summary compact-summary log squash commit edit cleanup= ff ff-only rerere-autoupdate \
               verify-signatures strategy= strategy-option= message= file= into-name= verbose quiet abort quit continue \
               allow-unrelated-histories progress gpg-sign autostash overwrite-ignore signoff no-verify",
    },
    Grammar {
        command: "rebase",
        with_argument: "CxsX",
        with_rest: "Sr",
        meanings: &[],
        long: "onto= keep-base no-verify quiet verbose no-stat signoff trailer= committer-date-is-author-date \
               reset-author-date ignore-date ignore-whitespace whitespace= force-rebase no-ff continue skip abort quit \
               edit-todo show-current-patch apply merge interactive preserve-merges rerere-autoupdate empty= keep-empty \
               autosquash update-refs gpg-sign autostash exec= allow-empty-message rebase-merges fork-point strategy= \
               strategy-option= root reschedule-failed-exec reapply-cherry-picks",
    },
    Grammar {
        command: "am",
        with_argument: "Cp",
        with_rest: "S",
        meanings: &[('n', "no-verify")],
        long: "interactive no-verify binary 3way quiet signoff utf8 keep keep-non-patch message-id keep-cr scissors \
               quoted-cr= whitespace= ignore-space-change ignore-whitespace directory= exclude= include= patch-format= \
               reject resolvemsg= continue resolved skip abort quit show-current-patch retry allow-empty \
               committer-date-is-author-date ignore-date rerere-autoupdate gpg-sign empty= rebasing",
    },
    Grammar {
        command: "pull",
        with_argument: "sXo",
        with_rest: "rSj",
        meanings: &[],
        long: "verbose quiet progress recurse-submodules rebase stat summary compact-summary log signoff squash commit edit \
               cleanup= ff ff-only verify verify-signatures autostash strategy= strategy-option= gpg-sign \
               allow-unrelated-histories all append upload-pack= force tags prune jobs dry-run keep depth= shallow-since= \
               shallow-exclude= deepen= unshallow update-shallow refmap= server-option= ipv4 ipv6 negotiation-tip= \
               show-forced-updates set-upstream",
    },
];
