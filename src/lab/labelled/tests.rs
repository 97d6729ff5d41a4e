//! Tests labelled turns in the format of every data set, on small files in our own words.

use super::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/formats").join(name)
}

fn outline(turns: &[LabelledTurn]) -> Vec<String> {
    let line = |turn: &LabelledTurn| {
        let need = format!("{:?}", turn.need).to_lowercase();
        let domain = turn.domain.as_deref().unwrap_or("-");
        format!("{} {} {need} {domain}", turn.conversation, turn.position)
    };
    turns.iter().map(line).collect()
}

#[test]
fn the_turn_that_is_answered_is_the_last_and_the_reply_stands_apart() {
    let turns = read(Format::Sgd, &fixture("sgd.jsonl")).unwrap();
    assert_eq!(
        outline(&turns),
        ["7_00001 1 none Bakeries", "7_00001 3 structured Bakeries", "7_00002 1 none -"]
    );
    assert_eq!(turns[1].last(), "The one on Mill Lane.");
    assert_eq!(turns[1].utterances.len(), 3);
    assert_eq!(turns[1].reply.as_deref(), Some("The bakery on Mill Lane has taken your order."));

    let turns = read(Format::Ketod, &fixture("ketod.json")).unwrap();
    assert_eq!(outline(&turns), ["9_00003 1 unstructured -", "9_00003 3 none -"]);
    assert_eq!(turns[0].reply.as_deref(), Some("How about the old lighthouse?"));
}

#[test]
fn what_could_be_retrieved_is_ranked_by_what_was_said() {
    let turns = read(Format::Kbp, &fixture("kbp.jsonl")).unwrap();
    assert_eq!(outline(&turns), ["dev-7 1 none -", "dev-7 3 persona -", "dev-7 5 persona -"]);
    // "我想去爬山" precedes the last question, which shares no term with any text.
    assert_eq!(turns[2].knowledge[..2], ["我 喜欢 爬山", "爬山可以锻炼身体。"]);
    assert!(turns[0].knowledge.is_empty(), "nothing was said about any of it yet");

    let turns = read(Format::TopicalChat, &fixture("topical-chat.jsonl")).unwrap();
    assert_eq!(outline(&turns), ["t_owls 1 none -", "t_owls 2 unstructured -"]);
    assert!(turns[0].knowledge.is_empty(), "who replies has nothing to read");
    assert_eq!(turns[1].knowledge, ["Owls hunt at night."], "by what was said before");
    assert_eq!(turns[1].utterances[1].speaker, Speaker::System);
}

#[test]
fn a_data_set_without_labels_is_refused_by_name() {
    let refused = read(Format::Dailydialog, &fixture("dailydialog.jsonl")).unwrap_err();
    let message = refused.to_string();
    assert!(message.contains("dailydialog does not say") && message.contains("topical-chat"));
    let refused = read(Format::Dstc11, &fixture("dstc11.jsonl")).unwrap_err().to_string();
    assert!(refused.contains("dstc11.jsonl:3:"), "{refused}");
}
