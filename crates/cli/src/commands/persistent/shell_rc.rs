//! What a shell finds in a folder's sandbox: a prompt that says where it is, a history that stays, and aliases for agents
//! that ask no questions, since nothing outside can be harmed.

use super::repository::{CONFIG, HISTORY, Repository};
use belljar_spec::SandboxError;

/// Makes a folder's volumes what its sandboxes find. Says which were made.
pub(super) fn prepare(repository: &Repository) -> Result<Vec<&'static str>, SandboxError> {
    let (history, config) = (repository.history()?, repository.config()?);
    let made = [(history.make()?, "history"), (config.make()?, "config")];
    let top = config.open()?;
    // Agents want the folders that their variables name to be there.
    for name in ["codex", "claude"] {
        top.make_folder(name)?;
    }
    let shell = top.folder_anew("shell")?;
    for (name, text) in [("rc", RC), (".zshrc", ZSHRC)] {
        // Written only if need be: a shell may be reading it.
        if shell.read(name).as_deref() != Some(text) {
            shell.write(name, text.as_bytes())?;
        }
    }
    Ok(made.into_iter().filter_map(|(new, name)| new.then_some(name)).collect())
}

/// Variables of every command.
pub(super) fn variables() -> [(&'static str, String); 8] {
    [
        ("HISTFILE", format!("{HISTORY}/shell")),
        ("PYTHON_HISTORY", format!("{HISTORY}/python")),
        ("NODE_REPL_HISTORY", format!("{HISTORY}/node")),
        ("SQLITE_HISTORY", format!("{HISTORY}/sqlite")),
        ("CODEX_HOME", format!("{CONFIG}/codex")),
        ("CLAUDE_CONFIG_DIR", format!("{CONFIG}/claude")),
        // What an interactive sh and a zsh read; bash is told on its command line.
        ("ENV", format!("{CONFIG}/shell/rc")),
        ("ZDOTDIR", format!("{CONFIG}/shell")),
    ]
}

/// A shell at a terminal. Which one there is, the sandbox's environment says.
pub(super) fn interactive() -> Vec<String> {
    let bash = format!("exec \"$SHELL\" --rcfile {CONFIG}/shell/rc -i");
    let choice = format!("case $SHELL in */bash) {bash} ;; *) exec \"${{SHELL:-/bin/sh}}\" -i ;; esac");
    ["/bin/sh".into(), "-c".into(), choice].to_vec()
}

/// A shell at a terminal that reads what the host wrote into its home, and nothing of a volume.
pub(super) fn plain() -> Vec<String> {
    ["/bin/sh", "-c", "exec \"${SHELL:-/bin/sh}\" -i"].map(String::from).to_vec()
}

/// A shell that reads commands from a pipe.
pub(super) fn piped() -> Vec<String> {
    ["/bin/sh", "-c", "exec \"${SHELL:-/bin/sh}\""].map(String::from).to_vec()
}

const RC: &str = r#"# Written by belljar; what is changed here does not stay. Your own words belong in rc.local beside it.
case $- in *i*) ;; *) return 0 ;; esac
if [ -n "$BASH_VERSION" ]; then
    HISTSIZE=10000 HISTFILESIZE=10000
    shopt -s histappend
    PROMPT_COMMAND='history -a'
    PS1='\[\e[35m\](belljar)\[\e[0m\] \w\$ '
elif [ -n "$ZSH_VERSION" ]; then
    HISTSIZE=10000 SAVEHIST=10000
    setopt INC_APPEND_HISTORY
    PS1='%F{magenta}(belljar)%f %~%# '
else
    PS1='(belljar) $ '
fi
alias ls='ls --color=auto' grep='grep --color=auto'
alias freeclaude='claude --dangerously-skip-permissions'
alias freecodex='codex --dangerously-bypass-approvals-and-sandbox'
if [ -r /volumes/config/shell/rc.local ]; then . /volumes/config/shell/rc.local; fi
"#;

const ZSHRC: &str = ". /volumes/config/shell/rc\n";
