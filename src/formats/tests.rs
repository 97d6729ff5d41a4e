//! Tests of every loader on a fixture of its shape, and on the real data if it is available.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use serde_json::json;
use turnstream_schemas::Speaker;

use super::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/formats").join(name)
}

fn items(format: Format, path: &Path) -> Vec<Result<LoggedItem, FormatError>> {
    open(format, path).unwrap().collect()
}

/// Returns the turns of a file, and the messages of its errors.
fn load(format: Format, path: &Path) -> (Vec<LoggedTurn>, Vec<String>) {
    let (mut turns, mut errors) = (Vec::new(), Vec::new());
    for item in items(format, path) {
        match item {
            Ok(LoggedItem::Turn(turn)) => turns.push(*turn),
            Ok(LoggedItem::Raw { line, .. }) => panic!("line {line} is raw"),
            Err(error) => errors.push(error.to_string()),
        }
    }
    (turns, errors)
}

fn load_fixture(format: Format, name: &str) -> Vec<LoggedTurn> {
    let (turns, errors) = load(format, &fixture(name));
    assert!(errors.is_empty(), "{errors:?}");
    turns
}

/// Returns `conversation turn side` of every turn, with a full stop after the last of each
/// conversation.
fn outline(turns: &[LoggedTurn]) -> Vec<String> {
    let line = |logged: &LoggedTurn| {
        let turn = &logged.turn;
        let side = if turn.speaker == Speaker::User { "user" } else { "system" };
        let stop = if logged.last_of_scope { "." } else { "" };
        format!("{} {} {side}{stop}", turn.conversation_id, turn.turn_id.as_ref().unwrap())
    };
    turns.iter().map(line).collect()
}

fn needs(turns: &[LoggedTurn]) -> Vec<Option<Need>> {
    turns.iter().map(|turn| turn.labels.need).collect()
}

#[test]
fn a_format_is_called_by_its_name() {
    for format in Format::value_variants() {
        assert_eq!(format.to_possible_value().unwrap().get_name(), format.name());
    }
}

#[test]
fn lines_of_turns_are_handed_on_as_they_are() {
    let lines = items(Format::Turns, &fixture("turns.jsonl"));
    let lines: Vec<_> = lines.into_iter().map(Result::unwrap).collect();
    let text = std::fs::read_to_string(fixture("turns.jsonl")).unwrap();
    let expected = text.lines().zip(1..).filter(|(text, _)| !text.is_empty());
    let expected: Vec<_> = expected
        .map(|(text, line)| LoggedItem::Raw { line, bytes: text.as_bytes().to_vec() })
        .collect();
    assert_eq!(lines, expected);
    assert_eq!(lines.len(), 4, "the blank line is passed over, the bad one is not");
}

#[test]
fn sgd_needs_a_service_where_the_reply_calls_one() {
    let turns = load_fixture(Format::Sgd, "sgd.jsonl");
    assert_eq!(
        outline(&turns),
        [
            "7_00001 1 user",
            "7_00001 2 system",
            "7_00001 3 user",
            "7_00001 4 system.",
            "7_00002 1 user",
            "7_00002 2 system.",
        ]
    );
    let (no, yes) = (Some(Need::None), Some(Need::Structured));
    assert_eq!(needs(&turns), [no, None, yes, None, no, None]);
    assert_eq!(turns[2].turn.text, "The one on Mill Lane.");
    assert_eq!(turns[2].labels.domain.as_deref(), Some("Bakeries"), "the reply's");
    assert_eq!(turns[4].labels.domain, None);
    assert_eq!((turns[0].line, turns[4].line), (1, 2));
    assert_eq!(turns[0].turn.language.as_deref(), Some("en"));
    assert_eq!(turns[0].turn.timestamp, None);
}

#[test]
fn ketod_gains_from_knowledge_where_the_reply_is_enriched() {
    let turns = load_fixture(Format::Ketod, "ketod.json");
    assert_eq!(outline(&turns)[3..], ["9_00003 4 system.", "9_00004 1 user."]);
    assert_eq!(
        needs(&turns),
        [Some(Need::Unstructured), None, Some(Need::None), None, None],
        "a turn without a reply has no label"
    );
    assert_eq!(turns[0].labels.gold, ["4", "11"]);
    assert_eq!(turns[1].turn.text, "How about the old lighthouse?", "not the enriched wording");
    assert_eq!((turns[0].line, turns[4].line), (2, 21));
}

#[test]
fn every_instance_of_dstc_is_a_dialogue_labelled_at_its_end() {
    let (turns, errors) = load(Format::Dstc11, &fixture("dstc11.jsonl"));
    assert_eq!(
        outline(&turns),
        ["dstc11-0 1 user.", "dstc11-1 1 user", "dstc11-1 2 system", "dstc11-1 3 user."]
    );
    assert_eq!(needs(&turns), [Some(Need::None), None, None, Some(Need::Unstructured)]);
    assert_eq!(turns[3].labels.gold, ["hotel/3/review/5/1", "hotel/3/faq/8"]);
    assert_eq!(turns[3].labels.domain.as_deref(), Some("hotel"));
    assert_eq!(turns[3].labels.reply.as_deref(), Some("Most of them slept well there."));
    assert_eq!(errors.len(), 1, "an instance must end with the user: {errors:?}");
    assert!(errors[0].contains("dstc11.jsonl:3: not a dialogue of dstc11"), "{}", errors[0]);

    let turns = load_fixture(Format::Dstc10, "dstc10.jsonl");
    assert_eq!(outline(&turns), ["dstc10-0 1 user."]);
    assert_eq!(turns[0].labels.gold, ["hotel/*/12"]);
}

#[test]
fn topical_chat_labels_a_turn_by_what_the_reply_rests_on() {
    let turns = load_fixture(Format::TopicalChat, "topical-chat.jsonl");
    assert_eq!(
        outline(&turns),
        ["t_owls 1 user", "t_owls 2 system", "t_owls 3 user", "t_owls 4 system."]
    );
    assert_eq!(needs(&turns), [Some(Need::None), Some(Need::Unstructured), None, None]);
    assert_eq!(turns[1].labels.gold, ["FS1", "AS2"]);
    assert_eq!(
        turns[1].labels.available[..],
        ["Owls hunt at night."],
        "the replying side has read it"
    );
    assert!(turns[0].labels.available.is_empty());
    assert!(turns[0].turn.text.ends_with("eyes? "), "texts are not tidied");
}

#[test]
fn kbp_gives_the_persona_and_what_the_reply_used() {
    let turns = load_fixture(Format::Kbp, "kbp.jsonl");
    assert_eq!(outline(&turns)[4..], ["dev-7 5 user", "dev-7 6 system."]);
    let persona = Some(Need::Persona);
    assert_eq!(needs(&turns), [Some(Need::None), None, persona, None, persona, None]);
    assert_eq!(turns[2].labels.gold, ["B0"]);
    assert_eq!(turns[4].labels.gold, ["B0", "B0-K0"]);
    assert_eq!(turns[4].labels.texts.len(), 2);
    assert_eq!(turns[4].labels.texts[0], turns[4].turn.persona[0]);
    assert_eq!(turns[0].turn.persona, ["我 喜欢 爬山", "我有一只猫", "我住在海边"]);
    let available = ["我 喜欢 爬山", "爬山可以锻炼身体。", "我有一只猫", "我住在海边"];
    assert_eq!(turns[0].labels.available[..], available, "whether a reply used it or not");
    assert_eq!(turns[1].turn.persona, Vec::<String>::new());
    assert_eq!(turns[1].turn.language.as_deref(), Some("zh"));
}

#[test]
fn the_first_speaker_is_the_user_where_the_data_does_not_say() {
    let (turns, errors) = load(Format::Dailydialog, &fixture("dailydialog.jsonl"));
    assert_eq!(
        outline(&turns),
        [
            "validation-3 1 user",
            "validation-3 2 system",
            "validation-3 3 user.",
            "validation-5 1 user."
        ]
    );
    assert_eq!(turns[0].labels, Labels::default());
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("dailydialog.jsonl:2") && errors[0].contains("no turns"));

    let turns = load_fixture(Format::CommonsenseDialogues, "commonsense-dialogues.jsonl");
    assert_eq!(outline(&turns), ["12 1 user", "12 2 system", "12 3 user."]);
}

#[test]
fn topiocqa_asks_and_answers() {
    let turns = load_fixture(Format::Topiocqa, "topiocqa.jsonl");
    assert_eq!(outline(&turns), ["41 q1 user", "41 a1 system", "41 q2 user", "41 a2 system."]);
    assert_eq!(turns[0].labels.topic.as_deref(), Some("Windmill"));
    assert_eq!(turns[2].labels.topic, None);
    assert_eq!(turns[3].turn.text, "UNANSWERABLE");
}

#[test]
fn locomo_keeps_its_ids_and_the_times_of_its_sessions() {
    let turns = load_fixture(Format::Locomo, "locomo.jsonl");
    assert_eq!(
        outline(&turns),
        [
            "conv-1 D1:1 user",
            "conv-1 D1:2 user",
            "conv-1 D1:3 system",
            "conv-1 D2:1 system.",
            "conv-2 D1:1 user",
            "conv-2 D1:1#2 system.",
        ]
    );
    let times: Vec<_> = turns.iter().map(|turn| turn.turn.timestamp).collect();
    let at = |text: &str| Some(serde_json::from_value(json!(text)).unwrap());
    let (first, second) = (at("2021-03-03T09:05:00Z"), at("2021-03-04T12:30:00Z"));
    assert_eq!(times, [first, first, first, second, None, None]);
    assert_eq!(turns[1].turn.metadata["image_caption"], "a wooden box in a meadow");
}

#[test]
fn kdconv_names_the_triples_of_the_reply() {
    let turns = load_fixture(Format::Kdconv, "kdconv.json");
    assert_eq!(
        outline(&turns),
        ["kdconv-0 1 user", "kdconv-0 2 system", "kdconv-0 3 user.", "kdconv-1 1 user."]
    );
    assert_eq!(needs(&turns), [Some(Need::Structured), Some(Need::None), None, None]);
    assert_eq!(turns[0].labels.gold, ["老桥\t建成时间\t1890年"]);
    assert_eq!(turns[0].turn.language.as_deref(), Some("zh"));
}

#[test]
fn kvret_and_multiwoz_name_the_user() {
    let turns = load_fixture(Format::Kvret, "kvret.jsonl");
    assert_eq!(outline(&turns)[1..], ["train-5 2 system", "train-5 3 user", "train-5 4 system."]);
    assert_eq!(turns[2].turn.text, "", "a turn without text is left to the engine");

    let turns = load_fixture(Format::Multiwoz, "multiwoz.jsonl");
    assert_eq!(outline(&turns), ["MUL0001 1 user", "MUL0001 2 system.", "MUL0002.json 1 user."]);
    assert_eq!(turns[2].turn.text, "Thank you.");
}

#[test]
fn a_packed_log_reads_like_a_plain_one() {
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("log-with-any-name");
    let file = std::fs::File::create(&packed).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    encoder.write_all(&std::fs::read(fixture("sgd.jsonl")).unwrap()).unwrap();
    encoder.finish().unwrap();
    assert_eq!(load(Format::Sgd, &packed), load(Format::Sgd, &fixture("sgd.jsonl")));
}

#[test]
fn ids_that_repeat_become_unique() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twice.jsonl");
    let once = std::fs::read(fixture("multiwoz.jsonl")).unwrap();
    std::fs::write(&path, [once.clone(), once].concat()).unwrap();
    let (turns, _) = load(Format::Multiwoz, &path);
    let ids: Vec<_> = turns.iter().map(|turn| turn.turn.conversation_id.as_str()).collect();
    let (one, two) = ("MUL0001#2", "MUL0002.json#3");
    assert_eq!(ids, ["MUL0001", "MUL0001", "MUL0002.json", one, one, two]);
}

#[test]
fn an_unreadable_dialogue_does_not_affect_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let good = r#"{"dialogue_id":"a","turns":[{"speaker":"USER","utterance":"Hello."}]}"#;
    let nameless = good.replace(r#""utterance""#, r#""said""#);
    let stranger = good.replace("USER", "PARROT");
    let two = format!("{good} {good}");
    let lines =
        [&nameless, good, &stranger, "{\"dialogue_id\":", "\u{fffd}", &two, good].join("\n");
    std::fs::write(&path, lines.replace('\u{fffd}', "nonsense")).unwrap();
    let (turns, errors) = load(Format::Sgd, &path);
    assert_eq!(turns.iter().map(|turn| turn.line).collect::<Vec<_>>(), [2, 7]);
    let expected = [
        ":1: not a dialogue of sgd: turns[0]: missing field `utterance`",
        ":3: not a dialogue of sgd: unknown speaker `PARROT`",
        ":4: not a dialogue of sgd: ",
        ":5: not a dialogue of sgd: expected",
        ":6: not a dialogue of sgd: more text follows",
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, expected) in errors.iter().zip(expected) {
        assert!(error.contains(expected), "{error}");
        assert!(error.ends_with("correct the record, or name the right --format"), "{error}");
    }
    // In a list over several lines, the error names the line of the fault, not that of the
    // dialogue.
    std::fs::write(&path, format!("[\n{good},\n{}\n]", nameless.replace(":[", ":\n["))).unwrap();
    let (turns, errors) = load(Format::Sgd, &path);
    assert_eq!(turns.len(), 1);
    assert!(errors[0].contains(":4: not a dialogue of sgd: turns[0]: missing"), "{errors:?}");
}

#[test]
fn a_file_that_cannot_be_opened_or_read_ends_the_reading() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.jsonl");
    let error = open(Format::Sgd, &missing).err().unwrap();
    assert!(error.ends() && error.to_string().contains("missing.jsonl: cannot be opened"));
    let error = open(Format::Turns, folder.path()).err().unwrap();
    assert!(error.ends() && error.to_string().contains("check the path"), "{error}");

    let path = folder.path().join("cut.gz");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&std::fs::read(fixture("sgd.jsonl")).unwrap()).unwrap();
    let packed = encoder.finish().unwrap();
    std::fs::write(&path, &packed[..packed.len() - 6]).unwrap();
    for format in [Format::Sgd, Format::Turns] {
        let found = items(format, &path);
        let (last, before) = found.split_last().unwrap();
        assert!(last.as_ref().is_err_and(FormatError::ends));
        assert!(before.iter().all(Result::is_ok));
    }
}

/// The known counts of a file of the real data.
struct Known {
    format: Format,
    file: &'static str,
    dialogues: usize,
    turns: usize,
    /// Whether the two sides strictly alternate.
    alternates: bool,
    /// Number of turns by need.
    needs: &'static [(Need, usize)],
}

const fn known(
    format: Format,
    file: &'static str,
    (dialogues, turns): (usize, usize),
    needs: &'static [(Need, usize)],
) -> Known {
    let alternates = !matches!(format, Format::Locomo);
    Known { format, file, dialogues, turns, alternates, needs }
}

/// Counts made on the files without these loaders. The train files of SGD, DailyDialog, KBP and
/// KVRET are left out to keep the test short.
const REAL: &[Known] = &[
    known(
        Format::Sgd,
        "sgd/dev.jsonl.gz",
        (2_098, 38_768),
        &[(Need::None, 13_357), (Need::Structured, 6_027)],
    ),
    known(
        Format::Ketod,
        "ketod/format-sample.json",
        (1, 6),
        &[(Need::None, 2), (Need::Unstructured, 1)],
    ),
    known(
        Format::Dstc11,
        "dstc11-track5/train.jsonl.gz",
        (2_489, 19_339),
        &[(Need::None, 1_219), (Need::Unstructured, 1_270)],
    ),
    known(
        Format::Dstc11,
        "dstc11-track5/dev.jsonl.gz",
        (460, 3_478),
        &[(Need::None, 223), (Need::Unstructured, 237)],
    ),
    known(Format::TopicalChat, "topical-chat/valid_freq.jsonl.gz", (539, 11_681), &[]),
    known(Format::TopicalChat, "topical-chat/valid_rare.jsonl.gz", (539, 11_692), &[]),
    known(
        Format::Kbp,
        "kbp/dev.jsonl.gz",
        (248, 2_454),
        &[(Need::None, 191), (Need::Persona, 1_036)],
    ),
    known(Format::Dailydialog, "dailydialog/validation.jsonl.gz", (916, 7_419), &[]),
    known(
        Format::CommonsenseDialogues,
        "commonsense-dialogues/valid.jsonl.gz",
        (1_157, 6_619),
        &[],
    ),
    known(Format::Topiocqa, "topiocqa/train.jsonl.gz", (3_509, 90_900), &[]),
    known(Format::Locomo, "locomo/conversations-1-5.jsonl.gz", (5, 2_760), &[]),
    known(Format::Kdconv, "kdconv/film-dev.jsonl.gz", (150, 3_858), &[]),
    known(Format::Kdconv, "kdconv/music-dev.jsonl.gz", (150, 2_772), &[]),
    known(Format::Kdconv, "kdconv/travel-dev.jsonl.gz", (150, 2_691), &[]),
    known(Format::Kvret, "kvret/validation.jsonl.gz", (302, 1_566), &[]),
    known(Format::Multiwoz, "multiwoz21/val.jsonl.gz", (999, 14_730), &[]),
];

/// Returns the folder of the real data, if it exists.
fn real_data() -> Option<PathBuf> {
    let folder = std::env::var_os("TURNSTREAM_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!(
        "SKIPPED: no data in {}; set TURNSTREAM_DATA to its folder to test the loaders on it",
        folder.display()
    );
    None
}

fn check(known: &Known, path: &Path) {
    let file = known.file;
    let (turns, errors) = load(known.format, path);
    assert!(errors.is_empty(), "{file}: {errors:?}");
    assert_eq!(turns.len(), known.turns, "{file}: turns");
    let mut conversations = BTreeSet::new();
    let mut labels = BTreeMap::new();
    for dialogue in turns.chunk_by(|before, _| !before.last_of_scope) {
        let id = &dialogue[0].turn.conversation_id;
        assert!(conversations.insert(id), "{file}: {id} comes twice");
        assert!(dialogue.iter().all(|turn| turn.turn.conversation_id == *id), "{file}: {id}");
        assert!(dialogue.last().unwrap().last_of_scope, "{file}: {id} has no last turn");
        let ids: BTreeSet<_> = dialogue.iter().map(|turn| &turn.turn.turn_id).collect();
        assert_eq!(ids.len(), dialogue.len(), "{file}: {id} repeats a turn id");
        assert_eq!(dialogue[0].turn.speaker, Speaker::User, "{file}: {id}");
        let alternates =
            dialogue.windows(2).all(|pair| pair[0].turn.speaker != pair[1].turn.speaker);
        assert!(alternates || !known.alternates, "{file}: {id} does not alternate");
        let times: Vec<_> = dialogue.iter().map(|turn| turn.turn.timestamp).collect();
        let timed = known.format == Format::Locomo;
        assert!(times.iter().all(|time| time.is_some() == timed) && times.is_sorted(), "{file}");
        for need in dialogue.iter().filter_map(|turn| turn.labels.need) {
            *labels.entry(need).or_insert(0) += 1;
        }
    }
    assert_eq!(conversations.len(), known.dialogues, "{file}: dialogues");
    if !known.needs.is_empty() {
        assert_eq!(labels, known.needs.iter().copied().collect(), "{file}: labels");
    }
}

#[test]
fn the_real_data_reads_as_it_was_counted() {
    let Some(folder) = real_data() else { return };
    for known in REAL {
        let path = folder.join(known.file);
        if path.is_file() {
            check(known, &path);
        } else {
            eprintln!("SKIPPED: {} is not there", path.display());
        }
    }
}

/// The longest test. Prints its rate.
#[test]
fn sgd_train_reads_as_it_was_counted() {
    let Some(folder) = real_data() else { return };
    let start = std::time::Instant::now();
    let (mut turns, mut dialogues) = (0_u32, 0_u32);
    for item in open(Format::Sgd, &folder.join("sgd/train.jsonl.gz")).unwrap() {
        let LoggedItem::Turn(turn) = item.unwrap() else { panic!("raw") };
        turns += 1;
        dialogues += u32::from(turn.last_of_scope);
    }
    let seconds = start.elapsed().as_secs_f64();
    eprintln!(
        "sgd train: {turns} turns in {seconds:.2} s, {:.0} a second",
        f64::from(turns) / seconds
    );
    assert_eq!((dialogues, turns), (12_174, 223_756));
}
