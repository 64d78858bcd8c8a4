//! Children over stdio: what they may do wrong, and that none of it hangs or leaves anything.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gapless::limits::{LINE_OVERHEAD_BYTES, Limits};
use gapless::sys::uring;
use gapless::upstream::child::{Child, ChildEvents};
use gapless::upstream::spawner::{CommandSpec, Spawner};
use monoio::time::{sleep, timeout};

/// What a child was heard to do.
#[derive(Default)]
struct Heard {
    lines: RefCell<Vec<Vec<u8>>>,
    too_long: RefCell<Vec<(usize, Vec<u8>)>>,
    written: Cell<usize>,
    exits: RefCell<Vec<String>>,
}

impl ChildEvents for Heard {
    fn line(&self, line: &[u8]) {
        assert!(self.exits.borrow().is_empty(), "the exit is told last");
        self.lines.borrow_mut().push(line.to_vec());
    }

    fn line_too_long(&self, bytes_so_far: usize, head: &[u8]) {
        assert!(self.exits.borrow().is_empty(), "the exit is told last");
        self.too_long.borrow_mut().push((bytes_so_far, head.to_vec()));
    }

    fn written(&self, bytes: usize) {
        assert!(self.exits.borrow().is_empty(), "the exit is told last");
        self.written.set(self.written.get() + bytes);
    }

    fn exited(&self, how: &str) {
        self.exits.borrow_mut().push(how.to_owned());
    }
}

impl Heard {
    fn texts(&self) -> Vec<String> {
        self.lines.borrow().iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }

    /// Waits until so many lines were heard.
    async fn lines(&self, count: usize) {
        eventually(|| self.lines.borrow().len() >= count).await;
    }

    /// How it ended; asserts that this was told once.
    fn how(&self) -> String {
        let exits = self.exits.borrow();
        assert_eq!(exits.len(), 1, "the exit is told once");
        exits[0].clone()
    }
}

async fn eventually(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "it does not come");
        sleep(Duration::from_millis(2)).await;
    }
}

fn limits() -> Limits {
    Limits { child_grace: Duration::from_millis(300), ..Limits::default() }
}

fn shell(script: &str) -> Arc<CommandSpec> {
    Arc::new(CommandSpec {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        ..Default::default()
    })
}

async fn start(spawner: &Spawner, script: &str, limits: &Limits) -> (Child, Rc<Heard>) {
    let pipes = spawner.spawn(shell(script)).await.expect("spawned");
    let heard = Rc::new(Heard::default());
    let child = Child::start(pipes, limits, heard.clone(), "test".to_owned()).expect("started");
    (child, heard)
}

/// The end, which must come within a time that only an endless wait exceeds.
async fn end_of(child: &Child) {
    timeout(Duration::from_secs(20), child.closed()).await.expect("it ends");
    assert!(!child.is_running());
}

/// Runs a test on a runtime like a shard's.
fn on_a_shard<F: Future<Output = ()>>(test: impl FnOnce(Spawner) -> F + Send + 'static) {
    let shard = std::thread::spawn(move || {
        let spawner = Spawner::start().expect("a thread");
        monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
            .with_entries(256)
            .uring_builder(uring::builder())
            .enable_timer()
            .build()
            .expect("a runtime")
            .block_on(test(spawner));
    });
    if let Err(panic) = shard.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Whether a process runs; a zombie, whose reaping is somebody else's duty, does not.
fn runs(pid: &str) -> bool {
    std::fs::read_to_string(PathBuf::from("/proc").join(pid).join("stat"))
        .is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z')))
}

/// Children of this process, zombies included.
fn children() -> usize {
    let own = std::process::id().to_string();
    let parent = |stat: String| {
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1).map(str::to_owned))
    };
    let processes = std::fs::read_dir("/proc").expect("listed").flatten();
    processes
        .filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok())
        .filter(|stat| parent(stat.clone()).is_some_and(|parent| parent == own))
        .count()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("listed").count()
}

#[test]
fn lines_go_in_and_come_out_in_order_until_the_child_is_closed() {
    on_a_shard(|spawner| async move {
        let (child, heard) = start(&spawner, "exec cat", &limits()).await;
        let sent: Vec<String> = (0..1000).map(|at| format!("{{\"n\":{at}}}")).collect();
        let mut bytes = 0;
        for line in &sent {
            bytes += line.len() + 1 + LINE_OVERHEAD_BYTES;
            child.send(format!("{line}\n").into_bytes());
        }
        heard.lines(sent.len()).await;
        assert_eq!(heard.texts(), sent);
        assert_eq!(heard.written.get(), bytes);
        assert!(child.is_running());
        child.send(b"the last\r\n".to_vec());
        child.close();
        child.close();
        end_of(&child).await;
        assert_eq!(heard.texts().last().map(String::as_str), Some("the last"));
        assert_eq!(heard.how(), "exit status 0");
    });
}

#[test]
fn five_mebibytes_in_one_line_pass_whole_and_in_pieces() {
    on_a_shard(|spawner| async move {
        const SIZE: usize = 5 << 20;
        let (child, heard) = start(&spawner, "exec cat", &limits()).await;
        let mut line = vec![b'x'; SIZE];
        line.push(b'\n');
        child.send(line.clone());
        heard.lines(1).await;
        for piece in line.chunks(4096) {
            child.send(piece.to_vec());
        }
        heard.lines(2).await;
        for line in &*heard.lines.borrow() {
            assert!(line.len() == SIZE && line.iter().all(|byte| *byte == b'x'));
        }
        let pieces = 1 + line.len().div_ceil(4096);
        assert_eq!(heard.written.get(), 2 * line.len() + pieces * LINE_OVERHEAD_BYTES);
        child.close();
        end_of(&child).await;
        assert!(heard.too_long.borrow().is_empty());
    });
}

#[test]
fn after_a_line_over_the_limit_the_next_one_is_heard() {
    on_a_shard(|spawner| async move {
        let limits = Limits { event_bytes: 100_000, ..limits() };
        let script = "printf '{\"id\":7,'; head -c 300000 /dev/zero | tr '\\0' x; echo; echo good; \
                      head -c 100000 /dev/zero | tr '\\0' y; echo; printf unfinished";
        let (child, heard) = start(&spawner, script, &limits).await;
        end_of(&child).await;
        let too_long = heard.too_long.borrow();
        assert_eq!(too_long.len(), 1);
        assert!(too_long[0].0 > 100_000 && too_long[0].1.starts_with(b"{\"id\":7,xx"));
        assert_eq!(too_long[0].1.len(), 512);
        let lines = heard.lines.borrow();
        assert_eq!(lines.len(), 3);
        assert_eq!((&*lines[0], &*lines[2]), (&b"good"[..], &b"unfinished"[..]));
        assert_eq!(lines[1].len(), 100_000);
    });
}

#[test]
fn junk_is_passed_on_as_lines_and_a_flood_of_stderr_does_not_block() {
    on_a_shard(|spawner| async move {
        let script = r"printf 'Server running\n\n   \n\033[32mok\n\377\376\n'
                       head -c 2097152 /dev/zero | tr '\0' e >&2
                       echo answer; exec cat";
        let (child, heard) = start(&spawner, script, &limits()).await;
        heard.lines(6).await;
        let lines = heard.lines.borrow().clone();
        assert_eq!(lines[0], b"Server running");
        assert_eq!((&*lines[1], &*lines[2]), (&b""[..], &b"   "[..]));
        assert_eq!((&*lines[4], &*lines[5]), (&b"\xff\xfe"[..], &b"answer"[..]));
        child.close();
        end_of(&child).await;
        assert_eq!(heard.how(), "exit status 0");
    });
}

#[test]
fn a_child_that_ignores_the_end_of_stdin_and_sigterm_is_killed_in_bounded_time() {
    on_a_shard(|spawner| async move {
        let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
        let (child, heard) = start(&spawner, script, &limits()).await;
        heard.lines(1).await;
        let began = Instant::now();
        child.close();
        end_of(&child).await;
        assert_eq!(heard.how(), "signal 9");
        assert!(began.elapsed() >= 2 * limits().child_grace, "both graces were given");
    });
}

#[test]
fn a_child_that_ignores_the_end_of_stdin_gets_sigterm() {
    on_a_shard(|spawner| async move {
        let script = "trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep 0.05; done";
        let (child, heard) = start(&spawner, script, &limits()).await;
        heard.lines(1).await;
        child.close();
        end_of(&child).await;
        assert_eq!(heard.texts(), ["ready", "bye"]);
        assert_eq!(heard.how(), "exit status 4");
    });
}

#[test]
fn grandchildren_neither_survive_nor_hold_up_the_end() {
    on_a_shard(|spawner| async move {
        // One holds stdout, one holds nothing, and one has left the group and holds stdout.
        let script = "sleep 100 & echo $!; sleep 101 >/dev/null 2>&1 & echo $!
                      setsid sleep 5 & echo last; exit 3";
        let (child, heard) = start(&spawner, script, &limits()).await;
        let began = Instant::now();
        end_of(&child).await;
        assert!(began.elapsed() < Duration::from_secs(4), "waited for {:?}", began.elapsed());
        assert_eq!(heard.how(), "exit status 3");
        let lines = heard.texts();
        assert_eq!(lines.len(), 3);
        eventually(|| !runs(&lines[0]) && !runs(&lines[1])).await;
    });
}

#[test]
fn what_a_pipeline_still_passes_on_after_the_exit_is_heard() {
    on_a_shard(|spawner| async move {
        let script = "(sleep 0.05; echo late) & echo early; exit 0";
        let (child, heard) = start(&spawner, script, &limits()).await;
        end_of(&child).await;
        assert_eq!(heard.texts(), ["early", "late"]);
    });
}

#[test]
fn a_program_that_does_not_exist_and_one_that_exits_at_once_are_told_at_once() {
    on_a_shard(|spawner| async move {
        let command = CommandSpec { program: "no-such-program".into(), ..Default::default() };
        let error = spawner.spawn(Arc::new(command)).await.expect_err("not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);

        let began = Instant::now();
        let (child, heard) = start(&spawner, "echo broken >&2; exit 3", &limits()).await;
        child.send(vec![b'x'; 100_000]);
        end_of(&child).await;
        assert!(began.elapsed() < Duration::from_secs(1), "it took {:?}", began.elapsed());
        assert_eq!(heard.how(), "exit status 3");
        let counted = 100_000 + LINE_OVERHEAD_BYTES;
        assert_eq!(heard.written.get(), counted, "lost bytes count as done");
        child.send(b"too late\n".to_vec());
        child.close();
        child.kill();
    });
}

#[test]
fn a_stdin_that_nobody_reads_blocks_neither_the_answers_nor_the_end() {
    on_a_shard(|spawner| async move {
        let script = "echo one; sleep 0.1; echo two; sleep 100";
        let (child, heard) = start(&spawner, script, &limits()).await;
        for _ in 0..1024 {
            child.send(vec![b'x'; 1024]);
        }
        heard.lines(2).await;
        let written = heard.written.get();
        let all = 1024 * (1024 + LINE_OVERHEAD_BYTES);
        assert!(0 < written && written < all, "{written} bytes fit into the pipe");
        child.close();
        end_of(&child).await;
        assert_eq!(heard.how(), "signal 15");
        assert_eq!(heard.written.get(), all);
    });
}

#[test]
fn a_closed_stdin_is_not_the_end_but_a_closed_stdout_is() {
    on_a_shard(|spawner| async move {
        let script = "exec <&-; echo ready; sleep 0.2; echo alive; exec >&-; sleep 100";
        let (child, heard) = start(&spawner, script, &limits()).await;
        heard.lines(1).await;
        child.send(b"nobody reads this\n".to_vec());
        eventually(|| heard.written.get() == 18 + LINE_OVERHEAD_BYTES).await;
        end_of(&child).await;
        assert_eq!(heard.texts(), ["ready", "alive"]);
        assert_eq!(heard.how(), "signal 15");
    });
}

#[test]
fn a_child_that_floods_lets_timers_and_other_children_run() {
    on_a_shard(|spawner| async move {
        let (flood, flooded) = start(&spawner, "exec yes", &limits()).await;
        flooded.lines(1000).await;
        let (echo, heard) = start(&spawner, "exec cat", &limits()).await;
        for round in 0..20 {
            echo.send(b"ping\n".to_vec());
            heard.lines(round + 1).await;
            flooded.lines.borrow_mut().clear();
        }
        flooded.lines(1000).await;
        flood.kill();
        echo.close();
        end_of(&flood).await;
        end_of(&echo).await;
        assert_eq!(flooded.how(), "signal 9");
    });
}

/// In a process of its own: it counts the process's descriptors and children.
#[test]
fn two_hundred_children_leave_no_descriptor_and_no_process() {
    let counted = "stdio_child::two_hundred_children_in_a_process_of_their_own";
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "--ignored", "--nocapture", counted])
        .output()
        .expect("ran");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{complained}");
}

#[test]
#[ignore = "run by two_hundred_children_leave_no_descriptor_and_no_process"]
fn two_hundred_children_in_a_process_of_their_own() {
    on_a_shard(|spawner| async move {
        let round = async |at: usize| {
            let (child, heard) = start(&spawner, "echo ready; exec cat", &limits()).await;
            match at % 4 {
                // Ends: asked for, by the last handle's drop, by force, and never used at all.
                0 => child.close(),
                1 => heard.lines(1).await,
                2 => child.kill(),
                _ => drop(spawner.spawn(shell("exec cat")).await.expect("spawned")),
            }
            drop(child);
            eventually(|| !heard.exits.borrow().is_empty()).await;
        };
        for at in 0..8 {
            round(at).await;
        }
        sleep(Duration::from_millis(50)).await;
        let (open, alive) = (descriptors(), children());
        assert_eq!(alive, 0);
        for at in 0..200 {
            round(at).await;
        }
        eventually(|| descriptors() <= open && children() == 0).await;
    });
}

#[test]
fn a_drain_takes_the_time_of_one_child() {
    on_a_shard(|spawner| async move {
        let began = Instant::now();
        let mut all = Vec::new();
        for _ in 0..20 {
            all.push(start(&spawner, "exec sleep 100", &limits()).await);
        }
        // The drain of a shard: all are asked at once, so the time is that of one.
        for (child, _) in &all {
            child.close();
        }
        for (child, heard) in &all {
            end_of(child).await;
            assert_eq!(heard.how(), "signal 15");
        }
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    });
}

#[test]
fn a_panic_while_a_line_is_heard_kills_the_child_and_tells_the_end() {
    /// Cannot stand the line "bad".
    #[derive(Default)]
    struct Delicate(RefCell<Vec<String>>);

    impl ChildEvents for Delicate {
        fn line(&self, line: &[u8]) {
            assert_ne!(line, b"bad", "on purpose");
        }
        fn line_too_long(&self, _bytes_so_far: usize, _head: &[u8]) {}
        fn written(&self, _bytes: usize) {}
        fn exited(&self, how: &str) {
            self.0.borrow_mut().push(how.to_owned());
        }
    }

    on_a_shard(|spawner| async move {
        let pipes = spawner.spawn(shell("echo good; echo bad; sleep 100")).await.expect("spawned");
        let delicate = Rc::new(Delicate::default());
        let child = Child::start(pipes, &limits(), delicate.clone(), "test".to_owned());
        let child = child.expect("started");
        let pid = child.pid().to_string();
        end_of(&child).await;
        assert_eq!(delicate.0.borrow().len(), 1);
        eventually(|| !runs(&pid)).await;
    });
}
