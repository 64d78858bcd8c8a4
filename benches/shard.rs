//! What crosses threads on the way to a shard: the producers' ring and the mailbox.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gapless::limits::PRODUCER_RING_SLOTS;
use gapless::shard::doorbell::Doorbell;
use gapless::shard::mailbox::Mailbox;
use gapless::shard::wheel::Wheel;
use gapless::sys::mpsc::Ring;

/// Items of one batch, as a drain takes them.
const BATCH: u64 = PRODUCER_RING_SLOTS as u64;

fn ring(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Elements(BATCH));
    let (producer, mut consumer) = Ring::with_slots(PRODUCER_RING_SLOTS);
    group.bench_function("push_pop_batch", |b| {
        b.iter(|| {
            for item in 0..BATCH {
                producer.try_push(black_box(item)).expect("the ring holds a batch");
            }
            while let Some(item) = consumer.pop() {
                black_box(item);
            }
            consumer.wake_waiters();
        });
    });
    group.finish();
}

fn mailbox(c: &mut Criterion) {
    let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
        .build()
        .expect("io_uring is available");
    let mut group = c.benchmark_group("mailbox");
    group.throughput(Throughput::Elements(BATCH));
    let mailbox = Mailbox::new(BATCH as usize).expect("a descriptor");
    runtime.block_on(async {
        let mut receiver = mailbox.receiver().expect("the first");
        group.bench_function("send_pop_batch", |b| {
            b.iter(|| {
                for item in 0..BATCH {
                    mailbox.try_send(black_box(item)).expect("the mailbox holds a batch");
                }
                while let Some(item) = receiver.pop() {
                    black_box(item);
                }
            });
        });
    });
    group.finish();
}

fn doorbell(c: &mut Criterion) {
    let bell = Doorbell::new().expect("a descriptor");
    c.bench_function("doorbell/ring_awake", |b| b.iter(|| bell.ring()));
    // The step from idle to busy: one write(2).
    c.bench_function("doorbell/arm_and_ring", |b| {
        b.iter(|| {
            bell.arm();
            bell.ring();
        });
    });
}

fn wheel(c: &mut Criterion) {
    const DEADLINES: u32 = 10_000;
    let start = std::time::Instant::now();
    let day = std::time::Duration::from_hours(24);
    let mut group = c.benchmark_group("wheel");
    group.throughput(Throughput::Elements(u64::from(DEADLINES)));
    group.bench_function("insert_and_expire_over_a_day", |b| {
        b.iter_batched_ref(
            || Wheel::new(start),
            |wheel| {
                for key in 0..DEADLINES {
                    wheel.insert(start + day / DEADLINES * key, key);
                }
                wheel.expire(start + day, &mut |key| {
                    black_box(key);
                });
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, ring, mailbox, doorbell, wheel);
criterion_main!(benches);
