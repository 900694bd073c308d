use super::*;

fn request(json: &str) -> SandboxRequest {
    serde_json::from_str(json).expect("a request")
}

#[test]
fn a_request_reads_back_as_it_was_written() {
    let json = r#"{"backend":"native","at_least":"namespace","rootfs":"oci:alpine:3.22","snapshot":"before-upgrade","workspace":{"folder":"/srv/web","overlay":true,"branch":"a/b","clone":"https://a.example/b","depth":3,"same_path":true,"ro":["/a"],"rw":["/b"],"protect":["x"],"push":["agent/*","!main"],"share_git":true,"agent_context":["/c"]},"egress":{"mode":"strict","allow":["=a.example:8443"],"deny":["b.example"],"groups":["github"],"inspect":true},"llm":{"url":"https://m.example","key":"secret:m","kind":"litellm","models":["gpt-*"],"budget":"calls=5"},"secrets":["npm"],"web_search":"auto","github":{"profile":"read","repositories":["a/b"]},"env":{"A":"b","B":{"base64":"/w=="},"K":"secret:key"},"limits":{"memory":"1536m","cpus":"0.5","pids":64,"open_files":512,"disk":"1g","timeout":"90s","output":"10k","ready":"1.5s"},"ports":[80],"nested":true,"volumes":{"cache":"/volumes/cache"},"admin":true,"root":true}"#;
    assert_eq!(serde_json::to_string(&request(json)).unwrap(), json);
    assert_eq!(serde_json::to_string(&SandboxRequest::default()).unwrap(), "{}");
    assert_eq!(
        request(r#"{"nested":false,"llm":{}}"#),
        SandboxRequest { llm: Some(LlmRequest::default()), ..Default::default() }
    );
}

#[test]
fn only_what_was_said_and_is_not_so_differs() {
    let living = request(
        r#"{"limits":{"memory":"1g"},"egress":{"allow":["a.example","b.example"]},"env":{"A":"1"},"nested":true}"#,
    );
    let differs = |json: &str| {
        let requested = request(json);
        requested.fits(&requested, &living)
    };
    for json in [
        "{}",
        r#"{"nested":false,"limits":{"memory":"1024m"},"egress":{"allow":["b.example"]},"env":{"A":"1"}}"#,
    ] {
        assert_eq!(differs(json), [""; 0], "{json}");
    }
    assert_eq!(
        differs(
            r#"{"limits":{"memory":"2g","pids":1},"egress":{"allow":["c.example"]},"env":{"A":"2","B":"1"},"admin":true,"llm":{"models":["x"]}}"#
        ),
        ["egress.allow", "llm", "env.A", "env.B", "limits.memory", "limits.pids", "admin"]
    );
    let (requested, effective) =
        (request(r#"{"limits":{"memory":"64g"}}"#), request(r#"{"limits":{"memory":"1g"}}"#));
    assert_eq!(requested.fits(&effective, &living), [""; 0], "a grant's ceiling makes it the same");
}

#[test]
fn what_only_the_owner_may_say_is_found_wherever_it_is() {
    for (json, field) in [
        ("{}", None),
        (r#"{"nested":false,"admin":false,"ports":[80],"limits":{"memory":"1g"}}"#, None),
        (r#"{"nested":true}"#, Some("nested")),
        (r#"{"workspace":{"share_git":true}}"#, Some("workspace.share_git")),
        (r#"{"workspace":{"agent_context":["/a"]}}"#, Some("workspace.agent_context")),
        (r#"{"llm":{"key":"secret:a"}}"#, Some("llm.key")),
        (r#"{"github":{"profile":"read"}}"#, Some("github")),
    ] {
        assert_eq!(request(json).owner_only("").as_deref(), field, "{json}");
    }
}
