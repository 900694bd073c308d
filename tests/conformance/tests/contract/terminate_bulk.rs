//! A gibibyte each way through TLS that the gateway looks into, at steady memory.

use belljar_spec::BackendName;
use belljar_tests_conformance::*;
use belljar_tests_hosts::http_body_util::BodyExt;
use belljar_tests_hosts::hyper::body::{Bytes, Incoming};
use belljar_tests_hosts::hyper::{Request, Response};
use belljar_tests_hosts::{self as hosts, MODERN, WebServer, have, piece, pieces, whole};
use std::fs;

for_every_isolated_backend! {
    once:
        a_gibibyte_comes_down,
        a_gibibyte_goes_up,
        a_quarter_of_it_comes_down_over_http2,
        a_quarter_of_it_goes_up_over_http2;
}

async fn a_gibibyte_comes_down(backend: BackendName) {
    let options = "--http1.1 -o /dev/null -w '%{http_version} %{size_download}'";
    passes(backend, GIBIBYTE, options, &format!("1.1 {GIBIBYTE}")).await;
}

async fn a_gibibyte_goes_up(backend: BackendName) {
    let options = "--http1.1 -T body -w ' %{http_version} %{size_upload}'";
    passes(backend, GIBIBYTE, options, &format!("{GIBIBYTE} 1.1 {GIBIBYTE}")).await;
}

async fn a_quarter_of_it_comes_down_over_http2(backend: BackendName) {
    let options = "--http2 -o /dev/null -w '%{http_version} %{size_download}'";
    passes(backend, QUARTER, options, &format!("2 {QUARTER}")).await;
}

async fn a_quarter_of_it_goes_up_over_http2(backend: BackendName) {
    let options = "--http2 -T body -w ' %{http_version} %{size_upload}'";
    passes(backend, QUARTER, options, &format!("{QUARTER} 2 {QUARTER}")).await;
}

async fn passes(backend: BackendName, bytes: usize, options: &str, expected: &str) {
    if !have(["curl"]) {
        return;
    }
    let world = World::new([("api.test", "127.0.0.1")]);
    let leaf = world.authority.leaf(["api.test"]);
    let server = WebServer::start(LOOPBACK, &leaf, MODERN, move |request| serve(request, bytes));
    let rule = format!("api.test:{}/tls", server.port());
    let fixture = world.fixture(backend, world.inspecting(&rule, &["GET", "PUT"], &["/bulk"])).await;
    fs::File::create(fixture.host("body")).unwrap().set_len(bytes as u64).unwrap();
    // Forgets the worst so far (proc(5), clear_refs).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory("VmRSS:");
    let printed =
        fixture.answer(&format!("curl -sS {options} https://api.test:{}/bulk", server.port())).await;
    assert_eq!(printed, expected);
    let grown = memory("VmHWM:").saturating_sub(before);
    assert!(grown < STEADY, "{grown} KiB more for {bytes} bytes");
    fixture.dispose().await;
    let connections = world.connections(&fixture);
    let moved = connections[0].sent.max(connections[0].received);
    assert!(moved > bytes as u64, "{connections:?}");
}

async fn serve(request: Request<Incoming>, bytes: usize) -> Response<hosts::WebBody> {
    if request.method() == "PUT" {
        let mut body = request.into_body();
        let mut length = 0;
        while let Some(Ok(frame)) = body.frame().await {
            length += frame.data_ref().map_or(0, Bytes::len);
        }
        return Response::new(whole(length.to_string()));
    }
    let (sender, body) = pieces();
    hosts::tokio::spawn(async move {
        let zeros = Bytes::from(vec![0; PIECE]);
        for _ in 0..bytes / PIECE {
            if sender.send(piece(zeros.clone())).await.is_err() {
                return;
            }
        }
    });
    Response::new(body)
}

fn memory(which: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(which)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

const GIBIBYTE: usize = 1 << 30;
/// Frames of HTTP/2 are many more, and slow without optimisation.
const QUARTER: usize = GIBIBYTE / 4;
const PIECE: usize = 256 * 1024;
/// In KiB: both the gateway and the server are in this process.
const STEADY: u64 = 64 * 1024;
