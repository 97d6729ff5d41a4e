//! Tests of where reading begins in a partition without a committed offset. The client must not
//! look that up by itself: if a seek overtook the answer, the client would look up again half a
//! second later, in the middle of reading, and read everything again (or, with `start = "latest"`,
//! skip what had come since).

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Condvar, Mutex};

use super::*;

/// The request type by which a client looks up offsets.
const LIST_OFFSETS: u16 = 2;

/// A relay before a broker that can hold back answers to chosen requests.
#[derive(Default)]
struct Relay(Mutex<Kept>, Condvar);

#[derive(Default)]
struct Kept {
    /// The content of lookups that are held back; empty to hold none.
    topic: String,
    /// The numbers of such lookups, answered or not.
    lookups: HashSet<[u8; 4]>,
    /// Whether their answers are passed on.
    flows: bool,
}

impl Relay {
    /// Starts a relay. A broker names its own address in answers, so the relay replaces it.
    fn start(bootstrap: &str, topic: &str) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let kept = Kept { topic: topic.to_owned(), ..Kept::default() };
        let relay = Arc::new(Self(Mutex::new(kept), Condvar::new()));
        let (shared, broker) = (Arc::clone(&relay), bootstrap.to_owned());
        // The threads end with their connections, the first with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(broker) = TcpStream::connect(&broker) else { return };
                let port = client.local_addr().unwrap().port();
                let both = || (client.try_clone().unwrap(), broker.try_clone().unwrap());
                let (relay, (from, to)) = (Arc::clone(&shared), both());
                std::thread::spawn(move || forward(from, to, |frame| relay.asked(frame)));
                let (relay, (to, from)) = (Arc::clone(&shared), both());
                let named = [from.peer_addr().unwrap().port(), port].map(name);
                std::thread::spawn(move || {
                    forward(from, to, |frame| {
                        relay.answered(frame);
                        rename(frame, &named);
                    });
                });
            }
        });
        (relay, address)
    }

    /// Reads a request: its type, version, number, client and content.
    fn asked(&self, frame: &[u8]) {
        let mut kept = self.0.lock().unwrap();
        let topic = kept.topic.as_bytes();
        let is_kept = !topic.is_empty()
            && frame[..2] == LIST_OFFSETS.to_be_bytes()
            && frame.windows(topic.len()).any(|window| window == topic);
        if is_kept {
            kept.lookups.insert(frame[4..8].try_into().unwrap());
        }
    }

    fn answered(&self, frame: &[u8]) {
        let kept = self.0.lock().unwrap();
        let goes_on = |kept: &mut Kept| !kept.flows && kept.lookups.contains(&frame[..4]);
        drop(self.1.wait_while(kept, goes_on).unwrap());
    }

    /// Holds back no further requests.
    fn keep_no_more(&self) {
        self.0.lock().unwrap().topic.clear();
    }

    fn release(&self) {
        self.0.lock().unwrap().flows = true;
        self.1.notify_all();
    }

    fn has_lookups(&self) -> bool {
        !self.0.lock().unwrap().lookups.is_empty()
    }
}

/// The address of a broker on this machine, as its answers have it.
fn name(port: u16) -> Vec<u8> {
    [&b"127.0.0.1"[..], &u32::from(port).to_be_bytes()].concat()
}

fn rename(frame: &mut [u8], [old, new]: &[Vec<u8>; 2]) {
    let places = frame.windows(old.len()).enumerate();
    let places = places.filter(|(_, window)| window == old).map(|(at, _)| at);
    for at in places.collect::<Vec<_>>() {
        frame[at..at + new.len()].copy_from_slice(new);
    }
}

/// Passes frames on until either side closes.
fn forward(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&mut [u8])) {
    let mut length = [0; 4];
    while from.read_exact(&mut length).is_ok() {
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        if from.read_exact(&mut frame).is_err() {
            break;
        }
        look(&mut frame);
        if to.write_all(&[&length[..], &frame].concat()).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Joins a group without restoring anything yet.
fn joined(bed: &mut Topics) -> (KafkaConsumer, KafkaProducer) {
    let (mut consumer, producer) = bed.join("a");
    let begun = Instant::now();
    while !matches!(consumer.poll(bed.wait()).unwrap(), Event::Assigned(_)) {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is assigned");
    }
    (consumer, producer)
}

/// Polls for this long, or until the condition holds. No record may come meanwhile.
fn poll(consumer: &mut KafkaConsumer, time: Duration, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < time && !so() {
        let event = consumer.poll(Duration::from_millis(20)).unwrap();
        assert!(matches!(&event, Event::Records(records) if records.is_empty()), "{event:?}");
    }
}

/// The offsets of partition 0 as they are delivered, with a pause after every batch, until so many
/// came and then for this long.
fn read(consumer: &mut KafkaConsumer, count: usize, further: Duration) -> Vec<i64> {
    let mut offsets = Vec::new();
    let (mut last, deadline) = (Instant::now(), Instant::now() + Duration::from_secs(60));
    while offsets.len() < count || last.elapsed() < further {
        assert!(Instant::now() < deadline, "{} of {count} came", offsets.len());
        match consumer.poll(Duration::from_millis(20)).unwrap() {
            Event::Records(records) if !records.is_empty() => {
                if offsets.len() < count {
                    last = Instant::now();
                }
                offsets.extend(records.iter().map(|record| record.offset));
                consumer.pause(0).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                consumer.resume(0).unwrap();
            }
            _ => {}
        }
    }
    offsets
}

fn filled(broker: &Broker, count: usize) -> Topics {
    let bed = Topics::fresh(broker);
    let turns = &bed.0.topics.turns;
    for _ in 0..count {
        bed.1.send(BaseRecord::<str, str>::to(turns).partition(0).key("k").payload("v")).unwrap();
    }
    bed.1.flush(REQUEST_TIMEOUT).unwrap();
    bed
}

pub(super) fn what_the_client_reads_again_is_passed_over(broker: &Broker) {
    let mut bed = filled(broker, 40);
    bed.0.poll_records = 10;
    let (mut consumer, _producer) = joined(&mut bed);
    restore(&mut consumer, 0).0.unwrap();
    consumer.resume(0).unwrap();
    let mut offsets = read(&mut consumer, 20, Duration::ZERO);
    let turns = &bed.0.topics.turns;
    consumer.client.seek(turns, 0, Offset::Offset(3), REQUEST_TIMEOUT).unwrap();
    let left = 40 - offsets.len();
    offsets.extend(read(&mut consumer, left, Duration::ZERO));
    assert!(offsets.iter().copied().eq(0..40), "{offsets:?}");
}

pub(super) fn a_seek_overtakes_no_lookup_of_the_client(broker: &Broker) {
    const COUNT: usize = 200;
    let mut bed = filled(broker, COUNT);
    bed.0.poll_records = 20;
    let (relay, address) = Relay::start(&broker.bootstrap, &bed.0.topics.turns);
    bed.0.bootstrap_servers = address;
    let (mut consumer, _producer) = joined(&mut bed);
    // If the client looks up by itself, it does so a tenth of a second after the assignment.
    poll(&mut consumer, Duration::from_secs(1), || relay.has_lookups());
    relay.keep_no_more();
    restore(&mut consumer, 0).0.unwrap();
    relay.release();
    // Wait for the answers that were held back and for the seek's own.
    poll(&mut consumer, Duration::from_millis(200), || false);
    consumer.resume(0).unwrap();
    let offsets = read(&mut consumer, COUNT, Duration::from_secs(1));
    assert!(offsets.iter().copied().eq(0..COUNT as i64), "{offsets:?}");
    assert!(!relay.has_lookups(), "the client looked up by itself where to begin");
}
