use super::*;
use belljar_spec::egress::ProxyResolve;
use belljar_spec::secret::SecretRef;
use tokio::net::TcpListener;

struct Store(&'static str);

impl SecretStore for Store {
    fn read(&self, _: &SecretRef) -> Result<Secret, SecretError> {
        Ok(Secret::from_text(self.0))
    }
}

fn proxy(kind: &str, port: u16, login: Option<&'static str>) -> Result<Proxy, SecretError> {
    let terms = UpstreamProxy {
        at: format!("{kind}://127.0.0.1:{port}").parse().expect("a proxy"),
        secret: login.map(|_| "secret:proxy".parse().expect("a reference")),
        resolve: ProxyResolve::Here,
        except: Vec::new(),
    };
    Proxy::new(terms, &Store(login.unwrap_or_default()))
}

/// A proxy that reads pieces of these lengths, and answers each; what it read, and what the client found behind its answers.
async fn talk(
    kind: &str,
    login: Option<&'static str>,
    target: Target<'_>,
    script: &[(usize, &[u8])],
) -> (Vec<Vec<u8>>, io::Result<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let proxy = proxy(kind, listener.local_addr().expect("bound").port(), login).expect("a login");
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("the client");
        let mut requests = Vec::new();
        for (length, answer) in script {
            let mut piece = vec![0; *length];
            stream.read_exact(&mut piece).await.expect("what the client says");
            requests.push(piece);
            stream.write_all(answer).await.expect("room");
        }
        requests
    };
    let ask = async {
        let (mut stream, _) = proxy.connect(target).await?;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await?;
        Ok(rest)
    };
    tokio::join!(serve, ask)
}

#[tokio::test]
async fn connect_leaves_the_servers_first_bytes_to_the_client() {
    let address = Target::Address("93.184.216.34:443".parse().expect("an address"));
    let expected = b"CONNECT 93.184.216.34:443 HTTP/1.1\r\nHost: 93.184.216.34:443\r\n\r\n";
    let answer = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nSSH-2.0-hello\r\n";
    let (requests, rest) = talk("http", None, address, &[(expected.len(), answer)]).await;
    assert_eq!(requests, [expected.to_vec()]);
    assert_eq!(rest.expect("a connection"), b"SSH-2.0-hello\r\n");
}

#[tokio::test]
async fn credentials_go_to_the_proxy_alone_and_its_refusal_is_a_status() {
    let expected = b"CONNECT x.example:443 HTTP/1.1\r\nHost: x.example:443\r\nProxy-Authorization: Basic bWU6cGE6c3M=\r\n\r\n";
    let target = Target::Name("x.example", 443);
    let answer = b"HTTP/1.1 407 \x1b[31mno\r\n\r\n";
    let (requests, rest) = talk("http", Some("me:pa:ss"), target, &[(expected.len(), answer)]).await;
    assert_eq!(requests, [expected.to_vec()]);
    let error = rest.expect_err("it is refused").to_string();
    assert!(error.contains("407") && !error.contains(['\x1b', '@']) && !error.contains("pa:ss"), "{error}");
}

#[tokio::test]
async fn socks_is_told_a_name_or_an_address() {
    let target = Target::Name("x.example", 443);
    let (requests, rest) = talk(
        "socks5",
        Some("me:pass"),
        target,
        &[(3, &[5, 2]), (9, &[1, 0]), (16, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0, b'h', b'i'])],
    )
    .await;
    assert_eq!(requests[0], [5, 1, 2]);
    assert_eq!(requests[1], b"\x01\x02me\x04pass");
    assert_eq!(requests[2], b"\x05\x01\x00\x03\x09x.example\x01\xbb");
    assert_eq!(rest.expect("a connection"), b"hi");
    let target = Target::Address("[2606:4700::1]:80".parse().expect("an address"));
    let (requests, rest) = talk("socks5", None, target, &[(3, &[5, 0]), (22, &[5, 2, 0, 1])]).await;
    assert_eq!((requests[1][3], &requests[1][20..]), (4, &[0, 80][..]));
    assert!(rest.expect_err("it is refused").to_string().ends_with("its answer is 2"));
}

#[tokio::test]
async fn what_is_no_answer_of_a_proxy_is_refused() {
    let target = Target::Name("x.example", 443);
    let length = "CONNECT x.example:443 HTTP/1.1\r\nHost: x.example:443\r\n\r\n".len();
    let endless = vec![b'a'; 40_000];
    for answer in [
        &b"SSH-2.0-x\r\n\r\n"[..],
        b"HTTP/1.1 2000 no\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 cut",
        &endless,
    ] {
        let (_, rest) = talk("http", None, target, &[(length, answer)]).await;
        rest.expect_err("it is no answer");
    }
}

#[test]
fn a_value_that_is_no_login_starts_nothing_and_is_not_repeated() {
    for value in ["geheim", ":geheim", "me:", "me:geheim\r\nX: y"] {
        let error = proxy("http", 1, Some(value)).err().expect(value);
        assert!(!error.message.contains("geheim"), "{}", error.message);
    }
}
