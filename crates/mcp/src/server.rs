//! The methods of the protocol.

use crate::conversation::Conversation;
use crate::protocol::{Fault, Message, answer, version};
use crate::running::{Cancelled, Running};
use crate::tools::{self, Call};
use serde_json::{Map, Value, json};

/// An MCP server for one client.
pub struct Server {
    conversation: Conversation,
    running: Running,
}

impl Server {
    pub fn new(conversation: Conversation) -> Server {
        Server { conversation, running: Running::default() }
    }

    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// The answer to a message, if it has one.
    pub async fn answer(&self, line: &[u8]) -> Option<Value> {
        match Message::read(line) {
            Err(refused) => Some(refused),
            Ok(Message::Answer) => None,
            Ok(Message::Notification { method, params }) => {
                if let ("notifications/cancelled", Some(id)) = (method.as_str(), params.get("requestId")) {
                    self.running.cancel(id);
                }
                None
            }
            Ok(Message::Request { id, method, params }) => {
                let mut entry = self.running.enter(&id);
                let outcome = self.carry_out(&method, params, &mut entry.cancelled).await;
                // A request that was cancelled has no answer.
                (!entry.cancelled.is_requested()).then(|| answer(&id, outcome))
            }
        }
    }

    /// The client has gone: nobody waits for an answer, and what it waited for is ended.
    pub fn cancel_all(&self) {
        self.running.cancel_all();
    }

    async fn carry_out(
        &self,
        method: &str,
        params: Map<String, Value>,
        cancelled: &mut Cancelled,
    ) -> Result<Value, Fault> {
        match method {
            "initialize" => Ok(introduction(params.get("protocolVersion").and_then(Value::as_str))),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(tools::list()),
            "tools/call" => Ok(self.call(Call::read(params)?, cancelled).await),
            _ => Err(Fault::unknown_method(method)),
        }
    }

    /// What a tool did, or why it did not: both are for the model to read.
    async fn call(&self, call: Call, cancelled: &mut Cancelled) -> Value {
        let conversation = &self.conversation;
        let outcome = match call {
            Call::RunCommand(arguments) => conversation.run_command(arguments, cancelled).await,
            Call::CommandOutput(arguments) => conversation.command_output(arguments, cancelled).await,
            Call::StopCommand(arguments) => conversation.stop_command(&arguments).await,
            Call::ListCommands => conversation.list_commands().await,
            Call::ReadFile(arguments) => conversation.read_file(arguments).await,
            Call::WriteFile(arguments) => conversation.write_file(arguments).await,
            Call::ListFiles(arguments) => conversation.list_files(arguments).await,
            Call::TakeSnapshot(arguments) => conversation.take_snapshot(arguments).await,
            Call::RestoreSnapshot(arguments) => conversation.restore_snapshot(arguments).await,
            Call::AllowedHosts => conversation.allowed_hosts().await,
            Call::AskForHost(arguments) => conversation.ask_for_host(arguments).await,
        };
        let (text, is_error) = match outcome {
            Ok(text) => (text, false),
            Err(error) => (conversation.report(&error), true),
        };
        json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
    }
}

fn introduction(requested: Option<&str>) -> Value {
    json!({
        "protocolVersion": version(requested),
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "belljar", "title": "belljar", "version": env!("CARGO_PKG_VERSION") },
        "instructions": INSTRUCTIONS,
    })
}

const INSTRUCTIONS: &str = "\
These tools work in a sandbox of the user's folder. It reaches only the hosts that the user allows (allowed_hosts), holds no keys, and \
sees nothing else of the machine. It stays from call to call. Use run_command for every command of the task: what fails there because of \
the sandbox is meant to fail, and is not to be tried outside.";

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::ErrorCode;

    fn server() -> Server {
        let refuse = || ErrorCode::WorkspaceMissing.error("there is no folder").hint("make one");
        let open = Box::new(move || {
            let refused = Err(refuse());
            Box::pin(async move { refused }) as std::pin::Pin<Box<dyn Future<Output = _> + Send>>
        });
        Server::new(Conversation::new(open, |error| error.hint.as_ref().map(ToString::to_string)))
    }

    async fn ask(server: &Server, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let answer = server.answer(request.to_string().as_bytes()).await.expect("an answer");
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)));
        answer
    }

    #[tokio::test]
    async fn a_client_is_introduced_and_told_of_the_tools() {
        let server = server();
        let hello = ask(&server, "initialize", json!({ "protocolVersion": "2025-06-18" })).await;
        assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
        assert!(server.answer(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await.is_none());
        assert_eq!(ask(&server, "ping", json!({})).await["result"], json!({}));
        let tools = ask(&server, "tools/list", json!({})).await;
        assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(11), "{tools}");
        assert_eq!(ask(&server, "server/discover", json!({})).await["error"]["code"], -32601);
    }

    #[tokio::test]
    async fn a_refusal_is_for_the_model_and_a_wrong_call_for_the_client() {
        let server = server();
        let refused = ask(&server, "tools/call", json!({ "name": "list_files" })).await;
        assert_eq!(refused["result"]["isError"], true);
        assert_eq!(refused["result"]["content"][0]["text"], "belljar: there is no folder\nhint: make one");
        let wrong = ask(&server, "tools/call", json!({ "name": "run_command", "arguments": {} })).await;
        assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    }
}
