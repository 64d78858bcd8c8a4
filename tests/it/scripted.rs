//! Children that do what a few lines of shell say, with no program but the shell where it matters.

use std::path::Path;

use serde_json::Value;

use crate::client::Session;
use crate::server::eventually;

/// A child that lets itself be set up, also as a restarted one, and then runs `rest`. There,
/// `take LINE` puts the raw id of a message into `$id`, and `answer RESULT` answers it.
pub fn child(rest: &str) -> String {
    format!(
        r#"
        take() {{ id=${{1#*\"id\":}}; id=${{id%%,*}}; }}
        answer() {{ printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" "$1"; }}
        read -r line; take "$line"
        answer '{{"protocolVersion":"2025-11-25","capabilities":{{}},'\
'"serverInfo":{{"name":"s","version":"0"}}}}'
        read -r line
        {rest}"#
    )
}

/// Asks until a child that is restarted after a pause is there; the first other answer.
pub fn until_restarted(session: &Session, body: &str) -> Value {
    let mut answer = Value::Null;
    eventually("the child is restarted", || {
        answer = session.post(body).result();
        answer["error"]["code"] != -31005
    });
    answer
}

/// Processes, but for zombies, whose command line holds this text.
pub fn processes(marker: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").expect("it can be listed").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| holds(&Path::new("/proc").join(pid.to_string()), marker)).collect()
}

fn holds(process: &Path, marker: &str) -> bool {
    let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(marker)
}
