//! The words about agents.

use super::{AgentConfigArgs, SandboxOptions};
use belljar_agent::adapter::{Effort, ModelName};
use belljar_agent::billing::RunBilling;
use belljar_agent::budget::RunBudget;
use clap::{Args as ClapArgs, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Give an agent a prompt and a folder; get its answer, what it changed, and what it cost
    #[command(
        after_help = "Agents are claude, codex, opencode, pi and gemini, as `belljar agent list` finds them; or a program \
        of your own, written with a slash, that keeps the contract in `belljar help agents`. The agent runs in a sandbox, without \
        questions. Its model is at the end of a route that counts every answer; the key never enters.\n\n\
        The prompt comes from --prompt, from --prompt-file, or from standard input. The answer goes to standard output, and what \
        happens meanwhile to standard error. With --json each line of the log goes to standard output as it is written; the \
        last one, of type `result`, says everything. ctrl-C stops the agent and keeps its work; a second one stops at once.\n\n\
        With --web-search the agent may use its own search, too; without, it is switched off where the agent can do that.\n\n\
        Examples:\n  \
        belljar secrets set anthropic\n  \
        belljar agent run claude --prompt 'fix the failing test'\n  \
        belljar agent run claude --continue --prompt 'now the other one'\n  \
        belljar agent run claude -p 'fix it' -- --append-system-prompt 'Answer in French.'\n  \
        belljar agent run codex --model openai/gpt-5 --effort high --prompt-file task.md --overlay\n  \
        git diff | belljar agent run pi --model openai/gpt-5 --context REVIEW.md\n  \
        belljar agent run claude --branch fix/login --budget turns=40,time=20m -p 'fix the login, push'\n  \
        belljar agent run opencode --llm http://127.0.0.1:4000 -m litellm/claude --prompt hello\n  \
        belljar agent run ./my-agent -m openai/gpt-5 --json --prompt hello | tail -n 1\n\n\
        Exit codes: 0 it ended with an answer; 1 it did not; 124 it ran too long; 125 belljar failed;\n126 refused; 130 stopped \
        by ctrl-C."
    )]
    Run(Box<AgentRunArgs>),
    /// Open an agent's own terminal interface in a sandbox, with everything set up
    #[command(
        after_help = "Its model, its key and what it may reach are as with `agent run`. There is no log beside the audit \
        log, and no result: what you see is the agent's own. Its home is kept for the folder, with its conversations.\n\n\
        Examples:\n  \
        belljar agent shell claude\n  \
        belljar agent shell claude --continue\n  \
        belljar agent shell codex --branch fix/login --group registries"
    )]
    Shell(Box<AgentShellArgs>),
    /// Say which agents belljar knows, which are here, and what is missing
    #[command(after_help = "Examples:\n  belljar agent list\n  belljar agent list --json")]
    List(AgentListArgs),
    /// List runs of agents, the newest first
    #[command(after_help = "Examples:\n  belljar agent runs\n  belljar agent runs --json")]
    Runs(AgentRunsArgs),
    /// Show the log of a run, and with -f what is written to it
    #[command(after_help = "Examples:\n  \
        belljar agent logs\n  \
        belljar agent logs 3f2a -f\n  \
        belljar agent logs --json | jq 'select(.type == \"assistant\")'")]
    Logs(AgentLogsArgs),
    /// Run several agents in sequence over one folder, each in a sandbox of its own
    #[command(after_help = "A file in TOML says which (`belljar help agents`):\n\n  \
        agent = \"claude\"\n\n  \
        [[phase]]\n  \
        name = \"plan\"\n  \
        prompt = \"Write a plan for the task in TASK.md to PLAN.md.\"\n  \
        egress = \"none\"\n  \
        budget = \"calls=50,turns=20\"\n\n  \
        [[phase]]\n  \
        name = \"do\"\n  \
        prompt = \"Do what PLAN.md says. The planner's last words: {{plan}}\"\n  \
        groups = [\"registries\"]\n\n\
        The first phase that fails is the last. Open egress is chosen by the phase that needs it, and never for all. What is said \
        here holds for every phase; exit codes are those of `agent run`.\n\n\
        Examples:\n  \
        belljar agent phases release.toml --branch release\n  \
        belljar agent phases release.toml --overlay --json")]
    Phases(Box<AgentPhasesArgs>),
    /// Keep the token of a subscription outside of sandboxes, for an agent's runs
    #[command(
        after_help = "Claude Code: `claude setup-token` on this machine prints a token of a Claude plan, which is asked for here or \
        read from standard input. The sandbox holds a placeholder. `belljar secrets rm claude-plan` removes it. Examples:\n  \
        belljar agent login claude\n  \
        pass show claude/token | belljar agent login claude"
    )]
    Login(AgentLoginArgs),
    /// Write an agent's settings that every sandbox of a folder finds
    Config {
        #[command(subcommand)]
        command: AgentConfigCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentConfigCommand {
    /// Write settings for Codex that every sandbox of a folder finds
    #[command(after_help = "What is there stays, unless --force is given. Examples:\n  \
        belljar agent config codex\n  belljar agent config codex --auth")]
    Codex(AgentConfigArgs),
    /// Write settings for Claude Code that every sandbox of a folder finds
    #[command(after_help = "What is there stays, unless --force is given. Examples:\n  \
        belljar agent config claude\n  belljar agent config claude --auth")]
    Claude(AgentConfigArgs),
}

impl AgentCommand {
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            AgentCommand::Run(options) => options.json,
            AgentCommand::List(options) => options.json,
            AgentCommand::Runs(options) => options.json,
            AgentCommand::Logs(options) => options.json,
            AgentCommand::Phases(options) => options.json,
            AgentCommand::Config {
                command: AgentConfigCommand::Codex(options) | AgentConfigCommand::Claude(options),
            } => options.json,
            AgentCommand::Shell(_) | AgentCommand::Login(_) => false,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentRunArgs {
    /// Which agent: claude, codex, opencode, pi, gemini; or a program of your own, as in `./my-agent`
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
    /// What it should do
    #[arg(short, long, value_name = "TEXT", conflicts_with = "prompt_file", allow_hyphen_values = true)]
    pub(crate) prompt: Option<OsString>,
    /// A file that says what it should do; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wish: WishArgs,
    #[command(flatten)]
    pub(crate) conversation: ConversationArgs,
    /// Print the log as it is written, one JSON object a line; the last one is the result
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sandbox_options: SandboxOptions,
    #[command(flatten)]
    pub(crate) own: OwnArgs,
}

/// What is for the agent itself.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct OwnArgs {
    /// What the run is booked under, at a LiteLLM server: `end_user=ann`, `user_id`, `session_id`, `graph_id`, `attempt=2`, or several with commas
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    pub(crate) bill: Vec<BillField>,
    /// Arguments of the agent's own, passed on as they are
    #[arg(last = true, value_name = "ARGUMENT", value_parser = clap::builder::OsStringValueParser::new())]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentShellArgs {
    /// Which agent: claude, codex, opencode, pi, gemini
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
    /// What it should do first
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<OsString>,
    #[command(flatten)]
    pub(crate) wish: WishArgs,
    #[command(flatten)]
    pub(crate) conversation: ConversationArgs,
    #[command(flatten)]
    pub(crate) sandbox_options: SandboxOptions,
    #[command(flatten)]
    pub(crate) own: OwnArgs,
}

/// One thing that a run is booked under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BillField {
    EndUser(String),
    UserId(String),
    SessionId(String),
    GraphId(String),
    Attempt(u32),
}

impl FromStr for BillField {
    type Err = String;

    fn from_str(text: &str) -> Result<BillField, String> {
        let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, as in `end_user=ann`")?;
        // What a header can hold, and nothing that could be taken for more than one word.
        if !RunBilling::is_valid(value) {
            return Err(format!("`{name}` is visible letters without spaces, at most 256"));
        }
        let value = value.to_string();
        match name {
            "end_user" => Ok(BillField::EndUser(value)),
            "user_id" => Ok(BillField::UserId(value)),
            "session_id" => Ok(BillField::SessionId(value)),
            "graph_id" => Ok(BillField::GraphId(value)),
            "attempt" => {
                value.parse().map(BillField::Attempt).map_err(|_| "`attempt` is a number".to_string())
            }
            _ => Err("the names are end_user, user_id, session_id, graph_id and attempt".to_string()),
        }
    }
}

/// Which conversation a prompt belongs to.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct ConversationArgs {
    /// Continue the agent's last conversation in this folder
    #[arg(long = "continue", conflicts_with_all = ["resume", "fresh_home"])]
    pub(crate) latest: bool,
    /// Continue the conversation of a run: its id or the beginning of it
    #[arg(long, value_name = "RUN", conflicts_with = "fresh_home")]
    pub(crate) resume: Option<String>,
    /// Keep the agent's home for this folder, so that the conversation can be continued [default for shell]
    #[arg(long, conflicts_with = "fresh_home")]
    pub(crate) keep_home: bool,
    /// Begin with a fresh home, and remove it at the end [default for run]
    #[arg(long)]
    pub(crate) fresh_home: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentLoginArgs {
    /// Which agent: claude
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
}

/// With what, and how much of it.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct WishArgs {
    /// Which model [default: the agent's own]. Without --llm the provider says where it is, and the secret of the
    /// provider's name opens it: anthropic, openai, openrouter, gemini
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Option<ModelName>,
    /// Reasoning effort: off, minimal, low, medium, high or xhigh, as far as the agent knows them
    #[arg(long, value_name = "EFFORT")]
    pub(crate) effort: Option<Effort>,
    /// What it should know, beside the folder's own AGENTS.md: a file, or a folder with .md and .txt files; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) context: Vec<PathBuf>,
    /// A file that the prompt is about, such as an image or a log, which is copied into the sandbox; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// How much may be used: `tokens=2m`, `calls=100`, `turns=30`, `time=10m`, `usd=5` (for models with a price:
    /// `belljar llm prices`), or several of them with commas
    #[arg(id = "run_budget", long = "budget", value_name = "BUDGET")]
    pub(crate) budget: Option<RunBudget>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentListArgs {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentRunsArgs {
    /// List every run, not only the newest
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentLogsArgs {
    /// Which: an id or its beginning [default: the newest]
    pub(crate) run: Option<String>,
    /// Continue with what is written from now on, until the run ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print the lines as they are in the file
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentPhasesArgs {
    /// The file that describes them
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print the logs as they are written, one JSON object a line; the last one is the result of all
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sandbox_options: SandboxOptions,
}
