//! The policy of a sandbox that lives, and its questions.

use crate::client::Client;
use crate::client::error::ClientError;
use crate::client::sandbox::Sandbox;
use crate::{AnswerQuestion, ChangePolicy, PolicyChanged, SandboxQuestion};
use belljar_spec::egress::PolicyReport;
use hyper::Method;

impl Client {
    /// The questions of all sandboxes of the caller.
    pub async fn questions(&self) -> Result<Vec<SandboxQuestion>, ClientError> {
        self.every("/questions", &[]).await
    }
}

impl Sandbox {
    /// The policy in force.
    pub async fn policy(&self) -> Result<PolicyReport, ClientError> {
        self.call(Method::GET, "/policy").answer().await
    }

    /// Adds a rule.
    pub async fn change_policy(&self, change: &ChangePolicy) -> Result<PolicyChanged, ClientError> {
        self.call(Method::POST, "/policy").json(change).answer().await
    }

    /// Answers a question.
    pub async fn answer(&self, question: u64, answer: &AnswerQuestion) -> Result<PolicyChanged, ClientError> {
        let path = format!("/questions/{question}");
        self.call(Method::POST, &path).json(answer).answer().await
    }
}
