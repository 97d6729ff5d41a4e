use turnstream_knowledge::phrasings::{LeadsTo, Phrasing, Phrasings};
use turnstream_ports::model::reader::{ReadRequest, Section};
use turnstream_schemas::{CellsAsked, EvidenceId, RowOperation, RowsAsked, Score, SourceKind};

use super::*;
use crate::sources::SourceConfig;
use crate::tables::{Row, Table};
use crate::testing::{
    Answering, asking, document, graph, run_dataflow, scene, stage_context, table_row,
};

/// Decides about a turn with this evidence beside documents and a table, with a reader that gives this
/// reading.
fn decided_with(
    config: &DecisionConfig,
    lines: &[&str],
    evidence: Vec<Evidence>,
    reading: Reading,
) -> (TurnInFlight, Vec<ReadRequest>) {
    let turn = TurnInFlight { evidence, ..scene(lines, &graph("sea HasA fish 1")) };
    decided_turn(config, turn, move |_| reading.clone())
}

fn decided_turn(
    config: &DecisionConfig,
    turn: TurnInFlight,
    read: impl Fn(&ReadRequest) -> Reading + Send + Sync + 'static,
) -> (TurnInFlight, Vec<ReadRequest>) {
    let graph = graph("sea HasA fish 1");
    let (config, reader) = (config.clone(), Answering::new(read));
    let model = Arc::clone(&reader);
    let (mut values, faults) = run_dataflow(vec![turn], move |turns| {
        let kinds = [("pages", SourceKind::Documents), ("graph", SourceKind::Graph)];
        let sources = kinds.map(|(name, kind)| (name.to_owned(), SourceConfig::of(kind))).into();
        let sources = Arc::new(Sources::new(&sources).expect("sources"));
        let facts = spoken_facts(&config, &GenerationConfig::default(), &sources);
        let reader = Some(Arc::clone(&model) as Arc<Read>);
        let context = StageContext { reader, sources, ..stage_context(&graph) };
        let context = asking(context, |_| unreachable!("no language model is asked"));
        decision(turns, config.clone(), facts, &context)
    });
    assert!(faults.is_empty());
    (values.pop().expect("a turn"), reader.asked())
}

fn decided(lines: &[&str], evidence: Vec<Evidence>, reading: Reading) -> TurnInFlight {
    decided_with(&DecisionConfig::default(), lines, evidence, reading).0
}

fn reading(scores: &[&[f32]], precision: f32) -> Reading {
    let scores = scores.iter().map(|of| of.to_vec()).collect();
    Reading { scores, intents: [1.0, 0.0, 0.0, 0.0, 0.0], precision }
}

fn pages() -> Vec<Evidence> {
    let returns = "You have **14 days**. Sale items have 7 days. Bring the receipt.";
    let mut pages = vec![
        document("pages", "opening", "We open at nine.", 0.9),
        document("pages", "returns", returns, 0.4),
    ];
    pages.iter_mut().for_each(|page| page.selected = true);
    pages
}

fn row(name: &str, price: &str) -> Evidence {
    let row = table_row(&[("id", "T1"), ("name", name), ("price", price)]);
    Evidence { document: None, row: Some(row), ..document("goods", name, "", 0.5) }
}

fn of(turn: &TurnInFlight) -> (Action, Option<HandOffReason>, &str) {
    let decided = turn.decision.as_ref().expect("a decision");
    (decided.action, decided.hand_off, decided.said.as_deref().unwrap_or_default())
}

#[test]
fn the_sentences_that_answer_are_said() {
    let lines = ["u: I bought boots", "s: Lovely.", "u: and if they are too small?"];
    let given = reading(&[&[-2.0], &[3.0, 1.6, 1.4]], 0.8);
    let (turn, asked) = decided_with(&DecisionConfig::default(), &lines, pages(), given);
    let answer = (Action::Answer, None, "You have 14 days. Sale items have 7 days.");
    assert_eq!(of(&turn), answer);
    assert_eq!(turn.evidence[0].id.0, "returns", "the answer leads");
    let [ReadRequest { question, sections }] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(question.before().collect::<Vec<_>>(), ["Lovely.", "I bought boots"]);
    assert_eq!(question.user_before.as_deref(), Some("I bought boots"));
    let [_, Section { sentences, .. }] = &sections[..] else { panic!("{sections:?}") };
    assert_eq!(sentences[0], "You have 14 days.", "without mark-up");
}

#[test]
fn a_response_before_that_declined_is_not_read() {
    let declined = format!("s: {}", DecisionConfig::default().texts.en.decline);
    for (said, read) in [("s: You have 14 days.", Some("You have 14 days.")), (&*declined, None)] {
        let given = reading(&[&[-2.0], &[3.0, 0.0, 0.0]], 0.8);
        let lines = ["u: how long do I have?", said, "u: for a lamp?"];
        let (_, asked) = decided_with(&DecisionConfig::default(), &lines, pages(), given);
        let [ReadRequest { question, .. }] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(question.system_before.as_deref(), read);
        assert_eq!(question.user_before.as_deref(), Some("how long do I have?"));
    }
}

#[test]
fn a_question_is_answered_by_what_follows_it() {
    let page = document("pages", "faq", "May I bring my dog? Yes, on a lead. Cats may not.", 0.5);
    let turn = decided(&["u: dogs?"], vec![page], reading(&[&[4.0, 1.0, -1.0]], 0.9));
    assert_eq!(of(&turn), (Action::Answer, None, "Yes, on a lead."));
}

#[test]
fn too_few_right_answers_are_declined() {
    let config = DecisionConfig { min_precision: 0.81, ..DecisionConfig::default() };
    let given = reading(&[&[-2.0], &[3.0, 0.0, 0.0]], 0.8);
    let (turn, _) = decided_with(&config, &["u: too small?"], pages(), given);
    assert_eq!(of(&turn), (Action::Decline, None, &*config.texts.en.decline));
    assert!(turn.evidence.iter().all(|evidence| !evidence.selected), "nothing was used");
}

#[test]
fn nothing_found_again_and_again_is_handed_over() {
    let declined = format!("s: {}", DecisionConfig::default().texts.en.decline);
    let lines = ["u: a?", &*declined, "u: b?", &*declined, "u: c?"];
    let given = || reading(&[&[-2.0], &[-3.0, -3.0, -3.0]], 0.1);
    let turn = decided(&lines, pages(), given());
    assert_eq!(of(&turn).1, Some(HandOffReason::NothingFound));
    assert_eq!(of(&decided(&lines[2..], pages(), given())).0, Action::Decline);
}

fn named(row: Evidence, precision: f64, rest: Option<&str>) -> Evidence {
    let (mut named, columns) = (row, vec!["price".to_owned()]);
    let (precision, rest) = (Score::new(precision), rest.map(str::to_owned));
    named.row.as_mut().expect("a row").cells =
        Some(CellsAsked { columns, precision, by_meaning: Vec::new(), rest });
    named
}

#[test]
fn cells_that_are_asked_for_by_name_are_said_without_the_reader() {
    let rows =
        |precision| vec![row("Oslo lamp", "£49"), named(row("Desk", "£80"), precision, None)];
    let near: &[f32] = &[-5.0, -5.0, 3.0];
    let given = || reading(&[near, &[-5.0, -5.0, -4.0]], 0.1);
    let config = DecisionConfig::default();
    let (turn, asked) = decided_with(&config, &["u: the desk's price?"], rows(0.7), given());
    assert_eq!(of(&turn), (Action::Answer, None, "For Desk: price is £80."));
    assert_eq!(turn.decision.as_ref().and_then(|it| it.precision), Some(Score::new(0.7)));
    assert!(asked.is_empty() && turn.evidence[0].selected && !turn.evidence[1].selected);
    let (turn, asked) = decided_with(&config, &["u: the desk's price?"], rows(0.5), given());
    assert_eq!((of(&turn).0, asked.len()), (Action::Decline, 1), "too seldom right");
    let lines = ["u: a real person, please, and the desk's price"];
    assert_eq!(of(&decided(&lines, rows(0.7), given())).0, Action::HandOff);
}

#[test]
fn the_row_that_a_turn_names_answers_by_its_cells_and_the_names_of_its_columns() {
    let rows = |is_bare: bool, names: &[f64]| {
        let mut desk = named(row("Desk", "£80"), 0.0, None);
        let cells = desk.row.as_mut().and_then(|row| row.cells.as_mut()).expect("cells");
        cells.columns.retain(|_| !is_bare);
        cells.by_meaning = names.iter().copied().map(Score::new).collect();
        vec![row("Oslo lamp", "£49"), Evidence { relevance: Score::new(0.0), ..desk }]
    };
    // It is read though one piece is more relevant.
    let config = DecisionConfig { max_read: 1, ..DecisionConfig::default() };
    let decided = |config: &DecisionConfig, is_bare, names: &[f64], desk: &[f32], precision| {
        let given = reading(&[&[-5.0, -5.0, -5.0], desk], precision);
        let rows = rows(is_bare, names);
        let (turn, _) = decided_with(config, &["u: my wobbly desk, then?"], rows, given);
        let precision = turn.decision.as_ref().and_then(|it| it.precision);
        (of(&turn).0, of(&turn).2.to_owned(), precision.map_or(0.0, Score::get))
    };
    let (near, far) = ([0.1, 0.1, 0.5], [0.1, 0.1, 0.1]);
    let (action, said, precision) = decided(&config, false, &near, &[-5.0, -5.0, 0.9], 0.1);
    assert_eq!((action, &*said), (Action::Answer, "For Desk: price is £80."));
    assert!((0.7..0.9).contains(&precision), "{precision}");
    let (action, .., of_bare) = decided(&config, true, &near, &[-1.0, -1.0, 0.9], 0.1);
    assert_eq!(action, Action::Answer, "the column's name is near, no word is the same");
    let (.., of_words) = decided(&config, false, &near, &[-1.0, -1.0, 0.9], 0.1);
    assert!(of_words > of_bare, "{of_words} is more than {of_bare}");
    for (names, desk, precision) in [
        (&far[..], [-5.0, -5.0, 0.9], 0.1),
        (&near, [1.0, 3.0, -1.0], 0.1),
        // A cell is the best of the evidence, but the row does not have what is asked.
        (&far, [-5.0, -5.0, 0.9], 0.9),
        // Names without vectors.
        (&[], [-5.0, -5.0, 3.0], 0.1),
    ] {
        let (action, ..) = decided(&config, true, names, &desk, precision);
        assert_eq!(action, Action::Decline, "{names:?} {desk:?}");
    }
    let strict = DecisionConfig { min_precision: 0.95, ..config };
    assert_eq!(decided(&strict, false, &near, &[-5.0, -5.0, 0.9], 0.1).0, Action::Decline);
}

#[test]
fn what_no_row_has_is_declined_in_words() {
    let graph = graph("sea HasA fish 1");
    let asked = |line: &str| {
        let evidence = vec![row("Oslo lamp", "£49")];
        TurnInFlight { evidence, ..scene(&[line], &graph) }
    };
    let turns = vec![asked("u: what does t9 cost?"), asked("u: which are under £20?")];
    let (values, faults) = run_dataflow(turns, move |turns| {
        let row = serde_json::json!({"id": "T1", "name": "Oslo lamp", "price": "£49"});
        let table = Table::new(vec![Row::of(row.as_object().expect("an object"))]);
        let tables = Arc::new(Tables::from([("goods".into(), Arc::new(table))]));
        let context = StageContext { tables, ..stage_context(&graph) };
        decision(turns, DecisionConfig::default(), SpokenFacts::None, &context)
    });
    assert!(faults.is_empty());
    let said = "I am sorry, I cannot find T9. Could you check it?";
    assert_eq!(of(&values[0]), (Action::Decline, None, said));
    let said = "I am sorry, we have none like that.";
    assert_eq!(of(&values[1]), (Action::Decline, None, said));
}

#[test]
fn what_staff_taught_of_this_very_question_is_said() {
    let given = || reading(&[&[-1.0], &[-4.6, -3.0, -5.0]], 0.1);
    let (text, vector) = ("the small ones".to_owned(), vec![1.0, 0.0]);
    let leads_to = LeadsTo::Chunks(vec![(EvidenceId("returns".to_owned()), 2)]);
    let phrasings = Phrasings::new(vec![Arc::new(Phrasing { text, leads_to, vector })]);
    for (question, said) in [
        ([0.98, 0.2], (Action::Answer, "Sale items have 7 days.")),
        ([0.95, 0.31], (Action::Decline, &*DecisionTexts::default().en.decline)),
    ] {
        let lines = ["u: the small ones"];
        let taught = Arc::new(phrasings.nearest(&question));
        let turn = scene(&lines, &graph("sea HasA fish 1"));
        let turn = TurnInFlight { evidence: pages(), taught, ..turn };
        let (turn, _) = decided_turn(&DecisionConfig::default(), turn, move |_| given());
        assert_eq!((of(&turn).0, of(&turn).2), said, "{question:?}");
    }
}

fn cheapest(row: Evidence, rest: Option<&str>) -> Evidence {
    let (mut cheapest, column) = (row, Some("price".to_owned()));
    let (operation, rest) = (RowOperation::Least, rest.map(str::to_owned));
    cheapest.row.as_mut().expect("a row").asked = Some(RowsAsked { operation, column, rest });
    cheapest
}

#[test]
fn rows_that_answer_what_is_asked_of_several_are_said() {
    let asked = |name: &str, price: &str| cheapest(row(name, price), None);
    let evidence = vec![row("Oslo lamp", "£49"), asked("Oslo stool", "£20")];
    let given = reading(&[&[-5.0, -5.0, 3.0], &[-5.0, -5.0, -5.0]], 0.1);
    let turn = decided(&["u: your cheapest?"], evidence, given);
    assert_eq!(of(&turn), (Action::Answer, None, "For Oslo stool: price is £20."));
    assert!(turn.evidence[0].selected && !turn.evidence[1].selected);
}

#[test]
fn a_row_is_said_by_its_name_and_the_user_chooses_between_two_alike() {
    let cells: &[f32] = &[-5.0, -5.0, 2.0];
    let rows = || vec![row("Oslo lamp", "£49"), row("Oslo desk", "£80")];
    let read = || reading(&[cells, &[-5.0, -5.0, 0.0]], 0.9);
    let turn = decided(&["u: how much for the lamp?"], rows(), read());
    assert_eq!(of(&turn), (Action::Answer, None, "For Oslo lamp: price is £49."));
    let turn = decided(&["u: hello", "s: Hello.", "u: how much is it?"], rows(), read());
    assert_eq!(of(&turn).0, Action::Answer, "it may be what was spoken of");
    let turn = decided(&["u: how much is it?"], rows(), read());
    assert_eq!(of(&turn), (Action::Ask, None, "Which one do you mean?"));
    let alike = |price| reading(&[&[-5.0, -5.0, price], &[-5.0, -5.0, price - 0.5]], 0.3);
    let turn = decided(&["u: how much?"], rows(), alike(2.0));
    assert_eq!(of(&turn), (Action::Ask, None, "Do you mean Oslo lamp or Oslo desk?"));
    let sure = Reading { precision: 0.9, ..alike(2.0) };
    let turn = decided(&["u: the Oslo desk, how much?"], rows(), sure);
    assert_eq!(of(&turn), (Action::Answer, None, "For Oslo desk: price is £80."), "it is named");
    let unsure = Reading { precision: 0.2, ..alike(-1.0) };
    assert_eq!(of(&decided(&["u: who won?"], rows(), unsure)).0, Action::Decline);
}

#[test]
fn an_answer_names_its_passages_and_tables_where_that_is_wanted() {
    let config = DecisionConfig { names_sources: true, ..DecisionConfig::default() };
    let mut pages = pages();
    pages[1].document.as_mut().expect("a passage").title = "Returns: How long".to_owned();
    let given = |precision| reading(&[&[-2.0], &[3.0, -2.0, -2.0]], precision);
    let said = |precision| {
        let (turn, _) = decided_with(&config, &["u: too small?"], pages.clone(), given(precision));
        of(&turn).2.to_owned()
    };
    assert_eq!(said(0.9), "You have 14 days. (From: Returns: How long.)");
    assert_eq!(said(0.1), DecisionTexts::default().en.decline);
    let in_sale = |name: &str| {
        let cheapest = cheapest(row(name, "£20"), Some("can I return it?"));
        Evidence { source: "summer_sale-goods".into(), ..cheapest }
    };
    let evidence = [pages, Vec::from(["Stool", "Bench"].map(in_sale))].concat();
    let lines = ["u: your cheapest, and can I return it?"];
    let (turn, _) = decided_with(&config, &lines, evidence, given(0.9));
    let rows = "For Stool: price is £20. For Bench: price is £20.";
    let from = "(From: Returns: How long; summer sale goods.)";
    assert_eq!(of(&turn).2, format!("{rows} You have 14 days. {from}"), "a table once");
}

/// Decides about a turn that asks for the opening hours and about boots that are too small. The whole
/// utterance and each question have an answer of this precision, and the first of them is read first.
fn two_questions(of: [f32; 3]) -> (TurnInFlight, Vec<ReadRequest>) {
    let asked = "u: when do you open, and what if the boots are too small?";
    let lines = ["u: my boots came", "s: Good.", asked];
    let turn = TurnInFlight { evidence: pages(), ..scene(&lines, &graph("sea HasA fish 1")) };
    decided_turn(&DecisionConfig::default(), turn, move |request| {
        match &*request.question.utterance {
            "when do you open," => reading(&[&[3.0], &[-2.0, -2.0, -2.0]], of[1]),
            "what if the boots are too small?" => reading(&[&[-2.0], &[3.0, -2.0, -2.0]], of[2]),
            _ => reading(&[&[-2.0], &[1.0, -2.0, -2.0]], of[0]),
        }
    })
}

#[test]
fn each_of_several_questions_is_read_by_itself() {
    let (turn, asked) = two_questions([0.1, 0.8, 0.7]);
    assert_eq!(of(&turn), (Action::Answer, None, "We open at nine. You have 14 days."));
    let precision = turn.decision.as_ref().and_then(|it| it.precision).expect("a precision");
    assert!((precision.get() - 0.7).abs() < 1e-6, "of the less certain one: {precision:?}");
    let leading: Vec<&str> = turn.evidence[..2].iter().map(|it| &*it.id.0).collect();
    assert_eq!(leading, ["opening", "returns"], "in the order of the questions");
    let before: Vec<_> = asked.iter().map(|it| it.question.user_before.as_deref()).collect();
    assert_eq!(before, [Some("my boots came"), Some("my boots came"), Some("when do you open,")]);

    let rest = DecisionTexts::default().en.rest;
    let (turn, _) = two_questions([0.1, 0.2, 0.7]);
    assert_eq!(of(&turn).2, format!("You have 14 days. {rest}"), "the other has no answer");
    assert_eq!(turn.decision.as_ref().map(|it| it.pieces), Some(1), "only what is said is cited");
    let (turn, _) = two_questions([0.1, 0.3, 0.7]);
    assert_eq!(of(&turn).2, "We open at nine. You have 14 days.", "half as sure of the other");
    let (turn, _) = two_questions([0.8, 0.3, 0.7]);
    assert_eq!(of(&turn).2, "You have 14 days.", "the whole utterance has a sure answer");
    let (turn, _) = two_questions([0.8, 0.2, 0.2]);
    assert_eq!(of(&turn), (Action::Answer, None, "You have 14 days."), "one answer to both");
    let (turn, _) = two_questions([0.8, 0.7, 0.7]);
    assert_eq!(of(&turn).2, "We open at nine. You have 14 days.");
    assert_eq!(of(&two_questions([0.1, 0.2, 0.2]).0).0, Action::Decline);
}

#[test]
fn questions_with_the_same_answer_get_it_once() {
    let lines = ["u: how long do I have to bring them back, and what if they are too small?"];
    let turn = TurnInFlight { evidence: pages(), ..scene(&lines, &graph("sea HasA fish 1")) };
    let (turn, asked) = decided_turn(&DecisionConfig::default(), turn, |request| {
        let second = if request.question.utterance.starts_with("what") { 3.0 } else { -2.0 };
        reading(&[&[-2.0], &[3.0, second, -2.0]], 0.7)
    });
    assert_eq!(asked.len(), 3);
    let answer = (Action::Answer, None, "You have 14 days. Sale items have 7 days.");
    assert_eq!(of(&turn), answer);
}

#[test]
fn small_talk_is_social_unless_something_answers() {
    let social = |precision| Reading {
        intents: [0.1, 0.9, 0.0, 0.0, 0.0],
        ..reading(&[&[1.0], &[0.0, 0.0, 0.0]], precision)
    };
    assert_eq!(of(&decided(&["u: hiya folks"], pages(), social(0.2))).0, Action::Social);
    assert_eq!(of(&decided(&["u: when do you open"], pages(), social(0.9))).0, Action::Answer);
    // If every word is small talk the reader is not asked: it would find the previous answer again.
    let (config, lines) =
        (DecisionConfig::default(), ["u: when do you open", "s: At nine.", "u: thanks a lot"]);
    let (turn, asked) = decided_with(&config, &lines, pages(), social(0.9));
    assert_eq!((of(&turn).0, asked.len()), (Action::Social, 0));
}

#[test]
fn a_chinese_question_is_read_and_answered_or_declined_in_chinese() {
    let page = || vec![document("pages", "hours", "九点开门。周一不开。", 0.5)];
    let turn = decided(&["u: 几点开门？"], page(), reading(&[&[9.0, -3.0]], 0.9));
    assert_eq!(of(&turn), (Action::Answer, None, "九点开门。"));
    let turn = decided(&["u: 几点开门？"], page(), reading(&[&[-9.0, -9.0]], 0.2));
    assert_eq!(of(&turn), (Action::Decline, None, &*DecisionTexts::default().zh.decline));
}

#[test]
fn pages_without_a_graph_decline_in_every_language() {
    let graph = graph("sea HasA fish 1");
    let turn = scene(&["u: 几点开门？"], &graph);
    let (values, faults) = run_dataflow(vec![turn], move |turns| {
        let sources = [("pages".to_owned(), SourceConfig::of(SourceKind::Documents))].into();
        let sources = Arc::new(Sources::new(&sources).expect("sources"));
        let context = StageContext { sources, ..stage_context(&graph) };
        decision(turns, DecisionConfig::default(), SpokenFacts::None, &context)
    });
    assert!(faults.is_empty());
    assert_eq!(of(&values[0]).0, Action::Decline);
}

#[test]
fn common_knowledge_is_not_spoken_beside_documents() {
    let fact = Evidence {
        document: None,
        fact: Some(turnstream_schemas::FactStatement {
            head: "boots".to_owned(),
            relation: "IsA".to_owned(),
            tail: "shoe".to_owned(),
            weight: 1.0,
            ..turnstream_schemas::FactStatement::default()
        }),
        selected: true,
        ..document("graph", "boots", "boots are shoes", 0.9)
    };
    let evidence = [vec![fact], pages()].concat();
    let turn = decided(&["u: too small?"], evidence, reading(&[&[-2.0], &[3.0, 0.0, 0.0]], 0.8));
    let selected: Vec<&str> =
        turn.evidence.iter().filter(|it| it.selected).map(|it| &*it.id.0).collect();
    assert_eq!(selected, ["returns", "opening"]);
}

#[test]
fn it_can_be_off() {
    let config = DecisionConfig { form: DecisionForm::Off, ..DecisionConfig::default() };
    let (turn, asked) = decided_with(&config, &["u: a person?"], pages(), reading(&[], 0.0));
    assert!(turn.decision.is_none() && asked.is_empty());
    assert_eq!(turn.evidence, pages());
}

#[test]
fn texts_need_their_placeholders() {
    let mut config = DecisionConfig::default();
    assert_eq!(config.check(), Ok(()));
    config.texts.zh.ask = "哪一个？".to_owned();
    assert!(config.check().is_err());
    config = DecisionConfig::default();
    config.texts.en.no_row = "There is none.".to_owned();
    assert!(config.check().is_err());
}

/// Decides by a language model that gives these answers, one after the other.
fn prompted_with(answers: Vec<&'static str>, lines: &[&str]) -> (TurnInFlight, usize) {
    let graph = graph("sea HasA fish 1");
    let turn = TurnInFlight { evidence: pages(), ..scene(lines, &graph) };
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (mut values, faults) = run_dataflow(vec![turn], move |turns| {
        let (count, answers) = (Arc::clone(&count), answers.clone());
        let sources = [("pages".to_owned(), SourceConfig::of(SourceKind::Documents))].into();
        let sources = Arc::new(Sources::new(&sources).expect("sources"));
        let context = StageContext { sources, ..stage_context(&graph) };
        let context = asking(context, move |request| {
            let at = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            assert!(request.prompt.contains("2. You have **14 days**."), "{}", request.prompt);
            let text = answers[at.min(answers.len() - 1)].to_owned();
            turnstream_ports::model::Generated { text, ..Default::default() }
        });
        let config = DecisionConfig { form: DecisionForm::Prompted, ..DecisionConfig::default() };
        decision(turns, config, SpokenFacts::None, &context)
    });
    assert!(faults.is_empty());
    (values.pop().expect("a turn"), asked.load(std::sync::atomic::Ordering::Relaxed))
}

#[test]
fn a_language_model_decides_and_words_in_one_call() {
    let good = r#"{"action": "answer", "reply": "You have 14 days.", "evidence": [2]}"#;
    let (turn, asked) = prompted_with(vec![good], &["u: too small?"]);
    assert_eq!((of(&turn), asked), ((Action::Answer, None, "You have 14 days."), 1));
    let decided = turn.decision.as_ref().expect("a decision");
    assert_eq!((decided.pieces, &*turn.evidence[0].id.0), (1, "returns"));
    let declined = r#"{"action": "decline", "reply": "", "evidence": []}"#;
    let (turn, _) = prompted_with(vec![declined], &["u: who are you?"]);
    assert_eq!(of(&turn), (Action::Decline, None, &*DecisionTexts::default().en.decline));
    let danger = r#"{"action": "hand_off", "reply": "", "evidence": [], "reason": "safety"}"#;
    let (turn, _) = prompted_with(vec![danger], &["u: lately nothing feels worth it"]);
    let careful = &*DecisionTexts::default().en.safety;
    assert_eq!(of(&turn), (Action::HandOff, Some(HandOffReason::Safety), careful));
    // A user who asks for a person in plain words is not kept waiting for a model.
    let (turn, asked) = prompted_with(vec![good], &["u: a real person, please"]);
    assert_eq!((of(&turn).0, asked), (Action::HandOff, 0));
}

#[test]
fn what_a_language_model_makes_up_is_not_said() {
    let good = r#"{"action": "answer", "reply": "You have 14 days.", "evidence": [2]}"#;
    for bad in [
        r#"{"action": "answer", "reply": "You have 90 days.", "evidence": [2]}"#,
        r#"{"action": "answer", "reply": "You have 14 days.", "evidence": [7]}"#,
        r#"{"action": "answer", "reply": "null", "evidence": [2]}"#,
        r#"{"action": "perhaps", "reply": "x", "evidence": []}"#,
    ] {
        let (turn, asked) = prompted_with(vec![bad, good], &["u: too small?"]);
        assert_eq!((of(&turn).2, asked), ("You have 14 days.", 2), "{bad}");
        let (turn, _) = prompted_with(vec![bad], &["u: too small?"]);
        assert_eq!(turn.progress.without(), [Stage::Decision], "{bad}");
        assert_eq!(of(&turn).0, Action::Decline, "words alone do not answer either: {bad}");
    }
}

mod beside;
mod chosen;
mod compared;
mod handed_over;
mod told;
