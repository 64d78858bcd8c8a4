//! Socket activation (sd_listen_fds(3)): the listening socket is somebody else's, and nobody who
//! connects is refused while the server restarts.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::client::{Connection, NEWEST, Session, initialize_body, post};
use crate::server::{HAND_OVER, PROGRAM, Server, eventually};

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("bound")
}

/// What a client that comes once gets: the status of the answer to `initialize`. Any connection
/// that is refused or broken ends the test.
fn visit(address: SocketAddr) -> u16 {
    let mut connection = Connection::open(address);
    connection.send(post("Connection: close\r\n", &initialize_body(NEWEST)));
    let status = connection.answer().status();
    assert!(connection.is_closed());
    status
}

/// Story of an operator: `systemctl restart`, and the clients that came in that second failed.
#[test]
fn nobody_who_connects_is_refused_while_the_server_restarts() {
    let listener = listener();
    let address = listener.local_addr().expect("bound");
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut server = Server::on_socket(&listener, &[], &[]);
    assert_eq!(server.address, address);
    let visitors = [0; 4].map(|_| {
        let (stop, served) = (Arc::clone(&stop), Arc::clone(&served));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match visit(address) {
                    200 => drop(served.fetch_add(1, Ordering::Relaxed)),
                    // Who was accepted before the signal is told to come again.
                    status => assert_eq!(status, 503),
                }
            }
        })
    });
    for _ in 0..3 {
        let before = served.load(Ordering::Relaxed);
        eventually("visitors are served", || served.load(Ordering::Relaxed) >= before + 20);
        let stopped = server.stop();
        assert_eq!((stopped.code, stopped.total("panics")), (Some(0), 0));
        assert_eq!(stopped.total("connections_opened"), stopped.total("connections_closed"));
        // Nobody accepts now.
        let mut waiting = Connection::open(address);
        waiting.send(post("", &initialize_body(NEWEST)));
        std::thread::sleep(Duration::from_millis(50));
        server = Server::on_socket(&listener, &[], &[]);
        assert_eq!(waiting.answer().status(), 200, "who came meanwhile is served, not told off");
    }
    stop.store(true, Ordering::Relaxed);
    for visitor in visitors {
        visitor.join().expect("no connection was refused or broken");
    }
    // Every shard has accepted from the one socket, and none has spoilt it.
    drop(server);
    TcpStream::connect(address).expect("it is still listened on");
}

/// A client that had connected, and whose request was under way when the signal came.
#[test]
fn a_connection_accepted_just_before_the_signal_is_answered() {
    let server = Server::start(&["--drain-timeout", "60s"]);
    let session = Session::start(&server, NEWEST);
    let _listening = session.listen();
    let before = server.descriptors();
    let mut fresh = [0; 8].map(|_| Connection::open(server.address));
    eventually("all are accepted", || server.descriptors() >= before + fresh.len());
    server.signal(libc::SIGTERM);
    server.wait_for_log("the drain", |line| line["message"] == "draining");
    for connection in &mut fresh {
        connection.send(post("", &initialize_body(NEWEST)));
        // By a shard that has heard of the drain, or not yet.
        assert!([200, 503].contains(&connection.answer().status()));
    }
    assert_eq!(server.wait().code, Some(0));
}

/// A child that held the socket would keep it, whoever restarts.
#[test]
fn no_child_gets_the_socket() {
    let listener = listener();
    let server = Server::on_socket(&listener, &[], &[PROGRAM, "stdio"]);
    let link = format!("/proc/self/fd/{}", listener.as_raw_fd());
    let socket = std::fs::read_link(link).expect("a descriptor of ours");
    let holds = |pid: u32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
        open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|to| to == socket)
    };
    let _session = Session::start(&server, NEWEST);
    let children = server.children();
    assert_eq!(children.len(), 1);
    assert!(holds(server.pid()) && !holds(children[0]));
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn what_is_no_listening_socket_is_refused_with_a_sentence() {
    let two =
        HAND_OVER.replace("LISTEN_FDS=1", "LISTEN_FDS=2").replace("exec 3<&0", "exec 3<&0 4<&0");
    let none = HAND_OVER.replace("exec 3<&0", "exec");
    let connection =
        TcpStream::connect(listener().local_addr().expect("bound")).expect("connected");
    let cases = [
        (HAND_OVER.to_owned(), Stdio::null(), "no listening TCP socket"),
        (HAND_OVER.to_owned(), std::os::fd::OwnedFd::from(connection).into(), "no listening TCP"),
        (two, std::os::fd::OwnedFd::from(listener()).into(), "hands over 2 sockets"),
        (none, Stdio::null(), "names no open socket"),
    ];
    for (script, stdin, word) in cases {
        let mut program = Command::new("sh");
        program.args(["-c", &script, PROGRAM, "serve"]).stdin(stdin);
        let output = program.output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(word) && told.lines().count() == 1, "{told}");
    }
}

/// The variables of another process, which a shell or a unit file has passed on.
#[test]
fn a_socket_for_another_process_is_left_alone() {
    let mut program = Command::new(PROGRAM);
    program.env("LISTEN_FDS", "1").env("LISTEN_PID", "1").stdin(Stdio::null());
    let server = Server::launch(program, &[], &[]);
    assert_eq!(visit(server.address), 200);
    assert_eq!(server.stop().code, Some(0));
}
