//! What waits for a person.

use super::question;
use belljar_api::SandboxQuestion;

pub(super) fn body(questions: &[SandboxQuestion]) -> String {
    if questions.is_empty() {
        return r#"<h1>Approvals</h1>
<div class="empty"><p>Nothing waits for you.</p>
<p class="quiet">A sandbox with <code>--egress ask</code> asks here before it reaches a name that no rule allows.</p></div>"#
            .into();
    }
    let all: String = questions.iter().map(|asked| question(asked, "/approvals", true)).collect();
    format!(r#"<h1>Approvals</h1><ul class="questions" aria-live="polite">{all}</ul>"#)
}
