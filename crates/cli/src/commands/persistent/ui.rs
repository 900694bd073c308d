//! `belljar ui`: the dashboard, as long as this runs.

use super::daemon::client;
use crate::args::UiArgs;
use crate::commands::{block_on, print};
use crate::foreground::EndSignals;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_ui::Bound;
use std::process::{Command, Stdio};

pub(crate) fn ui(options: &UiArgs) -> Result<u8, SandboxError> {
    block_on(async {
        let bound = Bound::new(client(), options.listen).await?;
        let link = bound.link().ok_or_else(|| ErrorCode::Internal.error("the dashboard has no link"))?;
        // Data: a program may open it.
        print(format!("{link}\n").as_bytes())?;
        eprintln!("belljar: the link works once; ctrl-C ends the dashboard");
        if !options.no_open {
            open(&link);
        }
        let mut signals = EndSignals::new();
        tokio::select! {
            () = bound.serve() => {}
            _ = signals.next() => {}
        }
        Ok(0)
    })
}

/// Where there is a desktop. The link is printed in any case.
fn open(link: &str) {
    if std::env::var_os("DISPLAY").is_none() && std::env::var_os("WAYLAND_DISPLAY").is_none() {
        return;
    }
    let opener = Command::new("xdg-open")
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    drop(opener);
}
