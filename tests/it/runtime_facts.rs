//! What this program rests on in monoio 0.2.4, io_uring and Linux TCP, each as a test.
//!
//! Some of these are faults that we work around. When one of those tests fails after an update,
//! the workaround that it names can go.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use gapless::shard::fairness::Yielder;
use gapless::sys::borrow::OwnsFd;
use gapless::sys::tcp::{self, How};
use gapless::sys::{accept, fds, listen, uring};
use monoio::buf::IoBufMut;
use monoio::fs::File;
use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};
use monoio::time::{sleep, timeout};

fn run<F: Future>(future: F) -> F::Output {
    monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
        .with_entries(64)
        .uring_builder(uring::builder())
        .enable_timer()
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// A client's and a server's end of one connection.
fn pair() -> (StdStream, StdStream) {
    let listener = StdListener::bind("127.0.0.1:0").expect("bound");
    let client = StdStream::connect(listener.local_addr().expect("an address")).expect("there");
    (client, listener.accept().expect("accepted").0)
}

/// Writes until the kernel takes no more for a while; returns the bytes taken.
fn fill(mut stream: &StdStream) -> u64 {
    stream.set_nonblocking(true).expect("set");
    let mut written = 0;
    let mut refusals = 0;
    while refusals < 20 {
        match stream.write(&[7; 16 * 1024]) {
            Ok(taken) => {
                written += taken as u64;
                refusals = 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refusals += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    written
}

/// monoio's own accept leaves the socket open in every child; ours does not.
#[test]
fn only_our_accept_sets_close_on_exec() {
    run(async {
        let socket = listen::listen("127.0.0.1:0".parse().expect("an address"), 16).expect("bound");
        let addr = listen::local_addr(socket.as_fd()).expect("an address");
        let listener = TcpListener::from_std(socket.into()).expect("taken");

        let _first = StdStream::connect(addr).expect("there");
        let (theirs, _) = listener.accept().await.expect("accepted");
        assert!(!fds::is_cloexec(theirs.borrow_fd()).expect("flags"));

        let _second = StdStream::connect(addr).expect("there");
        listener.readable(false).await.expect("one waits");
        let ours = accept::accept4(listener.borrow_fd()).expect("accepted").expect("one waits");
        assert!(fds::is_cloexec(ours.0.as_fd()).expect("flags"));
        assert!(accept::accept4(listener.borrow_fd()).expect("empty").is_none());
    });
}

#[test]
fn a_dropped_readable_loses_neither_bytes_nor_connections() {
    const BYTES: u8 = 200;
    let (mut client, server) = pair();
    let writer = std::thread::spawn(move || {
        for byte in 0..BYTES {
            client.write_all(&[byte]).expect("written");
            std::thread::sleep(Duration::from_millis(2));
        }
        client
    });
    let (got, dropped) = run(async move {
        let mut server = TcpStream::from_std(server).expect("taken");
        let (mut got, mut dropped) = (Vec::new(), 0);
        while got.len() < usize::from(BYTES) {
            if timeout(Duration::from_millis(1), server.readable(false)).await.is_err() {
                dropped += 1;
                continue;
            }
            let (read, buffer) = server.read(Vec::with_capacity(64)).await;
            assert_ne!(read.expect("read"), 0);
            got.extend(buffer);
        }
        (got, dropped)
    });
    drop(writer.join().expect("written"));
    assert_eq!(got, (0..BYTES).collect::<Vec<_>>());
    assert!(dropped > 0, "no future was dropped: nothing was shown");
}

#[test]
fn shutdown_ends_a_blocked_write_with_epipe() {
    let (_client_that_never_reads, server) = pair();
    run(async move {
        let mut server = TcpStream::from_std(server).expect("taken");
        let second = server.borrow_fd().try_clone_to_owned().expect("cloned");
        let writing = monoio::spawn(async move { server.write_all(vec![0; 64 << 20]).await.0 });
        sleep(Duration::from_millis(50)).await;
        tcp::shutdown(&second, How::Both).expect("shut down");
        let ended = timeout(Duration::from_secs(5), writing).await.expect("the write ended");
        assert_eq!(ended.expect_err("not all was written").kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn shutdown_of_reading_ends_a_pending_read_and_leaves_writing_alone() {
    let (mut client, server) = pair();
    run(async move {
        let mut server = TcpStream::from_std(server).expect("taken");
        let second = server.borrow_fd().try_clone_to_owned().expect("cloned");
        let reading = monoio::spawn(async move {
            let (read, _) = server.read(Vec::with_capacity(64)).await;
            (read, server)
        });
        sleep(Duration::from_millis(20)).await;
        tcp::shutdown(&second, How::Read).expect("shut down");
        let ended = timeout(Duration::from_secs(5), reading).await.expect("the read ended");
        let (read, mut server) = ended;
        assert_eq!(read.expect("the end of the stream"), 0);
        server.write_all(b"still here").await.0.expect("written");
    });
    let mut text = String::new();
    client.read_to_string(&mut text).expect("read");
    assert_eq!(text, "still here");
}

/// Whether a timer of 5 ms was served while a task was busy and gave way by `give_way`.
async fn timer_is_served<F: Future>(give_way: impl Fn() -> F) -> bool {
    let served = Rc::new(Cell::new(false));
    let timer = served.clone();
    drop(monoio::spawn(async move {
        sleep(Duration::from_millis(5)).await;
        timer.set(true);
    }));
    let end = Instant::now() + Duration::from_millis(200);
    while Instant::now() < end && !served.get() {
        give_way().await;
    }
    served.get()
}

/// Pending once, woken from within its own poll.
async fn wake_self() {
    let mut woken = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut woken, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The reason for `shard::fairness`.
#[test]
fn a_task_that_wakes_itself_starves_timers() {
    assert!(!run(timer_is_served(wake_self)));
}

#[test]
fn a_yield_through_the_ring_serves_timers() {
    assert!(run(async {
        let yielder = Yielder::new().expect("made");
        timer_is_served(|| yielder.yield_now()).await
    }));
}

#[test]
fn only_slice_mut_appends() {
    let (mut client, server) = pair();
    client.write_all(b"zz").expect("written");
    run(async move {
        let mut server = TcpStream::from_std(server).expect("taken");
        let mut head = Vec::with_capacity(64);
        head.extend_from_slice(b"HEAD");
        let capacity = head.capacity();
        let (read, slice) = server.read(head.slice_mut(4..capacity)).await;
        assert_eq!(read.expect("read"), 2);
        let head = slice.into_inner();
        assert_eq!(head, b"HEADzz");

        client.write_all(b"y").expect("written");
        let (read, head) = server.read(head).await;
        assert_eq!(read.expect("read"), 1);
        assert_eq!(head, b"y", "a read into a Vec begins at its start");
    });
}

/// The acknowledged bytes once they have not moved for 300 ms: the kernel's first window probes may
/// still get a segment through.
fn settled_bytes_acked(server: &StdStream) -> u64 {
    let end = Instant::now() + Duration::from_secs(10);
    let mut acked = tcp::bytes_acked(server).expect("a count");
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = tcp::bytes_acked(server).expect("a count");
        if now == acked {
            return acked;
        }
        assert!(Instant::now() < end, "it does not stall: {acked}, {now}");
        acked = now;
    }
}

#[test]
fn acknowledged_bytes_stall_at_the_peers_window() {
    let (mut client, server) = pair();
    let written = fill(&server);
    let acked = settled_bytes_acked(&server);
    assert!(0 < acked && acked < written / 2, "{acked} of {written}");

    // A client that reads moves it on.
    let mut read = vec![0; 2 << 20];
    client.read_exact(&mut read).expect("read");
    let end = Instant::now() + Duration::from_secs(5);
    while tcp::bytes_acked(&server).expect("a count") <= acked {
        assert!(Instant::now() < end, "nothing more was acknowledged");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_unsent_limit_holds_ring_writes_back() {
    const LIMIT: u32 = gapless::limits::NOTSENT_LOWAT_BYTES;
    let taken = |limited: bool| {
        let (_client_that_never_reads, server) = pair();
        run(async move {
            if limited {
                tcp::set_notsent_lowat(&server, LIMIT).expect("set");
            }
            let mut server = TcpStream::from_std(server).expect("taken");
            let mut taken = 0;
            loop {
                let write = server.write(vec![0; 16 * 1024]);
                // The dropped write takes its connection along: nothing is read from it again.
                match timeout(Duration::from_millis(100), write).await {
                    Ok((written, _)) => taken += written.expect("written"),
                    Err(_) => return taken,
                }
            }
        })
    };
    let (with, without) = (taken(true), taken(false));
    assert!(with < 1 << 20 && without > 2 * with, "{with} with the limit, {without} without");
}

/// What a client reads in all that begins to read only after the server's take-over steps, and
/// the acknowledged bytes at that moment.
fn read_after_take_over(linger_zero: bool) -> (u64, u64) {
    let (mut client, server) = pair();
    fill(&server);
    tcp::shutdown(&server, How::Both).expect("shut down");
    let snapshot = tcp::bytes_acked(&server).expect("a count");
    if linger_zero {
        tcp::linger_zero(&server).expect("set");
    }
    drop(server);
    client.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
    let (mut received, mut buffer) = (0, vec![0; 64 * 1024]);
    let mut resets = 0;
    loop {
        match client.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => received += read as u64,
            // What arrived before a reset may be read after the error.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && resets == 0 => resets = 1,
            Err(error) => panic!("{error}"),
        }
    }
    (received, snapshot)
}

#[test]
fn after_shutdown_and_linger_zero_nothing_arrives_beyond_the_snapshot() {
    let (received, snapshot) = read_after_take_over(true);
    assert!(received <= snapshot, "{received} bytes, {snapshot} acknowledged");
    // Without the second step the kernel goes on sending: the rule is needed.
    let (received, snapshot) = read_after_take_over(false);
    assert!(received > snapshot, "{received} bytes, {snapshot} acknowledged");
}

fn monoio_file(fd: impl Into<OwnedFd>) -> io::Result<File> {
    File::from_std(std::fs::File::from(fd.into()))
}

#[test]
fn a_childs_pipes_are_read_and_written_as_files_and_do_not_block_the_loop() {
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("spawned");
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    run(async move {
        let stdin = monoio_file(stdin.expect("piped")).expect("taken");
        let stdout = Rc::new(monoio_file(stdout.expect("piped")).expect("taken"));
        let pending = monoio::spawn({
            let stdout = stdout.clone();
            async move { stdout.read_at(vec![0; 64], 0).await }
        });
        // Timers go on while a read of the pipe waits.
        for _ in 0..5 {
            sleep(Duration::from_millis(1)).await;
        }
        stdin.write_all_at(b"a line\n".to_vec(), 0).await.0.expect("written");
        let (read, line) = pending.await;
        assert_eq!(&line[..read.expect("read")], b"a line\n");
        stdin.close().await.expect("closed");
        let (read, _) = stdout.read_at(vec![0; 64], 0).await;
        assert_eq!(read.expect("the end"), 0);
    });
    assert!(child.wait().expect("reaped").success());
}
