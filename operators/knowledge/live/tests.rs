use std::collections::BTreeSet;

use crossbeam_channel::Sender;
use proptest::prelude::*;
use timely::worker::Worker;
use turnstream_schemas::FactKey;

use super::super::relation::positive_name;
use super::super::{Change, Changes, ConceptId, ImportedFact, Upsert, likeness, normalise};
use super::*;
use crate::language::Lexicon;
use crate::linking::{LinkingConfig, Mention, link};
use crate::search::{SearchConfig, search};

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
    let upsert = value.map(|(language, weight)| Upsert {
        weight: f32::from(weight),
        language: LANGUAGES[language].to_owned(),
    });
    Change { key: key(statement), upsert }
}

/// A fact by its names: head, relation, tail, source, language, weight bits, denied.
type Told = (String, String, String, String, String, u32, bool);

fn told(key: &FactKey, language: &str, weight: f32) -> Told {
    let FactKey { source, head, relation, tail } = key.clone();
    let negated = weight < 0.0 || positive_name(&relation).is_some();
    (head, relation, tail, source, language.to_owned(), weight.abs().to_bits(), negated)
}

/// What stands, kept as a list: the oracle.
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

/// A worker that follows changes.
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
        let knowledge = Knowledge::new(Arc::clone(&graph));
        let (inlet, changes) = crossbeam_channel::unbounded();
        let counts = Arc::<LiveCounts>::default();
        let waker = worker.dataflow(|scope| knowledge.follow(scope, changes, Arc::clone(&counts)));
        Self { worker, graph, knowledge, inlet, waker, counts, offset: 0 }
    }

    fn learn(&mut self, changes: Vec<Change>) -> Moment {
        self.offset += 1;
        let offsets = [(0, self.offset)].into();
        self.inlet.send(Changes { changes, offsets }).unwrap();
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

fn say(view: View<'_>, fact: &Fact) -> Told {
    let text = |id| view.concept(id).to_owned();
    (
        text(fact.head),
        view.relation(fact.relation).name.to_owned(),
        text(fact.tail),
        view.source(fact.source).to_owned(),
        view.language(fact.head).to_owned(),
        fact.weight.to_bits(),
        fact.negated,
    )
}

/// The place that the documented rule gives a fact, as far as it goes by the snapshot's degrees.
fn place(
    graph: &Graph,
    far: &str,
    language: &str,
    weight: u32,
) -> (std::cmp::Reverse<u32>, bool, u32) {
    let known = graph.find_all(far).find(|id| graph.language(*id) == language);
    let degree = known.map_or(0, |id| graph.degree(id));
    (std::cmp::Reverse(weight), degree == 1 || degree == 2, degree)
}

/// Every look-up at a moment is what a scan of what stood then gives.
fn check(knowledge: &Knowledge, graph: &Graph, moment: &Moment, naive: &Naive) {
    let facts = naive.facts();
    knowledge.at(moment, |view| {
        for text in CONCEPTS {
            let named = |fact: &&Told| fact.0 == text || fact.2 == text;
            let languages: BTreeSet<&str> =
                facts.iter().filter(named).map(|fact| fact.4.as_str()).collect();
            let found = view.find(text);
            assert_eq!(found.map(|id| view.language(id)), languages.first().copied(), "{text}");
            for language in &languages {
                check_concept(view, graph, (text, language), &facts);
            }
            let lexicon = Lexicon::english();
            let lemmas = lexicon.key(text);
            let linked = view.concepts_with_lemmas("en", &lemmas);
            let mut expected: Vec<_> = CONCEPTS
                .iter()
                .filter(|other| lexicon.key(other) == lemmas)
                .map(|other| (std::cmp::Reverse(degree(&facts, other, "en")), *other))
                .filter(|(degree, _)| degree.0 > 0)
                .collect();
            expected.sort_unstable();
            let texts: Vec<&str> = linked.iter().map(|id| view.concept(*id)).collect();
            assert_eq!(texts, expected.iter().map(|(_, text)| *text).collect::<Vec<_>>());
            check_alike(view, text, &facts);
            let mut walk = view.lemma_walk("en");
            for (at, word) in lexicon.words(text).iter().enumerate() {
                let beginning: Vec<String> =
                    lexicon.words(text)[..=at].iter().map(|word| word.lemma.to_string()).collect();
                let goes_on = CONCEPTS.iter().any(|other| {
                    degree(&facts, other, "en") > 0
                        && lexicon.key(other).starts_with(&beginning.join(" "))
                });
                assert!(walk.step(&word.lemma) || !goes_on, "{text}");
            }
            assert_eq!(walk.most_named(), linked.first().copied(), "{text}");
        }
    });
}

/// What is spelt like a slip of a text is what a scan of the concepts that have facts finds.
fn check_alike(view: View<'_>, text: &str, facts: &[Told]) {
    let lexicon = Lexicon::english();
    let wanted = format!("{}e", lexicon.key(text));
    let least = 0.3;
    let mut expected: Vec<_> = CONCEPTS
        .iter()
        .map(|other| (likeness(lexicon, &wanted, &lexicon.key(other)), *other))
        .filter(|(likeness, other)| *likeness >= least && degree(facts, other, "en") > 0)
        .collect();
    expected.sort_by(|one, other| {
        let degree = |text| std::cmp::Reverse(degree(facts, text, "en"));
        let by_degree = || degree(one.1).cmp(&degree(other.1));
        other.0.total_cmp(&one.0).then_with(by_degree).then_with(|| one.1.cmp(other.1))
    });
    let alike = view.alike(lexicon, &wanted, least, 1 << 20);
    let alike: Vec<_> = alike.into_iter().map(|(id, like)| (like, view.concept(id))).collect();
    assert_eq!(alike, expected, "{wanted}");
}

fn degree(facts: &[Told], text: &str, language: &str) -> u32 {
    let of = facts.iter().filter(|fact| fact.4 == language);
    of.map(|fact| u32::from(fact.0 == text) + u32::from(fact.2 == text)).sum()
}

fn check_concept(view: View<'_>, graph: &Graph, (text, language): (&str, &str), facts: &[Told]) {
    let id = |text: &str| -> Option<ConceptId> {
        let lemmas = Lexicon::english().key(text);
        match language {
            "en" => view
                .concepts_with_lemmas("en", &lemmas)
                .into_iter()
                .find(|id| view.concept(*id) == text),
            // Only English has a lexicon here, so another language is found where it stands alone.
            _ => view.find(text).filter(|id| view.language(*id) == language),
        }
    };
    let Some(concept) = id(text) else { return };
    assert_eq!(view.degree(concept), degree(facts, text, language), "{text} {language}");
    let scale = (1.0 + 1000.0_f32).ln();
    let informativeness = 1.0 - (view.degree(concept) as f32).ln() / scale;
    assert!((view.informativeness(concept) - informativeness).abs() < 1e-6);
    for (side, far) in [(Side::From, 2), (Side::To, 0)] {
        let far_of = |fact: &Told| if far == 2 { fact.2.clone() } else { fact.0.clone() };
        let near_of = |fact: &Told| if far == 2 { fact.0.clone() } else { fact.2.clone() };
        let given: Vec<Told> = match side {
            Side::From => view.strongest_from(concept, 1000).map(|fact| say(view, &fact)).collect(),
            Side::To => view.strongest_to(concept, 1000).map(|fact| say(view, &fact)).collect(),
        };
        let expected: BTreeSet<Told> = facts
            .iter()
            .filter(|fact| fact.4 == language && near_of(fact) == text)
            .cloned()
            .collect();
        assert_eq!(given.iter().cloned().collect::<BTreeSet<_>>(), expected, "{text} {side:?}");
        assert_eq!(given.len(), expected.len(), "each once");
        let places = given.iter().map(|fact| place(graph, &far_of(fact), language, fact.5));
        assert!(places.is_sorted(), "{given:?}");
        for limit in 0..given.len() {
            let cut: Vec<Told> = match side {
                Side::From => {
                    view.strongest_from(concept, limit).map(|fact| say(view, &fact)).collect()
                }
                Side::To => {
                    view.strongest_to(concept, limit).map(|fact| say(view, &fact)).collect()
                }
            };
            assert_eq!(cut, given[..limit]);
        }
    }
    for other in CONCEPTS {
        let Some(tail) = id(other) else { continue };
        let given: Vec<Told> =
            view.facts_between(concept, tail).map(|fact| say(view, &fact)).collect();
        let mut expected: Vec<Told> = facts
            .iter()
            .filter(|fact| fact.4 == language && fact.0 == text && fact.2 == other)
            .cloned()
            .collect();
        expected.sort_by_key(|fact| (fact.1.clone(), fact.3.clone()));
        assert_eq!(given, expected, "{text} {other}");
    }
}

/// What happens: changes applied together; whether the moment is held, and which held one is let
/// go.
#[derive(Clone, Debug)]
struct Happening {
    changes: Vec<(Statement, Option<Value>)>,
    hold: bool,
    let_go: Option<usize>,
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
        .prop_map(|(changes, hold, let_go)| Happening { changes, hold, let_go })
}

/// The snapshot's facts: few concepts, so that changes meet them. "SoldAt", "new thing" and
/// "newer things" are named by the topic alone.
fn snapshot() -> impl Strategy<Value = BTreeMap<Statement, Value>> {
    let fact = ((0..2_usize, 0..6_usize, 0..2_usize, 0..6_usize), value());
    prop::collection::vec(fact, 1..24).prop_map(|facts| facts.into_iter().collect())
}

fn imported(facts: &BTreeMap<Statement, Value>) -> Vec<ImportedFact> {
    let fact = |(statement, (language, weight)): (&Statement, &Value)| {
        let FactKey { source, head, relation, tail } = key(*statement);
        let language = LANGUAGES[*language].to_owned();
        ImportedFact { relation, head, tail, weight: f32::from(*weight), source, language }
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

    /// Whatever is inserted, corrected and retracted, and whichever moments are held meanwhile:
    /// each reads exactly what stood then, and what nobody holds is compacted away.
    #[test]
    fn every_moment_that_is_held_reads_what_stood_then(
        facts in snapshot(),
        happenings in prop::collection::vec(happening(), 1..12),
    ) {
        let mut naive = naive(&facts);
        run(imported(&facts), move |mut following| {
            let graph = Arc::clone(&following.graph);
            let mut held = vec![(following.knowledge.now(), naive.clone())];
            for Happening { changes, hold, let_go } in happenings {
                let changes: Vec<Change> =
                    changes.iter().map(|(statement, value)| change(*statement, *value)).collect();
                changes.iter().for_each(|change| naive.apply(change));
                let now = following.learn(changes);
                check(&following.knowledge, &graph, &now, &naive);
                if hold {
                    held.push((now, naive.clone()));
                }
                if let Some(at) = let_go.filter(|at| *at < held.len()) {
                    held.swap_remove(at);
                    following.knowledge.settle();
                }
                for (moment, stood) in &held {
                    check(&following.knowledge, &graph, moment, stood);
                }
            }
            held.clear();
            // Everything is taken back: nothing of it stays.
            let standing: Vec<Change> = naive.0.keys().map(|key| {
                let same = |fact: &&ImportedFact| {
                    (&fact.source, &fact.head, &fact.relation, &fact.tail)
                        == (&key.source, &key.head, &key.relation, &key.tail)
                };
                let facts = imported(&facts);
                let upsert = facts.iter().find(same).map(|fact| Upsert {
                    weight: fact.weight,
                    language: fact.language.clone(),
                });
                Change { key: key.clone(), upsert }
            }).collect();
            following.learn(standing);
            following.learn(Vec::new());
            let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let counts = Arc::clone(&following.counts);
            assert_eq!(load(&counts.differing), 0);
            assert_eq!((load(&counts.inserted), load(&counts.retracted)), (0, 0));
            assert_eq!((load(&counts.concepts), load(&counts.moments)), (0, 1));
            assert!(following.knowledge.live.borrow().as_ref().unwrap().dictionary.is_idle());
            following.end();
        });
    }

    /// Which way a state came about is not to be seen: neither the order of the changes, nor how
    /// they were put together, nor what stood in between.
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

/// Everything in the order in which it is given, by names.
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

/// Search goes by what stands at the moment that a turn reads.
#[test]
fn a_slip_is_found_while_its_concept_has_facts() {
    let says = |head: &str, tail: &str, stands: bool| Change {
        key: FactKey {
            source: "unnamed".to_owned(),
            head: head.to_owned(),
            relation: "IsA".to_owned(),
            tail: tail.to_owned(),
        },
        upsert: stands.then(|| Upsert { weight: 1.0, language: "en".to_owned() }),
    };
    let mut facts: Vec<ImportedFact> = (0..300)
        .map(|at| ImportedFact::new("hubword", "RelatedTo", &format!("spoke {at}"), 1.0))
        .collect();
    facts.extend(["yellow", "hot"].map(|tail| ImportedFact::new("mustard", "IsA", tail, 1.0)));
    run(facts, move |mut following| {
        let found = |moment: &Moment, knowledge: &Knowledge| {
            knowledge.at(moment, |view| {
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
        assert_eq!(found(&second, &following.knowledge), both, "who reads an earlier moment");
        assert_eq!(found(&first, &following.knowledge), base);
        drop((first, second, third, fourth));
        following.end();
    });
}

/// Whichever script a fact is put in, and whichever an utterance is written in.
#[test]
fn chinese_facts_that_are_put_are_linked_in_both_scripts() {
    let says = |head: &str, tail: &str, stands: bool| Change {
        key: FactKey {
            source: "ours".to_owned(),
            head: head.to_owned(),
            relation: "周边景点".to_owned(),
            tail: tail.to_owned(),
        },
        upsert: stands.then(|| Upsert { weight: 1.0, language: "zh".to_owned() }),
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
        let linked = |moment: &Moment, knowledge: &Knowledge, text: &str| {
            knowledge.at(moment, |view| {
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
        let stands = says(Some(Upsert { weight: 1.0, language: "en".to_owned() }));
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
