//! What a service manager is told (sd_notify(3), `Type=notify`).

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use crate::client::{NEWEST, Session};
use crate::data::Data;
use crate::server::{PROGRAM, Server};

/// Story of an operator: units that are ordered after this one were started before it listened,
/// and `systemctl stop` killed it in the middle of its drain.
#[test]
fn a_service_manager_is_told_of_the_start_and_of_how_long_the_end_may_take() {
    let dir = Data::new("service");
    std::fs::create_dir_all(dir.path()).expect("made");
    let path = dir.join("notify");
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    let told = || {
        let mut text = [0; 512];
        let length = manager.recv(&mut text).expect("a message");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let mut program = Command::new(PROGRAM);
    program.env("NOTIFY_SOCKET", &path);
    let server = Server::launch(program, &["--drain-timeout", "5s"], &[]);
    assert_eq!(told(), "READY=1\n");
    // It is true when it is told.
    Session::start(&server, NEWEST).delete();
    assert_eq!(server.stop().code, Some(0));
    let end = told();
    assert!(end.starts_with("STOPPING=1\n"), "{end}");
    let micros = end.split_once("EXTEND_TIMEOUT_USEC=").map(|(_, rest)| rest.trim().parse::<u64>());
    assert!(matches!(micros, Some(Ok(5_000_000..=60_000_000))), "{end}");
}
