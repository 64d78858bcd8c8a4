//! `gapless log` as an operator runs it: what it prints where, and its exit code.

use gapless::store::directory::Directory;
use gapless::store::meta::Meta;

use crate::client::{NEWEST, Session};
use crate::data::Data;
use crate::numbered::{self, expect, flood, primed, priming_id};
use crate::server::Server;

/// A directory that has been used, of two shards in the epoch 4.
fn used(name: &str) -> Data {
    let data = Data::new(name);
    let mut directory = Directory::open(data.path().as_ref()).expect("made");
    let meta = Meta { generation: 1, shards: 2, epoch: 4, runs: 1, key: [0; 32] };
    directory.replace_meta(meta).expect("written");
    directory.make_generation(1, 2).expect("made");
    data
}

#[test]
fn a_sound_directory_is_0_and_a_damaged_one_1() {
    let used = used("tool-exit");
    let (code, told, errors) = used.log("check", &[]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(told.contains("2 shards, epoch 4") && told.ends_with("sound\n"), "{told}");
    let (code, told, _) = used.log("new-epoch", &[]);
    assert_eq!(code, Some(0));
    assert!(told.starts_with("epoch 4 -> 5"), "{told}");

    std::fs::write(used.join("g1/shard-1/core"), "dumped").expect("written");
    let (code, _, errors) = used.log("check", &[]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("core was not put there by gapless"), "{errors}");
    std::fs::write(used.join("meta"), "{}").expect("written");
    let (code, told, errors) = used.log("dump", &[]);
    assert_eq!((code, told.as_str()), (Some(1), ""));
    assert!(errors.contains("was not written by gapless"), "{errors}");
}

#[test]
fn a_directory_in_use_can_be_dumped_and_not_changed() {
    let used = used("tool-lock");
    let _held = Directory::open(used.path().as_ref()).expect("locked");
    let user = format!("in use by process {}", std::process::id());
    for action in ["check", "new-epoch"] {
        let (code, told, errors) = used.log(action, &[]);
        assert_eq!((code, told.as_str()), (Some(1), ""), "{action}");
        assert!(errors.contains(&user), "{action}: {errors}");
    }
    let (code, told, _) = used.log("dump", &[]);
    assert_eq!(code, Some(0));
    assert!(told.starts_with("# ") && told.contains(&user), "{told}");
}

/// What a server that was killed, and one that ended as planned, leave behind.
#[test]
fn what_a_server_left_is_sound_and_a_new_epoch_refuses_its_cursors() {
    for (name, signal, ending) in [
        ("tool-killed", libc::SIGKILL, "did not end as planned"),
        ("tool-ended", libc::SIGTERM, "ended as planned"),
    ] {
        let data = Data::new(name);
        let flags = ["--data-dir", data.path()];
        let server = Server::start(&flags);
        let mut session = Session::start(&server, NEWEST);
        let mut get = session.listen();
        priming_id(&mut get);
        numbered::push(&session, 3, 700);
        let cursor = expect(&mut get, 1, 3);
        let mut post = session.call("7", "stream", &flood(2, 10, 0));
        let call = primed(&mut post);
        expect(&mut post, 1, 2);
        drop((get, post));
        server.signal(signal);
        server.wait();

        let (code, told, errors) = data.log("check", &[]);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{told}");
        assert!(told.contains("2 shards, epoch 1") && told.ends_with("sound\n"), "{told}");
        assert!(told.contains("sessions: 1 live, 0 ended; streams: 3; events kept: 7"), "{told}");
        assert!(told.contains(ending), "{told}");
        let (code, told, errors) = data.log("dump", &["--bodies"]);
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        assert!(told.contains("notifications/message"), "bodies were asked for: {told}");
        assert!(!told.contains(&session.id), "ids were not");
        let events = told.lines().filter(|line| line.contains(" event ")).count();
        assert!(events >= 6, "{told}");

        // Looking has changed nothing.
        let server = Server::start(&flags);
        session.address = server.address;
        assert_eq!(primed(&mut session.resume(&cursor)), cursor);
        drop(server);

        let (code, told, _) = data.log("new-epoch", &[]);
        assert_eq!(code, Some(0));
        assert!(told.starts_with("epoch 1 -> 2"), "{told}");
        let server = Server::start(&flags);
        session.address = server.address;
        for stale in [&cursor, &call] {
            let text = session.resume(stale).answer().text();
            assert!(text.contains("-31003") && text.contains("epoch_changed"), "{text}");
        }
        // The session itself goes on, with cursors of its new epoch.
        numbered::push(&session, 1, 10);
        let mut get = session.listen();
        assert_ne!(numbered::token(&priming_id(&mut get)), numbered::token(&cursor));
        drop(get);
        assert_eq!(server.stop().code, Some(0));
    }
}
