use proptest::prelude::*;

use super::*;
use crate::testing::{context, gated, graph, recalled, resources, run_dataflow, scene};

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
    let resources_graph = Arc::clone(&graph);
    let (passed, failed) = run_dataflow(turns, move |turns| {
        gate(turns, GateConfig::default(), &resources(&resources_graph))
    });
    assert!(failed.is_empty());
    let retrieve: Vec<bool> = passed.iter().map(|turn: &Gated| turn.gate.retrieve).collect();
    assert_eq!(retrieve, [true, false]);
    assert_eq!(graph.concept(passed[0].mentions[0].concept), "coffee");
    assert!(passed.iter().all(|turn| turn.knowledge.state().snapshot == graph.version()));
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
