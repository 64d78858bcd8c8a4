//! The failure that started it all, told with the simulator's own pieces.

use gapless::stream::Retention;
use gapless::stream::resume::Class;

use crate::client::Client;
use crate::connection::Role;
use crate::cursor::{Place, Presented};
use crate::world::{Logical, Shape, World};

/// Bytes of one event on the wire: `id: TOKEN.NNN`, `data: 0/NNN/x`, line ends.
const EVENT_BYTES: u64 = 4 + 24 + 4 + 1 + 6 + 7 + 2;

/// 100..140 are logged; the socket stalls after 118; the old socket's last drain moves the ring
/// head to 124; the client reconnects with 118. It must see 119, 120, ... 140, 141.
#[test]
fn ring_head_at_124_client_at_118() {
    let keep = Retention { bytes: u64::MAX, events: u64::MAX, age: None };
    let mut world = World::empty(1, Shape::plain(keep));
    world.streams.push(Logical::new(0));
    world.clients.push(Client::new(0, 0));
    world.burst(0, 99);
    world.connect(0, None);
    for _ in 0..10 {
        world.calm_step(0);
        world.check();
    }
    assert_eq!((world.clients[0].seen(), world.streams[0].stream.confirmed()), (99, 99));

    // 100..=140 are handed over; the client's process reads 100..=118 and stalls.
    world.burst(0, 41);
    world.pump(0, 1, u64::MAX);
    world.conns[0].socket.take(u64::MAX);
    world.conns[0].complete(&mut world.coverage);
    let before = world.conns[0].socket.accepted();
    let chunk_tail = 2;
    let end_of = |number: u64| before - chunk_tail - (140 - number) * EVENT_BYTES;
    let read_before = before - chunk_tail - 41 * EVENT_BYTES - 10;
    // The client's kernel takes and acknowledges 123 events and a half.
    world.conns[0].socket.deliver(end_of(123) + 13 - read_before, &mut world.coverage);
    world.conns[0].socket.ack(u64::MAX);
    world.read(0, end_of(118) - read_before);
    assert_eq!(world.clients[0].last, Some(Place::new(0, 0, 118)));

    // It comes back on a new connection; the old socket's last drain moves the head to 124.
    world.drop_conn(0);
    world.connect(0, world.clients[0].last.map(Presented::from));
    world.serve(1);
    assert!(matches!(world.conns[0].role, Role::Fenced { .. }));
    world.close_fenced(0);
    assert_eq!(world.streams[0].stream.confirmed(), 123);
    world.finish(1);
    world.burst(0, 1);
    for _ in 0..10 {
        world.calm_step(1);
        world.check();
    }
    assert!(world.coverage.has(Class::RingAhead));
    let seen: Vec<_> = world.clients[0].history.iter().map(|place| place.number).collect();
    let resumed = seen.rsplitn(2, |&number| number == 118).next().unwrap_or_default();
    assert_eq!(resumed, (119..=141).collect::<Vec<_>>());
}
