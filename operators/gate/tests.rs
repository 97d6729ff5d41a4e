use proptest::prelude::*;
use timely::dataflow::operators::Concat;
use turnstream_knowledge::Graph;
use turnstream_ports::model::Generated;
use turnstream_ports::model::gate::{
    GateFailure, GateReading, GateScores, LearnedGate, NeedJudge, NeedPrompt,
};
use turnstream_schemas::{Evidence, EvidenceId, ModelUsed, SourceKind};

use super::*;
use crate::flow::{Candidates, Failed, TurnInFlight};
use crate::generation::{GenerationConfig, GenerationForm, generation};
use crate::sources::{SourceConfig, Sources};
use crate::testing::{
    Answering, asking, context, gated, graph, recalled, run_dataflow, scene, stage_context,
};

mod reads_later;

const FACTS: &str = "
    coffee HasProperty bitter 1
    coffee AtLocation coffee_shop 1
    insomnia Causes tiredness 1
    restaurant UsedFor eat 1
    espresso IsA coffee 1
";

#[test]
fn turns_that_need_knowledge_pass_and_small_talk_does_not() {
    let graph = graph(FACTS);
    let check = |lines: &[&str], retrieve: bool| {
        let decision = scene(lines, &graph).gate;
        assert_eq!(decision.retrieve, retrieve, "{lines:?}: {decision:?}");
        assert!((0.0..=1.0).contains(&decision.score.get()));
    };
    check(&["u: Where can I get coffee?"], true);
    check(&["u: I need a restaurant"], true);
    check(&["u: can you tell me what causes insomnia"], true);
    check(&["u: I have insomnia and I drink espresso."], true);
    check(&["u: Hello!"], false);
    check(&["u: Hi, how are you?"], false);
    check(&["u: OK, thank you very much!"], false);
    check(&["u: Goodbye"], false);
    check(&["u: Where can I get coffee?", "s: In a coffee shop.", "u: Great, thanks!"], false);
    check(&["u: hm"], false);
}

#[test]
fn chinese_turns_are_decided_by_chinese_features() {
    let graph = graph(
        "
        故宫 周边景点 天坛 1
        故宫 门票 60元 1
        咖啡 HasProperty 苦 1
    ",
    );
    let check = |lines: &[&str], retrieve: bool| {
        let decision = scene(lines, &graph).gate;
        assert_eq!(decision.retrieve, retrieve, "{lines:?}: {decision:?}");
    };
    check(&["u: 故宫的门票多少钱"], true);
    check(&["u: 能給我推薦一下故宮附近的景點嗎？"], true);
    check(&["u: 我昨天去了故宫和天坛。"], true);
    check(&["u: 你好！"], false);
    check(&["u: 好的，謝謝你，再見。"], false);
    check(&["u: 故宫的门票多少钱？", "s: 60元。", "u: 嗯嗯，我知道了"], false);
    check(&["u: 是啊，我也这么觉得"], false);
    let read = |line: &str| {
        let turn = scene(&[line], &graph);
        Features::read(&turn.context, &turn.mentions)
    };
    assert_eq!(read("u: 咖啡是什么").question, 1.0);
    assert_eq!((read("u: 咖啡苦嗎").question, read("u: 有没有咖啡").question), (0.8, 0.8));
    assert_eq!((read("u: 我喝咖啡").question, read("u: 我喝咖啡").request), (0.0, 0.0));
    assert_eq!((read("u: 告訴我").request, read("u: 謝謝！").small_talk), (1.0, 1.0));
}

#[test]
fn each_feature_is_read_from_the_turn() {
    let graph = graph(FACTS);
    let read = |lines: &[&str]| {
        let turn = scene(lines, &graph);
        Features::read(&turn.context, &turn.mentions)
    };
    assert_eq!(read(&["u: is there any coffee"]).question, 0.8);
    assert_eq!(read(&["u: And where is it"]).question, 1.0);
    assert_eq!(read(&["u: the coffee is there"]).question, 0.0);
    assert_eq!(read(&["u: I'm looking for coffee"]).request, 1.0);
    assert_eq!(read(&["u: I am coffee"]).request, 0.0);
    assert_eq!(read(&["u: Thanks!"]).small_talk, 1.0);
    let old = read(&["u: coffee?", "s: Yes.", "u: coffee"]);
    let new = read(&["u: espresso?", "s: Yes.", "u: coffee"]);
    assert_eq!(old.new_concepts, 0.0);
    assert!(new.new_concepts > 0.2 && new.informativeness > 0.2, "{new:?}");
}

#[test]
fn an_answer_in_history_speaks_against_retrieval() {
    let graph = graph(FACTS);
    let score = |query: &str, response: Option<&str>| {
        let mut context = context(&["u: Where can I drink coffee?"]);
        context.recalled = vec![recalled("old", query, response)];
        gated(context, &graph).gate.score.get()
    };
    let unanswered = score("Where can I drink coffee?", None);
    assert!(score("Where can I drink coffee?", Some("At a cafe.")) < unanswered);
    assert_eq!(score("Tell me about insomnia", Some("It tires.")), unanswered);
}

#[test]
fn the_contributions_make_the_score() {
    let graph = graph(FACTS);
    let decision = scene(&["u: Hi, can you find me coffee?"], &graph).gate;
    let sum: f64 = decision.features.values().map(|part| part.get()).sum();
    assert!((1.0 / (1.0 + (-sum).exp()) - decision.score.get()).abs() < 1e-12);
    assert!(decision.features["small_talk"].get() < 0.0);
}

#[test]
fn the_stage_links_decides_and_names_the_knowledge_of_every_turn() {
    let graph = graph(FACTS);
    let turns = vec![Arc::new(context(&["u: Where is coffee?"])), Arc::new(context(&["u: Hi"]))];
    let of_stages = Arc::clone(&graph);
    let (passed, failed) = run_dataflow(turns, move |turns| {
        let config = GateConfig { form: GateForm::Lexical, ..GateConfig::default() };
        gate(turns, config, &stage_context(&of_stages))
    });
    assert!(failed.is_empty());
    let retrieve: Vec<bool> = passed.iter().map(|turn: &TurnInFlight| turn.gate.retrieve).collect();
    assert_eq!(retrieve, [true, false]);
    assert_eq!(graph.concept(passed[0].mentions[0].concept), "coffee");
    assert!(passed.iter().all(|turn| turn.knowledge.state().snapshot == graph.version()));
}

#[test]
fn a_gate_that_never_opens_links_nothing() {
    let named = |form| {
        let config = GateConfig { form, ..GateConfig::default() };
        let (passed, _) = through(&[&["u: Where is coffee?"]], &config, false);
        (passed[0].gate.retrieve, passed[0].mentions.len())
    };
    assert_eq!(named(GateForm::Never), (false, 0));
    assert_eq!(named(GateForm::Always), (true, 1));
}

proptest! {
    #[test]
    fn no_text_breaks_the_gate(text in "\\PC{0,80}", earlier in "\\PC{0,40}") {
        let graph = graph(FACTS);
        let decision = scene(&[&format!("s: {earlier}"), &format!("u: {text}")], &graph).gate;
        prop_assert!((0.0..=1.0).contains(&decision.score.get()));
    }

    #[test]
    fn the_threshold_decides(threshold in 0.0_f64..=1.0) {
        let graph = graph(FACTS);
        let turn = scene(&["u: Where is coffee?"], &graph);
        let config = GateConfig { threshold, ..GateConfig::default() };
        let decision = decide(&turn.context, &turn.mentions, &config);
        prop_assert_eq!(decision.retrieve, decision.score.get() >= threshold);
    }
}

/// A gate that scores by how long the dialogue is, what was retrieved, and what was drafted.
struct ScriptedGate {
    /// Whether it fails.
    fails: bool,
}

impl LearnedGate for ScriptedGate {
    fn name(&self) -> &str {
        "scripted"
    }

    fn language(&self) -> &str {
        "en"
    }

    fn definitions(&self) -> Vec<&str> {
        vec!["words", "utterances", "read"]
    }

    fn score(&self, turn: &GateReading<'_>) -> Result<GateScores, GateFailure> {
        if self.fails {
            return Err(GateFailure("out of order".to_owned()));
        }
        let words = turn.utterances.last().unwrap().1.split_whitespace().count();
        let read = turn.knowledge.iter().any(|text| text.contains("bitter"))
            || turn.response.is_some_and(|text| !text.is_empty());
        Ok(GateScores::from([
            ("words".to_owned(), words as f64 / 10.0),
            ("utterances".to_owned(), turn.utterances.len() as f64 / 10.0),
            ("read".to_owned(), f64::from(u8::from(read))),
        ]))
    }
}

fn with_gate(graph: &Arc<Graph>, fails: bool) -> StageContext {
    StageContext { gate: Some(Arc::new(ScriptedGate { fails })), ..stage_context(graph) }
}

fn learned_config(definitions: &[&str]) -> GateConfig {
    let definitions = definitions.iter().map(|&name| name.to_owned()).collect();
    let learned = LearnedGateConfig { definitions, ..LearnedGateConfig::default() };
    GateConfig { form: GateForm::Learned, learned, ..GateConfig::default() }
}

/// Runs the gate over turns, with a scripted model.
fn through(
    turns: &[&[&str]],
    config: &GateConfig,
    fails: bool,
) -> (Vec<TurnInFlight>, Vec<Failed>) {
    let graph = graph(FACTS);
    let turns: Vec<_> = turns.iter().map(|lines| Arc::new(context(lines))).collect();
    let config = config.clone();
    run_dataflow(turns, move |turns| gate(turns, config.clone(), &with_gate(&graph, fails)))
}

#[test]
fn a_model_decides_by_the_definitions_that_are_asked_for() {
    let dialogue: &[&str] = &["u: hello there", "s: hi", "u: one two three four five six coffee"];
    let of = |definitions: &[&str], threshold| {
        let config = GateConfig { threshold, ..learned_config(definitions) };
        through(&[dialogue], &config, false).0.remove(0)
    };
    let all = of(&[], 0.5);
    assert_eq!((all.gate.retrieve, all.gate.score.get()), (true, 0.7));
    assert_eq!(all.gate.threshold.map(Score::get), Some(0.5));
    assert_eq!(all.progress.models[&Stage::Gate].name, "scripted");
    assert_eq!(all.gate.features.len(), 3);
    // Concepts are linked in every form.
    assert!(!all.mentions.is_empty());
    let utterances = of(&["utterances"], 0.5);
    assert_eq!((utterances.gate.retrieve, utterances.gate.score.get()), (false, 0.3));
    assert_eq!(utterances.gate.features.keys().collect::<Vec<_>>(), ["utterances"]);
    assert!(of(&["utterances"], 0.3).gate.retrieve);
}

#[test]
fn rules_decide_in_languages_that_the_model_does_not_know_and_where_it_fails() {
    let turns: [&[&str]; 2] = [&["u: 故宫的门票多少钱"], &["u: Where can I get coffee?"]];
    let (passed, _) = through(&turns, &learned_config(&["utterances"]), false);
    assert!(passed[0].gate.features.contains_key("question"), "{:?}", passed[0].gate);
    assert!(passed[0].progress.models.is_empty());
    assert!(passed[1].gate.features.contains_key("utterances"));

    let config = GateConfig { on_failure: OnFailure::Lexical, ..learned_config(&[]) };
    let (passed, failed) = through(&turns[1..], &config, true);
    assert!(failed.is_empty() && passed[0].gate.retrieve);
    assert_eq!(passed[0].progress.without(), [Stage::Gate]);
    let (passed, _) = through(&turns[1..], &learned_config(&[]), true);
    assert!(!passed[0].gate.retrieve);
    let config = GateConfig { on_failure: OnFailure::DeadLetter, ..config };
    let (_, failed) = through(&turns[1..], &config, true);
    assert!(failed[0].fault.reason.contains("out of order"), "{:?}", failed[0].fault);
}

#[test]
fn a_language_model_with_an_adapter_decides_about_turns_of_its_language() {
    let config = GateConfig { form: GateForm::Adapter, threshold: 0.6, ..GateConfig::default() };
    let judge =
        Answering::new(|prompt: &NeedPrompt| if prompt.0.contains("music") { 0.7 } else { 0.5 });
    let model = Arc::clone(&judge);
    let turns: [&[&str]; 3] = [
        &["u: hello there", "s: hi", "u: any music tonight?"],
        &["u: Where can I get coffee?"],
        &["u: 故宫的门票多少钱"],
    ];
    let (passed, failed) =
        run_dataflow(turns.map(|it| Arc::new(context(it))).into(), move |turns| {
            let (model, graph) = (Arc::clone(&model), graph(FACTS));
            let (language, definition) = ("en".to_owned(), "dstc11".to_owned());
            let judge = NeedJudge { model, language, definition };
            let context = StageContext { need_judge: Some(judge), ..stage_context(&graph) };
            let context = asking(context, |_| unreachable!("no other model is asked"));
            gate(turns, config.clone(), &context)
        });
    assert!(failed.is_empty(), "{failed:?}");
    let mut decided: Vec<_> = passed
        .iter()
        .map(|turn: &TurnInFlight| (turn.context.query().to_owned(), turn.gate.clone()))
        .collect();
    decided.sort_by(|a, b| a.0.cmp(&b.0));
    let of = |at: usize| (decided[at].1.retrieve, decided[at].1.features.get("dstc11"));
    assert_eq!(of(0), (false, Some(&Score::new(0.5))), "Where can I get coffee?");
    assert_eq!(of(1), (true, Some(&Score::new(0.7))), "any music tonight?");
    assert_eq!(decided[1].1.threshold, Some(Score::new(0.6)));
    assert_eq!(of(2).1, None, "rules decide in Chinese");
    let used = |turn: &&TurnInFlight| turn.progress.models.contains_key(&Stage::Gate);
    assert_eq!(passed.iter().filter(used).count(), 2);
    let mut asked = judge.asked().into_iter().map(|NeedPrompt(prompt)| prompt);
    let prompt = asked.find(|it| it.contains("music")).expect("a prompt");
    assert!(prompt.ends_with("System: hi\nUser: any music tonight?\n### Response:"), "{prompt}");
}

fn sources_of(kinds: &[SourceKind]) -> Sources {
    let named = |(at, kind): (usize, &SourceKind)| {
        let file = (*kind == SourceKind::Table).then(|| "rows.jsonl".into());
        (format!("s{at}"), SourceConfig { file, ..SourceConfig::of(*kind) })
    };
    Sources::new(&kinds.iter().enumerate().map(named).collect()).expect("sources")
}

#[test]
fn each_source_is_judged_by_who_was_made_for_its_knowledge() {
    let config = GateConfig { form: GateForm::BySource, ..GateConfig::default() };
    let asked = |kinds: &[SourceKind]| {
        let judges = Judges::new(&config, &sources_of(kinds));
        (judges.asks_encoder(), judges.definitions().join(" "))
    };
    assert_eq!(asked(&[SourceKind::Graph, SourceKind::BotPersona]), (false, String::new()));
    assert_eq!(asked(&[]), (false, String::new()));
    assert_eq!(asked(&[SourceKind::Documents]), (true, "dstc11".to_owned()));
    assert_eq!(asked(&[SourceKind::Graph, SourceKind::Table]), (true, "sgd".to_owned()));
    let tables = [SourceKind::Table, SourceKind::Table, SourceKind::Documents];
    assert_eq!(asked(&tables), (true, "sgd dstc11".to_owned()));
    // Configured definitions replace those of the kinds.
    let own = GateConfig { form: GateForm::BySource, ..learned_config(&["words"]) };
    let judges = Judges::new(&own, &sources_of(&tables));
    assert_eq!(judges.definitions(), ["words"]);
}

#[test]
fn by_default_no_turn_is_kept_from_documents_and_tables() {
    let opened = |kinds: &[SourceKind]| {
        let (graph, sources) = (graph(FACTS), Arc::new(sources_of(kinds)));
        let (passed, _) = run_dataflow(vec![Arc::new(context(&["u: Thanks!"]))], move |turns| {
            let sources = Arc::clone(&sources);
            let context = StageContext { sources, ..with_gate(&graph, false) };
            gate(turns, GateConfig::default(), &context)
        });
        passed.iter().all(|turn: &TurnInFlight| turn.gate.retrieve)
    };
    assert!(opened(&[SourceKind::Documents]) && opened(&[SourceKind::Graph, SourceKind::Table]));
    assert!(!opened(&[SourceKind::Graph]), "small talk needs no common knowledge");
}

#[test]
fn by_source_the_gate_opens_if_any_judge_sees_a_need() {
    let config = GateConfig { form: GateForm::BySource, ..learned_config(&["words"]) };
    let turns: [&[&str]; 4] = [
        // The rules and the model, the rules alone, the model alone, neither.
        &["u: Where can I get coffee around here today please?"],
        &["u: Where is coffee?"],
        &["u: oh well thank you very much for the lamp"],
        &["u: Thanks!"],
    ];
    let opened = |sources: Sources| {
        let graph = graph(FACTS);
        let contexts: Vec<_> = turns.iter().map(|lines| Arc::new(context(lines))).collect();
        let (config, sources) = (config.clone(), Arc::new(sources));
        let (passed, _) = run_dataflow(contexts, move |turns| {
            let sources = Arc::clone(&sources);
            gate(turns, config.clone(), &StageContext { sources, ..with_gate(&graph, false) })
        });
        passed
    };
    let decisions = |passed: &[TurnInFlight]| -> Vec<bool> {
        passed.iter().map(|turn| turn.gate.retrieve).collect()
    };
    assert_eq!(
        decisions(&opened(sources_of(&[SourceKind::Documents]))),
        [true, false, true, false]
    );
    assert_eq!(decisions(&opened(sources_of(&[SourceKind::Graph]))), [true, true, false, false]);
    let both = opened(sources_of(&[SourceKind::Graph, SourceKind::Documents]));
    assert_eq!(decisions(&both), [true, true, true, false]);
    // A source with cues is judged only for turns that call for it.
    let table = |cue: &str| {
        let file = Some("rows.jsonl".into());
        let cues = vec![cue.to_owned()];
        let table = SourceConfig { file, cues, ..SourceConfig::of(SourceKind::Table) };
        let graph = SourceConfig::of(SourceKind::Graph);
        let both = [("graph".to_owned(), graph), ("rows".to_owned(), table)];
        Sources::new(&both.into()).expect("sources")
    };
    assert_eq!(decisions(&opened(table("lamp"))), [true, true, true, false]);
    let others = opened(table("tea"));
    assert_eq!(decisions(&others), [true, true, false, false]);
    assert!(others.iter().all(|turn| turn.progress.models.is_empty()), "nobody asked the model");
    // The decision has both scores, and the features behind the score of the rules.
    let GateDecision { features, score, .. } = &both[1].gate;
    assert_eq!((features["words"].get(), features["rules"]), (0.3, *score));
    assert!(features.contains_key("question") && !features.contains_key("utterances"));
}

#[test]
fn chance_retrieves_at_its_rate_and_for_the_same_turns_again() {
    let turns: Vec<TurnContext> = (0..2_000)
        .map(|at| TurnContext { turn_id: format!("t{at}").as_str().into(), ..context(&["u: Hi"]) })
        .collect();
    let retrieved = |random_rate| {
        let config = GateConfig { form: GateForm::Random, random_rate, ..GateConfig::default() };
        let decided = turns.iter().map(|turn| decide(turn, &[], &config).retrieve);
        decided.collect::<Vec<bool>>()
    };
    let third = retrieved(0.3);
    let count = third.iter().filter(|retrieve| **retrieve).count();
    assert!((540..=660).contains(&count), "{count}");
    assert_eq!(third, retrieved(0.3));
    assert!(retrieved(0.0).iter().all(|retrieve| !retrieve));
    assert!(retrieved(1.0).iter().all(|retrieve| *retrieve));
}
