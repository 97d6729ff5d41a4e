//! The encoder's input for dialogues of our own.

use super::*;

fn reader(kind: TokenKind, tokens: &[&str]) -> Reader {
    let tokens = tokens.iter().map(|&token| token.to_owned()).collect();
    let table = (kind == TokenKind::Pieces).then(|| StaticTable::shipped().unwrap());
    Reader::new(&Vocabulary { kind, tokens }, table)
}

fn shape(variant: Variant, max_tokens: usize) -> NetworkShape {
    NetworkShape {
        variant,
        width: 8,
        heads: 2,
        layers: 1,
        feed_forward: 8,
        max_tokens,
        max_utterances: 0,
        pools_current: true,
    }
}

fn turn(reader: &Reader, texts: &[(Speaker, &str)]) -> CutTurn {
    let cut = |text: &str| reader.cut(text).unwrap();
    CutTurn {
        utterances: texts.iter().map(|(speaker, text)| (*speaker, cut(text))).collect(),
        knowledge: vec![cut("c d"), cut("d c")],
        response: Some(cut("b")),
        depth: texts.len(),
    }
}

const DIALOGUE: [(Speaker, &str); 4] = [
    (Speaker::User, "a"),
    (Speaker::System, "b b"),
    (Speaker::User, "c"),
    (Speaker::System, "a d!"),
];

#[test]
fn places_are_counted_from_the_end_and_speakers_from_the_current_one() {
    let reader = reader(TokenKind::Words, &["a", "b", "c", "d"]);
    let read = assemble(&turn(&reader, &DIALOGUE), &shape(Variant::Contx, 64), None);
    // Each utterance begins with a mark; `!` has no row of its own.
    assert_eq!(read.context.words, [1, 4, 1, 5, 5, 1, 6, 1, 4, 7, 0]);
    assert_eq!(read.context.segments, [3, 3, 2, 2, 2, 1, 1, 0, 0, 0, 0]);
    assert_eq!(read.context.positions, (0..11).rev().collect::<Vec<u32>>());
    assert_eq!((read.current.clone(), read.depth), (7..11, 4));
    assert!(read.knowledge.is_empty());
}

#[test]
fn the_latest_stays_where_not_all_is_read() {
    let reader = reader(TokenKind::Words, &["a", "b", "c", "d"]);
    let turn = turn(&reader, &DIALOGUE);
    for most in 1..12 {
        let read = assemble(&turn, &shape(Variant::Contx, most), None);
        let whole = [1, 4, 1, 5, 5, 1, 6, 1, 4, 7, 0];
        assert!(read.context.len() <= most && !read.context.is_empty());
        assert_eq!(read.context.words, whole[11 - read.context.len()..], "{most}");
        assert_eq!(read.current.end, read.context.len());
        assert_eq!(read.current.len(), most.min(4));
    }
    let two = NetworkShape { max_utterances: 2, ..shape(Variant::Contx, 64) };
    assert_eq!(assemble(&turn, &two, None).context.words, [1, 6, 1, 4, 7, 0]);
}

#[test]
fn knowledge_and_response_stand_where_the_variant_reads_them() {
    let reader = reader(TokenKind::Words, &["a", "b", "c", "d"]);
    let turn = turn(&reader, &[(Speaker::User, "a")]);
    let read = |variant| assemble(&turn, &shape(variant, 64), None);
    let plus = read(Variant::ContxPlusKnow);
    assert_eq!(plus.context.words, [1, 4, 2, 6, 7, 2, 7, 6]);
    assert_eq!(plus.context.segments, [0, 0, 4, 4, 4, 4, 4, 4]);
    assert_eq!((plus.current, plus.knowledge.len()), (0..2, 0));
    let times = read(Variant::ContxTimesKnow);
    assert_eq!((times.context.words, times.knowledge.words), (vec![1, 4], vec![2, 6, 7, 2, 7, 6]));
    let response = read(Variant::ContxPlusResp);
    assert_eq!(response.context.words, [1, 4, 3, 5]);
    // Knowledge is cut to the bound as well.
    let short = assemble(&turn, &shape(Variant::ContxTimesKnow, 4), None);
    assert_eq!(short.knowledge.words, [2, 6, 7, 2]);
}

#[test]
fn noise_takes_punctuation_and_tokens_away() {
    let reader = reader(TokenKind::Words, &["a", "b", "c", "d"]);
    let turn = turn(&reader, &DIALOGUE);
    let mut random = fastrand::Rng::with_seed(1);
    let mut noisy = |bare, lost, misheard| {
        let noise = Noise { bare, lost, misheard, random: &mut random };
        assemble(&turn, &shape(Variant::Contx, 64), Some(noise)).context.words
    };
    assert_eq!(noisy(1.0, 0.0, 0.0), [1, 4, 1, 5, 5, 1, 6, 1, 4, 7]);
    assert_eq!(noisy(0.0, 1.0, 0.0), [1, 1, 1, 1]);
    assert_eq!(noisy(0.0, 0.0, 1.0), [1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0]);
}

#[test]
fn tokens_are_pieces_words_or_characters() {
    let words: Vec<String> = spellings(TokenKind::Words, None, "It's 5 O'Clock, OK?").unwrap();
    assert_eq!(words, ["it's", "5", "o'clock", ",", "ok", "?"]);
    let characters = spellings(TokenKind::Characters, None, "老桥 在哪？").unwrap();
    assert_eq!(characters, ["老", "桥", "在", "哪", "？"]);
    let table = StaticTable::shipped().unwrap();
    let pieces = spellings(TokenKind::Pieces, Some(&table), "Heated pools?").unwrap();
    assert_eq!(pieces, ["heated", "pools", "?"]);
    let reader = reader(TokenKind::Pieces, &["pools"]);
    let read = reader.cut("Heated pools?").unwrap();
    assert_eq!(read.iter().map(|token| token.word).collect::<Vec<_>>(), [0, 4, 0]);
    let marks: Vec<bool> = read.iter().map(|token| token.is_punctuation).collect();
    assert_eq!(marks, [false, false, true]);
    // A piece has its vector even without a row of its own.
    assert!(read.iter().all(|token| table.piece(token.piece).is_some()));
}
