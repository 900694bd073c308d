//! Credentials at work: each arrives where it belongs, the way its host wants it, and nowhere else.

use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use belljar_sys::rustix::process::geteuid;
use belljar_tests_cli::Home;
use belljar_tests_hosts::{Authority, Dns, HttpServer, Request, Response};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, Ordering};

/// Hosts that the credentials belong to, and one that has nothing to do with them.
const HOSTS: [&str; 12] = [
    "api.anthropic.com",
    "api.exa.ai",
    "api.github.com",
    "api.openai.com",
    "api.search.brave.com",
    "api.tavily.com",
    "build.example.com",
    "codeload.github.com",
    "github.com",
    "openrouter.ai",
    "other.example.com",
    "uploads.github.com",
];

/// What a request carries, as curl's option, where to, and which header arrives.
type Sent = (&'static str, &'static str, &'static str);

#[test]
fn each_that_belljar_knows_arrives_as_its_host_wants_it() {
    let Some(world) = World::start("") else { return };
    let basic =
        |value: &str| format!("authorization: Basic {}", STANDARD.encode(format!("x-access-token:{value}")));
    let cases: [(&str, &[&str], &[Sent]); 7] = [
        (
            "anthropic",
            &["--secret", "anthropic"],
            &[
                ("-H \"x-api-key: $ANTHROPIC_API_KEY\"", "api.anthropic.com/v1/messages", "x-api-key: VALUE"),
                (
                    "-H \"authorization: Bearer $ANTHROPIC_API_KEY\"",
                    "api.anthropic.com/v1/models",
                    "authorization: Bearer VALUE",
                ),
            ],
        ),
        (
            "openai",
            &["--secret", "openai"],
            &[(
                "-H \"authorization: Bearer $OPENAI_API_KEY\"",
                "api.openai.com/v1/responses",
                "authorization: Bearer VALUE",
            )],
        ),
        (
            "openrouter",
            &["--secret", "openrouter"],
            &[(
                "-H \"authorization: Bearer $OPENROUTER_API_KEY\"",
                "openrouter.ai/api/v1/chat/completions",
                "authorization: Bearer VALUE",
            )],
        ),
        (
            "github",
            &["--secret", "github"],
            &[
                (
                    "-H \"authorization: token $GITHUB_TOKEN\"",
                    "api.github.com/user",
                    "authorization: token VALUE",
                ),
                (
                    "-H \"authorization: Bearer $GH_TOKEN\"",
                    "uploads.github.com/repos/a/b/releases/1/assets",
                    "authorization: Bearer VALUE",
                ),
                (
                    "-H \"authorization: Bearer $GITHUB_TOKEN\"",
                    "codeload.github.com/a/b/tar.gz/main",
                    "authorization: Bearer VALUE",
                ),
                (
                    "-u \"x-access-token:$GIT_TOKEN\"",
                    "github.com/a/b.git/info/refs?service=git-upload-pack",
                    "BASIC",
                ),
                ("-u \"x-access-token:$GIT_TOKEN\"", "github.com/a/b.git/info/lfs/objects/batch", "BASIC"),
            ],
        ),
        (
            "tavily",
            &["--web-search=tavily"],
            &[(
                "-H \"authorization: Bearer $TAVILY_API_KEY\"",
                "api.tavily.com/search",
                "authorization: Bearer VALUE",
            )],
        ),
        (
            "exa",
            &["--web-search=exa"],
            &[
                ("-H \"x-api-key: $EXA_API_KEY\"", "api.exa.ai/search", "x-api-key: VALUE"),
                (
                    "-H \"authorization: Bearer $EXA_API_KEY\"",
                    "api.exa.ai/contents",
                    "authorization: Bearer VALUE",
                ),
            ],
        ),
        (
            "brave",
            &["--web-search=brave"],
            &[(
                "-H \"x-subscription-token: $BRAVE_SEARCH_API_KEY\"",
                "api.search.brave.com/res/v1/web/search?q=x",
                "x-subscription-token: VALUE",
            )],
        ),
    ];
    for (name, flags, sent) in cases {
        let value = world.keep(name);
        let script: String =
            sent.iter().map(|(option, url, _)| format!("curl -sS {option} 'https://{url}'; ")).collect();
        let printed = world.run(flags, &script);
        assert_eq!(printed, "ok".repeat(sent.len()), "{name}");
        let arrived = world.arrived();
        assert_eq!(arrived.len(), sent.len(), "{name}: {arrived:?}");
        for ((_, url, header), request) in sent.iter().zip(&arrived) {
            let expected = if *header == "BASIC" { basic(&value) } else { header.replace("VALUE", &value) };
            let (key, expected) = expected.split_once(": ").expect("a header");
            assert_eq!(at(request), *url);
            assert_eq!(request.header(key), Some(expected), "{name}: {url}");
            let locations = ["authorization", "x-api-key", "x-subscription-token"];
            let carried = request.headers.iter().filter(|(name, _)| locations.contains(&name.as_str()));
            assert_eq!(carried.count(), 1, "{name}: {url}: {request:?}");
        }
    }
}

/// The hosts' other pages, and other hosts that the sandbox may reach: each of them is refused because of what it carries.
#[test]
fn none_that_belljar_knows_goes_anywhere_else() {
    let Some(world) = World::start("") else { return };
    for (name, flag, variable, elsewhere) in [
        ("anthropic", "--secret=anthropic", "ANTHROPIC_API_KEY", "api.anthropic.com/api/telemetry"),
        ("openai", "--secret=openai", "OPENAI_API_KEY", "api.openai.com/dashboard"),
        ("openrouter", "--secret=openrouter", "OPENROUTER_API_KEY", "openrouter.ai/settings"),
        ("github", "--secret=github", "GITHUB_TOKEN", "github.com/a/b/settings"),
        ("tavily", "--web-search=tavily", "TAVILY_API_KEY", "api.exa.ai/search"),
        ("exa", "--web-search=exa", "EXA_API_KEY", "api.tavily.com/search"),
        ("brave", "--web-search=brave", "BRAVE_API_KEY", "api.exa.ai/search"),
    ] {
        let value = world.keep(name);
        let mut script = String::new();
        for url in [elsewhere, "other.example.com/v1/x"] {
            for option in [
                "-H \"x-api-key: $KEY\"",
                "-H \"authorization: Bearer $KEY\"",
                "-u \"x:$KEY\"",
                "-d \"$KEY\"",
            ] {
                let option = option.replace("KEY", variable);
                script += &format!("curl -sS -o /dev/null -w '%{{http_code}} ' {option} 'https://{url}'; ");
            }
        }
        script += "curl -sS https://other.example.com/plain";
        let host = elsewhere.split('/').next().expect("a host");
        let printed =
            world.run(&[flag, "--inspect", "--allow", "other.example.com", "--allow", host], &script);
        assert_eq!(printed, format!("{}ok", "403 ".repeat(8)), "{name}");
        let arrived = world.arrived();
        assert_eq!(arrived.iter().map(at).collect::<Vec<_>>(), ["other.example.com/plain"], "{name}");
        assert!(!format!("{arrived:?}").contains(&value));
    }
}

#[test]
fn one_of_a_file_arrives_at_its_places_alone() {
    let Some(world) = World::start(
        "[credential.build]\nsecret = \"secret:ci\"\nhost = \"=build.example.com\"\npaths = [\"/api/**\"]\n\
         methods = [\"GET\"]\nas = \"header\"\nheader = \"x-build-key\"\nvariables = [\"BUILD_KEY\"]\n",
    ) else {
        return;
    };
    let value = world.keep("ci");
    let printed = world.run(
        &["--secret", "build"],
        "for url in api/x other; do curl -sS -H \"x-build-key: $BUILD_KEY\" https://build.example.com/$url; done; \
         curl -sS -X POST -H \"x-build-key: $BUILD_KEY\" https://build.example.com/api/x; \
         curl -sS -H \"authorization: Bearer $BUILD_KEY\" https://build.example.com/api/x",
    );
    assert!(printed.starts_with("ok{") && printed.matches("\"code\"").count() == 3, "{printed}");
    let arrived = world.arrived();
    assert_eq!(arrived.len(), 1, "{arrived:?}");
    assert_eq!(
        (at(&arrived[0]).as_str(), arrived[0].header("x-build-key")),
        ("build.example.com/api/x", Some(value.as_str()))
    );
}

/// Also where all of it is wanted: a log may be sent anywhere.
#[test]
fn the_log_has_no_value_of_a_secret_a_variable_an_argument_or_a_query() {
    let Some(world) = World::start("") else { return };
    let value = world.keep("anthropic");
    let script = "curl -sS -H \"x-api-key: $ANTHROPIC_API_KEY\" 'https://api.anthropic.com/v1/models?q=query-value'; \
                  curl -sS -d body-value https://refused.example.com; : argument-value; env | grep ^BELLJAR";
    let logged = |log: &str, format: &str, args: &[&str]| {
        let mut run = world.home.belljar(args);
        let run = run.env("BELLJAR_LOG", log).env("BELLJAR_LOG_FORMAT", format).output().expect("it starts");
        [run.stdout, run.stderr].map(|text| String::from_utf8(text).expect("text"))
    };
    let args = [
        "run",
        "--secret",
        "anthropic",
        "--env",
        "PLAIN=variable-value",
        "--",
        "sh",
        "-c",
        script,
        "word-value",
    ];
    for format in ["json", "text"] {
        let [printed, log] = logged("trace", format, &args);
        assert_eq!(printed, "okBELLJAR=1\n", "{log}");
        assert_eq!(world.arrived()[0].header("x-api-key"), Some(value.as_str()));
        for part in
            ["sandbox", "start", "gateway", "dns", "dial", "tls", "http", "exec", "refused.example.com"]
        {
            assert!(log.contains(part), "{part}: {log}");
        }
        for secret in [&value, "variable-value", "argument-value", "word-value", "query-value", "body-value"]
        {
            assert!(!log.contains(secret), "{secret}: {log}");
        }
    }
    for (log, format, accepted) in
        [("loud", "json", "off, error, warn, info, debug, trace"), ("info", "xml", "`text` or `json`")]
    {
        let [_, printed] = logged(log, format, &["run", "--", "true"]);
        assert!(printed.contains(accepted), "{printed}");
    }
}

/// How many there are in this process, and one.
static WORLDS: AtomicU8 = AtomicU8::new(1);

/// A machine on which all these names lead to one server, at port 443 of an address that is this test's alone.
struct World {
    home: Home,
    server: HttpServer,
    seen: std::cell::Cell<usize>,
    _dns: Dns,
}

impl World {
    /// Nothing for an ordinary user, who has neither an operator's file nor port 443.
    fn start(config: &str) -> Option<World> {
        if !geteuid().is_root() {
            return None;
        }
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let own = IpAddr::from(Ipv4Addr::new(127, high | 128, low, number));
        let dns = Dns::start(
            move |query| if HOSTS.contains(&query.name.as_str()) { vec![own] } else { Vec::new() },
        );
        let authority = Authority::new();
        let server = HttpServer::at_tls((own, 443).into(), &authority.leaf(HOSTS), |_| Response::ok("ok"));
        let home = Home::new(config);
        home.write("authority.pem", &authority.pem());
        let operator = format!(
            "[egress]\nprivate = [\"127.0.0.0/8\"]\nresolvers = [\"{}\"]\nauthorities = [\"{}\"]\n",
            dns.address(),
            home.path("authority.pem").display()
        );
        Some(World { home: home.operator(&operator), server, seen: 0.into(), _dns: dns })
    }

    /// Keeps a unique value, and returns it.
    fn keep(&self, name: &str) -> String {
        let value = format!("{name}-value-0123456789abcdef");
        self.home.keep(name, &value);
        value
    }

    /// What a script says whose run has these flags.
    fn run(&self, flags: &[&str], script: &str) -> String {
        let run = self.home.run(&[&["run"], flags, &["--", "sh", "-c", script]].concat());
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        run.stdout
    }

    /// The requests that arrived since it was last asked.
    fn arrived(&self) -> Vec<Request> {
        let mut requests = self.server.requests();
        let before = self.seen.replace(requests.len());
        requests.split_off(before)
    }
}

fn at(request: &Request) -> String {
    format!("{}{}", request.header("host").unwrap_or_default(), request.target)
}
