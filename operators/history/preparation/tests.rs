//! Prepared turns: what models are asked, how their answers are used, and what is kept.

use timely::dataflow::operators::generic::operator::empty;
use turnstream_ports::model::{Busy, CallError, GenerateRequest, Generated, Model, Reply};
use turnstream_schemas::{Degraded, HistoryChange, RecalledVia};

use super::*;
use crate::flow::Finished;
use crate::history::likeness::Signature;
use crate::history::similarity::Similarity;
use crate::history::tests::{Talk, rules};
use crate::history::{Database, Rules};
use crate::stage_context::StageContext;
use crate::testing::{asking, context, graph, run_dataflow, stage_context};

/// A vector that points one way for texts about water, and another way for all others.
fn vector(text: &str) -> Vector {
    let wet = ["lake", "heron", "water"].iter().any(|word| text.contains(word));
    Vector::of(&if wet { [1.0, 0.0] } else { [0.0, 1.0] }).expect("it has a length")
}

/// Rules of recall by meaning alone, from the whole history.
fn awaiting() -> Rules {
    let mut rules = rules();
    rules.similarity = Similarity::by_awaited_meaning("water", 1);
    rules.config.window_utterances = 0;
    rules.config.recall.meaning_share = 1.0;
    rules
}

/// Rules with a language model that summarises groups of two entries or more.
fn summarising() -> Rules {
    let mut rules = rules();
    rules.config.summaries.form = SummariesForm::Prompted;
    rules.config.summaries.min_entries = 2;
    rules.config.clusters.group_likeness = 0.1;
    rules
}

/// Sends the latest turn back with all the vectors that it asked for.
fn prepare(talk: &mut Talk) -> bool {
    let turn = talk.unprepared.pop().expect("a turn to prepare");
    let query = Some(vector(turn.context.query()));
    let exchanges = turn.exchanges.iter().map(|(at, text)| (*at, vector(text))).collect();
    talk.give_prepared(Prepared::new(turn, ScopeVectors { query, exchanges, failed: None }))
}

/// Sends the latest turn back with this summary of its group.
fn write(talk: &mut Talk, text: Option<&str>) {
    let turn = talk.unprepared.pop().expect("a turn to prepare");
    let entries = turn.group.as_ref().expect("a group").entries;
    let model = ModelUsed { name: "writer".to_owned(), prompt_hash: None };
    let summary = GroupSummary { text: text.map(str::to_owned), entries, model };
    let summary = turn.group.as_ref().map(|grouped| (grouped.group, summary));
    let prepared = Prepared::new(turn, ScopeVectors::default());
    assert!(talk.give_prepared(Prepared { summary, ..prepared }));
}

fn answer(talk: &mut Talk, text: &str) {
    let last = talk.asked.len() - 1;
    assert!(talk.answer(last, text));
}

fn database(talk: &Talk) -> &Database {
    talk.scopes.sequences().next().expect("a scope").database()
}

fn last_changes(talk: &Talk) -> &[HistoryChange] {
    &talk.ended.last().expect("an outcome").changes
}

#[test]
fn a_turn_goes_down_the_flow_when_its_vectors_are_there() {
    let mut talk = Talk::new(awaiting());
    talk.user("How deep is the lake?");
    assert_eq!((talk.asked.len(), talk.unprepared.len()), (0, 1));
    assert!(prepare(&mut talk));
    answer(&mut talk, "Nine metres.");
    talk.user("Do you play the violin?");
    let asked_for = &talk.unprepared[0].exchanges;
    assert_eq!(asked_for, &[(1, "How deep is the lake?\nNine metres.".to_owned())]);
    prepare(&mut talk);
    answer(&mut talk, "No, the drum.");

    talk.user("Where do herons nest?");
    prepare(&mut talk);
    let recalled = &talk.asked[2].recalled;
    assert_eq!(recalled.len(), 1, "no word is shared, and one entry means the like");
    assert_eq!(recalled[0].entry.query.as_deref(), Some("How deep is the lake?"));
    assert_ne!(recalled[0].via, RecalledVia::Recent);
    answer(&mut talk, "In the reeds.");
    assert!(talk.last_response().degraded.is_empty());
    assert_eq!(talk.outcomes(), "[1:Nine metres.] [2:No, the drum.] [3:In the reeds.]");
}

#[test]
fn vectors_are_kept_and_published_with_the_outcome() {
    let mut talk = Talk::new(awaiting());
    talk.user("How deep is the lake?");
    prepare(&mut talk);
    answer(&mut talk, "Nine metres.");
    talk.user("Is the water cold?");
    prepare(&mut talk);
    answer(&mut talk, "It is.");
    let [HistoryChange::Entry { entry, .. }, HistoryChange::Entry { entry: new, .. }, _] =
        last_changes(&talk)
    else {
        panic!("the vector of the first entry, the second entry, the scope's record");
    };
    let kept = entry.vector.as_ref().expect("a vector");
    assert_eq!((entry.input.offset, &*kept.encoder), (1, "water/0000000000000001"));
    assert_eq!((new.input.offset, &new.vector), (2, &None), "it comes with the next turn");
    let by_meaning = database(&talk).text_of(1).expect("held").vector.is_some();
    assert!(by_meaning, "what is compared has the vector");
}

#[test]
fn what_is_restored_is_what_was() {
    let mut talk = Talk::new(awaiting());
    for text in ["How deep is the lake?", "Play the violin!", "Is the water cold?", "Where is it?"]
    {
        talk.user(text);
        prepare(&mut talk);
        answer(&mut talk, "So it is.");
    }
    let mut restored = Talk::new(awaiting());
    restored.assign(1);
    restored.put(talk.ended.iter().flat_map(|finished: &Finished| &finished.changes));
    restored.say_at(9, "And the heron?");
    talk.say_at(9, "And the heron?");
    assert_eq!(restored.unprepared[0].exchanges, talk.unprepared[0].exchanges);
    assert_eq!(database(&restored).clusters(), database(&talk).clusters());
    prepare(&mut restored);
    prepare(&mut talk);
    let recalled = |talk: &Talk| format!("{:?}", talk.asked.last().expect("asked").recalled);
    assert_eq!(recalled(&restored), recalled(&talk));
}

#[test]
fn if_the_encoder_fails_words_decide_and_the_response_says_so() {
    let mut talk = Talk::new(awaiting());
    talk.user("How deep is the lake?");
    prepare(&mut talk);
    answer(&mut talk, "Nine metres.");
    talk.user("And the other lake?");
    let turn = talk.unprepared.pop().expect("a turn");
    let fault = Fault::new(Stage::History, FaultKind::Error, "out of water");
    let failed = ScopeVectors { failed: Some(fault), ..ScopeVectors::default() };
    assert!(talk.give_prepared(Prepared::new(turn, failed)));
    assert_eq!(talk.asked[1].recalled.len(), 1, "they share a word");
    answer(&mut talk, "Two metres.");
    let Degraded::Because(fault) = &talk.last_response().degraded[0] else { panic!("a reason") };
    assert_eq!((fault.stage, &*fault.reason), (Stage::History, "out of water"));
}

#[test]
fn a_turn_that_was_overtaken_while_it_was_prepared_is_late() {
    let mut talk = Talk::new(awaiting());
    talk.user("How deep is the lake?");
    let turn = talk.unprepared.pop().expect("a turn");
    talk.agent("Let me tell you: nine metres.");
    assert_eq!(talk.outcomes(), "[1:superseded_by 2:system]");
    assert!(!talk.give_prepared(Prepared::new(turn, ScopeVectors::default())));
    assert!(talk.asked.is_empty());
}

#[test]
fn a_group_is_summarised_when_it_has_grown_and_again_when_it_has_doubled() {
    let mut talk = Talk::new(summarising());
    let say = |talk: &mut Talk, text: &str| {
        talk.user(text);
        let to_write = talk.unprepared.last().and_then(|turn| turn.group.clone());
        if let Some(group) = &to_write {
            write(talk, (group.entries > 2).then_some("The lake is deep."));
        }
        answer(talk, "The lake, yes.");
        to_write.map(|group| (group.entries, group.shown.len()))
    };
    let asked: Vec<_> = (0..7).map(|_| say(&mut talk, "How deep is the lake?")).collect();
    let expected = [None, None, Some((2, 2)), None, Some((4, 4)), None, None];
    assert_eq!(asked, expected, "also where the model failed at two");
    let clusters = database(&talk).clusters();
    let group = clusters.group(clusters.group_of(1).expect("in a group")).expect("there");
    let summary = group.summary().expect("written");
    assert_eq!((summary.text.as_deref(), summary.entries), (Some("The lake is deep."), 4));
    assert!(group.likeness_of_summary(&Signature::of(["deep"])) > 0.5);
    assert_eq!(group.likeness_of_summary(&Signature::of(["violin"])), 0.0);

    let HistoryChange::Scope { record, .. } = last_changes(&talk).last().expect("a change") else {
        panic!("the scope's record comes last");
    };
    let written = record.categories.iter().flat_map(|category| &category.groups);
    let written: Vec<_> = written.filter_map(|group| group.summary.as_ref()).collect();
    assert_eq!(written, [summary]);
    let mut restored = Talk::new(summarising());
    restored.assign(1);
    restored.put(talk.ended.iter().flat_map(|finished| &finished.changes));
    restored.say_at(20, "Hello!");
    assert_eq!(database(&restored).clusters(), clusters);
}

/// Preparation with this encoder, and with a language model if summaries have the prompted form.
fn asked_of(embed: Arc<Embed>, form: SummariesForm, context: &StageContext) -> Preparing {
    let call = CallConfig { attempts: 1, ..CallConfig::default() };
    let preparation = PreparationConfig { enabled: true, call };
    let summaries = SummariesConfig { form, ..SummariesConfig::default() };
    let StageContext { prompting, runner, .. } = context;
    Preparing::new(Some(embed), &preparation, &summaries, prompting, runner)
        .expect("somebody is asked")
}

#[test]
fn a_turn_whose_encoder_fails_goes_on_and_says_so() {
    struct Dry;

    impl Model<Vec<String>, Vec<Embedding>> for Dry {
        fn name(&self) -> &str {
            "dry"
        }

        fn ask(
            &self,
            _: Vec<String>,
            reply: Reply<Vec<Embedding>>,
        ) -> Result<(), Busy<Vec<String>, Vec<Embedding>>> {
            reply.answer(Err(CallError::Model("out of water".to_owned())));
            Ok(())
        }
    }

    let exchanges = vec![(7, "How deep?".to_owned())];
    let turn = Unprepared::new(context(&["u: Is the water cold?"]), exchanges, None);
    let (prepared, _) = run_dataflow(vec![turn], |turns| {
        let means = asking(stage_context(&graph("")), |_| unreachable!("no summary is asked for"));
        let none = empty(turns.scope());
        (preparation(turns, Some(asked_of(Arc::new(Dry), SummariesForm::Lexical, &means))), none)
    });
    let parts: Vec<_> = prepared.into_iter().map(Prepared::into_parts).collect();
    let [(ScopeVectors { query: None, exchanges, failed: Some(fault) }, None)] = &parts[..] else {
        panic!("no vectors, and why: {parts:?}");
    };
    assert!(exchanges.is_empty() && fault.reason.ends_with("the model answered: out of water"));
}

/// An encoder and a writer behind the ports, over the operator itself.
#[test]
fn models_are_asked_for_what_is_missing() {
    struct Water;

    impl Model<Vec<String>, Vec<Embedding>> for Water {
        fn name(&self) -> &str {
            "water"
        }

        fn ask(
            &self,
            texts: Vec<String>,
            reply: Reply<Vec<Embedding>>,
        ) -> Result<(), Busy<Vec<String>, Vec<Embedding>>> {
            assert_eq!(texts, ["Is the water cold?", "How deep?\nNine metres."]);
            reply.answer(Ok(vec![Arc::from([1.0, 0.0]), Arc::from([0.0, 1.0])]));
            Ok(())
        }
    }

    let shown = vec![[Some("How deep?".to_owned()), Some("Nine metres.".to_owned())]];
    let group = Some(Grouped { group: 5, entries: 3, shown });
    let exchanges = vec![(7, "How deep?\nNine metres.".to_owned())];
    let turn = Unprepared::new(context(&["u: Is the water cold?"]), exchanges, group);
    let plain = Unprepared { group: None, ..turn.clone() };
    let (prepared, _) = run_dataflow(vec![turn, plain], move |turns| {
        let graph = graph("");
        let means = asking(stage_context(&graph), |request: GenerateRequest| {
            assert!(request.prompt.contains("user: How deep? / you: Nine metres."));
            assert!(request.schema.is_none() && request.stage == Stage::History);
            let model = ModelUsed { name: "writer".to_owned(), prompt_hash: None };
            Generated { text: " The lake\nis deep. ".to_owned(), confidence: None, model }
        });
        let preparing = asked_of(Arc::new(Water), SummariesForm::Prompted, &means);
        let none = empty(turns.scope());
        (preparation(turns, Some(preparing)), none)
    });
    let mut parts: Vec<_> = prepared.into_iter().map(Prepared::into_parts).collect();
    parts.sort_by_key(|(_, summary)| summary.is_none());
    let [(vectors, Some((5, summary))), (of_plain, None)] = &parts[..] else {
        panic!("both turns, one with a summary: {parts:?}");
    };
    assert_eq!(vectors, of_plain);
    assert_eq!(vectors.query, Vector::of(&[1.0, 0.0]));
    let exchanges = vec![(7, Vector::of(&[0.0, 1.0]).expect("it has a length"))];
    assert_eq!((&vectors.exchanges, &vectors.failed), (&exchanges, &None));
    assert_eq!((summary.text.as_deref(), summary.entries), (Some("The lake is deep."), 3));
    assert_eq!(summary.model.name, "writer");
    assert!(summary.model.prompt_hash.is_some());
}
