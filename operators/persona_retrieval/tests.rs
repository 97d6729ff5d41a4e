use std::sync::atomic::{AtomicU64, Ordering};

use turnstream_schemas::{RequestId, SourceKind, Turn};

use super::*;
use crate::flow::Failed;
use crate::sources::SourceConfig;
use crate::stage::{Passage, StageObserver};
use crate::testing::{
    Counting, CountingElsewhere, asking_source, document, graph, run_dataflow, scene,
    stage_context, test_sources,
};

fn config() -> PersonaRetrievalConfig {
    let call = CallConfig { attempts: 1, ..CallConfig::default() };
    PersonaRetrievalConfig { call, ..PersonaRetrievalConfig::default() }
}

fn bm25() -> PersonaRetrievalConfig {
    PersonaRetrievalConfig { form: SearchForm::Bm25, ..config() }
}

/// A turn with this text and persona. `directions` are the vectors of its dialogue and utterance.
fn said(
    text: &str,
    persona: &[&str],
    directions: Option<([f32; 2], Option<[f32; 2]>)>,
) -> TurnInFlight {
    let mut turn = scene(&[&format!("u: {text}")], &graph(""));
    let mut context = (*turn.context).clone();
    let persona = persona.iter().map(|sentence| (*sentence).to_owned()).collect();
    context.turn = Turn { persona, ..context.turn };
    turn.context = Arc::new(context);
    turn.embedding = directions.map(|(dialogue, utterance)| Embedded {
        dialogue: dialogue.into(),
        utterance: utterance.map(Into::into),
    });
    asking_source(turn, "persona")
}

/// The sentences that the stage finds for a turn.
fn sought(
    turn: &TurnInFlight,
    encoder: Option<&dyn Encoder>,
    config: &PersonaRetrievalConfig,
) -> Result<Vec<Evidence>, Fault> {
    let sources = test_sources();
    let persona = Persona::asked(turn, &sources).expect("it asks a persona");
    retrieve(turn, &persona, encoder, config).map(|found| found.sentences)
}

const SEA: [f32; 2] = [1.0, 0.0];
const BREAD: [f32; 2] = [0.0, 1.0];

fn places(found: &[Evidence]) -> Vec<u32> {
    found.iter().map(|one| one.persona.as_ref().expect("a sentence").place).collect()
}

fn by_words(text: &str, persona: &[&str], config: &PersonaRetrievalConfig) -> Vec<u32> {
    places(&sought(&said(text, persona, None), None, config).expect("found"))
}

#[test]
fn words_are_looked_for_in_both_languages() {
    let persona = ["I live by the sea.", "My dogs are old.", "I have an old dog and old cats."];
    assert_eq!(by_words("Is your dog old?", &persona, &bm25()), [2, 3], "the shorter one first");
    assert_eq!(by_words("And the weather?", &persona, &bm25()), [0; 0]);
    let persona = ["我住在北京。", "我 是 老师", "我喜歡喝咖啡"];
    assert_eq!(by_words("你喝咖啡吗？", &persona, &bm25()), [3], "in one script");
    assert_eq!(by_words("北京的老师", &persona, &bm25()), [2, 1]);
    // All sentences have "我", so it says little, and a sentence that shares nothing else is not found.
    let strict = PersonaRetrievalConfig { min_score: 0.2, ..bm25() };
    assert_eq!(by_words("我想去北京", &persona, &strict), [1]);
}

#[test]
fn equal_sentences_stand_as_in_the_turn_and_are_found_once() {
    let persona = ["I like tea.", "You like tea.", "", "I like tea. "];
    let found = sought(&said("Tea?", &persona, None), None, &bm25()).expect("found");
    assert_eq!(places(&found), [1, 2]);
    assert_eq!(found[0].relevance, found[1].relevance);
    let told: Vec<(&str, &str)> = found.iter().map(|it| (&*it.id.0, &*it.text)).collect();
    assert_eq!(told, [("persona/1", "I like tea."), ("persona/2", "You like tea.")]);
    let sentence = found[0].persona.as_ref().expect("a sentence");
    assert_eq!((sentence.describes, sentence.by_meaning), (Speaker::User, None));
    assert_eq!(sentence.by_words, Some(found[0].relevance));
    assert!((0.0..=1.0).contains(&found[0].relevance.get()) && !found[0].selected);
}

#[test]
fn words_and_meaning_are_weighed() {
    let persona = ["I sail.", "I bake. I sail.", "I know bread."];
    let turn = said("Do you know the ocean?", &persona, Some((BREAD, Some(SEA))));
    let found =
        |config: &PersonaRetrievalConfig| sought(&turn, Some(&Counting), config).expect("found");
    let half = 0.5_f64.sqrt();
    let dense =
        PersonaRetrievalConfig { form: SearchForm::Dense, dialogue_share: 0.25, ..config() };
    let by_meaning = found(&dense);
    assert_eq!(places(&by_meaning), [1, 2, 3]);
    for (found, expected) in by_meaning.iter().zip([0.75, half, 0.25]) {
        assert!((found.relevance.get() - expected).abs() < 1e-6, "{found:?}");
    }
    let utterance = PersonaRetrievalConfig { dialogue_share: 0.0, ..dense.clone() };
    assert_eq!(places(&found(&utterance)), [1, 2], "bread has nothing of the sea");
    assert_eq!(places(&found(&bm25())), [3], "know");
    let fused =
        found(&PersonaRetrievalConfig { form: SearchForm::Fusion, word_share: 0.75, ..dense });
    assert_eq!(places(&fused), [3, 1, 2]);
    let sentence = fused[0].persona.as_ref().expect("a sentence");
    let parts = (sentence.by_words.expect("words").get(), sentence.by_meaning.expect("it").get());
    assert!((fused[0].relevance.get() - (0.75 * parts.0 + 0.25 * parts.1)).abs() < 1e-9);
}

#[test]
fn an_utterance_that_says_nothing_is_searched_by_the_dialogue() {
    let persona = ["I sail.", "I bake bread."];
    let turn = said("And you?", &persona, Some((BREAD, None)));
    let found = sought(&turn, Some(&Counting), &config()).expect("found");
    assert_eq!(places(&found), [2]);
}

#[test]
fn bounds_hold() {
    let persona = ["tea and milk", "a tea", "tea tea", "tea with something very long behind it"];
    let few = PersonaRetrievalConfig { max_sentences: 1, ..bm25() };
    let all = by_words("tea?", &persona, &bm25());
    assert_eq!((all.len(), by_words("tea?", &persona, &few)), (3, vec![all[0]]));
    let narrow = PersonaRetrievalConfig { max_found: 2, ..bm25() };
    assert_eq!(by_words("tea?", &persona, &narrow), all[..2]);
    let first = PersonaRetrievalConfig { max_persona_sentences: 2, ..bm25() };
    assert_eq!(by_words("tea?", &persona, &first).iter().max(), Some(&2));
    let short = PersonaRetrievalConfig { max_sentence_bytes: 12, max_sentences: 9, ..bm25() };
    assert!(!by_words("tea?", &persona, &short).contains(&4));
    let (turn, sources) = (said("tea?", &persona, None), test_sources());
    let asked = Persona::asked(&turn, &sources).expect("it asks a persona");
    let passed_over = |config| asked.looked_at(config).passed_over;
    assert_eq!([&bm25(), &first, &short].map(passed_over), [0, 2, 1]);
}

/// Counts the sentences that exceed the bounds, and the turns that enter the stage.
#[derive(Default)]
struct PersonaCounts {
    passed_over: AtomicU64,
    entered: AtomicU64,
}

impl StageObserver for PersonaCounts {
    fn entered(&self, _: Stage) {
        self.entered.fetch_add(1, Ordering::Relaxed);
    }

    fn left(&self, _: Stage, _: Passage) {}

    fn asked_again(&self, _: Stage) {}

    fn model_failed(&self, _: &str, _: &Fault) {}

    fn persona_sentences_passed_over(&self, sentences: u64) {
        self.passed_over.fetch_add(sentences, Ordering::Relaxed);
    }

    fn scopes_changed(&self, _: i64) {}
}

/// How the stage reaches the encoder.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reach {
    Nowhere,
    InPlace,
    Elsewhere,
    /// Elsewhere, as the reader, with another encoder in place.
    Reader,
}

/// Runs the operator over turns. Also returns the texts that an encoder elsewhere was asked to embed,
/// and the counts.
fn run(
    turns: Vec<TurnInFlight>,
    config: &PersonaRetrievalConfig,
    reached: Reach,
) -> (Vec<TurnInFlight>, Vec<Failed>, Vec<Vec<String>>, Arc<PersonaCounts>) {
    run_with(turns, config, reached, test_sources())
}

/// Like [`run`], with these sources.
fn run_with(
    turns: Vec<TurnInFlight>,
    config: &PersonaRetrievalConfig,
    reached: Reach,
    sources: Sources,
) -> (Vec<TurnInFlight>, Vec<Failed>, Vec<Vec<String>>, Arc<PersonaCounts>) {
    let (model, counts) =
        (Arc::new(CountingElsewhere::default()), Arc::new(PersonaCounts::default()));
    let (asked, counted, config) = (Arc::clone(&model), Arc::clone(&counts), config.clone());
    let (mut out, faults) = run_dataflow(turns, move |turns| {
        let in_place = matches!(reached, Reach::InPlace | Reach::Reader);
        let encoder: Option<Arc<dyn Encoder>> = in_place.then(|| Arc::new(Counting) as _);
        let embed = (reached == Reach::Elsewhere).then(|| Arc::clone(&model) as _);
        let questions = (reached == Reach::Reader).then(|| Arc::clone(&model) as _);
        let sources = Arc::new(sources.clone());
        let stages = stage_context(&graph(""));
        let mut context = StageContext { sources, embed, encoder, questions, ..stages };
        // As `history` does when it sends a turn into the flow.
        context.runner.observer = Observer::new(Arc::clone(&counts) as _);
        context.runner.awaited.ask(RequestId { partition: 0, generation: 1, offset: 0 });
        persona_retrieval(turns, config.clone(), &context)
    });
    out.sort_by_key(|turn| turn.context.query().to_owned());
    let asked = asked.0.lock().unwrap().clone();
    (out, faults, asked, counted)
}

const PERSONA: [&str; 2] = ["I sail.", "I bake bread."];

#[test]
fn encoders_in_place_and_elsewhere_find_the_same() {
    for form in [SearchForm::Bm25, SearchForm::Dense, SearchForm::Fusion] {
        let turn = said("The bread and the sea?", &PERSONA, Some((SEA, Some(BREAD))));
        let config = PersonaRetrievalConfig { form, ..config() };
        let [here, there] = [Reach::InPlace, Reach::Elsewhere].map(|reached| {
            let (mut out, faults, asked, _) = run(vec![turn.clone()], &config, reached);
            assert!(faults.is_empty());
            let is_asked = reached == Reach::Elsewhere && form != SearchForm::Bm25;
            assert_eq!(asked, vec![PERSONA.map(str::to_owned).to_vec(); usize::from(is_asked)]);
            let turn = out.pop().expect("a turn");
            assert!(turn.progress.degraded.is_empty());
            turn.candidates.persona
        });
        assert_eq!(places(&here)[0], 2, "{form:?}");
        assert_eq!(here, there, "{form:?}");
    }
}

#[test]
fn the_reader_compares_sentences_with_the_question() {
    let persona = PERSONA.map(str::to_owned).to_vec();
    let config = PersonaRetrievalConfig { word_share: 0.0, ..config() };
    let turn = said("And you?", &PERSONA, Some((SEA, Some(SEA))));
    for (question, place, asked) in [(Some(BREAD), 2, 1), (None, 1, 0)] {
        let turn = TurnInFlight { question: question.map(Into::into), ..turn.clone() };
        let (out, faults, texts, _) = run(vec![turn], &config, Reach::Reader);
        assert!(faults.is_empty() && out[0].progress.degraded.is_empty());
        assert_eq!(places(&out[0].candidates.persona), [place], "{question:?}");
        assert_eq!(texts, vec![persona.clone(); asked], "without a question, the other encoder");
    }
}

#[test]
fn a_failing_encoder_leaves_the_words_or_what_is_configured() {
    let persona = ["I sail.", "I bake bread.", "An error."];
    for reached in [Reach::InPlace, Reach::Elsewhere] {
        for (on_failure, left, dead) in [
            (OnFailure::Lexical, Some(vec![2]), 0),
            (OnFailure::Degrade, Some(vec![]), 0),
            (OnFailure::DeadLetter, None, 1),
        ] {
            let turn = said("bread", &persona, Some((SEA, Some(SEA))));
            let config = PersonaRetrievalConfig { on_failure, ..config() };
            let (out, faults, _, _) = run(vec![turn], &config, reached);
            assert_eq!(faults.len(), dead, "{reached:?}, {on_failure:?}");
            let found = out.first().map(|turn| {
                assert_eq!(turn.progress.without(), [STAGE]);
                places(&turn.candidates.persona)
            });
            assert_eq!(found, left, "{reached:?}, {on_failure:?}");
        }
    }
}

#[test]
fn without_vectors_words_decide_and_dense_search_degrades() {
    for reached in [Reach::Nowhere, Reach::InPlace, Reach::Elsewhere] {
        let turn = said("bread", &PERSONA, None);
        let (out, _, asked, _) = run(vec![turn.clone()], &config(), reached);
        assert_eq!(places(&out[0].candidates.persona), [2]);
        assert!(out[0].progress.degraded.is_empty() && asked.is_empty());
        let dense = PersonaRetrievalConfig { form: SearchForm::Dense, ..config() };
        let (out, _, _, _) = run(vec![turn.clone()], &dense, reached);
        assert_eq!(out[0].progress.without(), [STAGE]);
        assert_eq!(places(&out[0].candidates.persona), [2]);
        let error = sought(&turn, None, &dense).unwrap_err().to_string();
        assert!(error.contains("persona_retrieval.form"), "{error}");
    }
}

#[test]
fn what_exceeds_the_bounds_is_counted() {
    let few = PersonaRetrievalConfig { max_persona_sentences: 1, ..config() };
    for reached in [Reach::InPlace, Reach::Elsewhere] {
        let turn = said("bread", &PERSONA, Some((BREAD, Some(BREAD))));
        let (out, _, _, counts) = run(vec![turn], &few, reached);
        assert_eq!(places(&out[0].candidates.persona), [0; 0]);
        assert_eq!(counts.passed_over.load(Ordering::Relaxed), 1, "{reached:?}");
    }
}

/// A turn that asks the persona of the answering party, after documents that gave these passages.
fn behind(
    text: &str,
    persona: &[&str],
    passages: &[(&str, f64)],
    directions: Option<([f32; 2], Option<[f32; 2]>)>,
) -> (TurnInFlight, Sources) {
    let mut turn = said(text, persona, directions);
    let passage = |(text, relevance): &(&str, f64)| document("documents", text, text, *relevance);
    turn.candidates.passages = passages.iter().map(passage).collect();
    let depends_on = vec!["documents".to_owned()];
    let about = SourceConfig { depends_on, ..SourceConfig::of(SourceKind::BotPersona) };
    let documents = SourceConfig::of(SourceKind::Documents);
    let config = [("persona".to_owned(), about), ("documents".to_owned(), documents)];
    (turn, Sources::new(&config.into()).expect("sources"))
}

/// PK-ICR by hand: each question joins a sentence with the utterance, and a vector counts the words about
/// (sea, bread) in a question or passage.
#[test]
fn behind_documents_a_sentence_is_paired_with_what_they_gave() {
    let persona = ["I sail.", "I bake."];
    let passages = [("Flour is dear.", 0.9), ("The sea is calm, sail.", 0.2), ("bread", 0.1)];
    for reached in [Reach::InPlace, Reach::Elsewhere] {
        let (turn, sources) = behind("What now, sail?", &persona, &passages, Some((SEA, None)));
        let config = PersonaRetrievalConfig { word_share: 0.0, ..config() };
        let (mut out, faults, asked, _) = run_with(vec![turn], &config, reached, sources);
        assert!(faults.is_empty(), "{faults:?}");
        let expected = ["I sail. What now, sail?", "I bake. What now, sail?"];
        let expected: Vec<&str> =
            expected.into_iter().chain(passages.map(|(text, _)| text)).collect();
        assert_eq!(asked, vec![expected; usize::from(reached == Reach::Elsewhere)]);
        let candidates = out.pop().expect("a turn").candidates;
        // sail and sail against sea and sail: 1. bake and sail against bread: 0.71.
        assert_eq!(places(&candidates.persona), [1]);
        let sentence = candidates.persona[0].persona.as_ref().expect("a sentence");
        let knowledge = EvidenceId("The sea is calm, sail.".to_owned());
        assert_eq!((sentence.describes, &sentence.given), (Speaker::System, &Some(knowledge)));
        assert!((candidates.persona[0].relevance.get() - 1.0).abs() < 1e-6);
        let order: Vec<&str> = candidates.passages.iter().map(|it| &*it.text).collect();
        assert_eq!(order, ["The sea is calm, sail.", "Flour is dear.", "bread"], "its own first");
    }
}

#[test]
fn a_sentence_that_fits_no_knowledge_is_not_accepted() {
    let passages = [("Stamps show birds.", 0.9)];
    for (min_pair_score, found) in [(0.5, 0), (0.0, 1)] {
        let (turn, sources) = behind("And now?", &["I sail."], &passages, None);
        let config = PersonaRetrievalConfig { min_pair_score, ..bm25() };
        let (out, _, _, _) = run_with(vec![turn], &config, Reach::Nowhere, sources);
        assert_eq!(out[0].candidates.persona.len(), found, "at {min_pair_score}");
        assert_eq!(out[0].candidates.passages.len(), 1);
    }
    // If the documents gave nothing, the sentence is scored by itself.
    let (turn, sources) = behind("Do you sail?", &["I sail."], &[], None);
    let (out, _, _, _) = run_with(vec![turn], &bm25(), Reach::Nowhere, sources);
    let sentence = out[0].candidates.persona[0].persona.as_ref().expect("a sentence");
    assert_eq!(sentence.given, None);
}

#[test]
fn a_source_has_sentences_of_its_own() {
    let turn = said("Do you bake bread?", &["I bake bread."], None);
    let sentences = vec!["I sail.".to_owned(), "We sell bread.".to_owned()];
    let about = SourceConfig { sentences, ..SourceConfig::of(SourceKind::BotPersona) };
    let sources = Sources::new(&[("assistant".to_owned(), about)].into()).expect("sources");
    let turn = asking_source(turn, "assistant");
    let (out, _, _, _) = run_with(vec![turn], &bm25(), Reach::Nowhere, sources);
    let [found] = &out[0].candidates.persona[..] else { panic!("one sentence") };
    let told = (&*found.id.0, found.source.as_str(), &*found.text);
    assert_eq!(told, ("assistant/2", "assistant", "We sell bread."));
}
