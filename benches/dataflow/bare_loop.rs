//! Runs timely with the exchanges and the loop of the engine and nothing else.

use std::rc::Rc;
use std::sync::Mutex;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use timely::Config;
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::operators::generic::operator::source;
use timely::dataflow::operators::generic::{Operator, OutputBuilder, OutputBuilderSession};
use timely::dataflow::operators::vec::Map;
use timely::dataflow::operators::{ConnectLoop, Feedback, Probe};
use timely::dataflow::{ProbeHandle, Scope, StreamVec};
use timely::progress::operate::FrontierInterest;
use timely::scheduling::SyncActivator;
use timely::worker::Worker;

use super::{PARTITIONS, Sent};

/// A turn whose bytes are moved and never read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    conversation: u64,
    value: Vec<u8>,
}

/// Returns the turns in batches of one partition, as the engine gets them.
pub(crate) fn batches(records: &[Sent]) -> Vec<(usize, Vec<Turn>)> {
    let mut batches = Vec::new();
    for chunk in records.chunks(1_000) {
        let mut of: [Vec<Turn>; PARTITIONS] = Default::default();
        for (partition, key, value) in chunk {
            of[*partition].push(Turn { conversation: hash(key), value: value.clone() });
        }
        batches.extend(of.into_iter().enumerate());
    }
    batches
}

fn hash(key: &[u8]) -> u64 {
    let hash = u64::from(crc32fast::hash(key));
    hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

/// Makes one pass: starts the workers, serves the turns and ends the workers.
pub(crate) fn pass(workers: usize, in_flight: usize, batches: Vec<(usize, Vec<Turn>)>) {
    let (outlet, ended) = crossbeam_channel::unbounded::<Turn>();
    let (inlets, receivers): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| crossbeam_channel::unbounded::<Turn>()).unzip();
    let (ready, started) = crossbeam_channel::unbounded();
    let outlet = Mutex::new(Some(outlet));
    let of_worker = move |worker: &mut Worker| {
        let sink = outlet.lock().expect("not poisoned").clone().expect("not taken");
        let start = Instant::now();
        let inlet = receivers[worker.index()].clone();
        let (probe, waker) = install(worker, inlet, sink, start);
        ready.send((worker.index(), waker)).expect("somebody waits");
        while !probe.done() {
            worker.step_or_park(None);
        }
    };
    let guards = timely::execute(Config::process(workers), of_worker).expect("workers");
    let mut wakers: Vec<_> = started.iter().take(workers).collect();
    wakers.sort_by_key(|(index, _)| *index);

    let (mut sent, mut done) = (0, 0);
    for (partition, turns) in batches {
        let worker = partition % workers;
        sent += turns.len();
        for turn in turns {
            inlets[worker].send(turn).expect("a worker");
        }
        wakers[worker].1.activate().expect("a worker");
        while sent - done > in_flight {
            ended.recv().expect("a turn");
            done += 1;
        }
    }
    drop(inlets);
    for (_, waker) in &wakers {
        // A worker that has ended already needs no waking.
        let _ = waker.activate();
    }
    guards.join().into_iter().for_each(|worker| worker.expect("a clean end"));
    done += ended.try_iter().count();
    assert_eq!(done, sent, "every turn ends");
}

fn install(
    worker: &mut Worker,
    inlet: Receiver<Turn>,
    outlet: Sender<Turn>,
    start: Instant,
) -> (ProbeHandle<u64>, SyncActivator) {
    worker.dataflow::<u64, _, _>(|scope| {
        let (turns, waker) = inputs(scope, inlet, start);
        let (feedback, answers) = scope.feedback::<Vec<Turn>>(1);
        let (asked, finished) = sequence(turns, answers);
        asked.map(|turn| turn).connect_loop(feedback);
        let probe = ProbeHandle::new();
        let sunk = finished.unary(Pipeline, "sink", move |_, _| {
            move |input,
                      output: &mut OutputBuilderSession<
                    '_,
                    u64,
                    CapacityContainerBuilder<Vec<()>>,
                >| {
                    input.for_each(|capability, turns| {
                        let _progress = output.session(&capability);
                        for turn in turns.drain(..) {
                            outlet.send(turn).expect("somebody counts");
                        }
                    });
                }
        });
        sunk.probe_with(&probe);
        (probe, waker)
    })
}

fn inputs<'scope>(
    scope: Scope<'scope, u64>,
    inlet: Receiver<Turn>,
    start: Instant,
) -> (StreamVec<'scope, u64, Turn>, SyncActivator) {
    let mut waker = None;
    let stream = source(scope, "inputs", |capability, info| {
        let again = scope.activator_for(Rc::clone(&info.address));
        waker = Some(scope.worker().sync_activator_for(info.address.to_vec()));
        let mut capability = Some(capability);
        move |output: &mut OutputBuilderSession<'_, u64, CapacityContainerBuilder<Vec<Turn>>>| {
            let Some(held) = capability.as_mut() else { return };
            let epoch = start.elapsed().as_millis() as u64 / 100;
            if epoch > *held.time() {
                held.downgrade(&epoch);
            }
            let mut session = output.session(&*held);
            for _ in 0..1_024 {
                match inlet.try_recv() {
                    Ok(turn) => session.give(turn),
                    Err(TryRecvError::Empty) => return,
                    Err(TryRecvError::Disconnected) => {
                        drop(session);
                        capability = None;
                        return;
                    }
                }
            }
            again.activate();
        }
    });
    (stream, waker.expect("the source was built above"))
}

/// Passes on one turn of a conversation at a time; the others wait for its return.
fn sequence<'scope>(
    turns: StreamVec<'scope, u64, Turn>,
    answers: StreamVec<'scope, u64, Turn>,
) -> (StreamVec<'scope, u64, Turn>, StreamVec<'scope, u64, Turn>) {
    let mut builder = OperatorBuilder::new("sequence".to_owned(), turns.scope());
    let mut turns = builder.new_input(turns, Exchange::new(|turn: &Turn| turn.conversation));
    let mut answers = builder.new_input(answers, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    builder.set_notify_for(1, FrontierInterest::Never);
    let (asked, asked_stream) = builder.new_output();
    let (finished, finished_stream) = builder.new_output();
    let (mut asked, mut finished) = (OutputBuilder::from(asked), OutputBuilder::from(finished));
    builder.build(move |_| {
        // The waiting turns of each conversation with a turn that is being answered.
        let mut busy: FxHashMap<u64, VecDeque<Turn>> = FxHashMap::default();
        move |_| {
            let (mut asked, mut finished) = (asked.activate(), finished.activate());
            answers.for_each(|capability, answers| {
                let mut asked = asked.session(&capability);
                let mut finished = finished.session(&capability);
                for turn in answers.drain(..) {
                    match busy.get_mut(&turn.conversation).and_then(VecDeque::pop_front) {
                        Some(next) => asked.give(next),
                        None => drop(busy.remove(&turn.conversation)),
                    }
                    finished.give(turn);
                }
            });
            turns.for_each(|capability, turns| {
                let mut asked = asked.session(&capability);
                for turn in turns.drain(..) {
                    match busy.get_mut(&turn.conversation) {
                        Some(waiting) => waiting.push_back(turn),
                        None => {
                            busy.insert(turn.conversation, VecDeque::new());
                            asked.give(turn);
                        }
                    }
                }
            });
        }
    });
    (asked_stream, finished_stream)
}
