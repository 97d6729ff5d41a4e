mod oracle;
mod own_words;

use crossbeam_channel::Sender;
use proptest::prelude::*;
use timely::worker::Worker;
use turnstream_schemas::{Action, FactKey};

use super::super::relation::positive_name;
use super::super::{Change, Changes, ImportedFact, Upsert, normalise};
use super::*;
use crate::language::Lexicon;
use crate::linking::{LinkingConfig, Mention, link};
use crate::phrasings::{LeadsTo, Phrasing};
use crate::search::{SearchConfig, search};

use oracle::{check, say};

const CONCEPTS: [&str; 8] =
    ["dog", "dogs", "hot dog", "mustard", "ice cream", "ice", "new thing", "newer things"];
const RELATIONS: [&str; 3] = ["IsA", "NotDesires", "SoldAt"];
const SOURCES: [&str; 2] = ["base", "ours"];
const LANGUAGES: [&str; 2] = ["en", "fr"];

/// A statement by numbers: source, head, relation, tail.
type Statement = (usize, usize, usize, usize);
/// A language and a weight.
type Value = (usize, i8);

fn key((source, head, relation, tail): Statement) -> FactKey {
    FactKey {
        source: SOURCES[source].to_owned(),
        head: CONCEPTS[head].to_owned(),
        relation: RELATIONS[relation].to_owned(),
        tail: CONCEPTS[tail].to_owned(),
    }
}

fn change(statement: Statement, value: Option<Value>) -> Change {
    let upsert =
        value.map(|(language, weight)| Upsert::new(f32::from(weight), LANGUAGES[language]));
    Change { key: key(statement), upsert }
}

/// A fact by its names: head, relation, tail, source, language, weight bits, negated.
type Told = (String, String, String, String, String, u32, bool);

fn told(key: &FactKey, language: &str, weight: f32) -> Told {
    let FactKey { source, head, relation, tail } = key.clone();
    let negated = weight < 0.0 || positive_name(&relation).is_some();
    (head, relation, tail, source, language.to_owned(), weight.abs().to_bits(), negated)
}

/// The oracle: the present statements as a list.
#[derive(Clone, Default)]
struct Naive(BTreeMap<FactKey, Vec<(String, f32)>>);

impl Naive {
    fn apply(&mut self, Change { key, upsert }: &Change) {
        let stands = upsert.iter().map(|upsert| (upsert.language.clone(), upsert.weight));
        self.0.insert(key.clone(), stands.collect());
    }

    fn facts(&self) -> Vec<Told> {
        let facts = self.0.iter().flat_map(|(key, stands)| {
            stands.iter().map(move |(language, weight)| told(key, language, *weight))
        });
        facts.collect()
    }
}

/// A worker that applies changes.
struct Following<'w> {
    worker: &'w mut Worker,
    graph: Arc<Graph>,
    knowledge: Knowledge,
    inlet: Sender<Changes>,
    waker: timely::scheduling::SyncActivator,
    counts: Arc<LiveCounts>,
    offset: i64,
}

impl<'w> Following<'w> {
    fn begin(worker: &'w mut Worker, graph: Arc<Graph>) -> Self {
        let knowledge = Knowledge::new(Arc::clone(&graph), Phrasings::default());
        let (inlet, changes) = crossbeam_channel::unbounded();
        let counts = Arc::<LiveCounts>::default();
        let waker = worker.dataflow(|scope| knowledge.follow(scope, changes, Arc::clone(&counts)));
        Self { worker, graph, knowledge, inlet, waker, counts, offset: 0 }
    }

    fn learn(&mut self, changes: Vec<Change>) -> KnowledgeVersion {
        self.apply(Changes { changes, ..Changes::default() })
    }

    fn teach(&mut self, phrasings: Vec<PhrasingChange>) -> KnowledgeVersion {
        self.apply(Changes { phrasings, ..Changes::default() })
    }

    fn apply(&mut self, changes: Changes) -> KnowledgeVersion {
        self.offset += 1;
        let offsets = [(0, self.offset)].into();
        self.inlet.send(Changes { offsets, ..changes }).unwrap();
        self.waker.activate().unwrap();
        while self.knowledge.now().state().offsets.get(&0) != Some(&self.offset) {
            self.worker.step();
            self.knowledge.settle();
        }
        self.knowledge.now()
    }

    fn end(self) {
        drop(self.inlet);
        self.waker.activate().unwrap();
        while self.worker.has_dataflows() {
            self.worker.step();
        }
    }
}

fn run<T: Send + 'static>(
    facts: Vec<ImportedFact>,
    test: impl FnOnce(Following<'_>) -> T + Send + Sync + 'static,
) -> T {
    let test = std::sync::Mutex::new(Some(test));
    timely::execute_directly(move |worker| {
        let test = test.lock().unwrap().take().unwrap();
        test(Following::begin(worker, Arc::new(Graph::from_facts(facts))))
    })
}

/// An event: changes applied together, whether to hold the version, and which held version to drop.
#[derive(Clone, Debug)]
struct Happening {
    changes: Vec<(Statement, Option<Value>)>,
    hold: bool,
    release_unread: Option<usize>,
}

fn statement() -> impl Strategy<Value = Statement> {
    (0..2_usize, 0..8_usize, 0..3_usize, 0..8_usize)
}

fn value() -> impl Strategy<Value = Value> {
    (prop_oneof![4 => Just(0_usize), 1 => Just(1)], prop_oneof![Just(1_i8), Just(2), Just(-1)])
}

fn happening() -> impl Strategy<Value = Happening> {
    let changes = prop::collection::vec((statement(), prop::option::of(value())), 0..6);
    (changes, any::<bool>(), prop::option::of(0..4_usize))
        .prop_map(|(changes, hold, release_unread)| Happening { changes, hold, release_unread })
}

/// The snapshot's facts. There are few concepts, so that changes meet them. Only the topic names
/// "SoldAt", "new thing" and "newer things".
fn snapshot() -> impl Strategy<Value = BTreeMap<Statement, Value>> {
    let fact = ((0..2_usize, 0..6_usize, 0..2_usize, 0..6_usize), value());
    prop::collection::vec(fact, 1..24).prop_map(|facts| facts.into_iter().collect())
}

fn imported(facts: &BTreeMap<Statement, Value>) -> Vec<ImportedFact> {
    let fact = |(statement, (language, weight)): (&Statement, &Value)| {
        let FactKey { source, head, relation, tail } = key(*statement);
        let language = LANGUAGES[*language].to_owned();
        let fact = ImportedFact::new(&head, &relation, &tail, f32::from(*weight));
        ImportedFact { source, language, ..fact }
    };
    facts.iter().map(fact).collect()
}

fn naive(facts: &BTreeMap<Statement, Value>) -> Naive {
    let mut naive = Naive::default();
    facts.iter().for_each(|(statement, value)| naive.apply(&change(*statement, Some(*value))));
    naive
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// After any insertions, corrections and retractions, each held version reads exactly what was
    /// present at its time, and versions that nothing holds are compacted.
    #[test]
    fn every_version_that_is_held_reads_what_stood_then(
        facts in snapshot(),
        happenings in prop::collection::vec(happening(), 1..12),
    ) {
        let mut naive = naive(&facts);
        run(imported(&facts), move |mut following| {
            let graph = Arc::clone(&following.graph);
            let mut held = vec![(following.knowledge.now(), naive.clone())];
            for Happening { changes, hold, release_unread } in happenings {
                let changes: Vec<Change> =
                    changes.iter().map(|(statement, value)| change(*statement, *value)).collect();
                changes.iter().for_each(|change| naive.apply(change));
                let now = following.learn(changes);
                check(&following.knowledge, &graph, &now, &naive);
                if hold {
                    held.push((now, naive.clone()));
                }
                if let Some(at) = release_unread.filter(|at| *at < held.len()) {
                    held.swap_remove(at);
                    following.knowledge.settle();
                }
                for (version, stood) in &held {
                    check(&following.knowledge, &graph, version, stood);
                }
            }
            held.clear();
            // After everything is retracted, nothing remains.
            let standing: Vec<Change> = naive.0.keys().map(|key| {
                let same = |fact: &&ImportedFact| {
                    (&fact.source, &fact.head, &fact.relation, &fact.tail)
                        == (&key.source, &key.head, &key.relation, &key.tail)
                };
                let facts = imported(&facts);
                let fact = facts.iter().find(same);
                let upsert = fact.map(|fact| Upsert::new(fact.weight, &fact.language));
                Change { key: key.clone(), upsert }
            }).collect();
            following.learn(standing);
            following.learn(Vec::new());
            let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let counts = Arc::clone(&following.counts);
            assert_eq!(load(&counts.differing), 0);
            assert_eq!((load(&counts.inserted), load(&counts.retracted)), (0, 0));
            assert_eq!((load(&counts.concepts), load(&counts.versions)), (0, 1));
            assert!(following.knowledge.live.borrow().as_ref().unwrap().dictionary.is_idle());
            following.end();
        });
    }

    /// Look-ups depend only on the present state: not on the order of the changes, their batches or
    /// the states between.
    #[test]
    fn the_state_alone_decides_what_is_given(
        facts in snapshot(),
        detour in prop::collection::vec((statement(), prop::option::of(value())), 0..20),
        last in prop::collection::btree_map(statement(), prop::option::of(value()), 1..20),
    ) {
        let lists = |changes: Vec<Vec<Change>>| {
            run(imported(&facts), move |mut following| {
                for changes in changes {
                    following.learn(changes);
                }
                let lists = listing(&following.knowledge);
                following.end();
                lists
            })
        };
        let one = |(statement, value): (&Statement, &Option<Value>)| change(*statement, *value);
        let straight: Vec<Change> = last.iter().map(one).collect();
        let mut around: Vec<Vec<Change>> = detour
            .iter()
            .filter(|(statement, _)| last.contains_key(statement))
            .map(|(statement, value)| vec![change(*statement, *value)])
            .collect();
        around.extend(last.iter().rev().map(|entry| vec![one(entry)]));
        prop_assert_eq!(lists(vec![straight]), lists(around));
    }
}

/// All look-ups in the order of their results, by names.
fn listing(knowledge: &Knowledge) -> Vec<String> {
    knowledge.at(&knowledge.now(), |view| {
        let concepts = CONCEPTS.iter().filter_map(|text| view.find(text));
        let listed = concepts.map(|id| {
            let lists = [
                view.strongest_from(id, 4).map(|fact| say(view, &fact)).collect::<Vec<_>>(),
                view.strongest_to(id, 4).map(|fact| say(view, &fact)).collect(),
            ];
            format!("{} {lists:?}", view.concept(id))
        });
        listed.collect()
    })
}

/// Search uses the version that the turn reads.
#[test]
fn a_version_keeps_the_phrasings_that_it_was_taken_with() {
    run(vec![], |mut following| {
        let change = |text: &str, leads_to: Option<Action>| {
            let phrasing = leads_to.map(|action| {
                let (text, vector) = (text.to_owned(), vec![1.0]);
                Arc::new(Phrasing { text, leads_to: LeadsTo::Action(action), vector })
            });
            PhrasingChange { text: text.to_owned(), phrasing }
        };
        let said = |version: &KnowledgeVersion| {
            version.phrasings().nearest(&[1.0]).action.map(|(action, _)| action)
        };
        let before = following.knowledge.now();
        let declined = following.teach(vec![change("hello", Some(Action::Decline))]);
        let unrelated = following.learn(vec![change_of_a_fact()]);
        let social = following.teach(vec![change("hello", Some(Action::Social))]);
        let withdrawn = following.teach(vec![change("hello", None)]);
        assert_eq!(said(&before), None);
        assert_eq!([&declined, &unrelated].map(said), [Some(Action::Decline); 2]);
        assert_eq!((said(&social), said(&withdrawn)), (Some(Action::Social), None));
        assert_eq!(following.counts.phrasings.load(Ordering::Relaxed), 1);
        drop((before, declined, unrelated, social, withdrawn));
        following.end();
    });
}

fn change_of_a_fact() -> Change {
    change((0, 0, 0, 1), Some((0, 1)))
}

#[test]
fn a_slip_is_found_while_its_concept_has_facts() {
    let says = |head: &str, tail: &str, stands: bool| Change {
        key: FactKey {
            source: "unnamed".to_owned(),
            head: head.to_owned(),
            relation: "IsA".to_owned(),
            tail: tail.to_owned(),
        },
        upsert: stands.then(|| Upsert::new(1.0, "en")),
    };
    let mut facts: Vec<ImportedFact> = (0..300)
        .map(|at| ImportedFact::new("hubword", "RelatedTo", &format!("spoke {at}"), 1.0))
        .collect();
    facts.extend(["yellow", "hot"].map(|tail| ImportedFact::new("mustard", "IsA", tail, 1.0)));
    run(facts, move |mut following| {
        let found = |version: &KnowledgeVersion, knowledge: &Knowledge| {
            knowledge.at(version, |view| {
                let said = (0, Lexicon::english(), "my mustardd, my zorblaxx?");
                let found = search(view, said, &[], 0.15, &SearchConfig::default());
                let concept = |mention: &Mention| view.concept(mention.concept).to_owned();
                (found.mentions.iter().map(concept).collect::<Vec<_>>(), found.missing)
            })
        };
        let none = Vec::<String>::new;
        let missing = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let first = following.knowledge.now();
        let base = (missing(&["mustard"]), missing(&["zorblaxx"]));
        assert_eq!(found(&first, &following.knowledge), base);
        let put = vec![says("zorblax", "thing", true), says("zorblax", "word", true)];
        let second = following.learn(put);
        let both = (missing(&["mustard", "zorblax"]), none());
        assert_eq!(found(&second, &following.knowledge), both);
        let gone = vec![says("mustard", "hot", false), says("mustard", "yellow", false)];
        let third = following.learn(gone);
        let other = (missing(&["zorblax"]), missing(&["mustardd"]));
        assert_eq!(found(&third, &following.knowledge), other);
        let fourth = following.learn(vec![says("zorblax", "word", false)]);
        let neither = (none(), missing(&["mustardd", "zorblaxx"]));
        assert_eq!(found(&fourth, &following.knowledge), neither, "one fact is too few");
        assert_eq!(found(&second, &following.knowledge), both, "who reads an earlier version");
        assert_eq!(found(&first, &following.knowledge), base);
        drop((first, second, third, fourth));
        following.end();
    });
}

/// Holds for facts and utterances in either script.
#[test]
fn chinese_facts_that_are_put_are_linked_in_both_scripts() {
    let says = |head: &str, tail: &str, stands: bool| Change {
        key: FactKey {
            source: "ours".to_owned(),
            head: head.to_owned(),
            relation: "周边景点".to_owned(),
            tail: tail.to_owned(),
        },
        upsert: stands.then(|| Upsert::new(1.0, "zh")),
    };
    let fact = |head: &str, tail: &str| ImportedFact {
        language: "zh".to_owned(),
        ..ImportedFact::new(head, "周边景点", tail, 1.0)
    };
    let mut facts: Vec<ImportedFact> = (0..300)
        .map(|at| ImportedFact::new("hubword", "RelatedTo", &format!("spoke {at}"), 1.0))
        .collect();
    facts.push(fact("天坛公园", "前门"));
    run(facts, move |mut following| {
        let linked = |version: &KnowledgeVersion, knowledge: &Knowledge, text: &str| {
            knowledge.at(version, |view| {
                let said = [(Lexicon::of_text(text), text)];
                let linked = link(view, said, &LinkingConfig::default());
                let concepts = linked.iter().map(|it| view.concept(it.concept).to_owned());
                concepts.collect::<Vec<_>>()
            })
        };
        let put = vec![says("頤和園博物館", "萬壽山", true), says("圆明园遗址", "福海", true)];
        let now = following.learn(put);
        for (text, concept) in [
            ("我想去颐和园博物馆", "頤和園博物館"),
            ("我想去頤和園博物館", "頤和園博物館"),
            ("圓明園遺址在哪裡？", "圆明园遗址"),
            ("天壇公園在哪裡？", "天坛公园"),
        ] {
            assert_eq!(linked(&now, &following.knowledge, text), [concept], "{text}");
        }
        let gone = following.learn(vec![says("頤和園博物館", "萬壽山", false)]);
        let none = linked(&gone, &following.knowledge, "我想去颐和园博物馆");
        assert!(!none.contains(&"頤和園博物館".to_owned()), "{none:?}");
        drop((now, gone));
        following.end();
    });
}

#[test]
fn a_repeated_record_changes_nothing() {
    run(vec![ImportedFact::new("dog", "IsA", "pet", 1.0)], |mut following| {
        let says = |upsert| Change {
            key: FactKey {
                source: "unnamed".to_owned(),
                head: normalise("Dog"),
                relation: "IsA".to_owned(),
                tail: "pet".to_owned(),
            },
            upsert,
        };
        let stands = says(Some(Upsert::new(1.0, "en")));
        following.learn(vec![stands.clone()]);
        let counts = Arc::clone(&following.counts);
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!((load(&counts.applied), load(&counts.differing)), (1, 0));
        following.learn(vec![says(None)]);
        assert_eq!((load(&counts.inserted), load(&counts.retracted)), (0, 1));
        assert!(
            following.knowledge.at(&following.knowledge.now(), |view| view.find("dog")).is_none()
        );
        following.learn(vec![stands]);
        assert_eq!((load(&counts.differing), load(&counts.retracted)), (0, 0));
        following.end();
    });
}
