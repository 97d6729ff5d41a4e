//! Tests the gate that reads after retrieval or after a draft.

use super::*;

#[test]
fn after_retrieval_the_model_reads_what_was_found() {
    let graph = graph(FACTS);
    let config = GateConfig { after_retrieval: true, ..learned_config(&["read"]) };
    let (passed, _) =
        through(&[&["u: Tell me about coffee", "s: Hm.", "u: coffee"]], &config, false);
    assert!(passed[0].gate.retrieve && passed[0].gate.features.is_empty());
    let found = |text: &str| {
        let evidence = Evidence {
            id: EvidenceId(text.to_owned()),
            source: "documents".into(),
            text: text.to_owned(),
            set: None,
            fact: None,
            document: None,
            persona: None,
            row: None,
            relevance: Score::new(0.5),
            consistency: None,
            attention: None,
            selected: false,
        };
        let candidates = Candidates { passages: vec![evidence], ..Candidates::default() };
        TurnInFlight { candidates, ..passed[0].clone() }
    };
    let turns = vec![found("coffee is bitter"), found("coffee is black")];
    let (weighed, failed) = run_dataflow(turns, move |turns| {
        later::after_retrieval(turns, config.clone(), &with_gate(&graph, false))
    });
    let retrieve: Vec<bool> = weighed.iter().map(|turn| turn.gate.retrieve).collect();
    assert_eq!((retrieve, failed.len()), (vec![true, false], 0));
}

#[test]
fn after_a_draft_a_turn_that_needs_nothing_keeps_it() {
    let graph = graph(FACTS);
    let config = GateConfig { after_draft: true, threshold: 0.6, ..learned_config(&["words"]) };
    let turns: [&[&str]; 2] = [&["u: one two three four five six seven"], &["u: Thanks!"]];
    let (turns, _) = through(&turns, &config, false);
    let (kept, failed) = run_dataflow(turns, move |turns| {
        let writing = GenerationConfig::default();
        let means = with_gate(&graph, false);
        let (needing_turns, kept, faults) =
            later::after_draft(turns, config.clone(), writing, &means);
        (kept.concat(needing_turns), faults)
    });
    assert!(failed.is_empty());
    let mut texts: Vec<(bool, bool)> =
        kept.iter().map(|turn| (turn.gate.retrieve, turn.draft.text.is_empty())).collect();
    texts.sort_unstable();
    // The first turn keeps its draft; the second goes on without one.
    assert_eq!(texts, [(false, false), (true, true)]);
}

#[test]
fn a_draft_for_the_gate_is_another_question_than_the_response() {
    let graph = graph(FACTS);
    let config = GateConfig { after_draft: true, threshold: 0.6, ..learned_config(&["words"]) };
    let turns: [&[&str]; 2] = [&["u: one two three four five six seven"], &["u: Thanks!"]];
    let (turns, _) = through(&turns, &config, false);
    let (drafted, failed) = run_dataflow(turns, move |turns| {
        let writing =
            GenerationConfig { form: GenerationForm::Prompted, ..GenerationConfig::default() };
        let means = asking(with_gate(&graph, false), |request| {
            let for_gate = request.origin.is_some_and(|origin| origin.for_gate);
            let text = if for_gate { "read by the gate" } else { "said behind it" }.to_owned();
            let model = ModelUsed { name: "scripted".to_owned(), prompt_hash: None };
            Generated { text, confidence: None, model }
        });
        let (needing, kept, faults) =
            later::after_draft(turns, config.clone(), writing.clone(), &means);
        let needing = needing.map(TurnInFlight::without_knowledge);
        let (drafted, more) = generation(needing, writing, &means);
        (kept.concat(drafted), faults.concat(more))
    });
    assert!(failed.is_empty());
    let mut said: Vec<(bool, &str)> =
        drafted.iter().map(|turn| (turn.gate.retrieve, turn.draft.text.as_str())).collect();
    said.sort_unstable();
    assert_eq!(said, [(false, "read by the gate"), (true, "said behind it")]);
}

#[test]
fn what_a_gate_reads_later_needs_a_learned_one() {
    let lexical = GateConfig { after_retrieval: true, ..GateConfig::default() };
    let message = lexical.check().unwrap_err().to_string();
    assert!(message.contains("gate.after_retrieval") && message.contains("learned"), "{message}");
    let both = GateConfig { after_retrieval: true, after_draft: true, ..learned_config(&[]) };
    assert!(both.check().unwrap_err().to_string().contains("after_draft"));
    let one = GateConfig { after_draft: true, ..learned_config(&[]) };
    assert_eq!(one.check(), Ok(()));
}
