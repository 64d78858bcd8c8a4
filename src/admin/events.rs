//! The status page's stream: where everything stands, once a second, while somebody looks.

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::http::response::{self, Status};
use crate::http::sse;

use super::Admin;
use super::routes;

/// How often it is told.
const INTERVAL: Duration = Duration::from_secs(1);
/// Sessions that are told of, the largest first.
const SESSIONS_MAX: usize = 200;

/// Tells until the peer goes.
pub(super) fn serve(admin: &Admin, socket: &mut TcpStream) -> io::Result<()> {
    let (mut out, mut number) = (Vec::new(), 0_u64);
    response::head(&mut out, Status::Ok).event_stream().until_close();
    loop {
        number += 1;
        let text = routes::everything(admin, SESSIONS_MAX)
            .unwrap_or_else(|silent| format!("{{\"silent\":{silent}}}"));
        sse::event_with_id(&mut out, number.to_string().as_bytes(), text.as_bytes());
        socket.write_all(&out)?;
        out.clear();
        thread::sleep(INTERVAL);
    }
}
