use serde_json::json;
use turnstream_ports::model::Step;
use turnstream_schemas::{Speaker, Turn};

use super::super::asked::Fits;
use super::*;

/// A response of our own with every kind of content.
fn response() -> Response {
    let json = json!({
        "schema_version": 1,
        "response_id": "turns-0-3",
        "input": { "topic": "turns", "partition": 0, "offset": 3 },
        "conversation_id": "kitchen",
        "user_id": "ann",
        "turn_id": "t4",
        "text": "You need flour and yeast to bake bread.",
        "gate": {
            "retrieve": true, "score": 0.88, "features": { "bias": -2.0, "question": 1.6, "new_concepts": 2.4 }
        },
        "demand": {
            "queries": {
                "explicit": [
                    { "concept": "bread", "turn": "t4", "span": { "start": 19, "end": 24 }, "weight": 0.9 },
                    { "concept": "sourdough", "turn": "t2", "span": { "start": 0, "end": 9 }, "weight": 0.25,
                      "via": "ngrams", "similarity": 0.8 }
                ],
                "implicit": [{ "concept": "flour", "because": ["bread"], "weight": 0.5 }]
            },
            "topics": {
                "maintained": [{ "concept": "bread", "weight": 0.7 }],
                "extended": [{ "concept": "oven", "weight": 0.3, "because": ["bread", "bake"] }]
            },
            "thoughts": { "queries": "What goes into bread.", "topics": "Baking." },
            "revisions": [{ "kind": "drop", "what": "extended: car", "why": "far from bread." }],
            "missing": ["biga"]
        },
        "plan": ["conceptnet", "docs"],
        "evidence": [
            { "id": "conceptnet/MadeOf/bread/flour", "source": "conceptnet", "text": "bread is made of flour",
              "set": "foreseen", "relevance": 0.75, "selected": true },
            { "id": "docs/1", "source": "docs", "text": "Yeast makes dough rise.", "relevance": 0.5,
              "document": { "document": "d1", "title": "On yeast", "chunk": 2, "by_words": 0.4 },
              "consistency": 0.9, "selected": true },
            { "id": "conceptnet/AtLocation/bread/shop", "source": "conceptnet", "text": "bread is at a shop",
              "set": "unforeseen", "relevance": 0.1, "selected": false },
            { "id": "conceptnet/IsA/bread/food", "source": "conceptnet", "text": "bread is food",
              "set": "unforeseen", "relevance": 0.05, "selected": false }
        ],
        "history": [
            { "turn_id": "t3", "via": "recent", "weight": 0.8 },
            { "turn_id": "t1", "via": "relevance", "weight": 0.4 }
        ],
        "evicted": [
            { "turn_id": "t0", "relevance": 0.1, "recency": 0.2, "weight": 0.15, "rank": 7, "reason": "capacity" }
        ],
        "query_reconstructed": "What do I need to bake sourdough bread?",
        "confidence": { "kind": "lowest_logit", "value": -1.5 },
        "knowledge": { "snapshot": "5fa1", "offsets": { "0": 12, "1": 4 } },
        "fingerprint": { "digest": "5c0ffee5c0ffee55", "parts": { "version": "0.1.0" } },
        "model": { "name": "large", "prompt_hash": "aaaa" },
        "models": { "query_production": { "name": "small", "prompt_hash": "bbbb" } },
        "degraded": ["topic_planning"],
        "timings_us": { "gate": 40, "generation": 1200 },
        "metadata": { "channel": "web" }
    });
    serde_json::from_value(json).expect("a response")
}

fn spoken() -> Spoken {
    let mut spoken = Spoken::default();
    for (id, text) in [("t1", "I like baking."), ("t4", "What do I need for bread?")] {
        let mut turn = Turn::new("kitchen", Speaker::User, text);
        turn.turn_id = Some(id.into());
        spoken.note_turn(&turn);
    }
    spoken
}

fn asked(stage: Stage, prompt_hash: &str, answer: &str) -> Asked {
    Asked {
        stage,
        step: Step::Answer,
        round: 0,
        for_gate: false,
        model: "default".to_owned(),
        prompt_hash: prompt_hash.to_owned(),
        system: "Answer.".to_owned(),
        prompt: "<<dialogue>>\n  user: Hello\n\n<</dialogue>>".to_owned(),
        answer: Some(answer.to_owned()),
        failed: None,
    }
}

#[test]
fn the_whole_path_is_shown() {
    let (spoken, response) = (spoken(), response());
    let asked = [asked(Stage::Generation, "aaaa", " You need flour and yeast to bake bread.\n")];
    let shown =
        Shown { spoken: Some(&spoken), threshold: Some(0.5), not_selected: Some(1), asked: &asked };
    let shown = tree(&response, &shown).render(84, false);
    assert_eq!(shown, include_str!("expected.txt"));
    for line in shown.lines() {
        assert!(line.chars().count() <= 84, "{line}");
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn a_sentence_of_a_persona_is_shown_with_whom_it_describes() {
    for (describes, who) in [("user", "the user"), ("system", "who answers")] {
        let mut response = response();
        let sentence = json!({
            "id": "persona/2", "source": "persona", "text": "I bake rye.", "relevance": 0.31,
            "persona": { "describes": describes, "place": 2, "by_words": 0.5, "by_meaning": 0.25 },
            "selected": true
        });
        response.evidence.push(serde_json::from_value(sentence).expect("evidence"));
        let shown = tree(&response, &Shown::default()).render(1000, false);
        let line = format!(
            "selected, relevance 0.31 I bake rye. persona, sentence 2 about {who}, by words 0.50, \
             by meaning 0.25\n"
        );
        assert!(shown.contains(&line), "{line} in\n{shown}");
        assert!(shown.contains("1 of the persona, 1 of documents"), "{shown}");
    }
}

#[test]
fn drafts_that_were_put_aside_are_shown_with_their_scores() {
    let mut response = response();
    let round = json!({
        "round": 1, "text": "Bread is food.",
        "evidence": [
            { "id": "docs/1", "relevance": 0.5, "consistency": 0.5, "score": 0.25 },
            { "id": "docs/2", "consistency": 0.75, "score": 0.75 }
        ],
        "dropped": ["docs/1"], "added": []
    });
    response.refinement.push(serde_json::from_value(round).expect("a round"));
    let asked = asked(Stage::Generation, "aaaa", "Bread is food.");
    let asked = [asked.clone(), Asked { round: 1, ..asked }];
    assert!(asked[0].place() < asked[1].place());
    let shown = Shown { asked: &asked, ..Shown::default() };
    let shown = tree(&response, &shown).render(1000, false);
    for line in [
        "refinement drafted again once",
        "draft 1 discarded \"Bread is food.\": docs/1 out, nothing in",
        "generation model default, prompt aaaa: a later draft replaced the response",
        "generation, round 1 model default, prompt aaaa: NOT this response's: the answer differs",
        "docs/1 0.25 = relevance 0.50 × consistency 0.50",
        "docs/2 0.75 = relevance 1.00 × consistency 0.75",
    ] {
        assert!(shown.contains(line), "{line} in\n{shown}");
    }
}

#[test]
fn a_narrow_page_has_the_same_words() {
    let words = |width| {
        let shown = tree(&response(), &Shown::default()).render(width, false);
        let guides = ['│', '├', '└', '─'];
        let bare: String = shown.chars().filter(|it| !guides.contains(it)).collect();
        bare.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words(50), words(1000));
    assert!(words(50).ends_with(&["{\"channel\":\"web\"}".to_owned()]));
}

#[test]
fn what_was_not_done_is_not_shown_and_who_decided_is() {
    let mut response = response();
    let gate = |response: &Response| {
        let shown = tree(response, &Shown::default()).render(1000, false);
        shown.lines().find(|line| line.starts_with("├─ gate ")).expect("a gate").to_owned()
    };
    assert_eq!(gate(&response), "├─ gate retrieve: score 0.88, decided by features");
    response.degraded = vec![Degraded::Stage(Stage::Gate)];
    assert!(gate(&response).ends_with("decided by features, in the failed model's place"));
    response.gate.features.clear();
    assert!(gate(&response).ends_with("decided by nobody, since the stage failed"));
    response.degraded.clear();
    let model = ModelUsed { name: "small".to_owned(), prompt_hash: Some("cccc".to_owned()) };
    response.models.insert(Stage::Gate, model);
    assert!(gate(&response).ends_with("decided by model small, prompt cccc"));

    response.gate.retrieve = false;
    response.demand = turnstream_schemas::Demand::default();
    (response.evidence, response.plan) = (Vec::new(), turnstream_schemas::Plan::default());
    (response.evicted, response.history) = (Vec::new(), Vec::new());
    response.timings_us.clear();
    response.metadata.clear();
    let shown = tree(&response, &Shown::default()).render(1000, false);
    for gone in ["demand", "evidence", "evicted", "time", "from the turn", "prompts", "degraded"] {
        assert!(!shown.contains(&format!("─ {gone}")), "{gone} in\n{shown}");
    }
    assert!(shown.contains("no retrieval") && shown.contains("nothing is recalled"), "{shown}");
}

#[test]
fn a_prompt_is_held_against_what_the_response_names() {
    let response = response();
    let said = "You need flour and yeast to bake bread.";
    let fits = |asked: Asked| asked.fits(&response);
    assert_eq!(fits(asked(Stage::Generation, "aaaa", said)), Fits::Used);
    assert_eq!(fits(asked(Stage::Generation, "aaaa", "Something else.")), Fits::OtherAnswer);
    assert_eq!(fits(asked(Stage::Generation, "dddd", said)), Fits::OtherPrompt);
    assert_eq!(fits(asked(Stage::Generation, "aaaa", "{\"answer\": \"Flour.\"}")), Fits::PutAside);
    let for_gate = |answer| Asked { for_gate: true, ..asked(Stage::Generation, "aaaa", answer) };
    assert_eq!(fits(for_gate("Something else.")), Fits::PutAside);
    assert_eq!(fits(for_gate(said)), Fits::Used);
    assert_eq!(fits(asked(Stage::QueryProduction, "bbbb", "{}")), Fits::Used);
    assert_eq!(fits(asked(Stage::TopicPlanning, "eeee", "{}")), Fits::NotUsed);
}
