//! The numbers of the users and groups inside: the data plane names them by their names.

use crate::rpc::Envd;
use std::collections::HashMap;
use tokio::sync::OnceCell;

/// Read once, when a file is first looked at.
#[derive(Default)]
pub(super) struct Accounts(OnceCell<[HashMap<String, u32>; 2]>);

impl Accounts {
    /// The numbers of a user and a group. What has no name is named by its number, and what is not known belongs to nobody(5).
    pub(super) async fn numbers(&self, envd: &Envd, user: &str, group: &str) -> (u32, u32) {
        let [users, groups] = self
            .0
            .get_or_init(|| async { [read(envd, "/etc/passwd").await, read(envd, "/etc/group").await] })
            .await;
        let number = |known: &HashMap<String, u32>, name: &str| {
            known.get(name).copied().or_else(|| name.parse().ok()).unwrap_or(OVERFLOW_ID)
        };
        (number(users, user), number(groups, group))
    }
}

/// Both files have the name first and the number third: passwd(5), group(5).
async fn read(envd: &Envd, path: &str) -> HashMap<String, u32> {
    let mut bytes = Vec::new();
    if let Ok(mut content) = envd.read(super::USER, path).await {
        while let Ok(Some(piece)) = content.next().await {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_BYTES {
                break;
            }
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let account = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((name.to_string(), fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(account).collect()
}

/// nobody(5), as the kernel shows what it cannot map.
const OVERFLOW_ID: u32 = 65534;
const MAX_BYTES: usize = 1 << 20;
