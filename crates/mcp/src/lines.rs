//! MCP over standard input and output: one message a line. Requests are answered as they are done, so that a client can cancel one, or
//! ask for something else while a command runs.

use crate::server::Server;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Serves a client until it closes its side, or until `end`.
pub async fn serve(
    server: Server,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let server = Arc::new(server);
    let (say, messages) = mpsc::channel(ANSWERS);
    let both = async { tokio::try_join!(listen(&server, input, say), speak(output, messages)).map(|_| ()) };
    let outcome = tokio::select! {
        outcome = both => outcome,
        () = server.conversation().keep() => Ok(()),
        () = end => Ok(()),
    };
    server.cancel_all();
    server.conversation().release().await;
    outcome
}

/// Reads messages, and lets each be answered by a task of its own.
async fn listen(
    server: &Arc<Server>,
    input: impl AsyncRead + Unpin,
    say: mpsc::Sender<Value>,
) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut requests = JoinSet::new();
    loop {
        let mut line = Vec::new();
        (&mut input).take(MAX_MESSAGE_BYTES).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            break;
        }
        if line.len() as u64 == MAX_MESSAGE_BYTES && !line.ends_with(b"\n") {
            let message = format!("a message has at most {MAX_MESSAGE_BYTES} bytes");
            let error =
                json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32600, "message": message } });
            let _ = say.send(error).await;
            return Ok(());
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        while requests.try_join_next().is_some() {}
        let (server, say) = (Arc::clone(server), say.clone());
        requests.spawn(async move {
            if let Some(answer) = server.answer(&line).await {
                // A client that went away wants no answer.
                let _ = say.send(answer).await;
            }
        });
    }
    // A client that closes its side may still read answers, or have gone.
    drop(say);
    if timeout(LAST_ANSWERS_TIMEOUT, async { while requests.join_next().await.is_some() {} }).await.is_err() {
        server.cancel_all();
        while requests.join_next().await.is_some() {}
    }
    Ok(())
}

async fn speak(mut output: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<Value>) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        output.write_all(format!("{message}\n").as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

/// More than a file that is written by a call.
const MAX_MESSAGE_BYTES: u64 = 16 * 1024 * 1024;
/// How many answers wait for a client that does not read.
const ANSWERS: usize = 16;
/// Clients end a server that takes longer.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);
