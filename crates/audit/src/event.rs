//! The events of the audit log. Few, typed, stable for years: a field is added, never renamed, and a reader skips unknown ones.

use crate::Hash;
use belljar_spec::BackendName;
use belljar_spec::egress::{
    Destination, HostName, Mode, Printable, Protocol, Reason, Refusal, RefusedRequest,
};
use belljar_spec::llm::{UpstreamKind, Usd};
use belljar_spec::secret::SecretName;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

/// A decision for a sandbox, or the result of one.
///
/// `times` is the count so far: of a repeated refusal only the first, the tenth, the hundredth, and so on are written.
///
/// Values that a program inside may have chosen are valid names or [`Printable`]; text from the user may be anything, which JSON
/// escapes. Neither can end a field or a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The sandbox was created. `loosened` lists the requested options that weaken it.
    SandboxStarted {
        #[serde(deserialize_with = "parsed")]
        backend: BackendName,
        mode: Mode,
        rules: Vec<String>,
        /// TLS to every host is intercepted.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        inspect: bool,
        loosened: Vec<String>,
        /// The digest of its policy; nothing of older logs, and without a policy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<String>,
        /// The folder that it works on, the name of one that is kept, and the number of the user who started it; nothing of older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
        belljar: String,
    },
    /// A command was started from outside. `words` are the program and its arguments, without what is or looks like a secret.
    CommandStarted { command: u64, words: Vec<Printable> },
    /// It ended: with an exit code, or not (`lost`); `limit` is the one that it hit.
    CommandEnded {
        command: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<String>,
        millis: u64,
    },
    /// The policy of the living sandbox was changed: a rule was added or removed, by whom, and until when. `policy` is the digest of the
    /// policy that decides from here on, and `ended` the number of connections that it does not allow any more.
    PolicyChanged {
        change: PolicyChange,
        rule: String,
        lasting: String,
        by: Printable,
        policy: String,
        ended: u64,
    },
    /// A program inside wants to reach a name that no rule allows, and a person outside is asked. `question` is its number.
    ApprovalRequested {
        question: u64,
        #[serde(deserialize_with = "parsed")]
        name: HostName,
        port: u16,
        times: u64,
        /// What a program inside says that it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Printable>,
    },
    /// The question has ended: answered, or nobody answered in time.
    ApprovalAnswered {
        question: u64,
        #[serde(deserialize_with = "parsed")]
        name: HostName,
        port: u16,
        answer: Approval,
        by: Printable,
    },
    /// Another sandbox lives at the same time and shares a folder that one of the two can write to: so each of them may reach all
    /// that the other may.
    FolderShared { folder: Printable, with: Printable, egress_differs: bool },
    /// A snapshot of its files was taken; with `copied`, while its processes were paused, else between two sets of processes.
    SnapshotTaken { snapshot: String, copied: bool },
    /// Its files are those of a snapshot from now on.
    SnapshotRestored { snapshot: String },
    /// A DNS query was refused.
    NameRefused { name: Destination, record_type: Printable, reason: Reason, times: u64 },
    /// A connection was allowed, by this rule, to this address.
    ConnectionOpened {
        connection: u64,
        #[serde(deserialize_with = "parsed")]
        name: HostName,
        port: u16,
        protocol: Protocol,
        rule: String,
        /// Where it is dialled; nothing where the proxy looks the name up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<IpAddr>,
        /// The proxy that it goes through.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proxy: Option<String>,
    },
    /// The connection ended. `address` is the one that answered, if it is not the one that was dialled first.
    ConnectionClosed {
        connection: u64,
        sent: u64,
        received: u64,
        millis: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<IpAddr>,
        ending: Ending,
    },
    /// A connection was refused. `remedy` would allow it, if anything can.
    ConnectionRefused {
        destination: Destination,
        port: Option<u16>,
        protocol: Option<Protocol>,
        reason: Reason,
        detail: Option<Printable>,
        remedy: Option<String>,
        times: u64,
    },
    /// A request was refused, on a connection that may have been allowed. `rule` is one for the host that does not allow the
    /// request.
    RequestRefused {
        name: Destination,
        port: Option<u16>,
        method: Printable,
        path: Printable,
        reason: Reason,
        detail: Option<Printable>,
        rule: Option<String>,
        remedy: Option<String>,
        times: u64,
    },
    /// The host fetched something for the sandbox.
    Fetched {
        #[serde(deserialize_with = "parsed")]
        name: HostName,
        port: u16,
        method: Printable,
        status: u16,
        received: u64,
        rule: String,
    },
    /// The host refused to fetch something.
    FetchRefused {
        destination: Destination,
        port: Option<u16>,
        method: Printable,
        reason: Reason,
        detail: Option<Printable>,
        remedy: Option<String>,
    },
    /// The sandbox has a route to a model: its server, the account that pays, the allowed models and the budget.
    RouteOpened {
        upstream: String,
        server: UpstreamKind,
        account: String,
        models: Vec<String>,
        budget: String,
    },
    /// A call to the model is about to leave.
    ModelAsked { call: u64, model: Option<Printable>, path: Printable, streamed: bool },
    /// The call ended. Everything but the model and the path comes from the upstream; `estimated` means that it did not report all
    /// tokens, since the answer was cut off or had no count. Money is in millionths of a dollar.
    ModelCalled {
        call: u64,
        model: Option<Printable>,
        path: Printable,
        status: u16,
        upstream_id: Option<Printable>,
        message_id: Option<Printable>,
        input_tokens: u64,
        output_tokens: u64,
        cache_read: u64,
        cache_write: u64,
        estimated: bool,
        cost_usd: Option<Usd>,
        cost_source: Option<CostSource>,
        millis: u64,
        streamed: bool,
        ending: CallEnding,
    },
    /// A call to the model was refused, or its answer was.
    ModelRefused {
        model: Option<Printable>,
        path: Printable,
        reason: Reason,
        detail: Option<Printable>,
        times: u64,
    },
    /// A credential was sent with a request to its own host: the first time, the tenth, and so on.
    CredentialUsed {
        #[serde(deserialize_with = "parsed")]
        credential: SecretName,
        #[serde(deserialize_with = "parsed")]
        name: HostName,
        port: u16,
        method: Printable,
        path: Printable,
        times: u64,
    },
    /// A placeholder was about to be sent to a host that its secret is not bound to, and was stopped.
    PlaceholderElsewhere {
        #[serde(deserialize_with = "parsed")]
        credential: SecretName,
        destination: Destination,
        port: u16,
        #[serde(rename = "where")]
        part: Printable,
        times: u64,
    },
    /// A real value was put into the environment of the sandbox, as the run asked for.
    SecretForwarded { variable: String, source: String },
    /// A token with these permissions was made for the sandbox.
    TokenMinted { profile: String, permissions: String, repositories: Vec<String>, expires: String },
    /// The token was revoked. `error` says why it was not.
    TokenRevoked { error: Option<Printable> },
    /// A push was allowed and is about to leave: the move of one of its refs. The server may still refuse it.
    PushSent {
        #[serde(deserialize_with = "parsed")]
        name: HostName,
        port: u16,
        repository: Printable,
        #[serde(rename = "ref")]
        reference: Printable,
        old: Printable,
        new: Printable,
    },
    /// A push was refused, and nothing of it left. `reason` is a code of its own list, `detail` the message to the client.
    PushRefused {
        #[serde(deserialize_with = "parsed")]
        name: HostName,
        port: u16,
        repository: Printable,
        #[serde(rename = "ref")]
        reference: Printable,
        reason: Printable,
        detail: Printable,
        times: u64,
    },
    /// The limit of lines about these is reached: from here on they are only counted.
    RecordsStopped { of: Printable },
    /// The number of suppressed records.
    RecordsSuppressed { count: u64 },
    /// Records that could not be written (a full disk); the log writes this itself as soon as it can write again.
    RecordsLost { count: u64 },
    /// The sandbox fetched from the host's repository; the number of bytes sent.
    HostFetched { sent: u64 },
    /// The sandbox pushed, and a ref of the host's repository moved: `landed`, which differs from the requested one if that branch
    /// is in use.
    HostPushed {
        #[serde(rename = "ref")]
        reference: Printable,
        landed: Printable,
        old: Printable,
        new: Printable,
    },
    /// The sandbox pushed, and a ref did not move.
    HostPushRefused {
        #[serde(rename = "ref")]
        reference: Printable,
        reason: Printable,
        detail: Printable,
    },
    /// A fetch or a push that ended early, or something that is neither.
    HostRelayBroken { detail: Printable },
    /// The sandbox ended.
    SandboxEnded {},
}

impl Event {
    /// A refused connection or request, and the count so far.
    pub fn refused(refusal: &Refusal, times: u64) -> Event {
        let remedy = refusal.remedy();
        let Refusal { destination, port, protocol, reason, detail, request, .. } = refusal.clone();
        match request {
            None => Event::ConnectionRefused { destination, port, protocol, reason, detail, remedy, times },
            Some(request) => {
                let RefusedRequest { method, path, rule } = *request;
                let (name, rule) = (destination, rule.map(|rule| rule.to_string()));
                Event::RequestRefused { name, port, method, path, reason, detail, rule, remedy, times }
            }
        }
    }

    /// A fetch that was refused.
    pub fn fetch_refused(refusal: &Refusal, method: &str) -> Event {
        let remedy = refusal.remedy();
        let Refusal { destination, port, reason, detail, .. } = refusal.clone();
        Event::FetchRefused { destination, port, method: method.into(), reason, detail, remedy }
    }
}

/// How the policy of a living sandbox changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyChange {
    /// A rule that allows was added.
    Allowed,
    /// A rule that forbids was added.
    Denied,
    /// A rule of before was taken back: its time was over, it was used, or its opposite came.
    Removed,
}

impl PolicyChange {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            PolicyChange::Allowed => "allowed",
            PolicyChange::Denied => "denied",
            PolicyChange::Removed => "removed",
        }
    }
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// The connections that waited may be made.
    Once,
    /// The name is allowed for as long as the sandbox lives.
    Sandbox,
    /// The name is forbidden for as long as the sandbox lives.
    Denied,
    /// Nobody answered in time.
    Unanswered,
}

impl Approval {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Approval::Once => "allowed once",
            Approval::Sandbox => "allowed for this sandbox",
            Approval::Denied => "denied",
            Approval::Unanswered => "not answered in time",
        }
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Both sides closed it.
    Finished,
    /// The program inside aborted it.
    ResetInside,
    /// The server aborted it.
    ResetOutside,
    /// It was idle for too long.
    IdleTimeout,
    /// The sandbox has used up its bytes.
    ByteLimit,
    /// The traffic after it was open broke a rule.
    Refused,
    /// The policy was changed, and no longer allows it.
    PolicyChanged,
    /// No address answered.
    DialFailed,
    /// The sandbox ended first.
    SandboxEnded,
}

impl Ending {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Ending::Finished => "finished",
            Ending::ResetInside => "reset inside",
            Ending::ResetOutside => "reset outside",
            Ending::IdleTimeout => "idle timeout",
            Ending::ByteLimit => "byte limit",
            Ending::Refused => "refused",
            Ending::PolicyChanged => "policy changed",
            Ending::DialFailed => "dial failed",
            Ending::SandboxEnded => "sandbox ended",
        }
    }
}

/// The source of a call's cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// The upstream, in its answer.
    Upstream,
    /// The prices of the configuration, by the tokens that the upstream counted.
    Prices,
    /// The built-in list of prices, by the same tokens.
    ListPrices,
    /// The call is free: an error, a list of models, a count of tokens.
    Free,
}

/// How a call to a model ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnding {
    /// The answer was complete.
    Finished,
    /// The program inside, or the sandbox, ended before it was complete.
    BrokenOffInside,
    /// The upstream ended before it was complete.
    BrokenOffOutside,
}

impl CallEnding {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            CallEnding::Finished => "finished",
            CallEnding::BrokenOffInside => "broken off inside",
            CallEnding::BrokenOffOutside => "broken off outside",
        }
    }
}

/// Serializes a value as text, and parses it as everywhere else.
fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

/// The ledger's statement on a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind")]
pub(crate) enum LedgerEvent {
    /// The log exists.
    #[serde(rename = "log_opened")]
    Opened {},
    /// The log ended with this many lines, and this hash of the last. Without `finished` its writer was killed; then `torn` is the
    /// length of an unfinished line after them.
    #[serde(rename = "log_closed")]
    Closed { lines: u64, head: Hash, finished: bool, torn: u64 },
    /// The log was intact, and its file was removed because it was old.
    #[serde(rename = "log_pruned")]
    Pruned {},
    /// There were lines, but no readable head, when the next line was to be written: it is not known whether lines before this one
    /// were cut off.
    #[serde(rename = "head_missing")]
    HeadMissing {},
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::egress::{Rule, RuleSource};

    /// The format must stay the same for years.
    #[test]
    fn events_are_written_as_they_always_were() {
        let label = Rule::allow("example.com", RuleSource::Flag).unwrap().label;
        let name: HostName = "api.example.com".parse().unwrap();
        let refusal = Refusal::new(name.clone(), Some(443), Reason::NameNotAllowed);
        let cases = [
            (
                Event::SandboxStarted {
                    backend: BackendName::Native,
                    mode: Mode::Strict,
                    rules: vec!["`example.com` (--allow)".into()],
                    inspect: false,
                    loosened: vec![],
                    policy: None,
                    folder: None,
                    name: None,
                    uid: None,
                    belljar: "0.1.0".into(),
                },
                r#"{"kind":"sandbox_started","backend":"native","mode":"strict","rules":["`example.com` (--allow)"],"loosened":[],"belljar":"0.1.0"}"#,
            ),
            (
                Event::SandboxStarted {
                    backend: BackendName::Native,
                    mode: Mode::Open,
                    rules: vec![],
                    inspect: true,
                    loosened: vec![],
                    policy: Some("00ff".into()),
                    folder: Some("/srv/web".into()),
                    name: Some("bj-web".into()),
                    uid: Some(1000),
                    belljar: "0.1.0".into(),
                },
                r#"{"kind":"sandbox_started","backend":"native","mode":"open","rules":[],"inspect":true,"loosened":[],"policy":"00ff","folder":"/srv/web","name":"bj-web","uid":1000,"belljar":"0.1.0"}"#,
            ),
            (
                Event::CommandStarted { command: 1, words: vec!["npm".into(), "test".into()] },
                r#"{"kind":"command_started","command":1,"words":["npm","test"]}"#,
            ),
            (
                Event::CommandEnded {
                    command: 1,
                    exit_code: Some(124),
                    limit: Some("timeout".into()),
                    millis: 7,
                },
                r#"{"kind":"command_ended","command":1,"exit_code":124,"limit":"timeout","millis":7}"#,
            ),
            (
                Event::NameRefused {
                    name: Destination::understand(b"a\"b\n"),
                    record_type: "TXT".into(),
                    reason: Reason::RecordTypeRefused,
                    times: 2,
                },
                r#"{"kind":"name_refused","name":"a\"b\\n","record_type":"TXT","reason":"record_type_refused","times":2}"#,
            ),
            (
                Event::PolicyChanged {
                    change: PolicyChange::Allowed,
                    rule: "=a.example:8443".into(),
                    lasting: "10m".into(),
                    by: "alice".into(),
                    policy: "00ff".into(),
                    ended: 0,
                },
                r#"{"kind":"policy_changed","change":"allowed","rule":"=a.example:8443","lasting":"10m","by":"alice","policy":"00ff","ended":0}"#,
            ),
            (
                Event::ApprovalRequested { question: 7, name: name.clone(), port: 443, times: 1, why: None },
                r#"{"kind":"approval_requested","question":7,"name":"api.example.com","port":443,"times":1}"#,
            ),
            (
                Event::ApprovalAnswered {
                    question: 7,
                    name: name.clone(),
                    port: 443,
                    answer: Approval::Unanswered,
                    by: "nobody".into(),
                },
                r#"{"kind":"approval_answered","question":7,"name":"api.example.com","port":443,"answer":"unanswered","by":"nobody"}"#,
            ),
            (
                Event::SnapshotTaken { snapshot: "snap-0101010101010101".into(), copied: true },
                r#"{"kind":"snapshot_taken","snapshot":"snap-0101010101010101","copied":true}"#,
            ),
            (
                Event::SnapshotRestored { snapshot: "snap-0101010101010101".into() },
                r#"{"kind":"snapshot_restored","snapshot":"snap-0101010101010101"}"#,
            ),
            (
                Event::FolderShared {
                    folder: "/srv/x".into(),
                    with: "0101010101010101".into(),
                    egress_differs: true,
                },
                r#"{"kind":"folder_shared","folder":"/srv/x","with":"0101010101010101","egress_differs":true}"#,
            ),
            (
                Event::ConnectionOpened {
                    connection: 1,
                    name: name.clone(),
                    port: 443,
                    protocol: Protocol::Tls,
                    rule: label.to_string(),
                    address: Some(IpAddr::from([93, 184, 216, 34])),
                    proxy: None,
                },
                r#"{"kind":"connection_opened","connection":1,"name":"api.example.com","port":443,"protocol":"tls","rule":"`example.com` (--allow)","address":"93.184.216.34"}"#,
            ),
            (
                Event::ConnectionClosed {
                    connection: 1,
                    sent: 10,
                    received: 20,
                    millis: 30,
                    address: None,
                    ending: Ending::ResetInside,
                },
                r#"{"kind":"connection_closed","connection":1,"sent":10,"received":20,"millis":30,"ending":"reset_inside"}"#,
            ),
            (
                Event::refused(&refusal, 3),
                r#"{"kind":"connection_refused","destination":"api.example.com","port":443,"protocol":null,"reason":"name_not_allowed","detail":null,"remedy":"--allow api.example.com","times":3}"#,
            ),
            (
                Event::refused(
                    &Refusal::new(name.clone(), Some(443), Reason::RequestNotAllowed).request(
                        "POST",
                        "/x?y",
                        Some(label.clone()),
                    ),
                    1,
                ),
                r#"{"kind":"request_refused","name":"api.example.com","port":443,"method":"POST","path":"/x","reason":"request_not_allowed","detail":null,"rule":"`example.com` (--allow)","remedy":"methods = [\"POST\"] and paths = [\"/x\"] in an [[egress.rule]] for api.example.com","times":1}"#,
            ),
            (
                Event::Fetched {
                    name,
                    port: 443,
                    method: "GET".into(),
                    status: 200,
                    received: 5,
                    rule: label.to_string(),
                },
                r#"{"kind":"fetched","name":"api.example.com","port":443,"method":"GET","status":200,"received":5,"rule":"`example.com` (--allow)"}"#,
            ),
            (
                Event::fetch_refused(&refusal, "PUT"),
                r#"{"kind":"fetch_refused","destination":"api.example.com","port":443,"method":"PUT","reason":"name_not_allowed","detail":null,"remedy":"--allow api.example.com"}"#,
            ),
            (
                Event::CredentialUsed {
                    credential: "github".parse().unwrap(),
                    name: "api.github.com".parse().unwrap(),
                    port: 443,
                    method: "GET".into(),
                    path: "/user".into(),
                    times: 1,
                },
                r#"{"kind":"credential_used","credential":"github","name":"api.github.com","port":443,"method":"GET","path":"/user","times":1}"#,
            ),
            (
                Event::PlaceholderElsewhere {
                    credential: "github".parse().unwrap(),
                    destination: Destination::understand(b"evil.example"),
                    port: 443,
                    part: "a header".into(),
                    times: 1,
                },
                r#"{"kind":"placeholder_elsewhere","credential":"github","destination":"evil.example","port":443,"where":"a header","times":1}"#,
            ),
            (
                Event::SecretForwarded { variable: "TOKEN".into(), source: "secret:github".into() },
                r#"{"kind":"secret_forwarded","variable":"TOKEN","source":"secret:github"}"#,
            ),
            (
                Event::TokenMinted {
                    profile: "read".into(),
                    permissions: "contents:read".into(),
                    repositories: vec!["acme/widgets".into()],
                    expires: "2026-11-15T10:00:00.000000Z".into(),
                },
                r#"{"kind":"token_minted","profile":"read","permissions":"contents:read","repositories":["acme/widgets"],"expires":"2026-11-15T10:00:00.000000Z"}"#,
            ),
            (
                Event::PushSent {
                    name: "github.com".parse().unwrap(),
                    port: 443,
                    repository: "/acme/widgets".into(),
                    reference: "refs/heads/x".into(),
                    old: "0000".into(),
                    new: "aaaa".into(),
                },
                r#"{"kind":"push_sent","name":"github.com","port":443,"repository":"/acme/widgets","ref":"refs/heads/x","old":"0000","new":"aaaa"}"#,
            ),
            (
                Event::PushRefused {
                    name: "github.com".parse().unwrap(),
                    port: 443,
                    repository: "/acme/widgets".into(),
                    reference: "refs/heads/main".into(),
                    reason: "push_branch".into(),
                    detail: "no".into(),
                    times: 1,
                },
                r#"{"kind":"push_refused","name":"github.com","port":443,"repository":"/acme/widgets","ref":"refs/heads/main","reason":"push_branch","detail":"no","times":1}"#,
            ),
            (Event::TokenRevoked { error: None }, r#"{"kind":"token_revoked","error":null}"#),
            (
                Event::RouteOpened {
                    upstream: "https://api.anthropic.com".into(),
                    server: UpstreamKind::Anthropic,
                    account: "belljar".into(),
                    models: vec!["claude-*".into()],
                    budget: "calls=3".into(),
                },
                r#"{"kind":"route_opened","upstream":"https://api.anthropic.com","server":"anthropic","account":"belljar","models":["claude-*"],"budget":"calls=3"}"#,
            ),
            (
                Event::ModelAsked {
                    call: 1,
                    model: Some("a\nb".into()),
                    path: "/v1/messages".into(),
                    streamed: true,
                },
                r#"{"kind":"model_asked","call":1,"model":"a\\nb","path":"/v1/messages","streamed":true}"#,
            ),
            (
                Event::ModelCalled {
                    call: 1,
                    model: Some("m".into()),
                    path: "/v1/messages".into(),
                    status: 200,
                    upstream_id: Some("req_1".into()),
                    message_id: None,
                    input_tokens: 1,
                    output_tokens: 2,
                    cache_read: 3,
                    cache_write: 4,
                    estimated: false,
                    cost_usd: Some(Usd::micros(5)),
                    cost_source: Some(CostSource::Upstream),
                    millis: 6,
                    streamed: true,
                    ending: CallEnding::Finished,
                },
                r#"{"kind":"model_called","call":1,"model":"m","path":"/v1/messages","status":200,"upstream_id":"req_1","message_id":null,"input_tokens":1,"output_tokens":2,"cache_read":3,"cache_write":4,"estimated":false,"cost_usd":5,"cost_source":"upstream","millis":6,"streamed":true,"ending":"finished"}"#,
            ),
            (
                Event::ModelRefused {
                    model: None,
                    path: "/x".into(),
                    reason: Reason::RequestNotAllowed,
                    detail: None,
                    times: 1,
                },
                r#"{"kind":"model_refused","model":null,"path":"/x","reason":"request_not_allowed","detail":null,"times":1}"#,
            ),
            (Event::RecordsStopped { of: "names".into() }, r#"{"kind":"records_stopped","of":"names"}"#),
            (Event::RecordsSuppressed { count: 4 }, r#"{"kind":"records_suppressed","count":4}"#),
            (Event::RecordsLost { count: 5 }, r#"{"kind":"records_lost","count":5}"#),
            (Event::HostFetched { sent: 7 }, r#"{"kind":"host_fetched","sent":7}"#),
            (
                Event::HostPushed {
                    reference: "refs/heads/x".into(),
                    landed: "refs/belljar/x".into(),
                    old: "00".into(),
                    new: "aa".into(),
                },
                r#"{"kind":"host_pushed","ref":"refs/heads/x","landed":"refs/belljar/x","old":"00","new":"aa"}"#,
            ),
            (
                Event::HostPushRefused {
                    reference: "refs/heads/x".into(),
                    reason: "push_force".into(),
                    detail: "no\n".into(),
                },
                r#"{"kind":"host_push_refused","ref":"refs/heads/x","reason":"push_force","detail":"no\\n"}"#,
            ),
            (Event::HostRelayBroken { detail: "x".into() }, r#"{"kind":"host_relay_broken","detail":"x"}"#),
            (Event::SandboxEnded {}, r#"{"kind":"sandbox_ended"}"#),
        ];
        for (event, expected) in cases {
            assert_eq!(serde_json::to_string(&event).unwrap(), expected);
            assert_eq!(serde_json::from_str::<Event>(expected).unwrap(), event, "{expected}");
        }
    }
}
