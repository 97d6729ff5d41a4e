//! Tests with a scripted model, and figures counted by hand.

use turnstream_ports::model::unified::{Said, Wording};

use super::*;

fn piece(text: &str, values: &[&str]) -> EvidenceText {
    let column = |value: &&str| Column { name: "price".to_owned(), value: (*value).to_owned() };
    let columns = values.iter().map(column).collect();
    EvidenceText { kind: SourceKind::Table, text: text.to_owned(), columns }
}

fn case(conversation: usize, user: &str, reply: &str, price: &str) -> UnifiedCase {
    let column =
        |name: &str, value: &str| Column { name: name.to_owned(), value: value.to_owned() };
    let offer = |name, value| ("offer".to_owned(), column(name, value));
    let actions = vec![offer("item", "Oslo"), offer("price", price), offer("dims", "yes")];
    let text = format!("offer: item = Oslo, price = {price}, dims = yes");
    UnifiedCase {
        conversation,
        dialogue: vec![Exchange { user: user.to_owned(), response: None }],
        kind: SourceKind::Table,
        asks: true,
        judged: vec![
            JudgedEvidence { piece: piece("item = Oslo", &[]), relation: Relation::Gold },
            JudgedEvidence { piece: piece("item = Bergen", &[]), relation: Relation::Same },
        ],
        reply: Some(Reply {
            text: reply.to_owned(),
            evidence: vec![piece(&text, &["Oslo", price, "yes"])],
            frame: Some(Frame { service: "Lamps".to_owned(), actions }),
        }),
    }
}

fn wording(parts: &[&str]) -> Wording {
    let part = |part: &&str| match part.strip_prefix('<') {
        Some(value) => {
            let name = if value == "Oslo" { "item" } else { "price" };
            Said::Value(Column { name: name.to_owned(), value: value.to_owned() })
        }
        None => Said::Words((*part).to_owned()),
    };
    Wording {
        said: parts.iter().map(part).collect(),
        lowest_log_probability: -0.1,
        is_whole: true,
        tokens: 9,
    }
}

/// Answers as a model that asks if a lamp is mentioned and finds evidence with an O relevant. It
/// words well, but with an opinion of its own for the first user; at the second try for the second
/// user; and never for the third.
fn scripted(request: &UnifiedRequest) -> UnifiedAnswer {
    let user = &request.dialogue[0].user;
    match &request.task {
        Task::Plan { kinds } => {
            let plans = user.contains("lamp");
            let kinds = if plans { kinds.clone() } else { Vec::new() };
            UnifiedAnswer::Plan { kinds, probability: 0.9 }
        }
        Task::Relevance { evidence, .. } => {
            UnifiedAnswer::Relevance(if evidence.text.contains('O') { 0.8 } else { 0.3 })
        }
        Task::Response { evidence, .. } if evidence.is_empty() => {
            UnifiedAnswer::Response(vec![wording(&["It costs 7."])])
        }
        Task::Response { evidence, drafts, .. } => {
            assert_eq!(*drafts, 2);
            let price = format!("<{}", evidence[0].0.columns[1].value);
            let good = wording(&["The price of", "<Oslo", " is", &price, "."]);
            let lacking = wording(&["The", "<Oslo", " is nice."]);
            UnifiedAnswer::Response(match user.as_str() {
                "A lamp?" => {
                    vec![wording(&["The price of", "<Oslo", " is", &price, ", lovely."]), good]
                }
                "Another lamp?" => vec![lacking, good],
                _ => vec![lacking, wording(&["The", "<Oslo", " costs 99 or", &price, "."])],
            })
        }
    }
}

#[test]
fn figures_are_those_counted_by_hand() {
    let cases = [
        case(0, "A lamp?", "The Oslo is $49.", "$49"),
        case(1, "Another lamp?", "The Oslo is $35.", "$35"),
        case(2, "And?", "Take the Oslo for $20.", "$20"),
        UnifiedCase { asks: false, judged: vec![], reply: None, ..case(2, "No lamp.", "", "") },
    ];
    let mut ask = |requests: &[UnifiedRequest]| Ok(requests.iter().map(scripted).collect());
    let mut done = 0;
    let train = [case(0, "", "I have the Oslo for $1.", "$1")];
    let templates = Templates::mined(&train);
    let measure = UnifiedMeasure { drafts: 2, templates: Some(&templates) };
    let (figures, samples) = evaluate(&cases, &mut ask, measure, || done += 1).expect("figures");
    assert_eq!(done, 4);
    // Two plans to ask are right and one is wrong; one is missing.
    let plan = &figures.plan;
    assert_eq!((plan.n, plan.positives), (4, 3));
    assert_eq!(plan.figures.precision, Some(2.0 / 3.0));
    assert_eq!(plan.figures.recall, Some(2.0 / 3.0));
    let relevance = figures.relevance.as_ref().expect("judged");
    assert_eq!(
        (relevance.n, relevance.figures.auc, relevance.figures.f1),
        (6, Some(1.0), Some(1.0))
    );
    let same = figures.relevance_same.as_ref().expect("judged");
    let other = figures.relevance_other.as_ref().expect("judged");
    assert_eq!((same.n, same.figures.auc), (6, Some(1.0)));
    // Only fitting evidence.
    assert_eq!((other.n, other.positives, other.figures.auc), (3, 3, None));

    let model = &figures.responses["model"];
    assert_eq!(
        (model.n, model.values.value, model.whole.value),
        (3, Some(4.0 / 6.0), Some(1.0 / 3.0))
    );
    let checked = &figures.responses["checked"];
    assert_eq!((checked.values.value, checked.whole.value), (Some(1.0), Some(1.0)));
    assert_eq!(checked.by, BTreeMap::from([("another draft", 1), ("model", 1), ("template", 1)]));
    assert_eq!(checked.refused, BTreeMap::from([("missing", 2)]));
    let guarded = &figures.responses["guarded"];
    assert_eq!(guarded.by, BTreeMap::from([("another draft", 2), ("template", 1)]));
    assert_eq!(guarded.refused, BTreeMap::from([("missing", 2), ("word", 1)]));
    assert_eq!(figures.responses["no model"].by, BTreeMap::new());
    let without = &figures.responses["without evidence"];
    assert_eq!((without.values.value, without.foreign_numbers.value), (Some(0.0), Some(1.0)));
    assert_eq!(model.foreign_numbers.value, Some(0.0));
    assert!(checked.bleu_4.value > model.bleu_4.value, "{figures:?}");

    let said: Vec<&str> = samples.iter().filter_map(|it| it.checked.as_deref()).collect();
    assert_eq!(
        said,
        [
            "The price of Oslo is $49, lovely.",
            "The price of Oslo is $35.",
            "I have the Oslo for $20."
        ]
    );
    assert_eq!(samples[0].guarded.as_deref(), Some("The price of Oslo is $49."));
    assert_eq!(
        samples[1].refused.as_deref(),
        Some("the response leaves out $35, which the user asked for")
    );
    // Without templates, the required content is put into plain sentences.
    let measure = UnifiedMeasure { drafts: 2, templates: None };
    let (_, samples) = evaluate(&cases, &mut ask, measure, || ()).expect("figures");
    assert_eq!(samples[2].checked.as_deref(), Some("Item is Oslo. Price is $20. Dims is yes."));
}

#[test]
fn a_failing_model_is_an_error_and_not_a_figure() {
    let cases = [case(0, "A lamp?", "The Oslo.", "$49")];
    let measure = UnifiedMeasure { drafts: 1, templates: None };
    let mut fails = |_: &[UnifiedRequest]| Err("out of order".to_owned());
    let message = evaluate(&cases, &mut fails, measure, || ()).unwrap_err().to_string();
    assert!(message.contains("out of order"), "{message}");
    let mut odd = |requests: &[UnifiedRequest]| {
        Ok(requests.iter().map(|_| UnifiedAnswer::Relevance(0.5)).collect())
    };
    let message = evaluate(&cases, &mut odd, measure, || ()).unwrap_err().to_string();
    assert!(message.contains("no plan"), "{message}");
}
