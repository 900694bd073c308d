//! The parsed settings of one file; and the settings that each layer may have.

use crate::authorities::AuthorityFile;
use crate::daemon_table::DaemonSettings;
use crate::e2b_table::E2bSettings;
use crate::fault::{at, nearest};
use crate::file::{Egress, File, ProxyTable, Scalar};
use crate::git_table::GitSettings;
use crate::golden_table::GoldenSettings;
use crate::images_table::ImageSettings;
use crate::llm::LlmSettings;
use crate::origin::{At, Position};
use crate::profile_table::Profile;
use crate::read::Text;
use crate::sandbox_table::SandboxSettings;
use crate::{credential_table, github_table, profile_table, rule_table};
use belljar_gateway::decide::reserved;
use belljar_spec::egress::{
    EgressLimits, GroupName, HostPattern, HostPort, Mode, Printable, Rule, RuleLabel, RuleSource,
    UpstreamProxy, groups,
};
use belljar_spec::secret::{Credential, GitHubApp};
use belljar_spec::workspace::{HidePattern, ProtectedPath, ProtectedPathError};
use belljar_spec::{ByteSize, SandboxError};
use belljar_workspace::protect::settings_paths;
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use toml::Spanned;

/// The layers, highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The administrator of this machine: `/etc/belljar/belljar.toml`.
    Operator,
    /// The user who runs belljar: `~/.config/belljar/belljar.toml`.
    User,
    /// The author of the repository: `.belljar/config.toml`, once the user trusted it.
    Repository,
}

/// The settings of a file. Its layer may have every one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub layer: Layer,
    pub mode: Option<At<Mode>>,
    /// No layer below may be wider.
    pub widest: Option<At<Mode>>,
    pub groups: Vec<At<GroupName>>,
    pub allow: Vec<Rule>,
    pub deny: Vec<Rule>,
    /// Lower layers may allow nothing else.
    pub only: Option<At<Vec<HostPattern>>>,
    pub private: Vec<At<IpNet>>,
    /// Ports of this machine that may be reached.
    pub host_ports: Vec<At<HostPort>>,
    pub resolvers: Option<At<Vec<SocketAddr>>>,
    /// What is dialled through.
    pub proxy: Option<At<UpstreamProxy>>,
    /// CAs that the gateway trusts for servers, besides the system's.
    pub authorities: Vec<At<AuthorityFile>>,
    /// The line that turns on TLS interception for every name.
    pub inspect: Option<Position>,
    pub connections: Option<At<u32>>,
    pub bytes: Option<At<ByteSize>>,
    /// The reason of a rule, in its author's words.
    pub reasons: Vec<(RuleLabel, String)>,
    /// Secrets, and where they may go.
    pub credentials: Vec<At<Credential>>,
    /// The App that mints tokens for GitHub.
    pub github: Option<At<GitHubApp>>,
    /// The route to a model.
    pub llm: Option<LlmSettings>,
    /// Paths of the workspace that the sandbox may not change.
    pub protect: Vec<At<ProtectedPath>>,
    /// Settings that may be changed inside, though they are protected by default.
    pub unprotect: Vec<At<ProtectedPath>>,
    /// What of the workspace is hidden inside.
    pub hide: Vec<At<HidePattern>>,
    /// Files of variables that are seen with placeholders in the place of their values.
    pub placeholders: Vec<At<HidePattern>>,
    /// Files that may be seen inside though they look like secrets.
    pub visible: Vec<At<HidePattern>>,
    /// A directory of instructions for agents.
    pub agent_context: Option<At<PathBuf>>,
    /// The push rules.
    pub git: GitSettings,
    /// Named sandbox configurations.
    pub profiles: Vec<Profile>,
    /// The needs of a repository's sandboxes.
    pub sandbox: SandboxSettings,
    /// How the golden root is built.
    pub golden: GoldenSettings,
    /// The daemon's settings.
    pub daemon: DaemonSettings,
    /// Where images come from.
    pub images: ImageSettings,
    /// A service elsewhere that makes sandboxes.
    pub e2b: E2bSettings,
}

impl Settings {
    /// The settings of an empty file.
    pub(crate) fn silent(layer: Layer) -> Settings {
        Settings {
            layer,
            mode: None,
            widest: None,
            groups: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            only: None,
            private: Vec::new(),
            host_ports: Vec::new(),
            resolvers: None,
            proxy: None,
            authorities: Vec::new(),
            inspect: None,
            connections: None,
            bytes: None,
            reasons: Vec::new(),
            credentials: Vec::new(),
            github: None,
            llm: None,
            protect: Vec::new(),
            unprotect: Vec::new(),
            hide: Vec::new(),
            placeholders: Vec::new(),
            visible: Vec::new(),
            agent_context: None,
            git: GitSettings::default(),
            profiles: Vec::new(),
            sandbox: SandboxSettings::default(),
            golden: GoldenSettings::default(),
            daemon: DaemonSettings::default(),
            images: ImageSettings::default(),
            e2b: E2bSettings::default(),
        }
    }

    /// Does it have no egress settings? A credential and the route to a model count only if a run asks for them, and a profile only
    /// if it is chosen; protected paths are another matter.
    pub fn is_silent(&self) -> bool {
        let reach = Settings {
            credentials: Vec::new(),
            github: None,
            llm: None,
            protect: Vec::new(),
            unprotect: Vec::new(),
            hide: Vec::new(),
            placeholders: Vec::new(),
            visible: Vec::new(),
            agent_context: None,
            git: GitSettings::default(),
            profiles: Vec::new(),
            sandbox: SandboxSettings::default(),
            golden: GoldenSettings::default(),
            daemon: DaemonSettings::default(),
            images: ImageSettings::default(),
            ..self.clone()
        };
        reach == Settings::silent(self.layer)
    }

    /// How many rules it has, including those of its groups.
    pub fn rules(&self) -> usize {
        let named = |group: &At<GroupName>| groups().find(|known| known.name() == group.value);
        let grouped: usize = self.groups.iter().filter_map(named).map(|group| group.rules().count()).sum();
        self.allow.len() + self.deny.len() + grouped
    }

    /// Parses a file, or returns its first setting that is invalid or not permitted in its layer.
    pub(crate) fn understand(text: &Text) -> Result<Settings, SandboxError> {
        let file = File::parse(text)?;
        let credentials = credential_table::understand(text, &file.credential)?;
        let github = github_table::understand(text, file.github.as_ref())?;
        let Egress {
            mode,
            widest,
            groups,
            allow,
            deny,
            only,
            private,
            host_ports,
            resolvers,
            proxy,
            authorities,
            inspect,
            connections,
            bytes,
            rule,
        } = file.egress;
        let llm = file.llm;
        let reader = Reader { text };
        reader.may_say("widest", &widest, &[Layer::Operator, Layer::User])?;
        reader.may_say("only", &only, &[Layer::Operator])?;
        reader.may_say("private", &private, &[Layer::Operator, Layer::User])?;
        reader.may_say("host_ports", &host_ports, &[Layer::Operator, Layer::User])?;
        reader.may_say("resolvers", &resolvers, &[Layer::Operator, Layer::User])?;
        reader.may_say("proxy", &proxy, &[Layer::Operator, Layer::User])?;
        reader.may_say("authorities", &authorities, &[Layer::Operator, Layer::User])?;
        reader.may_say("llm", &llm, &[Layer::Operator, Layer::User])?;
        reader.may_say("sandbox", &file.sandbox, &[Layer::Repository])?;
        reader.may_say("images", &file.images, &[Layer::Operator, Layer::User])?;
        reader.may_say("e2b", &file.e2b, &[Layer::Operator, Layer::User])?;
        reader.may_say("agent", &file.agent, &[Layer::Operator, Layer::User])?;
        reader.may_say("git", &file.git, &[Layer::Operator, Layer::User])?;
        // A repository, and so an agent, must not unprotect its own paths.
        reader.may_say("unprotect", &file.workspace.unprotect, &[Layer::Operator, Layer::User])?;
        reader.may_say("visible", &file.workspace.visible, &[Layer::Operator, Layer::User])?;
        reader.may_say("golden", &file.golden, &[Layer::Operator, Layer::User])?;
        reader.may_say("daemon", &file.daemon, &[Layer::Operator, Layer::User])?;
        let mut settings = Settings {
            mode: mode.map(|mode| reader.parsed(&mode, |mode| mode.parse())).transpose()?,
            widest: widest.map(|mode| reader.parsed(&mode, |mode| mode.parse())).transpose()?,
            groups: groups.iter().map(|group| reader.group(group)).collect::<Result<_, _>>()?,
            allow: reader.rules(&allow, Rule::allow)?,
            deny: reader.rules(&deny, Rule::deny)?,
            only: only.map(|only| reader.only(&only)).transpose()?,
            private: private.map(|private| reader.private(&private)).transpose()?.unwrap_or_default(),
            host_ports: host_ports.map(|ports| reader.host_ports(&ports)).transpose()?.unwrap_or_default(),
            resolvers: resolvers.map(|resolvers| reader.resolvers(&resolvers)).transpose()?,
            proxy: proxy.map(|proxy| reader.proxy(&proxy)).transpose()?,
            authorities: authorities.map(|files| reader.authorities(&files)).transpose()?.unwrap_or_default(),
            inspect: inspect
                .filter(|inspect| *inspect.get_ref())
                .map(|inspect| text.place(inspect.span().start)),
            connections: connections.map(|number| reader.connections(&number)).transpose()?,
            bytes: bytes.map(|size| reader.parsed(&size, |Scalar(size)| size.parse())).transpose()?,
            credentials,
            github,
            llm: llm.map(|llm| LlmSettings::understand(text, &llm)).transpose()?,
            protect: file
                .workspace
                .protect
                .iter()
                .map(|path| reader.parsed(path, |path| path.parse()))
                .collect::<Result<_, _>>()?,
            hide: file
                .workspace
                .hide
                .iter()
                .map(|path| reader.parsed(path, |path| path.parse()))
                .collect::<Result<_, _>>()?,
            placeholders: file
                .workspace
                .placeholders
                .iter()
                .map(|path| reader.parsed(path, |path| path.parse()))
                .collect::<Result<_, _>>()?,
            visible: file
                .workspace
                .visible
                .iter()
                .flat_map(|paths| paths.get_ref())
                .map(|path| reader.parsed(path, |path| path.parse()))
                .collect::<Result<_, _>>()?,
            unprotect: file
                .workspace
                .unprotect
                .map(|paths| {
                    paths
                        .get_ref()
                        .iter()
                        .map(|path| reader.parsed(path, |path| settings_path(path)))
                        .collect()
                })
                .transpose()?
                .unwrap_or_default(),
            agent_context: file
                .agent
                .and_then(|agent| agent.into_inner().context)
                .map(|path| reader.parsed(&path, |path| whole_path(path)))
                .transpose()?,
            git: file
                .git
                .map(|git| GitSettings::understand(text, git.get_ref()))
                .transpose()?
                .unwrap_or_default(),
            profiles: profile_table::understand(text, &file.profile)?,
            sandbox: file
                .sandbox
                .map(|sandbox| SandboxSettings::understand(text, sandbox.get_ref()))
                .transpose()?
                .unwrap_or_default(),
            golden: file
                .golden
                .map(|golden| GoldenSettings::understand(text, golden.get_ref()))
                .transpose()?
                .unwrap_or_default(),
            daemon: file
                .daemon
                .map(|daemon| DaemonSettings::understand(text, daemon.get_ref()))
                .transpose()?
                .unwrap_or_default(),
            images: file
                .images
                .map(|images| ImageSettings::understand(text, images.get_ref()))
                .transpose()?
                .unwrap_or_default(),
            e2b: file
                .e2b
                .map(|e2b| E2bSettings::understand(text, e2b.get_ref()))
                .transpose()?
                .unwrap_or_default(),
            ..Settings::silent(text.layer)
        };
        for table in &rule {
            let (rule, reason) = rule_table::understand(text, table)?;
            settings.reasons.extend(reason.map(|reason| (rule.label.clone(), reason)));
            settings.allow.push(rule);
        }
        Ok(settings)
    }
}

/// One of the settings that are protected by default: nothing else can be unprotected.
fn settings_path(text: &str) -> Result<ProtectedPath, String> {
    let path: ProtectedPath = text.parse().map_err(|error: ProtectedPathError| error.to_string())?;
    match settings_paths().iter().any(|known| known.path == path.as_str()) {
        true => Ok(path),
        false => {
            let known: Vec<&str> = settings_paths().iter().map(|known| known.path).collect();
            Err(format!(
                "`{path}` is not among the settings that are protected by default: {}",
                known.join(", ")
            ))
        }
    }
}

/// Parses values, and names the line of an invalid one.
struct Reader<'a> {
    text: &'a Text,
}

impl Reader<'_> {
    fn place<T>(&self, value: &Spanned<T>) -> Position {
        self.text.place(value.span().start)
    }

    fn may_say<T>(
        &self,
        key: &str,
        value: &Option<Spanned<T>>,
        layers: &[Layer],
    ) -> Result<(), SandboxError> {
        match value {
            Some(value) if !layers.contains(&self.text.layer) => {
                let layer = self.text.layer;
                let what = format!("`{key}` is not for {layer} to say");
                let names: Vec<String> = layers.iter().map(|layer| layer.file().to_string()).collect();
                Err(at(&self.place(value), what)
                    .hint(format!("take it out here; it belongs in {}", names.join(" or "))))
            }
            _ => Ok(()),
        }
    }

    fn parsed<W, T, E: fmt::Display>(
        &self,
        written: &Spanned<W>,
        parse: impl FnOnce(&W) -> Result<T, E>,
    ) -> Result<At<T>, SandboxError> {
        let place = self.place(written);
        match parse(written.get_ref()) {
            Ok(value) => Ok(At { value, place }),
            Err(error) => Err(at(&place, error)),
        }
    }

    fn group(&self, written: &Spanned<String>) -> Result<At<GroupName>, SandboxError> {
        let known: Vec<&str> = groups().map(|group| group.name().as_str()).collect();
        self.parsed(written, |name| name.parse()).map_err(|error| match nearest(written.get_ref(), &known) {
            Some(meant) => error.hint(format!("did you mean `{meant}`?")),
            None => error.hint("a single name goes into `allow`, as in `allow = [\"example.com\"]`"),
        })
    }

    fn rules<E: fmt::Display>(
        &self,
        lines: &[Spanned<String>],
        rule: fn(&str, RuleSource) -> Result<Rule, E>,
    ) -> Result<Vec<Rule>, SandboxError> {
        let one = |line: &Spanned<String>| {
            let source = source(self.place(line));
            Ok(self.parsed(line, |text| rule(text, source))?.value)
        };
        lines.iter().map(one).collect()
    }

    fn only(&self, names: &Spanned<Vec<Spanned<String>>>) -> Result<At<Vec<HostPattern>>, SandboxError> {
        let one = |name: &Spanned<String>| Ok(self.parsed(name, |name| name.parse())?.value);
        let value = names.get_ref().iter().map(one).collect::<Result<_, SandboxError>>()?;
        Ok(At { value, place: self.place(names) })
    }

    fn private(&self, ranges: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<At<IpNet>>, SandboxError> {
        let range = |text: &String| {
            let range = private_range(text)?;
            match self.text.layer {
                Layer::User if !reserved::is_users_to_open(range) => Err(not_yours(range)),
                Layer::Operator | Layer::User | Layer::Repository => Ok(range),
            }
        };
        ranges.get_ref().iter().map(|written| self.parsed(written, range)).collect()
    }

    fn host_ports(&self, ports: &Spanned<Vec<Spanned<i64>>>) -> Result<Vec<At<HostPort>>, SandboxError> {
        ports.get_ref().iter().map(|port| self.parsed(port, |port| port.to_string().parse())).collect()
    }

    fn resolvers(
        &self,
        servers: &Spanned<Vec<Spanned<String>>>,
    ) -> Result<At<Vec<SocketAddr>>, SandboxError> {
        let one = |server: &Spanned<String>| Ok(self.parsed(server, |text| resolver(text))?.value);
        let value = servers.get_ref().iter().map(one).collect::<Result<_, SandboxError>>()?;
        Ok(At { value, place: self.place(servers) })
    }

    fn proxy(&self, table: &Spanned<ProxyTable>) -> Result<At<UpstreamProxy>, SandboxError> {
        let place = self.place(table);
        let ProxyTable { url, secret, resolve, except } = table.get_ref();
        let Some(url) = url else {
            return Err(at(&place, "`[egress.proxy]` has no `url`")
                .hint("write `url = \"http://proxy.example.com:3128\"`, or take the table out"));
        };
        let secret = secret.as_ref().map(|secret| self.parsed(secret, |text| text.parse())).transpose()?;
        let resolve = resolve.as_ref().map(|side| self.parsed(side, |text| text.parse())).transpose()?;
        let host = |host: &Spanned<String>| Ok(self.parsed(host, |text| text.parse::<HostPattern>())?.value);
        let value = UpstreamProxy {
            at: self.parsed(url, |text| text.parse())?.value,
            secret: secret.map(|secret| secret.value),
            resolve: resolve.map(|side| side.value).unwrap_or_default(),
            except: except.iter().map(host).collect::<Result<_, SandboxError>>()?,
        };
        Ok(At { value, place })
    }

    fn authorities(
        &self,
        files: &Spanned<Vec<Spanned<String>>>,
    ) -> Result<Vec<At<AuthorityFile>>, SandboxError> {
        files.get_ref().iter().map(|file| self.parsed(file, |path| AuthorityFile::read(path))).collect()
    }

    fn connections(&self, number: &Spanned<i64>) -> Result<At<u32>, SandboxError> {
        let max = EgressLimits::MAX_CONNECTIONS;
        self.parsed(number, |number| match u32::try_from(*number) {
            Ok(number) if (1..=max).contains(&number) => Ok(number),
            _ => Err(format!("`{number}` is not a number of connections: write 1 to {max}")),
        })
    }
}

/// The source of a rule in a file.
pub(crate) fn source(place: Position) -> RuleSource {
    RuleSource::File { path: place.file, line: place.line }
}

/// Why a range is the operator's to open.
fn not_yours(range: IpNet) -> String {
    match range.addr().is_loopback() {
        true => format!(
            "`{range}` is this machine's loopback device: write `host_ports = [5432]` with the ports that are needed"
        ),
        false => format!(
            "`{range}` is not a range of private networks: only the operator of this machine can open it, in {}",
            Layer::Operator.file()
        ),
    }
}

fn private_range(text: &str) -> Result<IpNet, String> {
    let range = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let range = range.map_err(|_| {
        format!("`{}` is not a range of addresses: write one, as in `10.1.0.0/16`", Printable::from(text))
    })?;
    let widest = if range.addr().is_ipv4() { WIDEST_IPV4 } else { WIDEST_IPV6 };
    if range.prefix_len() < widest {
        return Err(format!("`{range}` is much more than a private range: write the one that is needed"));
    }
    Ok(range.trunc())
}

fn whole_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(format!("`{}` is not a whole path: begin with `/`", Printable::from(text))),
    }
}

fn resolver(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().or_else(|_| text.parse::<IpAddr>().map(|address| (address, DNS).into()));
    address.map_err(|_| {
        format!(
            "`{}` is not the address of a resolver: write one, as in `1.1.1.1:53` or `[2606:4700::1111]:53`",
            Printable::from(text)
        )
    })
}

impl Layer {
    /// Its position.
    pub fn file(self) -> &'static str {
        match self {
            Layer::Operator => "the operator's /etc/belljar/belljar.toml",
            Layer::User => "the user's ~/.config/belljar/belljar.toml",
            Layer::Repository => "the repository's .belljar/config.toml",
        }
    }

    /// One word.
    pub fn as_str(self) -> &'static str {
        match self {
            Layer::Operator => "operator",
            Layer::User => "user",
            Layer::Repository => "repository",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Operator => "the operator",
            Layer::User => "a user",
            Layer::Repository => "a repository",
        })
    }
}

/// 10.0.0.0/8 is the largest private range of IPv4, fc00::/7 that of IPv6. A wider range, or half of all addresses, is no private
/// network.
const WIDEST_IPV4: u8 = 8;
const WIDEST_IPV6: u8 = 7;
const DNS: u16 = 53;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::ErrorCode;

    fn understand(layer: Layer, content: &str) -> Result<Settings, SandboxError> {
        Settings::understand(&Text { layer, name: "belljar.toml".into(), content: content.into() })
    }

    #[test]
    fn a_whole_file_is_understood() {
        let content = r#"
            [egress]
            mode = "strict"
            widest = "strict"
            groups = ["github"]
            allow = ["example.com", "=x.com:8443/tls"]
            deny = ["gist.github.com"]
            only = ["example.com", "x.com", "github.com", "*.githubusercontent.com"]
            private = ["10.1.2.3/16", "10.0.0.5"]
            resolvers = ["1.1.1.1", "[::1]:5353"]
            connections = 12
            bytes = "1g"

            [[egress.rule]]
            host = "db.x.com"
            protocols = ["postgres"]
            reason = "the test database"
        "#;
        let settings = understand(Layer::Operator, content).expect("a file");
        assert_eq!(settings.mode.as_ref().map(|mode| (mode.value, mode.place.line)), Some((Mode::Strict, 3)));
        let labels: Vec<String> = settings.allow.iter().map(|rule| rule.label.to_string()).collect();
        assert_eq!(
            labels,
            [
                "`example.com` (belljar.toml:6)",
                "`=x.com:8443/tls` (belljar.toml:6)",
                "`db.x.com/postgres` (belljar.toml:15)"
            ]
        );
        let ranges: Vec<String> = settings.private.iter().map(|range| range.value.to_string()).collect();
        assert_eq!(ranges, ["10.1.0.0/16", "10.0.0.5/32"]);
        let servers = settings.resolvers.as_ref().map(|servers| servers.value.clone()).unwrap_or_default();
        assert_eq!(servers, ["1.1.1.1:53".parse().unwrap(), "[::1]:5353".parse().unwrap()]);
        assert_eq!(settings.bytes.as_ref().map(|bytes| bytes.value.as_u64()), Some(1 << 30));
        assert_eq!(settings.reasons[0].1, "the test database");
        assert_eq!(settings.rules(), 3 + 1 + 2);
        assert!(understand(Layer::User, "# nothing\n[egress]\n").expect("a file").is_silent());
    }

    #[test]
    fn a_repository_does_not_say_what_of_it_may_be_changed() {
        let content = "[workspace]\nunprotect = [\".vscode\"]\n";
        for layer in [Layer::Operator, Layer::User] {
            assert_eq!(understand(layer, content).expect("a file").unprotect[0].value.as_str(), ".vscode");
        }
        let refused = understand(Layer::Repository, content).expect_err("not for it");
        assert_eq!(refused.code, ErrorCode::ConfigInvalid);
        // Files that git runs cannot be unprotected.
        let error =
            understand(Layer::User, "[workspace]\nunprotect = [\".git/hooks\"]\n").expect_err("no settings");
        assert!(error.to_string().contains("protected by default"), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_line_and_the_fix() {
        for (line, message) in [
            ("mode = \"wide\"", "`wide` is not an egress mode: write none, strict, ask or open"),
            ("allow = [\"*.x.com\"]", "write `x.com`"),
            ("allow = [\"https://x.com/\"]", "write the host alone, `x.com`"),
            ("deny = [\"1.2.3.4\"]", "is an address"),
            ("connections = 0", "write 1 to 65535"),
            ("connections = 65536", "write 1 to 65535"),
            ("connections = -1", "write 1 to 65535"),
            ("bytes = \"much\"", "is not a size"),
            ("bytes = 0", "is not a size"),
            ("resolvers = [\"dns.example\"]", "write one, as in `1.1.1.1:53`"),
            ("private = [\"inside\"]", "write one, as in `10.1.0.0/16`"),
            ("private = [\"0.0.0.0/0\"]", "write the one that is needed"),
            ("private = [\"128.0.0.0/1\"]", "write the one that is needed"),
            ("private = [\"::/0\"]", "write the one that is needed"),
            ("only = [\"com\"]", "public suffix"),
            ("groups = [\"githb\"]", "there are coding-agents, github, providers, registries"),
        ] {
            let error = understand(Layer::Operator, &format!("[egress]\n{line}\n")).expect_err(line);
            assert!(error.message.starts_with("belljar.toml:2: "), "{error}");
            assert!(error.message.contains(message), "{error}");
        }
        let error = understand(Layer::User, "egress.groups = [\n\"githb\"]").expect_err("no group");
        assert_eq!(
            error.hint.as_ref().map(|hint| hint.to_string()).as_deref(),
            Some("did you mean `github`?")
        );
        assert!(error.message.starts_with("belljar.toml:2"), "{error}");
    }

    #[test]
    fn a_user_opens_private_networks_and_ports_and_the_operator_all_else() {
        for range in ["127.0.0.0/8", "::1/128", "169.254.0.0/16", "169.254.169.254/32", "fd00:ec2::254/128"] {
            let line = format!("[egress]\nprivate = [\"{range}\"]\n");
            understand(Layer::Operator, &line).expect(range);
            understand(Layer::User, &line).expect_err(range);
        }
        for ports in ["[53]", "[0]", "[65536]", "[-1]", "[\"5432\"]"] {
            understand(Layer::User, &format!("[egress]\nhost_ports = {ports}\n")).expect_err(ports);
        }
        for proxy in [
            "{}",
            "{ url = \"http://me:secret@proxy.example.com\" }",
            "{ url = \"http://p.example.com\", resolve = \"there\" }",
        ] {
            let error = understand(Layer::User, &format!("[egress]\nproxy = {proxy}\n")).expect_err(proxy);
            assert!(!error.message.contains("secret@"), "{error}");
        }
    }

    #[test]
    fn a_layer_says_only_what_it_may() {
        use Layer::{Operator, Repository, User};
        for (line, may) in [
            ("only = []", &[Operator][..]),
            ("private = [\"10.0.0.0/8\"]", &[Operator, User]),
            ("private = []", &[Operator, User]),
            ("host_ports = [5432]", &[Operator, User]),
            ("host_ports = []", &[Operator, User]),
            ("proxy = { url = \"http://proxy.example.com:3128\" }", &[Operator, User]),
            ("widest = \"open\"", &[Operator, User]),
            ("resolvers = []", &[Operator, User]),
            ("authorities = []", &[Operator, User]),
            ("mode = \"open\"", &[Operator, User, Repository]),
            ("inspect = true", &[Operator, User, Repository]),
            ("allow = [\"x.com\"]", &[Operator, User, Repository]),
            ("deny = [\"x.com\"]", &[Operator, User, Repository]),
        ] {
            for layer in [Operator, User, Repository] {
                let outcome = understand(layer, &format!("[egress]\n{line}\n"));
                assert_eq!(outcome.is_ok(), may.contains(&layer), "{line} by {layer}");
                if let Err(error) = outcome {
                    assert!(error.message.contains("belljar.toml:2: `"), "{error}");
                    let hint = error.hint.unwrap_or_default().to_string();
                    assert!(hint.contains("/etc/belljar/belljar.toml"), "{hint}");
                }
            }
        }
    }
}
